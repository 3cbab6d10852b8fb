"""Estimate the tokens of models whose tokenizer is not on this machine, such as models behind a server.

A token is a word of at most six letters or digits, a piece of four characters of a longer word, one character of a
script without spaces, or one punctuation mark. For English text and for code, these are about as many as WordPiece's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ragembed.models.token_ids import TokenIds

MAX_TOKENS = 512
"""Default number of tokens in a window: most models for retrieval read at least as many."""

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_LETTER = rf"[^\W_{_UNSPACED}]"
_TOKEN = re.compile(rf"{_LETTER}{{1,6}}(?!{_LETTER})|{_LETTER}{{1,4}}|[{_UNSPACED}]|[^\w\s]|_")


class EstimatedTokenizer:
    """A tokenizer that finds the likely places of tokens, without a vocabulary: every token has the id 0."""

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
