"""The extractor ``transformer``: the weighted mean of the contextual token vectors of a text.

Sources: [S] Stankevičius & Lukoševičius 2024, sections 3.1 to 3.3; Wang & Kuo 2020, section IV, for
:class:`~ragembed.config.specs.SbertWk`, which has its own combination of layers and its own token weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import SbertWk
from ragembed.extractors.forward import Batch
from ragembed.extractors.head import Head
from ragembed.extractors.model import ContextualModel
from ragembed.extractors.pooling import (
    Extremum,
    RootMean,
    WeightedMean,
    base_weights,
    extremum_shares,
    mean_shares,
)
from ragembed.extractors.protocol import Extractor, Progress, Side, Token, TokenOrigin, TokenParts, text_tokens
from ragembed.extractors.sbert_wk import token_vectors
from ragembed.extractors.weighting import TokenStatistics, TokenWeights
from ragembed.models.tokenizer import TokenKind
from ragembed.postprocess.steps import unit_rows
from ragembed.types import Doubles, Floats

_ORIGINS: Mapping[int, TokenOrigin] = {
    TokenKind.SPECIAL: "special",
    TokenKind.TEMPLATE: "template",
    TokenKind.MASK: "mask",
}


LEAST_COSINE = 0.9995
"""Smallest cosine between vectors in bfloat16 and in float32 for which bfloat16 is chosen without being asked for."""
_KINDS = (
    "lock",
    "How is tea brewed?",
    "A store is a folder with chunks, their vectors and a full-text index.",
    "def area(width: float, height: float) -> float:\n    return width * height",
    "The boundary layer on a flat plate thickens downstream; shock waves make it separate.",
    "Das Schloss verhindert, dass zwei Prozesse gleichzeitig schreiben.",
    "锁 防止 两个 进程 同时 写入。キーが必要です。",
    "Вода кипит при ста градусах. يغلي الماء. पानी उबलता है।",
    "1984-06-12  4,711.08 EUR  ISO 9001:2015  §12(3)",
    "| 0.25 | 38.6 | 41.2 |\n| 0.50 | 37.9 | 40.8 |",
    "c25ObD8ZURAeqibENBqpTYnark8FBSHiakRBOM+dPPRbn5KhICAjpMGI",
    "https://example.org/a/b?id=42&page=7#top user@example.org",
    "∑ x² ≤ √n ∀ε>0 → α·β ∈ ℝ 🙂🚀",
    "= = = ... --- !!! ((()))",
    "aaaaaaaaaaaaaaaa zzzz xqj",
    "Smith, J.; Müller, K.-H.; O'Brien, P. (eds.), vol. XII, pp. 101-134",
)
PROBES = (
    *("", " ", "\n\n\t", "Water boils at 100 degrees Celsius at sea level, and at less in the mountains. " * 20),
    *(probe for kind in _KINDS for probe in (kind, kind[: len(kind) // 3], kind[::-1], f"{kind}\n" * 6)),
)
"""Texts of different lengths and kinds, also odd ones, on which the precision of bfloat16 is measured."""


@dataclass(frozen=True, slots=True)
class LayerCombination:
    """The hidden states of each token in one vector: the mean of ``layers``, ascending, or SBERT-WK of them."""

    layers: tuple[int, ...]
    sbert_wk: SbertWk | None = None

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that determine the result, as JSON values."""
        return {"layers": list(self.layers)} if self.sbert_wk is None else {"sbert-wk": asdict(self.sbert_wk)}


def layer_mean(layers: tuple[int, ...], states: Mapping[int, Floats]) -> Floats:
    """Return the mean of some layers ([S] section 3.1)."""
    if len(layers) == 1:
        return states[layers[0]]
    total = states[layers[0]].copy()
    for layer in layers[1:]:
        total += states[layer]
    total *= np.float32(1.0 / len(layers))
    return total


@dataclass(frozen=True, slots=True)
class Pooling:
    """The choice and combination of tokens; ``name`` is one or several poolings, joined by ``+``."""

    name: str
    special_tokens: bool

    @property
    def parts(self) -> list[str]:
        """The poolings whose vectors are joined."""
        return self.name.split("+")


_UNWEIGHTED: Mapping[str, Callable[[int, int], RootMean | Extremum]] = {
    "max": Extremum,
    "min": partial(Extremum, smallest=True),
    "mean-sqrt": RootMean,
}
"""The poolings that have no token weights."""


class Pooled:
    """A consumer of hidden states that computes one vector for each of ``texts`` texts."""

    def __init__(
        self,
        texts: int,
        dim: int,
        combination: LayerCombination,
        pooling: Pooling,
        weights: TokenWeights,
        head: Head,
    ) -> None:
        self.layers = combination.layers
        self._combination = combination
        self._pooling = pooling
        self._weights = weights
        self._head = head
        mean = partial(WeightedMean, share=weights.share, by_length=weights.by_length)
        self._parts = [_UNWEIGHTED.get(name, mean)(texts, dim) for name in pooling.parts]

    def take(self, batch: Batch, states: Mapping[int, Floats]) -> None:
        """Add the windows of a batch to the vectors of their texts."""
        hidden, bases = _pooled(self._combination, self._pooling, batch, states)
        for part, base in zip(self._parts, bases, strict=True):
            if isinstance(part, WeightedMean):
                part.add(batch.texts, hidden, base, self._weights.of(batch.ids, base))
            else:
                part.add(batch.texts, hidden, base)

    def vectors(self) -> Floats:
        """Return the vectors, float32, shape ``(texts, d)``."""
        pooled = [part.result() for part in self._parts]
        return self._head.transform(pooled[0] if len(pooled) == 1 else np.hstack(pooled))


class KeptTokens:
    """A consumer of hidden states that keeps the tokens of one text, in order."""

    def __init__(self, combination: LayerCombination, pooling: Pooling, dim: int) -> None:
        self.layers = combination.layers
        self._combination = combination
        self._pooling = pooling
        self.ids = np.zeros(0, np.int64)
        self.kinds = np.zeros(0, np.int8)
        self.bases = [np.zeros(0, np.float32) for _ in pooling.parts]
        self.hidden = np.zeros((0, dim), np.float32)

    def take(self, batch: Batch, states: Mapping[int, Floats]) -> None:
        """Keep the tokens of a batch."""
        hidden, bases = _pooled(self._combination, self._pooling, batch, states)
        present = batch.kinds != TokenKind.PADDING
        self.ids = np.concatenate([self.ids, batch.ids[present]])
        self.kinds = np.concatenate([self.kinds, batch.kinds[present]])
        self.bases = [np.concatenate([before, base[present]]) for before, base in zip(self.bases, bases, strict=True)]
        self.hidden = np.concatenate([self.hidden, hidden[present]])

    def parts(self, weights: TokenWeights) -> tuple[Doubles, NDArray[np.float64]]:
        """Return the summands of the pooled vector, shape ``(n, d)``, and the share of each token, shape ``(n,)``."""
        rows: list[Doubles] = []
        shares: list[NDArray[np.float64]] = []
        for name, base in zip(self._pooling.parts, self.bases, strict=True):
            own = weights.of(self.ids, base)
            share = mean_shares(base, own, weights.share, [len(self.ids)], weights.by_length)
            if name in ("max", "min"):
                chosen = extremum_shares(self.hidden, base, name == "min")
                rows.append(chosen * self.hidden)
                share = chosen.mean(axis=1)
            elif name == "mean-sqrt":
                share = mean_shares(base, base, 0.0, [len(self.ids)])
                rows.append(share[:, None] * self.hidden * np.sqrt(base.sum()))
            else:
                rows.append(share[:, None] * self.hidden)
            shares.append(share)
        return np.hstack(rows), np.mean(shares, axis=0)


class TransformerExtractor(Extractor):
    """Encode texts with a model. Without a head, pooled vectors stay as they are."""

    def __init__(
        self,
        model: ContextualModel,
        combination: LayerCombination,
        pooling: Pooling,
        weights: TokenWeights,
        head: Head | None = None,
    ) -> None:
        self.model = model
        self.weights = weights
        self._combination = combination
        self._pooling = pooling
        self._head = head or Head(len(pooling.parts) * model.dim)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self._head.dim

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that determine a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        return {
            **self.model.config,
            **self._combination.config,
            **asdict(self._pooling),
            **self._head.config,
            **self.weights.config,
        }

    def encode(self, texts: Sequence[str], side: Side, progress: Progress | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; each depends only on its own text."""
        pooled = self.consumer(len(texts))
        self.model.forward(side).run(texts, [pooled], progress)
        return pooled.vectors()

    def token_parts(self, text: str, side: Side) -> TokenParts:
        """Return the parts of a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        self.weights.require_fitted()
        consumer = KeptTokens(self._combination, self._pooling, self.model.dim)
        self.model.exact_forward(side).run([text], [consumer])
        rows, shares = consumer.parts(self.weights)
        tokens = self._tokens(text, side, consumer.ids, consumer.kinds)
        return self._head.transform_parts(TokenParts.merged(tokens, rows, shares))

    def agrees_in_bfloat16(self) -> bool:
        """Return whether each probe text has nearly the same vector in bfloat16 as in float32, with uniform weights."""
        uniform = TokenWeights(None, self.model.tokenizer, self.weights.tokenizer_sha256)
        uniform.take(TokenStatistics(0, np.zeros(0, np.int64), np.zeros(0, np.int64)))
        pooled = []
        for dtype in ("float32", "bfloat16"):
            pooled.append(Pooled(len(PROBES), self.model.dim, self._combination, self._pooling, uniform, self._head))
            self.model.in_dtype(dtype).run(PROBES, pooled[-1:])
        exact, fast = (unit_rows(one.vectors()) for one in pooled)
        cosines = 1.0 - np.square(exact - fast).sum(axis=1) / 2.0  # 1 for a text without tokens
        return bool(cosines.min() >= LEAST_COSINE)

    def _tokens(self, text: str, side: Side, ids: NDArray[np.int64], kinds: NDArray[np.int8]) -> list[Token]:
        """Return the tokens of all windows: the text's own in order, and the frame of each window."""
        tokenizer = self.model.tokenizer
        frame = self.model.frames["documents" if side == "documents" else "queries"]
        own = iter(text_tokens(text, tokenizer.text_spans(text, frame)))
        return [
            next(own) if kind == TokenKind.TEXT else Token(name, origin=_ORIGINS[kind])
            for name, kind in zip(tokenizer.names(ids.tolist()), kinds.tolist(), strict=True)
        ]

    def consumer(self, texts: int) -> Pooled:
        """Return a consumer that computes the vectors of ``texts`` texts in a shared forward pass."""
        self.weights.require_fitted()
        return Pooled(texts, self.model.dim, self._combination, self._pooling, self.weights, self._head)


def _pooled(
    combination: LayerCombination, pooling: Pooling, batch: Batch, states: Mapping[int, Floats]
) -> tuple[Floats, list[Floats]]:
    """Return token vectors, shape ``(batch, tokens, d)``, and base weights of each part, shape ``(batch, tokens)``."""
    bases = [base_weights(batch.kinds, name, pooling.special_tokens, batch.prompt_tokens) for name in pooling.parts]
    if combination.sbert_wk is None:
        return layer_mean(combination.layers, states), bases
    layers = [states[layer] for layer in combination.layers]
    hidden, importance = token_vectors(combination.sbert_wk, layers, batch.lengths)
    return hidden, [base * importance for base in bases]
