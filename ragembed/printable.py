"""Texts of documents, made safe to show in a terminal or on a web page, and sizes for people."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SECRET = re.compile(
    r"""(?<=:/)(/?)[^\s/?#@'"]+@|([?&][^=&#\s'"]*(?:key|token|secret|password|signature|credential|sig)=)[^&#\s'"]+""",
    re.IGNORECASE,
)
"""The user name and password, or the value of a secret field, in a URL or in the path that was made of one."""
_IN_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Remove control characters and bidirectional overrides; keep tabs and newlines. Escape lone surrogates."""
    return _CONTROL.sub("", text).encode("utf-8", "backslashreplace").decode()


def printable_line(text: str) -> str:
    """Return :func:`printable` text as one line: tabs and newlines become spaces."""
    return " ".join(re.split("[\t\n\u2028\u2029]", printable(text)))


def printable_json(text: str) -> str:
    """Escape the characters of JSON text that :func:`printable` would change, and line separators."""
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural, such as ``1 file`` or ``2,048 chunks``."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def readable_bytes(size: float) -> str:
    """Return a size for people, such as ``12.3 MB``."""
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:,.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GB"


def without_secrets(text: str) -> str:
    """Replace user names, passwords and keys in the URLs of ``text``."""
    return _SECRET.sub(lambda match: f"{match[2]}…" if match[2] else f"{match[1]}…@", text)
