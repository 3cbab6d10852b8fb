"""Kinds of vector indexes, the settings that choose one, and the records of a choice and its quality."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, Literal

from ragembed.config.fields import documented, from_json, read_value, setting
from ragembed.errors import ConfigError, MissingExtraError
from ragembed.resources import out_of_memory, require_room

Family = Literal["exhaustive", "graph", "lists"]
Codes = Literal["Flat", "SQ4", "SQ6", "SQ8", "SQfp16", "SQbf16", "PQ"]
"""How an index keeps vectors: as they are, or with a quantiser for each dimension (SQ) or for some together (PQ)."""

AUTO = "auto"
FLAT = "flat"

_LISTS_PER_ROOT, TRAINING_PER_LIST = 4, 64
_DIMENSIONS_PER_CODE = 4
_GPU_CODES = (96, 64, 56, 48, 40, 32, 28, 24, 20, 16, 12, 8, 4, 3, 2, 1)
"""Numbers of codes per vector that FAISS can search on a GPU (``IVFPQ::isSupportedPQCodeLength``)."""

_FACTORIES: Mapping[str, str] = MappingProxyType(
    {
        FLAT: "Flat",
        "fp16": "SQfp16",
        "sq8": "SQ8",
        "hnsw": "HNSW32,Flat",
        "hnsw-sq8": "HNSW32,SQ8",
        "ivf": "IVF{lists},Flat",
        "ivf-sq8": "IVF{lists},SQ8",
        "ivf-pq": "IVF{lists},PQ{codes}",
    }
)
NAMES: tuple[str, ...] = tuple(_FACTORIES)
"""The named kinds, from the most exact to the smallest."""

_SCALAR_CODES = "Flat|SQ(4|6|8|fp16|bf16)"
_TRANSFORM = r"(PCAW?R?\d{1,5}|OPQ\d{1,4}(_\d{1,5})?|RR\d{1,5}|Pad\d{1,5}|L2norm)"
_FACTORY = re.compile(
    rf"({_TRANSFORM},){{0,4}}(IVF\d{{1,8}}(_HNSW\d{{1,3}})?,)?({_SCALAR_CODES})"
    rf"|({_TRANSFORM},){{0,4}}IVF\d{{1,8}}(_HNSW\d{{1,3}})?,PQ\d{{1,4}}(x\d|x1[0-2])?"
    rf"|HNSW\d{{0,3}}([,_]({_SCALAR_CODES}))?"
)
"""The kinds whose files :mod:`.file_check` checks. Larger numbers would need memory in excess."""
_CODES = re.compile(r"Flat|SQ4|SQ6|SQ8|SQfp16|SQbf16|PQ")
_LISTS, _GRAPH = re.compile(r"\bIVF\d+"), re.compile(r"\bHNSW\d*")
_LOSSLESS = re.compile(r"(IVF\d+(_HNSW\d+)?,)?Flat|HNSW\d*([,_]Flat)?")
_FATAL = re.compile(r"(?<!\d)0+(?!\d)|\bHNSW1(?!\d)")
"""Numbers that crash FAISS: it divides by them, or uses them as an index, before it validates them."""
_FINE, _COARSE = 2, 8
_SHOWN = 80


@dataclass(frozen=True)
class IndexSpec:
    """A kind of index: one of :data:`NAMES`, or a factory string such as ``"IVF4096,PQ48"``.

    Create it with :func:`parse_spec`. See https://github.com/facebookresearch/faiss/wiki/The-index-factory for the
    factory strings.
    """

    name: str

    @cached_property
    def family(self) -> Family:
        """How the index is searched: exhaustively, along the links of a graph, or in some of its inverted lists."""
        text = self._template
        if _LISTS.search(text.format(lists=1, codes=1)):
            return "lists"
        return "graph" if _GRAPH.search(text) else "exhaustive"

    @cached_property
    def lossless(self) -> bool:
        """Whether the index keeps float32 vectors. The results of a lossy index are ranked by the raw vectors."""
        return _LOSSLESS.fullmatch(self._template.format(lists=1, codes=1)) is not None

    @cached_property
    def codes(self) -> Codes:
        """How the index keeps vectors."""
        named = _CODES.findall(self._template)
        return named[-1] if named else "Flat"

    @property
    def exact(self) -> bool:
        """Whether a search finds all nearest vectors: it compares every one, and knows the error of its codes."""
        return (self.lossless and self.family == "exhaustive") or self.name in ("sq8", "fp16")

    @property
    def transformed(self) -> bool:
        """Whether the index transforms vectors before it keeps them."""
        return re.match(_TRANSFORM, self._template) is not None

    @property
    def refine_factor(self) -> int:
        """Factor by which a search of a lossy index retrieves more vectors than needed, to rank them by raw vectors."""
        if self.lossless:
            return 1
        return _FINE if re.search(r"(SQfp16|SQbf16|SQ8)$", self._template) else _COARSE

    @property
    def least_rows(self) -> int:
        """The number of training vectors that its lists need; 0 if the kind does not set the number of lists."""
        lists = re.search(r"\bIVF(\d+)", self.name)
        return TRAINING_PER_LIST * int(lists[1]) if lists else 0

    @property
    def named(self) -> bool:
        """Whether the kind is one of :data:`NAMES`."""
        return self.name in _FACTORIES

    def factory(self, rows: int, dim: int) -> str:
        """Return the factory string for ``rows`` vectors of dimension ``dim``."""
        return self._template.format(lists=lists_for(rows), codes=codes_for(dim)) if self.named else self.name

    @property
    def _template(self) -> str:
        return _FACTORIES.get(self.name, self.name)


def parse_spec(text: str) -> IndexSpec:
    """Return the kind of index that ``text`` names; raises :class:`ConfigError` if the syntax is wrong."""
    if text in _FACTORIES or (_FACTORY.fullmatch(text) and not _FATAL.search(text)):
        return IndexSpec(text)
    raise ConfigError(
        f"unknown kind of index {text[:_SHOWN]!r}: expected {AUTO}, {', '.join(NAMES)}, or a FAISS "
        "factory string such as IVF4096,PQ48"
    )


def lists_for(rows: int) -> int:
    """Return the number of inverted lists for ``rows`` vectors: 4√rows, at most one list per 64 vectors."""
    return max(1, min(int(_LISTS_PER_ROOT * math.sqrt(rows)), rows // TRAINING_PER_LIST))


def codes_for(dim: int) -> int:
    """Return the bytes of a product quantiser's code: the largest divisor of ``dim`` up to a quarter of it for GPUs."""
    most = max(1, dim // _DIMENSIONS_PER_CODE)
    return next(count for count in _GPU_CODES if count <= most and dim % count == 0)


PACKAGE, EXTRA = "faiss", "cpu"


class LazyFaiss:
    """FAISS, which is imported when it is first used, because many commands do not need it.

    If it cannot be imported, ``error`` is the reason, and every use raises :class:`MissingExtraError`. If the memory
    does not suffice to import it, the use raises :class:`ragembed.errors.OutOfMemoryError`.
    """

    def __init__(self, error: ImportError | None = None) -> None:
        self.error = error
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self.is_installed():
            raise MissingExtraError(PACKAGE, EXTRA, "an index that is not flat") from self.error
        return getattr(self._module, name)

    def is_installed(self) -> bool:
        """Return whether FAISS can be imported."""
        if self._module is None and self.error is None:
            require_room("FAISS")
            try:
                self._module = import_module(PACKAGE)
            except ImportError as error:
                if (lack := out_of_memory(error)) is not None:
                    raise lack from error
                self.error = error
        return self.error is None


faiss: Any = LazyFaiss()


def require_library(*kinds: str) -> None:
    """Raise :class:`MissingExtraError` if one of the ``kinds`` of index needs FAISS and FAISS is not installed."""
    for kind in kinds:
        if kind not in (AUTO, FLAT) and not faiss.is_installed():
            raise MissingExtraError(PACKAGE, EXTRA, f"an index of kind {kind}") from faiss.error


LATENCY_MS, RECALL = 30.0, 0.98
"""Targets for budgets that set no latency or recall."""


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
        if not isinstance(values, dict) or "kind" not in values:
            raise ConfigError(f"invalid {cls.__name__} {values!r:.80}: expected an object with a kind and a budget")
        budget = {name: value for name, value in values.items() if name != "kind"}
        return cls(read_value(str, values["kind"], "kind"), from_json(Budget, budget))

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


@dataclass(frozen=True, slots=True)
class Measurement:
    """Recall@10 with its interval, the 95th percentile of milliseconds a query, and the size; None if not measured."""

    recall: Recall | None
    latency_ms: float | None
    bytes: int

    def describe(self) -> str:
        """Return the measurement as text."""
        parts = []
        if self.recall is not None:
            parts.append(f"recall@10 {self.recall.mean:.4f} ({self.recall.low:.4f} to {self.recall.high:.4f})")
        if self.latency_ms is not None:
            parts.append(f"{self.latency_ms:.2g} ms a query")
        return ", ".join([*parts, f"{self.bytes / 1e6:,.1f} MB"])


@dataclass(frozen=True, slots=True)
class IndexSelection:
    """The kind of index that was chosen for a store with ``rows`` vectors and the requirements ``wanted``, and why.

    ``effort`` is efSearch or nprobe, None for an exhaustive index; ``runner_up`` describes the second best, and
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
        if self.effort is not None and self.effort < 1:
            raise ConfigError(f"effort is {self.effort!r}: expected a whole number, 1 or more")

    def describe(self) -> list[tuple[str, str]]:
        """Return the reasons and the runner-up as pairs of a label and a text."""
        lines = [("because", reason) for reason in self.reasons]
        return lines if self.runner_up is None else [*lines, ("runner-up", self.runner_up)]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**asdict(self), "wanted": self.wanted.to_dict()}


@dataclass(frozen=True, slots=True)
class IndexEvaluation:
    """A measurement of the index of a store at a date, with the number of vectors and the names of the segments."""

    measurement: Measurement
    date: str
    rows: int
    segments: tuple[str, ...]

    def describe(self) -> str:
        """Return the measurement as text."""
        recall = self.measurement.recall
        queries = "" if recall is None else f"{recall.queries} pseudo-queries, "
        return f"{self.measurement.describe()} ({queries}{self.rows:,} vectors, {self.date})"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def short(number: float) -> str:
    """Return a number as text: whole from 100 on, below with two digits."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"
