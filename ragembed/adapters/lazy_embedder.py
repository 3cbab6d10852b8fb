"""An embedder from a saved folder or from settings, loaded when it is first used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ragembed.config.settings import DEFAULT_PRESET, EmbedderConfig
from ragembed.embedder import Embedder
from ragembed.errors import NotFittedError
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
