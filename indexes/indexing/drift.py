"""How far a store has moved from what it was fitted on, and whether to refit or rebuild it.

Nothing is written: the refit that the store is compared with is made in memory and dropped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragembed.embedder import Embedder
from ragembed.errors import RankError, StoreError
from ragembed.extractors.weighting import TokenCounter, TokenStatistics
from ragembed.indexes.indexing import fitting
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog, compaction
from ragembed.indexes.storage.baseline import Baseline, load_baseline
from ragembed.indexes.store import Store
from ragembed.models.token_ids import TokenIds
from ragembed.postprocess import TwoSidedChain, unit_rows
from ragembed.postprocess.moments import Moments
from ragembed.pseudo_queries import PseudoQueries, draw_pseudo_queries
from ragembed.types import Doubles, Floats, Integers

Verdict = Literal["keep", "refit", "rebuild"]

REFIT_BELOW = 0.97
"""Share of the overlap@10 that chance leaves, below which a refit is worth it."""

REBUILD_ABOVE = 0.08
"""Share of a text's weight that token weights fitted now would move, above which the raw vectors are out of date."""

UNSEEN_ABOVE = 0.1
"""Share of tokens without a static vector of their own, above which the table of ``avg`` is out of date."""

TEXTS, SEARCHED = 10_000, 20_000
"""Texts and vectors beyond which tokens are counted, and searches compared, in a seeded sample of that many."""

PARTS, FEW = 9, 5_000
"""Random parts that tell what chance does, for up to so many vectors; beyond, where chance does little, one part."""

QUERIES, NEAREST, SHIFTS = 256, 10, 10
"""Pseudo-queries that are searched for, results of each that are compared, and tokens that are listed."""

_UNKNOWN = ("[UNK]", "<unk>")
_CONTINUES = "##"
_LEAST_TEXTS, _LEAST_SHARE = 5, 0.005
"""Texts, and share of them, that hold a token on one side at least for its idf to be compared."""
_BLOCK = 64


@dataclass(frozen=True, slots=True)
class IdfShift:
    """A token, and its idf ``ln((N + 1) / (df + 1))`` in the texts of the fit and in those of now."""

    token: str
    fitted: float
    now: float


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens of some texts compared with the texts of a fit; shares from 0 to 1.

    Parameters
    ----------
    unseen
        Of the distinct tokens of each text, those that no text of the fit held.
    expected
        The share that as many more texts of the fit's kind would have (Good 1953): tokens that one text of the fit
        held, of all pairs of a text and a token in it.
    unknown, unknown_fitted
        Tokens for what the tokenizer does not know, now and in the fit; None if it knows everything.
    pieces, pieces_fitted
        Tokens that continue a word, now and in the fit; None without a WordPiece vocabulary.
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
        """Compare ``now`` with the fit; ``tokens`` are the tokens by id, the ids ``special`` are left out."""
        counted = np.ones(len(tokens), dtype=bool)
        counted[list(special)] = False
        unknown = np.array([token in _UNKNOWN for token in tokens])
        pieces = np.array([token.startswith(_CONTINUES) and token != _CONTINUES for token in tokens])
        pairs, pairs_before = now.document_frequency * counted, fitted.document_frequency * counted
        here, before = now.occurrences * counted, fitted.occurrences * counted
        return cls(
            unseen=_share(pairs, fitted.document_frequency == 0),
            expected=int((pairs_before == 1).sum()) / max(int(pairs_before.sum()), 1),
            unknown=_share(here, unknown) if unknown.any() else None,
            unknown_fitted=_share(before, unknown) if unknown.any() else None,
            pieces=_share(here, pieces) if pieces.any() else None,
            pieces_fitted=_share(before, pieces) if pieces.any() else None,
        )


@dataclass(frozen=True, slots=True)
class DriftReport:
    """How far a store has moved from what it was fitted on, and what to do.

    Parameters
    ----------
    verdict
        ``keep``; ``refit`` if the post-processors are out of date; ``rebuild`` if the token weights or static vectors
        are, which the raw vectors depend on.
    reasons, notes
        Why, a sentence each; what could not be measured, and why.
    vectors, added, removed
        Vectors that chunks use; of them those added since the post-processors were fitted, and how many were removed;
        None if the store does not know.
    texts
        How many texts the tokens were counted in: all, or a sample.
    vocabulary
        The tokens of the added texts, or of all if none was added, compared with those that token weights were fitted
        on.
    movers
        Tokens whose idf has moved most, furthest first.
    weight_shift
        Mean share of a text's weight that token weights fitted now would give to other tokens of it; None if they are
        not fitted on the store's texts, or the texts are too few.
    unfitted
        Share of tokens without a static vector fitted on the store's texts; None if there are no such vectors.
    mean_shift
        Distance of the mean raw vector from that of the fit, in spreads: the root mean squared distance of a vector
        from the mean then. None if the store does not know it.
    overlap
        Share of the ten nearest that a search finds both now and after a refit, the mean of ``queries`` pseudo-queries
        in ``searched`` vectors; None if nothing can be fitted.
    chance
        The overlap that as much change leaves by chance, in a corpus that stays of one kind: that of a refit and a fit
        on a random part of the vectors, see :func:`chance_size`; the least of several such parts.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    vectors: int
    added: int | None
    removed: int | None
    texts: int = 0
    vocabulary: Vocabulary | None = None
    movers: tuple[IdfShift, ...] = ()
    weight_shift: float | None = None
    unfitted: float | None = None
    mean_shift: float | None = None
    overlap: float | None = None
    chance: float = 1.0
    queries: int = 0
    searched: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        found = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def measure_drift(store: Store) -> DriftReport:
    """Return how far ``store`` has moved from what it was fitted on, and whether to fit it again.

    Nothing is written. The model encodes only pseudo-queries that are new since the last fit. Raises
    :class:`StoreError` if the vectors are not ragembed's own.
    """
    return store._reader.read(lambda snapshot: _measured(store.path, snapshot))


def _measured(store: Path, snapshot: Snapshot) -> DriftReport:
    embedder, connection = snapshot.embedder(), snapshot.connection
    if not isinstance(embedder, Embedder):
        raise StoreError(f"the vectors of {store} are not ragembed's own: it was not fitted on them")
    baseline = load_baseline(store, connection)
    rows = catalog.live_rows(connection)
    new = rows[:0] if baseline is None else rows[rows > baseline.last_row]
    kept = len(rows) - len(new)
    notes: list[str] = []
    if baseline is None:
        notes.append(
            "what the post-processors were fitted on was not kept: mean shift and additions are known after the "
            "next: ragembed refit"
        )
    tokens = _tokens(connection, embedder, rows, new, notes)
    blocks = compaction.live_raw(store, connection, catalog.segments(connection))
    raw = fitting.sample_raw(blocks, embedder.config.seed)
    searches = _searches(connection, embedder, raw, len(rows), kept, baseline, notes)
    verdict, reasons = judge(
        searches.get("overlap"), searches.get("chance", 1.0), tokens.get("weight_shift"), tokens.get("unfitted")
    )
    return DriftReport(
        verdict,
        reasons,
        tuple(notes),
        len(rows),
        None if baseline is None else len(new),
        None if baseline is None else max(baseline.vectors - kept, 0),
        mean_shift=None if baseline is None or not len(raw) else mean_shift(baseline.moments, Moments.of(raw)),
        **tokens,
        **searches,
    )


def _tokens(
    connection: sqlite3.Connection, embedder: Embedder, rows: Integers, new: Integers, notes: list[str]
) -> dict[str, Any]:
    """Return what a report says of the tokens of the store's texts."""
    if not len(rows):
        return {}
    config, tokenizer, weights = embedder.config, embedder.tokenizer, embedder.extractor.weights
    tokens, special = tokenizer.vocabulary(), [*tokenizer.prefix, *tokenizer.suffix]

    def ids_of(among: Integers) -> list[Integers]:
        chosen = np.sort(_drawn(among, TEXTS, np.random.default_rng(config.seed)))
        return list(tokenizer.ids(catalog.texts_of_rows(connection, chosen.tolist())))

    def counted(texts: Sequence[Integers]) -> TokenStatistics:
        counter = TokenCounter(tokenizer.vocabulary_size, special)
        counter.add(TokenIds.of(texts))
        return counter.statistics()

    fitted = weights.require_fitted()
    if config.weighting_corpus is not None:
        notes.append(f"tokens are compared with those of {config.weighting_corpus}, which weights are of")
    ids = ids_of(rows)
    now = counted(ids)
    before, after = weights.table, weights.table_for(_scaled_up(now, len(rows)))
    shift = None
    if config.fits_weights and len(rows) >= fitting.MIN_FIT and before is not None and after is not None:
        shift = weight_shift(ids, before, after, weights.share)
    static = config.fits_static and config.weighting_corpus is None
    return {
        "texts": len(ids),
        "vocabulary": Vocabulary.of(fitted, counted(ids_of(new)) if len(new) else now, tokens, special),
        "movers": idf_shifts(fitted, now, tokens, special, SHIFTS),
        "weight_shift": shift,
        "unfitted": Vocabulary.of(fitted, now, tokens, special).unseen if static else None,
    }


def _searches(
    connection: sqlite3.Connection,
    embedder: Embedder,
    raw: Floats,
    vectors: int,
    kept: int,
    baseline: Baseline | None,
    notes: list[str],
) -> dict[str, Any]:
    """Return what a report says of searches now and after a refit; ``kept`` vectors were there at the fit."""
    known = None if baseline is None else baseline.pseudo_queries
    refitted = _refitted(connection, embedder, raw, vectors, known, notes)
    if refitted is None:
        return {}
    seed = embedder.config.seed
    if (fitted := refitted.fitted_queries) is not None:
        queries = fitted.raw[:QUERIES]
    else:
        drawn = draw_pseudo_queries(catalog.embedded_texts(connection), QUERIES, seed)
        queries = PseudoQueries.of(drawn, embedder._raw_pseudo_queries, known).raw
    rng = np.random.default_rng(seed)
    at_fit = (vectors, 0) if baseline is None or not baseline.vectors else (baseline.vectors, kept)
    share = chance_size(at_fit[0], vectors, at_fit[1]) / vectors
    draws = 0 if share == 1 else PARTS if len(raw) <= FEW else 1
    parts = [_fitted_on_part(raw, refitted, share, rng) for _ in range(draws)]
    searched = raw[np.sort(_drawn(np.arange(len(raw)), SEARCHED, rng))]
    was, now, *by_chance = (
        nearest(unit_rows(chain.queries.transform(queries)), unit_rows(chain.documents.transform(searched)), NEAREST)
        for chain in (embedder.chain, refitted.chain, *parts)
    )
    return {
        "overlap": overlap(was, now),
        "chance": min((overlap(each, now) for each in by_chance), default=1.0),
        "queries": len(queries),
        "searched": len(searched),
    }


def _refitted(
    connection: sqlite3.Connection,
    embedder: Embedder,
    raw: Floats,
    vectors: int,
    known: PseudoQueries | None,
    notes: list[str],
) -> Embedder | None:
    """Return the embedder that a refit would give, None with a note if there is none."""
    config = embedder.config
    wanted = (catalog.meta(connection, "wanted") or {}).get("postprocess", config.postprocess)
    if tuple(wanted) != config.postprocess:
        notes.append(f"{', '.join(wanted)} is yet to be fitted: run ragembed index")
    elif not fitting.fits_on_store(embedder, config.postprocess):
        notes.append("nothing of the post-processors is fitted on the store")
    elif vectors < (least := fitting.least_fit(config.postprocess)):
        notes.append(f"post-processors are fitted on {least:,} chunks or more, the store has {vectors:,}")
    else:
        try:
            unfitted = embedder.with_postprocess(config.postprocess, config.query_fit)
            return unfitted.fit_chain(raw, catalog.embedded_texts(connection), known)
        except RankError as error:
            notes.append(f"the post-processors cannot be fitted: {error}")
    return None


def _fitted_on_part(raw: Floats, refitted: Embedder, share: float, rng: np.random.Generator) -> TwoSidedChain:
    """Return the post-processors fitted on a random part of the raw vectors, and of the pseudo-queries."""

    def part(vectors: Floats) -> Floats:
        count = len(vectors)
        chosen: Floats = vectors[np.sort(rng.choice(count, min(count, max(1, round(share * count))), replace=False))]
        return chosen

    queries = None if refitted.fitted_queries is None else part(refitted.fitted_queries.raw)
    try:
        return TwoSidedChain.fit(refitted.config.postprocess, part(raw), queries)
    except RankError:
        return refitted.chain  # too few of them: nothing is put down to chance then


def _drawn(among: Integers, count: int, rng: np.random.Generator) -> Integers:
    """Return ``count`` of ``among`` drawn at random, or all if they are no more."""
    drawn: Integers = among if len(among) <= count else rng.choice(among, count, replace=False)
    return drawn


def _scaled_up(sample: TokenStatistics, texts: int) -> TokenStatistics:
    """Return what ``texts`` texts hold, estimated from a sample of them."""
    if sample.texts == texts:
        return sample
    times = texts / sample.texts
    frequency = np.rint(sample.document_frequency * times).astype(np.int64)
    return TokenStatistics(texts, frequency, np.rint(sample.occurrences * times).astype(np.int64))


# Measures


def mean_shift(fitted: Moments, now: Moments) -> float:
    """Return the distance of the two means in spreads of the vectors that were fitted on; 0 where those have none."""
    return float(np.linalg.norm(now.mean - fitted.mean)) / fitted.spread if fitted.spread else 0.0


def idf_shifts(
    fitted: TokenStatistics, now: TokenStatistics, tokens: Sequence[str], special: Iterable[int], count: int
) -> tuple[IdfShift, ...]:
    """Return the ``count`` tokens whose idf has moved most, furthest first, equal ones by id.

    Compared are tokens that at least 5 texts hold, and at least 0.5 % of the texts, on one side or the other;
    ``tokens`` and ``special`` are those of :meth:`Vocabulary.of`.
    """
    before, after = _smoothed_idf(fitted), _smoothed_idf(now)
    frequent = _frequent(fitted) | _frequent(now)
    frequent[list(special)] = False
    moved = np.where(frequent, np.abs(after - before), 0.0)
    order = np.argsort(-moved, kind="stable")[:count].tolist()
    return tuple(IdfShift(tokens[i], float(before[i]), float(after[i])) for i in order if moved[i] > 0)


def weight_shift(texts: Iterable[Integers], fitted: Floats, now: Floats, share: float) -> float:
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
    for start in range(0, len(queries), _BLOCK):
        scores = queries[start : start + _BLOCK] @ documents.T
        found[start : start + len(scores)] = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    return found


def judge(
    overlap: float | None, chance: float, weight_shift: float | None, unfitted: float | None
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict of :class:`DriftReport` and its reasons; what is None was not measured."""
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


def _share(counts: Integers, chosen: NDArray[np.bool_]) -> float:
    return int(counts[chosen].sum()) / max(int(counts.sum()), 1)


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
