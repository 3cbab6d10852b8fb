"""Which kind of index suits a budget: the table of ``docs/index-choice.md``, as one function."""

from __future__ import annotations

from dataclasses import dataclass

from ragembed.errors import ConfigError
from ragembed.indexes.ann.costs import Cost, Machine, cost_in_shards
from ragembed.indexes.ann.specs import IndexSpec, parse_spec

LEAST_APPROXIMATE = 50_000
"""Vectors below which no approximate kind is chosen: one has to be asked for by its name."""

LATENCY_MS, RECALL = 20.0, 0.98
"""What holds where a budget leaves it open."""

ORDER = ("flat", "fp16", "hnsw", "hnsw-sq8", "ivf-sq8", "ivf", "ivf-pq")
"""The kinds in the order in which they are considered: exact ones, then by latency at the same recall."""

_LATENCY_SLACK = 5.0
"""The latency of an approximate index is known once it is built and tuned; the estimate only rules out the hopeless."""


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
