"""``RagEmbeddings`` as arrays, cached, copied, in threads and in other stores."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.vectorstores import InMemoryVectorStore

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import ConfigError, ModelError
from ragembed.langchain import RagEmbeddings, RagVectorStore

CORPUS = [
    "the cat sleeps and the dog runs",
    "the writer holds the lock of the store",
    "supersonic flow of air at a wing",
    "one two three four five",
    "the boundary layer and a shock wave",
    "red green blue",
    "a bird flies, a fish swims",
    "query and answer of the index",
]
QUERIES = ["which bird flies", "lock of the writer", "shock wave at a wing", "three colours: red and blue", "zebra"]
ODD = ["", "cat " * 300, "\udc80 half"]
SAME = 1e-5
"""Tolerance for values of unit vectors from different batches: rounding of float32."""


@pytest.fixture(scope="session")
def tiny(tiny_config: EmbedderConfig) -> RagEmbeddings:
    """Fitted embeddings with a tiny model, for all tests."""
    return RagEmbeddings.from_embedder(Embedder(tiny_config)).fit(CORPUS)


@pytest.fixture(scope="session")
def saved(tiny: RagEmbeddings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-embeddings")
    tiny.save(folder)
    return folder


def unfitted(tiny_model: Path) -> RagEmbeddings:
    """Unfitted embeddings that need no model."""
    return RagEmbeddings.from_embedder(Embedder(EmbedderConfig(extractor="re:dim=16", model=str(tiny_model))))


# Arrays


def test_arrays_equal_lists(tiny: RagEmbeddings) -> None:
    texts = [*CORPUS, *ODD]
    assert tiny.embed_documents_array([]).shape == (0, tiny.dimension)
    array = tiny.embed_documents_array(texts)
    assert (array.dtype, array.shape) == (np.float32, (len(texts), tiny.dimension))
    assert array.tolist() == tiny.embed_documents(texts)
    query = tiny.embed_query_array(QUERIES[0])
    assert (query.dtype, query.shape) == (np.float32, (tiny.dimension,))
    assert query.tolist() == tiny.embed_query(QUERIES[0])


def test_texts_reach_the_embedder_unchanged(tiny: RagEmbeddings) -> None:
    seen: list[str] = []

    class Watched(Embedder):
        def encode_documents(self, texts: Sequence[str]) -> Any:
            seen.extend(texts)
            return super().encode_documents(texts)

        def encode_queries(self, texts: Sequence[str]) -> Any:
            seen.extend(texts)
            return super().encode_queries(texts)

    watched = Watched()
    watched.__dict__.update(tiny.embedder.__dict__)
    embeddings = RagEmbeddings.from_embedder(watched)
    texts = ["two\n\nparagraphs", "\ttab ", "a\r\nb", "def f():\n    return 1\n"]
    embeddings.embed_documents(texts)
    for text in texts:
        embeddings.embed_query(text)
    assert seen == [*texts, *texts]


# Cache


def test_cache_namespace_depends_on_the_fit(tiny_model: Path, tmp_path: Path) -> None:
    embeddings = unfitted(tiny_model).fit(CORPUS)
    embeddings.save(tmp_path)
    same = unfitted(tiny_model).fit(list(CORPUS))
    assert embeddings.cache_namespace == same.cache_namespace == RagEmbeddings.load(tmp_path).cache_namespace
    assert unfitted(tiny_model).fit(CORPUS[1:]).cache_namespace != embeddings.cache_namespace
    assert embeddings.cache_namespace.replace("-", "").isalnum()  # valid in every file system and key-value store


# Copy and pickle


def copied(embeddings: RagEmbeddings) -> RagEmbeddings:
    twin: RagEmbeddings = ForkingPickler.loads(ForkingPickler.dumps(embeddings))
    return twin


def test_pickled_embeddings_stay_unfitted_or_unloaded(saved: Path, tiny: RagEmbeddings, tiny_model: Path) -> None:
    assert not copied(RagEmbeddings(model=str(tiny_model))).is_fitted
    twin = copied(RagEmbeddings(path=str(saved)))
    assert twin.path == str(saved)
    assert twin.fingerprint == tiny.fingerprint


# A model in memory


@pytest.fixture
def in_memory(tiny_model: Path) -> tuple[Any, Any]:
    """A Hugging Face model and its tokenizer."""
    from transformers import AutoModel, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tiny_model / "tokenizer.json"), pad_token="[PAD]")
    return AutoModel.from_pretrained(str(tiny_model)), tokenizer


def test_model_in_memory_has_vectors_of_its_folder(
    in_memory: tuple[Any, Any], tiny_model: Path, tmp_path: Path
) -> None:
    embeddings = RagEmbeddings.from_model(*in_memory, tmp_path / "model", device="cpu").fit(CORPUS)
    expected = RagEmbeddings(model=str(tiny_model), device="cpu").fit(CORPUS)
    np.testing.assert_allclose(
        embeddings.embed_documents_array(CORPUS), expected.embed_documents_array(CORPUS), atol=SAME
    )
    np.testing.assert_allclose(embeddings.embed_query(QUERIES[0]), expected.embed_query(QUERIES[0]), atol=SAME)
    with RagVectorStore.from_texts(CORPUS, embeddings, path=tmp_path / "store") as store:
        before = store.similarity_search_with_score(QUERIES[0])
    with RagVectorStore(path=tmp_path / "store") as again:
        assert again.similarity_search_with_score(QUERIES[0]) == before


def test_model_in_memory_with_preset_and_relative_path(in_memory: tuple[Any, Any], in_folder: Path) -> None:
    embeddings = RagEmbeddings.from_model(*in_memory, "model", preset="re")
    assert embeddings.model == str(in_folder / "model")
    assert embeddings.embedder.config.extractor == "re"
    assert not embeddings.is_fitted
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= {
        file.name for file in (in_folder / "model").iterdir()
    }


def test_invalid_model_in_memory_writes_nothing(in_memory: tuple[Any, Any], tmp_path: Path) -> None:
    model, tokenizer = in_memory
    for parts, named in (((object(), tokenizer), "model is a object"), ((model, "a name"), "tokenizer is a str")):
        with pytest.raises(ConfigError, match=named):
            RagEmbeddings.from_model(*parts, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("more")
    for place in ("model", "file"):
        with pytest.raises(ConfigError, match=f"{place} already exists and is not empty"):
            RagEmbeddings.from_model(model, tokenizer, tmp_path / place)
    assert [file.name for file in (tmp_path / "model").iterdir()] == ["thesis.txt"]
    with pytest.raises(ValueError, match="unknown preset"):
        RagEmbeddings.from_model(model, tokenizer, tmp_path / "new", preset="nope")


def test_nothing_is_read_before_first_use(tmp_path: Path) -> None:
    for embeddings in (RagEmbeddings(model=str(tmp_path / "gone")), RagEmbeddings(path=str(tmp_path / "gone"))):
        with pytest.raises(ModelError):
            embeddings.fit(CORPUS)


# In other stores


def test_other_vector_store_ranks_alike(tiny: RagEmbeddings) -> None:
    memory = InMemoryVectorStore.from_texts(CORPUS, tiny)
    with RagVectorStore.from_texts(CORPUS, tiny) as store:
        for question in (*QUERIES, *CORPUS):
            ours = {document.page_content: score for document, score in store.similarity_search_with_score(question, 8)}
            theirs = memory.similarity_search_with_score(question, k=8)
            assert {document.page_content: score for document, score in theirs} == pytest.approx(ours, abs=2e-3)
            assert next(iter(ours)) == theirs[0][0].page_content
