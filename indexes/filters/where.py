"""Parse filters: conditions such as ``ext = 'md' and mtime > '2026-01-01'``, and dictionaries as LangChain has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ragembed.errors import ConfigError
from ragembed.indexes.filters.nodes import (
    ORDERS,
    PATHS,
    TEXT,
    And,
    Comparison,
    Contains,
    Exists,
    Field,
    Filter,
    Glob,
    Ids,
    Like,
    Not,
    Or,
    Regex,
    any_of,
    equals,
    shown,
)

_DEEPEST = 100
_LONGEST_NUMBER = 400
_KEYWORDS = ("and", "or", "not", "in", "like", "glob", "contains", "between", "is", "null", "true", "false")
_CONSTANTS = {"true": True, "false": False, "null": None}
_EQUALITIES, _INEQUALITIES = ("=", "=="), ("!=", "<>")
_COMPARISONS = (*_EQUALITIES, *_INEQUALITIES, *ORDERS)
_KINDS = {**dict.fromkeys((*PATHS, "ext"), ("a string", (str,))), "size": ("a number of bytes", (int, float))}
_AFTER_FIELD = "=, !=, <, <=, >, >=, IN, LIKE, GLOB, CONTAINS, BETWEEN or IS NULL"
_EXAMPLE = "write it as ext = 'md'"
_LIST_EXAMPLE = "write it as ext IN ('md', 'rst')"
_SINGLE_QUOTES = "put strings in single quotes, as in ext = 'md'"
_DOUBLE_QUOTES = "put names with characters other than letters, digits and _ in double quotes"

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<string>'(?:[^']|'')*'(?!'))
    | (?P<quoted>"(?:[^"]|"")*"(?!"))
    | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<word>[^\W\d]\w*)
    | (?P<symbol><=|>=|<>|!=|==|[=<>(),.])
    """,
    re.VERBOSE,
)
_NUMBER_GOES_ON = re.compile(r"[\w.:+-]+")


@dataclass(frozen=True, slots=True)
class _ConditionToken:
    """A token of the condition: ``kind`` is a group of ``_TOKEN``, ``keyword`` or ``end``; ``position`` starts at 1."""

    kind: str
    text: str
    position: int

    def is_any(self, *texts: str) -> bool:
        return self.kind in ("keyword", "symbol") and self.text in texts


def parse_where(text: str) -> Filter:
    """Parse a condition, as the page "Filters" has it; raises :class:`ConfigError` with the position of an error."""
    parser = _ConditionParser(list(_tokens(text)))
    condition = parser.disjunction()
    parser.expect_end()
    return condition


def _tokens(text: str) -> Iterator[_ConditionToken]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _bad_character(text, at)
        kind, word, begin, at = str(match.lastgroup), match[0], at, match.end()
        if kind == "number" and (more := _NUMBER_GOES_ON.match(text, at)):
            whole = shown(word + more[0])
            raise _error(
                f"{whole} is not a number", begin, f"put dates and other strings in single quotes, as in {whole}"
            )
        if kind == "word" and word.lower() in _KEYWORDS:
            kind, word = "keyword", word.lower()
        elif kind in ("string", "quoted"):
            word = word[1:-1].replace(word[0] * 2, word[0])
        if kind != "space":
            yield _ConditionToken(kind, word, begin + 1)
    yield _ConditionToken("end", "end of text", len(text) + 1)


def _bad_character(text: str, at: int) -> ConfigError:
    if text[at] in "'\"":
        quote = text[at]
        kind = "string" if quote == "'" else "name"
        remedy = f"close it with {quote}, and double any {quote} in it"
        return _error(f"the {kind} {shown(text[at:])} does not end", at, remedy)
    return _error(f"unexpected {shown(text[at])}", at, f"{_SINGLE_QUOTES}; {_DOUBLE_QUOTES}")


def _error(what: str, at: int, remedy: str) -> ConfigError:
    return ConfigError(f"{what} at character {at + 1}: {remedy}")


@contextmanager
def _located(token: _ConditionToken) -> Iterator[None]:
    """Add the position of ``token`` to errors about its value."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"at character {token.position}: {error}") from None


def _check_kind(field: Field, *values: object) -> None:
    """Raise an error for values of the wrong type for a file property; metadata of that name may have any type."""
    name = field.property_name
    if name not in _KINDS:
        return
    expected, types = _KINDS[name]
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, types)):
            raise ConfigError(
                f"{name} is compared with {shown(value)}: expected {expected}; write metadata.{name} for metadata"
            )


def _require_no_size(field: Field) -> None:
    if field.property_name == "size":
        raise ConfigError("size is a number of bytes: expected a comparison, as in size > 1000000")


class _ConditionParser:
    """A recursive descent parser; NOT binds tighter than AND, and AND tighter than OR."""

    def __init__(self, tokens: list[_ConditionToken]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def disjunction(self) -> Filter:
        parts = [self._conjunction()]
        while self._accept("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def expect_end(self) -> None:
        if self._next.kind != "end":
            raise self._unexpected("AND, OR or the end", "join conditions with AND or OR")

    def _conjunction(self) -> Filter:
        parts = [self._condition()]
        while self._accept("and"):
            parts.append(self._condition())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _condition(self) -> Filter:
        begin = self._next
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _error(f"more than {_DEEPEST} levels of NOT and parentheses", begin.position - 1, "use fewer levels")
        if self._accept("not"):
            condition: Filter = Not(self._condition())
        elif self._accept("("):
            condition = self.disjunction()
            if not self._accept(")"):
                raise self._unexpected("')'", f"close the '(' at character {begin.position}, or leave it out")
        else:
            condition = self._on_field()
        self._depth -= 1
        return condition

    def _on_field(self) -> Filter:
        if self._next.kind in ("string", "number") and self._tokens[self._at + 1].is_any("in", "not"):
            return self._element()
        field = self._field()
        operator = self._next
        if self._accept("is"):
            negated = self._accept("not")
            if not self._accept("null"):
                raise self._unexpected("NULL after IS", "compare other values with =")
            return Exists(field) if negated else Not(Exists(field))
        if self._accept(*_COMPARISONS):
            return self._comparison(field, operator)
        negated = self._accept("not")
        condition = self._worded(field)
        return Not(condition) if negated else condition

    def _element(self) -> Filter:
        """Parse ``'value' IN field``, which is ``field CONTAINS 'value'``."""
        begin, value = self._next, self._value(self._next)
        negated = self._accept("not")
        if not self._accept("in"):
            raise self._unexpected("IN", "write it as 'value' NOT IN field")
        field = self._field()
        with _located(begin):
            _require_no_size(field)
            _check_kind(field, value)
        contains = Contains(field, value)
        return Not(contains) if negated else contains

    def _comparison(self, field: Field, operator: _ConditionToken) -> Filter:
        begin = self._next
        value = self._value(operator)
        with _located(begin):
            _check_kind(field, value)
            if operator.text in _EQUALITIES:
                return equals(field, value)
            if operator.text in _INEQUALITIES:
                return Not(equals(field, value))
            return Comparison(field, operator.text, value)

    def _worded(self, field: Field) -> Filter:
        word = self._next
        if not self._accept("in", "like", "glob", "contains", "between"):
            raise self._unexpected(
                f"{_AFTER_FIELD} after {field}", _EXAMPLE if word.kind in ("end", "string") else _DOUBLE_QUOTES
            )
        begin = self._next
        if word.text == "between":
            return self._between(field, word)
        values = self._list() if word.text == "in" else (self._value(word),)
        with _located(begin):
            if word.text == "in":
                _check_kind(field, *values)
                return any_of(field, values)
            _require_no_size(field)
            if word.text == "contains":
                _check_kind(field, *values)
                return Contains(field, values[0])
            return (Like if word.text == "like" else Glob)(field, values[0])

    def _between(self, field: Field, word: _ConditionToken) -> Filter:
        begin = self._next
        low = self._value(word)
        if not self._accept("and"):
            raise self._unexpected("AND and a second value after BETWEEN", "write it as page BETWEEN 2 AND 5")
        high = self._value(word)
        with _located(begin):
            _check_kind(field, low, high)
            return And((Comparison(field, ">=", low), Comparison(field, "<=", high)))

    def _list(self) -> tuple[Any, ...]:
        before = self._next
        if not self._accept("("):
            raise self._unexpected("'(' after IN", _LIST_EXAMPLE)
        if self._accept(")"):
            return ()
        values: list[Any] = []
        while True:
            values.append(self._value(before))
            before = self._next
            if self._accept(")"):
                return tuple(values)
            if not self._accept(","):
                raise self._unexpected("',' or ')' in the list after IN", _LIST_EXAMPLE)

    def _field(self) -> Field:
        begin = self._next
        names = [self._name("a field")]
        while self._accept("."):
            names.append(self._name("a name after '.'"))
        metadata = len(names) > 1 and begin.kind == "word" and begin.text == "metadata"
        name, *nested = names[1:] if metadata else names
        with _located(begin):
            return Field(name, metadata=metadata, nested=tuple(nested))

    def _name(self, what: str) -> str:
        token = self._next
        if token.kind in ("word", "quoted"):
            self._at += 1
            return token.text
        if token.kind in ("string", "number"):
            raise self._unexpected(what, "put the field before its value, as in ext = 'md'")
        if token.kind == "keyword":
            raise self._unexpected(what, f"put a field of that name in double quotes, as in \"{token.text}\" = 'x'")
        raise self._unexpected(what, _EXAMPLE)

    def _value(self, after: _ConditionToken) -> Any:
        token = self._next
        if token.kind == "string":
            self._at += 1
            return token.text
        if token.kind == "number":
            self._at += 1
            return _number(token)
        if token.kind == "keyword" and token.text in _CONSTANTS:
            self._at += 1
            return _CONSTANTS[token.text]
        what = f"a value after '{after.text.upper()}'"
        if token.kind in ("word", "quoted"):
            raise self._unexpected(what, _SINGLE_QUOTES)
        raise self._unexpected(what, _EXAMPLE)

    @property
    def _next(self) -> _ConditionToken:
        return self._tokens[self._at]

    def _accept(self, *texts: str) -> bool:
        """Consume the next token if it is one of these keywords or symbols."""
        is_next = self._next.is_any(*texts)
        self._at += is_next
        return is_next

    def _unexpected(self, what: str, remedy: str) -> ConfigError:
        token = self._next
        got = token.text if token.kind == "end" else shown(token.text)
        return ConfigError(f"expected {what} at character {token.position}, got {got}: {remedy}")


def _number(token: _ConditionToken) -> int | float:
    if len(token.text) > _LONGEST_NUMBER:
        raise _error(
            f"a number with {len(token.text)} characters", token.position - 1, "use a number of at most 308 digits"
        )
    return int(token.text) if token.text.lstrip("+-").isdigit() else float(token.text)


_LISTS = (list, tuple, set, frozenset)
_JOINING = ("$and", "$or", "$not")
_ON_TEXT = ("$contains", "$like", "$glob", "$regex")
"""Operators that test the text of the chunk if they stand in place of a field."""


def parse_filter_dict(filter: Mapping[str, Any]) -> Filter:  # noqa: A002  LangChain's name
    """Convert a dictionary to a filter; an empty dictionary matches everything.

    Keys are names of fields, in which dots have no special meaning, or ``$and``, ``$or`` and ``$not``. A dictionary
    without operators selects by a key of a value that is an object, as in ``{"author": {"name": "Ann"}}``. ``$id``
    selects chunks by id. ``$contains``, ``$like``, ``$glob`` and ``$regex`` in place of a field test the text of the
    chunk. Raises :class:`ConfigError` for an invalid dictionary.
    """
    return _filter(filter, 0)


def _filter(mapping: Any, depth: int) -> Filter:
    if depth > _DEEPEST:
        raise ConfigError(f"the filter has more than {_DEEPEST} levels of $and, $or and $not: expected fewer")
    if not isinstance(mapping, Mapping):
        raise ConfigError(
            f"the filter is {shown(mapping)}, of type {type(mapping).__name__}: expected a dictionary such as "
            "{'year': {'$gte': 2020}}"
        )
    return _and([_entry(key, value, depth) for key, value in mapping.items()])


def _entry(key: Any, value: Any, depth: int) -> Filter:
    if key == "$not":
        return Not(_filter(value, depth + 1))
    if key in ("$and", "$or"):
        if not isinstance(value, _LISTS) or not value:
            raise ConfigError(f"{key} got {shown(value)}: expected a list of at least one filter")
        parts = tuple(_filter(part, depth + 1) for part in value)
        return And(parts) if key == "$and" else Or(parts)
    if key in _ON_TEXT:
        if not isinstance(value, str):
            raise ConfigError(f"{key} for the text of the chunk got {shown(value)}: expected a string")
        return _OPERATORS[key](TEXT, value)
    if key == "$id":
        return _ids(value)
    if isinstance(key, str) and key.startswith("$"):
        expected = ", ".join((*_ON_TEXT, *_JOINING, "$id"))
        raise ConfigError(
            f"unknown operator {shown(key)} instead of a field: expected one of {expected}, or "
            "the name of a field with its operators, as in {'year': {'$gte': 2020}}"
        )
    return _on_field(Field(key), value, depth)


def _ids(value: Any) -> Filter:
    """Return the filter for an id, several ids, or an operator with them."""
    operator, ids = "$in", value
    if isinstance(value, Mapping) and len(value) == 1:
        [(operator, ids)] = value.items()
    ids = [ids] if isinstance(ids, str) else ids
    if operator not in ("$eq", "$ne", "$in", "$nin") or not (
        isinstance(ids, _LISTS) and all(isinstance(chunk_id, str) for chunk_id in ids)
    ):
        raise ConfigError(f"$id got {shown(value)}: expected an id, a list of ids, or one of $in and $nin with a list")
    chosen = Ids(tuple(ids))
    return Not(chosen) if operator in ("$ne", "$nin") else chosen


def _on_field(field: Field, value: Any, depth: int) -> Filter:
    if isinstance(value, Mapping):
        if value and all(isinstance(name, str) and not name.startswith("$") for name in value):
            below = replace(field, metadata=True)
            keys = ((replace(below, nested=(*below.nested, key)), part) for key, part in value.items())
            return _and([_on_field(key, part, depth + 1) for key, part in keys])
        return _operators(field, value, depth)
    if isinstance(value, _LISTS):
        raise ConfigError(
            f"{field} is compared with the list {shown(value)}: expected $in to match one of these values, or "
            "$contains to match a list that contains a value"
        )
    return equals(field, value)


def _operators(field: Field, operators: Mapping[Any, Any], depth: int) -> Filter:
    if depth > _DEEPEST:
        raise ConfigError(f"the filter has more than {_DEEPEST} levels of $not: expected fewer")
    if not operators:
        raise ConfigError(f"{field} has an empty dictionary: expected operators, as in {{'$gte': 2020}}")
    parts: list[Filter] = []
    for name, operand in operators.items():
        if name == "$not":
            parts.append(Not(_negated(field, operand, depth)))
        elif name in _OPERATORS:
            parts.append(_OPERATORS[name](field, operand))
        else:
            raise ConfigError(
                f"unknown operator {shown(name)} for {field}: expected one of {', '.join((*_OPERATORS, '$not'))}"
            )
    return _and(parts)


def _negated(field: Field, operand: Any, depth: int) -> Filter:
    if not isinstance(operand, Mapping):
        raise ConfigError(f"$not for {field} got {shown(operand)}: expected operators, as in {{'$gte': 2020}}")
    return _operators(field, operand, depth + 1)


def _and(parts: list[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _equal(name: str) -> Callable[[Field, Any], Filter]:
    def build(field: Field, value: Any) -> Filter:
        _refuse_lists(field, name, value)
        return equals(field, value)

    return build


def _order(operator: str) -> Callable[[Field, Any], Filter]:
    return lambda field, value: Comparison(field, operator, value)


def _in(name: str) -> Callable[[Field, Any], Filter]:
    def build(field: Field, values: Any) -> Filter:
        if not isinstance(values, _LISTS):
            raise ConfigError(f"{name} for {field} got {shown(values)}: expected a list of values")
        return any_of(field, tuple(values))

    return build


def _contains(field: Field, value: Any) -> Filter:
    _refuse_lists(field, "$contains", value)
    return Contains(field, value)


def _exists(field: Field, value: Any) -> Filter:
    if not isinstance(value, bool):
        raise ConfigError(f"$exists for {field} got {shown(value)}: expected True or False")
    return Exists(field) if value else Not(Exists(field))


def _complement(operator: Callable[[Field, Any], Filter]) -> Callable[[Field, Any], Filter]:
    return lambda field, value: Not(operator(field, value))


def _refuse_lists(field: Field, name: str, value: Any) -> None:
    if isinstance(value, _LISTS):
        raise ConfigError(
            f"{name} for {field} got the list {shown(value)}: expected a single value; $in takes a list, and you can "
            "join several $contains with $and or $or"
        )


_OPERATORS: Mapping[str, Callable[[Field, Any], Filter]] = {
    "$eq": _equal("$eq"),
    "$ne": _complement(_equal("$ne")),
    "$neq": _complement(_equal("$neq")),
    "$gt": _order(">"),
    "$gte": _order(">="),
    "$lt": _order("<"),
    "$lte": _order("<="),
    "$in": _in("$in"),
    "$nin": _complement(_in("$nin")),
    "$exists": _exists,
    "$contains": _contains,
    "$like": Like,
    "$glob": Glob,
    "$regex": Regex,
}
