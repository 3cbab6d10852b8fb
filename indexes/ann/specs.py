"""Kinds of FAISS index: by the names that ragembed has for them, or by FAISS's own factory strings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from ragembed.errors import ConfigError

Family = Literal["exhaustive", "graph", "lists"]

AUTO = "auto"
FLAT = "flat"

_LISTS_PER_ROOT, TRAINING_PER_LIST = 4, 64
_DIMENSIONS_PER_CODE = 4

_FACTORIES: Mapping[str, str] = MappingProxyType(
    {
        FLAT: "Flat",
        "fp16": "SQfp16",
        "hnsw": "HNSW32,Flat",
        "hnsw-sq8": "HNSW32,SQ8",
        "ivf": "IVF{lists},Flat",
        "ivf-sq8": "IVF{lists},SQ8",
        "ivf-pq": "IVF{lists},PQ{codes}",
    }
)
NAMES: tuple[str, ...] = tuple(_FACTORIES)
"""The kinds that have a name, from the most exact to the smallest."""

_FACTORY = re.compile(r"[A-Z][A-Za-z0-9]*([,_()][A-Za-z0-9]+[)]?)*")
_LISTS, _GRAPH = re.compile(r"\bIVF\d+"), re.compile(r"\bHNSW\d*")
_LOSSLESS = re.compile(r"(IVF\d+(_HNSW\d+)?,)?Flat|HNSW\d*([,_]Flat)?")
_FATAL = re.compile(r"(?<!\d)0+(?!\d)|\bHNSW1(?!\d)")
"""Numbers that FAISS divides by, or indexes with, before it looks at them."""
_FINE, _COARSE = 2, 8


@dataclass(frozen=True)
class IndexSpec:
    """A kind of index, called by one of :data:`NAMES` or a factory string as in ``"IVF4096,PQ48"``.

    See https://github.com/facebookresearch/faiss/wiki/The-index-factory for the strings; make one with
    :func:`parse_spec`.
    """

    name: str

    @cached_property
    def family(self) -> Family:
        """How it is searched: vector by vector, along a graph's links, or in some of its inverted lists."""
        text = self._template
        if _LISTS.search(text.format(lists=1, codes=1)):
            return "lists"
        return "graph" if _GRAPH.search(text) else "exhaustive"

    @cached_property
    def lossless(self) -> bool:
        """Whether it keeps vectors in float32; where not, what it finds is ranked by the raw vectors."""
        return _LOSSLESS.fullmatch(self._template.format(lists=1, codes=1)) is not None

    @property
    def refine_factor(self) -> int:
        """How many times the vectors asked for are taken from a lossy index, to be ranked by the raw vectors."""
        if self.lossless:
            return 1
        return _FINE if re.search(r"(SQfp16|SQbf16|SQ8)$", self._template) else _COARSE

    @property
    def least_rows(self) -> int:
        """The vectors that its lists, where it says how many, need to learn from."""
        lists = re.search(r"\bIVF(\d+)", self.name)
        return TRAINING_PER_LIST * int(lists[1]) if lists else 0

    @property
    def named(self) -> bool:
        """Whether it is one of :data:`NAMES`."""
        return self.name in _FACTORIES

    def factory(self, rows: int, dim: int) -> str:
        """Return the factory string for ``rows`` vectors of dimension ``dim``."""
        return self._template.format(lists=lists_for(rows), codes=codes_for(dim)) if self.named else self.name

    @property
    def _template(self) -> str:
        return _FACTORIES.get(self.name, self.name)


def parse_spec(text: str) -> IndexSpec:
    """Return the kind of index that ``text`` names; raises :class:`ConfigError` for what has not the form of one.

    Whether FAISS knows a factory string, and can be used with it, is for :func:`ragembed.indexes.ann.building.check`.
    """
    if text in _FACTORIES or (_FACTORY.fullmatch(text) and not _FATAL.search(text)):
        return IndexSpec(text)
    raise ConfigError(
        f"unknown kind of index {text!r}: expected {AUTO}, {', '.join(NAMES)}, or a factory string of FAISS, as in "
        "IVF4096,PQ48"
    )


def lists_for(rows: int) -> int:
    """Return how many inverted lists ``rows`` vectors get: 4√rows, as long as there are 64 vectors for each."""
    return max(1, min(int(_LISTS_PER_ROOT * math.sqrt(rows)), rows // TRAINING_PER_LIST))


def codes_for(dim: int) -> int:
    """Return of how many bytes a product quantiser's code is: about one for four dimensions; it divides ``dim``."""
    wanted = max(1, dim // _DIMENSIONS_PER_CODE)
    return next(count for count in range(wanted, 0, -1) if dim % count == 0)
