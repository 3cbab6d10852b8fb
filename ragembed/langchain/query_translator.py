"""``RagQueryTranslator``: translate LangChain's structured queries to filters, for ``SelfQueryRetriever``."""

from __future__ import annotations

from typing import Any

from langchain_core.structured_query import Comparator, Comparison, Operation, Operator, StructuredQuery, Visitor

from ragembed.errors import ConfigError
from ragembed.indexes.filters.timestamps import moment_key

_COMPARATORS = {
    Comparator.EQ: "$eq",
    Comparator.NE: "$ne",
    Comparator.GT: "$gt",
    Comparator.GTE: "$gte",
    Comparator.LT: "$lt",
    Comparator.LTE: "$lte",
    Comparator.CONTAIN: "$contains",
    Comparator.LIKE: "$like",
    Comparator.IN: "$in",
    Comparator.NIN: "$nin",
}
_WILDCARDS = ("%", "_")


class RagQueryTranslator(Visitor):
    """Translates structured queries, which a language model makes from a question, to filters of the store.

    All comparators and operators of LangChain are allowed. A pattern of ``like`` without ``%`` and ``_`` may occur
    anywhere in the value.

    Examples
    --------
    .. code-block:: python

        from langchain_core.structured_query import Comparator, Comparison, StructuredQuery
        from ragembed.langchain import RagQueryTranslator

        condition = Comparison(comparator=Comparator.GTE, attribute="year", value=2020)
        query = StructuredQuery(query="wing", filter=condition, limit=None)
        RagQueryTranslator().visit_structured_query(query)

    .. code-block:: text

        ('wing', {'filter': {'year': {'$gte': 2020}}})

    For a retriever that lets a model write the filter:

    .. code-block:: python

        retriever = SelfQueryRetriever.from_llm(
            model, store, "Reports", fields, structured_query_translator=RagQueryTranslator()
        )
    """

    allowed_comparators = tuple(_COMPARATORS)
    allowed_operators = (Operator.AND, Operator.OR, Operator.NOT)

    def visit_operation(self, operation: Operation) -> dict[str, Any]:
        """Translate an operation to a filter.

        Parameters
        ----------
        operation : Operation
            An operator with its arguments.
        """
        self._validate_func(operation.operator)
        parts = [part.accept(self) for part in operation.arguments]
        if operation.operator is not Operator.NOT:
            return {f"${operation.operator.value}": parts}
        if len(parts) != 1:
            raise ConfigError(f"the operator not has {len(parts)} arguments: expected one")
        return {"$not": parts[0]}

    def visit_comparison(self, comparison: Comparison) -> dict[str, Any]:
        """Translate a comparison to a filter.

        Parameters
        ----------
        comparison : Comparison
            A field, a comparator and a value.
        """
        self._validate_func(comparison.comparator)
        value = _value(comparison.value)
        is_pattern = comparison.comparator is Comparator.LIKE and isinstance(value, str)
        if is_pattern and not any(wildcard in value for wildcard in _WILDCARDS):
            value = f"%{value}%"
        return {comparison.attribute: {_COMPARATORS[comparison.comparator]: value}}

    def visit_structured_query(self, structured_query: StructuredQuery) -> tuple[str, dict[str, Any]]:
        """Translate a structured query to the text of a query and the arguments of its search.

        Parameters
        ----------
        structured_query : StructuredQuery
            The query with its filter.
        """
        if structured_query.filter is None:
            return structured_query.query, {}
        return structured_query.query, {"filter": structured_query.filter.accept(self)}


def _value(value: Any) -> Any:
    """Return a value of a comparison; dates and times are dictionaries with their text and type."""
    if isinstance(value, (list, tuple)):
        return [_value(part) for part in value]
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in ("date", "datetime"):
        return value
    if moment_key(value[kind]) is None:
        raise ConfigError(f"{value[kind]!r} is not a {kind}: expected ISO 8601, such as 2026-01-31")
    return value[kind]
