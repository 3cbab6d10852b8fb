"""Some values of a long list for each run of the tests, and all of them for the slow ones."""

from collections.abc import Collection
from typing import Any

import pytest


def mostly_slow(values: Collection[Any], count: int, ids: Collection[str] | None = None) -> list[Any]:
    """Return ``values`` for ``pytest.mark.parametrize``; all but ``count`` of them, spread evenly, are slow."""
    names = [str(value) for value in values] if ids is None else ids
    quick = {i * len(values) // count for i in range(count)}
    return [
        pytest.param(value, id=name, marks=() if i in quick else pytest.mark.slow)
        for i, (value, name) in enumerate(zip(values, names, strict=True))
    ]
