"""The requested index, the chosen index and its measurements: records that a store keeps as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from ragembed.config.fields import setting
from ragembed.errors import ConfigError
from ragembed.indexes.faiss_index.cost_model import Budget
from ragembed.indexes.faiss_index.specs import AUTO, NAMES, parse_spec

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """Requirements for the index of a store: its kind and a budget.

    Parameters
    ----------
    kind : str
        ``"auto"`` to choose a kind that meets the budget, one of ``"flat"``, ``"fp16"``, ``"sq8"``, ``"hnsw"``,
        ``"hnsw-sq8"``, ``"ivf"``, ``"ivf-sq8"`` and ``"ivf-pq"``, or a FAISS factory string such as ``"IVF4096,PQ48"``.
    budget : Budget
        Limits for size, latency and recall; no limits by default.

    Raises
    ------
    ConfigError
        If the kind is unknown.

    Examples
    --------
    >>> from ragembed.indexes import Budget, IndexConfig
    >>> IndexConfig("hnsw", Budget(min_recall=0.95)).describe()
    'hnsw within recall@10 0.95'
    """

    kind: str = setting(
        AUTO,
        f"Kind of vector index: {AUTO}, {', '.join(NAMES)}, or a FAISS factory string such as IVF4096,PQ48. {AUTO} "
        "chooses by the number of vectors and the limits below.",
        *("--index", "KIND"),
        default=AUTO,
    )
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        if self.kind != AUTO:
            parse_spec(self.kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the limits of the budget as JSON values, by name."""
        return {"kind": self.kind, **asdict(self.budget)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexConfig:
        """Create a configuration from the output of :meth:`to_dict`; raise :class:`ConfigError` if a field is invalid.

        Parameters
        ----------
        values : mapping
            The output of :meth:`to_dict`.
        """
        rest = _fields(values, ("kind",))
        return _made(cls, values["kind"], _made(Budget, **rest))

    def describe(self) -> str:
        """Return the kind and the limits of the budget as text."""
        return self.kind if self.budget.open else f"{self.kind} within {self.budget.describe(defaults=False)}"


@dataclass(frozen=True, slots=True)
class Recall:
    """Recall@10, the share of the ten nearest vectors that a search finds: mean and 95 % interval over ``queries``."""

    mean: float
    low: float
    high: float
    queries: int

    def __post_init__(self) -> None:
        _require_types(self, mean=float, low=float, high=float, queries=int)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement of an index.

    Attributes
    ----------
    recall : Recall or None
        Recall@10: its ``mean``, and the ends ``low`` and ``high`` of its interval. None if it was not measured.
    latency_ms : float or None
        Time for one query in milliseconds, 95th percentile. None if it was not measured.
    bytes : int
        Size of the index in bytes.
    """

    recall: Recall | None
    latency_ms: float | None
    bytes: int

    def __post_init__(self) -> None:
        _require_types(self, bytes=int)
        if self.latency_ms is not None:
            _require_types(self, latency_ms=float)

    def describe(self) -> str:
        """Return the measurement as text."""
        parts = []
        if self.recall is not None:
            found = self.recall
            parts.append(f"recall@10 {found.mean:.4f} ({found.low:.4f} to {found.high:.4f})")
        if self.latency_ms is not None:
            parts.append(f"{self.latency_ms:.2g} ms a query")
        return ", ".join([*parts, f"{self.bytes / 1e6:,.1f} MB"])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Measurement:
        """Create a record from the output of :func:`dataclasses.asdict`; raises :class:`ConfigError` if invalid."""
        rest = _fields(values, ("recall",))
        recall = values["recall"]
        return _made(cls, recall=None if recall is None else _made(Recall, **_fields(recall)), **rest)


@dataclass(frozen=True, slots=True)
class IndexSelection:
    """The kind of index that was chosen for a store, and the reasons.

    Attributes
    ----------
    wanted : IndexConfig
        The requirements.
    kind : str
        The chosen kind.
    effort : int or None
        Search effort (efSearch or nprobe). None for an exhaustive index, or if nothing was measured.
    rows : int
        Number of vectors when the choice was made.
    reasons : tuple of str
        The reasons for the choice.
    runner_up : str or None
        Description of the second best index, if any.
    built_on : str
        Name of the processor.
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
            raise ConfigError(f"reasons is {str(self.reasons)[:80]}: expected a list of texts")
        if self.effort is not None and (type(self.effort) is not int or self.effort < 1):
            raise ConfigError(f"effort is {self.effort!r}: expected a whole number, 1 or more")

    def describe(self) -> list[tuple[str, str]]:
        """Return the reasons and the runner-up as pairs of a label and a text."""
        lines = [("because", reason) for reason in self.reasons]
        return lines if self.runner_up is None else [*lines, ("runner-up", self.runner_up)]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**asdict(self), "wanted": self.wanted.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexSelection:
        """Create a record from the output of :meth:`to_dict`; raises :class:`ConfigError` if invalid."""
        rest = _fields(values, ("wanted", "reasons"))
        return _made(cls, wanted=IndexConfig.from_dict(values["wanted"]), reasons=_tuple(values["reasons"]), **rest)


@dataclass(frozen=True, slots=True)
class IndexEvaluation:
    """A measurement of the index of a store.

    Attributes
    ----------
    measurement : Measurement
        Recall, latency and size.
    date : str
        Date of the measurement.
    rows : int
        Number of vectors.
    segments : tuple of str
        The segments that were measured.
    """

    measurement: Measurement
    date: str
    rows: int
    segments: tuple[str, ...]

    def __post_init__(self) -> None:
        _require_types(self, date=str, rows=int)

    def describe(self) -> str:
        """Return the measurement as text."""
        found = self.measurement
        queries = "" if found.recall is None else f"{found.recall.queries} pseudo-queries, "
        return f"{found.describe()} ({queries}{self.rows:,} vectors, {self.date})"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexEvaluation:
        """Create a record from the output of :meth:`to_dict`; raises :class:`ConfigError` if invalid."""
        rest = _fields(values, ("measurement", "segments"))
        measurement = Measurement.from_dict(values["measurement"])
        return _made(cls, measurement=measurement, segments=_tuple(values["segments"]), **rest)


def _fields(values: Any, needed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Require the ``needed`` fields and return all others."""
    if not isinstance(values, dict) or not set(needed) <= values.keys():
        expected = f"an object with {', '.join(needed)}" if needed else "an object"
        raise ConfigError(f"invalid record {str(values)[:80]}: expected {expected}")
    return {str(name): value for name, value in values.items() if name not in needed}


def _tuple(values: Any) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple)):
        raise ConfigError(f"invalid value {str(values)[:80]}: expected a list")
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
        raise ConfigError(f"invalid {record.__name__} {str(values or named)[:80]}: {error}") from error
