"""Settings: fields of dataclasses whose metadata have what the command line, files, errors and the reference say."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ragembed.errors import ConfigError

Settings = TypeVar("Settings")

_NAMES: Mapping[Any, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    type(None): "None",
}
"""The description of each type of a single value."""


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
    """Raise :class:`ConfigError` for a value of the wrong type or below the least; make tuples of lists."""
    for name, kind in _types_of(type(settings)).items():
        before: Any = getattr(settings, name)
        value = read_value(kind, before, name)
        if value is not before:
            object.__setattr__(settings, name, value)
        least = _settings_of(type(settings))[name].least
        if least is not None and value is not None and value < least:
            raise ConfigError(f"{name} is {value}: expected at least {least}")


_types_of: Callable[[Any], dict[str, Any]] = cache(get_type_hints)
_settings_of: Callable[[Any], dict[str, Setting]] = cache(settings_of)
_origin_of: Callable[[Any], Any] = cache(get_origin)
_arguments_of: Callable[[Any], tuple[Any, ...]] = cache(get_args)


def from_json(kind: type[Settings], value: Any) -> Settings:
    """Return the dataclass or typed dictionary in a JSON value; raise :class:`ConfigError` if it has other fields.

    Only fields with a default may be missing. A class with a method ``from_dict`` reads its values itself.
    """
    types = _types_of(kind)
    required = getattr(kind, "__required_keys__", None)
    if required is None:
        fields = dataclasses.fields(kind)  # type: ignore[arg-type]
        required = {field.name for field in fields if field.default is field.default_factory is dataclasses.MISSING}
    if not isinstance(value, dict) or not required <= value.keys() <= types.keys():
        raise ConfigError(f"invalid {kind.__name__} {value!r:.80}: expected an object with {', '.join(types)}")
    return kind(**{name: read_value(types[name], inner, name) for name, inner in value.items()})


def read_value(kind: Any, value: Any, name: str) -> Any:
    """Return a JSON value as the type of an annotation; raise :class:`ConfigError` about ``name`` if it is none."""
    try:
        return _read(kind, value)
    except TypeError:
        raise ConfigError(f"{name} is {value!r:.80}: expected {_described(kind)}") from None


def _read(kind: Any, value: Any) -> Any:
    """Return a value as a type; raise :class:`TypeError` if it is of another, :class:`ConfigError` if it is invalid."""
    if kind in _NAMES:
        if type(value) is kind or (kind is float and type(value) is int):
            return value
        raise TypeError
    origin, parts = _origin_of(kind), _arguments_of(kind)
    if origin is None:
        return kind.from_dict(value) if hasattr(kind, "from_dict") else from_json(kind, value)
    if origin in (Union, UnionType):
        if type(value) in parts:
            return value
        for part in parts:
            with suppress(TypeError):
                return _read(part, value)
    elif origin in (tuple, list, set) and isinstance(value, (list, tuple)):
        items = [_read(parts[0], item) for item in value]
        return value if type(value) is origin and items == list(value) else origin(items)
    elif origin is dict and isinstance(value, dict):
        return {key: _read(parts[1], inner) for key, inner in value.items()}
    elif origin is Literal and value in parts:
        return value
    raise TypeError


def _described(kind: Any) -> str:
    origin, parts = _origin_of(kind), _arguments_of(kind)
    if origin in (Union, UnionType):
        return " or ".join(map(_described, parts))
    if origin is Literal:
        return f"one of {', '.join(parts)}"
    if origin in (tuple, list, set):
        return "a list of strings" if parts[0] is str else "a list"
    return _NAMES.get(kind, "an object")


def one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise :class:`ConfigError` unless ``value``, the setting ``name``, is one of ``choices``."""
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}: expected one of {', '.join(choices)}")
