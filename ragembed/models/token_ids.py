"""The token ids of several texts in one array, so that counting and pooling need no Python loop over tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ragembed.types import Integers


@dataclass(frozen=True, slots=True, eq=False)
class TokenIds:
    """The token ids of some texts. Iteration yields the ids of each text."""

    flat: Integers  # one text after the other
    lengths: Integers  # tokens of each text

    @classmethod
    def of(cls, texts: Iterable[Sequence[int] | Integers]) -> TokenIds:
        """Combine the ids of several texts."""
        texts = list(texts)
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return cls(np.fromiter(chain.from_iterable(texts), np.int64, int(lengths.sum())), lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Integers]:
        return iter(np.split(self.flat, np.cumsum(self.lengths)[:-1])) if len(self.lengths) else iter(())

    def tolist(self) -> list[list[int]]:
        """Return the ids of each text as a list."""
        return [ids.tolist() for ids in self]

    @property
    def texts(self) -> Integers:
        """The index of the text that each token belongs to, shape ``(tokens,)``."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def distinct(self) -> tuple[Integers, Integers]:
        """Return the distinct ids, ascending, and the index of each token's id among them, shape ``(tokens,)``."""
        different = np.flatnonzero(np.bincount(self.flat))
        place = np.zeros(self.flat.max(initial=-1) + 1, dtype=np.int64)
        place[different] = np.arange(len(different))
        return different, place[self.flat]

    def framed(self, prefix: Sequence[int], suffix: Sequence[int]) -> TokenIds:
        """Return the ids with ``prefix`` before and ``suffix`` after each text."""
        lengths = self.lengths + len(prefix) + len(suffix)
        ends = np.cumsum(lengths)[:, None]
        before = ends - lengths[:, None] + np.arange(len(prefix))
        after = ends - len(suffix) + np.arange(len(suffix))
        flat, own = np.empty(int(lengths.sum()), dtype=np.int64), np.ones(int(lengths.sum()), dtype=bool)
        flat[before], flat[after] = prefix, suffix
        own[before] = own[after] = False
        flat[own] = self.flat
        return TokenIds(flat, lengths)
