"""The components of Haystack pipelines: retrievers over a ``RagembedDocumentStore``, and embedders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.types import FilterPolicy
from haystack.document_stores.types.filter_policy import apply_filter_policy
from typing_extensions import Self

from ragembed.adapters.encoders import LazyEmbedder
from ragembed.adapters.own_store import twin
from ragembed.config.fields import one_of
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError
from ragembed.haystack.document_store import RagembedDocumentStore
from ragembed.indexes.search.pipeline import MODES, Mode


class _Base:
    """The settings that both retrievers share."""

    def __init__(
        self,
        document_store: RagembedDocumentStore,
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
        filter_policy: FilterPolicy | str = FilterPolicy.REPLACE,
    ) -> None:
        if not isinstance(document_store, RagembedDocumentStore):
            raise ConfigError(f"document_store is a {type(document_store).__name__}: expected a RagembedDocumentStore")
        self.document_store = document_store
        self.top_k = top_k
        self.filters = filters
        if isinstance(filter_policy, str):
            filter_policy = FilterPolicy.from_str(filter_policy)
        self.filter_policy = filter_policy

    def _arguments(self) -> dict[str, Any]:
        return {
            "document_store": self.document_store.to_dict(),
            "top_k": self.top_k,
            "filters": self.filters,
            "filter_policy": str(self.filter_policy),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dictionary."""
        return default_to_dict(self, **self._arguments())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the retriever whose settings :meth:`to_dict` returned."""
        arguments = data["init_parameters"]
        store = RagembedDocumentStore.from_dict(arguments["document_store"])
        retriever: Self = default_from_dict(cls, {**data, "init_parameters": {**arguments, "document_store": store}})
        return retriever

    def _search(
        self,
        query: str,
        mode: Mode,
        top_k: int | None,
        filters: dict[str, Any] | None,
        query_embedding: list[float] | None,
    ) -> dict[str, list[Document]]:
        chosen = apply_filter_policy(self.filter_policy, self.filters, filters)
        wanted = self.top_k if top_k is None else top_k
        return {"documents": self.document_store.search(query, wanted, mode, chosen, query_embedding)}


@component
class RagembedRetriever(_Base):
    """Retriever for the text of a query, with hybrid search by default.

    Parameters
    ----------
    document_store : RagembedDocumentStore
        The store to search.
    top_k : int
        Maximum number of documents.
    mode : {"hybrid", "dense", "lexical"}
        Whether to compare cosines, words (BM25), or both. A store with the embeddings of its documents needs
        ``query_embedding`` for ``"hybrid"`` and ``"dense"``.
    filters : dict, optional
        Filter in the form of Haystack.
    filter_policy : FilterPolicy or str
        Whether filters of a run replace ``filters`` or are merged with them.

    Examples
    --------
    .. code-block:: python

        from ragembed.haystack import RagembedDocumentStore, RagembedRetriever
        retriever = RagembedRetriever(RagembedDocumentStore("my-store"), top_k=3)
        retriever.run("How do I brew tea?")["documents"]
    """

    def __init__(
        self,
        document_store: RagembedDocumentStore,
        top_k: int = 10,
        mode: Mode = "hybrid",
        filters: dict[str, Any] | None = None,
        filter_policy: FilterPolicy | str = FilterPolicy.REPLACE,
    ) -> None:
        one_of("mode", mode, MODES)
        _Base.__init__(self, document_store, top_k, filters, filter_policy)  # the decorator makes another class
        self.mode: Mode = mode

    def _arguments(self) -> dict[str, Any]:
        return {"mode": self.mode, **_Base._arguments(self)}

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        query_embedding: list[float] | None = None,
    ) -> dict[str, list[Document]]:
        """Return the best documents for a query, with their scores."""
        return self._search(query, self.mode, top_k, filters, query_embedding)

    run_async = component.output_types(documents=list[Document])(twin(run, "{}_async"))


@component
class RagembedEmbeddingRetriever(_Base):
    """Retriever for the embedding of a query, over a store with ``embedding="documents"``.

    Parameters
    ----------
    document_store, top_k, filters, filter_policy
        As for :class:`RagembedRetriever`.

    Examples
    --------
    .. code-block:: python

        from ragembed.haystack import RagembedDocumentStore, RagembedEmbeddingRetriever
        store = RagembedDocumentStore("given-store", embedding="documents")
        RagembedEmbeddingRetriever(store).run(query_embedding=[0.1, 0.9])["documents"]
    """

    @component.output_types(documents=list[Document])
    def run(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the documents with the nearest embeddings, with their cosines."""
        return self._search("", "dense", top_k, filters, query_embedding)

    run_async = component.output_types(documents=list[Document])(twin(run, "{}_async"))


class _FittedEmbedder:
    """The settings that both embedders share."""

    def __init__(
        self,
        path: str | None = None,
        *,
        preset: str = "minilm",
        settings: Mapping[str, Any] | None = None,
        device: str | None = None,
    ) -> None:
        self._lazy = LazyEmbedder(path, preset, None if settings is None else dict(settings), device)

    def warm_up(self) -> None:
        """Load the embedder."""
        self._lazy.embedder  # noqa: B018  loads it

    @property
    def embedder(self) -> Embedder:
        """The wrapped :class:`ragembed.Embedder`."""
        return self._lazy.embedder

    def fit(self, texts: Iterable[str]) -> Self:
        """Fit the embedder on the texts of a corpus. Save it with ``embedder.save(folder)`` for other pipelines."""
        self.embedder.fit(texts)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dictionary. A fit that was not loaded from ``path`` is left out."""
        return default_to_dict(self, **asdict(self._lazy))


@component
class RagembedTextEmbedder(_FittedEmbedder):
    """Embedder for queries.

    Parameters
    ----------
    path : str, optional
        Folder of a saved embedder.
    preset : str
        Name of a configuration, without ``path``.
    settings : dict, optional
        Fields of :class:`ragembed.EmbedderConfig` that replace those of the preset. Settings that learn from a corpus
        need :meth:`fit`.
    device : str, optional
        Device, as for :class:`ragembed.Embedder`.

    Examples
    --------
    .. code-block:: python

        from ragembed.haystack import RagembedTextEmbedder
        embedder = RagembedTextEmbedder(path="my-embedder")
        len(embedder.run("How do I brew tea?")["embedding"])
    """

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """Return the embedding of a query, of unit length."""
        return {"embedding": self._lazy.encode_query(text)}

    run_async = component.output_types(embedding=list[float])(twin(run, "{}_async"))


@component
class RagembedDocumentEmbedder(_FittedEmbedder):
    """Embedder for documents.

    Parameters
    ----------
    path, preset, settings, device
        As for :class:`RagembedTextEmbedder`.

    Examples
    --------
    .. code-block:: python

        from ragembed.haystack import RagembedDocumentEmbedder
        embedder = RagembedDocumentEmbedder().fit(texts)
        embedder.embedder.save("my-embedder")
        embedder.run(documents)["documents"][0].embedding
    """

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Return copies of documents with embeddings of unit length."""
        vectors = self._lazy.encode_documents([document.content or "" for document in documents])
        embedded = zip(documents, vectors.tolist(), strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in embedded]}

    run_async = component.output_types(documents=list[Document])(twin(run, "{}_async"))
