"""Notes on filters that cannot match: fields that no chunk has, and values of a type that the field never has."""

from __future__ import annotations

import difflib
import sqlite3
from collections.abc import Iterator

from ragembed.indexes.filters.nodes import And, Comparison, Contains, Field, Filter, Glob, In, Leaf, Like, Not, Or
from ragembed.metadata_values import TYPES

_NAMES = {"text": "strings", "integer": "numbers", "real": "numbers", "true": "booleans", "false": "booleans"}
_KINDS = {"string": "strings", "number": "numbers", "boolean": "booleans"}
_ARTICLES = {"strings": "a string", "numbers": "a number", "booleans": "true or false"}


def notes_on(connection: sqlite3.Connection, whole: Filter) -> list[str]:
    """Return a note for each metadata field of a filter that no chunk has, or not with a value of the compared type.

    The database must have the tables of a store. An empty store gets no notes.
    """
    if connection.execute("SELECT 1 FROM chunks LIMIT 1").fetchone() is None:
        return []
    notes = [note for leaf in _leaves(whole) if (note := _note(connection, leaf)) is not None]
    return list(dict.fromkeys(notes))


def comparisons(whole: Filter) -> frozenset[tuple[str, str]]:
    """Return the name of each metadata field of a filter, with each kind of value that it is compared with."""
    return frozenset((leaf.field.name, kind) for leaf in _leaves(whole) for kind in _compared(leaf))


def _leaves(node: Filter) -> Iterator[Leaf]:
    if isinstance(node, Not):
        yield from _leaves(node.operand)
    elif isinstance(node, (And, Or)):
        for operand in node.operands:
            yield from _leaves(operand)
    elif isinstance(node, (Comparison, In, Contains, Like, Glob)):
        yield node


def _note(connection: sqlite3.Connection, leaf: Leaf) -> str | None:
    field = leaf.field
    if field.is_text or field.nested or field.property_name is not None:
        return None
    kinds = _compared(leaf)
    if not kinds or any(_has(connection, field, kind) for kind in (*kinds, "lists")):
        return None
    found = connection.execute(
        "SELECT DISTINCT m.type FROM chunks c, json_each(c.metadata) m WHERE m.key = ? AND m.type <> 'null'",
        (field.name,),
    )
    stored = sorted({_NAMES[row[0]] for row in found if row[0] in _NAMES})
    if not stored:
        return f"no chunk has the field {field.name!r}{_suggestion(connection, field.name)}"
    compared = " or ".join(_ARTICLES[kind] for kind in kinds)
    return (
        f"the field {field.name!r} is compared with {compared}, but its values are {' and '.join(stored)}: the "
        "comparison is never true"
    )


def _compared(leaf: Leaf) -> list[str]:
    """Return the kinds of the values that a condition compares with."""
    if isinstance(leaf, In):
        return sorted({_KINDS[kind] for kind in leaf.types})
    if isinstance(leaf, (Like, Glob)):
        return ["strings"]
    if isinstance(leaf, (Comparison, Contains)) and leaf.type in _KINDS:
        return [_KINDS[leaf.type]]
    return []


def _has(connection: sqlite3.Connection, field: Field, kind: str) -> bool:
    """Return whether a chunk has a value of this kind in the metadata field; it stops at the first one."""
    types = [name for name, of in _NAMES.items() if of == kind] if kind != "lists" else ["array", "object"]
    marks = ", ".join("?" * len(types))
    found = connection.execute(
        f"SELECT 1 FROM chunks c, json_each(c.metadata) m WHERE m.key = ? AND m.type IN ({marks}) LIMIT 1",  # noqa: S608  marks alone
        (field.name, *types),
    )
    return found.fetchone() is not None


def _suggestion(connection: sqlite3.Connection, name: str) -> str:
    known = [row[0] for row in connection.execute("SELECT DISTINCT m.key FROM chunks c, json_each(c.metadata) m")]
    known = [key for key in known if key != TYPES]
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f": did you mean {near[0]!r}?"
    return f": expected one of {', '.join(sorted(known)[:20])}" if known else ": the chunks have no metadata"
