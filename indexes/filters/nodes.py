"""The nodes of a filter: fields, and conditions on them. Nodes check their values when they are created."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from dataclasses import field as attribute
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from ragembed.errors import ConfigError
from ragembed.indexes.filters.globs import check_glob, regular_expression
from ragembed.metadata_values import plain_value

_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal() * _DAY
_BILLION = 1_000_000_000
_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([01][0-9]|2[0-4])(?::([0-5][0-9])(?::([0-5][0-9])(?:[.,]([0-9]+))?)?)?"
    r"(?:[Zz]()|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9])(?::?([0-5][0-9]))?)?)?)?"
)
_DATED = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ][0-9]{1,2}(?::[0-9].*)?)?")
"""A text that is meant as a date, perhaps with a time."""


class _Moment(NamedTuple):
    """A date and time: whole seconds since the year 0, the digits of its fraction, and its offset in seconds if any."""

    seconds: int
    fraction: str
    offset: int | None


def moment_key(text: str) -> str | None:
    """Return a text that orders like the moment of an ISO 8601 date (by default midnight, UTC); else None."""
    moment = _parsed(text)
    return None if moment is None else f"{moment.seconds - (moment.offset or 0):012d}{moment.fraction}"


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
        raise _not_a_time(value, ", or a number of seconds since 1970") from None
    return moment


def _not_a_time(value: str | float, else_expected: str = "") -> ConfigError:
    return ConfigError(
        f"{str(value)[:60]!r} is not a time: expected a date such as '2026-01-31', '2026-01-31T10:00' or "
        f"'2026-01-31T10:00+01:00'{else_expected}"
    )


def _local_nanoseconds(text: str) -> int:
    moment = _parsed(text)
    if moment is None:
        raise ValueError(text)
    seconds = moment.seconds - _EPOCH
    if moment.offset is None:
        local = datetime(1970, 1, 1) + timedelta(seconds=seconds)
        seconds = (local.astimezone() - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(seconds=1)
    else:
        seconds -= moment.offset
    return seconds * _BILLION + int(moment.fraction[:9].ljust(9, "0"))


def _parsed(text: str) -> _Moment | None:
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    day, hour, minute, second, fraction, utc, sign, *offset = match.groups()
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


@lru_cache(maxsize=4096)
def key_of_bytes(data: bytes) -> str | None:
    """Return :func:`moment_key` of a text from SQLite, whose JSON can have lone surrogates."""
    return moment_key(data.decode("utf-8", "replace"))


Scalar: TypeAlias = str | int | float | bool

PATHS = ("path", "source")
FILE_PROPERTIES = (*PATHS, "ext", "size", "mtime")
CHUNK_PROPERTIES = ("title", "headings", "start_line", "end_line", "page")
PROPERTIES = (*FILE_PROPERTIES, *CHUNK_PROPERTIES)
ORDERS = ("<", "<=", ">", ">=")

_DEEPEST_PATH = 16
_LONGEST_PATTERN = 1_000
_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Field:
    """The field of a condition: a property of a chunk or its file, or else the metadata value of that name.

    ``metadata`` selects metadata even if there is a property with this name. ``nested`` are keys into JSON objects
    below the value; a field with nested keys is always metadata. ``is_text`` selects the text of the chunk, whatever
    the name.
    """

    name: str
    metadata: bool = False
    nested: tuple[str, ...] = ()
    is_text: bool = False

    def __post_init__(self) -> None:
        for key in (self.name, *self.nested):
            if not isinstance(key, str):
                raise ConfigError(f"a field is named {shown(key)}: expected a string, not {type(key).__name__}")
            _check_text("the name of a field", key)
        if len(self.nested) >= _DEEPEST_PATH:
            raise ConfigError(f"the field {self} has {len(self.nested) + 1} steps: expected at most {_DEEPEST_PATH}")

    def __str__(self) -> str:
        name = ".".join((self.name, *self.nested))
        return name if name.isprintable() and 0 < len(name) <= _LONGEST_SHOWN else shown(name)

    @property
    def may_be_property(self) -> bool:
        """Whether the field can name a property, not only metadata."""
        return not (self.metadata or self.nested or self.is_text)

    @property
    def property_name(self) -> str | None:
        """The property of this name, None if the field can only be metadata."""
        return self.name if self.may_be_property and self.name in PROPERTIES else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """``=``, ``<``, ``<=``, ``>`` or ``>=``; true only for values of the same type. Booleans have no order.

    Two ISO 8601 texts in metadata are compared as moments, other texts by code point. The order of a date that does not
    exist is an error.

    ``type`` is ``"string"``, ``"number"`` or ``"boolean"``; it distinguishes ``1`` from ``True``.
    """

    field: Field
    operator: str
    value: Scalar
    type: str = attribute(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", plain_value(self.value))
        if self.operator not in ("=", *ORDERS):
            raise ConfigError(f"unknown comparison {self.operator!r}: expected one of = {' '.join(ORDERS)}")
        kind = _checked_type(self.field, self.value)
        if kind == "boolean" and self.operator in ORDERS:
            raise ConfigError(
                f"{self.field} {self.operator} {shown(self.value)}: true and false have no order; "
                "compare them for equality"
            )
        is_date = kind == "string" and self.operator in ORDERS and _DATED.fullmatch(str(self.value)) is not None
        if is_date and self.field.property_name is None and moment_key(str(self.value)) is None:
            raise _not_a_time(self.value)
        object.__setattr__(self, "type", kind)


@dataclass(frozen=True, slots=True)
class In:
    """The field equals one of ``values``; false if there are none. ``types`` are those of :class:`Comparison`."""

    field: Field
    values: tuple[Scalar, ...]
    types: tuple[str, ...] = attribute(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(plain_value(value) for value in self.values))
        object.__setattr__(self, "types", tuple(_checked_type(self.field, value) for value in self.values))


@dataclass(frozen=True, slots=True)
class Contains:
    """The field is a list with an element equal to ``value`` (None for null), or a string that contains ``value``."""

    field: Field
    value: Scalar | None
    type: str = attribute(init=False, repr=False)

    def __post_init__(self) -> None:
        _refuse_for_time(self.field)
        object.__setattr__(self, "value", plain_value(self.value))
        kind = "null" if self.value is None else _checked_type(self.field, self.value)
        object.__setattr__(self, "type", kind)


@dataclass(frozen=True, slots=True)
class Like:
    """The field is a string like ``pattern``: ``%`` is any text, ``_`` one character; ASCII case does not matter."""

    field: Field
    pattern: str

    def __post_init__(self) -> None:
        _check_pattern(self.field, self.pattern)


@dataclass(frozen=True, slots=True)
class Glob:
    """The field is a string that the glob ``pattern`` matches; see :mod:`ragembed.indexes.filters.globs`.

    With ``or_below``, a file also matches if its path is ``pattern`` or lies below this folder.
    """

    field: Field
    pattern: str
    or_below: bool = False

    def __post_init__(self) -> None:
        _check_pattern(self.field, self.pattern)
        check_glob(self.pattern, path=self.is_path)

    @property
    def is_path(self) -> bool:
        """Whether the field is a path, which is matched step by step."""
        return self.field.property_name in PATHS


@dataclass(frozen=True, slots=True)
class Regex:
    """The field is a string in which the regular expression ``pattern`` matches somewhere."""

    field: Field
    pattern: str

    def __post_init__(self) -> None:
        _check_pattern(self.field, self.pattern)
        regular_expression(self.pattern)


@dataclass(frozen=True, slots=True)
class Exists:
    """The field exists and is not null; with ``filled``, nor is it an empty string or list."""

    field: Field
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Ids:
    """The chunk has one of these ids."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class And:
    """All conditions are true; also true without conditions."""

    operands: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one condition is true; false without conditions."""

    operands: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The condition is false, for example because a field is missing."""

    operand: Filter


Leaf: TypeAlias = Comparison | In | Contains | Like | Glob | Regex | Exists
Filter: TypeAlias = Leaf | Ids | And | Or | Not


def equals(field: Field, value: Scalar | None) -> Filter:
    """Return the condition that ``field`` equals ``value``; for None, that the field is missing or null."""
    return Not(Exists(field)) if value is None else Comparison(field, "=", value)


def any_of(field: Field, values: tuple[Scalar | None, ...]) -> Filter:
    """Return the condition that ``field`` equals one of ``values``, with None as in :func:`equals`."""
    in_values = In(field, tuple(value for value in values if value is not None))
    return Or((in_values, equals(field, None))) if any(value is None for value in values) else in_values


def shown(value: object) -> str:
    """Return a value formatted for an error message, shortened if long."""
    text = repr(value[: _LONGEST_SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _checked_type(field: Field, value: Any) -> str:
    kind = _type(field, value)
    if kind == "string":
        _check_text(f"{field} is compared with a string that", value)
    if field.property_name == "mtime":
        if kind == "boolean":
            raise ConfigError(f"mtime is a time: expected a date or seconds since 1970, not {shown(value)}")
        nanoseconds(value)
    return kind


def _type(field: Field, value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float)):
        try:
            finite = math.isfinite(value)
        except OverflowError:
            finite = False
        if not finite:
            number = "a number of more than 308 digits" if isinstance(value, int) else value
            raise ConfigError(f"{field} is compared with {number}: expected a number that a float can hold")
        return "number"
    if value is None:
        raise ConfigError(
            f"{field} is compared with null, which has no order: to match missing values, use IS NULL or $exists"
        )
    raise ConfigError(
        f"{field} is compared with {shown(value)}, of type {type(value).__name__}: expected a string, a "
        "number, true or false, or a date, time, UUID, path or decimal of Python"
    )


def _check_text(what: str, text: str) -> None:
    if "\0" in text:
        raise ConfigError(f"{what} contains the character U+0000, which SQLite's JSON cannot compare: leave it out")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{what} contains a lone surrogate, U+{ord(text[error.start]):04X}, which is not valid text: leave it out"
        ) from None


def _check_pattern(field: Field, pattern: Any) -> None:
    _refuse_for_time(field)
    if not isinstance(pattern, str):
        raise ConfigError(
            f"the pattern for {field} is {shown(pattern)}: expected a string, not {type(pattern).__name__}"
        )
    _check_text(f"the pattern for {field}", pattern)
    if len(pattern) > _LONGEST_PATTERN:
        raise ConfigError(f"the pattern for {field} has {len(pattern)} characters: expected at most {_LONGEST_PATTERN}")


def _refuse_for_time(field: Field) -> None:
    if field.property_name == "mtime":
        raise ConfigError("mtime is a time, not a text: compare it with a date, as in mtime >= '2026-01-31'")


TEXT = Field("the text of the chunk", is_text=True)
"""The field that stands for the text of a chunk."""
