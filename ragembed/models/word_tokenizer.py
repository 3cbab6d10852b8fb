"""Split texts into whole words of a vocabulary, for word vectors (Stankevičius & Lukoševičius 2024, section 3.2.4).

An atom is a run of letters, digits and combining marks; one character of a script without spaces (Han, kana, Thai, Lao,
Burmese, Khmer); or one punctuation mark or symbol. Adjacent atoms, as in ``don't``, ``well-known``, ``3.14``, ``U.S.``,
``東京都`` and ``...``, are matched from left to right against the longest words of the vocabulary: a form that the
vocabulary contains stays joined, any other form is split. This also covers vocabularies that split ``dog's`` into
``dog`` and ``'s``.

A form is looked up in NFC: first in lower case, then as written, then both again with typographic apostrophes and
hyphens replaced by ASCII and without soft hyphens and variation selectors. Accents are kept.
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
"""Maximum number of tokens in a chunk: word vectors have no window, so this is the window of the default model."""

_LONGEST = 9  # atoms that are looked up as one word: five words and their joiners
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_JOINERS = r"'’\-‐‑_.,:/&"
_INVISIBLE = "\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufe00-\ufe0f\ufeff"
_FORMAT_INSIDE_WORDS = "\u00ad\u200c\u200d"
_PLAIN = str.maketrans({"’": "'", "‐": "-", "‑": "-", "\u00ad": None, "\ufe0e": None, "\ufe0f": None})


class WordTokenizer:
    """A tokenizer for the words in ``index``, which maps each word to its id, 0 to ``len(index) - 1``.

    It has no special tokens. It accepts any str; words that are not in the vocabulary are left out.
    """

    def __init__(self, index: Mapping[str, int]) -> None:
        self._index = index
        self.vocabulary_size = len(index)
        self.max_tokens = MAX_TOKENS
        self.special_tokens = 0
        self.prefix: list[int] = []
        self.suffix: list[int] = []

    def ids(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the known words of each text, in order."""
        ids_of_form: dict[str, list[int]] = {}
        rows = []
        for text in texts:
            row: list[int] = []
            for match in _patterns(text.isascii()).compound.finditer(text):
                form = match[0]
                if form not in ids_of_form:
                    ids_of_form[form] = [number for number, _ in self._words(form)]
                row += ids_of_form[form]
            rows.append(row)
        return TokenIds.of(rows)

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return the ``(start, end)`` character spans of the atoms of each text, whether or not they are known."""
        return [[match.span() for match in _patterns(text.isascii()).atom.finditer(text)] for text in texts]

    def ids_and_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of the known words of ``text``, and the ``(start, end)`` span of each."""
        words = [
            (number, (match.start() + start, match.start() + end))
            for match in _patterns(text.isascii()).compound.finditer(text)
            for number, (start, end) in self._words(match[0])
        ]
        return [number for number, _ in words], [span for _, span in words]

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the words with these ``ids``."""
        words = self.vocabulary()
        return [words[number] for number in ids]

    def vocabulary(self) -> list[str]:
        """Return the words by id."""
        return sorted(self._index, key=self._index.__getitem__)

    def _words(self, compound: str) -> list[tuple[int, tuple[int, int]]]:
        """Return id and span of the longest known words in ``compound``, from left to right."""
        (spans,) = self.offsets([compound])
        words: list[tuple[int, tuple[int, int]]] = []
        at = 0
        while at < len(spans):
            for end in range(min(at + _LONGEST, len(spans)), at, -1):
                span = spans[at][0], spans[end - 1][1]
                word = self._word(compound[slice(*span)])
                if word is not None:
                    words.append((word, span))
                    break
            at = end
        return words

    def _word(self, form: str) -> int | None:
        """Return the id of a form, or None if the vocabulary does not contain it."""
        form = unicodedata.normalize("NFC", form)
        for candidate in (form, form.translate(_PLAIN)):
            for cased in (candidate.lower(), candidate):
                if cased in self._index:
                    return self._index[cased]
        return None


def word_forms(text: str) -> list[tuple[str, ...]]:
    """Return the forms of adjacent atoms in ``text``, in lower case and NFC: each form, followed by its atoms."""
    patterns = _patterns(text.isascii())
    forms = []
    for match in patterns.compound.finditer(text):
        form = unicodedata.normalize("NFC", match[0]).lower()
        forms.append((form, *patterns.atom.findall(form)))
    return forms


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Patterns for atoms and for adjacent atoms."""

    atom: re.Pattern[str]
    compound: re.Pattern[str]


@cache
def _patterns(is_ascii: bool) -> _Patterns:
    """Compile the patterns; those for ASCII text match the same there and are built five times as fast."""
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
    """Return Unicode's combining marks as the inside of a character class, because ``re`` has no class for them."""
    blocks = (range(0x300, 0x1F000), range(0xE0100, 0xE01F0))
    marks = [code for block in blocks for code in block if unicodedata.category(chr(code)).startswith("M")]
    runs = [[code for _, code in run] for _, run in groupby(enumerate(marks), lambda pair: pair[1] - pair[0])]
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)
