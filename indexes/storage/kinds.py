"""The kinds of index that the segments of a store have."""

from __future__ import annotations

from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.indexes.ann.specs import FLAT, IndexSpec, parse_spec

LEAST_APPROXIMATE = 10_000
"""Vectors below which a segment that is written while a store grows is flat: there exact search is as fast."""


def stored_spec(kind: str) -> IndexSpec:
    """Return the kind that a store's database names; raises :class:`StoreDamagedError` for one that there is not."""
    try:
        return parse_spec(kind)
    except ConfigError as error:
        raise StoreDamagedError(f"the store's database names an index: {error}") from error


def kind_for(wanted: IndexSpec, rows: int) -> IndexSpec:
    """Return the kind of a segment of ``rows`` vectors in a store that asks for ``wanted``."""
    return wanted if rows >= max(LEAST_APPROXIMATE, wanted.least_rows) else parse_spec(FLAT)
