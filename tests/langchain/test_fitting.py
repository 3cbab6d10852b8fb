"""Fitting embeddings on the documents of a store: at the first documents, and again when the store has grown."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import ConfigError, IncompatibleStoreError, NotFittedError, StoreError
from ragembed.indexes import Store
from ragembed.langchain import RagEmbeddings, RagVectorStore

from .fakes import FAKE, Angles, ids

WORDS = ("wing", "flow", "heat", "wave", "body", "air")
TEXTS = [f"The {word} number {n} of the lock is at place {n * 7 % 11}." for n in range(50) for word in WORDS]


def of_texts(texts: list[str]) -> list[Document]:
    return [Document(page_content=text, id=text) for text in texts]


@pytest.fixture
def uniform(tiny_model: Path) -> RagEmbeddings:
    """Embeddings that learn nothing from a corpus."""
    return RagEmbeddings(
        model=str(tiny_model), extractor="re:dim=16", weighting="uniform", postprocess=["normalize"], preset="re"
    )


@pytest.fixture
def learning(tiny_model: Path) -> RagEmbeddings:
    """Embeddings with token weights and post-processors to fit."""
    return RagEmbeddings(preset="re", model=str(tiny_model), extractor="re:dim=16", postprocess=["center", "normalize"])


# What has to be fitted


def test_every_setting_of_the_embedder_is_a_field() -> None:
    names = {field.name for field in dataclasses.fields(EmbedderConfig)}
    assert names < set(RagEmbeddings.model_fields)
    made = RagEmbeddings(seed=7, layers="1+6", max_tokens=64, dtype="float32", query_fit="shared", weighting="idf")
    expected = EmbedderConfig(seed=7, layers="1+6", max_tokens=64, dtype="float32", query_fit="shared", weighting="idf")
    assert made.embedder.config == expected
    with pytest.raises(ValueError, match="layers 'x': expected"):
        RagEmbeddings(layers="x")


@pytest.mark.parametrize("ready", ["uniform", "learning"])
def test_empty_store_takes_documents(ready: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    embeddings: RagEmbeddings = request.getfixturevalue(ready)
    with RagVectorStore.from_documents([], embeddings, path=tmp_path / "s") as store:
        assert store.similarity_search("lock") == store.hybrid_search("lock") == []
        store.save_local(tmp_path / "copy") if ready == "uniform" else None
        assert store.add_documents(of_texts(TEXTS[:2])) == TEXTS[:2]
        assert ids(store.similarity_search(TEXTS[1], k=1)) == [TEXTS[1]]
        assert store.embeddings is embeddings
        assert len(embeddings.embed_query("lock")) == 16


def test_an_empty_store_cannot_be_saved_before_its_embeddings_are_fitted(learning: RagEmbeddings, tmp_path: Path):
    with pytest.raises(NotFittedError, match="has no documents to fit its embeddings on: add documents first"):
        RagVectorStore(learning).save_local(tmp_path)


# Fitting again


def test_store_fits_as_indexing_does(learning: RagEmbeddings, tmp_path: Path) -> None:
    """Post-processors are fitted from 32 chunks on and when a store doubles, token weights when it grows tenfold."""
    vectors: list[list[float]] = []
    with RagVectorStore(learning, tmp_path / "s") as store:
        for end, texts, documents in ((3, 3, 3), (31, 3 if 31 < 30 else 31, 31), (70, 31, 70), (300, 31, 300)):
            before = len(store)
            store.add_documents(of_texts(TEXTS[before:end]))
            made = learning.embedder.describe()["fitted_on"]
            centred = "center" in learning.embedder.config.postprocess
            assert (end, made["texts"], centred) == (end, texts, end >= 32)
            assert not centred or made["documents"] == documents
            assert ids(store.similarity_search(TEXTS[end - 1], k=1)) == [TEXTS[end - 1]]
            vectors.append(store.embeddings.embed_query("number 2 of the wing"))
        store.add_documents(of_texts(["One more text."]))
        assert learning.embedder.describe()["fitted_on"]["documents"] == 300
        [(_, score)] = store.similarity_search_with_score_by_vector(learning.embed_query(TEXTS[7]), k=1)
        assert score == pytest.approx(store.similarity_search_with_score(TEXTS[7], k=1)[0][1], abs=1e-3)
    assert len({tuple(vector) for vector in vectors}) == 4
    with Store.open(tmp_path / "s") as opened:
        assert opened.verify().problems == []
        assert opened.embedder.fingerprint == learning.fingerprint


def test_fit_of_the_user_is_kept(learning: RagEmbeddings, tmp_path: Path) -> None:
    learning.fit(TEXTS[:40])
    fingerprint = learning.fingerprint
    with RagVectorStore(learning, tmp_path / "s") as store:
        store.add_texts(TEXTS)
    with RagVectorStore(path=tmp_path / "s") as store:
        store.add_texts([f"{text} Again." for text in TEXTS])
        assert store.embeddings.fingerprint == fingerprint
    with RagVectorStore(learning, tmp_path / "s") as store:
        assert len(store) == 600


def test_fit_continues_after_reopening(learning: RagEmbeddings, tmp_path: Path) -> None:
    settings = learning.model_copy(deep=True)
    RagVectorStore.from_texts(TEXTS[:40], learning, path=tmp_path / "s").close()
    for embedding in (None, learning, settings):
        with RagVectorStore(embedding, tmp_path / "s") as store:
            before = len(store)
            store.add_texts([f"{text} {before}" for text in TEXTS[:before]])
            assert store.embeddings.embedder.describe()["fitted_on"]["documents"] == 2 * before
            assert len(store.embeddings.embed_query("number 2 of the wing")) == 16
    with Store.open(tmp_path / "s") as opened:
        assert opened.embedder.fingerprint == settings.fingerprint != learning.fingerprint


def test_one_object_for_two_stores(learning: RagEmbeddings, tmp_path: Path) -> None:
    """The object follows the first store that gets documents; the other store makes a fit of its own."""
    first, second = RagVectorStore(learning, tmp_path / "1"), RagVectorStore(learning, tmp_path / "2")
    first.add_texts(TEXTS[:40])
    second.add_texts(TEXTS[150:220])
    third = RagVectorStore.from_texts(TEXTS[90:], learning)
    assert first.embeddings is learning
    assert len({each.embeddings.fingerprint for each in (first, second, third)}) == 3
    for store in (first, second, third):
        assert store.similarity_search(TEXTS[200], k=1)
    learning.fit(TEXTS)
    with pytest.raises(IncompatibleStoreError, match="were fitted again after it was opened"):
        first.similarity_search("lock")
    assert second.similarity_search("lock")


def test_settings_of_a_store_must_match(learning: RagEmbeddings, uniform: RagEmbeddings, tmp_path: Path) -> None:
    RagVectorStore.from_texts(TEXTS[:3], learning, path=tmp_path / "s").close()
    other = RagEmbeddings.from_embedder(Embedder(learning.embedder.config.replace(weighting="uniform")))
    with pytest.raises(IncompatibleStoreError, match="the weighting idf, not uniform"):
        RagVectorStore(other, tmp_path / "s")
    with pytest.raises(IncompatibleStoreError, match="weighting idf, not uniform"):
        RagVectorStore(uniform, tmp_path / "s").similarity_search("lock")


# An existing path


@pytest.mark.parametrize("kind", ["learning", "fake"])
def test_modes_of_an_existing_path(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    def embeddings() -> Embeddings:
        return FAKE if kind == "fake" else request.getfixturevalue("learning").model_copy(deep=True)

    def run(texts: list[str], **settings: str) -> list[str]:
        """A script that is run several times."""
        with RagVectorStore.from_documents(of_texts(texts), embeddings(), path=tmp_path / "s", **settings) as store:
            assert store.path == tmp_path / "s"
            assert len(store.similarity_search("lock", k=9)) == min(9, len(store))
            return store.ids()

    assert run(TEXTS[:2]) == run(TEXTS[:2]) == TEXTS[:2]
    assert run(TEXTS[2:4], mode="append") == TEXTS[:4]
    with pytest.raises(StoreError, match=r"a store exists at .*: use mode='append' to add to it, mode='overwrite'"):
        run(TEXTS, mode="error")
    with pytest.raises(ConfigError, match="mode is 'replace': expected one of append, overwrite, error"):
        run(TEXTS, mode="replace")
    assert run(TEXTS[3:5], mode="overwrite") == run(TEXTS[3:5], mode="overwrite") == TEXTS[3:5]
    assert run([], mode="overwrite") == []
    assert run(TEXTS[5:6]) == TEXTS[5:6]


def test_overwriting_may_change_the_embeddings_and_keeps_the_store_if_it_fails(tmp_path: Path) -> None:
    class Broken(DeterministicFakeEmbedding):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise OSError("no connection")

    RagVectorStore.from_texts(["a"], FAKE, ids=["a"], path=tmp_path / "s").close()
    with pytest.raises(OSError, match="no connection"):
        RagVectorStore.from_texts(["b"], Broken(size=6), path=tmp_path / "s", mode="overwrite")
    with RagVectorStore(FAKE, tmp_path / "s") as store:
        assert store.ids() == ["a"]
    pairs = [("90", [0.0, 1.0])]
    RagVectorStore.from_embeddings(pairs, Angles(), ids=["c"], path=tmp_path / "s", mode="overwrite").close()
    with RagVectorStore(Angles(), tmp_path / "s") as store:
        assert ids(store.similarity_search("80")) == ["c"]
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="notes"), warnings.catch_warnings():
        RagVectorStore.from_texts(["b"], FAKE, path=tmp_path / "own", mode="overwrite")
    assert (tmp_path / "own" / "notes.txt").read_text() == "mine"
