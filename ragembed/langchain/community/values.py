"""The classes that a saved store may name, and JSON values of what is found in its metadata."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from ragembed.langchain.community.opcodes import MOST_DEPTH, Global, Made
from ragembed.langchain.community.scalars import DTYPE, SCALARS, UUIDS, scalar

DOCSTORES = frozenset(
    Global(f"{package}.docstore.in_memory", "InMemoryDocstore")
    for package in ("langchain", "langchain_classic", "langchain_community")
)
"""The class that holds the documents, under the names it has had."""

DOCUMENTS = frozenset(
    Global(".".join(parts), "Document")
    for parts in [
        *product(("langchain", "langchain_classic", "langchain_core"), ("schema", "schema.document")),
        *product(("langchain", "langchain_classic", "langchain_community"), ("docstore.document",)),
        *product(("langchain_core",), ("documents", "documents.base")),
    ]
)
"""The class of a document, under the names it has had."""

_DICTS = frozenset({Global("collections", "OrderedDict"), Global("collections", "defaultdict")})
_SETS = frozenset({Global("builtins", "set"), Global("builtins", "frozenset")})
_FACTORIES = frozenset(Global("builtins", name) for name in ("bool", "dict", "float", "int", "list", "str"))

ALLOWED = frozenset({*DOCSTORES, *DOCUMENTS, *_DICTS, *_SETS, *_FACTORIES, *SCALARS, DTYPE})
"""All classes and functions that may be named."""

_WIDEST = 2**63


class NotJsonError(ValueError):
    """A value has no place in JSON; the message goes on after its name in a sentence."""


class JsonValues:
    """Makes JSON values of what a pickle holds, as long as there are not more than ``most`` in all.

    A list that stands in many places is written once in a pickle; the bound is for lists that would fill the memory, or
    have no end, when they are written out.
    """

    def __init__(self, most: float = math.inf) -> None:
        self._left = most

    def of(self, value: Any, depth: int = 0) -> Any:
        """Return ``value`` as JSON; raises :class:`NotJsonError`.

        Sets and tuples become lists; NaN, with which tables say that a value is missing, becomes None. See
        :data:`ragembed.langchain.community.scalars.SCALARS` for other objects.
        """
        self._left -= 1
        if self._left < 0:
            raise NotJsonError("comes to too many values: the file holds the same lists again and again")
        if depth > MOST_DEPTH:
            raise NotJsonError(f"is nested more than {MOST_DEPTH} deep")
        if (items := mapping(value)) is not None:
            return {_key(key): self.of(item, depth + 1) for key, item in items.items()}
        if (members := _sequence(value)) is not None:
            return [self.of(item, depth + 1) for item in members]
        return _atom(value)


def mapping(value: Any) -> dict[Any, Any] | None:
    """Return the items of a dictionary of whichever kind, None for what is not one."""
    if type(value) is Made and value.by in _DICTS:
        return value.items
    return value if type(value) is dict else None


def identifier(value: Any) -> str:
    """Return the id of a document, which may be an integer or a UUID, as text; raises :class:`NotJsonError`."""
    if type(value) is int and -_WIDEST <= value < _WIDEST:
        return str(value)
    if type(value) is Made and value.by == UUIDS:
        value = _atom(value)
    if type(value) is not str:
        raise NotJsonError(f"is {_named(value)}: expected text")
    return value


def _sequence(value: Any) -> list[Any] | tuple[Any, ...] | None:
    if type(value) is Made and value.by in _SETS and len(value.arguments) == 1:
        (value,) = value.arguments
    return value if type(value) in (list, tuple) else None


def _key(key: Any) -> str:
    try:
        return identifier(key)
    except NotJsonError as error:
        raise NotJsonError(f"has a key that {error}") from error


def _atom(value: Any) -> Any:
    if type(value) is Made and value.by in SCALARS:
        try:
            value = scalar(value)
        except ValueError as error:
            raise NotJsonError(str(error)) from error
    if type(value) is float:
        if math.isinf(value):
            raise NotJsonError(f"is {value}")
        return None if math.isnan(value) else value
    if value is not None and type(value) not in (str, int, bool):
        raise NotJsonError(f"is {_named(value)}")
    return value


def _named(value: Any) -> str:
    return f"of type {value.by if type(value) is Made else type(value).__name__}"
