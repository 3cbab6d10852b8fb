"""What makes the vectors of an adapter: an embedder that is loaded on first use, or an encoder that only has a name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from typing_extensions import override

from ragembed.config.settings import DEFAULT_PRESET, EmbedderConfig
from ragembed.embedder import Embedder
from ragembed.errors import NotFittedError
from ragembed.indexes import VectorEncoder
from ragembed.postprocess import unit_rows
from ragembed.types import Floats


@dataclass
class LazyEmbedder:
    """The saved embedder in ``path``, else one for a preset with some settings changed, not fitted."""

    path: str | None = None
    preset: str | None = None
    settings: Mapping[str, Any] | None = None
    device: str | None = None

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder."""
        if self.path is not None:
            return Embedder.load(self.path, device=self.device)
        config = EmbedderConfig.from_preset(self.preset or DEFAULT_PRESET, **(self.settings or {}))
        return Embedder(config, device=self.device)

    def encode_documents(self, texts: Sequence[str]) -> Floats:
        """Return vectors of documents, of unit length; raise :class:`NotFittedError` without a fit that is needed."""
        return unit_rows(self._ready().encode_documents(texts))

    def encode_query(self, text: str) -> list[float]:
        """Return the vector of a query, of unit length; raise as :meth:`encode_documents`."""
        vector: list[float] = unit_rows(self._ready().encode_queries([text]))[0].tolist()
        return vector

    def _ready(self) -> Embedder:
        if not self.embedder.is_fitted:
            if self.embedder.learns:
                raise NotFittedError(
                    "the embedder is not fitted: call fit(texts) with the texts of your corpus, give the folder of a "
                    "saved embedder, or choose settings that learn nothing, such as weighting='uniform'"
                )
            self.embedder.fit([""])  # any text makes the same fit
        return self.embedder


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
