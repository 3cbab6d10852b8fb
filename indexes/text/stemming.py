"""Stemmers by the name of a language, and the tokenizer that the full-text index has for each."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

from ragembed.errors import ConfigError
from ragembed.extras import needed_for

ENGLISH = "english"
NO_STEMMER = "none"

_WORDS = "unicode61 categories 'L* N* Co Mn Mc'"
_STEMS_KEPT = 1 << 16


@dataclass(frozen=True, slots=True)
class AnalyzerConfig:
    """What made the terms of a store: the language, and the release of Snowball that stems it, if one does."""

    language: str = ENGLISH
    stemmer: str | None = None

    @classmethod
    def of_language(cls, language: str) -> AnalyzerConfig:
        """Return what makes terms in ``language`` here; raises as :func:`stemmer`."""
        return cls(language, stemmer_version(language))

    @classmethod
    def from_dict(cls, value: Any) -> AnalyzerConfig:
        """Read what :meth:`to_dict` wrote; raises :class:`ConfigError` where it did not."""
        if not isinstance(value, dict) or set(value) != {"language", "stemmer"}:
            raise ConfigError(f"{value!r} does not say what made terms: expected language and stemmer")
        language, release = value["language"], value["stemmer"]
        if not isinstance(language, str) or not isinstance(release, str | None):
            raise ConfigError(f"{value!r} does not say what made terms: expected texts")
        return cls(language, release)

    def to_dict(self) -> dict[str, str | None]:
        """Return JSON values."""
        return asdict(self)


def tokenizer(language: str) -> str:
    """Return the tokenizer, as FTS5 names it, of an index of texts in ``language``: only English is stemmed by it."""
    return f"porter {_WORDS}" if language == ENGLISH else _WORDS


def stemmer_version(language: str) -> str | None:
    """Return the release of Snowball that stems ``language`` here, None where it does not.

    PyStemmer and snowballstemmer are numbered as the rules that both are generated from. Raises as :func:`stemmer`.
    """
    if stemmer(language) is None:
        return None
    from importlib.metadata import version

    package = "snowballstemmer" if importlib.util.find_spec("Stemmer") is None else "PyStemmer"
    return ".".join(version(package).split(".")[:2])


@cache
def stemmer(language: str) -> Callable[[str], str] | None:
    """Return what makes the stem of a lower-case word, None where there is nothing to do.

    It may be called by several threads at once. Raises :class:`ConfigError` for a language that there is not,
    :class:`MissingExtraError` for one of Snowball's where the package snowballstemmer is not installed.
    """
    if language in (ENGLISH, NO_STEMMER):
        return None
    snowball = _snowball(language)
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


def _snowball(language: str) -> ModuleType:
    with needed_for(f"the language {language!r}"):
        import snowballstemmer
    module: ModuleType = snowballstemmer
    return module
