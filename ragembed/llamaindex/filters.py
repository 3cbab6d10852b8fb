"""LlamaIndex's metadata filters as nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from ragembed.errors import ConfigError
from ragembed.indexes.filters import And, Comparison, Contains, Exists, Field, Filter, Glob, Not, Or
from ragembed.indexes.filters.nodes import TEXT, any_of

_Build = Callable[[Field, Any], Filter]

_NOTHING = Or(())


def _equal(field: Field, value: Any) -> Filter:
    """Return the condition that the field equals a value; for LlamaIndex, nothing equals None."""
    return _NOTHING if value is None else Comparison(field, "=", value)


def _in_any_case(field: Field, value: Any) -> Filter:
    if not isinstance(value, str):
        raise ConfigError(f"the filter on {field} got {value!r}: expected a text")
    return Glob(field, f"*{''.join(_either_case(character) for character in value)}*")


def _either_case(character: str) -> str:
    cases = {case for case in (character, character.lower(), character.upper()) if len(case) == 1}
    return f"[{''.join(sorted(cases))}]" if len(cases) > 1 or character in "*?[" else character


_OPERATORS: Mapping[FilterOperator, _Build] = {
    FilterOperator.EQ: _equal,
    FilterOperator.NE: lambda field, value: Not(_equal(field, value)),
    FilterOperator.GT: lambda field, value: Comparison(field, ">", value),
    FilterOperator.GTE: lambda field, value: Comparison(field, ">=", value),
    FilterOperator.LT: lambda field, value: Comparison(field, "<", value),
    FilterOperator.LTE: lambda field, value: Comparison(field, "<=", value),
    FilterOperator.IN: lambda field, value: any_of(field, _listed(field, value)),
    FilterOperator.NIN: lambda field, value: Not(any_of(field, _listed(field, value))),
    FilterOperator.ANY: lambda field, value: Or(tuple(Contains(field, each) for each in _listed(field, value))),
    FilterOperator.ALL: lambda field, value: And(
        (Exists(field), *(Contains(field, each) for each in _listed(field, value)))
    ),
    FilterOperator.CONTAINS: Contains,
    FilterOperator.TEXT_MATCH: Contains,
    FilterOperator.TEXT_MATCH_INSENSITIVE: _in_any_case,
    FilterOperator.IS_EMPTY: lambda field, _: Not(Exists(field, filled=True)),
}


def parse_filters(filters: MetadataFilters | None) -> Filter | None:
    """Convert metadata filters; None and filters without conditions select everything.

    The key ``text`` with a text match tests the text of the node.
    """
    if filters is None or not filters.filters:
        return None
    parts = tuple(_part(part) for part in filters.filters)
    if filters.condition is FilterCondition.OR:
        return Or(parts)
    return Not(Or(parts)) if filters.condition is FilterCondition.NOT else And(parts)  # NOT: none of them


def _part(part: MetadataFilter | MetadataFilters) -> Filter:
    if isinstance(part, MetadataFilters):
        return parse_filters(part) or And(())
    is_match = part.operator in (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE)
    field = TEXT if is_match and part.key == "text" else Field(part.key, metadata=True)
    return _OPERATORS[part.operator](field, part.value)


def _listed(field: Field, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"the filter on {field} got {value!r}: expected a list of values")
    return tuple(value)
