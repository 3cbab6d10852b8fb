"""Choose kinds of index for a budget. The guide on choosing an index shows the same rules as a table.

A cost model with few constants estimates size and latency. The scan speed is measured on the current machine. The other
constants were measured once, on 80,000 and on a million vectors of dimension 384, and give the order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ragembed.config.fields import documented, setting
from ragembed.errors import ConfigError
from ragembed.indexes.faiss_index.specs import FLAT, IndexSpec, codes_for, lists_for, parse_spec

LEAST_APPROXIMATE = 50_000
"""Minimum number of vectors for an automatic choice of an approximate kind. Below, you have to request it by name."""

LATENCY_MS, RECALL = 30.0, 0.98
"""Targets for budgets that set no latency or recall."""

ORDER = ("flat", "sq8", "ivf-sq8", "hnsw-sq8", "hnsw", "ivf", "ivf-pq")
"""The kinds in order of preference: exact kinds first, then approximate kinds that are built faster.

``ivf`` and ``ivf-pq`` come last: one is larger than ``ivf-sq8``, and the other less precise.

From :data:`LEAST_APPROXIMATE` vectors on, ``flat`` is left out: ``sq8`` finds the same in less time and memory.
"""

LATENCY_SLACK = 5.0
"""An approximate kind is ruled out only if its estimated latency exceeds the budget by this factor.

The real latency of an approximate index is known after it is built and tuned.
"""

_ID_BYTES, _LINK_BYTES = 8, 285
_VISITED, _VISIT_NS, _RANDOM_NS_PER_BYTE = 1_000, 60.0, 0.2
_PROBED_SHARE = 0.05
_CODE_NS = 0.45
_RANKING_MS = 0.1


@documented
@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for the index of a store. None means no limit.

    Without a limit on latency and recall, the choice of an index aims at 30 ms and a recall@10 of 0.98.

    Parameters
    ----------
    {settings}

    Raises
    ------
    ConfigError
        If a value is out of range.

    Examples
    --------
    >>> from ragembed.indexes import Budget
    >>> Budget(max_latency_ms=5, min_recall=0.9).describe()
    '5 ms a query, recall@10 0.9'
    """

    max_memory: int | None = setting(
        None,
        "Largest size of the index, such as 500M; none removes an earlier limit.",
        *("--max-memory", "SIZE"),
        default="no limit",
        more="In Python, a number of bytes.",
    )
    max_latency_ms: float | None = setting(
        None,
        "Longest time for one search of the index, such as 5ms, for 95 % of queries in one thread; none removes an "
        "earlier limit.",
        *("--max-latency", "TIME"),
        default=f"{LATENCY_MS:g}ms, if possible",
        more="In Python, milliseconds.",
    )
    min_recall: float | None = setting(
        None,
        "Smallest share of the 10 nearest vectors that the index must find, such as 0.98 or 98%; none removes an "
        "earlier limit.",
        *("--min-recall", "SHARE"),
        default=f"{RECALL:g}, if possible",
        more="It is an average over queries; above 0 and at most 1.",
    )

    def __post_init__(self) -> None:
        for name, value in (("max_memory", self.max_memory), ("max_latency_ms", self.max_latency_ms)):
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}: expected more than 0")
        if self.min_recall is not None and not 0 < self.min_recall <= 1:
            raise ConfigError(f"min_recall is {self.min_recall}: expected a share above 0 and up to 1, as in 0.98")

    @property
    def open(self) -> bool:
        """Whether the budget sets no limit."""
        return self == Budget()

    @property
    def wanted_recall(self) -> float:
        """The minimum recall@10, or its default."""
        return RECALL if self.min_recall is None else self.min_recall

    def describe(self, *, defaults: bool = True) -> str:
        """Return the limits as text, separated by commas.

        Parameters
        ----------
        defaults : bool
            Whether to include the default latency and recall if the budget does not set them.
        """
        parts = [
            (self.max_latency_ms, f"{self.wanted_latency_ms:g} ms a query", defaults),
            (self.max_memory, f"{_short((self.max_memory or 0) / 1e6)} MB", False),
            (self.min_recall, f"recall@10 {self.wanted_recall:g}", defaults),
        ]
        return ", ".join(text for value, text, shown in parts if shown or value is not None)

    @property
    def wanted_latency_ms(self) -> float:
        """The maximum latency in milliseconds, or its default."""
        return LATENCY_MS if self.max_latency_ms is None else self.max_latency_ms


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
    size = rows * (_BYTES[spec.name](dim) + _ID_BYTES)
    number_ns = {"flat": machine.flat_ns, "ivf": machine.flat_ns}.get(spec.name, machine.code_ns)
    if spec.family == "graph":
        visit = _VISIT_NS + _RANDOM_NS_PER_BYTE * _BYTES[spec.name](dim)
        return Cost(size + rows * _LINK_BYTES, _ms(_VISITED * visit, spec), size + rows * _LINK_BYTES)
    if spec.family == "exhaustive":
        return Cost(size, _ms(rows * dim * number_ns, spec), 0)
    lists = lists_for(rows)
    vector_ns = codes_for(dim) * _CODE_NS if spec.name == "ivf-pq" else dim * number_ns
    scanned = lists * dim * machine.flat_ns + _PROBED_SHARE * rows * vector_ns
    return Cost(size + lists * dim * 4, _ms(scanned, spec), 0)


def _ms(nanoseconds: float, spec: IndexSpec) -> float:
    return nanoseconds / 1e6 + (0.0 if spec.lossless else _RANKING_MS)


_BYTES: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {
        "flat": lambda dim: 4 * dim,
        "sq8": lambda dim: dim,
        "hnsw": lambda dim: 4 * dim,
        "hnsw-sq8": lambda dim: dim,
        "ivf": lambda dim: 4 * dim,
        "ivf-sq8": lambda dim: dim,
        "ivf-pq": codes_for,
    }
)
"""Bytes per encoded vector, by kind and dimension."""


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

    Kinds that fit the budget come first, in order of preference. Then come kinds that are worth trying, and kinds that
    are not, each in increasing order of the excess.
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
        f"about {_short(found)} {unit}, more than {_short(most)}" for found, most, unit, _ in limits if found > most
    ]
    if too_few:
        obstacles.insert(0, f"approximate, which is chosen from {LEAST_APPROXIMATE:,} vectors on, not for {rows:,}")
    return Option(
        spec,
        estimate,
        "; ".join(obstacles) or None,
        math.inf if too_few else max(found / most for found, most, *_ in limits),
        not too_few and all(found <= most * slack for found, most, _, slack in limits),
    )


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"
