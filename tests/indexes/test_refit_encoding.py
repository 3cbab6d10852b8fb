"""A refit encodes no document of the store, and its result equals a clean build."""

import random
import shutil

import numpy as np
import pytest

from ragembed.extractors.transformer import TransformerExtractor
from ragembed.indexes import Store
from ragembed.indexes.ann import picking
from ragembed.indexes.ann.records import IndexConfig
from ragembed.indexes.indexing import refit
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import index_files
from ragembed.indexes.verify import Part, verify_store
from ragembed.indexes.writing import index_selection
from tests.conftest import WORDS

DRAW = random.Random(5)
TEXTS = [" ".join(DRAW.choices(WORDS[8:32], k=18)) for _ in range(100)]
STEPS = ("abtt:2", "normalize")


@pytest.fixture(scope="module")
def template(tmp_path_factory, tiny_config):
    """A folder of documents with one text per file, and a store of them."""
    folder = tmp_path_factory.mktemp("refit")
    (folder / "docs").mkdir()
    for i, text in enumerate(TEXTS):
        (folder / "docs" / f"{i:03}.txt").write_text(text + "\n")
    index_files(IndexingRequest(folder / "store", (folder / "docs",), embedder=tiny_config))
    return folder


@pytest.fixture
def folder(template, tmp_path):
    return shutil.copytree(template, tmp_path / "copy")


@pytest.fixture
def store(folder):
    return folder / "store"


@pytest.fixture
def without_relevance(monkeypatch):
    """Refits without the fit of relevance, which encodes queries of its own."""
    monkeypatch.setattr(refit, "calibrate", lambda *_, **__: [])


@pytest.fixture
def encoded(monkeypatch, without_relevance):
    """The texts that the model encodes, as documents or queries."""
    texts = {"documents": [], "queries": [], "pseudo-queries": [], "few-documents": []}
    original = TransformerExtractor.encode

    def encode(self, batch, side, *rest):
        texts[side].extend(batch)
        return original(self, batch, side, *rest)

    monkeypatch.setattr(TransformerExtractor, "encode", encode)
    return texts


@pytest.fixture
def no_documents(monkeypatch, without_relevance):
    """An encoder that fails when it is called for documents."""
    original = TransformerExtractor.encode

    def encode(self, batch, side, *rest):
        assert "documents" not in side
        return original(self, batch, side, *rest)

    monkeypatch.setattr(TransformerExtractor, "encode", encode)


def vectors(path):
    with Store.open(path) as store:
        ids = sorted(store.ids())
        return store.vectors(ids), [store.get([name])[0].chunk.text for name in ids]


def state(path):
    with Store.open(path) as store:
        return store.embedder.fingerprint, store.embedder.fitted_on, store._wanted_chain()


@pytest.mark.parametrize("query_fit", ["separate", "shared"])
def test_refit_of_an_unchanged_corpus_encodes_no_document_and_equals_a_clean_build(
    folder, tiny_config, no_documents, monkeypatch, query_fit
):
    refit_store(folder / "store", STEPS, query_fit)
    monkeypatch.undo()
    config = tiny_config.replace(postprocess=STEPS, query_fit=query_fit)
    index_files(IndexingRequest(folder / "clean", (folder / "docs",), embedder=config))
    assert state(folder / "store") == state(folder / "clean")  # the fingerprint covers every fitted number
    refitted, clean = vectors(folder / "store"), vectors(folder / "clean")
    np.testing.assert_array_equal(refitted[0], clean[0])
    assert refitted[1] == clean[1]
    with Store.open(folder / "store") as one, Store.open(folder / "clean") as other:
        for query in ("segment vector file", "writer of the store"):
            found, expected = (opened.search(query, 10, "dense") for opened in (one, other))
            assert [(hit.chunk.text, hit.score) for hit in found] == [(hit.chunk.text, hit.score) for hit in expected]


def test_repeated_refits_encode_no_document(store, no_documents):
    first = state(store)
    for steps, query_fit in ((STEPS, "separate"), (("normalize",), "shared"), (("zscore",), "separate")):
        refit_store(store, steps, query_fit)
    refit_store(store, ("center", "normalize"))
    assert state(store) == first


def test_a_refit_encodes_nothing_but_pseudo_queries(store, encoded):
    refit_store(store)
    assert {side for side, texts in encoded.items() if texts} == {"pseudo-queries"}
    assert len(encoded["pseudo-queries"]) == len(TEXTS)


def test_a_store_keeps_the_last_row_of_its_fit(store, folder, tmp_path):
    def fitted_row(path):
        with Store.open(path) as opened, opened.writer() as writer:
            return writer.meta("fitted_row"), writer.last_row()

    assert fitted_row(store) == (100, 100)
    (folder / "docs" / "new.txt").write_text("zebra alpha beta gamma delta one two three\n")
    index_files(IndexingRequest(store))
    assert fitted_row(store) == (100, 101)
    with Store.open(store) as opened:
        opened.copy(tmp_path / "other")
    assert fitted_row(tmp_path / "other") == (100, 101)
    refit_store(store)
    assert fitted_row(store) == (101, 101)


def test_invalid_last_row_of_the_fit_is_damage(store):
    with Store.open(store) as opened, opened.writer() as writer:
        writer.set_meta({"fitted_row": "x"})
    assert {problem.part for problem in verify_store(store).problems} == {Part.DATABASE}


@pytest.mark.usefixtures("no_documents")
def test_approximate_index_is_picked_again_without_encoding_documents(store, monkeypatch):
    monkeypatch.setattr(picking, "LEAST_ASKED", 50)
    monkeypatch.setattr(index_selection, "QUERIES", 40)
    monkeypatch.setattr(picking, "latency_ms", lambda *_: 1.0)
    with Store.open(store) as opened:
        opened.optimize(index=IndexConfig("hnsw"))

    refit_store(store, STEPS)
    with Store.open(store) as opened:
        assert {segment["kind"] for segment in opened.status()["segments"]} == {"hnsw"}
        assert opened.index_choice().rows == len(TEXTS)
        assert opened.index_check().measurement.recall.mean > 0.9
