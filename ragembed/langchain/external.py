"""Any LangChain ``Embeddings`` as the encoder of a store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from ragembed.errors import ConfigError
from ragembed.types import Floats

_BLOCK = 4096
"""Vectors that are normalised at once, in float64."""


class ExternalEncoder:
    """A :class:`ragembed.indexes.VectorEncoder` over LangChain embeddings that are not ragembed's own.

    They are identified by :func:`model_name` alone, because LangChain tells nothing else about them. They cannot be
    loaded from files, so you have to pass them to open the store. If they have a method ``embed_documents_array`` that
    returns an array, float32, shape ``(n, d)``, it is called instead of ``embed_documents``.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings
        self._model = model_name(embeddings)

    @property
    def fingerprint(self) -> str:
        """Hash, in hex, of the name."""
        return hashlib.sha256(f"external:{self._model}".encode()).hexdigest()[:32]

    @property
    def raw_fingerprint(self) -> str:
        """The same hash: there is no post-processing."""
        return self.fingerprint

    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Return the vectors of ``texts`` as documents, float32, shape ``(n, d)``; call ``progress`` at the end."""
        embed = getattr(self._embeddings, "embed_documents_array", self._embeddings.embed_documents)
        vectors = checked_vectors(embed(list(texts)), len(texts), self._model)
        if progress is not None:
            progress(len(texts))
        return vectors

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Return ``raw``."""
        return raw

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of ``texts`` as queries, float32, shape ``(n, d)``."""
        return checked_vectors([self._embeddings.embed_query(text) for text in texts], len(texts), self._model)

    def describe(self) -> Mapping[str, Any]:
        """Return the kind and the name."""
        return {"kind": "external", "model": self._model}

    def save(self, folder: str) -> None:
        """Write nothing."""


def model_name(embeddings: Embeddings) -> str:
    """Return the path of the class, with the value of ``model`` or ``model_name`` if the object has one."""
    kind = type(embeddings)
    path = f"{kind.__module__}.{kind.__qualname__}"
    for attribute in ("model", "model_name"):
        if isinstance(value := getattr(embeddings, attribute, None), str):
            return f"{path}({value})"
    return path


def checked_vectors(vectors: Sequence[Sequence[float]], count: int, model: str) -> Floats:
    """Return ``vectors`` as unit vectors, float32, shape ``(count, d)``; a zero vector stays zero.

    A store compares by cosine and keeps float16, which holds any vector of unit length. Raises :class:`ConfigError` if
    the number of vectors is wrong, their lengths differ, or a value is not finite.
    """
    if len(vectors) != count:
        raise ConfigError(f"{model} returned {len(vectors)} vectors for {count} texts: expected one vector for each text")
    if count == 0:
        return np.zeros((0, 0), dtype=np.float32)
    lengths = sorted({len(vector) for vector in vectors})
    if len(lengths) > 1 or lengths[0] == 0:
        raise ConfigError(
            f"{model} gave vectors of {' and '.join(map(str, lengths))} values: expected one length above 0"
        )
    unit = np.empty((count, lengths[0]), dtype=np.float32)
    for start in range(0, count, _BLOCK):
        unit[start : start + _BLOCK] = _unit(vectors[start : start + _BLOCK], start, model)
    return unit


def _unit(vectors: Sequence[Sequence[float]], first: int, model: str) -> NDArray[np.float64]:
    rows = np.array(vectors, dtype=np.float64)
    if rows.ndim != 2:
        raise ConfigError(f"{model} gave vectors of shape {rows.shape[1:]}: expected one number for each value")
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0].tolist()
        raise ConfigError(
            f"{model} gave {rows[row, column]} as value {column} of vector {first + row}: expected finite numbers"
        )
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows /= np.where(largest == 0.0, 1.0, largest)  # first, so that no square is out of range
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms == 0.0, 1.0, norms))
