"""Kinds of index: ragembed's named kinds and FAISS's factory strings; and FAISS itself, if it is installed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, Literal

from ragembed.errors import ConfigError, MissingExtraError
from ragembed.resources import out_of_memory, require_room

Family = Literal["exhaustive", "graph", "lists"]
Codes = Literal["Flat", "SQ4", "SQ6", "SQ8", "SQfp16", "SQbf16", "PQ"]
"""How an index keeps vectors: as they are, or with a quantiser for each dimension (SQ) or for some together (PQ)."""

AUTO = "auto"
FLAT = "flat"

_LISTS_PER_ROOT, TRAINING_PER_LIST = 4, 64
_DIMENSIONS_PER_CODE = 4

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
    """Return the bytes of a product quantiser's code: the largest divisor of ``dim`` up to a quarter of it."""
    wanted = max(1, dim // _DIMENSIONS_PER_CODE)
    return next(count for count in range(wanted, 0, -1) if dim % count == 0)


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


def has_faiss() -> bool:
    """Return whether FAISS is installed."""
    return bool(faiss.is_installed())


def require_library(*kinds: str) -> None:
    """Raise :class:`MissingExtraError` if one of the ``kinds`` of index needs FAISS and FAISS is not installed."""
    for kind in kinds:
        if kind not in (AUTO, FLAT) and not has_faiss():
            raise MissingExtraError(PACKAGE, EXTRA, f"an index of kind {kind}") from faiss.error
