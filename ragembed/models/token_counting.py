"""Count the tokens of texts for a model that reads them later: by its own tokenizer, or by an estimate."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np

from ragembed.errors import ConfigError
from ragembed.models.token_ids import TokenIds

ESTIMATE = "estimate"
"""Name of the estimate that is used without a tokenizer."""

_PIECE = re.compile(
    r"(?P<word>(?:(?<![A-Za-z0-9])[A-Z])?[a-z]+)|(?P<capitals>[A-Z]+)|(?P<digits>[0-9]+)|(?P<spaces>[ \t]{2,})"
    r"|(?P<lines>\n+)|(?P<signs>[!-/:-@\[-`{-~]+)|(?P<other>[^\x00-\x7f]+)"
)
_PER_WORD, _PER_CAPITAL, _PER_THREE_DIGITS, _PER_SPACES, _PER_SIGNS = 1.12, 0.4, 1.2, 0.3, 0.6
_PER_FOREIGN_WORD, _PER_LATER_LETTER, _FIRST_LETTERS = 0.9, 0.23, 4
"""Tokens of a word in a line that is not in English, and of each letter after its first four."""
_ENGLISH = frozenset(["the", "and", "to", "for", "with", "that", "this", "you", "are", "be", "by", "or", "not", "it"])
_LEAST_WORDS = 6
"""Number of words from which a line without any of the frequent words of English is not in English."""
_TOKENS_PER_CHARACTER = (
    (0x0250, 1.6),  # Latin letters with accents, and other letters and signs of Western texts
    (0x0370, 1.7),
    (0x0400, 1.03),  # Greek
    (0x0530, 0.44),  # Cyrillic
    (0x0900, 0.84),  # Armenian, Hebrew, Arabic
    (0x1E00, 1.28),  # scripts of India and South-East Asia, Georgian
    (0x1F00, 1.5),  # Latin letters of Vietnamese
    (0x3000, 0.5),  # signs
    (0xAC00, 1.3),  # Chinese and Japanese
    (0xD800, 1.42),  # Korean
    (0x10000, 2.0),
    (0x110000, 3.0),  # emoji, rare Chinese characters
)
"""For each range of characters, the first one after it, and tokens per character. All numbers fit cl100k_base."""
_ENDS = [end for end, _ in _TOKENS_PER_CHARACTER]


MAX_TOKENS = 512
"""Default number of tokens in a window: most models for retrieval read at least as many."""

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_LETTER = rf"[^\W_{_UNSPACED}]"
_TOKEN = re.compile(rf"{_LETTER}{{1,6}}(?!{_LETTER})|{_LETTER}{{1,4}}|[{_UNSPACED}]|[^\w\s]|_")


@dataclass(frozen=True, slots=True)
class BudgetTokenizer:
    """A way to count the tokens of a budget.

    ``name`` is shown to users. ``count`` returns the number of tokens of each text, without special tokens.
    """

    name: str
    count: Callable[[Sequence[str]], list[int]]

    def of(self, text: str) -> int:
        """Return the number of tokens of one text."""
        return self.count([text])[0]


def token_counter(tokenizer: str | Path | Callable[[str], int] | None) -> BudgetTokenizer:
    """Return the counter for a ``tokenizer.json``, its folder, or a function of a text; None estimates."""
    if tokenizer is None:
        return BudgetTokenizer(ESTIMATE, lambda texts: [estimated_tokens(text) for text in texts])
    if callable(tokenizer):
        count, name = tokenizer, getattr(tokenizer, "__name__", "function")
        return BudgetTokenizer(name, lambda texts: [int(count(text)) for text in texts])
    path = Path(tokenizer)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"no tokenizer at {tokenizer}: expected a file tokenizer.json, or a folder that contains it")
    from ragembed.models.tokenizer import read_tokenizer

    loaded = read_tokenizer(file)
    loaded.no_padding()
    loaded.no_truncation()
    loaded.encode_special_tokens = True

    def counted(texts: Sequence[str]) -> list[int]:
        return [len(encoding.ids) for encoding in loaded.encode_batch_fast(list(texts), add_special_tokens=False)]

    return BudgetTokenizer(str(tokenizer), counted)


def estimated_tokens(text: str) -> int:
    """Return an estimate of the number of tokens of ``text`` for common language models."""
    return sum(_estimated_in_line(line) for line in text.splitlines(keepends=True))


def _estimated_in_line(line: str) -> int:
    words = line.lower().split()
    in_english = line.isascii() and (len(words) < _LEAST_WORDS or not _ENGLISH.isdisjoint(words))
    total = 0.0
    for match in _PIECE.finditer(line):
        size = match.end() - match.start()
        if match.lastgroup == "word":
            later = max(0, size - _FIRST_LETTERS)
            total += _PER_WORD if in_english else _PER_FOREIGN_WORD + _PER_LATER_LETTER * later
        elif match.lastgroup == "capitals":
            total += _PER_CAPITAL * size
        elif match.lastgroup == "digits":
            total += _PER_THREE_DIGITS * ceil(size / 3)
        elif match.lastgroup == "other":
            total += sum(_TOKENS_PER_CHARACTER[bisect_right(_ENDS, ord(character))][1] for character in match[0])
        elif match.lastgroup == "lines":
            total += 1.0
        else:
            total += _PER_SIGNS if match.lastgroup == "signs" else _PER_SPACES
    return max(round(total), 1)


class EstimatedTokenizer:
    """A tokenizer for models whose own is not on this machine, such as models behind a server; every id is 0.

    A token is a word of at most six letters or digits, a piece of four characters of a longer word, one character of a
    script without spaces, or one punctuation mark. For English text and for code, these are about as many as
    WordPiece's.
    """

    vocabulary_size = 1
    special_tokens = 0

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self.max_tokens = max_tokens
        self.prefix: list[int] = []
        self.suffix: list[int] = []

    def ids(self, texts: Sequence[str]) -> TokenIds:
        """Return a 0 for each token of each text."""
        return TokenIds.of(np.zeros(self.count(text), dtype=np.int64) for text in texts)

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return the ``(start, end)`` character spans of the tokens of each text."""
        return [[match.span() for match in _TOKEN.finditer(text)] for text in texts]

    def ids_and_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return a 0 for each token of ``text``, and the spans of the tokens."""
        [spans] = self.offsets([text])
        return [0] * len(spans), spans

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return a placeholder for each id."""
        return ["?"] * len(ids)

    def vocabulary(self) -> list[str]:
        """Return the placeholder of the only id."""
        return ["?"]

    def count(self, text: str) -> int:
        """Return the number of tokens of ``text``."""
        return sum(1 for _ in _TOKEN.finditer(text))

    def windows(self, text: str, room: int) -> list[tuple[str, int]]:
        """Split ``text`` into parts of similar length with at most ``room`` tokens; return them with these numbers."""
        [spans] = self.offsets([text])
        if len(spans) <= room:
            return [(text, len(spans))]
        number = -(-len(spans) // room)
        firsts = [len(spans) * i // number for i in range(number)]
        starts = [0, *(spans[first][0] for first in firsts[1:]), len(text)]
        sizes = [b - a for a, b in pairwise([*firsts, len(spans)])]
        return [(text[a:b], size) for (a, b), size in zip(pairwise(starts), sizes, strict=True)]
