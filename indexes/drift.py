"""How far a store has moved from what it was fitted on; read only, by a refit that is made in memory and dropped."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.drift import (
    DriftReport,
    Moments,
    Mover,
    Vocabulary,
    chance_size,
    idf_movers,
    judge,
    mean_shift,
    nearest,
    overlap,
    weight_shift,
)
from ragembed.embedder import Embedder
from ragembed.errors import RankError, StoreError
from ragembed.extractors.protocol import Tokenizer
from ragembed.indexes import catalog, compaction, fitting
from ragembed.indexes.baseline import Baseline, load_baseline
from ragembed.indexes.view import View
from ragembed.postprocess import TwoSidedChain, unit_rows
from ragembed.pseudo_queries import PseudoQueries, draw_pseudo_queries
from ragembed.token_ids import TokenIds
from ragembed.weighting import TokenCounter, TokenStatistics

TEXTS = 10_000
"""Texts beyond which tokens are counted in a seeded sample of that many."""

SEARCHED = 20_000
"""Vectors beyond which searches are compared in a seeded sample of that many."""

PARTS, FEW = 9, 5_000
"""Random parts that tell what chance does, up to so many vectors; beyond, where it does little, it is one."""

QUERIES, NEAREST, MOVERS = 256, 10, 10
"""Pseudo-queries that are searched for, results of each that are compared, and tokens that are listed."""

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Ids = NDArray[np.int64]


def measure_drift(store: Path, view: View) -> DriftReport:
    """Return the drift of the generation that ``view`` pins; raises as :meth:`Store.drift` does."""
    embedder = view.embedder()
    if not isinstance(embedder, Embedder):
        raise StoreError(f"the vectors of {store} are not ragembed's own: it was not fitted on them")
    return _Measurement(store, view.connection, embedder).report()


@dataclass(frozen=True, slots=True)
class _Tokens:
    """What is found of the tokens of a store's texts."""

    texts: int = 0
    vocabulary: Vocabulary | None = None
    movers: tuple[Mover, ...] = ()
    weight_shift: float | None = None
    unfitted: float | None = None


@dataclass(frozen=True, slots=True)
class _Searches:
    """What is found by the store as it is beside a refitted one."""

    overlap: float | None = None
    chance: float = 1.0
    queries: int = 0
    searched: int = 0


class _Measurement:
    """One measurement of one generation."""

    def __init__(self, store: Path, connection: sqlite3.Connection, embedder: Embedder) -> None:
        self._store = store
        self._connection = connection
        self._embedder = embedder
        self._notes: list[str] = []

    def report(self) -> DriftReport:
        baseline = load_baseline(self._store, self._connection)
        rows = catalog.live_rows(self._connection)
        added = removed = shift = None
        new = rows[:0]
        if baseline is None:
            self._notes.append(
                "what the post-processors were fitted on was not kept: mean shift and additions are known after the "
                "next: ragembed refit"
            )
        else:
            new = rows[rows > baseline.last_row]
            added, removed = len(new), max(baseline.vectors - (len(rows) - len(new)), 0)
        tokens = self._tokens(rows, new)
        raw = fitting.sample_raw(
            compaction.live_raw(self._store, self._connection, catalog.segments(self._connection)),
            self._embedder.config.seed,
        )
        if baseline is not None and len(raw):
            shift = mean_shift(baseline.moments, Moments.of(raw))
        searches = self._searches(raw, len(rows), len(rows) - len(new), baseline)
        verdict, reasons = judge(searches.overlap, searches.chance, tokens.weight_shift, tokens.unfitted)
        return DriftReport(
            verdict=verdict,
            reasons=reasons,
            notes=tuple(self._notes),
            vectors=len(rows),
            added=added,
            removed=removed,
            texts=tokens.texts,
            vocabulary=tokens.vocabulary,
            movers=tokens.movers,
            weight_shift=tokens.weight_shift,
            unfitted=tokens.unfitted,
            mean_shift=shift,
            overlap=searches.overlap,
            chance=searches.chance,
            queries=searches.queries,
            searched=searches.searched,
        )

    # Tokens

    def _tokens(self, rows: Rows, new: Rows) -> _Tokens:
        if not len(rows):
            return _Tokens()
        config, weights = self._embedder.config, self._embedder.extractor.weights
        tokenizer = self._embedder.tokenizer
        tokens, special = tokenizer.vocabulary(), [*tokenizer.prefix, *tokenizer.suffix]
        fitted = weights.require_fitted()
        if config.weighting_corpus is not None:
            self._notes.append(f"tokens are compared with those of {config.weighting_corpus}, which weights are of")
        ids = self._ids(self._sample(rows, TEXTS))
        now = _counted(ids, tokenizer)
        compared = _counted(self._ids(self._sample(new, TEXTS)), tokenizer) if len(new) else now
        before, after = weights.table, weights.table_for(_scaled_up(now, len(rows)))
        shift = None
        enough = len(rows) >= fitting.MIN_FIT
        if config.fits_weights and enough and before is not None and after is not None:
            shift = weight_shift(ids, before, after, weights.share)
        static = config.fits_static and config.weighting_corpus is None
        return _Tokens(
            texts=len(ids),
            vocabulary=Vocabulary.of(fitted, compared, tokens, special),
            movers=idf_movers(fitted, now, tokens, special, MOVERS),
            weight_shift=shift,
            unfitted=Vocabulary.of(fitted, now, tokens, special).unseen if static else None,
        )

    def _sample(self, rows: Rows, count: int) -> Sequence[int]:
        if len(rows) > count:
            rows = np.sort(np.random.default_rng(self._embedder.config.seed).choice(rows, count, replace=False))
        found: list[int] = rows.tolist()
        return found

    def _ids(self, rows: Sequence[int]) -> list[Ids]:
        texts = catalog.texts_of_rows(self._connection, rows)
        return list(self._embedder.tokenizer.ids(texts))

    # Searches

    def _searches(self, raw: Floats, vectors: int, kept: int, baseline: Baseline | None) -> _Searches:
        """Compare searches of ``vectors`` vectors, of which ``kept`` were there at the fit."""
        known = None if baseline is None else baseline.pseudo_queries
        refitted = self._refitted(raw, vectors, known)
        if refitted is None:
            return _Searches()
        queries = self._queries(refitted, known)
        rng = np.random.default_rng(self._embedder.config.seed)
        if baseline is None or not baseline.vectors:
            share = chance_size(vectors, vectors, 0) / vectors
        else:
            share = chance_size(baseline.vectors, vectors, kept) / vectors
        draws = 0 if share == 1 else PARTS if len(raw) <= FEW else 1
        parts = [_fitted_on_part(raw, refitted, share, rng) for _ in range(draws)]
        searched = raw if len(raw) <= SEARCHED else raw[_chosen(len(raw), SEARCHED, rng)]
        was, now, *by_chance = (
            nearest(
                unit_rows(chain.queries.transform(queries)), unit_rows(chain.documents.transform(searched)), NEAREST
            )
            for chain in (self._embedder.chain, refitted.chain, *parts)
        )
        chance = min((overlap(each, now) for each in by_chance), default=1.0)
        return _Searches(overlap(was, now), chance, len(queries), len(searched))

    def _refitted(self, raw: Floats, vectors: int, known: PseudoQueries | None) -> Embedder | None:
        """Return the embedder that a refit would give, None where there is none."""
        config = self._embedder.config
        wanted = catalog.meta(self._connection, "wanted") or {}
        if tuple(wanted.get("postprocess", config.postprocess)) != config.postprocess:
            self._notes.append(f"{', '.join(wanted['postprocess'])} is yet to be fitted: run ragembed index")
            return None
        if not fitting.fits_on_store(self._embedder, config.postprocess):
            self._notes.append("nothing of the post-processors is fitted on the store")
            return None
        if vectors < (least := fitting.least_fit(config.postprocess)):
            self._notes.append(f"post-processors are fitted on {least:,} chunks or more, the store has {vectors:,}")
            return None
        try:
            unfitted = self._embedder.with_postprocess(config.postprocess, config.sides)
            return unfitted.fit_chain(raw, catalog.embedded_texts(self._connection), known)
        except RankError as error:
            self._notes.append(f"the post-processors cannot be fitted: {error}")
            return None

    def _queries(self, refitted: Embedder, known: PseudoQueries | None) -> Floats:
        """Return raw vectors of pseudo-queries, float32, shape ``(n, d)``: of those that the refit used, if it did."""
        if (fitted := refitted.fitted_queries) is not None:
            return fitted.raw[:QUERIES]
        texts = catalog.embedded_texts(self._connection)
        drawn = draw_pseudo_queries(texts, QUERIES, self._embedder.config.seed)
        return PseudoQueries.of(drawn, self._embedder.raw_pseudo_queries, known).raw


def _fitted_on_part(raw: Floats, refitted: Embedder, share: float, rng: np.random.Generator) -> TwoSidedChain:
    """Return the post-processors fitted on a random part of the raw vectors, and of the pseudo-queries."""
    queries = None if refitted.fitted_queries is None else refitted.fitted_queries.raw
    if queries is not None:
        queries = queries[_chosen(len(queries), round(share * len(queries)), rng)]
    try:
        documents = raw[_chosen(len(raw), round(share * len(raw)), rng)]
        return TwoSidedChain.fit(refitted.config.postprocess, documents, queries)
    except RankError:
        return refitted.chain  # too few of them: nothing is put down to chance then


def _chosen(count: int, least: int, rng: np.random.Generator) -> Rows:
    """Return ``least`` of the numbers below ``count``, at least one, drawn at random, in order."""
    chosen: Rows = np.sort(rng.choice(count, min(count, max(1, least)), replace=False))
    return chosen


def _counted(ids: Sequence[Ids], tokenizer: Tokenizer) -> TokenStatistics:
    counter = TokenCounter(tokenizer.vocabulary_size, [*tokenizer.prefix, *tokenizer.suffix])
    counter.add(TokenIds.of(ids))
    return counter.statistics()


def _scaled_up(sample: TokenStatistics, texts: int) -> TokenStatistics:
    """Return what ``texts`` texts hold, estimated from a sample of them."""
    if sample.texts == texts:
        return sample
    times = texts / sample.texts
    frequency = np.rint(sample.document_frequency * times).astype(np.int64)
    return TokenStatistics(texts, frequency, np.rint(sample.occurrences * times).astype(np.int64))
