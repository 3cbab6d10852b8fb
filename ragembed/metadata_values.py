"""Metadata values of Python types that JSON does not have: how they are stored, compared and restored.

A value is stored as text or as a number that orders like the value, so that filters of every kind can compare it. The
key :data:`TYPES` of the stored metadata names its type, and its exact text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

import numpy as np

from ragembed.errors import ConfigError, StoreDamagedError

TYPES = "$types"
"""The key of the stored metadata that holds the type and the text of each value that is not a JSON value."""

_KINDS: Mapping[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),  # before date, its base class
    date: ("date", date.isoformat, date.fromisoformat),
    UUID: ("uuid", str, UUID),
    PurePath: ("path", PurePath.as_posix, Path),
    Decimal: ("decimal", str, Decimal),
}
"""For each type: its name, the function that writes it as text, and the one that reads the text."""

_READERS: Mapping[str, Callable[[str], Any]] = {name: read for name, _, read in _KINDS.values()}


def plain_value(value: Any) -> Any:
    """Return a value as it is stored and compared; values of other types are returned unchanged.

    A NumPy scalar becomes the number or text that it holds, a decimal a number, and a time with an offset its text in
    UTC. The texts of dates and times order like the dates and times.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        with suppress(OverflowError):  # in the first or the last day of the calendar
            value = value.astimezone(timezone.utc)
    for kind, (_, write, _) in _KINDS.items():
        if isinstance(value, kind):
            return write(value)
    return value


def _number(value: Decimal) -> int | float:
    if not value.is_finite():
        raise ConfigError(f"the decimal {value} cannot be compared: expected a finite number")
    number = int(value) if value == value.to_integral_value() and abs(value) < 2**63 else float(value)
    if not math.isfinite(number):
        raise ConfigError(f"the decimal {value} cannot be compared: expected a number that a float can hold")
    return number


def to_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with every value that :func:`plain_value` knows as JSON, and its type under :data:`TYPES`."""
    if TYPES in metadata:
        raise ConfigError(f"the metadata key {TYPES!r} is reserved: use another name")
    typed: list[list[Any]] = []
    stored: dict[str, Any] = _stored(metadata, (), typed)
    return {**stored, TYPES: typed} if typed else stored


def _stored(value: Any, path: tuple[str | int, ...], typed: list[list[Any]]) -> Any:
    if isinstance(value, Mapping):
        return {key: _stored(inner, (*path, key), typed) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_stored(inner, (*path, i), typed) for i, inner in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    for kind, (name, write, _) in _KINDS.items():
        if isinstance(value, kind):
            typed.append([list(path), name, write(value)])
            return plain_value(value)
    return value


def from_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata from which :func:`to_json` made these, with its types."""
    values = dict(metadata)
    try:
        for path, name, text in values.pop(TYPES, ()):
            place: Any = values
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = _READERS[name](text)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise StoreDamagedError(f"the types of the metadata {sorted(values)} cannot be read: {error!r}") from error
    return values
