r"""Texts to whole words of a vocabulary, for vectors of words (Stankevičius & Lukoševičius 2024, section 3.2.4).

An atom is a run of letters, digits and their combining marks, one character of a script that is written without
spaces (Han, kana, Thai, Lao, Burmese, Khmer), or one punctuation mark or symbol. Atoms that stand together as
``don't``, ``well-known``, ``3.14``, ``U.S.``, ``東京都`` and ``...`` do are looked up as the longest words of the
vocabulary, from left to right: joined where it knows the joined form, split where it does not. So are the parts of
vocabularies that split ``dog's`` into ``dog`` and ``'s``.

A form is looked up in NFC: in lower case first, then as it is written, then both again with typographic apostrophes
and hyphens as ASCII and without soft hyphens and variation selectors. Accents stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from ragembed.models.token_ids import TokenIds

MAX_TOKENS = 256
"""Tokens of a chunk: word vectors have no window, so this is the default model's."""

_LONGEST = 9  # atoms that are looked up as one word: five words and what joins them
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_JOINERS = r"'’\-‐‑_.,:/&"
_INVISIBLE = "\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufe00-\ufe0f\ufeff"
_FORMAT_INSIDE_WORDS = "\u00ad\u200c\u200d"
_PLAIN = str.maketrans({"’": "'", "‐": "-", "‑": "-", "\u00ad": None, "\ufe0e": None, "\ufe0f": None})


class WordTokenizer:
    """Tokenizer over the words of ``index``, whose values are their ids, 0 to ``len(index) - 1``.

    It has no special tokens. Any str can be tokenized; what is no word of the vocabulary is left out.
    """

    def __init__(self, index: Mapping[str, int]) -> None:
        self._index = index
        self.vocabulary_size = len(index)
        self.max_tokens = MAX_TOKENS
        self.special_tokens = 0
        self.prefix: list[int] = []
        self.suffix: list[int] = []

    def ids(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of each text's words that the vocabulary knows, in their order."""
        known: dict[str, list[int]] = {}
        rows = []
        for text in texts:
            row: list[int] = []
            for match in _patterns(text.isascii()).compound.finditer(text):
                form = match[0]
                if form not in known:
                    known[form] = [number for number, _ in self._words(form)]
                row += known[form]
            rows.append(row)
        return TokenIds.of(rows)

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return for each text the ``(start, end)`` character spans of its atoms, known or not."""
        return [[match.span() for match in _patterns(text.isascii()).atom.finditer(text)] for text in texts]

    def located(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of the words of ``text`` that the vocabulary knows, and the ``(start, end)`` span of each."""
        found = [
            (number, (match.start() + start, match.start() + end))
            for match in _patterns(text.isascii()).compound.finditer(text)
            for number, (start, end) in self._words(match[0])
        ]
        return [number for number, _ in found], [span for _, span in found]

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the words that have ``ids``."""
        words = self.vocabulary()
        return [words[number] for number in ids]

    def vocabulary(self) -> list[str]:
        """Return the words by id."""
        return sorted(self._index, key=self._index.__getitem__)

    def _words(self, compound: str) -> list[tuple[int, tuple[int, int]]]:
        """Return id and span of the longest words of the vocabulary in ``compound``, from left to right."""
        (spans,) = self.offsets([compound])
        found: list[tuple[int, tuple[int, int]]] = []
        at = 0
        while at < len(spans):
            for end in range(min(at + _LONGEST, len(spans)), at, -1):
                span = spans[at][0], spans[end - 1][1]
                word = self._word(compound[slice(*span)])
                if word is not None:
                    found.append((word, span))
                    break
            at = end
        return found

    def _word(self, form: str) -> int | None:
        form = unicodedata.normalize("NFC", form)
        for candidate in (form, form.translate(_PLAIN)):
            for cased in (candidate.lower(), candidate):
                if cased in self._index:
                    return self._index[cased]
        return None


@dataclass(frozen=True, slots=True)
class _Patterns:
    """What finds atoms, and atoms that stand together."""

    atom: re.Pattern[str]
    compound: re.Pattern[str]


@cache
def _patterns(is_ascii: bool) -> _Patterns:
    """Compile the patterns, which find the same in ASCII text; those for it alone are made five times as fast."""
    marks = "\u0300" if is_ascii else _combining_marks()
    letters = rf"[^\W_{_UNSPACED}]+"
    word = f"{letters}(?:[{marks}{_FORMAT_INSIDE_WORDS}]+{letters})*[{marks}]*"
    unspaced = f"[{_UNSPACED}][{marks}]*"
    symbol = rf"(?:_|[^\w\s{_INVISIBLE}])[{marks}]*"
    joined = rf"{word}(?:[{_JOINERS}]{word})*(?:(?<=\.[^\W\d_])\.)?"
    return _Patterns(
        atom=re.compile(f"{word}|{unspaced}|{symbol}"),
        compound=re.compile(f"{joined}|(?:{unspaced})+|(?P<symbol>{symbol})(?P=symbol)*"),
    )


def _combining_marks() -> str:
    """Return the inside of a character class of Unicode's combining marks, which ``re`` has no name for."""
    blocks = (range(0x300, 0x1F000), range(0xE0100, 0xE01F0))
    marks = [code for block in blocks for code in block if unicodedata.category(chr(code)).startswith("M")]
    runs = [[code for _, code in run] for _, run in groupby(enumerate(marks), lambda pair: pair[1] - pair[0])]
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)
