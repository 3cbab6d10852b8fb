"""Filters select the chunks that a search may find, by properties of chunks and files and by metadata.

The package has the nodes of a filter, :func:`parse`, which converts other forms to nodes, and :func:`to_sql`, which
converts nodes to SQL. The documentation page "Filters" explains their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from ragembed.errors import ConfigError
from ragembed.indexes.filters.globs import MOST_SECONDS, limited_time
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
    In,
    Like,
    Not,
    Or,
    Regex,
    shown,
)
from ragembed.indexes.filters.sql import register, to_sql
from ragembed.indexes.filters.where import parse_filter_dict, parse_where

__all__ = [
    "MOST_SECONDS",
    "TEXT",
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
    "Regex",
    "Where",
    "limited_time",
    "parse",
    "register",
    "to_sql",
]


Where: TypeAlias = "str | Mapping[str, Any] | Filter"
"""A filter in one of its forms: a condition such as ``ext = 'md'``, a LangChain dictionary, or nodes."""


def parse(where: Where) -> Filter:
    """Return a filter, also for a condition or a LangChain dictionary; raises :class:`ConfigError` if it is invalid."""
    if isinstance(where, str):
        return parse_where(where)
    if isinstance(where, Mapping):
        return parse_filter_dict(where)
    if isinstance(where, Filter):
        return where
    raise ConfigError(
        f"the filter is {shown(where)}, of type {type(where).__name__}: expected a condition such as \"ext = 'md'\" or "
        "a dictionary such as {'year': {'$gte': 2020}}"
    )
