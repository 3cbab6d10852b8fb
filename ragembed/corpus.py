"""Texts for a fit: a corpus in a file, streams in blocks, uniform samples, and pseudo-queries.

Pseudo-queries are short spans of the corpus that stand in for queries. Queries are short and documents are long, so
their raw vectors have different means and scales. A fit of the query side on spans needs no labels and no query log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError
from ragembed.types import Floats


@dataclass(frozen=True, slots=True)
class Corpus:
    """A UTF-8 text file with one text per line; blank lines are skipped.

    Each iteration reads the file from the start. It raises :class:`ragembed.errors.ConfigError` if the file cannot be
    read or is not UTF-8.
    """

    path: Path

    def __iter__(self) -> Iterator[str]:
        number = 0
        try:
            with self.path.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                    if text:
                        yield text
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"the corpus {self.path}, line {number}: not UTF-8 ({error.reason}); convert the file to UTF-8"
            ) from None
        except OSError as error:
            raise ConfigError(
                f"the corpus {self.path} cannot be read: {error.strerror}; give a text file with one text per line"
            ) from error


Item = TypeVar("Item")


def blocks(stream: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items of ``stream`` in lists of ``size`` items; the last list may be shorter."""
    items = iter(stream)
    while block := list(islice(items, size)):
        yield block


_BLOCK = 1024


class _Places:
    """The place of each item of a stream in a sample of ``limit`` items; every item has the same chance to stay.

    Item ``i`` (from 0) takes place ``i`` while places are free. After that, a place is drawn from 0 to ``i``; the item
    is dropped if the place does not exist (Vitter 1985, algorithm R). Each item draws exactly one random number, so the
    sample depends on the order of the stream and the seed, but not on the block sizes.
    """

    def __init__(self, limit: int, seed: int) -> None:
        if limit < 1:
            raise ConfigError(f"the limit of the reservoir is {limit}: expected at least 1")
        self.limit = limit
        self.seen = 0
        self._rng = np.random.default_rng(seed)

    def take(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of the next ``count`` items are kept, and the place of each; a place may occur twice."""
        numbers = np.arange(self.seen, self.seen + count)
        drawn = (self._rng.random(count) * (numbers + 1)).astype(np.int64)
        places = np.where(numbers < self.limit, numbers, drawn)
        self.seen += count
        positions = np.flatnonzero(places < self.limit)
        return positions, places[positions]


class Reservoir:
    """A uniform sample of at most ``limit`` rows of a stream. It depends only on the rows, their order and the seed."""

    def __init__(self, limit: int, seed: int) -> None:
        self._places = _Places(limit, seed)
        self._rows: Floats | None = None

    @property
    def limit(self) -> int:
        """Maximum number of rows in the sample."""
        return self._places.limit

    @property
    def seen(self) -> int:
        """Number of rows read so far."""
        return self._places.seen

    def add(self, block: NDArray[np.floating[Any]]) -> None:
        """Add the next rows of the stream, float32 or float16, shape ``(n, d)``; they are copied.

        Raises :class:`ConfigError` if ``d`` differs from that of earlier rows.
        """
        if self._rows is None:
            self._rows = np.empty((self.limit, block.shape[1]), dtype=np.float32)
        if block.shape[1] != self._rows.shape[1]:
            raise ConfigError(
                f"the rows have {block.shape[1]} dimensions: expected {self._rows.shape[1]}, as in the rows before"
            )
        positions, places = self._places.take(len(block))
        # NumPy assigns in order: if a place is drawn twice, the later row stays.
        self._rows[places] = block[positions]

    def rows(self) -> Floats:
        """Return the sample, float32, shape ``(min(limit, seen), d)``: a view that is valid until the next block.

        Raises :class:`ConfigError` before the first block, because the dimension is unknown.
        """
        if self._rows is None:
            raise ConfigError("the reservoir is empty: add at least one block of rows first")
        return self._rows[: self.seen]


class ItemReservoir(Generic[Item]):
    """A uniform sample of a stream of arbitrary items, drawn like :class:`Reservoir`."""

    def __init__(self, limit: int, seed: int) -> None:
        self._places = _Places(limit, seed)
        self.items: list[Item] = []

    @property
    def seen(self) -> int:
        """Number of items read so far."""
        return self._places.seen

    def watch(self, stream: Iterable[Item]) -> Iterator[Item]:
        """Yield the items of ``stream`` unchanged and sample them on the way."""
        for block in blocks(stream, _BLOCK):
            for number, place in zip(*self._places.take(len(block)), strict=True):
                self.items[place : place + 1] = [block[number]]
            yield from block


_MIN_WORDS, _MAX_WORDS = 4, 14
_SLACK = 8


@dataclass(frozen=True, slots=True)
class PseudoQueries:
    """Pseudo-queries and their raw vectors, shape ``(n, d)``."""

    texts: tuple[str, ...]
    raw: Floats

    @classmethod
    def of(
        cls, texts: Sequence[str], encode: Callable[[Sequence[str]], Floats], known: PseudoQueries | None = None
    ) -> PseudoQueries:
        """Return ``texts`` with their raw vectors; only texts that are not in ``known`` are encoded."""
        places = {} if known is None else {text: place for place, text in enumerate(known.texts)}
        new = [text for text in texts if text not in places]
        if known is None or len(new) == len(texts):
            return cls(tuple(texts), encode(texts))
        raw = np.empty((len(texts), known.raw.shape[1]), dtype=np.float32)
        is_new = np.array([text not in places for text in texts], dtype=bool)
        if new:
            raw[is_new] = encode(new)
        raw[~is_new] = known.raw[[places[text] for text in texts if text in places]]
        return cls(tuple(texts), raw)


def draw_pseudo_queries(texts: Iterable[str], count: int, seed: int) -> list[str]:
    """Draw up to ``count`` spans of 4 to 14 words from ``texts``, at most one per text.

    The choice of texts and the position of a span depend only on the seed and on each text, not on the order of the
    corpus. Equal texts count once. A text of fewer than 4 words is used whole; a text without words is skipped.
    """
    return [span for span, _ in draw_spans(texts, count, seed)]


def draw_spans(texts: Iterable[str], count: int, seed: int) -> list[tuple[str, str]]:
    """Draw spans as :func:`draw_pseudo_queries` does; return each with the text that it comes from."""
    best: dict[int, str] = {}
    for text in texts:
        best[_hash(text, seed)] = text
        if len(best) > _SLACK * count:
            best = _smallest(best, count)
    drawn = ((_span(text.split(), key), text) for key, text in _smallest(best, count).items())
    return [(span, text) for span, text in drawn if span]


def _smallest(texts: Mapping[int, str], count: int) -> dict[int, str]:
    """Return the ``count`` entries with the smallest keys."""
    return {key: texts[key] for key in nsmallest(count, texts)}


def _hash(text: str, seed: int) -> int:
    """Return a seeded 128-bit hash of ``text``."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16, salt=seed.to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little")


def _span(words: list[str], key: int) -> str:
    """Return a span of ``words`` whose length and position follow from ``key``."""
    length = _MIN_WORDS + key % (_MAX_WORDS - _MIN_WORDS + 1)
    start = (key >> 8) % max(len(words) - length + 1, 1)
    return " ".join(words[start : start + length])
