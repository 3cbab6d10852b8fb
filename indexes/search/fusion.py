"""Fusing dense and lexical scores of the same candidates."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from ragembed.errors import ConfigError
from ragembed.indexes.storage import catalog
from ragembed.types import Doubles

Method = Literal["zscore", "minmax", "rrf"]
METHODS: tuple[Method, ...] = get_args(Method)

_NOISE = 1e-6


@dataclass(frozen=True, slots=True)
class LinearScale:
    """Scores on a straight line: ``(score - origin) / unit``, with mean and deviation, or the least and the range."""

    origin: float
    unit: float


@dataclass(frozen=True, slots=True)
class Fusion:
    """How the scores of dense and of lexical search become one.

    Parameters
    ----------
    method
        ``"zscore"`` standardises both over the candidates and adds them, ``"minmax"`` maps both to 0 to 1 and adds
        them, ``"rrf"`` adds ``1 / (rrf_k + rank)`` (reciprocal-rank fusion: Cormack, Clarke & Büttcher 2009).
    alpha
        Share of the dense score, from 0 (words alone) to 1 (vectors alone).
    feedback
        Weight of what the best chunks of a first search hold, their vectors and their words, beside the weight 1 of the
        query (Rocchio 1971); 0 for one search alone.
    rrf_k
        The constant of ``"rrf"``, above 0: the higher, the less the first ranks stand out.

    Raises
    ------
    ConfigError
        For an unknown method, or a value that is out of range.
    """

    method: Method = "zscore"
    alpha: float = 0.6
    feedback: float = 0.75
    rrf_k: float = 60.0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f"unknown fusion {self.method!r}: expected one of {', '.join(METHODS)}")
        if not 0.0 <= self.alpha <= 1.0:
            raise ConfigError(f"alpha is {self.alpha}: expected 0 (words alone) to 1 (vectors alone)")
        if not 0.0 <= self.feedback < np.inf:
            raise ConfigError(f"feedback is {self.feedback}: expected 0 (none) or a weight above it")
        if not 0.0 < self.rrf_k < np.inf:
            raise ConfigError(f"rrf_k is {self.rrf_k}: expected a number above 0, as in 60")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Any) -> Fusion:
        """Build from what :meth:`to_dict` gave; raises :class:`ConfigError` for anything else."""
        names = asdict(cls())
        numbers = [name for name in names if name != "method"]
        if not isinstance(fields, dict) or fields.keys() != names.keys():
            raise ConfigError(f"the fusion is {fields!r}: expected an object with {', '.join(names)}")
        if any(isinstance(fields[name], bool) or not isinstance(fields[name], (int, float)) for name in numbers):
            raise ConfigError(f"the fusion is {fields!r}: expected numbers for {', '.join(numbers)}")
        return cls(**fields)

    def scores(self, dense: Doubles, lexical: Doubles, shared: Doubles | None = None) -> Doubles:
        """Return the fused scores of candidates, float64, shape ``(n,)``, from both scores of each; higher is better.

        ``shared``, shape ``(n,)``, is how much each candidate has the words of the best; it joins ``lexical`` with the
        weight ``feedback``. A score that does not tell the candidates apart counts nothing, and a ``lexical`` of 0,
        where no word matches, has no rank.
        """
        by_vectors, by_words, by_shared = self.parts(dense, lexical, shared)
        return by_vectors + by_words + by_shared

    def parts(self, dense: Doubles, lexical: Doubles, shared: Doubles | None = None) -> tuple[Doubles, ...]:
        """Return what the dense, the lexical and the shared scores add to the fused ones, each of shape ``(n,)``."""
        weights = self.weights(lexical, shared)
        shared = np.zeros_like(lexical) if shared is None else shared
        if self.method == "rrf":
            by_words = np.where(lexical > 0.0, self._reciprocal(lexical), 0.0)
            scaled = self._reciprocal(dense), by_words, self._reciprocal(shared)
        else:
            scaled = self._scaled(dense), self._scaled(lexical), self._scaled(shared)
        return tuple(weight * part for weight, part in zip(weights, scaled, strict=True))

    def weights(self, lexical: Doubles, shared: Doubles | None) -> tuple[float, float, float]:
        """Return what the scaled dense, lexical and shared scores weigh.

        The share of words is divided such that lexical and shared scores together spread as lexical ones alone do.
        """
        words = 1.0 - self.alpha
        if shared is None:
            return self.alpha, words, 0.0
        if self.method == "rrf":
            spread = 1.0 + self.feedback
        else:
            line = self._linear_scale(self._scaled(lexical) + self.feedback * self._scaled(shared))
            spread = 1.0 if line is None else line.unit
        return self.alpha, words / spread, words * self.feedback / spread

    def _linear_scale(self, scores: Doubles) -> LinearScale | None:
        """Return how the scores of all candidates are scaled, None where they count nothing or by rank alone."""
        if self.method == "rrf" or not _tells_apart(scores):
            return None
        if self.method == "zscore":
            return LinearScale(float(scores.mean()), float(scores.std()))
        return LinearScale(float(scores.min()), float(scores.max() - scores.min()))

    def _scaled(self, scores: Doubles) -> Doubles:
        line = self._linear_scale(scores)
        return np.zeros_like(scores) if line is None else (scores - line.origin) / line.unit

    def _reciprocal(self, scores: Doubles) -> Doubles:
        """Return ``1 / (rrf_k + rank)``, the same for equal scores."""
        better = np.searchsorted(np.sort(-scores), -scores)
        return np.reciprocal(self.rrf_k + 1.0 + better.astype(np.float64))


def _tells_apart(scores: Doubles) -> bool:
    return len(scores) > 0 and bool(scores.std() > _NOISE * np.abs(scores).max())


def stored_fusion(connection: sqlite3.Connection) -> Fusion:
    """Return the fusion of a store's searches that name none; raises :class:`StoreDamagedError` if it is damaged."""
    return catalog.parsed_meta(connection, "fusion", Fusion.from_dict) or Fusion()
