"""Check and convert the arrays that measures take; errors are :class:`ragembed.errors.ConfigError`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.errors import ConfigError

Vectors: TypeAlias = NDArray[np.floating[Any]]
Labels: TypeAlias = Sequence[str] | Sequence[int] | NDArray[Any]


def matrix(values: ArrayLike, name: str, least: int = 1) -> Vectors:
    """Return ``values`` as finite vectors of shape ``(n, d)`` with ``n >= least`` and ``d >= 1``.

    Floating-point arrays keep their dtype; integers become float64.
    """
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ConfigError(f"{name} has the shape {array.shape}: expected (n, d), one vector per row")
    if len(array) < least:
        raise ConfigError(f"{name} has {len(array)} rows: expected at least {least}")
    array = _floating(array, name)
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        raise ConfigError(f"row {int(np.argmin(finite))} of {name} has NaN or infinity: expected finite numbers")
    return array


def pair(values1: ArrayLike, values2: ArrayLike, least: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the vectors of pairs as two float64 arrays of the same shape ``(n, d)`` with ``n >= least``."""
    first, second = matrix(values1, "the first array", least), matrix(values2, "the second array", least)
    if first.shape != second.shape:
        raise ConfigError(f"the two arrays have the shapes {first.shape} and {second.shape}: expected the same shape")
    return first.astype(np.float64), second.astype(np.float64)


def numbers(values: ArrayLike, name: str, count: int | None = None) -> NDArray[np.float64]:
    """Return ``values`` as finite float64 of shape ``(n,)``; if ``count`` is given, ``n`` must equal it."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ConfigError(f"{name} has the shape {array.shape}: expected (n,)")
    if count is not None and len(array) != count:
        raise ConfigError(f"{name} has {len(array)} values for {count} rows: expected one for each")
    array = _floating(array, name).astype(np.float64)
    if not np.isfinite(array).all():
        position = int(np.argmin(np.isfinite(array)))
        raise ConfigError(f"{name} has {array[position]} at position {position}: expected finite numbers")
    return array


def labels(values: Labels, name: str, count: int | None = None) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the sorted distinct labels, and for each row the position of its label, shape ``(n,)`` with ``n >= 1``."""
    array = np.asarray(list(values))
    if len(array) == 0:
        raise ConfigError(f"got 0 {name}: expected at least 1")
    if array.ndim != 1 or array.dtype.kind not in "USiub":
        raise ConfigError(
            f"{name} has the dtype {array.dtype} and the shape {array.shape}: expected strings or integers, (n,)"
        )
    if count is not None and len(array) != count:
        raise ConfigError(f"{name} has {len(array)} values for {count} rows: expected one for each")
    found, codes = np.unique(array, return_inverse=True)
    return found, codes


def at_least(value: int, least: int, name: str) -> int:
    """Return ``value``, or raise if it is below ``least``."""
    if value < least:
        raise ConfigError(f"{name} is {value}: expected at least {least}")
    return value


def _floating(array: NDArray[Any], name: str) -> Vectors:
    if array.dtype.kind in "iu":
        return array.astype(np.float64)
    if array.dtype.kind != "f":
        raise ConfigError(f"{name} has the dtype {array.dtype}: expected numbers")
    return array
