"""Haystack's filters, dictionaries such as ``{"field": "meta.year", "operator": ">=", "value": 2020}``, as nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from haystack.errors import FilterError

from ragembed.errors import ConfigError
from ragembed.indexes.filters import And, Comparison, Field, Filter, Ids, Not, Or
from ragembed.indexes.filters.nodes import TEXT, any_of, equals, moment_key

_LOGIC: Mapping[str, Callable[[tuple[Filter, ...]], Filter]] = {
    "AND": And,
    "OR": Or,
    "NOT": lambda parts: Not(And(parts)),
}
_ORDERS = (">", ">=", "<", "<=")
_OPERATORS = ("==", "!=", *_ORDERS, "in", "not in")


def parse_filters(filters: Mapping[str, Any] | None) -> Filter | None:
    """Convert a filter of Haystack; an empty one selects everything.

    Raises :class:`haystack.errors.FilterError` for an invalid filter.
    """
    if not filters:
        return None
    try:
        return _filter(filters)
    except ConfigError as error:
        raise FilterError(str(error)) from error


def _filter(given: Any) -> Filter:
    if not isinstance(given, Mapping):
        raise FilterError(f"a filter is {given!r}: expected a dictionary with 'field', 'operator' and 'value'")
    if "field" in given:
        return _comparison(given)
    for name in ("operator", "conditions"):
        if name not in given:
            raise FilterError(f"the filter {dict(given)!r} has no {name!r}: expected 'operator' and 'conditions'")
    if given["operator"] not in _LOGIC:
        raise FilterError(f"unknown operator {given['operator']!r}: expected one of {', '.join(_LOGIC)}")
    return _LOGIC[given["operator"]](tuple(_filter(part) for part in given["conditions"]))


def _comparison(given: Mapping[str, Any]) -> Filter:
    for name in ("operator", "value"):
        if name not in given:
            raise FilterError(
                f"the condition {dict(given)!r} has no {name!r}: expected 'field', 'operator' and 'value'"
            )
    name, operator, value = str(given["field"]), given["operator"], given["value"]
    if operator not in _OPERATORS:
        raise FilterError(f"unknown operator {operator!r} for {name}: expected one of {', '.join(_OPERATORS)}")
    if operator in ("in", "not in"):
        if not isinstance(value, list):
            raise FilterError(f"{operator} for {name} got {value!r}: expected a list")
        found = _is_any(name, value)
        return Not(found) if operator == "not in" else found
    if operator in _ORDERS:
        return _order(name, operator, value)
    found = _is_any(name, [value])
    return Not(found) if operator == "!=" else found


def _is_any(name: str, values: list[Any]) -> Filter:
    if name == "id":
        return Ids(tuple(str(value) for value in values))
    return equals(_field(name), values[0]) if len(values) == 1 else any_of(_field(name), tuple(values))


def _order(name: str, operator: str, value: Any) -> Filter:
    if value is None:
        return Or(())  # nothing is more or less than None
    if isinstance(value, str) and moment_key(value) is None:
        raise FilterError(
            f"{name} {operator} {value!r}: expected a number or an ISO 8601 date, such as 2026-01-31T10:00:00Z"
        )
    return Comparison(_field(name), operator, value)


def _field(name: str) -> Field:
    if name == "content":
        return TEXT
    first, *nested = name.removeprefix("meta.").split(".")
    return Field(first, metadata=True, nested=tuple(nested))
