"""Which kind of index suits a budget: the table of ``docs/how-to/choose-an-index.md``, as one function.

Costs are estimated by a model of few constants. Those of scanning are measured on the machine at hand; the others were
measured once, on 80,000 and a million vectors of dimension 384, and give the order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ragembed.errors import ConfigError
from ragembed.indexes.ann.specs import IndexSpec, codes_for, lists_for, parse_spec

LEAST_APPROXIMATE = 50_000
"""Vectors below which no approximate kind is chosen: one has to be asked for by its name."""

LATENCY_MS, RECALL = 20.0, 0.98
"""What holds where a budget leaves it open."""

ORDER = ("flat", "fp16", "hnsw", "hnsw-sq8", "ivf-sq8", "ivf", "ivf-pq")
"""The kinds in the order in which they are considered: exact ones, then by latency at the same recall."""

_LATENCY_SLACK = 5.0
"""The latency of an approximate index is known once it is built and tuned; the estimate only rules out the hopeless."""

_ID_BYTES, _LINK_BYTES = 8, 285
_VISITED, _VISIT_NS, _RANDOM_NS_PER_BYTE = 2_000, 60.0, 0.2
_PROBED_SHARE = 0.05
_CODE_NS = 0.45
_RANKING_MS = 0.1


@dataclass(frozen=True, slots=True)
class Budget:
    """What an index may cost and must find; None leaves it open.

    Parameters
    ----------
    max_memory
        Most bytes of the index.
    max_latency_ms
        Most milliseconds that the search for one query may take in one thread, at the 95th percentile of queries.
    min_recall
        Least share of the ten nearest vectors that is found, from 0 to 1, as the mean over queries.

    Raises
    ------
    ConfigError
        Where a value is out of its range.
    """

    max_memory: int | None = None
    max_latency_ms: float | None = None
    min_recall: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("max_memory", self.max_memory), ("max_latency_ms", self.max_latency_ms)):
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}: expected more than 0")
        if self.min_recall is not None and not 0 < self.min_recall <= 1:
            raise ConfigError(f"min_recall is {self.min_recall}: expected a share above 0 and up to 1, as in 0.98")

    @property
    def open(self) -> bool:
        """Whether nothing was asked for."""
        return self == Budget()

    @property
    def wanted_recall(self) -> float:
        """The recall asked for, or the default."""
        return RECALL if self.min_recall is None else self.min_recall

    def describe(self, *, defaults: bool = True) -> str:
        """Return it in a few words; with ``defaults``, what holds where it leaves something open too."""
        parts = [
            (self.max_latency_ms, f"{self.wanted_latency_ms:g} ms a query", defaults),
            (self.max_memory, f"{_short((self.max_memory or 0) / 1e6)} MB", False),
            (self.min_recall, f"recall@10 {self.wanted_recall:g}", defaults),
        ]
        return ", ".join(text for value, text, shown in parts if shown or value is not None)

    @property
    def wanted_latency_ms(self) -> float:
        """The latency asked for, or the default."""
        return LATENCY_MS if self.max_latency_ms is None else self.max_latency_ms


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine can do: nanoseconds for one number of a vector in float32 and float16, and memory in bytes."""

    flat_ns: float
    half_ns: float
    memory: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes of an index, milliseconds that one query takes in one thread, and bytes that building it needs at once."""

    bytes: int
    latency_ms: float
    building_bytes: int


def cost(spec: IndexSpec, rows: int, dim: int, machine: Machine) -> Cost:
    """Estimate the cost of an index of a kind that has a name, for ``rows`` vectors of dimension ``dim``."""
    size = rows * (_BYTES[spec.name](dim) + _ID_BYTES)
    number_ns = {"flat": machine.flat_ns, "ivf": machine.flat_ns}.get(spec.name, machine.half_ns)
    if spec.family == "graph":
        visit = _VISIT_NS + _RANDOM_NS_PER_BYTE * _BYTES[spec.name](dim)
        return Cost(size + rows * _LINK_BYTES, _ms(_VISITED * visit, spec), size + rows * _LINK_BYTES)
    if spec.family == "exhaustive":
        return Cost(size, _ms(rows * dim * number_ns, spec), 0)
    lists = lists_for(rows)
    vector_ns = codes_for(dim) * _CODE_NS if spec.name == "ivf-pq" else dim * number_ns
    scanned = lists * dim * machine.flat_ns + _PROBED_SHARE * rows * vector_ns
    return Cost(size + lists * dim * 4, _ms(scanned, spec), 0)


def cost_in_shards(spec: IndexSpec, rows: int, dim: int, machine: Machine, shards: int) -> Cost:
    """Estimate the cost of an index in ``shards``, which one thread searches, and builds, one after the other."""
    each = cost(spec, math.ceil(rows / shards), dim, machine)
    return Cost(shards * each.bytes, shards * each.latency_ms, each.building_bytes)


def _ms(nanoseconds: float, spec: IndexSpec) -> float:
    return nanoseconds / 1e6 + (0.0 if spec.lossless else _RANKING_MS)


_BYTES: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {
        "flat": lambda dim: 4 * dim,
        "fp16": lambda dim: 2 * dim,
        "hnsw": lambda dim: 4 * dim,
        "hnsw-sq8": lambda dim: dim,
        "ivf": lambda dim: 4 * dim,
        "ivf-sq8": lambda dim: dim,
        "ivf-pq": codes_for,
    }
)
"""Bytes of a vector's code."""


@dataclass(frozen=True, slots=True)
class Option:
    """A kind of index, what it is estimated to cost, and what speaks against it, None where nothing does."""

    spec: IndexSpec
    cost: Cost
    obstacle: str | None
    excess: float
    """By what factor the budget is exceeded, at the worst; at most 1 where it is met."""


def choose(rows: int, dim: int, budget: Budget, machine: Machine, shards: int = 1) -> list[Option]:
    """Return the kinds of index in the order in which they are to be tried for ``rows`` vectors of dimension ``dim``.

    The vectors are in ``shards`` of one size. Kinds that the budget rules out come last, the one that exceeds it least
    first.
    """
    options = [_option(parse_spec(name), rows, dim, budget, machine, shards) for name in ORDER]
    fitting = [option for option in options if option.obstacle is None]
    return fitting + sorted((o for o in options if o.obstacle is not None), key=lambda option: option.excess)


def _option(spec: IndexSpec, rows: int, dim: int, budget: Budget, machine: Machine, shards: int) -> Option:
    estimate = cost_in_shards(spec, rows, dim, machine, shards)
    exact = spec.family == "exhaustive"
    limits = [
        (estimate.latency_ms, budget.wanted_latency_ms * (1.0 if exact else _LATENCY_SLACK), "ms a query"),
        (estimate.bytes / 1e6, (budget.max_memory or estimate.bytes) / 1e6, "MB"),
        (estimate.building_bytes / 1e6, machine.memory / 1e6, "MB to build it"),
    ]
    obstacles = [
        f"about {_short(found)} {unit}, more than {_short(most)}" for found, most, unit in limits if found > most
    ]
    excess = max(found / most for found, most, _ in limits)
    if not exact and rows < LEAST_APPROXIMATE:
        obstacles.insert(0, f"approximate, which {rows:,} vectors need not be (from {LEAST_APPROXIMATE:,} on)")
        excess = float("inf")
    return Option(spec, estimate, "; ".join(obstacles) or None, excess)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"
