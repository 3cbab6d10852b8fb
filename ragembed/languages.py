"""Everyday sentences in several languages, to recognise a language and to test what a model can read; stop words.

The sentences in ``everyday.txt`` say the same in each language, and nothing that a private corpus is about. The words
in ``stop_words.txt`` come from the lists of Snowball and NLTK. ``unmarked_words.txt`` has further words, also of other
languages, that are searched, but say too little to be highlighted.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragembed.extractors.protocol import Tokenizer

LATIN = "LATIN"

_SENTENCES, _STOP_WORDS, _UNMARKED = (
    Path(__file__).with_name(f"{name}.txt") for name in ("everyday", "stop_words", "unmarked_words")
)
_WORD = re.compile(r"[^\W\d_]+")
_HEADER = re.compile(r"\[(\w+)\]")
_LEAST_WORDS = 50
"""Number of words from which a language is recognised."""

_LEAST_SHARE, _LEAST_DISTINCT = 0.05, 5
"""Share of a text's words that the sentences of its language contain, and the number of different ones, at least."""

_ONE_LETTER_WORDS = ("HAN", "HIRAGANA", "KATAKANA", "HANGUL", "THAI")
"""Scripts in which a token of one letter is common, in models that know the script, too."""

_KANA = 0.05
"""Share of kana from which a text with Chinese characters is Japanese."""

_UNKNOWN_TOKENS = frozenset({"[UNK]", "<unk>"})

_MOST_UNKNOWN = 0.15
"""Share of unknown tokens in everyday sentences from which a model cannot read them."""

_MOST_TOKENS, _MOST_TOKENS_OF_SHORT_WORDS = 0.7, 1.2
"""Number of tokens per letter from which a model cannot read a script: it splits words into letters or bytes."""

_MOST_SPLIT = 1.35
"""Tokens per letter, relative to the model's best language in Latin script, from which a language is foreign to it."""

_TESTED = 20
"""Number of sentences that a model is tested with. Each language has at least this many."""


@cache
def everyday_sentences() -> Mapping[str, tuple[str, ...]]:
    """Return the everyday sentences by the English name of their language, in lower case."""
    return _sections(_SENTENCES)


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the words that say nothing about the subject of a query, in lower case; none for many languages."""
    return frozenset(" ".join(_sections(_STOP_WORDS).get(language, ())).split())


@cache
def _unmarked_words(language: str) -> frozenset[str]:
    return stop_words(language).union(" ".join(_sections(_UNMARKED).get(language, ())).split())


def unmarked_words_among(words: Iterable[str], language: str) -> set[str]:
    """Return the words of a query that are not highlighted: of ``language``, and of the language of the query.

    A query is in another language if more of its words, and at least two, are such words of that language.
    """
    lower = {word: word.lower() for word in words}
    own = _unmarked_words(language)
    counts = {name: len(_unmarked_words(name) & set(lower.values())) for name in _sections(_UNMARKED)}
    best = max(counts, key=lambda name: (counts[name], name == language, name == "english"))
    is_other = counts[best] > counts.get(language, 0) and (counts[best] > 1 or not own)
    return {word for word, key in lower.items() if key in own or (is_other and key in _unmarked_words(best))}


@cache
def _sections(file: Path) -> dict[str, tuple[str, ...]]:
    """Return the lines of a file by the name above them."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if header := _HEADER.fullmatch(line):
            lines = sections[header[1]] = []
        else:
            lines.append(line)
    return {name: tuple(lines) for name, lines in sections.items()}


def scripts(text: str) -> Counter[str]:
    """Return the number of letters and marks of each script, such as ``LATIN``, ``CYRILLIC`` or ``HAN``."""
    counts = Counter[str]()
    for letter, times in Counter(text).items():
        if unicodedata.category(letter)[0] in "LM":
            counts[script_of(letter)] += times
    return counts


@cache
def script_of(letter: str) -> str:
    """Return the script of a letter: the first word of its Unicode name."""
    script = unicodedata.name(letter, "UNKNOWN").partition(" ")[0]
    return "HAN" if script in ("CJK", "IDEOGRAPHIC") else script


def main_language(texts: Iterable[str]) -> str | None:
    """Return the language that most of ``texts`` is in, by its English name, or None if it is not recognised.

    Frequent words distinguish languages with the same script.
    """
    together = "\n".join(texts)
    counts = scripts(together)
    if not counts:
        return None
    script = max(counts, key=lambda name: (counts[name], name))
    east_asian = counts["HAN"] + counts["HIRAGANA"] + counts["KATAKANA"]
    if east_asian >= counts[script]:
        kana = counts["HIRAGANA"] + counts["KATAKANA"]
        return "japanese" if kana > _KANA * east_asian else "chinese"
    possible = _languages_in(script)
    if len(possible) < 2:
        return possible[0] if possible else None
    words = Counter(word.lower() for word in _WORD.findall(together))
    frequent = Counter[str]()
    for word, times in words.items():
        for language in _languages_by_word(script).get(word, ()):
            frequent[language] += times
    best = max(possible, key=lambda language: (frequent[language], language))
    is_clear = frequent[best] >= _LEAST_SHARE * words.total() and len(_words(best) & words.keys()) >= _LEAST_DISTINCT
    return best if is_clear and words.total() >= _LEAST_WORDS else None


def reads_script(tokenizer: Tokenizer, script: str, example: str) -> bool:
    """Return whether a model has tokens for words in ``script``; ``example`` is a text with letters of it.

    It cannot read a script that its tokenizer maps to the unknown token, or splits into letters or bytes.
    """
    most = _MOST_TOKENS_OF_SHORT_WORDS if script in _ONE_LETTER_WORDS else _MOST_TOKENS
    examples = [everyday_sentences()[language][:_TESTED] for language in _languages_in(script)] or [(example,)]
    return any(
        _unknown(tokenizer, texts) <= _MOST_UNKNOWN and _tokens_per_letter(tokenizer, texts) <= most
        for texts in examples
    )


def reads_language(tokenizer: Tokenizer, language: str) -> bool:
    """Return whether a model was made for ``language``, one of :func:`everyday_sentences`, by how it splits words.

    A model splits words of a language that it was not made for into more pieces.
    """
    sentences = everyday_sentences()[language][:_TESTED]
    script = _main_script(language)
    if not reads_script(tokenizer, script, sentences[0]):
        return False
    if script != LATIN:
        return True
    least = min(_tokens_per_letter(tokenizer, everyday_sentences()[name][:_TESTED]) for name in _languages_in(script))
    return _tokens_per_letter(tokenizer, sentences) <= _MOST_SPLIT * least


@cache
def _languages_in(script: str) -> tuple[str, ...]:
    """Return the languages whose sentences are mostly in ``script``, or, for kana, partly."""
    if script in ("HIRAGANA", "KATAKANA"):
        return ("japanese",)
    return tuple(language for language in everyday_sentences() if _main_script(language) == script)


@cache
def _main_script(language: str) -> str:
    counts = scripts("".join(everyday_sentences()[language]))
    return "HIRAGANA" if counts["HIRAGANA"] else max(counts, key=lambda name: (counts[name], name))


@cache
def _words(language: str) -> frozenset[str]:
    sentences = everyday_sentences()[language][:_TESTED]
    return frozenset(word.lower() for sentence in sentences for word in _WORD.findall(sentence))


@cache
def _languages_by_word(script: str) -> Mapping[str, Sequence[str]]:
    """Return the languages in ``script`` whose sentences have a word, by word in lower case."""
    languages: dict[str, list[str]] = {}
    for language in _languages_in(script):
        for word in _words(language):
            languages.setdefault(word, []).append(language)
    return languages


def _unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> float:
    """Return the share of unknown tokens; a tokenizer of words leaves unknown words out."""
    ids = tokenizer.ids(texts)
    places = sum(map(len, tokenizer.offsets(texts)))
    known = sum(name not in _UNKNOWN_TOKENS for name in tokenizer.names(ids.flat.tolist()))
    return 1.0 - known / places if places else 1.0


def _tokens_per_letter(tokenizer: Tokenizer, texts: Sequence[str]) -> float:
    letters = sum(unicodedata.category(letter)[0] in "LM" for text in texts for letter in text)
    return len(tokenizer.ids(texts).flat) / max(letters, 1)
