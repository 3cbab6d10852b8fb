"""WordPiece by words: each distinct word is tokenized once and then cached.

BERT's tokenizer treats every whitespace-separated word on its own (Devlin et al. 2019; normalizer and pre-tokenizer of
Hugging Face's ``tokenizers``). Natural text repeats words, so the cache saves most of the work.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ragembed.models.token_ids import TokenIds

if TYPE_CHECKING:
    import tokenizers

_CONTROL = dict.fromkeys(map(ord, "\x0b\x0c\x1c\x1d\x1e\x1f\x85"))
"""Control characters that the normalizer removes and that Python treats as whitespace."""
_MOST_LETTERS = 1 << 21
"""Maximum number of letters in the cache, some tens of megabytes; a larger cache is cleared."""


_TOGETHER = 512
"""Number of words that are tokenized as one text."""


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
        with self._learning:
            try:
                words = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(split)), np.int64)
                self._learn()
            except BaseException:
                self._reset()  # some words have a number but no pieces
                raise
            starts, pieces = self._starts, self._pieces
            if self._letters > _MOST_LETTERS:
                self._reset()
        counts = starts[words + 1] - starts[words]
        # The pieces of a word are contiguous: position of the first piece plus the offset within the word.
        ends = np.cumsum(counts)
        places = np.repeat(starts[words] - ends + counts, counts) + np.arange(counts.sum())
        text_of_word = np.repeat(np.arange(len(texts)), np.fromiter(map(len, split), np.int64, len(texts)))
        lengths = np.bincount(text_of_word, weights=counts, minlength=len(texts)).astype(np.int64)
        return TokenIds(pieces[places], lengths)

    def _reset(self) -> None:
        """Clear the cache: the numbers of words, the starts of their pieces (and the last end), and all pieces."""
        self._numbers = _NewWords()
        self._starts = np.zeros(1, dtype=np.int64)
        self._pieces = np.zeros(0, dtype=np.int64)
        self._letters = 0

    def _learn(self) -> None:
        """Tokenize the words that were numbered since the last call."""
        new, self._numbers.new = self._numbers.new, []
        if not new:
            return
        learned = self._split(new)
        self._starts = np.concatenate([self._starts, self._starts[-1] + np.cumsum(learned.lengths)])
        self._pieces = np.concatenate([self._pieces, learned.flat])
        self._letters += sum(map(len, new))

    def _split(self, words: Sequence[str]) -> TokenIds:
        """Return the pieces of each word; many words are tokenized as one text and separated by their offsets."""
        lines = [words[start : start + _TOGETHER] for start in range(0, len(words), _TOGETHER)]
        encoded = self._tokenizer.encode_batch([" ".join(line) for line in lines], add_special_tokens=False)
        counts = [_pieces_by_word(line, each.offsets) for line, each in zip(lines, encoded, strict=True)]
        return TokenIds(TokenIds.of(each.ids for each in encoded).flat, np.concatenate(counts))


class _NewWords(dict[str, int]):
    """A dict that numbers each unknown key and collects it in ``new``."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.new.append(word)
        return number


def _pieces_by_word(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the number of pieces of each word, given the ``offsets`` of all pieces in the words joined by spaces."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    begins = np.fromiter((begin for begin, _ in offsets), np.int64, len(offsets))
    return np.bincount(np.searchsorted(starts, begins, side="right") - 1, minlength=len(words))


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
