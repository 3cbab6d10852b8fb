"""LlamaIndex's metadata filters as nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from ragembed.errors import ConfigError
from ragembed.indexes.filters import And, Comparison, Contains, Field, Filter, Like, Not, Or
from ragembed.indexes.filters.nodes import TEXT, any_of, equals

_Build = Callable[[Field, Any], Filter]

_OPERATORS: Mapping[FilterOperator, _Build] = {
    FilterOperator.EQ: equals,
    FilterOperator.NE: lambda field, value: Not(equals(field, value)),
    FilterOperator.GT: lambda field, value: Comparison(field, ">", value),
    FilterOperator.GTE: lambda field, value: Comparison(field, ">=", value),
    FilterOperator.LT: lambda field, value: Comparison(field, "<", value),
    FilterOperator.LTE: lambda field, value: Comparison(field, "<=", value),
    FilterOperator.IN: lambda field, value: any_of(field, _listed(field, value)),
    FilterOperator.NIN: lambda field, value: Not(any_of(field, _listed(field, value))),
    FilterOperator.ANY: lambda field, value: Or(tuple(Contains(field, each) for each in _listed(field, value))),
    FilterOperator.ALL: lambda field, value: And(tuple(Contains(field, each) for each in _listed(field, value))),
    FilterOperator.CONTAINS: Contains,
    FilterOperator.TEXT_MATCH: Contains,
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda field, value: Like(field, f"%{value}%"),
    FilterOperator.IS_EMPTY: lambda field, _: equals(field, None),
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
    return Not(And(parts)) if filters.condition is FilterCondition.NOT else And(parts)


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
