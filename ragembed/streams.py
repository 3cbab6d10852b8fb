"""Streams in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def blocks(stream: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items of ``stream`` in lists of ``size``; the last may be shorter."""
    items = iter(stream)
    while block := list(islice(items, size)):
        yield block
