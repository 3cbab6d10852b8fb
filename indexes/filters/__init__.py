"""Filters: which chunks a search may find, by properties of chunks and their files and by metadata.

The nodes of which a filter is made, and what turns other forms into them (:func:`parse`) and them into SQL
(:func:`to_sql`). ``docs/reference/filters.md`` says what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from ragembed.errors import ConfigError
from ragembed.indexes.filters.dicts import parse_filter_dict
from ragembed.indexes.filters.globs import register
from ragembed.indexes.filters.nodes import (
    And,
    Comparison,
    Contains,
    Exists,
    Field,
    Filter,
    Glob,
    Ids,
    In,
    Like,
    Not,
    Or,
    shown,
)
from ragembed.indexes.filters.sql import to_sql
from ragembed.indexes.filters.where import parse_where

__all__ = [
    "And",
    "Comparison",
    "Contains",
    "Exists",
    "Field",
    "Filter",
    "Glob",
    "Ids",
    "In",
    "Like",
    "Not",
    "Or",
    "Where",
    "parse",
    "register",
    "to_sql",
]


Where: TypeAlias = "str | Mapping[str, Any] | Filter"
"""A filter in any of its forms: a condition as for ``--where``, a LangChain dictionary, or made of nodes."""


def parse(where: Where) -> Filter:
    """Return the filter that a condition as for ``--where``, or a LangChain dictionary, describes.

    A filter is returned as it is. Raises :class:`ConfigError` for anything else, and for what cannot be parsed.
    """
    if isinstance(where, str):
        return parse_where(where)
    if isinstance(where, Mapping):
        return parse_filter_dict(where)
    if isinstance(where, Filter):
        return where
    raise ConfigError(
        f"the filter is {shown(where)}, of type {type(where).__name__}: expected a condition as in \"ext = 'md'\" or a "
        "dictionary as in {'year': {'$gte': 2020}}"
    )
