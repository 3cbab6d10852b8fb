"""The requested index, the chosen index and its measurements: records that a store keeps as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from ragembed.config.fields import setting
from ragembed.errors import ConfigError
from ragembed.indexes.faiss_index.specs import AUTO, NAMES, parse_spec

Record = TypeVar("Record")

LATENCY_MS, RECALL = 30.0, 0.98
"""Targets for budgets that set no latency or recall."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for the index of a store. None means no limit.

    Without a limit on latency and recall, the choice of an index aims at 30 ms and a recall@10 of 0.98.

    Parameters
    ----------
    max_memory : int, optional
        Maximum size of the index in bytes; greater than 0.
    max_latency_ms : float, optional
        Maximum time to search for one query in one thread, in milliseconds, at the 95th percentile of queries;
        greater than 0.
    min_recall : float, optional
        Minimum recall@10: the share of the ten nearest vectors that the index finds, averaged over queries; greater
        than 0 and at most 1.

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
        """Whether the budget sets no limit."""
        return self == Budget()

    @property
    def wanted_recall(self) -> float:
        """The minimum recall@10, or its default."""
        return RECALL if self.min_recall is None else self.min_recall

    @property
    def wanted_latency_ms(self) -> float:
        """The maximum latency in milliseconds, or its default."""
        return LATENCY_MS if self.max_latency_ms is None else self.max_latency_ms

    def describe(self, *, defaults: bool = True) -> str:
        """Return the limits as text, separated by commas.

        Parameters
        ----------
        defaults : bool
            Whether to include the default latency and recall if the budget does not set them.
        """
        parts = [
            (self.max_latency_ms, f"{self.wanted_latency_ms:g} ms a query", defaults),
            (self.max_memory, f"{short((self.max_memory or 0) / 1e6)} MB", False),
            (self.min_recall, f"recall@10 {self.wanted_recall:g}", defaults),
        ]
        return ", ".join(text for value, text, shown in parts if shown or value is not None)


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
        limits = _fields(values, "kind")
        return _made(cls, {"kind": values["kind"], "budget": _made(Budget, limits)})

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
            parts.append(f"recall@10 {self.recall.mean:.4f} ({self.recall.low:.4f} to {self.recall.high:.4f})")
        if self.latency_ms is not None:
            parts.append(f"{self.latency_ms:.2g} ms a query")
        return ", ".join([*parts, f"{self.bytes / 1e6:,.1f} MB"])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Measurement:
        """Create a record from the output of :func:`dataclasses.asdict`; raises :class:`ConfigError` if invalid."""
        others = _fields(values, "recall")
        recall = None if values["recall"] is None else _made(Recall, _fields(values["recall"]))
        return _made(cls, {**others, "recall": recall})


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
        others = _fields(values, "wanted", "reasons")
        wanted, reasons = IndexConfig.from_dict(values["wanted"]), _tuple(values["reasons"])
        return _made(cls, {**others, "wanted": wanted, "reasons": reasons})


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
        recall = self.measurement.recall
        queries = "" if recall is None else f"{recall.queries} pseudo-queries, "
        return f"{self.measurement.describe()} ({queries}{self.rows:,} vectors, {self.date})"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexEvaluation:
        """Create a record from the output of :meth:`to_dict`; raises :class:`ConfigError` if invalid."""
        others = _fields(values, "measurement", "segments")
        measurement = Measurement.from_dict(values["measurement"])
        return _made(cls, {**others, "measurement": measurement, "segments": _tuple(values["segments"])})


def short(number: float) -> str:
    """Return a number as text: whole from 100 on, below with two digits."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


def _fields(values: Any, *needed: str) -> dict[str, Any]:
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


def _made(record: type[Record], values: Mapping[str, Any]) -> Record:
    try:
        return record(**values)
    except TypeError as error:
        raise ConfigError(f"invalid {record.__name__} {str(values)[:80]}: {error}") from error
