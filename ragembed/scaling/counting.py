"""Counting: ranges of chunks to hashes of their texts, and to what the fit of the extractor adds up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from ragembed.documents.boilerplate import Stripper
from ragembed.embedder import Embedder
from ragembed.indexes.records import text_hash
from ragembed.scaling.gathered import GatheredShards
from ragembed.scaling.work import FIT, Arrays, Work, read_arrays, write_arrays

FIT_BLOCK = 2048
"""Texts that a fit takes at once: ranges of multiples of it add up to the same fit as all texts in a row."""

_MOST_RANGES = 64
_HASHES, _PART = "hashes", "part."


def range_size(chunks: int) -> int:
    """Return how many chunks a range has, the last excepted."""
    return FIT_BLOCK * max(1, -(-chunks // (FIT_BLOCK * _MOST_RANGES)))


def ranges(chunks: int) -> int:
    """Return how many ranges there are."""
    return -(-chunks // range_size(chunks))


def count_range(work: Work, gathered: GatheredShards, stripper: Stripper, embedder: Embedder, number: int) -> int:
    """Go through the chunks of a range and write what they add; return how many they are.

    The extractor is fitted only where there is no store yet.
    """
    size = range_size(gathered.chunks)
    start = number * size
    hashes: list[bytes] = []
    texts = _hashed(gathered.texts(start, min(start + size, gathered.chunks), stripper), hashes)
    part: Arrays = {}
    if work.plan.generation is None:
        part = embedder.part_of_fit(texts)
    else:
        for _ in texts:
            pass
    arrays = {_HASHES: np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, 16)}
    write_arrays(work.output(FIT, number), {**arrays, **{_PART + name: array for name, array in part.items()}})
    return len(hashes)


def _hashed(texts: Iterable[str], hashes: list[bytes]) -> Iterator[str]:
    for text in texts:
        hashes.append(text_hash(text))
        yield text


def parts(work: Work, chunks: int) -> Iterator[Arrays]:
    """Yield what each range adds to the fit."""
    for number in range(ranges(chunks)):
        arrays = read_arrays(work.output(FIT, number))
        yield {name.removeprefix(_PART): array for name, array in arrays.items() if name.startswith(_PART)}


def hashes(work: Work, chunks: int) -> list[bytes]:
    """Return the hash of each chunk's text."""
    found = (read_arrays(work.output(FIT, number))[_HASHES] for number in range(ranges(chunks)))
    return list(chain.from_iterable((bytes(row) for row in block) for block in found))
