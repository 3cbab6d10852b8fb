"""Encoders that are identified by a name only, because a store cannot save them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from ragembed.errors import NotFittedError
from ragembed.indexes import VectorEncoder
from ragembed.postprocess import unit_rows
from ragembed.types import Floats


class NamedEncoder(VectorEncoder):
    """A :class:`ragembed.indexes.VectorEncoder` without post-processing; ``kind`` and ``model`` identify it."""

    def __init__(self, kind: str, model: str, identity: str) -> None:
        self._kind, self._model = kind, model
        self._fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:32]

    @property
    def fingerprint(self) -> str:
        """Hexadecimal hash of the name."""
        return self._fingerprint

    @property
    def raw_fingerprint(self) -> str:
        """The same hash, because there is no post-processing."""
        return self._fingerprint

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Return ``raw`` unchanged."""
        return raw

    def describe(self) -> Mapping[str, Any]:
        """Return the kind and the name."""
        return {"kind": self._kind, "model": self._model}

    @override
    def save(self, folder: str) -> None:
        """Do nothing: the encoder is not saved."""


class GivenVectors(NamedEncoder):
    """The encoder of a store whose vectors a framework makes. It encodes nothing itself."""

    def __init__(self) -> None:
        super().__init__("given", "given vectors", "given vectors")

    @override
    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Raise :class:`ragembed.errors.NotFittedError`."""
        raise NotFittedError("this store holds vectors that were made elsewhere: give the vectors of documents")

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Return ``raw`` with unit length."""
        return unit_rows(raw)

    @override
    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Raise :class:`ragembed.errors.NotFittedError`."""
        raise NotFittedError(
            "this store holds vectors that were made elsewhere: give the vector of the query, or search by words with "
            "the mode 'lexical'"
        )
