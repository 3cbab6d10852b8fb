"""Dates, paths, NumPy's scalars and the like, as pickle describes them, made JSON values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from functools import partial
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np

from ragembed.langchain.community.opcodes import Global, Made

DTYPE = Global("numpy", "dtype")
UUIDS = Global("uuid", "UUID")
_TIMEDELTA, _TIMEZONE = Global("datetime", "timedelta"), Global("datetime", "timezone")
_CODE = re.compile("b1|[iu][1248]|f[248]|U[0-9]{1,9}")
_ORDERS = ("<", ">", "|")
_SHOWN = 80
_WITHOUT_FOLD = 0x7F
"""The highest bit of a month, or of an hour where there is no date, tells which of two equal times is meant."""


def scalar(made: Made) -> Any:
    """Return ``made``, by one of :data:`SCALARS`, as text or number; raises ValueError where it cannot be read.

    A number may be NaN or infinite.
    """
    try:
        return SCALARS[made.by](made)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"is no {made.by} that can be read: {str(error)[:_SHOWN]}") from error


def _date(made: Made) -> str:
    (value,) = made.arguments
    high, low, month, day = _packed(value, 4)
    return date(256 * high + low, month, day).isoformat()


def _time(made: Made) -> str:
    value, zone = _with_zone(made)
    hour, minute, second, *micro = _packed(value, 6)
    return time(hour & _WITHOUT_FOLD, minute, second, int.from_bytes(micro, "big"), zone).isoformat()


def _datetime(made: Made) -> str:
    value, zone = _with_zone(made)
    high, low, month, day, hour, minute, second, *micro = _packed(value, 10)
    return datetime(
        256 * high + low, month & _WITHOUT_FOLD, day, hour, minute, second, int.from_bytes(micro, "big"), zone
    ).isoformat()


def _packed(value: Any, size: int) -> bytes:
    if type(value) is not bytes:
        raise ValueError(f"made of a {type(value).__name__}")
    if len(value) != size:
        raise ValueError(f"made of {len(value):,} bytes")
    return value


def _with_zone(made: Made) -> tuple[Any, timezone | None]:
    value, zone = made.arguments if len(made.arguments) == 2 else (*made.arguments, None)
    return value, None if zone is None else _timezone(zone)


def _timezone(made: Made) -> timezone:
    if made.by != _TIMEZONE:
        raise ValueError(f"{made.by} is no time zone")
    return timezone(_timedelta(made.arguments[0]))


def _timedelta(made: Made) -> timedelta:
    if made.by != _TIMEDELTA:
        raise ValueError(f"{made.by} is no duration")
    days, seconds, microseconds = made.arguments
    return timedelta(days, seconds, microseconds)


def _decimal(made: Made) -> float:
    (text,) = made.arguments
    return float(text)


def _uuid(made: Made) -> str:
    return str(UUID(int=made.state["int"]))


def _path(kind: type[PurePath], made: Made) -> str:
    return str(kind(*made.arguments))


def _numpy(made: Made) -> Any:
    dtype, data = made.arguments
    code, order = dtype.arguments[0], dtype.state[1]
    if dtype.by != DTYPE or not _CODE.fullmatch(code) or order not in _ORDERS:
        raise ValueError(f"its type is {code!r}")
    if code == "U0":
        return ""
    (value,) = np.frombuffer(data, dtype=np.dtype(order + code)).tolist()
    return value


SCALARS: Mapping[Global, Callable[[Made], Any]] = MappingProxyType(
    {
        Global("datetime", "date"): _date,
        Global("datetime", "time"): _time,
        Global("datetime", "datetime"): _datetime,
        _TIMEDELTA: lambda made: _timedelta(made).total_seconds(),
        _TIMEZONE: lambda made: str(_timezone(made)),
        Global("decimal", "Decimal"): _decimal,
        UUIDS: _uuid,
        **{
            Global(module, name): partial(_path, kind)
            for module in ("pathlib", "pathlib._local")
            for name, kind in (
                ("PosixPath", PurePosixPath),
                ("PurePosixPath", PurePosixPath),
                ("WindowsPath", PureWindowsPath),
                ("PureWindowsPath", PureWindowsPath),
            )
        },
        Global("numpy.core.multiarray", "scalar"): _numpy,
        Global("numpy._core.multiarray", "scalar"): _numpy,
    }
)
"""How each of them is read: dates and times as ISO text, durations as seconds, UUIDs and paths as text."""
