"""Filters in LangChain's form: dictionaries such as ``{"year": {"$gte": 2020}}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ragembed.errors import ConfigError
from ragembed.indexes.filters.nodes import (
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


def _filter(given: Any, depth: int) -> Filter:
    if depth > _DEEPEST:
        raise ConfigError(f"the filter has more than {_DEEPEST} levels of $and, $or and $not: expected fewer")
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"the filter is {shown(given)}, of type {type(given).__name__}: expected a dictionary such as "
            "{'year': {'$gte': 2020}}"
        )
    return _and([_entry(key, value, depth) for key, value in given.items()])


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
        known = ", ".join((*_ON_TEXT, *_JOINING, "$id"))
        raise ConfigError(
            f"unknown operator {shown(key)} instead of a field: expected one of {known}, or "
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
        isinstance(ids, _LISTS) and all(isinstance(each, str) for each in ids)
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
