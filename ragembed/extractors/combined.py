"""Extractors that consist of two others: a mixture of both, and one for documents beside one for queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.extractors.avg import AvgExtractor
from ragembed.extractors.protocol import Extractor, Progress, Side, TokenParts
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.extractors.weighting import TokenWeights
from ragembed.tensor_map import with_prefix
from ragembed.types import Floats, State


class MixExtractor(Extractor):
    """The extractor ``bert+avg``: a mixture of ``1 - w`` parts of ``contextual`` and ``w`` parts of ``static``.

    Source: Stankevičius & Lukoševičius 2024, equation 10: ``v = (1 - w) v_BERT + w v_Avg``; ``w`` is any finite number.
    """

    def __init__(self, contextual: TransformerExtractor, static: AvgExtractor, w: float) -> None:
        self.contextual = contextual
        self.static = static
        self.weights = contextual.weights  # the static extractor is fitted on the same texts
        self._w = w

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.contextual.dim

    @property
    def all_weights(self) -> Sequence[TokenWeights]:
        """The token weights of both extractors."""
        return self.contextual.weights, self.static.weights

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that determine a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        return {"w": self._w, "contextual": self.contextual.config, "static": self.static.config}

    def encode(self, texts: Sequence[str], side: Side, progress: Progress | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; each depends only on its own text."""
        return self.mixed(self.contextual.encode(texts, side, progress), self.static.encode(texts, side))

    def mixed(self, contextual: Floats, static: Floats) -> Floats:
        """Return ``(1 - w)`` parts of ``contextual`` and ``w`` parts of ``static``, float32, shape ``(n, d)``."""
        return np.float32(1.0 - self._w) * contextual + np.float32(self._w) * static

    def token_parts(self, text: str, side: Side) -> TokenParts:
        """Return the parts of a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        both = self.contextual.token_parts(text, side), self.static.token_parts(text, side)
        weighted = list(zip((1.0 - self._w, self._w), both, strict=True))
        shares = [weight * part.shares for weight, part in weighted]
        rows = [weight * part.rows for weight, part in weighted]
        tokens = [token for part in both for token in part.tokens]
        return TokenParts.merged(tokens, np.concatenate(rows), np.concatenate(shares))

    def fingerprint_arrays(self) -> State:
        """Return the fitted arrays of both extractors."""
        both = {"contextual": self.contextual, "static": self.static}
        return _joined({name: extractor.fingerprint_arrays() for name, extractor in both.items()})

    def state(self) -> State:
        """Return token statistics and static vectors; both extractors have the same statistics."""
        return self.static.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays that :meth:`state` returned."""
        self.static.restore(state)
        self.contextual.weights.take(self.static.weights.require_fitted())


class RoutedExtractor(Extractor):
    """Encode documents with one extractor and queries with another; both make vectors of the same dimension."""

    def __init__(self, documents: Extractor, queries: Extractor) -> None:
        self.weights = documents.weights
        self.routes: Mapping[str, Extractor] = {"documents": documents, "queries": queries}

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.routes["documents"].dim

    @property
    def all_weights(self) -> Sequence[TokenWeights]:
        """The token weights of both extractors."""
        return [weights for extractor in self.routes.values() for weights in extractor.all_weights]

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that determine a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        return {side: extractor.config for side, extractor in self.routes.items()}

    def encode(self, texts: Sequence[str], side: Side, progress: Progress | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; each depends only on its own text."""
        return self._of(side).encode(texts, side, progress)

    def token_parts(self, text: str, side: Side) -> TokenParts:
        """Return the parts of a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        return self._of(side).token_parts(text, side)

    def fingerprint_arrays(self) -> State:
        """Return the fitted arrays of both extractors that determine a raw vector."""
        return _joined({side: extractor.fingerprint_arrays() for side, extractor in self.routes.items()})

    def state(self) -> State:
        """Return all fitted arrays of both extractors."""
        return _joined({side: extractor.state() for side, extractor in self.routes.items()})

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays that :meth:`state` returned."""
        for side, extractor in self.routes.items():
            extractor.restore(with_prefix(state, f"{side}."))

    def _of(self, side: Side) -> Extractor:
        return self.routes["queries" if side in ("queries", "pseudo-queries") else "documents"]


def _joined(states: Mapping[str, State]) -> State:
    """Return the arrays of several extractors; each name begins with that of its extractor."""
    return {f"{part}.{name}": array for part, state in states.items() for name, array in state.items()}
