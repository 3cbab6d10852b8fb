"""What the full-text index gets of a text: scripts without spaces cut into pairs of letters, the rest as it is.

A run of letters of such a script becomes the pairs of its neighbours, each beginning one letter after the one before,
and at last the last letter alone: each letter begins one term, so that one letter is found by prefix and several in a
row by the phrase of their pairs. These are the overlapping bigrams of Nie, Gao, Zhang & Zhou 2000, "On the use of words
and n-grams for Chinese information retrieval".
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from itertools import pairwise

_SOUTH_EAST_ASIAN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ecf\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
)
_VOICED_MARKS = "\u3099\u309a"
_UNSPACED = _SOUTH_EAST_ASIAN + (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u302f\u3038-\u303c\u3105-\u312f\u31a0-\u31bf"  # Han: radicals, numerals, sounds
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"  # Han: ideographs
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b16f"  # Hiragana, Katakana
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff"  # Hangul
)
_WIDE = "\uff01-\uffee"  # Latin as wide as ideographs, and narrow Katakana and Hangul
_LEFT_OUT = (
    "\ufe00-\ufe0f\U000e0100-\U000e01ef"  # which variant of a letter or emoji is shown
    "\u0640\u064b-\u0652\u0670"  # Arabic: vowels, and strokes that make a word longer
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew: vowels and accents
)


def _marks(ranges: str) -> str:
    """Return those characters of a regular expression's class that are written on the letter before them."""
    return "".join(
        chr(code)
        for first, last in re.findall("(.)-(.)", ranges)
        for code in range(ord(first), ord(last) + 1)
        if unicodedata.category(chr(code)).startswith("M")
    )


_MARKS = _VOICED_MARKS + _marks(_SOUTH_EAST_ASIAN)
_SPECIAL = re.compile(f"[{_UNSPACED}{_WIDE}{_LEFT_OUT}]")
_WIDE_RUN = re.compile(f"[{_WIDE}]+")
_LEFT_OUT_RUN = re.compile(f"[{_LEFT_OUT}]+")
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
_MARKED = re.compile(f"[{_MARKS}]")
_LETTER = re.compile(f"[^{_MARKS}][{_MARKS}]*|[{_MARKS}]+")


def plain(text: str) -> str:
    """Return ``text`` with one form for letters that have several, and without vowels that are seldom written."""
    if text.isascii() or _SPECIAL.search(text) is None:
        return text
    text = _LEFT_OUT_RUN.sub("", _WIDE_RUN.sub(_compatible, text))
    return _UNSPACED_RUN.sub(_compatible, text)


def cut(text: str) -> str:
    """Return ``text`` as the full-text index gets it; one without letters that need it is returned as it is."""
    if text.isascii() or _SPECIAL.search(text) is None:
        return text
    return _UNSPACED_RUN.sub(lambda run: f" {' '.join(pairs(run[0]))} ", plain(text))


def pairs(run: str) -> list[str]:
    """Return the terms of a run of letters of a script without spaces: all pairs of neighbours, and the last letter."""
    letters = _LETTER.findall(run) if _MARKED.search(run) else list(run)
    return [*map("".join, pairwise(letters)), letters[-1]]


def register(connection: sqlite3.Connection) -> None:
    """Give a connection the function ``terms``, which the triggers that keep the full-text index call."""
    connection.execute("PRAGMA trusted_schema = ON")  # where SQLite was built to let triggers call none of a program's
    connection.create_function("terms", 1, _terms, deterministic=True)


def _compatible(run: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", run[0])


def _terms(value: str | bytes | None) -> str | None:
    if isinstance(value, bytes):  # which only a damaged store holds
        value = value.decode("utf-8", "replace")
    return None if value is None else cut(value)
