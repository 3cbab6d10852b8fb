"""Definitions as token ids, and padded batches of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from ragembed.errors import ConfigError
from ragembed.models.token_ids import TokenIds
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.training.dictionary import Dictionary
from ragembed.types import Integers


@dataclass(frozen=True, eq=False)
class Windows:
    """Texts as token ids with special tokens.

    ``truncated`` is the number of truncated texts. ``pad`` is the id of the padding token.
    """

    tokens: TokenIds
    truncated: int
    pad: int

    @property
    def lengths(self) -> Integers:
        """Number of tokens of each text, shape ``(texts,)``."""
        return self.tokens.lengths

    @cached_property
    def _starts(self) -> Integers:
        starts: Integers = np.cumsum(self.lengths) - self.lengths
        return starts

    def batch(self, rows: Integers, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and mask of ``rows``, each of shape ``(rows, tokens)``, right-padded to the longest text."""
        places = np.arange(self.lengths[rows].max())
        mask = places < self.lengths[rows, None]
        at = np.minimum(self._starts[rows, None] + places, len(self.tokens.flat) - 1)
        ids = np.where(mask, self.tokens.flat[at], self.pad)
        return torch.from_numpy(ids).to(device), torch.from_numpy(mask.astype(np.int64)).to(device)

    def by_length(self, batch_tokens: int) -> Iterator[Integers]:
        """Yield the rows of each batch, longest texts first.

        A batch has at most ``batch_tokens`` tokens, including padding, or a single text.
        """
        order = np.argsort(-self.lengths, kind="stable")
        start = 0
        while start < len(order):
            rows = max(1, batch_tokens // int(self.lengths[order[start]]))
            yield order[start : start + rows]
            start += rows


def make_windows(tokenizer: TextTokenizer, texts: Sequence[str], max_tokens: int | None, pad: int) -> Windows:
    """Tokenise ``texts`` and truncate each to ``max_tokens``, including special tokens.

    None stands for the maximum of the model. Raises :class:`ConfigError` if ``max_tokens`` exceeds this maximum.
    """
    limit = tokenizer.max_tokens if max_tokens is None else max_tokens
    if limit > tokenizer.max_tokens:
        raise ConfigError(f"max_tokens is {limit}: expected at most {tokenizer.max_tokens}, the maximum of the model")
    own = limit - tokenizer.special_tokens
    found = tokenizer.ids(texts)
    tokens = TokenIds.of(text[:own] for text in found).framed(tokenizer.prefix, tokenizer.suffix)
    return Windows(tokens, int((found.lengths > own).sum()), pad)


@dataclass(frozen=True, eq=False)
class TrainingTexts:
    """The training pairs: pair ``i`` consists of the text ``text[i]`` of ``windows`` and the entry ``entry[i]``.

    Entries with the same definition share one text.
    """

    windows: Windows
    text: Integers
    entry: Integers
    n_entries: int

    @classmethod
    def of(cls, dictionary: Dictionary, tokenizer: TextTokenizer, max_tokens: int | None, pad: int) -> TrainingTexts:
        """Tokenise the definitions of ``dictionary``; see :func:`make_windows`."""
        numbers: dict[str, int] = {}
        pairs = [(numbers.setdefault(text, len(numbers)), entry) for entry, text in dictionary.pairs()]
        text, entry = np.array(pairs, dtype=np.int64).T
        return cls(make_windows(tokenizer, list(numbers), max_tokens, pad), text, entry, len(dictionary))

    def __len__(self) -> int:
        return len(self.text)
