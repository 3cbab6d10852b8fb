"""Choose an index for a budget: estimate the kinds, build and measure some in turn, and take the first that fits.

The guide on choosing an index shows the same rules as a table. The scan speed is measured on the current machine. The
other constants of the cost model were measured on up to a million vectors, and give the order of magnitude.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import BudgetError
from ragembed.evaluation.retrieval import paired_bootstrap
from ragembed.indexes.faiss_index.building import IndexInput, build_index, require_buildable
from ragembed.indexes.faiss_index.index import USUAL_K, RefinedIndex, open_index
from ragembed.indexes.faiss_index.records import (
    AUTO,
    FLAT,
    Budget,
    IndexConfig,
    IndexSpec,
    Measurement,
    Recall,
    codes_for,
    faiss,
    lists_for,
    parse_spec,
    short,
)
from ragembed.indexes.faiss_index.vectors import Vectors, nearest, vector_blocks
from ragembed.progress import Progress, SilentProgress
from ragembed.types import Floats
from ragembed.version import install_command

Search = Callable[[Floats, int], Floats]
"""Maps queries, shape ``(n, d)``, and k to the scores of the results, shape ``(n, at most k)``, best first."""

MOST_EFFORT = 16_384
"""The highest effort that tuning tries."""

K = 10
"""The number of nearest neighbours in recall@10."""

LEAST_QUERIES = 2
"""Minimum number of queries for a measurement: fewer give no confidence interval."""

_LEAST_EFFORT, _STEP, _STEPS_TO_DOUBLE = 1, 1.15, 5
_TIE = 2e-6
_TIMED_QUERIES, _TIMED_RUNS = 100, 3


@dataclass(frozen=True, slots=True)
class Truth:
    """Queries, unit vectors of shape ``(n, d)``, and the score of the k-th nearest vector to each, shape ``(n,)``."""

    queries: Floats
    kth: Floats
    k: int


def exact(parts: Iterable[tuple[Vectors, NDArray[np.bool_] | None]], queries: Floats) -> Truth:
    """Find the scores of the ten nearest vectors by exhaustive search, block by block.

    ``parts`` are pairs of vectors and a mask of the positions that count, None for all.
    """
    best = np.full((len(queries), K), -np.inf, dtype=np.float32)
    for vectors, allowed in parts:
        for start, block in vector_blocks(vectors):
            candidates = block if allowed is None else np.ascontiguousarray(block[allowed[start : start + len(block)]])
            if len(candidates):
                best = -np.sort(-np.hstack([best, nearest(queries, candidates, K)[1]]), axis=1)[:, :K]
    k = int(np.isfinite(best[0]).sum()) if len(queries) else 0
    return Truth(queries, best[:, k - 1] if k else np.zeros(len(queries), dtype=np.float32), k)


def recall(search: Search, truth: Truth) -> Recall:
    """Measure recall@10 with its percentile bootstrap; a vector that ties with the tenth nearest counts as found."""
    scores = search(truth.queries, USUAL_K)[:, : truth.k]
    shares = (scores >= truth.kth[:, None] - _TIE).sum(axis=1) / truth.k
    resampled = paired_bootstrap(shares, np.zeros(len(shares)))
    return Recall(float(shares.mean()), min(resampled.low, 1.0), min(resampled.high, 1.0), len(shares))


def least_effort(
    search: Callable[[int], Search], most: int, truth: Truth, wanted: float, limit_ms: float = math.inf
) -> int:
    """Return the smallest effort whose recall interval starts at ``wanted`` or above, or the highest if none does.

    ``search`` maps an effort to its search.
    """
    most = min(most, MOST_EFFORT)
    ladder = [_LEAST_EFFORT]
    while ladder[-1] < most:
        ladder.append(min(max(ladder[-1] + 1, int(ladder[-1] * _STEP)), most))
    low = high = 0
    while True:
        started = time.perf_counter()
        if recall(search(ladder[high]), truth).low >= wanted:
            break
        slow = 1e3 * (time.perf_counter() - started) > limit_ms * len(truth.queries)
        if slow or high == len(ladder) - 1:
            return min(ladder[high], most)
        low, high = high + 1, min(high + _STEPS_TO_DOUBLE, len(ladder) - 1)
    while low < high:
        middle = (low + high) // 2
        if recall(search(ladder[middle]), truth).low >= wanted:
            high = middle
        else:
            low = middle + 1
    return min(ladder[low], most)


def latency_ms(search: Search, queries: Floats) -> float:
    """Return the 95th percentile, over up to 100 ``queries``, of the shortest of three times for one query, in ms."""
    times = [min(_seconds(search, query[None, :]) for _ in range(_TIMED_RUNS)) for query in queries[:_TIMED_QUERIES]]
    return 1e3 * float(np.percentile(times, 95))


def _seconds(search: Search, query: Floats) -> float:
    started = time.perf_counter()
    search(query, USUAL_K)
    return time.perf_counter() - started


LEAST_APPROXIMATE = 50_000
"""Minimum number of vectors for an automatic choice of an approximate kind. Below, you have to request it by name."""

LEAST_ASKED = 1_000
"""Minimum number of vectors for a requested approximate kind. Below, the index is flat."""

ORDER = ("flat", "sq8", "ivf-sq8", "hnsw-sq8", "hnsw", "ivf", "ivf-pq")
"""The kinds in order of preference: exact kinds first, then approximate kinds that are built faster.

``ivf`` and ``ivf-pq`` come last: one is larger than ``ivf-sq8``, and the other less precise.

From :data:`LEAST_APPROXIMATE` vectors on, ``flat`` is left out: ``sq8`` finds the same in less time and memory.
"""

LATENCY_SLACK = 5.0
"""An approximate kind is ruled out only if its estimated latency exceeds the budget by this factor.

The real latency of an approximate index is known after it is built and tuned.
"""

EXACT_WITHOUT_FAISS = "search is exact because FAISS is not installed; for faster search: "
"""The beginning of a reason; the command that installs FAISS follows."""

_ID_BYTES, _LINK_BYTES = 8, 285
_VISITED, _VISIT_NS, _RANDOM_NS_PER_BYTE = 1_000, 60.0, 0.2
_PROBED_SHARE = 0.05
_CODE_NS = 0.45
_RANKING_MS = 0.1
_MOST_BUILT = 3
_SCANNED_BYTES = 64 * 1024**2  # more than a processor's cache holds
_RUNS = 5
_MEMORY_SHARE = 0.5
_UNKNOWN_MEMORY = 8 * 1024**3


# The estimate


@dataclass(frozen=True, slots=True)
class Machine:
    """The speed of a machine: nanoseconds to scan one float32 or 8-bit vector component; and its memory in bytes."""

    flat_ns: float
    code_ns: float
    memory: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The size of an index in bytes, milliseconds per query in one thread, and bytes of memory needed to build it."""

    bytes: int
    latency_ms: float
    building_bytes: int


def cost(spec: IndexSpec, rows: int, dim: int, machine: Machine) -> Cost:
    """Estimate the cost of an index of a named kind for ``rows`` vectors of dimension ``dim``."""
    vector_bytes = {"Flat": 4 * dim, "SQ8": dim, "PQ": codes_for(dim)}[spec.codes]
    number_ns = machine.flat_ns if spec.codes == "Flat" else machine.code_ns
    size, building, scan_ns = rows * (vector_bytes + _ID_BYTES), 0, rows * dim * number_ns
    if spec.family == "graph":
        size += rows * _LINK_BYTES
        building = size
        scan_ns = _VISITED * (_VISIT_NS + _RANDOM_NS_PER_BYTE * vector_bytes)
    elif spec.family == "lists":
        lists = lists_for(rows)
        size += lists * dim * 4
        vector_ns = vector_bytes * _CODE_NS if spec.codes == "PQ" else dim * number_ns
        scan_ns = lists * dim * machine.flat_ns + _PROBED_SHARE * rows * vector_ns
    return Cost(size, scan_ns / 1e6 + (0.0 if spec.lossless else _RANKING_MS), building)


@dataclass(frozen=True, slots=True)
class Option:
    """A kind of index, its estimated cost, and the limits that this cost exceeds as text, None if it fits the budget.

    ``excess`` is the largest ratio of a cost to its limit, at most 1 if the kind fits. ``worth_trying`` is False if the
    kind would not meet the budget: only the latency of an approximate kind may turn out to be lower than estimated.
    """

    spec: IndexSpec
    cost: Cost
    obstacle: str | None
    excess: float
    worth_trying: bool


def choose(rows: int, dim: int, budget: Budget, machine: Machine) -> list[Option]:
    """Return the kinds of index, in the order to try them, for ``rows`` vectors of dimension ``dim``.

    Kinds that fit the budget come first, in order of preference.
    """
    names = ORDER if rows < LEAST_APPROXIMATE else [name for name in ORDER if name != FLAT]
    options = [_option(parse_spec(name), rows, dim, budget, machine) for name in names]
    return sorted(options, key=lambda option: (not option.worth_trying, max(option.excess, 1.0)))


def _option(spec: IndexSpec, rows: int, dim: int, budget: Budget, machine: Machine) -> Option:
    estimate = cost(spec, rows, dim, machine)
    too_few = not spec.exact and rows < LEAST_APPROXIMATE
    limits = [
        (estimate.latency_ms, budget.wanted_latency_ms, "ms a query", 1.0 if spec.exact else LATENCY_SLACK),
        (estimate.bytes / 1e6, (budget.max_memory or estimate.bytes) / 1e6, "MB", 1.0),
        (estimate.building_bytes / 1e6, machine.memory / 1e6, "MB to build it", 1.0),
    ]
    obstacles = [
        f"about {short(value)} {unit}, more than {short(most)}" for value, most, unit, _ in limits if value > most
    ]
    if too_few:
        obstacles.insert(0, f"approximate, which is chosen from {LEAST_APPROXIMATE:,} vectors on, not for {rows:,}")
    return Option(
        spec,
        estimate,
        "; ".join(obstacles) or None,
        math.inf if too_few else max(value / most for value, most, *_ in limits),
        not too_few and all(value <= most * slack for value, most, _, slack in limits),
    )


def measure_machine(dim: int) -> Machine:
    """Measure how fast one thread scans vectors of dimension ``dim``, and how much memory building may use."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not available on this system
        memory = _UNKNOWN_MEMORY
    return Machine(_scan_ns("Flat", dim), _scan_ns("SQ8", dim), int(_MEMORY_SHARE * memory))


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
        best = min(_seconds(index.search, query) for _ in range(_RUNS))
    finally:
        faiss.omp_set_num_threads(threads)
    return best * 1e9 / (count * dim)


# The trial


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

    At most three kinds are tried, in the order of :func:`choose`, each tuned to the smallest effort that reaches the
    recall.
    """
    shape = len(given.rows), given.vectors.dim
    options: list[Option] = []
    if wanted.kind == AUTO and faiss.is_installed():
        options = choose(*shape, wanted.budget, machine or measure_machine(shape[1]))
    # A kind that is tried among others need not be tuned far beyond the limit; a kind that was requested must be.
    limit_ms = LATENCY_SLACK * wanted.budget.wanted_latency_ms if options else math.inf
    trial = _Trial(given, queries, wanted.budget, limit_ms, progress or SilentProgress(), gpus)
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
        for file in files:
            file.unlink(missing_ok=True)
    reasons = _reasons(wanted, best, attempts, options)
    return Picked(best.spec, best.effort, best.measured, reasons, _runner_up(attempts, options))


@dataclass(frozen=True, slots=True)
class _Attempt:
    spec: IndexSpec
    effort: int | None
    measured: Measurement
    file: Path
    budget_excess: float
    excess: float


@dataclass(frozen=True)
class _Trial:
    """Builds, tunes and measures kinds in turn on the same vectors and queries."""

    given: IndexInput
    queries: TuningQueries
    budget: Budget
    limit_ms: float
    progress: Progress
    gpus: Sequence[int]

    def run(self, spec: IndexSpec, file: Path) -> _Attempt:
        vectors, rows = self.given.vectors, self.given.rows
        require_buildable(spec, vectors.dim)
        self.progress.start(f"building {spec.name}", "vectors", len(rows))
        build_index(spec, vectors, rows, file, self.progress.advance, self.gpus)
        self.progress.finish()
        self.progress.start(f"measuring {spec.name}", "queries", None)
        effort, measured = self._measure(spec, file)
        self.progress.finish()
        excesses = (_excess(measured, self.budget, defaults=defaults) for defaults in (False, True))
        return _Attempt(spec, effort, measured, file, *excesses)

    def _measure(self, spec: IndexSpec, file: Path) -> tuple[int | None, Measurement]:
        size = file.stat().st_size
        if min(len(self.queries.tuning), len(self.queries.measuring)) < LEAST_QUERIES:
            return None, Measurement(None, None, size)
        vectors, rows = self.given.vectors, self.given.rows
        index = open_index(file, spec, len(rows), vectors.dim)
        refined = RefinedIndex(index, spec, vectors, rows)

        def search(effort: int | None) -> Search:
            return lambda queries, k: refined.search(queries, k, effort=effort)[0]

        most, wanted = index.most_effort, self.budget.wanted_recall
        tuning, measuring = self._truths
        effort = least_effort(search, most, tuning, wanted, self.limit_ms) if most else None
        reached = recall(search(effort), measuring)
        if effort is not None and reached.mean < wanted:
            effort = max(effort, least_effort(search, most, measuring, wanted, self.limit_ms))
            reached = recall(search(effort), measuring)
        return effort, Measurement(reached, latency_ms(search(effort), measuring.queries), size)

    @cached_property
    def _truths(self) -> tuple[Truth, Truth]:
        """The exact results for both sets of queries, found in one pass over the vectors."""
        tuning, measuring = self.queries.tuning, self.queries.measuring
        both = exact([(self.given.vectors, None)], np.concatenate([tuning, measuring]))
        count = len(tuning)
        return Truth(tuning, both.kth[:count], both.k), Truth(measuring, both.kth[count:], both.k)


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
        was_built = best.spec.name == wanted.kind
        return (f"{wanted.kind} was requested" if was_built else f"an index of kind {beginning(wanted)}",)
    if not options:
        return (EXACT_WITHOUT_FAISS + install_command("cpu"),)
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
    for option in options:
        if option.spec.name not in tried and option.worth_trying:
            size, latency = option.cost.bytes / 1e6, option.cost.latency_ms
            return f"{option.spec.name} (about {size:,.0f} MB, {latency:.2g} ms a query)"
    return None


def _refusal(wanted: IndexConfig, attempts: Sequence[_Attempt], best: _Attempt, shape: tuple[int, int]) -> str:
    rows, dim = shape
    hint = ""
    if not faiss.is_installed():
        hint = f"; {EXACT_WITHOUT_FAISS}{install_command('cpu')}"
    elif wanted.kind == AUTO and rows < LEAST_APPROXIMATE:
        hint = (
            f", or request an approximate kind, as in --index hnsw (chosen only from {LEAST_APPROXIMATE:,} vectors on)"
        )
    tried = ", ".join(attempt.spec.name for attempt in attempts)
    return (
        f"no index of {rows:,} vectors of dimension {dim} meets the budget of "
        f"{wanted.budget.describe(defaults=False)} (built: {tried}): the closest is {best.spec.name} with "
        f"{best.measured.describe()}; raise or remove a limit{hint}"
    )
