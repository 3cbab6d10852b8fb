"""Check the arrays that measures take, and read lines of UTF-8 files; errors name the array, or file and line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
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
    _require_count(array, name, count)
    array = _floating(array, name).astype(np.float64)
    if not np.isfinite(array).all():
        position = int(np.argmin(np.isfinite(array)))
        raise ConfigError(f"{name} has {array[position]} at position {position}: expected finite numbers")
    return array


def _require_count(array: NDArray[Any], name: str, count: int | None) -> None:
    if count is not None and len(array) != count:
        raise ConfigError(f"{name} has {len(array)} values for {count} rows: expected one for each")


def labels(values: Labels, name: str, count: int | None = None) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the sorted distinct labels, and for each row the position of its label, shape ``(n,)`` with ``n >= 1``."""
    array = np.asarray(list(values))
    if len(array) == 0:
        raise ConfigError(f"got 0 {name}: expected at least 1")
    if array.ndim != 1 or array.dtype.kind not in "USiub":
        raise ConfigError(
            f"{name} has the dtype {array.dtype} and the shape {array.shape}: expected strings or integers, (n,)"
        )
    _require_count(array, name, count)
    distinct, codes = np.unique(array, return_inverse=True)
    return distinct, codes


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


_LISTED = 5


def lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line, without the line ending (LF or CRLF).

    Raises :class:`ConfigError` if the file cannot be read or is not in ``encoding``, which is UTF-8 or Latin-1.
    """
    number = 1
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                bare = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, bare.decode("utf-8-sig" if number == 1 and encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}, line {number}: not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def filled_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield the non-blank :func:`lines`; raise :class:`ConfigError` if there are none."""
    empty = True
    for number, text in lines(path, encoding):
        if text.strip():
            empty = False
            yield number, text
    if empty:
        raise ConfigError(f"{path} is empty: expected at least one line")


def table_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line of a TSV file; raise unless the header is ``columns``."""
    rows = lines(path)
    number, header = next(rows, (1, ""))
    if header.split("\t") != list(columns):
        raise ConfigError(
            f"{path}, line 1: the header is {header[:200]!r}: expected {' '.join(columns)}, separated by tabs"
        )
    for number, line in rows:
        fields = line.split("\t")
        if len(fields) != len(columns):
            raise ConfigError(
                f"{path}, line {number}: {len(fields)} fields: expected {len(columns)} ({', '.join(columns)}), "
                "separated by tabs"
            )
        yield number, fields
    if number == 1:
        raise ConfigError(f"{path} has only a header: expected at least one more line")


def json_object(path: Path, number: int, line: str) -> dict[str, Any]:
    """Parse line ``number`` of ``path`` as a JSON object; raise :class:`ConfigError` for anything else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}, line {number}: not valid JSON: {error}") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{path}, line {number}: got {type(row).__name__}: expected a JSON object")
    return row


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, in the order of their first occurrence."""
    return [name for name, count in Counter(names).items() if count > 1]


def listed(names: Iterable[str], limit: int = _LISTED) -> str:
    """Return the first ``limit`` of ``names`` and the number of the others, such as ``'a', 'b' and 3 more``."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"
