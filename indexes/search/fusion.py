"""Fusion of the dense and lexical scores of the same candidates."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from ragembed.config.fields import from_json, setting
from ragembed.errors import ConfigError
from ragembed.indexes.storage import catalog
from ragembed.types import Doubles

Method = Literal["zscore", "minmax", "rrf"]
METHODS: tuple[Method, ...] = get_args(Method)

_NOISE = 1e-6
_FOR_CODE = {"alpha": 0.8, "feedback": 0.4}
"""Defaults for source code, whose words often differ from those of a question."""
_MOST_UNREAD = 0.9
"""Share of a query that the model cannot read from which its vector does not count."""


@dataclass(frozen=True, slots=True)
class LinearScale:
    """A linear scale, ``(score - origin) / unit``, from mean and standard deviation, or from minimum and range."""

    origin: float
    unit: float


@dataclass(frozen=True, slots=True)
class Fusion:
    """How hybrid search combines dense and lexical scores.

    Parameters
    ----------
    method : {"zscore", "minmax", "rrf"}, default "zscore"
        ``"zscore"`` standardises both scores over the candidates and adds them. ``"minmax"`` scales both to the range 0
        to 1 and adds them. ``"rrf"`` adds ``1 / (rrf_k + rank)``: reciprocal rank fusion (Cormack, Clarke & Büttcher
        2009).
    alpha : float, default 0.6
        Weight of the dense score, from 0 (lexical only) to 1 (dense only). The lexical score has the weight ``1 -
        alpha``. The default is 0.8 if most of the first ten chunks are source code.
    feedback : float, default 0.75
        Weight of the vectors and words of the best chunks of a first search, relative to the query's weight of 1
        (Rocchio 1971). 0 searches only once. The default is 0.4 if most of the first ten chunks are source code.
    rrf_k : float, default 60.0
        Constant of ``"rrf"``, more than 0. A higher value reduces the advantage of the first ranks.
    hubness : float, default 0.5
        Part of a chunk's hubness that is subtracted from its cosine. Hubness is the mean cosine of a chunk with the
        pseudo-queries nearest to it: a chunk that is near all kinds of queries has a high hubness (Conneau et al. 2018,
        section 2.3). Stores of fewer than 100 chunks and stores of given vectors have no hubness. 0 uses the cosine.

    Raises
    ------
    ConfigError
        If ``method`` is unknown, or a value is out of range.

    Examples
    --------
    >>> from ragembed import Fusion
    >>> fusion = Fusion("rrf", alpha=0.5, feedback=0.0)
    >>> fusion.to_dict()
    {'method': 'rrf', 'alpha': 0.5, 'feedback': 0.0, 'rrf_k': 60.0, 'hubness': 0.5}
    """

    method: Method = setting(
        "zscore",
        "How hybrid search combines the two scores: standardised (zscore), scaled to 0 to 1 (minmax), or by rank "
        "(rrf).",
        "--fusion",
        choices=METHODS,
    )
    alpha: float = setting(
        0.6,
        "Weight of dense search in hybrid search, from 0 (words only) to 1 (meaning only); 0.8 by default for source "
        "code.",
        *("--alpha", "WEIGHT"),
        least=0.0,
        most=1.0,
    )
    feedback: float = setting(
        0.75,
        "Weight of the three best chunks of a first hybrid search, which expand the query. The query itself has weight "
        "1; 0 turns feedback off; 0.4 by default for source code.",
        *("--feedback", "WEIGHT"),
        least=0.0,
    )
    rrf_k: float = 60.0
    hubness: float = 0.5

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f"unknown fusion method {self.method!r}: expected one of {', '.join(METHODS)}")
        if not 0.0 <= self.alpha <= 1.0:
            raise ConfigError(f"alpha is {self.alpha}: expected a number from 0 (lexical only) to 1 (dense only)")
        if not 0.0 <= self.feedback < np.inf:
            raise ConfigError(f"feedback is {self.feedback}: expected 0 (none) or a positive weight")
        if not 0.0 < self.rrf_k < np.inf:
            raise ConfigError(f"rrf_k is {self.rrf_k}: expected a number above 0, such as 60")
        if not 0.0 <= self.hubness < np.inf:
            raise ConfigError(f"hubness is {self.hubness}: expected 0 (none) or a positive weight")

    def to_dict(self) -> dict[str, Any]:
        """Return the values of all parameters, by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Any) -> Fusion:
        """Return the settings for the output of :meth:`to_dict`; raise :class:`ConfigError` for anything else.

        Parameters
        ----------
        fields : mapping of str to object
            Values of parameters, by name. A parameter that is missing, in a store of an earlier version, has its
            default.
        """
        return from_json(cls, fields)

    def for_code(self) -> Fusion:
        """Return the settings for queries whose best chunks are source code: other defaults of alpha and feedback.

        Examples
        --------
        >>> from ragembed import Fusion
        >>> code = Fusion(feedback=0.0).for_code()
        >>> code.alpha, code.feedback
        (0.8, 0.0)
        """
        usual = Fusion()
        changes: dict[str, Any] = {
            name: value for name, value in _FOR_CODE.items() if getattr(self, name) == getattr(usual, name)
        }
        return replace(self, **changes)

    def for_unread(self, unread: float) -> Fusion:
        """Return the settings for a query that the model can only partly read.

        They have ``alpha`` multiplied by ``1 - unread / 0.9``, at least 0.

        Parameters
        ----------
        unread : float
            Share of the query that the model cannot read, from 0 to 1; see
            :meth:`ragembed.Embedder.unread_share`.

        Examples
        --------
        >>> from ragembed import Fusion
        >>> Fusion(alpha=0.6).for_unread(0.45).alpha, Fusion().for_unread(1.0).alpha
        (0.3, 0.0)
        """
        return replace(self, alpha=self.alpha * read_weight(unread)) if unread else self

    def scores(self, dense: Doubles, lexical: Doubles, shared: Doubles | None = None) -> Doubles:
        """Return the fused scores of ``n`` candidates, float64, shape ``(n,)``; higher is better.

        If all candidates have the same score in one of the arrays, that array does not affect the result, unless the
        method is ``"rrf"``.

        Parameters
        ----------
        dense : numpy.ndarray
            Dense scores, float64, shape ``(n,)``.
        lexical : numpy.ndarray
            Lexical scores, float64, shape ``(n,)``. A score of 0 means that no word matches. It has no rank.
        shared : numpy.ndarray, optional
            Similarity of each candidate's words to those of the best chunks, float64, shape ``(n,)``. It is added to
            ``lexical`` with the weight ``feedback``. None if there is no such score.

        Examples
        --------
        >>> import numpy as np
        >>> from ragembed import Fusion
        >>> Fusion("minmax", alpha=0.5).scores(np.array([0.9, 0.1]), np.array([2.0, 6.0])).tolist()
        [0.5, 0.5]
        """
        by_vectors, by_words, by_shared = self.parts(dense, lexical, shared)
        return by_vectors + by_words + by_shared

    def parts(self, dense: Doubles, lexical: Doubles, shared: Doubles | None = None) -> tuple[Doubles, ...]:
        """Return the contributions of the dense, lexical and shared scores, each float64, shape ``(n,)``.

        Their sum is the result of :meth:`scores`.

        Parameters
        ----------
        dense, lexical, shared
            As in :meth:`scores`.
        """
        of_shared = np.zeros_like(lexical) if shared is None else shared
        if self.method == "rrf":
            by_words = np.where(lexical > 0.0, self._reciprocal(lexical), 0.0)
            scaled = self._reciprocal(dense), by_words, self._reciprocal(of_shared)
        else:
            scaled = self._scaled(dense), self._scaled(lexical), self._scaled(of_shared)
        return tuple(weight * part for weight, part in zip(self.weights(lexical, shared), scaled, strict=True))

    def weights(self, lexical: Doubles, shared: Doubles | None) -> tuple[float, float, float]:
        """Return the weights of the scaled dense, lexical and shared scores.

        The lexical and the shared scores share the weight ``1 - alpha``, so that together they have the same spread as
        the lexical scores alone.

        Parameters
        ----------
        lexical, shared : numpy.ndarray
            As in :meth:`scores`.
        """
        words = 1.0 - self.alpha
        if shared is None:
            return self.alpha, words, 0.0
        if self.method == "rrf":
            spread = 1.0 + self.feedback
        else:
            line = self.linear_scale(self._scaled(lexical) + self.feedback * self._scaled(shared))
            spread = 1.0 if line is None else line.unit
        return self.alpha, words / spread, words * self.feedback / spread

    def linear_scale(self, scores: Doubles) -> LinearScale | None:
        """Return the scale of the scores of all candidates, or None if they count nothing or by rank.

        Parameters
        ----------
        scores : numpy.ndarray
            Scores of all candidates from one search, float64, shape ``(n,)``.
        """
        if self.method == "rrf" or not len(scores):
            return None
        deviation = float(scores.std())
        if not deviation > _NOISE * max(scores.max(), -scores.min()):  # they differ by rounding alone
            return None
        if self.method == "zscore":
            return LinearScale(float(scores.mean()), deviation)
        return LinearScale(float(scores.min()), float(scores.max() - scores.min()))

    def _scaled(self, scores: Doubles) -> Doubles:
        line = self.linear_scale(scores)
        return np.zeros_like(scores) if line is None else (scores - line.origin) / line.unit

    def _reciprocal(self, scores: Doubles) -> Doubles:
        """Return ``1 / (rrf_k + rank)``; equal scores have equal ranks."""
        better = np.searchsorted(np.sort(-scores), -scores)
        return np.reciprocal(self.rrf_k + 1.0 + better.astype(np.float64))


def read_weight(unread: float) -> float:
    """Return the weight of a query's vector if the model cannot read the share ``unread`` of the query, from 1 to 0."""
    return max(0.0, 1.0 - unread / _MOST_UNREAD)


def stored_fusion(connection: sqlite3.Connection) -> Fusion:
    """Return the store's default fusion settings; raise :class:`StoreDamagedError` if they are damaged."""
    return catalog.parsed_meta(connection, "fusion", Fusion) or Fusion()
