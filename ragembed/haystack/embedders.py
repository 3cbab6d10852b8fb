"""Embedders for queries and documents in Haystack pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from haystack import Document, component, default_to_dict
from typing_extensions import Self

from ragembed.adapters.lazy_embedder import LazyEmbedder
from ragembed.embedder import Embedder


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
