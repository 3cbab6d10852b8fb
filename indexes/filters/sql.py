"""Convert filters to SQL conditions over chunks ``c`` and their sources ``s``.

Every condition is 0 or 1, never NULL, which makes NOT the exact complement. Names and values are passed as parameters.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ragembed.errors import ConfigError
from ragembed.indexes.filters.globs import (
    file_glob_matches,
    file_is_at,
    glob_matches,
    path_glob_matches,
    path_in_store,
    regex_matches,
)
from ragembed.indexes.filters.nodes import (
    FILE_PROPERTIES,
    PATHS,
    And,
    Comparison,
    Contains,
    Exists,
    Field,
    Filter,
    Glob,
    Ids,
    In,
    Leaf,
    Like,
    Not,
    Or,
    Regex,
    Scalar,
    days_around,
    key_of_bytes,
    moment_key,
    nanoseconds,
)
from ragembed.indexes.types import json_ids

_COLUMNS = {
    "path": ("path", "string"),
    "source": ("path", "string"),
    "ext": ("ext", "string"),
    "size": ("size", "number"),
    "mtime": ("mtime_ns", "number"),
    "title": ("c.title", "string"),
    "start_line": ("c.start_line", "number"),
    "end_line": ("c.end_line", "number"),
    "page": ("c.page", "number"),
}
_LAST_PAGE = "coalesce(json_extract(c.later_pages, '$[#-1][1]'), c.page)"
_OPERATORS = {"=": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_JSON_TYPES = {"string": "= 'text'", "number": "IN ('integer', 'real')"}

_MOST_CONDITIONS = 1_000  # SQLite plans a condition in a time that grows with the square of their number.
_DEEPEST = 100
_MOST_OPEN = 30  # SQLite's parser allows 100 open symbols; a condition and the surrounding query need most of them
_JOINED_AT_ONCE = 16
_LARGEST_INTEGER = 2**63 - 1


def register(connection: sqlite3.Connection, root: Path | None = None) -> None:
    """Register the SQL functions of filters on a connection; names of files are relative to ``root``."""
    functions: Mapping[str, Callable[[str, str], bool]] = {
        "ragembed_glob": glob_matches,
        "ragembed_path_glob": path_glob_matches,
        "ragembed_regex": regex_matches,
        "ragembed_file_glob": lambda name, pattern: file_glob_matches(name, pattern, root),
        "ragembed_file_at": lambda name, place: file_is_at(name, place, root),
    }
    for name, function in functions.items():
        connection.create_function(name, 2, _on_bytes(function), deterministic=True)
    connection.create_function("ragembed_path", 1, lambda path: path_in_store(path, root), deterministic=True)
    connection.create_function("ragembed_moment", 1, key_of_bytes, deterministic=True)


def _on_bytes(matches: Callable[[str, str], bool]) -> Callable[[bytes | None, str], bool]:
    """Wrap ``matches`` to take bytes: SQLite's JSON can produce lone surrogates, which Python cannot decode as text."""
    return lambda data, pattern: data is not None and matches(data.decode("utf-8", "replace"), pattern)


class _Sql(NamedTuple):
    """A condition, its parameters, and the number of symbols that a parser keeps open inside its AND and OR."""

    text: str
    parameters: tuple[object, ...] = ()
    open: int = 0


_TRUE, _FALSE = _Sql("1"), _Sql("0")


def to_sql(filter: Filter) -> tuple[str, tuple[object, ...]]:  # noqa: A002  the usual name here
    """Return an SQL condition over the aliases ``c`` (chunks) and ``s`` (sources), and its ``?`` parameters.

    You can join it with other conditions by AND.
    """
    _check_size(filter)
    condition = _condition(filter, negated=False)
    if condition.open > _MOST_OPEN:
        raise ConfigError(
            "the filter nests AND and OR more deeply than SQLite supports: expected at most about 30 levels"
        )
    return condition.text, condition.parameters


def _check_size(whole: Filter) -> None:
    conditions, level, depth = 0, [whole], 0
    while level:
        depth += 1
        level = [_merged(node) for node in level]
        inner = [node for node in level if isinstance(node, (And, Or, Not))]
        leaves = [node for node in level if not isinstance(node, (And, Or, Not))]
        conditions += sum(1 if isinstance(leaf, Ids) else 1 + len(leaf.field.nested) for leaf in leaves)
        level = [below for node in inner for below in ((node.operand,) if isinstance(node, Not) else node.operands)]
        if depth > _DEEPEST or conditions > _MOST_CONDITIONS:
            raise ConfigError(
                f"the filter has more than {_MOST_CONDITIONS:,} conditions or {_DEEPEST} levels of AND, OR and NOT: "
                "expected fewer; list the values of one field in IN or $in"
            )


def _merged(node: Filter) -> Filter:
    """Merge the equalities of one field below an OR, and the inequalities of one field below an AND, into an IN."""
    if isinstance(node, Or):
        return Or(tuple(_merge_equalities(node.operands)))
    if not isinstance(node, And):
        return node
    negated = [part.operand for part in node.operands if isinstance(part, Not)]
    others = [part for part in node.operands if not isinstance(part, Not)]
    return And((*others, *(Not(part) for part in _merge_equalities(negated))))


def _merge_equalities(operands: Iterable[Filter]) -> Iterator[Filter]:
    values: dict[Field, list[Scalar]] = {}
    for node in operands:
        if isinstance(node, Comparison) and node.operator == "=":
            values.setdefault(node.field, []).append(node.value)
        else:
            yield node
    for field, equal in values.items():
        yield Comparison(field, "=", equal[0]) if len(equal) == 1 else In(field, tuple(equal))


def _condition(node: Filter, *, negated: bool) -> _Sql:
    node = _merged(node)
    if isinstance(node, Not):
        return _condition(node.operand, negated=not negated)
    if isinstance(node, (And, Or)):
        parts = [_condition(operand, negated=negated) for operand in node.operands]
        return _all(parts) if isinstance(node, And) is not negated else _any(parts)
    if isinstance(node, Ids):
        leaf = _Sql("c.id IN (SELECT value FROM json_each(?))", (json_ids(node.ids),))
    else:
        leaf = _leaf(node)
    return _Sql(f"NOT {leaf.text}", leaf.parameters) if negated else leaf


def _all(parts: Iterable[_Sql]) -> _Sql:
    return _joined("AND", parts, _TRUE)


def _any(parts: Iterable[_Sql]) -> _Sql:
    return _joined("OR", parts, _FALSE)


def _joined(word: str, parts: Iterable[_Sql], empty: _Sql) -> _Sql:
    """Join parts as a tree, simplest parts first, because SQLite limits the length and depth of expressions."""
    order = itertools.count()
    heap = [(part.open, next(order), part) for part in parts]
    heapq.heapify(heap)
    while len(heap) > 1:
        group = [heapq.heappop(heap)[2] for _ in range(min(len(heap), _JOINED_AT_ONCE))][::-1]
        # While SQLite reads the first part, only "(" is open. For later parts, "(", an expression and a word are open.
        open_symbols = max(group[0].open + 1, group[1].open + 3)
        text = "(" + f" {word} ".join(part.text for part in group) + ")"
        joined = _Sql(text, tuple(value for part in group for value in part.parameters), open_symbols)
        heapq.heappush(heap, (open_symbols, next(order), joined))
    return heap[0][2] if heap else empty


def _leaf(node: Leaf) -> _Sql:
    if node.field.is_text:
        return _on_type(node, "string", "c.text")
    name = node.field.property_name
    stored = _in_metadata(node)
    if name is None:
        return stored
    if name == "headings":
        return _either(
            "json_array_length(c.headings) > 0", "json_array_length(c.headings) = 0", _in_headings(node), stored
        )
    column, kind = _COLUMNS[name]
    if name == "page" and isinstance(node, (Comparison, In)):
        return _either("c.page IS NOT NULL", "c.page IS NULL", _on_pages(node), stored)
    test = _on_path(node, column) if name in PATHS else _on_type(_as_stored(node, name), kind, column)
    if name not in FILE_PROPERTIES:
        return _either(f"{column} IS NOT NULL", f"{column} IS NULL", test, stored)
    if not isinstance(node, Exists):  # test each file once, not once for each of its chunks
        test = _Sql(f"c.source IN (SELECT id FROM sources WHERE {test.text})", test.parameters)  # noqa: S608  constants
    return _either("c.source IS NOT NULL", "c.source IS NULL", test, stored)


def _on_pages(node: Comparison | In) -> _Sql:
    """Return the test that one of the pages of a chunk meets a condition."""
    if isinstance(node, In):
        pages = [value for value, kind in zip(node.values, node.types, strict=True) if kind == "number"]
        test = f"EXISTS (SELECT 1 FROM json_each(?) WHERE value BETWEEN c.page AND {_LAST_PAGE})"  # noqa: S608  constants
        return _Sql(test, (json.dumps(pages),))
    if node.type != "number":
        return _FALSE
    if node.operator == "=":
        return _all([_on_pages(dataclasses.replace(node, operator=operator)) for operator in ("<=", ">=")])
    return _on_type(node, "number", "c.page" if node.operator.startswith("<") else _LAST_PAGE)


def _either(present: str, absent: str, test: _Sql, stored: _Sql) -> _Sql:
    """Test the property if it is present, otherwise the metadata."""
    return _Sql(f"({present} AND {test.text} OR {absent} AND {stored.text})", test.parameters + stored.parameters)


def _on_path(node: Leaf, column: str) -> _Sql:
    """Return the test on the name of a file; users may write it as an absolute path, or with ``./``."""
    if isinstance(node, Glob):
        function = "ragembed_file_at" if node.or_below else "ragembed_file_glob"
        return _Sql(f"{function}(CAST({column} AS BLOB), ?)", (node.pattern,))
    test = _on_type(node, "string", column)
    if isinstance(node, Comparison) and node.type == "string" and node.operator == "=":
        return _Sql(f"{column} IN (?, ragembed_path(?))", test.parameters * 2)
    if isinstance(node, In) and test is not _FALSE:
        names = "SELECT value FROM json_each(?) UNION SELECT ragembed_path(value) FROM json_each(?)"
        return _Sql(f"{column} IN ({names})", test.parameters * 2)
    return test


def _as_stored(node: Leaf, name: str) -> Leaf:
    """Convert values to the form of the sources table: extensions in lower case, times in nanoseconds."""
    if name not in ("ext", "mtime") or not isinstance(node, (Comparison, In)):
        return node
    field = Field(name, metadata=True)  # skips the checks of the property, which reject converted values
    if isinstance(node, Comparison):
        return dataclasses.replace(node, field=field, value=_stored_value(node.value, name))
    return dataclasses.replace(node, field=field, values=tuple(_stored_value(value, name) for value in node.values))


def _stored_value(value: Scalar, name: str) -> Scalar:
    if name == "mtime":
        return nanoseconds(value)
    return value.removeprefix(".").lower() if isinstance(value, str) else value


def _in_headings(node: Leaf) -> _Sql:
    if isinstance(node, Contains):
        return _in_list("c.headings", node)
    return _TRUE if isinstance(node, Exists) else _FALSE


def metadata_rows(field: Field) -> tuple[str, str, str, tuple[str, ...]]:
    """Return how a metadata value is looked up, key by key: the tables, their condition, the row, the parameters."""
    keys = (field.name, *field.nested)
    steps = ["json_each(c.metadata) AS m0"]
    steps += [
        f"json_each(CASE m{at}.type WHEN 'object' THEN m{at}.value ELSE '{{}}' END) AS m{at + 1}"
        for at in range(len(keys) - 1)
    ]
    named = " AND ".join(f"m{at}.key = ?" for at in range(len(keys)))
    return ", ".join(steps), named, f"m{len(keys) - 1}", keys


def _in_metadata(node: Leaf) -> _Sql:
    tables, named, row, keys = metadata_rows(node.field)
    test = _on_json(node, row)
    return _Sql(f"EXISTS (SELECT 1 FROM {tables} WHERE {named} AND {test.text})", (*keys, *test.parameters))  # noqa: S608  constants


def _on_json(node: Leaf, row: str) -> _Sql:
    """Return the test on a row of ``json_each``, for each type of value that can match."""
    if isinstance(node, Exists):
        return _Sql(f"{row}.type || {row}.value NOT IN ('text', 'array[]')" if node.filled else f"{row}.type <> 'null'")
    tests = []
    for kind, is_kind in _JSON_TYPES.items():
        test = (_on_moments(node, f"{row}.value") if kind == "string" else None) or _on_type(node, kind, f"{row}.value")
        if test is not _FALSE:
            tests.append(_Sql(f"({row}.type {is_kind} AND {test.text})", test.parameters))
    tests += [_Sql(f"{row}.type = '{'true' if value else 'false'}'") for value in _booleans(node)]
    if isinstance(node, Contains):
        elements = _in_list(f"CASE {row}.type WHEN 'array' THEN {row}.value ELSE '[]' END", node)
        tests.append(_Sql(f"({row}.type = 'array' AND {elements.text})", elements.parameters))
    return _any(tests)


def _on_moments(node: Leaf, text: str) -> _Sql | None:
    """Return the test that compares moments, for a node with ISO 8601 texts; other stored texts are compared as texts.

    Only texts of dates near the moment need to be parsed. Every other one is compared as text, with the same result.
    """
    if isinstance(node, In):
        return _among_moments([value for value in node.values if isinstance(value, str)], text)
    if not isinstance(node, Comparison) or not isinstance(node.value, str):
        return None
    if node.operator == "=":
        return _among_moments([node.value], text)
    moment = moment_key(node.value)
    if moment is None:
        return None
    low, high = days_around(node.value)
    surely, perhaps = (("<", low), ("<", high)) if node.operator.startswith("<") else ((">=", high), (">=", low))
    order = _OPERATORS[node.operator]
    return _Sql(
        f"({text} {surely[0]} ? OR ({text} {perhaps[0]} ? AND "
        f"coalesce(ragembed_moment(CAST({text} AS BLOB)) {order} ?, {text} {order} ?)))",
        (surely[1], perhaps[1], moment, node.value),
    )


def _among_moments(values: Sequence[str], text: str) -> _Sql | None:
    """Return the test that a text is one of ``values``, or an ISO 8601 text of the same moment as one of them."""
    moments = {value: moment for value in values if (moment := moment_key(value)) is not None}
    if not moments:
        return None
    around = [days_around(value) for value in moments]
    bounds = min(low for low, _ in around), max(high for _, high in around)
    others = [value for value in values if value not in moments]
    return _Sql(
        f"({text} IN (SELECT value FROM json_each(?)) OR ({text} >= ? AND {text} < ? AND "  # noqa: S608  constants
        f"ragembed_moment(CAST({text} AS BLOB)) IN (SELECT value FROM json_each(?))))",
        (json.dumps(others, ensure_ascii=False), *bounds, json.dumps(list(moments.values()))),
    )


def _booleans(node: Leaf) -> Sequence[bool]:
    if isinstance(node, Comparison):
        return [bool(node.value)] if node.type == "boolean" else []
    if isinstance(node, In):
        return sorted({bool(value) for value, kind in zip(node.values, node.types, strict=True) if kind == "boolean"})
    return []


def _in_list(array: str, node: Contains) -> _Sql:
    """Return the test that the JSON array in the expression ``array`` contains the value of the node."""
    if node.value is None:
        test = _Sql("e.type = 'null'")
    else:
        test = _on_json(Comparison(Field(node.field.name, metadata=True), "=", node.value), "e")
    return _Sql(f"EXISTS (SELECT 1 FROM json_each({array}) AS e WHERE {test.text})", test.parameters)  # noqa: S608  constants


def _on_type(node: Leaf, kind: str, expression: str) -> _Sql:
    """Return the test on an SQL expression of the type ``kind``, ``"string"`` or ``"number"``."""
    if isinstance(node, Exists):
        return _Sql(f"{expression} <> ''") if node.filled and kind == "string" else _TRUE
    if isinstance(node, Comparison):
        if node.type != kind:
            return _FALSE
        value = _parameter(node.value)
        return _Sql(f"{expression} {_OPERATORS[node.operator]} {value.text}", value.parameters)
    if isinstance(node, In):
        values = [value for value, its in zip(node.values, node.types, strict=True) if its == kind]
        if not values:
            return _FALSE
        return _Sql(f"{expression} IN (SELECT value FROM json_each(?))", (json.dumps(values, ensure_ascii=False),))  # noqa: S608
    if kind != "string" or (isinstance(node, Contains) and node.type != "string"):
        return _FALSE
    if isinstance(node, Contains):
        return _Sql(f"instr({expression}, ?) > 0", (node.value,))
    if isinstance(node, Like):
        return _Sql(f"{expression} LIKE ?", (node.pattern,))
    if isinstance(node, Regex):
        return _Sql(f"ragembed_regex(CAST({expression} AS BLOB), ?)", (node.pattern,))
    function = "ragembed_path_glob" if node.is_path else "ragembed_glob"
    return _Sql(f"{function}(CAST({expression} AS BLOB), ?)", (node.pattern,))


def _parameter(value: Scalar) -> _Sql:
    """Return a parameter. Numbers beyond 64-bit integers pass through JSON, to be rounded like numbers in metadata."""
    if isinstance(value, str) or (isinstance(value, int) and abs(value) <= _LARGEST_INTEGER):
        return _Sql("?", (value,))
    return _Sql("json_extract(?, '$')", (json.dumps(value),))
