"""How far a corpus has moved from what an embedder was fitted on: measures of two states, and what they ask for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragembed.weighting import TokenStatistics

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]
Verdict = Literal["keep", "refit", "rebuild"]

REFIT_BELOW = 0.97
"""Share of the overlap@10 that chance leaves, below which a refit is worth it."""

REBUILD_ABOVE = 0.08
"""Share of a text's weight that token weights fitted now would move, above which the raw vectors are out of date."""

UNSEEN_ABOVE = 0.1
"""Share of tokens without a static vector of their own, above which the table of ``avg`` is out of date."""

_ROWS = 4096
_UNKNOWN = ("[UNK]", "<unk>")
_CONTINUES = "##"
_LEAST_TEXTS, _LEAST_SHARE = 5, 0.005
"""Texts, and share of them, that hold a token on one side at least for its idf to be compared."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean of ``count`` vectors, float64, shape ``(d,)``, and the root of their mean squared distance from it."""

    count: int
    mean: Doubles
    spread: float

    @classmethod
    def of(cls, vectors: Floats) -> Moments:
        """Return those of ``vectors``, float32, shape ``(n, d)``, ``n >= 1``."""
        mean = vectors.mean(axis=0, dtype=np.float64)
        total = 0.0
        for start in range(0, len(vectors), _ROWS):
            block = vectors[start : start + _ROWS] - mean
            total += float(np.einsum("ij,ij->", block, block))
        return cls(len(vectors), mean, float(np.sqrt(total / len(vectors))))


@dataclass(frozen=True, slots=True)
class Mover:
    """A token, and its idf ``ln((N + 1) / (df + 1))`` in the texts of the fit and in those of now."""

    token: str
    fitted: float
    now: float


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What some texts hold, beside the texts of a fit; shares from 0 to 1.

    Parameters
    ----------
    unseen
        Of the distinct tokens of each text, those that no text of the fit held.
    expected
        The share that as many more texts of the fit's kind would have (Good 1953): tokens that one text of the fit
        held, of all pairs of a text and a token in it.
    unknown
        Tokens that stand for what the tokenizer does not know; None where it knows everything.
    pieces
        Tokens that carry on a word that the vocabulary does not have as one; None where it is no WordPiece vocabulary.
    unknown_fitted, pieces_fitted
        The same two in the texts of the fit.
    """

    unseen: float
    expected: float
    unknown: float | None
    unknown_fitted: float | None
    pieces: float | None
    pieces_fitted: float | None

    @classmethod
    def of(
        cls, fitted: TokenStatistics, now: TokenStatistics, tokens: Sequence[str], special: Iterable[int]
    ) -> Vocabulary:
        """Compare the statistics ``now`` with those of the fit.

        ``tokens`` are the tokens by id; the ids ``special`` stand in every text and are left out.
        """
        counted = np.ones(len(tokens), dtype=bool)
        counted[list(special)] = False
        known_before = fitted.document_frequency > 0
        unknown = np.array([token in _UNKNOWN for token in tokens])
        pieces = np.array([token.startswith(_CONTINUES) and token != _CONTINUES for token in tokens])
        pairs, pairs_before = now.document_frequency * counted, fitted.document_frequency * counted
        here, before = now.occurrences * counted, fitted.occurrences * counted
        return cls(
            unseen=_share(pairs, ~known_before),
            expected=_ratio(int((pairs_before == 1).sum()), int(pairs_before.sum())),
            unknown=_share(here, unknown) if unknown.any() else None,
            unknown_fitted=_share(before, unknown) if unknown.any() else None,
            pieces=_share(here, pieces) if pieces.any() else None,
            pieces_fitted=_share(before, pieces) if pieces.any() else None,
        )


@dataclass(frozen=True, slots=True)
class DriftReport:
    """How far a store has moved from what it was fitted on, and what is to be done.

    Parameters
    ----------
    verdict
        ``keep``; ``refit`` where the post-processors are out of date; ``rebuild`` where the token weights or static
        vectors are, which the raw vectors depend on.
    reasons
        Why, a sentence each.
    notes
        What could not be measured, and why.
    vectors
        Vectors that chunks use.
    added, removed
        Of them, those that came after the post-processors were fitted, and how many are gone of those before; None
        where the store does not know.
    texts
        How many texts the tokens were counted in: all, or a sample.
    vocabulary
        The tokens of the texts that were added, of all texts where none was; beside those of the texts that token
        weights were fitted on.
    movers
        Tokens whose idf has moved most, furthest first.
    weight_shift
        Share of a text's weight that token weights fitted now would give to other tokens of it, the mean of the texts;
        None where they are not fitted on the store's texts, or these are too few.
    unfitted
        Share of tokens, in all texts, that have no static vector fitted on the store's texts; None where there are no
        such vectors.
    mean_shift
        Distance of the mean raw vector from that of the fit, in spreads: the root mean squared distance of a vector
        from the mean then. None where the store does not know it.
    overlap
        Share of the ten nearest that a search finds both now and after a refit, the mean of ``queries`` pseudo-queries
        in ``searched`` vectors; None where nothing can be fitted.
    chance
        The overlap that as much change would leave by chance, in a corpus that stays of one kind: that of a refit with
        a fit on a random part of the vectors, see :func:`chance_size`; the least of several such parts.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    vectors: int
    added: int | None
    removed: int | None
    texts: int
    vocabulary: Vocabulary | None
    movers: tuple[Mover, ...]
    weight_shift: float | None
    unfitted: float | None
    mean_shift: float | None
    overlap: float | None
    chance: float
    queries: int
    searched: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        found = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def mean_shift(fitted: Moments, now: Moments) -> float:
    """Return the distance of the two means in spreads of the vectors that were fitted on; 0 where those have none."""
    return float(np.linalg.norm(now.mean - fitted.mean)) / fitted.spread if fitted.spread else 0.0


def idf_movers(
    fitted: TokenStatistics, now: TokenStatistics, tokens: Sequence[str], special: Iterable[int], count: int
) -> tuple[Mover, ...]:
    """Return the ``count`` tokens whose idf has moved most, furthest first, equal ones by id.

    Compared are tokens that at least 5 texts hold, and at least 0.5 % of the texts, on one side or the other;
    ``tokens`` and ``special`` are those of :meth:`Vocabulary.of`.
    """
    before, after = _smoothed_idf(fitted), _smoothed_idf(now)
    frequent = _frequent(fitted) | _frequent(now)
    frequent[list(special)] = False
    moved = np.where(frequent, np.abs(after - before), 0.0)
    order = np.argsort(-moved, kind="stable")[:count].tolist()
    return tuple(Mover(tokens[i], float(before[i]), float(after[i])) for i in order if moved[i] > 0)


def weight_shift(texts: Iterable[Ids], fitted: Floats, now: Floats, share: float) -> float:
    """Return the share of a text's weight that lies on other tokens by the weights ``now``, the mean of ``texts``.

    That is the total variation distance of the two distributions of weights over the tokens of a text. ``texts`` are
    token ids, shape ``(n,)`` each; ``fitted`` and ``now`` the weight of each id, float32, shape ``(vocabulary,)``;
    ``share`` the parts of a text's weights that come from them, the rest being uniform.
    """
    shifts = [0.5 * share * float(np.abs(_scaled(fitted[ids]) - _scaled(now[ids])).sum()) for ids in texts if len(ids)]
    return sum(shifts) / len(shifts) if shifts else 0.0


def overlap(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Return the share of results that two searches have in common, the mean of the queries.

    Both have shape ``(queries, k)``, the ids of what was found, each at most once in a row.
    """
    if not one.size:
        return 1.0
    common = [len(np.intersect1d(a, b, assume_unique=True)) for a, b in zip(one, other, strict=True)]
    return sum(common) / one.size


def chance_size(before: int, now: int, kept: int) -> int:
    """Return how many of the ``now`` vectors of a store differ from all of them by as much as chance would make it.

    Of one corpus, the fit on a sample of ``before`` vectors differs from that on ``now`` of which ``kept`` are the same
    as the fit on so many of the ``now`` differs from that on all: the variance of the difference of their means is the
    same, ``1/m - 1/now = 1/before + 1/now - 2 kept / (before now)``.
    """
    if not before or not now:
        return now
    inverse = 1 / before + 2 / now - 2 * kept / (before * now)
    return max(1, min(now, round(1 / inverse)))


def nearest(queries: Floats, documents: Floats, k: int) -> NDArray[np.int64]:
    """Return the positions of the ``k`` documents with the largest inner products with each query, in no order.

    Both are float32, shape ``(n, d)``; the result is int64, shape ``(queries, min(k, documents))``.
    """
    k = min(k, len(documents))
    found = np.empty((len(queries), k), dtype=np.int64)
    for start in range(0, len(queries), _ROWS // 64):
        scores = queries[start : start + _ROWS // 64] @ documents.T
        found[start : start + len(scores)] = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    return found


def judge(
    overlap: float | None, chance: float, weight_shift: float | None, unfitted: float | None
) -> tuple[Verdict, tuple[str, ...]]:
    """Return what :class:`DriftReport` says is to be done, and why; what is None was not measured."""
    rebuild: list[str] = []
    if weight_shift is not None and weight_shift > REBUILD_ABOVE:
        rebuild.append(
            f"token weights fitted now would move {weight_shift:.1%} of a text's weight to other tokens of it "
            f"(more than {REBUILD_ABOVE:.0%})"
        )
    if unfitted is not None and unfitted > UNSEEN_ABOVE:
        rebuild.append(
            f"{unfitted:.0%} of the tokens have no static vector fitted on these texts (more than {UNSEEN_ABOVE:.0%})"
        )
    if rebuild:
        return "rebuild", tuple(rebuild)
    if overlap is not None and overlap < REFIT_BELOW * chance:
        least = f"{REFIT_BELOW:g} of the {chance:.2f} that chance leaves"
        return "refit", (f"a refit would find other results: overlap@10 {overlap:.2f} (less than {least})",)
    return "keep", ()


def _share(counts: Ids, chosen: NDArray[np.bool_]) -> float:
    return _ratio(int(counts[chosen].sum()), int(counts.sum()))


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _smoothed_idf(statistics: TokenStatistics) -> Doubles:
    idf: Doubles = np.log((statistics.texts + 1) / (statistics.document_frequency + 1))
    return idf


def _frequent(statistics: TokenStatistics) -> NDArray[np.bool_]:
    least = max(_LEAST_TEXTS, _LEAST_SHARE * statistics.texts)
    frequent: NDArray[np.bool_] = statistics.document_frequency >= least
    return frequent


def _scaled(weights: Floats) -> Doubles:
    """Return weights of a text's tokens that sum to 1; where all are 0, they are uniform."""
    wide = weights.astype(np.float64)
    total = float(wide.sum())
    return wide / total if total > 0 else np.full(len(wide), 1.0 / len(wide))
