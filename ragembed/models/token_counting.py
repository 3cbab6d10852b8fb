"""Count the tokens of texts for a model that reads them later: by its own tokenizer, or by a cautious estimate."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from ragembed.errors import ConfigError

ESTIMATE = "estimate"
"""Name of the estimate that is used without a tokenizer."""

_PIECE = re.compile(
    r"(?P<lower>(?:(?<![A-Za-z0-9])[A-Z])?[a-z]+)|(?P<upper>[A-Z]+)|(?P<spaces>[ \t]+)|(?P<lines>\n+)"
    r"|(?P<ascii>[\x00-\x7f])|(?P<other>[^\x00-\x7f]+)"
)
_LETTERS, _LETTERS_BESIDE_ACCENTS, _CAPITALS, _SPACES = 3.5, 2.8, 1.4, 4
"""Characters per token: of lower-case words, of those in a text with accents, of capitals, and of white space."""
_TOKENS_PER_CHARACTER = (
    (0x0250, 1.25),  # Latin letters with accents, and other letters and signs of Western texts
    (0x0370, 2.0),
    (0x0400, 1.45),  # Greek
    (0x0530, 0.85),  # Cyrillic
    (0x0900, 1.35),  # Armenian, Hebrew, Arabic
    (0x1E00, 2.2),  # scripts of India and South-East Asia, Georgian
    (0x1F00, 1.5),  # Latin letters of Vietnamese
    (0x3000, 2.4),  # signs
    (0xAC00, 1.5),  # Chinese and Japanese
    (0xD800, 1.6),  # Korean
    (0x10000, 2.2),
    (0x110000, 3.7),  # emoji, rare Chinese characters
)
"""For each range of characters, the first one after it, and a cautious number of tokens per character."""
_ENDS = [end for end, _ in _TOKENS_PER_CHARACTER]


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
    """Return the counter for a tokenizer.

    ``tokenizer`` is a file ``tokenizer.json``, a folder with such a file, or a function that returns the number of
    tokens of a text. None estimates. Raises :class:`ConfigError` if there is no such file, and :class:`ModelError` if
    it cannot be read.
    """
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
    """Return a cautious estimate of the number of tokens of ``text`` for common language models."""
    return sum(_estimated_in_line(line) for line in text.splitlines(keepends=True))


def _estimated_in_line(line: str) -> int:
    letters = _LETTERS if line.isascii() else _LETTERS_BESIDE_ACCENTS
    total = 0.0
    for match in _PIECE.finditer(line):
        size = match.end() - match.start()
        if match.lastgroup == "lower":
            total += ceil(size / letters)
        elif match.lastgroup == "upper":
            total += ceil(size / _CAPITALS)
        elif match.lastgroup == "spaces":
            total += size // _SPACES
        elif match.lastgroup == "other":
            total += sum(_TOKENS_PER_CHARACTER[bisect_right(_ENDS, ord(character))][1] for character in match[0])
        else:
            total += 1
    return ceil(total)
