"""Stemmers by language, and the tokenizer of the full-text index for each language."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import Any

from ragembed.errors import ConfigError

ENGLISH = "english"
NO_STEMMER = "none"

_WORDS = "unicode61 categories 'L* N* Co Mn Mc'"
_STEMS_KEPT = 1 << 16


@dataclass(frozen=True, slots=True)
class AnalyzerConfig:
    """The text analysis of a store: its language, and the Snowball release of its stemmer, if it has one."""

    language: str = ENGLISH
    stemmer: str | None = None

    @classmethod
    def of_language(cls, language: str) -> AnalyzerConfig:
        """Return the text analysis for ``language`` with the installed stemmer; raises errors of :func:`stemmer`."""
        return cls(language, stemmer_version(language))

    @classmethod
    def from_dict(cls, value: Any) -> AnalyzerConfig:
        """Create a configuration from the output of :meth:`to_dict`; raises :class:`ConfigError` if invalid."""
        if not isinstance(value, dict) or set(value) != {"language", "stemmer"}:
            raise ConfigError(f"invalid text analysis {value!r}: expected an object with language and stemmer")
        language, release = value["language"], value["stemmer"]
        if not isinstance(language, str) or not isinstance(release, str | None):
            raise ConfigError(f"invalid text analysis {value!r}: expected texts for language and stemmer")
        return cls(language, release)

    def to_dict(self) -> dict[str, str | None]:
        """Return the fields as JSON values."""
        return asdict(self)


def tokenizer(language: str) -> str:
    """Return the FTS5 tokenizer for an index of texts in ``language``; it stems English only."""
    return f"porter {_WORDS}" if language == ENGLISH else _WORDS


def stemmer_version(language: str) -> str | None:
    """Return the installed Snowball release that stems ``language``, or None if Snowball does not stem it.

    PyStemmer and snowballstemmer have the version of the Snowball rules that they are generated from. Raises the errors
    of :func:`stemmer`.
    """
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
