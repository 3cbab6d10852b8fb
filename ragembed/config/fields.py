"""Settings: fields of dataclasses whose metadata have what the command line, files, errors and the reference say."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from ragembed.errors import ConfigError

Settings = TypeVar("Settings")

_TYPES: dict[str, tuple[type, str]] = {
    "str": (str, "a string"),
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "tuple[str, ...]": (tuple, "a list of strings"),
    "None": (type(None), "None"),
}
"""The class and the description of each annotation of :func:`check_values`; any other is a ``Literal`` of strings."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is said about a setting, in one place.

    ``text`` is the help of the option ``flag``, where backticks mark code; only the reference has ``more``, and a link
    to ``page``. ``metavar`` names the value. ``default`` says what the option is if it is not given. ``type`` reads the
    value on the command line, if the annotation of the field does not say how.
    """

    text: str
    flag: str | None = None
    metavar: str | None = None
    default: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    more: str = ""
    page: str = ""
    type: Any = None


def setting(value: Any, text: str, flag: str | None = None, metavar: str | None = None, **about: Any) -> Any:
    """Return the field of a setting with the default ``value``; ``about`` has the other fields of :class:`Setting`."""
    return dataclasses.field(default=value, metadata={"setting": Setting(text, flag, metavar, **about)})


def field_of(kind: type, name: str) -> dataclasses.Field[Any]:
    """Return the field ``name`` of a dataclass."""
    return next(field for field in dataclasses.fields(kind) if field.name == name)


def left_open(kind: type, name: str) -> Any:
    """Return a field like the setting ``name`` of a dataclass, whose value is None if it is not given."""
    field = field_of(kind, name)
    about = dataclasses.replace(field.metadata["setting"], default=str(field.default))
    return dataclasses.field(default=None, metadata={"setting": about})


def settings_of(kind: type) -> dict[str, Setting]:
    """Return what is said about each setting of a dataclass, by the name of its field."""
    return {field.name: field.metadata["setting"] for field in dataclasses.fields(kind) if field.metadata}


def documented(kind: type[Settings]) -> type[Settings]:
    """Put the settings of a dataclass into its docstring, instead of ``{settings}``."""
    entries = []
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        about: Setting = field.metadata["setting"]
        names = " | ".join(dict.fromkeys(str(field.type).split(" | "))).removesuffix(" | None")
        shown = "{" + ", ".join(f'"{choice}"' for choice in about.choices) + "}" if about.choices else names
        default = "optional" if field.default is None else f"default {field.default!r}".replace("'", '"')
        text = textwrap.fill(f"{about.text} {about.more}".replace("`", "``"), 112, break_on_hyphens=False)
        entries.append(f"{field.name} : {shown}, {default}\n{textwrap.indent(text, '    ')}")
    kind.__doc__ = inspect.cleandoc(kind.__doc__ or "").replace("{settings}", "\n".join(entries))
    return kind


def check_values(settings: Any) -> None:
    """Raise :class:`ConfigError` for a value of the wrong type, that is no choice, or below the least; make tuples."""
    kind: type = type(settings)
    for name, about, classes, described in _rules(kind):
        value: Any = getattr(settings, name)
        if isinstance(value, list) and tuple in classes:
            value = tuple(value)
            object.__setattr__(settings, name, value)
        is_other_bool = isinstance(value, bool) and bool not in classes
        strings = not isinstance(value, tuple) or all(isinstance(part, str) for part in value)
        fits = isinstance(value, classes)
        if not fits or is_other_bool or not strings:
            raise ConfigError(f"{name} is {value!r}: expected {described}")
        if about.choices and value is not None and value not in about.choices:
            raise ConfigError(f"{name} is {value!r}: expected one of {', '.join(about.choices)}")
        if about.least is not None and value is not None and value < about.least:
            raise ConfigError(f"{name} is {value}: expected at least {about.least}")


@cache
def _rules(kind: type) -> list[tuple[str, Setting, tuple[type, ...], str]]:
    """Return the name of each field, what is said about it, the classes of its values, and their description."""
    rules = []
    for field in dataclasses.fields(kind):
        expected = [_TYPES.get(part, _TYPES["str"]) for part in str(field.type).split(" | ")]
        classes, described = tuple(class_ for class_, _ in expected), " or ".join(text for _, text in expected)
        rules.append((field.name, field.metadata["setting"], classes, described))
    return rules


def one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise :class:`ConfigError` unless ``value``, the setting ``name``, is one of ``choices``."""
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}: expected one of {', '.join(choices)}")
