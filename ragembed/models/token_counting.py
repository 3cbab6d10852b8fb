"""Count the tokens of texts for a model that reads them later: by its own tokenizer, or by a cautious estimate."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragembed.errors import ConfigError, ModelError

ESTIMATE = "estimate"
"""Name of the estimate that is used without a tokenizer."""

_PIECE = re.compile(r"[A-Za-z]+|\d|[ \t]+|\n+|[^\x00-\x7f]+|[\x00-\x1f\x7f]|[!-/:-@\[-`{-~]")
_LETTERS_PER_TOKEN = 3.5


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A way to count tokens.

    ``name`` is shown to users. ``count`` returns the number of tokens of each text, without special tokens.
    """

    name: str
    count: Callable[[Sequence[str]], list[int]]

    def of(self, text: str) -> int:
        """Return the number of tokens of one text."""
        return self.count([text])[0]


def token_counter(tokenizer: str | Path | Callable[[str], int] | None) -> TokenCounter:
    """Return the counter for a tokenizer.

    ``tokenizer`` is a file ``tokenizer.json``, a folder with such a file, or a function that returns the number of
    tokens of a text. None estimates. Raises :class:`ConfigError` if there is no such file, and :class:`ModelError` if
    it cannot be read.
    """
    if tokenizer is None:
        return TokenCounter(ESTIMATE, lambda texts: [estimated_tokens(text) for text in texts])
    if callable(tokenizer):
        count = tokenizer
        return TokenCounter(getattr(count, "__name__", "function"), lambda texts: [int(count(text)) for text in texts])
    path = Path(tokenizer)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"no tokenizer at {tokenizer}: expected a file tokenizer.json, or a folder that contains it")
    from tokenizers import Tokenizer

    try:
        loaded = Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises no narrower class
        raise ModelError(f"cannot read the tokenizer {file}: {error}") from error
    loaded.no_padding()
    loaded.no_truncation()
    loaded.encode_special_tokens = True

    def counted(texts: Sequence[str]) -> list[int]:
        return [len(encoding.ids) for encoding in loaded.encode_batch_fast(list(texts), add_special_tokens=False)]

    return TokenCounter(str(tokenizer), counted)


def estimated_tokens(text: str) -> int:
    """Return a cautious estimate of the number of tokens of ``text`` for common language models."""
    total = 0
    for match in _PIECE.finditer(text):
        total += _tokens_of(match[0])
    return total


def _tokens_of(piece: str) -> int:
    first = piece[0]
    if first > "\x7f":
        return len(piece.encode("utf-8", "replace")) * 2 // 3
    if first.isalpha():
        return -int(-len(piece) // _LETTERS_PER_TOKEN)
    if first in " \t":
        return len(piece) // 4
    return 1
