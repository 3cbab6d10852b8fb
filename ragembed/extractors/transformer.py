"""The extractor ``transformer``: the weighted mean of the contextual token vectors of a text.

Sources: [S] Stankevičius & Lukoševičius 2024, sections 3.1 to 3.3; Wang & Kuo 2020 for
:class:`~ragembed.config.specs.SbertWk`, which has its own combination of layers and its own token weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import SbertWk
from ragembed.extractors.forward import Batch
from ragembed.extractors.model import ContextualModel
from ragembed.extractors.parts import Token, TokenOrigin, TokenParts, text_tokens
from ragembed.extractors.pooling import WeightedMean, mean_shares, pooled_tokens
from ragembed.extractors.protocol import Progress, Side
from ragembed.extractors.sbert_wk import token_vectors
from ragembed.extractors.token_weights import FittedByWeights, TokenWeights
from ragembed.models.tokenizer import TokenKind
from ragembed.types import Floats

_ORIGINS: Mapping[int, TokenOrigin] = {
    TokenKind.SPECIAL: "special",
    TokenKind.TEMPLATE: "template",
    TokenKind.MASK: "mask",
}


class LayerCombination(Protocol):
    """Combines the hidden states of each token into one vector."""

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that it needs, ascending."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that determine the result, as JSON values."""
        ...

    def combine(self, batch: Batch, states: Mapping[int, Floats]) -> tuple[Floats, Floats | None]:
        """Return token vectors, shape ``(batch, tokens, d)``, and token importances, shape ``(batch, tokens)``.

        Importances are the base weights of the tokens; None means 1 for each.
        """
        ...


@dataclass(frozen=True, slots=True)
class LayerMean:
    """The mean of some layers ([S] section 3.1)."""

    layers: tuple[int, ...]

    @property
    def config(self) -> Mapping[str, Any]:
        """The layers."""
        return {"layers": list(self.layers)}

    def combine(self, batch: Batch, states: Mapping[int, Floats]) -> tuple[Floats, Floats | None]:  # noqa: ARG002  the protocol's signature
        """Return the mean of the layers."""
        if len(self.layers) == 1:
            return states[self.layers[0]], None
        total = states[self.layers[0]].copy()
        for layer in self.layers[1:]:
            total += states[layer]
        total *= np.float32(1.0 / len(self.layers))
        return total, None


class WordKnowledge:
    """The combination of layers of SBERT-WK, for a model of ``n_layers`` blocks (Wang & Kuo 2020, section IV)."""

    def __init__(self, settings: SbertWk, n_layers: int) -> None:
        settings.check(n_layers)
        self._settings = settings
        self.layers = settings.layers(n_layers)

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings."""
        return {"sbert-wk": asdict(self._settings)}

    def combine(self, batch: Batch, states: Mapping[int, Floats]) -> tuple[Floats, Floats | None]:
        """Return fused token vectors and their importances."""
        return token_vectors(self._settings, [states[layer] for layer in self.layers], batch.lengths)


@dataclass(frozen=True, slots=True)
class Pooling:
    """The choice of tokens that take part; see :func:`ragembed.extractors.pooling.pooled_tokens`."""

    name: str
    special_tokens: bool

    def of(self, kinds: NDArray[np.int8]) -> NDArray[np.bool_]:
        """Return which tokens take part, with the shape of ``kinds``."""
        return pooled_tokens(kinds, self.name, self.special_tokens)


class Pooled:
    """A consumer of hidden states that computes one vector for each of ``texts`` texts."""

    def __init__(
        self, texts: int, dim: int, combination: LayerCombination, pooling: Pooling, weights: TokenWeights
    ) -> None:
        self.layers = combination.layers
        self._combination = combination
        self._pooling = pooling
        self._weights = weights
        self._mean = WeightedMean(texts, dim, weights.share)

    def take(self, batch: Batch, states: Mapping[int, Floats]) -> None:
        """Add the windows of a batch to the means of their texts."""
        hidden, base = _pooled(self._combination, self._pooling, batch, states)
        self._mean.add(batch.texts, hidden, base, self._weights.of(batch.ids, base))

    def vectors(self) -> Floats:
        """Return the vectors, float32, shape ``(texts, d)``."""
        return self._mean.result()


class KeptTokens:
    """A consumer of hidden states that keeps the tokens of one text, in order."""

    def __init__(self, combination: LayerCombination, pooling: Pooling) -> None:
        self.layers = combination.layers
        self._combination = combination
        self._pooling = pooling
        self._windows: list[tuple[NDArray[np.int64], NDArray[np.int8], Floats, Floats]] = []

    def take(self, batch: Batch, states: Mapping[int, Floats]) -> None:
        """Keep the tokens of a batch."""
        hidden, base = _pooled(self._combination, self._pooling, batch, states)
        present = batch.kinds != TokenKind.PADDING
        self._windows.append((batch.ids[present], batch.kinds[present], base[present], hidden[present]))

    def tokens(self, dim: int) -> tuple[NDArray[np.int64], NDArray[np.int8], Floats, Floats]:
        """Return ids, kinds and base weights, each of shape ``(n,)``, and vectors, float32, shape ``(n, dim)``."""
        none = np.zeros(0, np.int64), np.zeros(0, np.int8), np.zeros(0, np.float32), np.zeros((0, dim), np.float32)
        ids, kinds, base, hidden = zip(none, *self._windows, strict=True)
        return np.concatenate(ids), np.concatenate(kinds), np.concatenate(base), np.concatenate(hidden)


class TransformerExtractor(FittedByWeights):
    """Encode texts with a model.

    Parameters
    ----------
    model
        The model.
    combination, pooling, weights
        The steps from hidden states to a vector.
    """

    def __init__(
        self, model: ContextualModel, combination: LayerCombination, pooling: Pooling, weights: TokenWeights
    ) -> None:
        self.model = model
        self.weights = weights
        self._combination = combination
        self._pooling = pooling

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.model.dim

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that determine a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        return {
            **self.model.config,
            **self._combination.config,
            **asdict(self._pooling),
            "share": self.weights.share,
        }

    def encode(self, texts: Sequence[str], side: Side, progress: Progress | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; each depends only on its own text."""
        pooled = self.consumer(len(texts))
        self.model.forward(side).run(texts, [pooled], progress)
        return pooled.vectors()

    def token_parts(self, text: str, side: Side) -> TokenParts:
        """Return the parts of a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        self.weights.require_fitted()
        kept = KeptTokens(self._combination, self._pooling)
        self.model.exact_forward(side).run([text], [kept])
        ids, kinds, base, hidden = kept.tokens(self.dim)
        shares = mean_shares(base, self.weights.of(ids, base), self.weights.share, [len(ids)])
        return TokenParts.merged(self._tokens(text, side, ids, kinds), shares[:, None] * hidden, shares)

    def _tokens(self, text: str, side: Side, ids: NDArray[np.int64], kinds: NDArray[np.int8]) -> list[Token]:
        """Return the tokens of all windows: the text's own in order, and the frame of each window."""
        tokenizer = self.model.tokenizer
        lead = self.model.frames["documents" if side == "documents" else "queries"].lead
        own = iter(text_tokens(text, tokenizer.ids_and_offsets(lead + text)[1], len(lead)))
        return [
            next(own) if kind == TokenKind.TEXT else Token(name, origin=_ORIGINS[kind])
            for name, kind in zip(tokenizer.names(ids.tolist()), kinds.tolist(), strict=True)
        ]

    def consumer(self, texts: int) -> Pooled:
        """Return a consumer that computes the vectors of ``texts`` texts in a shared forward pass."""
        self.weights.require_fitted()
        return Pooled(texts, self.dim, self._combination, self._pooling, self.weights)


def _pooled(
    combination: LayerCombination, pooling: Pooling, batch: Batch, states: Mapping[int, Floats]
) -> tuple[Floats, Floats]:
    """Return token vectors, shape ``(batch, tokens, d)``, and base weights, shape ``(batch, tokens)``."""
    hidden, importance = combination.combine(batch, states)
    base = pooling.of(batch.kinds).astype(np.float32)
    if importance is not None:
        base *= importance
    return hidden, base
