"""Tune a store: draw queries from its chunks, search for better settings, and test them on held-out documents."""

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
from ragembed.indexes.search.snapshot import unread_share
from ragembed.indexes.storage.layout import source_path
from ragembed.indexes.store import Store
from ragembed.indexes.tuning.candidates import chain_choices, describe, raw_variants
from ragembed.indexes.tuning.choosing import (
    LEAST_GAIN,
    Settings,
    Trial,
    Trials,
    choose,
    choose_fusion,
    cost,
    finalists,
    fusion_source,
    macro_mean,
    most_trials,
    screen,
)
from ragembed.indexes.tuning.pool import Pool, draw_pool
from ragembed.indexes.tuning.pool_search import Encoder, PoolSearch, texts_to_encode
from ragembed.indexes.tuning.queries import Logged, QuerySet, Source, collect, log_source, read_log
from ragembed.indexes.tuning.report import APPLICABLE, MEAN, Candidate, Compared, Outcome, TuningReport
from ragembed.indexes.tuning.sources import LOG, SOURCES
from ragembed.indexes.types import ChunkRecord, Progress, SilentProgress
from ragembed.types import Doubles

LEAST_CHUNKS = 50
"""Minimum number of chunks for tuning."""
POOL = 2500
"""Maximum number of chunks to search."""
QUERIES = 400
"""Maximum number of pseudo-queries of one source."""
QUERIES_ALONE = 1000
"""Maximum number of pseudo-queries if there is only one source."""
LEAST_QUERIES = 10
"""Minimum number of pseudo-queries of a source in each half."""
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
    """Find settings that improve the search of a store, with queries drawn from its own documents.

    Tuning removes sentences, headings, titles and other texts from their chunks and searches for them. It chooses
    settings on one half of the documents and compares them with the current settings on the other half. The same store,
    query log and seed give the same report.

    Parameters
    ----------
    path : Path
        Folder of the store.
    queries : Path, optional
        A query log, used in addition to the pseudo-queries. Each line is a query, a tab, and the name of a file or the
        id of a chunk that answers it; or a JSON object with the keys ``query`` and ``path`` or ``id``.
    seed : int
        Seed for drawing chunks and queries, and for resampling.
    encode : bool
        Whether to compare settings that require encoding all documents again.
    apply : bool
        Whether to apply the chosen settings to the store if the outcome is ``"better"`` or ``"probably better"``.
    device : str, optional
        Device for encoding, as for :meth:`ragembed.Store.open`.
    progress : object, optional
        Listener with the methods ``start(phase, unit, total)``, ``advance(count)`` and ``finish()``.
    wait_seconds : float
        Seconds to wait if another process writes to the store.

    Returns
    -------
    TuningReport
        The compared settings, the chosen ones, and their comparison on the held-out documents.

    Raises
    ------
    StoreError
        If the vectors of the store do not come from ragembed, or its last run was interrupted.
    StoreLockedError
        If the settings are applied and another process still writes after ``wait_seconds``.
    ConfigError
        If the query log cannot be read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.indexes.tuning import tune_store
    >>> report = tune_store(Path(".ragembed"), encode=False)  # doctest: +SKIP
    >>> report.outcome  # doctest: +SKIP
    'no significant difference'
    """
    progress = progress or SilentProgress()
    logged, without = ([], 0) if queries is None else read_log(queries)
    with Store.open(path, device=device) as store:
        current = _current(store)
        report = _tune(store, current, _named(logged, store), seed, encode, device, progress)
    if without:
        skipped = f"skipped {without:,} {'query' if without == 1 else 'queries'} of {queries}: no answer given"
        report = replace(report, reason=f"{report.reason}; {skipped}")
    if apply and report.outcome in APPLICABLE and report.chosen is not None:
        apply_settings(path, report.chosen.config, report.chosen.fusion, device, progress, wait_seconds)
        report = replace(report, applied=True)
    return report


def _current(store: Store) -> Settings:
    embedder = store.embedder
    if not isinstance(embedder, Embedder):
        raise StoreError(f"cannot tune {store.path}: its vectors were not made by ragembed")
    if store.unfinished and store.being_written:
        raise StoreError(f"{store.path} is being indexed: tune it when the run is complete")
    if store.unfinished:
        raise StoreError(f"the last indexing of {store.path} was interrupted: run 'ragembed index' first")
    postprocess, query_fit = store._wanted_chain()
    return Settings(embedder.config.replace(postprocess=postprocess, query_fit=query_fit), store.fusion)


def _named(logged: Sequence[Logged], store: Store) -> list[Logged]:
    """Replace file paths relative to the working directory by the names of the files in the store."""
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
    base = _ReportBase(pool, counts, drawn, seed)
    if pool.total < LEAST_CHUNKS:
        return base.report("too little", f"the store has {pool.total:,} chunks: expected {LEAST_CHUNKS} or more")
    if not drawn.queries:
        found = ", ".join(f"{name} {sum(each)}" for name, each in counts.items() if sum(each)) or "none"
        return base.report(
            "too little",
            f"the documents give too few queries ({found}): expected {LEAST_QUERIES} of one source in each half",
        )
    # Pseudo-queries of a single source cannot rank raw vectors well: they favour literal matches.
    one_source = len(drawn.sources) == 1 and LOG not in drawn.sources
    raws = raw_variants(current.config) if encode and not one_source else [current.config]
    if encode and one_source:
        note = "; settings that require encoding all documents were not compared, because all queries have one source"
        base = replace(base, note=note)
    chains = chain_choices(current.config)
    with ExitStack() as stack:
        prepare = partial(_prepare, stack, store, device, progress)
        raws = screen(pool, sources, seed, current, raws, prepare)
        encoder, search = prepare(raws, pool, drawn)
        first, second = _QueryPart(drawn, 0, seed, _RESAMPLES_OF_MANY), _QueryPart(drawn, 1, seed, _RESAMPLES)
        progress.start("comparing", "settings", most_trials(raws, chains))
        trials = Trials(encoder, search, first.rows, first.source, progress.advance)
        chosen = choose(trials, current, raws, chains)
        progress.finish()
        candidates = _candidates(trials, trials.of(current), current, first)
        compared = _Findings(tuple(candidates.values()))
        report = base.report("no significant difference", "no other settings are better", compared)
        # The few fusions are compared on all queries: half of them would choose badly in a small store.
        everything = _QueryPart(drawn, None, seed, _RESAMPLES)
        for part, embedder in ((second, chosen.settings), (everything, None)):
            if report.outcome in APPLICABLE:
                break
            progress.start("comparing", "settings", None)
            test = Trials(encoder, search, part.rows, part.source, progress.advance)
            settings = embedder or choose_fusion(test, current).settings
            if settings != current:
                before, after = test.of(current), test.of(settings)
                hybrid, dense = part.compare(after.hybrid, before.hybrid), part.compare(after.dense, before.dense)
                comparison = _Findings(tuple(candidates.values()), candidates[settings], hybrid, dense)
                report = base.report(*_outcome(hybrid, settings, current), comparison)
            progress.finish()
    return report


def _collected(pool: Pool, sources: Mapping[str, Source], seed: int) -> tuple[QuerySet, dict[str, tuple[int, int]]]:
    """Draw the pseudo-queries. If there is only one source, draw more from it."""
    for limit in (QUERIES, QUERIES_ALONE):
        changed = _CHANGED_PER_QUERY * limit
        drawn, counts = collect(pool, sources, seed, limit=limit, changed_limit=changed, least=LEAST_QUERIES)
        if len(drawn.sources) != 1:
            break
    return drawn, counts


def _prepare(
    stack: ExitStack,
    store: Store,
    device: str | None,
    progress: Progress,
    raws: Sequence[EmbedderConfig],
    pool: Pool,
    drawn: QuerySet,
) -> tuple[Encoder, PoolSearch]:
    """Encode a pool and its queries, and create the temporary store to search; ``stack`` closes it."""
    progress.start("encoding", "texts", texts_to_encode(pool, drawn.queries))
    encoder = Encoder(raws, pool, drawn.queries, device, progress.advance)
    progress.finish()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ragembed-tune-")))

    def unread(query: str) -> float:
        return store._reader.read(lambda snapshot: unread_share(snapshot, query))

    search = PoolSearch(folder / "store", pool, drawn.queries, store.language, unread)
    stack.callback(search.close)
    return encoder, search


def _passages(store: Store) -> Iterator[ChunkRecord]:
    """Yield the chunks with their searchable text: boilerplate is removed, chunks of boilerplate alone are skipped."""
    for record in store.chunks():
        searched = record.chunk.searched
        if searched is None:
            yield record
        elif searched:
            yield replace(record, chunk=replace(record.chunk, text=searched, searched=None))


@dataclass(frozen=True, slots=True)
class _ReportBase:
    """The parts of a report that do not depend on its outcome."""

    pool: Pool
    counts: Mapping[str, tuple[int, int]]
    drawn: QuerySet
    seed: int
    note: str = ""

    def report(self, outcome: Outcome, reason: str, found: _Findings | None = None) -> TuningReport:
        found = found or _Findings()
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
class _Findings:
    """The candidates, the chosen one, and its comparison on the held-out documents."""

    candidates: tuple[Candidate, ...] = ()
    chosen: Candidate | None = None
    hybrid: Mapping[str, Compared] = field(default_factory=dict)
    dense: Mapping[str, Compared] = field(default_factory=dict)


class _QueryPart:
    """The queries of one half, or all queries; computes means and comparisons of their scores."""

    def __init__(self, drawn: QuerySet, half: int | None, seed: int, resamples: int) -> None:
        self.rows = [row for row, each in enumerate(drawn.half) if half in (None, each)]
        self.source = [drawn.source[row] for row in self.rows]
        self._sources = np.array(self.source)
        self._names = drawn.sources
        self._seed = seed
        self._resamples = resamples
        documents = [drawn.run[row] for row in self.rows]
        self._overall = MacroBootstrap(self.source, documents, seed, resamples)

    def means(self, values: Doubles) -> dict[str, float]:
        """Return the mean of each source in per cent, and the mean over sources."""
        means = {name: 100.0 * float(values[self._sources == name].mean()) for name in self._names}
        return {**means, MEAN: 100.0 * macro_mean(values, self.source)}

    def compare(self, tuned: Doubles, now: Doubles) -> dict[str, Compared]:
        """Compare two settings by source and by the mean over sources."""
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


def _candidates(trials: Trials, now: Trial, current: Settings, half: _QueryPart) -> dict[Settings, Candidate]:
    """Return all candidates, best first."""
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
        for trial in finalists(trials, current)
    }


def label(settings: Settings, current: Settings) -> str:
    """Return as text the settings that differ from ``current``, or ``"now"`` if none differ."""
    parts = [describe(settings.config, current.config)]
    names = ("method", "alpha", "feedback", "rrf_k", "hubness")
    shown = {"method": "fusion"}
    for name in names:
        if getattr(settings.fusion, name) != getattr(current.fusion, name):
            value = getattr(settings.fusion, name)
            parts.append(f"{shown.get(name, name)} {value if isinstance(value, str) else format(value, 'g')}")
    return "; ".join(part for part in parts if part) or "now"


def _outcome(hybrid: Mapping[str, Compared], chosen: Settings, current: Settings) -> tuple[Outcome, str]:
    """Return the outcome and its reason, based on the comparison on the held-out documents.

    A fusion is compared on all documents, by the source that chooses it. It need not be significantly better, because
    it costs nothing.
    """
    fusion_only = _NEEDS[cost(chosen, current)] == "note"
    key, where = (fusion_source(hybrid), "all documents") if fusion_only else (MEAN, "the held-out documents")
    if not fusion_only and (worse := [name for name in hybrid if hybrid[name].high < 0]):
        return "no significant difference", f"on {where} it is worse for: {', '.join(worse)}"
    found = hybrid[key]
    what = "mean nDCG@10" if key == MEAN else f"nDCG@10 of the source '{key}'"
    reason = (
        f"on {where} the {what} changes by {found.difference:+.1f} points, "
        f"95 % interval {found.low:+.1f} to {found.high:+.1f}"
    )
    if found.low <= 0:
        likely = fusion_only and found.difference > 0
        return ("probably better" if likely else "no significant difference"), reason
    if not fusion_only and found.difference < LEAST_GAIN:
        too_small = f"less than the {LEAST_GAIN:g} points that justify another embedder"
        return "no significant difference", f"{reason}: {too_small}"
    return "better", reason
