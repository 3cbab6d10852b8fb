"""The JSON that clients send and get, over MCP and HTTP."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ragembed.errors import ConfigError

# An escape: a pair of surrogates, half of one, or any other.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


def repaired(text: str) -> str:
    """Return JSON with U+FFFD for each half of a surrogate pair, which JavaScript sends but UTF-8 cannot hold."""
    return _ESCAPE.sub(lambda match: "\\ufffd" if match[1] else match[0], text)


def parsed(text: str) -> Any:
    """Return the value of JSON; raise :class:`ValueError` for other text, such as NaN."""
    return json.loads(text, parse_constant=_refuse_constant)


def as_json(value: Any) -> bytes:
    """Return a value as JSON. Numbers that JSON does not have become null, and lone surrogates are escaped."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def read_json(body: bytes) -> dict[str, Any]:
    """Return the object in a body; raise :class:`ConfigError` if there is none."""
    try:
        value = parsed(repaired(body.decode()))
    except (ValueError, RecursionError):
        raise ConfigError("the body is not JSON: expected a JSON object") from None
    if not isinstance(value, dict):
        raise ConfigError('the body is not a JSON object: expected one such as {"q": "store locks"}')
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
