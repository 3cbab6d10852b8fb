"""Dates and Unix times as nanoseconds since 1970, as file systems count."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from fractions import Fraction

from ragembed.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_BILLION = 1_000_000_000
_ISO = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<minute>[0-9]{2}:[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
    r"(?P<offset>Z|[+-][0-9]{2}:?[0-5][0-9])?)?"
)


def nanoseconds(value: str | float) -> int:
    """Return a moment as nanoseconds since 1970, UTC; a number is seconds since then.

    A string is an ISO 8601 date with or without a time of day, as in ``2026-01-31T10:00:00+01:00``; without an offset
    it is local time, without a time midnight. Raises :class:`ConfigError` for any other string, and for a number whose
    nanoseconds no float can hold.
    """
    try:
        if isinstance(value, str):
            return _parsed(value)
        moment = round(Fraction(value) * _BILLION)
        float(moment)
    except (
        ValueError,
        OverflowError,
        OSError,
    ):  # the last two also for dates that the machine's time zone does not reach
        raise ConfigError(
            f"{str(value)[:60]!r} is no time: expected a date as in '2026-01-31', '2026-01-31T10:00' or "
            "'2026-01-31T10:00+01:00', or a number of seconds since 1970"
        ) from None
    return moment


def _parsed(text: str) -> int:
    found = _ISO.fullmatch(text)
    if found is None:
        raise ValueError(text)
    offset = (found["offset"] or "").replace("Z", "+00:00")
    if offset and ":" not in offset:
        offset = f"{offset[:3]}:{offset[3:]}"
    moment = datetime.fromisoformat(f"{found['date']}T{found['minute'] or '00:00'}:{found['second'] or '00'}{offset}")
    if moment.tzinfo is None:
        moment = moment.astimezone()
    return (moment - _EPOCH) // timedelta(seconds=1) * _BILLION + int((found["fraction"] or "").ljust(9, "0"))
