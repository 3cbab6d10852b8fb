"""Validation of settings."""

from __future__ import annotations

from collections.abc import Sequence

from ragembed.errors import ConfigError


def one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise :class:`ragembed.errors.ConfigError` unless ``value``, the setting ``name``, is one of ``choices``."""
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}: expected one of {', '.join(choices)}")
