"""Measure drift: the difference between the corpus of a store's fit and its corpus now, and whether to fit again.

The store is not changed. The refit that it is compared with exists only in memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import PseudoQueries, draw_pseudo_queries
from ragembed.embedder import Embedder
from ragembed.errors import RankError, StoreError
from ragembed.extractors.weighting import TokenCounter, TokenStatistics
from ragembed.indexes.collection import Collection
from ragembed.indexes.indexing import fitting
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog, compaction
from ragembed.indexes.storage.baseline import Baseline, load_baseline
from ragembed.indexes.store import Store
from ragembed.indexes.types import Rows
from ragembed.models.token_ids import TokenIds
from ragembed.postprocess import TwoSidedChain, unit_rows
from ragembed.postprocess.moments import Moments
from ragembed.types import Doubles, Floats, Halves, Integers

Verdict = Literal["keep", "refit", "rebuild"]

REFIT_BELOW = 0.97
"""A refit pays off if the overlap@10 is below this share of the overlap that chance explains."""

REBUILD_ABOVE = 0.08
"""The raw vectors are out of date if token weights fitted now would move more than this share of a text's weight."""

UNSEEN_ABOVE = 0.1
"""The static vectors of ``avg`` are out of date if more than this share of tokens has no vector in the table."""

TEXTS, SEARCHED = 10_000, 20_000
"""Maximum number of texts for counting tokens, and of vectors for comparing searches; larger stores are sampled."""

PARTS, FEW = 9, 5_000
"""Number of random parts to measure the effect of chance, for up to 5,000 vectors.

One part is enough for more vectors, because chance has little effect then.
"""

QUERIES, NEAREST, SHIFTS = 256, 10, 10
"""Number of pseudo-queries, of results to compare for each, and of tokens to list."""

_UNKNOWN = ("[UNK]", "<unk>")
_CONTINUES = "##"
_LEAST_TEXTS, _LEAST_SHARE = 5, 0.005
"""A token's idf is compared if at least this many texts, and this share of the texts, contain it on either side."""
_BLOCK = 64


@dataclass(frozen=True, slots=True)
class IdfShift:
    """A token and its idf, ``ln((N + 1) / (df + 1))``, in the texts of the fit and in the current texts."""

    token: str
    fitted: float
    now: float


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of some texts compared with the texts of a fit. All values are shares from 0 to 1.

    Parameters
    ----------
    unseen : float
        Share of (text, distinct token) pairs whose token occurs in no text of the fit.
    expected : float
        The share to expect from more texts of the same kind as the fit (Good 1953): the number of tokens in exactly one
        text of the fit, divided by the number of (text, distinct token) pairs in the fit.
    unknown, unknown_fitted : float or None
        Share of unknown tokens now and in the fit; None if the tokenizer has no unknown token.
    pieces, pieces_fitted : float or None
        Share of tokens that continue a word now and in the fit; None without a WordPiece vocabulary.
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
        """Compare ``now`` with the fit. ``tokens`` lists the tokens by id; the ids in ``special`` do not count."""
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
    """The drift of a store since its last fit, and what to do about it.

    Parameters
    ----------
    verdict : {"keep", "refit", "rebuild"}
        ``"keep"`` if the fit is up to date. ``"refit"`` if the post-processors are out of date. ``"rebuild"`` if the
        token weights or static vectors are, because the raw vectors depend on them.
    reasons : tuple of str
        The reasons for the verdict.
    notes : tuple of str
        The measurements that were not possible, and why.
    vectors : int
        Number of vectors that chunks use.
    added : int or None
        Number of vectors that were added since the post-processors were fitted; None if unknown.
    removed : int or None
        Number of vectors that were removed since then; None if unknown.
    texts : int
        Number of texts for counting tokens: all texts, or a sample.
    vocabulary : Vocabulary or None
        The tokens of the added texts compared with the texts of the token weights' fit. If no text was added, all texts
        are compared.
    movers : tuple of IdfShift
        The tokens whose idf changed most, largest change first.
    weight_shift : float or None
        Mean share of a text's weight, from 0 to 1, that token weights fitted now would move to other tokens of the
        text; None if the weights are not fitted on the store, or the store has too few texts.
    unfitted : float or None
        Share of tokens, from 0 to 1, without a static vector fitted on the store; None without such vectors.
    mean_shift : float or None
        Distance of the mean raw vector from the mean of the fit, in units of the fit's spread, which is the root mean
        square distance of a vector from the mean; None if unknown.
    overlap : float or None
        Share of the ten nearest vectors, from 0 to 1, that a search finds both now and after a refit, averaged over
        ``queries`` pseudo-queries; None if nothing can be fitted.
    chance : float
        The overlap that the same amount of change gives by chance in a corpus that stays of the same kind: the overlap
        of a refit with a fit on a random part of the vectors. The lowest value of several
        parts.
    queries : int
        Number of pseudo-queries for the overlap.
    searched : int
        Number of vectors that were searched for the overlap.

    Examples
    --------
    >>> from ragembed.indexes import Store, measure_drift
    >>> with Store.open(".ragembed") as store:  # doctest: +SKIP
    ...     report = measure_drift(store)
    >>> report.verdict, report.reasons  # doctest: +SKIP
    ('keep', ())
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
        """Return the report as JSON values.

        Returns
        -------
        dict
            The fields of the report, with objects for ``vocabulary`` and each of ``movers``.
        """
        found = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        measured = {
            "Vectors": f"{self.vectors:,}",
            "Added since the fit": None if self.added is None else f"{self.added:,}",
            "Removed since the fit": None if self.removed is None else f"{self.removed:,}",
            "Weight that a new fit would move": None if self.weight_shift is None else f"{self.weight_shift:.1%}",
            "Shift of the mean vector": None if self.mean_shift is None else f"{self.mean_shift:.3f} spreads",
            "Overlap@10 with a refit": None if self.overlap is None else f"{self.overlap:.3f}",
        }
        rows = [(name, value) for name, value in measured.items() if value is not None]
        return notebook_table("; ".join([f"Drift: {self.verdict}", *self.reasons]), (), rows)


def measure_drift(opened: Store | Collection) -> DriftReport:
    """Measure the drift of a store since its last fit, and whether to fit it again.

    The stores of a collection are measured as one, against the fit that they have in common. A text that several of
    them have counts in each. Nothing is changed. The model encodes only pseudo-queries that are new since the last fit.

    Parameters
    ----------
    opened : Store or Collection
        An open store, or a collection of stores with the same embedder.

    Returns
    -------
    DriftReport
        The measurements and the verdict.

    Raises
    ------
    StoreError
        If the vectors do not come from ragembed.
    ConfigError
        If the stores of the collection have different embedders.

    Examples
    --------
    >>> from ragembed.indexes import Store, measure_drift
    >>> with Store.open(".ragembed") as store:  # doctest: +SKIP
    ...     measure_drift(store).verdict
    'keep'
    """

    def answer() -> DriftReport:
        with opened.snapshot() as snapshot:
            return _measured(_MeasuredTexts.of(snapshot.comparable("dense")))

    return opened.read(answer)


@dataclass(frozen=True, slots=True)
class _MeasuredStore:
    """A store of the corpus; ``rows`` are those that chunks use, and ``is_new`` which were added since the fit."""

    path: Path
    connection: sqlite3.Connection
    baseline: Baseline | None
    rows: Integers

    @property
    def is_new(self) -> NDArray[np.bool_]:
        return self.rows > (np.inf if self.baseline is None else self.baseline.last_row)

    def raw(self) -> Iterator[tuple[Rows, Halves]]:
        """Yield the rows and their raw vectors, in blocks."""
        return compaction.live_raw(self.path, self.connection, catalog.segments(self.connection))


@dataclass(frozen=True, slots=True)
class _MeasuredTexts:
    """The texts and vectors of one store, or of several with the same embedder. A row is a member and a row there."""

    embedder: Embedder
    members: Sequence[_MeasuredStore]

    @classmethod
    def of(cls, snapshot: Snapshot) -> _MeasuredTexts:
        embedder = snapshot.embedder().refittable
        stores = [(store.reader.path, store.connection) for store in snapshot.stores]
        if embedder is None:
            raise StoreError(f"cannot measure drift of {stores[0][0]}: its vectors were not made by ragembed")
        members = [
            _MeasuredStore(path, each, load_baseline(path, each), catalog.live_rows(each)) for path, each in stores
        ]
        return cls(embedder, members)

    def rows(self, *, new: bool = False) -> Integers:
        """Return number of the member and row, for all rows or those added since the fit; int64, shape ``(n, 2)``."""
        chosen = [each.rows[each.is_new] if new else each.rows for each in self.members]
        return np.concatenate([np.column_stack([np.full_like(rows, i), rows]) for i, rows in enumerate(chosen)])

    def texts_of(self, rows: Integers) -> list[str]:
        """Return the texts of rows, shape ``(n, 2)``, member by member."""
        found: list[str] = []
        for number, member in enumerate(self.members):
            own = rows[rows[:, 0] == number][:, 1]
            found += catalog.texts_of_rows(member.connection, np.sort(own).tolist()) if len(own) else []
        return found

    def texts(self) -> Iterator[str]:
        """Yield the text of each chunk."""
        return chain.from_iterable(catalog.embedded_texts(member.connection) for member in self.members)

    def raw(self) -> Iterator[tuple[Rows, Halves]]:
        """Yield rows and their raw vectors in blocks; a text that several stores have counts once, as in a refit."""
        seen: set[bytes] = set()
        for member in self.members:
            for rows, raw in member.raw():
                if len(self.members) == 1:
                    yield rows, raw
                    continue
                hashes = catalog.hashes_of_rows(member.connection, rows.tolist())
                first = np.array([hashes[row] not in seen for row in rows.tolist()], dtype=bool)
                seen.update(hashes.values())
                yield rows[first], raw[first]

    def moments(self) -> Moments | None:
        """Return the moments of the raw vectors, or None if there are none."""
        seed = self.embedder.config.seed
        samples = [(fitting.sample_raw(each.raw(), seed), len(each.rows)) for each in self.members if len(each.rows)]
        own = [replace(Moments.of(raw), count=rows) for raw, rows in samples]
        return Moments.merged(own) if own else None

    def baseline(self) -> Baseline | None:
        """Return the baseline of all stores together, or None if one has none; its ``last_row`` has no meaning."""
        found = [each.baseline for each in self.members if each.baseline is not None]
        if len(found) < len(self.members):
            return None
        if len(found) == 1:
            return found[0]
        moments = Moments.merged([replace(each.moments, count=each.vectors or each.moments.count) for each in found])
        known = [each.pseudo_queries for each in found if each.pseudo_queries is not None]
        texts = tuple(text for each in known for text in each.texts)
        queries = PseudoQueries(texts, np.concatenate([each.raw for each in known])) if known else None
        return Baseline(0, sum(each.vectors for each in found), moments, queries)

    def wanted(self) -> tuple[str, ...]:
        """Return the post-processors chosen for the stores, which may not be fitted yet."""
        wanted = catalog.wanted_chain(self.members[0].connection)
        return tuple(wanted.get("postprocess", self.embedder.config.postprocess))


def _measured(corpus: _MeasuredTexts) -> DriftReport:
    embedder, baseline = corpus.embedder, corpus.baseline()
    rows, new = corpus.rows(), corpus.rows(new=True)
    kept = len(rows) - len(new)
    notes: list[str] = []
    if baseline is None:
        refit = "; to measure them from now on, run 'ragembed refit'"
        remedy = "" if len(rows) < fitting.least_fit(corpus.wanted()) else refit
        notes.append(
            "the store has no record of the vectors of its fit: the mean shift and the added vectors are not measured"
            f"{remedy}"
        )
    tokens = _tokens(corpus, rows, new, notes)
    raw = fitting.sample_raw(corpus.raw(), embedder.config.seed)
    now = None if baseline is None else corpus.moments()
    searches = _searches(corpus, raw, len(rows), kept, baseline, notes)
    verdict, reasons = judge(
        searches.get("overlap"), searches.get("chance", 1.0), tokens.get("weight_shift"), tokens.get("unfitted")
    )
    removed = None
    if baseline is not None:
        by_member = [
            (each.baseline.vectors if each.baseline else 0, int((~each.is_new).sum())) for each in corpus.members
        ]
        removed = sum(max(before - left, 0) for before, left in by_member)
    return DriftReport(
        verdict,
        reasons,
        tuple(notes),
        len(rows),
        None if baseline is None else len(new),
        removed,
        mean_shift=None if baseline is None or now is None else mean_shift(baseline.moments, now),
        **tokens,
        **searches,
    )


def _tokens(corpus: _MeasuredTexts, rows: Integers, new: Integers, notes: list[str]) -> dict[str, Any]:
    """Return the fields of the report about the tokens of the texts of ``rows``, shape ``(n, 2)``."""
    embedder = corpus.embedder
    if embedder.is_remote:
        notes.append(f"words are not compared: {embedder.config.model} does not show its tokens")
    if not len(rows) or embedder.is_remote:
        return {}
    config, tokenizer, weights = embedder.config, embedder.tokenizer, embedder.extractor.weights
    tokens, special = tokenizer.vocabulary(), [*tokenizer.prefix, *tokenizer.suffix]

    def ids_of(among: Integers) -> list[Integers]:
        chosen = _drawn(np.arange(len(among)), TEXTS, np.random.default_rng(config.seed))
        return list(tokenizer.ids(corpus.texts_of(among[chosen])))

    def counted(texts: Sequence[Integers]) -> TokenStatistics:
        counter = TokenCounter(tokenizer.vocabulary_size, special)
        counter.add(TokenIds.of(texts))
        return counter.statistics()

    fitted = weights.require_fitted()
    if config.weighting_corpus is not None:
        notes.append(f"tokens are compared with {config.weighting_corpus}, the corpus of the token weights")
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
    corpus: _MeasuredTexts, raw: Floats, vectors: int, kept: int, baseline: Baseline | None, notes: list[str]
) -> dict[str, Any]:
    """Return the fields of the report about searches now and after a refit; the fit had ``kept`` of the vectors."""
    known, embedder = None if baseline is None else baseline.pseudo_queries, corpus.embedder
    refitted = _refitted(corpus, raw, vectors, known, notes)
    if refitted is None:
        return {}
    seed = embedder.config.seed
    if (fitted := refitted.fitted_queries) is not None:
        queries = fitted.raw[:QUERIES]
    else:
        drawn = draw_pseudo_queries(corpus.texts(), QUERIES, seed)
        queries = PseudoQueries.of(drawn, embedder.raw_pseudo_queries, known).raw
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
    corpus: _MeasuredTexts, raw: Floats, vectors: int, known: PseudoQueries | None, notes: list[str]
) -> Embedder | None:
    """Return the embedder after a refit, or None with a note if a refit is not possible."""
    embedder, wanted = corpus.embedder, corpus.wanted()
    config = embedder.config
    if not fitting.fits_on_store(embedder, wanted):
        notes.append("no post-processor is fitted on the store, so a refit would change nothing")
    elif vectors < (least := fitting.least_fit(wanted)):
        notes.append(
            f"fitting {', '.join(wanted)} needs {least:,} chunks or more, and the store has {vectors:,}: the effect of "
            "a refit is not measured"
        )
    elif wanted != config.postprocess:
        notes.append(f"the post-processors {', '.join(wanted)} are not fitted yet: run 'ragembed index'")
    else:
        try:
            unfitted = embedder.with_postprocess(config.postprocess, config.query_fit)
            return unfitted.fit_chain(raw, corpus.texts(), known)
        except RankError as error:
            notes.append(f"the post-processors cannot be fitted: {error}")
    return None


def _fitted_on_part(raw: Floats, refitted: Embedder, share: float, rng: np.random.Generator) -> TwoSidedChain:
    """Fit the post-processors on a random part of the raw vectors and of the pseudo-queries."""

    def part(vectors: Floats) -> Floats:
        count = len(vectors)
        chosen: Floats = vectors[np.sort(rng.choice(count, min(count, max(1, round(share * count))), replace=False))]
        return chosen

    queries = None if refitted.fitted_queries is None else part(refitted.fitted_queries.raw)
    try:
        return TwoSidedChain.fit(refitted.config.postprocess, part(raw), queries)
    except RankError:
        return refitted.chain  # too few vectors: assume that chance has no effect


def _drawn(among: Integers, count: int, rng: np.random.Generator) -> Integers:
    """Return ``count`` elements of ``among`` drawn at random, or all if there are not more."""
    drawn: Integers = among if len(among) <= count else rng.choice(among, count, replace=False)
    return drawn


def _scaled_up(sample: TokenStatistics, texts: int) -> TokenStatistics:
    """Estimate the token statistics of ``texts`` texts from a sample of them."""
    if sample.texts == texts:
        return sample
    times = texts / sample.texts
    frequency = np.rint(sample.document_frequency * times).astype(np.int64)
    return TokenStatistics(texts, frequency, np.rint(sample.occurrences * times).astype(np.int64))


# Measures


def mean_shift(fitted: Moments, now: Moments) -> float:
    """Return the distance of the two means in units of the spread of the fit; 0 if the spread is 0."""
    return float(np.linalg.norm(now.mean - fitted.mean)) / fitted.spread if fitted.spread else 0.0


def idf_shifts(
    fitted: TokenStatistics, now: TokenStatistics, tokens: Sequence[str], special: Iterable[int], count: int
) -> tuple[IdfShift, ...]:
    """Return the ``count`` tokens whose idf changed most, largest change first, ties by id.

    A token counts if at least 5 texts and at least 0.5 % of the texts contain it on either side. ``tokens`` and
    ``special`` are those of :meth:`Vocabulary.of`.
    """
    before, after = _smoothed_idf(fitted), _smoothed_idf(now)
    frequent = _frequent(fitted) | _frequent(now)
    frequent[list(special)] = False
    moved = np.where(frequent, np.abs(after - before), 0.0)
    order = np.argsort(-moved, kind="stable")[:count].tolist()
    return tuple(IdfShift(tokens[i], float(before[i]), float(after[i])) for i in order if moved[i] > 0)


def weight_shift(texts: Iterable[Integers], fitted: Floats, now: Floats, share: float) -> float:
    """Return the mean share of a text's weight that the weights ``now`` move to other tokens of the text.

    This is the total variation distance of the two distributions of weights over the tokens of a text. ``texts`` are
    arrays of token ids, shape ``(n,)``. ``fitted`` and ``now`` are the weights by id, float32, shape ``(vocabulary,)``.
    ``share`` is the part of a text's weight that they determine; the rest is uniform.
    """
    shifts = [0.5 * share * float(np.abs(_scaled(fitted[ids]) - _scaled(now[ids])).sum()) for ids in texts if len(ids)]
    return sum(shifts) / len(shifts) if shifts else 0.0


def overlap(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Return the mean share of results that two searches have in common.

    Both arrays hold the ids of the results, shape ``(queries, k)``, without duplicates in a row.
    """
    if not one.size:
        return 1.0
    common = [len(np.intersect1d(a, b, assume_unique=True)) for a, b in zip(one, other, strict=True)]
    return sum(common) / one.size


def chance_size(before: int, now: int, kept: int) -> int:
    """Return the size m of a random part whose fit differs from the fit on all vectors as much as chance explains.

    Let both fits be on samples of one corpus: the old fit on ``before`` vectors, the new one on ``now`` vectors, with
    ``kept`` vectors in common. The variance of the difference of their means equals the variance for a random part of m
    of the ``now`` vectors and all of them: ``1/m - 1/now = 1/before + 1/now - 2 kept / (before now)``.
    """
    if not before or not now:
        return now
    inverse = 1 / before + 2 / now - 2 * kept / (before * now)
    return max(1, min(now, round(1 / inverse)))


def nearest(queries: Floats, documents: Floats, k: int) -> NDArray[np.int64]:
    """Return the positions of the ``k`` documents with the largest inner products with each query, unordered.

    Both arrays are float32, shape ``(n, d)``. The result is int64, shape ``(queries, min(k, documents))``.
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
    """Return the verdict of :class:`DriftReport` and its reasons. None means that a value was not measured."""
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
        least = f"{REFIT_BELOW:g} of the {chance:.2f} that chance explains"
        return "refit", (f"a refit would change the results: overlap@10 {overlap:.2f} (less than {least})",)
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
    """Scale the weights of a text's tokens to sum 1; if all are 0, return uniform weights."""
    wide = weights.astype(np.float64)
    total = float(wide.sum())
    return wide / total if total > 0 else np.full(len(wide), 1.0 / len(wide))
