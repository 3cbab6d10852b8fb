"""The extractor ``bert+avg``: a mixture of contextual and static vectors.

Source: Stankevičius & Lukoševičius 2024, equation 10: ``v = (1 - w) v_BERT + w v_Avg``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.extractors.avg import AvgExtractor
from ragembed.extractors.parts import TokenParts
from ragembed.extractors.protocol import Progress, Side
from ragembed.extractors.token_weights import TokenWeights
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.types import Floats, State


class MixExtractor:
    """A mixture of ``1 - w`` parts of ``contextual`` and ``w`` parts of ``static``; ``w`` is any finite number."""

    def __init__(self, contextual: TransformerExtractor, static: AvgExtractor, w: float) -> None:
        self.contextual = contextual
        self.static = static
        self._w = w

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.contextual.dim

    @property
    def weights(self) -> TokenWeights:
        """The token weights of the contextual extractor; the static extractor is fitted on the same texts."""
        return self.contextual.weights

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that determine a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        return {"w": self._w, "contextual": self.contextual.config, "static": self.static.config}

    def fit(self, texts: Iterable[str]) -> None:
        """Fit token weights and static vectors."""
        self.static.fit(texts)
        self.contextual.weights.take(self.static.weights.require_fitted())

    def encode(self, texts: Sequence[str], side: Side, progress: Progress | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; each depends only on its own text."""
        return self.mixed(self.contextual.encode(texts, side, progress), self.static.encode(texts, side))

    def mixed(self, contextual: Floats, static: Floats) -> Floats:
        """Return ``(1 - w)`` parts of ``contextual`` and ``w`` parts of ``static``, float32, shape ``(n, d)``."""
        return np.float32(1.0 - self._w) * contextual + np.float32(self._w) * static

    def token_parts(self, text: str, side: Side) -> TokenParts:
        """Return the parts of a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        both = self.contextual.token_parts(text, side), self.static.token_parts(text, side)
        shares = [weight * each.shares for weight, each in zip((1.0 - self._w, self._w), both, strict=True)]
        rows = [weight * each.rows for weight, each in zip((1.0 - self._w, self._w), both, strict=True)]
        tokens = [token for each in both for token in each.tokens]
        return TokenParts.merged(tokens, np.concatenate(rows), np.concatenate(shares))

    def fingerprint_arrays(self) -> State:
        """Return the fitted arrays of both extractors."""
        contextual = {f"contextual.{name}": array for name, array in self.contextual.fingerprint_arrays().items()}
        return {**contextual, **{f"static.{name}": array for name, array in self.static.fingerprint_arrays().items()}}

    def state(self) -> State:
        """Return token statistics and static vectors; both extractors have the same statistics."""
        return self.static.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays that :meth:`state` returned."""
        self.static.restore(state)
        self.contextual.weights.take(self.static.weights.require_fitted())
