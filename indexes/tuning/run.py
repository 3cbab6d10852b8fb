"""Tuning a store: queries out of its own chunks, the search for better settings, and the test on documents held out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from ragembed.config.settings import EmbedderConfig
from ragembed.embedder import Embedder
from ragembed.errors import StoreError
from ragembed.evaluation.bootstrap import MacroBootstrap, paired_bootstrap
from ragembed.indexes.indexing.refit import apply_settings
from ragembed.indexes.storage.layout import source_path
from ragembed.indexes.store import Store
from ragembed.indexes.tuning.candidates import chain_choices, describe, raw_variants
from ragembed.indexes.tuning.choosing import (
    Settings,
    Trial,
    Trials,
    choose,
    cost,
    macro_mean,
    most_trials,
    screen,
    to_choose_from,
)
from ragembed.indexes.tuning.pool import Pool, draw_pool
from ragembed.indexes.tuning.pool_search import Encoder, PoolSearch, texts_to_encode
from ragembed.indexes.tuning.queries import Logged, QuerySet, Source, collect, log_source, read_log
from ragembed.indexes.tuning.report import MEAN, Candidate, Compared, Outcome, TuningReport
from ragembed.indexes.tuning.sources import LOG, SOURCES
from ragembed.indexes.types import ChunkRecord, Progress, SilentProgress
from ragembed.types import Doubles

LEAST_CHUNKS = 50
"""Chunks below which nothing is tuned."""
POOL = 2500
"""Most chunks that are searched."""
QUERIES = 400
"""Most pseudo-queries of one source."""
QUERIES_ALONE = 1000
"""Most pseudo-queries of a source that is the only one."""
LEAST_QUERIES = 10
"""Pseudo-queries that a source needs in each half."""
LEAST_GAIN = 2.0
"""Points of nDCG@10 that must be gained on documents held out by encoding all again: less can be how the score errs."""
_CHANGED_PER_QUERY = 3
_RESAMPLES, _RESAMPLES_OF_MANY = 10_000, 2_000
_NEEDS = ("nothing", "note", "refit", "encode")


def tune_store(
    path: Path,
    *,
    queries: Path | None = None,
    seed: int = 0,
    encode: bool = True,
    apply: bool = False,
    device: str | None = None,
    progress: Progress | None = None,
    wait_seconds: float = 0.0,
) -> TuningReport:
    """Look for settings that search a store better, by queries made from its own documents.

    Sentences, headings, titles and the like are taken out of their chunks and searched for. Settings are chosen on one
    half of the documents, and the one chosen is compared with the present settings on the other. The same store, log
    and seed give the same report.

    Parameters
    ----------
    path
        Folder of the store.
    queries
        A file of queries with their answers, as :func:`read_log` takes it, used beside the others.
    seed
        Of the draw of chunks and queries, and of resampling.
    encode
        Whether settings are compared for which all documents would have to be encoded again.
    apply
        Whether the store is given the settings chosen, where they are significantly better.
    device
        Where texts are encoded, as :meth:`Store.open` takes it.
    progress, wait_seconds
        A listener; how long to wait where another process writes.

    Raises
    ------
    StoreError
        Where the store's vectors are not ragembed's own, or its last run was interrupted.
    ConfigError
        Where the log cannot be read.
    """
    progress = progress or SilentProgress()
    logged, without = ([], 0) if queries is None else read_log(queries)
    with Store.open(path, device=device) as store:
        current = _current(store)
        report = _tune(store, current, _named(logged, store), seed, encode, device, progress)
    if without:
        report = replace(report, reason=f"{report.reason}; {without:,} questions of the log have no answer: left out")
    if apply and report.outcome == "better" and report.chosen is not None:
        apply_settings(path, report.chosen.config, report.chosen.fusion, device, progress, wait_seconds)
        report = replace(report, applied=True)
    return report


def _current(store: Store) -> Settings:
    embedder = store.embedder
    if not isinstance(embedder, Embedder):
        raise StoreError(f"the vectors of {store.path} are not ragembed's own: there is nothing to tune")
    if store.unfinished:
        raise StoreError(f"the last run over {store.path} was interrupted: carry on with ragembed index first")
    postprocess, query_fit = store._wanted_chain()
    return Settings(embedder.config.replace(postprocess=postprocess, query_fit=query_fit), store.fusion)


def _named(logged: Sequence[Logged], store: Store) -> list[Logged]:
    """Return ``logged`` with files by their names in the store, where they are given as from the working directory."""
    known = store.sources()

    def name(answer: str) -> str:
        beside = source_path(Path(answer), store.path)
        return beside if answer not in known and beside in known else answer

    return [Logged(one.query, name(one.answer)) for one in logged]


def _tune(
    store: Store,
    current: Settings,
    logged: Sequence[Logged],
    seed: int,
    encode: bool,
    device: str | None,
    progress: Progress,
) -> TuningReport:
    pool = draw_pool(partial(_passages, store), POOL, seed, frozenset(one.answer for one in logged))
    sources: dict[str, Source] = dict(SOURCES)
    if logged:
        sources[LOG] = lambda of, _: log_source(logged, of)
    drawn, counts = _collected(pool, sources, seed)
    about = _About(pool, counts, drawn, seed)
    if pool.total < LEAST_CHUNKS:
        return about.report(
            "too little", f"{pool.total:,} chunks are too few to tell settings apart: expected {LEAST_CHUNKS}"
        )
    if not drawn.queries:
        found = ", ".join(f"{name} {sum(each)}" for name, each in counts.items() if sum(each)) or "none"
        return about.report(
            "too little",
            f"too few questions can be made from these documents ({found}): expected {LEAST_QUERIES} of one kind in "
            "each half",
        )
    # Queries of one kind, words out of the texts, say too little of raw vectors: they reward whatever is literal.
    one_kind = len(drawn.sources) == 1 and LOG not in drawn.sources
    raws = raw_variants(current.config) if encode and not one_kind else [current.config]
    if encode and one_kind:
        about = replace(about, note="; what needs all encoded again was not compared, with questions of one kind alone")
    chains = chain_choices(current.config)
    with ExitStack() as stack:
        prepare = partial(_prepare, stack, store.language, device, progress)
        raws = screen(pool, sources, seed, current, raws, prepare)
        encoder, search = prepare(raws, pool, drawn)
        first, second = _Half(drawn, 0, seed, _RESAMPLES_OF_MANY), _Half(drawn, 1, seed, _RESAMPLES)
        progress.start("comparing", "settings", most_trials(raws, chains))
        trials = Trials(encoder, search, first.rows, first.source, progress.advance)
        chosen = choose(trials, current, raws, chains)
        progress.finish()
        candidates = _candidates(trials, trials.of(current), current, first)
        if chosen.settings == current:
            tried = _Tried(tuple(candidates.values()))
            return about.report("no significant difference", "nothing that was tried is better", tried)
        held_out = Trials(encoder, search, second.rows, second.source)
        before, after = held_out.of(current), held_out.of(chosen.settings)
    hybrid, dense = second.compare(after.hybrid, before.hybrid), second.compare(after.dense, before.dense)
    tried = _Tried(tuple(candidates.values()), candidates[chosen.settings], hybrid, dense)
    return about.report(*_outcome(hybrid, chosen.settings, current), tried)


def _collected(pool: Pool, sources: Mapping[str, Source], seed: int) -> tuple[QuerySet, dict[str, tuple[int, int]]]:
    """Draw the pseudo-queries; where one source has to do for all, more of it."""
    for limit in (QUERIES, QUERIES_ALONE):
        changed = _CHANGED_PER_QUERY * limit
        drawn, counts = collect(pool, sources, seed, limit=limit, changed_limit=changed, least=LEAST_QUERIES)
        if len(drawn.sources) != 1:
            break
    return drawn, counts


def _prepare(
    stack: ExitStack,
    language: str,
    device: str | None,
    progress: Progress,
    raws: Sequence[EmbedderConfig],
    pool: Pool,
    drawn: QuerySet,
) -> tuple[Encoder, PoolSearch]:
    """Encode a pool and its queries, and make the temporary store that is searched, which ``stack`` closes."""
    progress.start("encoding", "texts", texts_to_encode(pool, drawn.queries))
    encoder = Encoder(raws, pool, drawn.queries, device, progress.advance)
    progress.finish()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ragembed-tune-")))
    search = PoolSearch(folder / "store", pool, drawn.queries, language)
    stack.callback(search.close)
    return encoder, search


def _passages(store: Store) -> Iterator[ChunkRecord]:
    """Yield the chunks as they are searched: without boilerplate, and those of nothing else not at all."""
    for record in store.chunks():
        searched = record.chunk.searched
        if searched is None:
            yield record
        elif searched:
            yield replace(record, chunk=replace(record.chunk, text=searched, searched=None))


@dataclass(frozen=True, slots=True)
class _About:
    """What every report says."""

    pool: Pool
    counts: Mapping[str, tuple[int, int]]
    drawn: QuerySet
    seed: int
    note: str = ""

    def report(self, outcome: Outcome, reason: str, found: _Tried | None = None) -> TuningReport:
        found = found or _Tried()
        return TuningReport(
            outcome,
            f"{reason}{self.note}",
            self.pool.total,
            len(self.pool),
            len({place.run for place in self.pool.places}),
            self.counts,
            tuple(self.drawn.sources),
            found.candidates,
            found.chosen,
            found.hybrid,
            found.dense,
            self.seed,
        )


@dataclass(frozen=True, slots=True)
class _Tried:
    """What was tried, what was chosen, and how that does on the documents held out."""

    candidates: tuple[Candidate, ...] = ()
    chosen: Candidate | None = None
    hybrid: Mapping[str, Compared] = field(default_factory=dict)
    dense: Mapping[str, Compared] = field(default_factory=dict)


class _Half:
    """The queries of one half: means of their values, and comparisons."""

    def __init__(self, drawn: QuerySet, half: int, seed: int, resamples: int) -> None:
        self.rows = [row for row, each in enumerate(drawn.half) if each == half]
        self.source = [drawn.source[row] for row in self.rows]
        self._sources = np.array(self.source)
        self._names = drawn.sources
        self._seed = seed
        self._resamples = resamples
        documents = [drawn.run[row] for row in self.rows]
        self._overall = MacroBootstrap(self.source, documents, seed, resamples)

    def means(self, values: Doubles) -> dict[str, float]:
        """Return the mean of each source in per cent, and the mean of these."""
        means = {name: 100.0 * float(values[self._sources == name].mean()) for name in self._names}
        return {**means, MEAN: 100.0 * macro_mean(values, self.source)}

    def compare(self, tuned: Doubles, now: Doubles) -> dict[str, Compared]:
        """Compare two settings by source, and by the mean."""
        compared = {
            name: paired_bootstrap(tuned[chosen], now[chosen], self._resamples, self._seed)
            for name in self._names
            for chosen in [self._sources == name]
        }
        compared[MEAN] = self._overall.compare(tuned, now)
        after, before = self.means(tuned), self.means(now)
        sizes = {name: int((self._sources == name).sum()) for name in self._names} | {MEAN: len(self.rows)}
        return {
            name: Compared(
                sizes[name],
                before[name],
                after[name],
                100.0 * found.difference,
                100.0 * found.low,
                100.0 * found.high,
                found.p_value,
            )
            for name, found in compared.items()
        }


def _candidates(trials: Trials, now: Trial, current: Settings, half: _Half) -> dict[Settings, Candidate]:
    """Return all that there was to choose from, best first."""
    return {
        trial.settings: Candidate(
            label(trial.settings, current),
            trial.settings.config,
            trial.settings.fusion,
            _NEEDS[cost(trial.settings, current)],
            half.means(trial.hybrid),
            half.means(trial.dense),
            {} if trial is now else half.compare(trial.hybrid, now.hybrid),
        )
        for trial in to_choose_from(trials, current)
    }


def label(settings: Settings, current: Settings) -> str:
    """Return what of ``settings`` differs from ``current``; ``"now"`` where nothing does."""
    parts = [describe(settings.config, current.config)]
    names = ("method", "alpha", "feedback", "rrf_k")
    shown = {"method": "fusion"}
    for name in names:
        if getattr(settings.fusion, name) != getattr(current.fusion, name):
            value = getattr(settings.fusion, name)
            parts.append(f"{shown.get(name, name)} {value if isinstance(value, str) else format(value, 'g')}")
    return "; ".join(part for part in parts if part) or "now"


def _outcome(hybrid: Mapping[str, Compared], chosen: Settings, current: Settings) -> tuple[Outcome, str]:
    """Return whether the chosen settings are to be taken, and why, from how they compare on documents held out."""
    worse = [name for name, compared in hybrid.items() if compared.high < 0]
    mean = hybrid[MEAN]
    if worse:
        return "no significant difference", f"on the documents held out it is worse for: {', '.join(worse)}"
    reason = (
        f"on the documents held out the mean of nDCG@10 differs by {mean.difference:+.1f}, "
        f"95 % interval {mean.low:+.1f} to {mean.high:+.1f}"
    )
    if mean.low <= 0:
        return "no significant difference", reason
    if _NEEDS[cost(chosen, current)] == "encode" and mean.difference < LEAST_GAIN:
        return "no significant difference", f"{reason}: less than the {LEAST_GAIN:g} points that are worth encoding all"
    return "better", reason
