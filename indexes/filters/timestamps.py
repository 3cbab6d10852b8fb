"""Dates and times of ISO 8601 as moments, which filters compare, and Unix times as nanoseconds since 1970.

The standard library's parser accepts other forms in each version of Python. This one accepts the same in all of them:
a date such as ``2026-01-31``, optionally with hours, minutes, seconds, a fraction of any length, and an offset.
"""

from __future__ import annotations

import re
import sqlite3
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from typing import NamedTuple

from ragembed.errors import ConfigError

_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal() * _DAY
_BILLION = 1_000_000_000
_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([01][0-9]|2[0-4])(?::([0-5][0-9])(?::([0-5][0-9])(?:[.,]([0-9]+))?)?)?"
    r"(?:[Zz]()|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9])(?::?([0-5][0-9]))?)?)?)?"
)


class _Moment(NamedTuple):
    """A date and time: whole seconds since the year 0, the digits of its fraction, and its offset in seconds if any."""

    seconds: int
    fraction: str
    offset: int | None


def moment_key(text: str) -> str | None:
    """Return a text that orders like the moment of an ISO 8601 date (by default midnight, UTC); else None."""
    found = _parsed(text)
    return None if found is None else f"{found.seconds - (found.offset or 0):012d}{found.fraction}"


def days_around(text: str) -> tuple[str, str]:
    """Return texts below and above every ISO 8601 text of the same moment as ``text``, an ISO 8601 text itself.

    Every text below the first is an earlier moment, and every text from the second on a later one: offsets are shorter
    than a day.
    """
    day = date.fromisoformat(text[:10])
    low = day - timedelta(days=3) if day.toordinal() > 3 else date.min
    high = day + timedelta(days=3) if day < date.max - timedelta(days=3) else None
    return low.isoformat(), ":" if high is None else high.isoformat()


def nanoseconds(value: str | float) -> int:
    """Return a time as nanoseconds since 1970, UTC.

    A number means seconds since 1970. A string is an ISO 8601 date with an optional time, such as
    ``2026-01-31T10:00:00+01:00``. Without an offset it is local time; without a time it is midnight. Raises
    :class:`ConfigError` for other strings, and for numbers whose nanoseconds exceed the range of a float.
    """
    from fractions import Fraction

    try:
        if isinstance(value, str):
            return _local_nanoseconds(value)
        moment = round(Fraction(value) * _BILLION)
        float(moment)
    # Dates out of range for the local time zone raise OverflowError or OSError.
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{str(value)[:60]!r} is not a time: expected a date such as '2026-01-31', '2026-01-31T10:00' or "
            "'2026-01-31T10:00+01:00', or a number of seconds since 1970"
        ) from None
    return moment


def _local_nanoseconds(text: str) -> int:
    found = _parsed(text)
    if found is None:
        raise ValueError(text)
    seconds = found.seconds - _EPOCH
    if found.offset is None:
        local = datetime(1970, 1, 1) + timedelta(seconds=seconds)
        seconds = (local.astimezone() - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(seconds=1)
    else:
        seconds -= found.offset
    return seconds * _BILLION + int(found.fraction[:9].ljust(9, "0"))


def _parsed(text: str) -> _Moment | None:
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    day, hour, minute, second, fraction, utc, sign, *offset = found.groups()
    of_day = int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0)
    fraction = "" if fraction is None else fraction.rstrip("0")
    if of_day > _DAY or (of_day == _DAY and fraction):  # 24:00 is the end of the day
        return None
    try:
        seconds = date.fromisoformat(day).toordinal() * _DAY + of_day
    except ValueError:
        return None
    if sign is None:
        return _Moment(seconds, fraction, None if utc is None else 0)
    shift = int(offset[0]) * 3600 + int(offset[1] or 0) * 60 + int(offset[2] or 0)
    return _Moment(seconds, fraction, -shift if sign == "-" else shift)


def register(connection: sqlite3.Connection) -> None:
    """Register the SQL function that returns :func:`moment_key` of a text, given as bytes."""
    connection.create_function("ragembed_moment", 1, _key_of_bytes, deterministic=True)


@lru_cache(maxsize=4096)
def _key_of_bytes(data: bytes) -> str | None:
    # SQLite's JSON can produce lone surrogates, which Python cannot decode as text.
    return moment_key(data.decode("utf-8", "replace"))
