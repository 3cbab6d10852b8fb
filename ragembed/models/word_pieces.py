"""WordPiece, word by word: each different word is split once, and looked up ever after.

BERT's tokenizer treats what stands between blanks on its own (Devlin et al. 2019; normalizer and pre-tokenizer of
Hugging Face's ``tokenizers``), and natural text repeats its words, so that most of the work of splitting is repeated.
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

_REMOVED = dict.fromkeys(map(ord, "\x0b\x0c\x1c\x1d\x1e\x1f\x85"))
"""Control characters that the normalizer drops and Python takes for blanks."""
_MOST_LETTERS = 1 << 21
"""Letters of the words that are remembered, in some tens of megabytes; beyond, they are learned again."""


_TOGETHER = 512
"""Words that are split as one text."""


class WordPieces:
    """The token ids of texts, equal to those of ``tokenizer``, which must satisfy :func:`splits_by_words`."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._learning = threading.Lock()
        self._forget()

    def __reduce__(self) -> tuple[type[WordPieces], tuple[tokenizers.Tokenizer]]:
        """Let a copy begin with no word known."""
        return WordPieces, (self._tokenizer,)

    def ids(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of each text, without special tokens."""
        split = [text.split() for text in _splittable(texts)]
        with self._learning:
            try:
                words = np.fromiter(map(self._numbers.__getitem__, chain.from_iterable(split)), np.int64)
                self._learn()
            except BaseException:
                self._forget()  # words that have a number and no pieces
                raise
            starts, pieces = self._starts, self._pieces
            if self._letters > _MOST_LETTERS:
                self._forget()
        counts = starts[words + 1] - starts[words]
        # The pieces of each word follow one another: where the first is, and how far on from it.
        ends = np.cumsum(counts)
        places = np.repeat(starts[words] - ends + counts, counts) + np.arange(counts.sum())
        text_of_word = np.repeat(np.arange(len(texts)), np.fromiter(map(len, split), np.int64, len(texts)))
        lengths = np.bincount(text_of_word, weights=counts, minlength=len(texts)).astype(np.int64)
        return TokenIds(pieces[places], lengths)

    def _forget(self) -> None:
        """Begin again: words by number, where the pieces of each begin and the last one's end, and all pieces."""
        self._numbers = _FreshWords()
        self._starts = np.zeros(1, dtype=np.int64)
        self._pieces = np.zeros(0, dtype=np.int64)
        self._letters = 0

    def _learn(self) -> None:
        """Split the words that have got a number since the last time."""
        fresh, self._numbers.fresh = self._numbers.fresh, []
        if not fresh:
            return
        learned = self._split(fresh)
        self._starts = np.concatenate([self._starts, self._starts[-1] + np.cumsum(learned.lengths)])
        self._pieces = np.concatenate([self._pieces, learned.flat])
        self._letters += sum(map(len, fresh))

    def _split(self, words: Sequence[str]) -> TokenIds:
        """Return the pieces of each word: many words are split as one text, by where in it each piece is."""
        lines = [words[start : start + _TOGETHER] for start in range(0, len(words), _TOGETHER)]
        encoded = self._tokenizer.encode_batch([" ".join(line) for line in lines], add_special_tokens=False)
        counts = [_pieces_by_word(line, each.offsets) for line, each in zip(lines, encoded, strict=True)]
        return TokenIds(TokenIds.of(each.ids for each in encoded).flat, np.concatenate(counts))


class _FreshWords(dict[str, int]):
    """Gives a word that it is asked for first the next number, and keeps it among the ``fresh``."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.fresh.append(word)
        return number


def _pieces_by_word(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return how many of the pieces that have these ``offsets`` in ``words``, with a blank between two, each has."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    begins = np.fromiter((begin for begin, _ in offsets), np.int64, len(offsets))
    return np.bincount(np.searchsorted(starts, begins, side="right") - 1, minlength=len(words))


def splits_by_words(tokenizer: tokenizers.Tokenizer) -> bool:
    """Tell whether ``tokenizer`` is BERT's, with no tokens of its own that might reach across a blank."""
    from tokenizers import models, normalizers, pre_tokenizers

    normalizer = tokenizer.normalizer
    return (
        isinstance(tokenizer.model, models.WordPiece)
        and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and isinstance(normalizer, normalizers.BertNormalizer)
        and normalizer.clean_text
        and all(token.special for token in tokenizer.get_added_tokens_decoder().values())
    )


def _splittable(texts: Sequence[str]) -> Sequence[str]:
    """Return the texts without what the normalizer drops and Python takes for blanks."""
    together = "".join(texts)
    if any(character in together for character in map(chr, _REMOVED)):
        return [text.translate(_REMOVED) for text in texts]
    return texts
