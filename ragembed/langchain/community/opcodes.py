"""Pickle's opcodes, and what objects are in its streams."""

from __future__ import annotations

import pickletools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

CODES: Mapping[str, int] = MappingProxyType({op.name: ord(op.code) for op in pickletools.opcodes})
"""The byte of each opcode, by the name that the standard library has for it."""

NAMES: Mapping[int, str] = MappingProxyType({code: name for name, code in CODES.items()})
"""The name of each opcode, by its byte."""

MOST_DEPTH = 100
"""How deep lists and dictionaries may be nested in metadata."""


@dataclass(frozen=True, slots=True)
class Global:
    """A class or function by its name; which one that is nobody looks up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class Made:
    """An object: what makes it, of which arguments, and the state and the items that it is given."""

    by: Global
    arguments: tuple[Any, ...] = ()
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
