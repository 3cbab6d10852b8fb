"""A refit encodes no text that has a vector in the store, and its result equals a clean build."""

import random
import shutil

import numpy as np
import pytest

from ragembed.indexes import Store
from ragembed.indexes.faiss_index import choose
from ragembed.indexes.faiss_index.records import IndexConfig
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.integrity import Part
from ragembed.indexes.storage import derived, upkeep
from ragembed.indexes.verification import verify_store
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
    monkeypatch.setattr(fitting, "calibrate", lambda *_, **__: [])


def vectors(path):
    with Store.open(path) as store:
        ids = sorted(store.ids())
        return store.vectors(ids), [store.get([name])[0].chunk.text for name in ids]


def state(path):
    with Store.open(path) as store:
        return store.embedder.fingerprint, store.embedder.fitted_on, store.wanted_config()


def fit_queries(path):
    with Store.open(path) as store, store.writer() as writer:
        return writer.fit_queries()


@pytest.mark.usefixtures("without_relevance")
@pytest.mark.parametrize("query_fit", ["separate", "shared"])
def test_refit_of_an_unchanged_corpus_encodes_nothing_and_equals_a_clean_build(folder, tiny_config, encoded, query_fit):
    refit_store(folder / "store", STEPS, query_fit)
    assert encoded == []
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


@pytest.mark.usefixtures("without_relevance")
def test_only_new_pseudo_queries_are_encoded(folder, store, encoded):
    before = fit_queries(store)
    assert len(before.texts) == len(TEXTS)
    (folder / "docs" / "000.txt").unlink()
    (folder / "docs" / "new.txt").write_text("zebra alpha beta gamma delta one two three\n")
    index_files(IndexingRequest(store))
    encoded.clear()
    refit_store(store)
    after = fit_queries(store)
    new = set(after.texts) - set(before.texts)
    # Those of the fit and those of the hubness have the same new text.
    assert set(encoded) == {("pseudo-queries", text) for text in new}
    assert len(new) == 1
    assert len(after.texts) == len(TEXTS)
    with Store.open(store) as opened:
        raw = opened.embedder.raw_pseudo_queries(after.texts)
    np.testing.assert_allclose(after.raw, raw, atol=1e-5)


def forget(path):
    with Store.open(path) as store, store.writer() as writer, writer._database.transaction():
        derived.forget(writer._connection, derived.QUERIES)


def query_files(path):
    return sorted(path.glob("derived/queries*"))


def test_only_one_file_of_queries_exists(store, folder):
    assert len(query_files(store)) == 1
    left = query_files(store)[0].with_name("queries-0123456789abcdef.safetensors")
    left.write_bytes(b"x")
    (folder / "docs" / "new.txt").write_text("zebra alpha beta gamma delta one two three\n")
    index_files(IndexingRequest(store))
    assert len(query_files(store)) == 1
    before = query_files(store)
    refit_store(store)
    assert len(query_files(store)) == 1
    assert query_files(store) != before
    assert verify_store(store).problems == []


@pytest.mark.parametrize("damage", ["altered", "missing"])
def test_damaged_file_of_queries_is_dropped_and_not_needed_for_search(store, damage):
    [file] = query_files(store)
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    with Store.open(store) as opened:
        assert opened.search("writer", 3)
    [problem] = verify_store(store).problems
    assert (problem.part, problem.file) == (Part.QUERIES, file.relative_to(store).as_posix())
    report = verify_store(store, repair=True)
    assert (report.problems, len(report.repaired)) == ([], 1)
    assert fit_queries(store) is None
    refit_store(store)
    assert len(fit_queries(store).texts) == len(TEXTS)
    query_files(store)[0].unlink()
    refit_store(store)
    assert len(fit_queries(store).texts) == len(TEXTS)


def test_a_repaired_embedder_keeps_its_queries(store):
    before = fit_queries(store)
    [file] = store.glob("embedders/*/config.json")
    file.unlink()
    assert verify_store(store, repair=True).problems == []
    assert fit_queries(store).texts == before.texts


@pytest.mark.usefixtures("without_relevance")
def test_approximate_index_is_picked_again_without_encoding(store, encoded, monkeypatch):
    monkeypatch.setattr(choose, "LEAST_ASKED", 50)
    monkeypatch.setattr(upkeep, "QUERIES_PER_CHECK", 40)
    monkeypatch.setattr(choose, "latency_ms", lambda *_: 1.0)
    with Store.open(store) as opened:
        opened.optimize(index=IndexConfig("hnsw"))
    encoded.clear()
    refit_store(store, STEPS)
    assert encoded == []
    with Store.open(store) as opened:
        assert {segment["kind"] for segment in opened.status()["segments"]} == {"hnsw"}
        assert opened.index_choice().rows == len(TEXTS)
        assert opened.index_check().measurement.recall.mean > 0.9
