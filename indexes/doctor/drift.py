"""Drift: how far the documents of a store have moved away from its fit, and whether to fit again.

Nothing is written. The refit that the store is compared with exists only in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import PseudoQueries, draw_pseudo_queries
from ragembed.embedder import Embedder
from ragembed.errors import RankError, StoreError
from ragembed.extractors.weighting import TokenCounter, TokenStatistics
from ragembed.indexes.collection import Collection
from ragembed.indexes.faiss_index.vectors import nearest
from ragembed.indexes.indexing import fitting
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog, compaction, derived
from ragembed.indexes.storage.embedders import QUERIES as FIT_QUERIES
from ragembed.indexes.storage.embedders import joined, load_queries
from ragembed.indexes.store import Store
from ragembed.indexes.types import Rows
from ragembed.postprocess import TwoSidedChain, unit_rows
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
"""Number of random parts to measure the effect of chance, for up to 5,000 vectors; above, one part is enough."""
QUERIES, NEAREST = 256, 10
"""Number of pseudo-queries, and of results to compare for each."""


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
    added, removed : int or None
        Number of vectors that were added and removed since the post-processors were fitted; None if unknown.
    unseen : float or None
        Share of (text, distinct token) pairs, from 0 to 1, whose token occurs in no text of the token weights' fit.
    weight_shift : float or None
        Mean share of a text's weight, from 0 to 1, that token weights fitted now would move to other tokens of the
        text; None if the weights are not fitted on the store, or the store has too few texts.
    overlap : float or None
        Share of the ten nearest vectors, from 0 to 1, that a search finds both now and after a refit, averaged over
        pseudo-queries; None if nothing can be fitted.
    chance : float
        The overlap that the same amount of change gives by chance in a corpus that stays of the same kind: the lowest
        overlap of a refit with fits on random parts of the vectors.

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
    added: int | None = None
    removed: int | None = None
    unseen: float | None = None
    weight_shift: float | None = None
    overlap: float | None = None
    chance: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values.

        Returns
        -------
        dict
            The fields of the report.
        """
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        measured = {
            "Vectors": f"{self.vectors:,}",
            "Added since the fit": None if self.added is None else f"{self.added:,}",
            "Removed since the fit": None if self.removed is None else f"{self.removed:,}",
            "Weight that a new fit would move": None if self.weight_shift is None else f"{self.weight_shift:.1%}",
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

    def measured() -> DriftReport:
        with opened.snapshot() as snapshot:
            return _DriftMeasurement(snapshot.comparable("dense")).report()

    return opened.read(measured)


class _DriftMeasurement:
    """The drift of the stores of a snapshot, which have the same embedder."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._stores = [(view.reader.path, view.connection) for view in snapshot.stores]
        embedder = snapshot.embedder().refittable
        if embedder is None:
            raise StoreError(f"cannot measure drift of {self._stores[0][0]}: its vectors were not made by ragembed")
        self._embedder = embedder
        wanted = catalog.wanted_chain(self._stores[0][1])
        self._wanted = tuple(wanted.get("postprocess", embedder.config.postprocess))
        self._rows = [catalog.live_rows(connection) for _, connection in self._stores]
        self._vectors = sum(map(len, self._rows))
        self._notes: list[str] = []

    def report(self) -> DriftReport:
        """Return the measurements and the verdict."""
        added, removed = self._changes()
        tokens, searches = self._tokens(), self._searches(removed)
        config = self._embedder.config
        unfitted = tokens.get("unseen") if config.fits_static and config.weighting_corpus is None else None
        verdict, reasons = judge(
            searches.get("overlap"), searches.get("chance", 1.0), tokens.get("weight_shift"), unfitted
        )
        return DriftReport(verdict, reasons, tuple(self._notes), self._vectors, added, removed, **tokens, **searches)

    def _changes(self) -> tuple[int | None, int | None]:
        """Return the numbers of vectors that were added and removed since the fit, each None if it is not known."""
        fits = [record for _, connection in self._stores for record in derived.records(connection, FIT_QUERIES.name)]
        if len(fits) < len(self._stores):
            return None, None
        unchanged = [int((rows <= fit.last).sum()) for rows, fit in zip(self._rows, fits, strict=True)]
        removed = sum(max(fit.chunks - count, 0) for fit, count in zip(fits, unchanged, strict=True))
        return self._vectors - sum(unchanged), removed

    def _texts(self) -> Iterator[str]:
        return chain.from_iterable(catalog.embedded_texts(connection) for _, connection in self._stores)

    def _raw(self) -> Iterator[tuple[Rows, Halves]]:
        """Yield rows and their raw vectors in blocks; a text that several stores have counts once, as in a refit."""
        distinct = fitting.DistinctRows(len(self._stores))
        for path, connection in self._stores:
            for rows, raw in compaction.live_raw(path, connection, catalog.segments(connection)):
                new = distinct.are_new(partial(catalog.hashes_of_rows, connection), rows.tolist())
                yield rows[new], raw[new]

    def _tokens(self) -> dict[str, Any]:
        """Return the fields of the report about tokens."""
        embedder, config = self._embedder, self._embedder.config
        if embedder.is_remote:
            self._notes.append(f"words are not compared: {config.model} does not show its tokens")
        if not self._vectors or embedder.is_remote:
            return {}
        if config.weighting_corpus is not None:
            self._notes.append(f"tokens are compared with {config.weighting_corpus}, the corpus of the token weights")
        tokenizer, weights = embedder.tokenizer, embedder.extractor.weights
        special = [*tokenizer.prefix, *tokenizer.suffix]
        step = -(-self._vectors // TEXTS)
        texts: list[str] = []
        for (_, connection), rows in zip(self._stores, self._rows, strict=True):
            texts += catalog.texts_of_rows(connection, rows[::step].tolist()).values()
        counter = TokenCounter(tokenizer)
        ids = list(counter.add(texts))
        fitted, now = weights.require_fitted(), counter.statistics()
        before, after = weights.table, weights.table_for(scaled_up(now, self._vectors))
        shift = None
        if config.fits_weights and self._vectors >= fitting.MIN_FIT and before is not None and after is not None:
            shift = weight_shift(ids, before, after, weights.share)
        return {"unseen": unseen_share(fitted, now, special), "weight_shift": shift}

    def _searches(self, removed: int | None) -> dict[str, Any]:
        """Return the fields of the report about searches now and after a refit."""
        embedder = self._embedder
        raw = fitting.sample_raw(self._raw(), embedder.config.seed)
        stored = joined(load_queries(path, connection) for path, connection in self._stores)
        refitted = self._refitted(raw, stored)
        if refitted is None:
            return {}
        seed = embedder.config.seed
        if refitted.fitted_queries is not None:
            queries = refitted.fitted_queries.raw[:QUERIES]
        else:
            drawn = draw_pseudo_queries(self._texts(), QUERIES, seed)
            queries = PseudoQueries.of(drawn, embedder.raw_pseudo_queries, stored).raw
        rng = np.random.default_rng(seed)
        before = embedder.fitted_on.documents if embedder.fitted_on else 0
        unchanged = min(before - (removed or 0), self._vectors)
        share = chance_size(before, self._vectors, unchanged) / self._vectors
        draws = 0 if share == 1 else PARTS if len(raw) <= FEW else 1
        parts = [_fitted_on_part(raw, refitted, share, rng) for _ in range(draws)]
        searched = raw if len(raw) <= SEARCHED else raw[np.sort(rng.choice(len(raw), SEARCHED, replace=False))]
        was, now, *by_chance = (
            nearest(
                unit_rows(chain.queries.transform(queries)), unit_rows(chain.documents.transform(searched)), NEAREST
            )[0]
            for chain in (embedder.chain, refitted.chain, *parts)
        )
        return {"overlap": overlap(was, now), "chance": min((overlap(part, now) for part in by_chance), default=1.0)}

    def _refitted(self, raw: Floats, stored: PseudoQueries | None) -> Embedder | None:
        """Return the embedder after a refit, or None with a note if a refit is not possible."""
        embedder, wanted = self._embedder, self._wanted
        config = embedder.config
        if not fitting.fits_on_store(embedder, wanted):
            self._notes.append("no post-processor is fitted on the store, so a refit would change nothing")
        elif self._vectors < (least := fitting.least_fit(wanted)):
            self._notes.append(
                f"fitting {', '.join(wanted)} needs {least:,} chunks or more, and the store has {self._vectors:,}: the "
                "effect of a refit is not measured"
            )
        elif wanted != config.postprocess:
            self._notes.append(f"the post-processors {', '.join(wanted)} are not fitted yet: run 'ragembed index'")
        else:
            try:
                unfitted = embedder.with_postprocess(config.postprocess, config.query_fit)
                return unfitted.fit_chain(raw, self._texts(), stored)
            except RankError as error:
                self._notes.append(f"the post-processors cannot be fitted: {error}")
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


# Measures


def scaled_up(sample: TokenStatistics, texts: int) -> TokenStatistics:
    """Estimate the token statistics of ``texts`` texts from a sample of them."""
    if sample.texts == texts:
        return sample
    times = texts / sample.texts
    frequency = np.rint(sample.document_frequency * times).astype(np.int64)
    return TokenStatistics(texts, frequency, np.rint(sample.occurrences * times).astype(np.int64))


def unseen_share(fitted: TokenStatistics, now: TokenStatistics, special: Sequence[int]) -> float:
    """Return the share of (text, distinct token) pairs whose token no text of the fit has; ``special`` do not count."""
    pairs = now.document_frequency.copy()
    pairs[list(special)] = 0
    return int(pairs[fitted.document_frequency == 0].sum()) / max(int(pairs.sum()), 1)


def weight_shift(texts: Iterable[Integers], fitted: Floats, now: Floats, share: float) -> float:
    """Return the mean share of a text's weight that the weights ``now`` move to other tokens of the text.

    This is the total variation distance of the two distributions of weights over the tokens of a text. ``texts`` are
    arrays of token ids, shape ``(n,)``. ``fitted`` and ``now`` are the weights by id, float32, shape ``(vocabulary,)``.
    ``share`` is the part of a text's weight that they determine; the rest is uniform.
    """
    shifts = [0.5 * share * float(np.abs(_scaled(fitted[ids]) - _scaled(now[ids])).sum()) for ids in texts if len(ids)]
    return sum(shifts) / len(shifts) if shifts else 0.0


def _scaled(weights: Floats) -> Doubles:
    """Scale the weights of a text's tokens to sum 1; if all are 0, return uniform weights."""
    wide = weights.astype(np.float64)
    total = float(wide.sum())
    return wide / total if total > 0 else np.full(len(wide), 1.0 / len(wide))


def overlap(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Return the mean share of results that two searches have in common; both are ids, shape ``(queries, k)``."""
    if not first.size:
        return 1.0
    common = [len(np.intersect1d(a, b, assume_unique=True)) for a, b in zip(first, second, strict=True)]
    return sum(common) / first.size


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
