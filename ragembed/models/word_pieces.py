"""WordPiece by words: each distinct word is tokenized once and then cached.

BERT's tokenizer treats every whitespace-separated word on its own (Devlin et al. 2019; normalizer and pre-tokenizer of
Hugging Face's ``tokenizers``). Natural text repeats words, so the cache saves most of the work.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ragembed.models.token_ids import TokenIds
from ragembed.types import Bools, Integers

if TYPE_CHECKING:
    import tokenizers

_CONTROL = dict.fromkeys(map(ord, "\x0b\x0c\x1c\x1d\x1e\x1f\x85"))
"""Control characters that the normalizer removes and that Python treats as whitespace."""
_MOST_LETTERS = 1 << 21
"""Maximum number of letters in the cache, some tens of megabytes; a larger cache is cleared."""


_TOGETHER = 512
"""Number of words that are tokenized as one text, separated by their spans."""


class WordPieces:
    """The token ids of texts, equal to those of ``tokenizer``, which must satisfy :func:`splits_by_words`."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._learning = threading.Lock()
        self._reset()

    def __reduce__(self) -> tuple[type[WordPieces], tuple[tokenizers.Tokenizer]]:
        """Start a copy with an empty cache."""
        return WordPieces, (self._tokenizer,)

    def ids(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of each text, without special tokens."""
        split = [text.split() for text in _without_control_characters(texts)]
        words = self._found(split)
        return TokenIds(words.pieces[words.places], _sums(words.counts, split))

    def offsets(self, texts: Sequence[str]) -> list[Integers]:
        """Return the ``(start, end)`` character spans of the tokens of each text, int64, each of shape ``(n, 2)``."""
        if not texts:
            return []
        if _without_control_characters(texts) is not texts:  # The removed characters count in the spans.
            encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
            return [np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2) for encoding in encoded]
        split = [text.split() for text in texts]
        words = self._found(split)
        ends = np.cumsum(_sums(words.counts, split))
        of_text = np.cumsum([0, *(len(text) + 1 for text in texts[:-1])])  # the start of each text in all texts
        shifts = np.repeat(_word_starts("\n".join(texts)), words.counts)
        shifts -= np.repeat(of_text, np.diff(ends, prepend=0))
        return np.split(words.spans[words.places] + shifts[:, None], ends[:-1])

    def _found(self, split: Sequence[Sequence[str]]) -> _Found:
        """Look up all words of the texts in ``split``, and tokenize those that are new."""
        with self._learning:
            try:
                words = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(split)), np.int64)
                self._learn()
            except BaseException:
                self._reset()  # some words have a number but no pieces
                raise
            starts, pieces, spans = self._starts, self._pieces, self._spans
            if self._letters > _MOST_LETTERS:
                self._reset()
        counts = starts[words + 1] - starts[words]
        # The pieces of a word are contiguous: position of the first piece plus the offset within the word.
        ends = np.cumsum(counts)
        return _Found(counts, np.repeat(starts[words] - ends + counts, counts) + np.arange(counts.sum()), pieces, spans)

    def _reset(self) -> None:
        """Clear the cache: the numbers of words, the starts of their pieces (and the last end), pieces and spans."""
        self._numbers = _NewWords()
        self._starts = np.zeros(1, dtype=np.int64)
        self._pieces = np.zeros(0, dtype=np.int64)
        self._spans = np.zeros((0, 2), dtype=np.int64)
        self._letters = 0

    def _learn(self) -> None:
        """Tokenize the words that were numbered since the last call."""
        new, self._numbers.new = self._numbers.new, []
        if not new:
            return
        lines = [new[start : start + _TOGETHER] for start in range(0, len(new), _TOGETHER)]
        encoded = self._tokenizer.encode_batch([" ".join(line) for line in lines], add_special_tokens=False)
        placed = [_by_word(line, each.offsets) for line, each in zip(lines, encoded, strict=True)]
        counts = np.concatenate([each for each, _ in placed])
        self._starts = np.concatenate([self._starts, self._starts[-1] + np.cumsum(counts)])
        self._pieces = np.concatenate([self._pieces, TokenIds.of(each.ids for each in encoded).flat])
        self._spans = np.concatenate([self._spans, *(spans for _, spans in placed)])
        self._letters += sum(map(len, new))


class _Found(NamedTuple):
    """The pieces of words: their number for each word, their places, and the ids and spans at these places."""

    counts: Integers
    places: Integers
    pieces: Integers
    spans: Integers


class _NewWords(dict[str, int]):
    """A dict that numbers each unknown key and collects it in ``new``."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.new.append(word)
        return number


def _by_word(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> tuple[Integers, Integers]:
    """Return the number of pieces of each word and the span of each piece in its word.

    ``offsets`` are the spans of all pieces in the words joined by spaces.
    """
    starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    spans = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    word = np.searchsorted(starts, spans[:, 0], side="right") - 1
    return np.bincount(word, minlength=len(words)), spans - starts[word, None]


def _sums(counts: Integers, split: Sequence[Sequence[str]]) -> Integers:
    """Return the sums of the ``counts`` of the words of each text."""
    ends = np.cumsum([0, *map(len, split)])
    sums: Integers = np.diff(np.concatenate([[0], np.cumsum(counts)])[ends])
    return sums


def _word_starts(text: str) -> Integers:
    """Return the start of each word in ``text``."""
    letters = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    is_space = _spaces()[np.minimum(letters, len(_spaces()) - 1)]
    return np.flatnonzero(~is_space & np.concatenate([[True], is_space[:-1]]))


@cache
def _spaces() -> Bools:
    """Return for each code point whether it is white space; there is none above U+3000."""
    return np.array([chr(number).isspace() for number in range(0x3002)])


def splits_by_words(tokenizer: tokenizers.Tokenizer) -> bool:
    """Return whether ``tokenizer`` is BERT's, without added tokens that could contain a space."""
    from tokenizers import models, normalizers, pre_tokenizers

    normalizer = tokenizer.normalizer
    return (
        isinstance(tokenizer.model, models.WordPiece)
        and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and isinstance(normalizer, normalizers.BertNormalizer)
        and normalizer.clean_text
        and all(token.special for token in tokenizer.get_added_tokens_decoder().values())
    )


def _without_control_characters(texts: Sequence[str]) -> Sequence[str]:
    """Return the texts without the characters that the normalizer removes and that Python treats as whitespace."""
    together = "".join(texts)
    if any(character in together for character in map(chr, _CONTROL)):
        return [text.translate(_CONTROL) for text in texts]
    return texts
