"""Kinds of FAISS index that a segment can have."""

from __future__ import annotations

from typing import Literal, get_args

from ragembed.errors import ConfigError

Kind = Literal["flat", "hnsw", "ivf"]
KINDS: tuple[Kind, ...] = get_args(Kind)

FLAT: Kind = "flat"

LEAST_APPROXIMATE = 10_000
"""Vectors below which a segment is flat whatever kind is asked for: there exact search is as fast."""


def checked_kind(kind: str) -> Kind:
    """Return ``kind``; raises :class:`ConfigError` for one that there is not."""
    for known in KINDS:
        if kind == known:
            return known
    raise ConfigError(f"unknown index kind {kind!r}: expected one of {', '.join(KINDS)}")


def kind_for(wanted: Kind, rows: int) -> Kind:
    """Return the kind of a segment of ``rows`` vectors in a store that asks for ``wanted``."""
    return wanted if rows >= LEAST_APPROXIMATE else FLAT
