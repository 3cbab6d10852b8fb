"""WordPiece, word by word: each different word is split once, and looked up ever after.

BERT's tokenizer treats what stands between blanks on its own (Devlin et al. 2019; normalizer and pre-tokenizer of
Hugging Face's ``tokenizers``), and natural text repeats its words, so that most of the work of splitting is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers

_REMOVED = dict.fromkeys(map(ord, "\x0b\x0c\x1c\x1d\x1e\x1f\x85"))
"""Control characters that the normalizer drops and Python takes for blanks."""
_LONGEST = 32
"""Letters of a word that is remembered: longer ones seldom come again."""
_MOST = 1 << 17
"""Words that are remembered at a time, in some tens of megabytes."""


class WordPieces:
    """The token ids of texts, equal to those of ``tokenizer``, which must satisfy :func:`splits_by_words`."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, without special tokens."""
        split = [_words(text) for text in texts]
        known = self._known if len(self._known) < _MOST else {}
        fresh = list(set().union(*split) - known.keys())
        encodings = self._tokenizer.encode_batch(fresh, add_special_tokens=False)
        rare: dict[str, list[int]] = {}
        for word, encoding in zip(fresh, encodings, strict=True):
            (known if len(word) <= _LONGEST else rare)[word] = encoding.ids
        self._known = known
        find = (known | rare if rare else known).__getitem__
        return [list(chain.from_iterable(map(find, words))) for words in split]


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


def _words(text: str) -> list[str]:
    if any(character in text for character in map(chr, _REMOVED)):
        text = text.translate(_REMOVED)
    return text.split()
