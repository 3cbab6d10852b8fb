"""Convert texts and queries to terms of the full-text index: words or their stems, and pairs of letters.

A run of letters in a script without spaces becomes overlapping pairs of letters, followed by the last letter alone.
Every letter starts one term. A single letter is therefore found as a prefix, and several letters in a row as the phrase
of their pairs. These are the overlapping bigrams of Nie, Gao, Zhang & Zhou 2000, "On the use of words and n-grams for
Chinese information retrieval".
"""

from __future__ import annotations

import importlib.util
import re
import sqlite3
import threading
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

from ragembed.errors import ConfigError
from ragembed.languages import stop_words

ENGLISH = "english"
NO_STEMMER = "none"

_WORDS = "unicode61 categories 'L* N* Co Mn Mc'"
_STEMS_KEPT = 1 << 16
_AROUND_WORDS = "?!.,:;()[]'’"
_CONTRACTED = ("", "s", "d", "m", "ll", "re", "ve")


@dataclass(frozen=True, slots=True)
class AnalyzerConfig:
    """The text analysis of a store: its language, and the Snowball release of its stemmer, if it has one."""

    language: str = ENGLISH
    stemmer: str | None = None

    @classmethod
    def of_language(cls, language: str) -> AnalyzerConfig:
        """Return the text analysis for ``language`` with the installed stemmer; raises errors of :func:`stemmer`."""
        return cls(language, stemmer_version(language))

    def to_dict(self) -> dict[str, str | None]:
        """Return the fields as JSON values."""
        return asdict(self)


def tokenizer(language: str) -> str:
    """Return the FTS5 tokenizer for an index of texts in ``language``; it stems English only."""
    return f"porter {_WORDS}" if language == ENGLISH else _WORDS


def stemmer_version(language: str) -> str | None:
    """Return the installed Snowball release that stems ``language``, or None if Snowball does not stem it."""
    if stemmer(language) is None:
        return None
    from importlib.metadata import version

    package = "snowballstemmer" if importlib.util.find_spec("Stemmer") is None else "PyStemmer"
    return ".".join(version(package).split(".")[:2])


@cache
def stemmer(language: str) -> Callable[[str], str] | None:
    """Return a thread-safe function that stems a lower-case word, or None if the language needs none.

    Raises :class:`ConfigError` for an unknown language.
    """
    if language in (ENGLISH, NO_STEMMER):
        return None
    import snowballstemmer as snowball

    if language not in snowball.algorithms():
        others = sorted({*snowball.algorithms(), NO_STEMMER} - {ENGLISH})
        raise ConfigError(f"unknown language {language!r}: expected {ENGLISH}, {', '.join(others)}")
    stem_word = snowball.stemmer(language).stemWord
    one_at_a_time = threading.Lock()

    @lru_cache(_STEMS_KEPT)
    def stem(word: str) -> str:
        with one_at_a_time:
            return str(stem_word(word))

    return stem


_SOUTH_EAST_ASIAN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ecf\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
)
_UNSPACED = _SOUTH_EAST_ASIAN + (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u302f\u3038-\u303c\u3105-\u312f\u31a0-\u31bf"  # Han: radicals, Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"  # Han: ideographs
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b16f"  # Hiragana, Katakana
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff"  # Hangul
)
_WIDE = "\uff01-\uffee"  # full-width Latin, half-width Katakana and Hangul
_SIGNED = re.compile(r"(?<!\w)([cC]\+\+|[cCfF]#)(?![a-zA-Z_+#])")
_SIGNS = {"+": "plus", "#": "sharp"}
_EMOJI = (
    "\u231a\u231b\u23e9-\u23f3\u2600-\u260f\u2613-\u26ff\u2705\u2708-\u270d\u2728\u274c\u2753-\u2757\u2764"
    "\u2795-\u2797\u2b50\u2b55\U0001f000-\U0001faff"
)
_LEFT_OUT = (
    "\ufe00-\ufe0f\U000e0100-\U000e01ef"  # variation selectors
    "\u0640\u064b-\u0652\u0670"  # Arabic: vowels and tatweel
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew: vowels and accents
)


def _marks(ranges: str) -> str:
    """Return the combining marks among the ranges of a regular expression's character class."""
    return "".join(
        chr(code)
        for first, last in re.findall("(.)-(.)", ranges)
        for code in range(ord(first), ord(last) + 1)
        if unicodedata.category(chr(code)).startswith("M")
    )


class _WordPatterns(NamedTuple):
    """Patterns for words; for words or runs, which are letters in scripts without spaces; and with names like C++."""

    word: re.Pattern[str]
    word_or_run: re.Pattern[str]
    name_word_or_run: re.Pattern[str]


class _Scripts:
    """Patterns for letters of all scripts. Compiling them takes as long as a query, so it waits for non-ASCII text."""

    def __init__(self) -> None:
        marks = "\u3099\u309a" + _marks(_SOUTH_EAST_ASIAN)
        in_words = _marks("\u0300-\u20f0\ua66f-\uabff")
        self.special = re.compile(f"[{_UNSPACED}{_WIDE}{_LEFT_OUT}{_EMOJI}]")
        self.emoji = re.compile(f"[{_EMOJI}]")
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
    """Terms in sequence; with ``prefix``, the last one is the prefix of a term."""

    terms: str
    prefix: bool = False


class Analyzer:
    """Converts texts and queries in one language to terms; raises as :func:`stemmer`."""

    def __init__(self, language: str = ENGLISH) -> None:
        self._stem = stemmer(language)
        self._stop_words = stop_words(language)

    def of_text(self, text: str) -> str:
        """Return ``text`` in the form for the full-text index; English and unstemmed words stay unchanged."""
        if self._stem is None and not _has_signs(text) and (text.isascii() or not _is_special(text)):
            return text
        return _cut(self._plain(text))

    def is_stop_word(self, word: str) -> bool:
        """Return whether a word of a query says nothing about its subject, such as ``what's``; ``IT`` does."""
        if word.isupper() and len(word) > 1:
            return False
        base, _, ending = word.strip(_AROUND_WORDS).lower().replace("’", "'").partition("'")
        return ending == "t" or (base in self._stop_words and ending in _CONTRACTED)

    def of_phrase(self, text: str) -> Phrase:
        """Return the phrase that finds ``text`` inside another text."""
        text = self._plain(text)
        last = deque(_words(text).word_or_run.finditer(text), maxlen=1)
        if not last or last[0]["run"] is None:
            return Phrase(_cut(text))
        *pairs, letter = _pairs(last[0]["run"])
        return Phrase(" ".join([_cut(text[: last[0].start()]), *(pairs or [letter])]), prefix=not pairs)

    def parts(self, text: str) -> list[Phrase]:
        """Return the terms of ``text`` as separate phrases."""
        phrases: list[Phrase] = []
        text = self._plain(text)
        for match in _words(text).word_or_run.finditer(text):
            if match["run"] is None:
                phrases.append(Phrase(match[0]))
                continue
            *pairs, letter = _pairs(match["run"])
            phrases += map(Phrase, pairs) if pairs else [Phrase(letter, prefix=True)]
        return phrases

    def _plain(self, text: str) -> str:
        """Return ``text`` with normalised letters, without optional marks, and with stems instead of words.

        C++, C# and F# become words that differ from the single letter, and each emoji becomes a word.
        """
        if _has_signs(text):
            text = _SIGNED.sub(_spelt, text)
        if _is_special(text):
            scripts = _scripts()
            text = scripts.emoji.sub(lambda emoji: f" emoji{ord(emoji[0]):x}0 ", text)
            text = scripts.run.sub(_compatible, scripts.left_out_run.sub("", scripts.wide_run.sub(_compatible, text)))
        stem = self._stem
        if stem is None:
            return text
        return _words(text).word.sub(lambda word: stem(word[0].lower()), unicodedata.normalize("NFC", text))


def words_or_runs(text: str) -> Iterator[re.Match[str]]:
    """Yield a match for each word of a text; the group ``run`` has letters in scripts without spaces."""
    return _words(text).name_word_or_run.finditer(text)


def letters_of(run: str) -> list[str]:
    """Return the letters of a run in a script without spaces, each with its marks."""
    scripts = _scripts()
    return scripts.letter.findall(run) if scripts.marked.search(run) else list(run)


@cache
def of_language(language: str) -> Analyzer:
    """Return the analyzer for ``language``; raises the errors of :class:`Analyzer`."""
    return Analyzer(language)


def register(connection: sqlite3.Connection, language: str) -> None:
    """Register the SQL function ``terms`` on a connection; the triggers of the full-text index call it."""

    def terms(value: str | bytes | None) -> str | None:
        if isinstance(value, bytes):  # only in a damaged store
            value = value.decode("utf-8", "replace")
        return None if value is None else of_language(language).of_text(value)

    # Some builds of SQLite do not let triggers call functions of the program by default.
    connection.execute("PRAGMA trusted_schema = ON")
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
    """Return the terms of a run of letters in a script without spaces: all pairs of neighbours, and the last letter."""
    letters = letters_of(run)
    return [*map("".join, pairwise(letters)), letters[-1]]
