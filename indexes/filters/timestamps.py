"""Convert dates and Unix times to nanoseconds since 1970, the unit of file systems."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from ragembed.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_BILLION = 1_000_000_000
_ISO = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<minute>[0-9]{2}:[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
    r"(?P<offset>Z|[+-][0-9]{2}:?[0-5][0-9])?)?"
)


def nanoseconds(value: str | float) -> int:
    """Return a time as nanoseconds since 1970, UTC.

    A number means seconds since 1970. A string is an ISO 8601 date with an optional time, such as
    ``2026-01-31T10:00:00+01:00``. Without an offset it is local time; without a time it is midnight. Raises
    :class:`ConfigError` for other strings, and for numbers whose nanoseconds exceed the range of a float.
    """
    from fractions import Fraction

    try:
        if isinstance(value, str):
            return _parsed(value)
        moment = round(Fraction(value) * _BILLION)
        float(moment)
    # Dates out of range for the local time zone raise OverflowError or OSError.
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{str(value)[:60]!r} is not a time: expected a date such as '2026-01-31', '2026-01-31T10:00' or "
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
