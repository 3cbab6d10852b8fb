"""Post-processors fitted on the vectors of other LangChain embeddings."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from ragembed.errors import ModelError
from ragembed.extractors.external import PROBE
from ragembed.indexes import refit_store
from ragembed.langchain import RagEmbeddings, RagVectorStore
from ragembed.langchain.embeddings import server_name
from ragembed.postprocess import Chain, unit_rows

END = "in the garden behind the old red house near the river, where nobody has been for a very long time"
TEXTS = [
    f"the {animal} {verb} number {i} {END}" for i in range(10) for animal in ("cat", "dog") for verb in ("runs", "sits")
]


class Hashed(Embeddings):
    """Embed a text as the sum of vectors of its words, with ``offset`` added to queries; count the texts."""

    def __init__(self, model: str = "one", offset: float = 0.0, dim: int = 12) -> None:
        self.model = model
        self.offset = offset
        self.dim = dim
        self.documents: list[str] = []
        self.queries: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.documents += texts
        return [self._vector(text).tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.queries.append(text)
        return (self._vector(text) + self.offset).tolist()

    def _vector(self, text: str) -> np.ndarray:
        total = np.full(self.dim, 2.0)
        for word in text.split():
            seed = hashlib.sha256(f"{self.model} {word}".encode()).digest()[:8]
            total += np.random.default_rng(int.from_bytes(seed, "little")).normal(size=self.dim)
        return total


def own(base: Hashed, texts: list[str]) -> np.ndarray:
    return unit_rows(np.array([base._vector(text) for text in texts], dtype=np.float32))


def test_post_processors_are_fitted_on_the_vectors_of_the_base():
    base = Hashed()
    fitted = RagEmbeddings(base=base, postprocess=["zscore", "normalize"]).fit(TEXTS)
    expected = Chain(("zscore", "normalize")).fit(own(base, TEXTS)).transform(own(base, TEXTS))
    np.testing.assert_allclose(fitted.embed_documents(TEXTS), expected, atol=1e-5)
    assert fitted.embedder.fitted_on.pseudo_queries > 0
    assert fitted.dimension == 12


def test_without_post_processors_the_vectors_are_those_of_the_base():
    base = Hashed()
    fitted = RagEmbeddings(base=base, postprocess=[]).fit(TEXTS)
    long = "word " * 2000
    np.testing.assert_allclose(fitted.embed_documents([*TEXTS, long]), own(base, [*TEXTS, long]), atol=1e-6)
    np.testing.assert_allclose(fitted.embed_query("cat"), own(base, ["cat"])[0], atol=1e-6)


def test_prompts_are_joined():
    base = Hashed()
    fitted = RagEmbeddings(base=base, template="passage: [X]", query_template="query: [X]").fit(TEXTS)
    fitted.embed_query("cat")
    fitted.embed_documents(["dog"])
    assert base.queries[-1] == "query: cat"
    assert base.documents[-1] == "passage: dog"


@pytest.mark.parametrize(("offset", "one_by_one"), [(0.0, False), (3.0, True)])
def test_pseudo_queries_are_embedded_together_if_queries_are_like_documents(offset, one_by_one):
    base = Hashed(offset=offset)
    fitted = RagEmbeddings(base=base, postprocess=["center"]).fit(TEXTS)
    assert (len(base.queries) > fitted.embedder.fitted_on.pseudo_queries) == one_by_one


def test_saved_embeddings_load_with_the_base_only(tmp_path):
    base = Hashed()
    fitted = RagEmbeddings(base=base, postprocess=["zscore", "normalize"]).fit(TEXTS)
    fitted.save(tmp_path)
    again = RagEmbeddings.load(tmp_path, base=Hashed())
    assert again.fingerprint == fitted.fingerprint
    assert again.embed_query("cat") == fitted.embed_query("cat")
    with pytest.raises(ModelError, match=r"made by .*Hashed\(one\), which is not saved: give it as base=…, set RAG"):
        RagEmbeddings.load(tmp_path).embed_query("cat")
    with pytest.raises(ModelError, match="not the model that this embedder was fitted with"):
        RagEmbeddings.load(tmp_path, base=Hashed("another")).embed_query("cat")
    with pytest.raises(ModelError, match="vectors of 5 dimensions, not 12"):
        RagEmbeddings.load(tmp_path, base=Hashed(dim=5)).embed_query("cat")


def test_a_store_embeds_each_text_once_and_is_refitted_without_embedding(tmp_path, monkeypatch):
    base = Hashed()
    unfitted = RagEmbeddings(base=base, postprocess=["zscore", "normalize"])
    store = RagVectorStore.from_texts(TEXTS, unfitted, path=tmp_path / "s")
    sent = [text for text in base.documents if text in TEXTS]
    assert sorted(sent) == sorted(TEXTS)
    best = store.similarity_search(TEXTS[5], k=1)[0].page_content
    store.close()
    base.documents.clear()
    refit_store(tmp_path / "s", ["center", "normalize"])
    assert not base.documents
    reopened = RagVectorStore(RagEmbeddings(base=base), tmp_path / "s")
    assert reopened.similarity_search(TEXTS[5], k=1)[0].page_content == best
    assert reopened.embeddings.embedder.config.postprocess == ("center", "normalize")
    reopened.add_documents([Document(page_content="a giraffe eats leaves")])
    assert reopened.similarity_search("giraffe leaves", k=1)[0].page_content == "a giraffe eats leaves"
    assert not set(base.documents) & set(TEXTS)
    reopened.close()
    with pytest.raises(ModelError, match="not the model"):
        RagVectorStore(RagEmbeddings(base=Hashed("another")), tmp_path / "s").similarity_search("cat")


@pytest.mark.parametrize(("changed", "template", "sent"), [(False, None, 1), (True, None, 40), (False, "p: [X]", 40)])
def test_rebuild_reuses_the_vectors_of_the_same_base(tmp_path, changed, template, sent):
    store = RagVectorStore.from_texts(TEXTS, Hashed("one"), path=tmp_path / "old")
    base = Hashed("one")
    if changed:
        base._vector = Hashed("another")._vector  # type: ignore[method-assign]
    unfitted = RagEmbeddings(base=base, template=template, postprocess=["zscore", "normalize"])
    rebuilt = store.rebuild(unfitted, tmp_path / "new")
    assert len({text for text in base.documents if any(own in text for own in TEXTS)}) == sent
    stored = rebuilt._lazy.get_or_create().vectors(rebuilt.ids())
    np.testing.assert_allclose(stored, rebuilt.embeddings.embed_documents(TEXTS), atol=5e-3)
    assert rebuilt.embeddings.embedder.fitted_on.documents == len(TEXTS)


def test_a_server_of_the_same_model_replaces_the_base(tmp_path, cli, embedding_server, monkeypatch):
    class Served(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [embedding_server.vector(text) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return embedding_server.vector(text)

    unfitted = RagEmbeddings(base=Served(), postprocess=["zscore", "normalize"])
    RagVectorStore.from_texts(TEXTS, unfitted, path=tmp_path / "s").close()
    assert "give it as base=" in cli("query", "cat", "--store", tmp_path / "s", exit_code=2).stderr
    assert cli("query", "cat", "--store", tmp_path / "s", "--mode", "lexical").stdout
    monkeypatch.setenv("RAGEMBED_MODEL", embedding_server.name)
    assert cli("query", "cat", "--store", tmp_path / "s").stdout
    cli("refit", "--store", tmp_path / "s", "--postprocess", "center,normalize")
    assert set(embedding_server.texts) <= {PROBE, "cat"}


@pytest.mark.parametrize(
    ("module", "kind", "fields", "name"),
    [
        (
            "langchain_openai.embeddings.base",
            "OpenAIEmbeddings",
            {"model": "m", "openai_api_base": "http://box/v1/"},
            "http://box/v1#m",
        ),
        ("langchain_openai.embeddings.base", "OpenAIEmbeddings", {"model": "m", "dimensions": 6}, "openai:m"),
        ("langchain_openai.embeddings.azure", "AzureOpenAIEmbeddings", {"model": "m"}, None),
        ("langchain_ollama.embeddings", "OllamaEmbeddings", {"model": "m:v1"}, "ollama:m:v1"),
        (
            "langchain_ollama.embeddings",
            "OllamaEmbeddings",
            {"model": "m", "base_url": "http://box:1"},
            "http://box:1/v1#m",
        ),
        ("my.package", "OpenAIEmbeddings", {"model": "m"}, None),
    ],
)
def test_embeddings_that_ask_a_known_server_are_found_from_the_command_line(module, kind, fields, name):
    made = type(kind, (Hashed,), {"__module__": module})()
    for field, value in fields.items():
        setattr(made, field, value)
    assert server_name(made) == name
    config = RagEmbeddings(base=made).embedder.config
    assert config.model == (name or f"langchain:{module}.{kind}(m)")
    assert config.truncate_dim == fields.get("dimensions")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": Hashed(), "model": "m"}, "model 'm' cannot be combined with base"),
        ({"base": Hashed(), "preset": "t4"}, "pooling is 'mean', but it does not apply to langchain"),
        ({"path": "x", "postprocess": ["center"]}, "path 'x' cannot be combined with"),
        ({"base": RagEmbeddings()}, "base is a RagEmbeddings"),
        ({"base": Hashed(), "postprocess": ["no"]}, "unknown post-processor 'no'"),
    ],
)
def test_settings_that_contradict_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        RagEmbeddings(**settings).fit(TEXTS)
