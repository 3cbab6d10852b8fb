"""Build the index that meets a budget: build and measure candidate kinds in turn, and take the first that fits."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragembed.errors import BudgetError
from ragembed.indexes.faiss_index import cost_model
from ragembed.indexes.faiss_index.building import IndexInput, build_index, check
from ragembed.indexes.faiss_index.cost_model import LEAST_APPROXIMATE, ORDER, Budget, Machine, Option
from ragembed.indexes.faiss_index.index import RefinedIndex, open_index
from ragembed.indexes.faiss_index.library import faiss, has_faiss
from ragembed.indexes.faiss_index.measure import (
    LEAST_QUERIES,
    Search,
    Truth,
    exact,
    latency_ms,
    least_effort,
    recall,
    tuned_effort,
)
from ragembed.indexes.faiss_index.records import IndexConfig, Measurement
from ragembed.indexes.faiss_index.specs import AUTO, FLAT, IndexSpec, parse_spec
from ragembed.progress import Progress, SilentProgress
from ragembed.types import Floats

LEAST_ASKED = 1_000
"""Minimum number of vectors for a requested approximate kind. Below, the index is flat."""

EXACT_WITHOUT_FAISS = "search is exact because FAISS is not installed; for faster search: pip install 'ragembed[cpu]'"

_MOST_BUILT = 3
_SCANNED_BYTES = 64 * 1024**2  # more than a processor's cache holds
_RUNS = 5
_MEMORY_SHARE = 0.5
_UNKNOWN_MEMORY = 8 * 1024**3


@dataclass(frozen=True, slots=True)
class TuningQueries:
    """Pseudo-queries, unit vectors of shape ``(n, d)``: one set to tune an index and another set to measure it."""

    tuning: Floats
    measuring: Floats


@dataclass(frozen=True, slots=True)
class Picked:
    """The index that was built: its kind, its search effort, its measurement, and the reasons for the choice."""

    spec: IndexSpec
    effort: int | None
    measured: Measurement
    reasons: tuple[str, ...]
    runner_up: str | None

    @property
    def kind(self) -> str:
        """The name of the kind."""
        return self.spec.name


def pick(
    given: IndexInput,
    queries: TuningQueries,
    wanted: IndexConfig,
    progress: Progress | None = None,
    *,
    machine: Machine | None = None,
    gpus: Sequence[int] = (),
) -> Picked:
    """Build an index that meets the requirements in ``wanted`` and write it to the file of ``given``.

    At most three kinds are tried, in the order of :func:`.cost_model.choose`, each tuned to the
    smallest effort that reaches the recall. The first that meets the budget in one thread, on other queries, is taken.
    Missing the default latency and recall is no error; if no kind meets the limits that were set, raises
    :class:`BudgetError` and writes no file.
    """
    shape = len(given.rows), given.vectors.dim
    options = (
        []
        if wanted.kind != AUTO or not has_faiss()
        else cost_model.choose(*shape, wanted.budget, machine or measure_machine(shape[1]))
    )
    # A kind that is tried among others need not be tuned far beyond the limit; a kind that was requested must be.
    limit_ms = cost_model.LATENCY_SLACK * wanted.budget.wanted_latency_ms if options else math.inf
    trial = _KindTrial(given, queries, wanted.budget, limit_ms, progress or SilentProgress(), gpus)
    attempts: list[_Attempt] = []
    files: list[Path] = []
    try:
        for number, spec in enumerate(_to_try(wanted, options, len(given.rows))):
            files.append(given.file.with_name(f"{given.file.name}.{number}"))
            attempts.append(trial.run(spec, files[-1]))
            if attempts[-1].excess <= 1:
                break
        best = min(attempts, key=lambda attempt: (max(attempt.budget_excess, 1.0), attempt.excess))
        if best.budget_excess > 1:
            raise BudgetError(_refusal(wanted, attempts, best, shape))
        best.file.replace(given.file)
    finally:
        for made in files:
            made.unlink(missing_ok=True)
    return Picked(
        best.spec,
        best.effort,
        best.measured,
        _reasons(wanted, best, attempts, options),
        _runner_up(attempts, options),
    )


@dataclass(frozen=True, slots=True)
class _Attempt:
    spec: IndexSpec
    effort: int | None
    measured: Measurement
    file: Path
    budget_excess: float
    excess: float


class _KindTrial:
    """Builds, tunes and measures kinds in turn on the same vectors and queries."""

    def __init__(
        self,
        given: IndexInput,
        queries: TuningQueries,
        budget: Budget,
        limit_ms: float,
        progress: Progress,
        gpus: Sequence[int],
    ) -> None:
        self._given = given
        self._budget = budget
        self._limit_ms = limit_ms
        self._progress = progress
        self._gpus = gpus
        self._queries = queries
        self._tuning: Truth | None = None
        self._measuring: Truth | None = None

    def run(self, spec: IndexSpec, file: Path) -> _Attempt:
        vectors, rows = self._given.vectors, self._given.rows
        check(spec, vectors.dim)
        self._progress.start(f"building {spec.name}", "vectors", len(rows))
        build_index(spec, vectors, rows, file, self._progress.advance, self._gpus)
        self._progress.finish()
        self._progress.start(f"measuring {spec.name}", "queries", None)
        effort, measured = self._measure(spec, file)
        self._progress.finish()
        excesses = (_excess(measured, self._budget, defaults=defaults) for defaults in (False, True))
        return _Attempt(spec, effort, measured, file, *excesses)

    def _measure(self, spec: IndexSpec, file: Path) -> tuple[int | None, Measurement]:
        size = file.stat().st_size
        if min(len(self._queries.tuning), len(self._queries.measuring)) < LEAST_QUERIES:
            return None, Measurement(None, None, size)
        vectors, rows = self._given.vectors, self._given.rows
        index = open_index(file, spec, len(rows), vectors.dim)
        refined = RefinedIndex(index, spec, vectors, rows)

        def search(effort: int | None) -> Search:
            return lambda queries, k: refined.search(queries, k, effort=effort)[0]

        most = index.most_effort
        tuning, measuring = self._truths()
        wanted = self._budget.wanted_recall
        effort = tuned_effort(search, most, tuning, wanted, self._limit_ms)
        found = recall(search(effort), measuring)
        if effort is not None and found.mean < wanted:
            effort = max(effort, least_effort(search, most, measuring, wanted, self._limit_ms))
            found = recall(search(effort), measuring)
        return effort, Measurement(found, latency_ms(search(effort), measuring.queries), size)

    def _truths(self) -> tuple[Truth, Truth]:
        if self._tuning is None or self._measuring is None:
            tuning, measuring = self._queries.tuning, self._queries.measuring
            both = exact(
                [(self._given.vectors, None)], np.concatenate([tuning, measuring])
            )  # in one pass over the vectors
            self._tuning = Truth(tuning, both.kth[: len(tuning)], both.k)
            self._measuring = Truth(measuring, both.kth[len(tuning) :], both.k)
        return self._tuning, self._measuring


def least_asked(spec: IndexSpec) -> int:
    """Return the minimum number of vectors for an index of kind ``spec``. Below, the index is flat."""
    return 0 if spec.named and spec.family == "exhaustive" else max(LEAST_ASKED, spec.least_rows)


def beginning(wanted: IndexConfig) -> str:
    """Return as text how many vectors the requested kind needs."""
    return f"{wanted.kind} needs at least {least_asked(parse_spec(wanted.kind)):,} vectors"


def _to_try(wanted: IndexConfig, options: Sequence[Option], rows: int) -> list[IndexSpec]:
    """Return the kinds to try, in order. If no kind fits the budget, return the one that exceeds it least."""
    if wanted.kind != AUTO:
        spec = parse_spec(wanted.kind)
        return [spec if rows >= least_asked(spec) else parse_spec(FLAT)]
    if not options:
        return [parse_spec(FLAT)]
    return [option.spec for option in options if option.worth_trying][:_MOST_BUILT] or [options[0].spec]


def _excess(measured: Measurement, budget: Budget, *, defaults: bool) -> float:
    """Return the largest ratio of a measurement to its limit; ``defaults`` includes the default latency and recall."""
    ratios = [0.0]
    if budget.max_memory is not None:
        ratios.append(measured.bytes / budget.max_memory)
    if measured.latency_ms is not None and (defaults or budget.max_latency_ms is not None):
        ratios.append(measured.latency_ms / budget.wanted_latency_ms)
    if measured.recall is not None and (defaults or budget.min_recall is not None):
        missed, allowed = 1 - measured.recall.mean, 1 - budget.wanted_recall
        ratios.append(missed / allowed if allowed else math.inf if missed else 0.0)
    return max(ratios)


def _reasons(
    wanted: IndexConfig, best: _Attempt, attempts: Sequence[_Attempt], options: Sequence[Option]
) -> tuple[str, ...]:
    if wanted.kind != AUTO:
        if best.spec.name != wanted.kind:
            return (f"an index of kind {beginning(wanted)}",)
        return (f"{wanted.kind} was requested",)
    if not options:
        return (EXACT_WITHOUT_FAISS,)
    obstacles = {option.spec.name: option.obstacle for option in options if option.obstacle is not None}
    obstacles |= {attempt.spec.name: f"measured {attempt.measured.describe()}" for attempt in attempts}
    tried = [attempt.spec.name for attempt in attempts if attempt is not best]
    preferred = ORDER[: ORDER.index(best.spec.name)]
    passed_over = [
        f"not {name}: {obstacles[name]}" for name in ORDER if name in tried or (name in preferred and name in obstacles)
    ]
    why = "the first kind within" if best.excess <= 1 else "the closest kind; none is within"
    return (*passed_over, f"{best.spec.name}: {why} the budget of {wanted.budget.describe()}")


def _runner_up(attempts: Sequence[_Attempt], options: Sequence[Option]) -> str | None:
    tried = {attempt.spec.name for attempt in attempts}
    left = [option for option in options if option.spec.name not in tried and option.worth_trying]
    if not left:
        return None
    cost = left[0].cost
    return f"{left[0].spec.name} (about {cost.bytes / 1e6:,.0f} MB, {cost.latency_ms:.2g} ms a query)"


def _refusal(wanted: IndexConfig, attempts: Sequence[_Attempt], best: _Attempt, shape: tuple[int, int]) -> str:
    rows, dim = shape
    hint = ""
    if wanted.kind == AUTO and rows < LEAST_APPROXIMATE:
        hint = (
            f", or request an approximate kind, as in --index hnsw (chosen only from {LEAST_APPROXIMATE:,} vectors on)"
        )
    if not has_faiss():
        hint = f"; {EXACT_WITHOUT_FAISS}"
    tried = ", ".join(attempt.spec.name for attempt in attempts)
    return (
        f"no index of {rows:,} vectors of dimension {dim} meets the budget of "
        f"{wanted.budget.describe(defaults=False)} (built: {tried}): the closest is {best.spec.name} with "
        f"{best.measured.describe()}; raise or remove a limit{hint}"
    )


def measure_machine(dim: int) -> Machine:
    """Measure how fast one thread scans vectors of dimension ``dim``, and how much memory building may use."""
    return Machine(_scan_ns("Flat", dim), _scan_ns("SQ8", dim), int(_MEMORY_SHARE * _memory()))


def _scan_ns(factory: str, dim: int) -> float:
    index = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    query = np.ones((1, dim), dtype=np.float32)
    index.train(query)
    count = _SCANNED_BYTES // int(index.sa_code_size()) or 1
    index.codes.resize(count * index.sa_code_size())
    index.ntotal = count
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        best = min(_search_seconds(index, query) for _ in range(_RUNS))
    finally:
        faiss.omp_set_num_threads(threads)
    return best * 1e9 / (count * dim)


def _search_seconds(index: Any, query: Floats) -> float:
    started = time.perf_counter()
    index.search(query, 10)
    return time.perf_counter() - started


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not available on this system
        return _UNKNOWN_MEMORY
