"""Embedders for queries and documents in Haystack pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from haystack import Document, component, default_to_dict
from typing_extensions import Self

from ragembed.adapters.document_folder import embedder_of, ready
from ragembed.embedder import Embedder
from ragembed.postprocess import unit_rows


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
        self._arguments: dict[str, Any] = {
            "path": path,
            "preset": preset,
            "settings": None if settings is None else dict(settings),
            "device": device,
        }
        self._embedder: Embedder | None = None

    def warm_up(self) -> None:
        """Load the embedder."""
        if self._embedder is None:
            path, preset, settings, device = self._arguments.values()
            loaded = None if path is None else Embedder.load(str(path), device=device)
            self._embedder = loaded or embedder_of(preset, settings, device)

    @property
    def embedder(self) -> Embedder:
        """The wrapped :class:`ragembed.Embedder`."""
        self.warm_up()
        assert self._embedder is not None  # noqa: S101  loaded above
        return self._embedder

    def fit(self, texts: Iterable[str]) -> Self:
        """Fit the embedder on the texts of a corpus. Save it with ``embedder.save(folder)`` for other pipelines.

        Parameters
        ----------
        texts : iterable of str
            Texts of the corpus, at least one.

        Returns
        -------
        same class
            The same object.
        """
        self.embedder.fit(texts)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dictionary. A fit that was not loaded from ``path`` is left out."""
        return default_to_dict(self, **self._arguments)


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
        """Return the embedding of a query, of unit length.

        Parameters
        ----------
        text : str
            Text of the query.

        Returns
        -------
        dict
            The output of the component.
        """
        return {"embedding": unit_rows(ready(self.embedder).encode_queries([text]))[0].tolist()}


@component
class RagembedDocumentEmbedder(_FittedEmbedder):
    """Embedder for documents.

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

        from ragembed.haystack import RagembedDocumentEmbedder
        embedder = RagembedDocumentEmbedder().fit(texts)
        embedder.embedder.save("my-embedder")
        embedder.run(documents)["documents"][0].embedding
    """

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Return copies of documents with embeddings of unit length.

        Parameters
        ----------
        documents : list of Document
            The documents.

        Returns
        -------
        dict
            The output of the component.
        """
        vectors = unit_rows(ready(self.embedder).encode_documents([each.content or "" for each in documents]))
        embedded = zip(documents, vectors.tolist(), strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in embedded]}
