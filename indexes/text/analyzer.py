"""What the full-text index gets of a text and of a query: words or their stems, and pairs of letters.

A run of letters of a script without spaces becomes the pairs of its neighbours, each beginning one letter after the one
before, and at last the last letter alone: each letter begins one term, so that one letter is found by prefix and
several in a row by the phrase of their pairs. These are the overlapping bigrams of Nie, Gao, Zhang & Zhou 2000, "On the
use of words and n-grams for Chinese information retrieval".
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections import deque
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from ragembed.indexes.text.stemming import ENGLISH, stemmer

_SOUTH_EAST_ASIAN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ecf\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
)
_UNSPACED = _SOUTH_EAST_ASIAN + (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u302f\u3038-\u303c\u3105-\u312f\u31a0-\u31bf"  # Han: radicals, numerals, sounds
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"  # Han: ideographs
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b16f"  # Hiragana, Katakana
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff"  # Hangul
)
_WIDE = "\uff01-\uffee"  # Latin as wide as ideographs, and narrow Katakana and Hangul
_SIGNED = re.compile(r"(?<!\w)([cC]\+\+|[cCfF]#)(?![a-zA-Z_+#])")
_SIGNS = {"+": "plus", "#": "sharp"}
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


class _WordPatterns(NamedTuple):
    """Patterns: ``word``; that or ``run``, letters of a script without spaces; and names as C++ too."""

    word: re.Pattern[str]
    word_or_run: re.Pattern[str]
    name_word_or_run: re.Pattern[str]


class _Scripts:
    """What finds letters of all scripts, made for the first text that is not ASCII: it takes as long as a query."""

    def __init__(self) -> None:
        marks = "\u3099\u309a" + _marks(_SOUTH_EAST_ASIAN)
        in_words = _marks("\u0300-\u20f0\ua66f-\uabff")
        self.special = re.compile(f"[{_UNSPACED}{_WIDE}{_LEFT_OUT}]")
        self.wide_run = re.compile(f"[{_WIDE}]+")
        self.left_out_run = re.compile(f"[{_LEFT_OUT}]+")
        self.run = re.compile(f"[{_UNSPACED}]+")
        self.marked = re.compile(f"[{marks}]")
        self.letter = re.compile(f"[^{marks}][{marks}]*|[{marks}]+")
        word = f"(?:(?![{_UNSPACED}])[^\\W_]|[{in_words}])+"
        self.words = _WordPatterns(
            re.compile(word),
            re.compile(f"(?P<run>{self.run.pattern})|{word}"),
            re.compile(f"{_SIGNED.pattern}|(?P<run>{self.run.pattern})|{word}"),
        )


_scripts = cache(_Scripts)
_ASCII_WORDS = _WordPatterns(
    re.compile(r"[^\W_]+"),
    re.compile(r"(?P<run>(?!))|[^\W_]+"),
    re.compile(rf"{_SIGNED.pattern}|(?P<run>(?!))|[^\W_]+"),
)


class Phrase(NamedTuple):
    """Terms that are to follow one another; with ``prefix`` the last one is only the beginning of a term."""

    terms: str
    prefix: bool = False


class Analyzer:
    """Makes the terms of texts and queries in one language.

    Raises :class:`ConfigError` and :class:`MissingExtraError` as :func:`ragembed.indexes.text.stemming.stemmer` does.
    """

    def __init__(self, language: str = ENGLISH) -> None:
        self._stem = stemmer(language)

    def of_text(self, text: str) -> str:
        """Return ``text`` as the full-text index gets it; English and unstemmed texts with spaces are not changed."""
        if self._stem is None and not (_is_special(text) or _has_signs(text)):
            return text
        return _cut(self._plain(text))

    def of_phrase(self, text: str) -> Phrase:
        """Return the terms that ``text`` has where it stands in another text."""
        text = self._plain(text)
        last = deque(_words(text).word_or_run.finditer(text), maxlen=1)
        if not last or last[0]["run"] is None:
            return Phrase(_cut(text))
        *pairs, letter = _pairs(last[0]["run"])
        return Phrase(" ".join([_cut(text[: last[0].start()]), *(pairs or [letter])]), prefix=not pairs)

    def parts(self, text: str) -> list[Phrase]:
        """Return the terms of ``text``, each alone."""
        found: list[Phrase] = []
        text = self._plain(text)
        for match in _words(text).word_or_run.finditer(text):
            if match["run"] is None:
                found.append(Phrase(match[0]))
                continue
            *pairs, letter = _pairs(match["run"])
            found += map(Phrase, pairs) if pairs else [Phrase(letter, prefix=True)]
        return found

    def _plain(self, text: str) -> str:
        """Return ``text`` with one form for letters that have several, without marks, and with stems of words.

        C++, C# and F# become words that are not the letter alone.
        """
        if _has_signs(text):
            text = _SIGNED.sub(_spelt, text)
        if _is_special(text):
            scripts = _scripts()
            text = scripts.run.sub(_compatible, scripts.left_out_run.sub("", scripts.wide_run.sub(_compatible, text)))
        stem = self._stem
        if stem is None:
            return text
        return _words(text).word.sub(lambda word: stem(word[0].lower()), unicodedata.normalize("NFC", text))


def words_or_runs(text: str) -> Iterator[re.Match[str]]:
    """Yield each word of a text as it is written, or as group ``run``, letters of a script without spaces."""
    return _words(text).name_word_or_run.finditer(text)


def letters_of(run: str) -> list[str]:
    """Return the letters of a run of a script without spaces, each with its marks."""
    scripts = _scripts()
    return scripts.letter.findall(run) if scripts.marked.search(run) else list(run)


@cache
def of_language(language: str) -> Analyzer:
    """Return what makes terms in ``language``; raises as :class:`Analyzer`."""
    return Analyzer(language)


def register(connection: sqlite3.Connection, language: str) -> None:
    """Give a connection the function ``terms``, which the triggers that keep the full-text index call."""

    def terms(value: str | bytes | None) -> str | None:
        if isinstance(value, bytes):  # which only a damaged store holds
            value = value.decode("utf-8", "replace")
        return None if value is None else of_language(language).of_text(value)

    connection.execute("PRAGMA trusted_schema = ON")  # where SQLite was built to let triggers call none of a program's
    connection.create_function("terms", 1, terms, deterministic=True)


def _words(text: str) -> _WordPatterns:
    return _ASCII_WORDS if text.isascii() else _scripts().words


def _cut(text: str) -> str:
    return text if text.isascii() else _scripts().run.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)


def _is_special(text: str) -> bool:
    return not text.isascii() and _scripts().special.search(text) is not None


def _has_signs(text: str) -> bool:
    return "++" in text or "#" in text


def _spelt(name: re.Match[str]) -> str:
    return f" {name[0][0]}{''.join(_SIGNS[sign] for sign in name[0][1:])} "


def _compatible(run: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", run[0])


def _pairs(run: str) -> list[str]:
    """Return the terms of a run of letters of a script without spaces: all pairs of neighbours, and the last letter."""
    letters = letters_of(run)
    return [*map("".join, pairwise(letters)), letters[-1]]
