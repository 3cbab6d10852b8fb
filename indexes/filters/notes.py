"""Notes on filters that cannot match: fields that no chunk has, values of another type, and paths of no file."""

from __future__ import annotations

import difflib
import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ragembed.indexes.filters.nodes import (
    PATHS,
    PROPERTIES,
    And,
    Comparison,
    Contains,
    Exists,
    Field,
    Filter,
    Glob,
    In,
    Leaf,
    Like,
    Not,
    Or,
    Regex,
    shown,
)
from ragembed.indexes.filters.sql import metadata_rows, to_sql
from ragembed.metadata_values import TYPES

_KINDS = {
    "text": "strings",
    "integer": "numbers",
    "real": "numbers",
    "true": "booleans",
    "false": "booleans",
    "array": "lists",
    "object": "objects",
}
"""The kind of each JSON type."""
_OF_PROPERTIES = {
    "ext": "strings",
    "size": "numbers",
    "title": "strings",
    "headings": "lists",
    "start_line": "numbers",
    "end_line": "numbers",
    "page": "numbers",
}
_COMPARED = {"string": "strings", "number": "numbers", "boolean": "booleans"}
_ARTICLES = {"strings": "a string", "numbers": "a number", "booleans": "true or false", "lists": "an element of a list"}
_MOST_NAMED, _MOST_NOTES = 20, 10


def notes_on(connection: sqlite3.Connection, whole: Filter) -> dict[Leaf, str]:
    """Return at most ten notes on conditions of a filter that no chunk of the store can meet; none if it is empty."""
    if connection.execute("SELECT 1 FROM chunks LIMIT 1").fetchone() is None:
        return {}
    different = {_comparison(leaf): leaf for leaf in _leaves(whole)}
    notes = ((leaf, note) for leaf in different.values() if (note := _note(connection, leaf)) is not None)
    return dict(itertools.islice(notes, _MOST_NOTES))


def comparisons(whole: Filter) -> frozenset[tuple[str, ...]]:
    """Return what the notes on a filter depend on, for each condition: all but the values, except those of paths."""
    return frozenset(map(_comparison, _leaves(whole)))


def _comparison(leaf: Leaf) -> tuple[str, ...]:
    return type(leaf).__name__, repr(leaf if leaf.field.property_name in PATHS else leaf.field), *_possible(leaf)


def _leaves(node: Filter, *, negated: bool = False) -> Iterator[Leaf]:
    """Yield the conditions of a filter, except tests that a field is missing or empty."""
    if isinstance(node, Not):
        yield from _leaves(node.operand, negated=not negated)
    elif isinstance(node, (And, Or)):
        for operand in node.operands:
            yield from _leaves(operand, negated=negated)
    elif isinstance(node, (Comparison, In, Contains, Like, Glob, Regex)) or (
        isinstance(node, Exists) and not (negated or node.filled)
    ):
        yield node


def _note(connection: sqlite3.Connection, leaf: Leaf) -> str | None:
    field, name = leaf.field, leaf.field.property_name
    if name in PATHS:
        return _note_on_path(connection, leaf)
    possible = _possible(leaf)
    if field.is_text or name == "mtime" or not possible:
        return None
    own = _OF_PROPERTIES.get(name or "")
    if own in possible or _has(connection, field, possible):
        return None
    stored = sorted({*_stored(connection, field), *([own] if own else [])})
    if not stored:
        return _note_on_unknown(connection, field)
    wanted = [_ARTICLES[kind] for kind in possible if kind in _ARTICLES]
    remedy = ""
    if "lists" in stored:
        remedy = "; to compare the elements of a list, use CONTAINS, or $contains in a dictionary"
    elif "objects" in stored:
        remedy = f"; to compare a value in an object, write its key after a dot, as in {field}.key = 1"
    return (
        f"the field {_named(field)} is compared with {' or '.join(wanted)}, but its values are "
        f"{' and '.join(stored)}: the comparison is never true{remedy}"
    )


def _note_on_path(connection: sqlite3.Connection, leaf: Leaf) -> str | None:
    has_files = connection.execute("SELECT 1 FROM sources LIMIT 1").fetchone() is not None
    if not has_files or isinstance(leaf, Exists) or _matches(connection, leaf):
        return None
    if isinstance(leaf, (Glob, Like, Regex)):
        return f"no indexed file has a path like {shown(leaf.pattern)}{_folder(connection, leaf.pattern)}"
    if isinstance(leaf, In):
        return f"no indexed file has one of the paths {', '.join(shown(value) for value in leaf.values[:3])}"
    if isinstance(leaf, Comparison) and leaf.operator == "=":
        return f"no indexed file has the path {shown(leaf.value)}{_folder(connection, str(leaf.value))}"
    return None


def _folder(connection: sqlite3.Connection, path: str) -> str:
    """Return how to select the files of a folder, if a path is a folder, and else what is expected."""
    folder = path.rstrip("/")
    escaped = "".join(f"[{character}]" if character in "*?[" else character for character in folder)
    if not folder or not _matches(connection, Glob(Field("path"), f"{escaped}/**")):
        return ": expected a path relative to the folder that holds the store, or an absolute path"
    return f": to select the files in this folder, write path GLOB {shown(f'{escaped}/**')}"


def _matches(connection: sqlite3.Connection, leaf: Leaf) -> bool:
    condition, values = to_sql(leaf)
    rows = connection.execute(
        f"SELECT 1 FROM chunks c LEFT JOIN sources s ON s.id = c.source WHERE {condition} LIMIT 1",  # noqa: S608  values are parameters
        values,
    )
    return rows.fetchone() is not None


def _possible(leaf: Leaf) -> list[str]:
    """Return the kinds of values that can meet a condition."""
    if isinstance(leaf, In):
        return sorted({_COMPARED[kind] for kind in leaf.types})
    if isinstance(leaf, (Like, Glob, Regex)):
        return ["strings"]
    if isinstance(leaf, Contains):
        return ["lists", "strings"] if leaf.type == "string" else ["lists"]
    if isinstance(leaf, Comparison):
        return [_COMPARED[leaf.type]]
    return sorted(set(_KINDS.values()))


def _has(connection: sqlite3.Connection, field: Field, kinds: Sequence[str]) -> bool:
    """Return whether a chunk has a value of one of these kinds in the metadata field; it stops at the first one."""
    types = [name for name, kind in _KINDS.items() if kind in kinds]
    tables, named, row, keys = metadata_rows(field)
    rows = connection.execute(
        f"SELECT 1 FROM chunks c, {tables} WHERE {named} AND {row}.type IN ({', '.join('?' * len(types))}) LIMIT 1",  # noqa: S608  marks alone
        (*keys, *types),
    )
    return rows.fetchone() is not None


def _stored(connection: sqlite3.Connection, field: Field) -> list[str]:
    """Return the kinds of the values in a metadata field."""
    tables, named, row, keys = metadata_rows(field)
    rows = connection.execute(f"SELECT DISTINCT {row}.type FROM chunks c, {tables} WHERE {named}", keys)  # noqa: S608  as above
    return [_KINDS[kind] for (kind,) in rows if kind in _KINDS]


def _note_on_unknown(connection: sqlite3.Connection, field: Field) -> str | None:
    """Return the note on a field that no chunk has; objects may lack a key, unless they have a similar one."""
    unknown = f"no chunk has the field {_named(field)}"
    keys, properties = _keys(connection, field), PROPERTIES if field.may_be_property else ()
    near = difflib.get_close_matches((field.name, *field.nested)[-1], [*keys, *properties], 1)
    if near:
        return f"{unknown}: did you mean {_named(_sibling(field, near[0]))}?"
    if field.nested:
        return None if keys else _note_on_missing_object(connection, replace(field, nested=field.nested[:-1]))
    listed = ", ".join([*(str(_sibling(field, key)) for key in keys[:_MOST_NAMED]), *properties])
    return f"{unknown}: expected one of {listed}" if listed else f"{unknown}: the chunks have no metadata"


def _note_on_missing_object(connection: sqlite3.Connection, field: Field) -> str | None:
    stored = sorted(_stored(connection, field))
    if not stored:
        return _note_on_unknown(connection, field)
    return f"the field {_named(field)} has no keys: its values are {' and '.join(dict.fromkeys(stored))}"


def _keys(connection: sqlite3.Connection, field: Field) -> list[str]:
    """Return the keys of the metadata, or of the objects that hold a nested field, in order."""
    tables, _, row, keys = metadata_rows(field)
    above = " AND ".join(f"m{at}.key = ?" for at in range(len(keys) - 1)) or "1"
    rows = connection.execute(f"SELECT DISTINCT {row}.key FROM chunks c, {tables} WHERE {above}", keys[:-1])  # noqa: S608  as above
    return sorted(key for (key,) in rows if key != TYPES)


def _sibling(field: Field, key: str) -> Field:
    """Return the field with another last key."""
    return replace(field, nested=(*field.nested[:-1], key)) if field.nested else replace(field, name=key)


def _named(field: Field) -> str:
    return shown(".".join((field.name, *field.nested)))
