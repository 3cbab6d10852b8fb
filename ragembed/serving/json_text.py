"""JSON that clients send."""

from __future__ import annotations

import json
import re
from typing import Any

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


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
