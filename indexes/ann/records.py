"""What is asked of an index, what was picked, and what it was measured to find: values that a store keeps as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from ragembed.errors import ConfigError
from ragembed.indexes.ann.choosing import Budget
from ragembed.indexes.ann.specs import AUTO, parse_spec

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """What is asked of the index of a store: a kind, or ``"auto"``, a budget, and in how many shards it is.

    Raises :class:`ConfigError` for a kind that there is not, and where ``shards`` is no whole number from 1 on.
    """

    kind: str = AUTO
    budget: Budget = field(default_factory=Budget)
    shards: int = 1

    def __post_init__(self) -> None:
        if self.kind != AUTO:
            parse_spec(self.kind)
        if type(self.shards) is not int or self.shards < 1:
            raise ConfigError(f"shards is {str(self.shards)[:80]}: expected a whole number, 1 or more")

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"kind": self.kind, **asdict(self.budget), "shards": self.shards}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexConfig:
        """Return what :meth:`to_dict` made of it, one shard where it names none.

        Raises :class:`ConfigError` for anything else.
        """
        rest = _fields(values, ("kind",))
        shards = rest.pop("shards", 1)
        return _made(cls, values["kind"], _made(Budget, **rest), shards)

    def describe(self) -> str:
        """Return it in a few words."""
        kind = self.kind if self.shards == 1 else f"{self.kind} in {self.shards:,} shards"
        return kind if self.budget.open else f"{kind} within {self.budget.describe(defaults=False)}"


@dataclass(frozen=True, slots=True)
class Recall:
    """Mean share of the ten nearest vectors that was found, and its 95 % interval, over ``queries``."""

    mean: float
    low: float
    high: float
    queries: int

    def __post_init__(self) -> None:
        _require_types(self, mean=float, low=float, high=float, queries=int)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What an index finds and costs: recall@10 and ms a query (95th percentile), None without queries; bytes."""

    recall: Recall | None
    latency_ms: float | None
    bytes: int

    def __post_init__(self) -> None:
        _require_types(self, bytes=int)
        if self.latency_ms is not None:
            _require_types(self, latency_ms=float)

    def describe(self) -> str:
        """Return it in a few words."""
        parts = []
        if self.recall is not None:
            found = self.recall
            parts.append(f"recall@10 {found.mean:.4f} ({found.low:.4f} to {found.high:.4f})")
        if self.latency_ms is not None:
            parts.append(f"{self.latency_ms:.2g} ms a query")
        return ", ".join([*parts, f"{self.bytes / 1e6:,.1f} MB"])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Measurement:
        """Return what :func:`dataclasses.asdict` made of it; raises :class:`ConfigError` for anything else."""
        rest = _fields(values, ("recall",))
        recall = values["recall"]
        return _made(cls, recall=None if recall is None else _made(Recall, **_fields(recall)), **rest)


@dataclass(frozen=True, slots=True)
class IndexSelection:
    """The kind of index that was picked for ``wanted`` at ``rows`` vectors, and why.

    ``effort`` is how much a search looks at (efSearch or nprobe), None where everything is or nothing was measured;
    ``built_on`` names the processor.
    """

    wanted: IndexConfig
    kind: str
    effort: int | None
    rows: int
    reasons: tuple[str, ...]
    runner_up: str | None
    built_on: str

    def __post_init__(self) -> None:
        parse_spec(self.kind)
        _require_types(self, rows=int, built_on=str)
        if not all(type(text) is str for text in (*self.reasons, self.runner_up or "")):
            raise ConfigError(f"the reasons are {str(self.reasons)[:80]}: expected texts")
        if self.effort is not None and (type(self.effort) is not int or self.effort < 1):
            raise ConfigError(f"the effort is {self.effort!r}: expected a whole number above 0")

    def describe(self) -> list[tuple[str, str]]:
        """Return what is to be told of it: names and texts."""
        told = [("because", reason) for reason in self.reasons]
        return told if self.runner_up is None else [*told, ("runner-up", self.runner_up)]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "wanted": self.wanted.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexSelection:
        """Return what :meth:`to_dict` made of it; raises :class:`ConfigError` for anything else."""
        rest = _fields(values, ("wanted", "reasons"))
        return _made(cls, wanted=IndexConfig.from_dict(values["wanted"]), reasons=_tuple(values["reasons"]), **rest)


@dataclass(frozen=True, slots=True)
class IndexEvaluation:
    """A measurement of a store's index: at which date, at how many vectors, and in which segments."""

    measurement: Measurement
    date: str
    rows: int
    segments: tuple[str, ...]

    def __post_init__(self) -> None:
        _require_types(self, date=str, rows=int)

    def describe(self) -> str:
        """Return it in a few words."""
        found = self.measurement
        asked = "" if found.recall is None else f" ({found.recall.queries} pseudo-queries"
        return f"{found.describe()}{asked + ', ' if asked else ' ('}{self.rows:,} vectors, {self.date})"

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexEvaluation:
        """Return what :meth:`to_dict` made of it; raises :class:`ConfigError` for anything else."""
        rest = _fields(values, ("measurement", "segments"))
        measurement = Measurement.from_dict(values["measurement"])
        return _made(cls, measurement=measurement, segments=_tuple(values["segments"]), **rest)


def _fields(values: Any, needed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields but those that are ``needed``, which must be there."""
    if not isinstance(values, dict) or not set(needed) <= values.keys():
        raise ConfigError(f"{str(values)[:80]} is no record with {', '.join(needed) or 'names'}")
    return {str(name): value for name, value in values.items() if name not in needed}


def _tuple(values: Any) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple)):
        raise ConfigError(f"{str(values)[:80]} is no list")
    return tuple(values)


def _require_types(record: Any, **types: type) -> None:
    for name, expected in types.items():
        value = getattr(record, name)
        if type(value) is not expected and not (expected is float and type(value) is int):
            raise ConfigError(f"{name} is {str(value)[:80]!r}: expected {expected.__name__}")


def _made(record: type[Record], *values: Any, **named: Any) -> Record:
    try:
        return record(*values, **named)
    except TypeError as error:
        raise ConfigError(f"no {record.__name__} can be made of {str(values or named)[:80]}: {error}") from error
