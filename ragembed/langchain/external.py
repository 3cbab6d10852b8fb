"""Use any LangChain ``Embeddings`` as the encoder of a store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.embeddings import Embeddings

from ragembed.models.vectors import checked_vectors
from ragembed.types import Floats


class ExternalEncoder:
    """A :class:`ragembed.indexes.VectorEncoder` that wraps LangChain embeddings other than :class:`RagEmbeddings`.

    The embeddings are identified only by :func:`model_name`, because LangChain has no other identity for them. They are
    not saved in the store, so you have to pass them to open it. If they have a method ``embed_documents_array`` that
    returns a float32 array of shape ``(n, d)``, it is used instead of ``embed_documents``.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings
        self._model = model_name(embeddings)

    @property
    def fingerprint(self) -> str:
        """Hexadecimal hash of the name."""
        return hashlib.sha256(f"external:{self._model}".encode()).hexdigest()[:32]

    @property
    def raw_fingerprint(self) -> str:
        """The same hash, because there is no post-processing."""
        return self.fingerprint

    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Embed ``texts`` as documents, float32, shape ``(n, d)``; call ``progress`` at the end."""
        embed = getattr(self._embeddings, "embed_documents_array", self._embeddings.embed_documents)
        vectors = checked_vectors(embed(list(texts)), len(texts), self._model)
        if progress is not None:
            progress(len(texts))
        return vectors

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Return ``raw`` unchanged."""
        return raw

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Embed ``texts`` as queries, float32, shape ``(n, d)``."""
        return checked_vectors([self._embeddings.embed_query(text) for text in texts], len(texts), self._model)

    def describe(self) -> Mapping[str, Any]:
        """Return the kind and the name."""
        return {"kind": "external", "model": self._model}

    def save(self, folder: str) -> None:
        """Do nothing: external embeddings are not saved."""


def model_name(embeddings: Embeddings) -> str:
    """Return the qualified name of the class, with the attribute ``model`` or ``model_name`` if there is one."""
    kind = type(embeddings)
    path = f"{kind.__module__}.{kind.__qualname__}"
    for attribute in ("model", "model_name"):
        if isinstance(value := getattr(embeddings, attribute, None), str):
            return f"{path}({value})"
    return path
