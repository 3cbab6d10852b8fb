"""Merging blocks of postings into one, some terms at a time, so that memory does not grow with the blocks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes.postings.block import Block, Counts, Integers, Positions, write_block
from ragembed.indexes.postings.live import LiveBlock

_TERMS = 4096
"""Terms that are looked at together."""

_READ = 1 << 20


def merge(parts: Sequence[LiveBlock], file: Path) -> None:
    """Write one block of the live chunks of ``parts``, part by part, to ``file``; postings wait in its folder."""
    chunks = np.concatenate([part.chunks() for part in parts])
    lengths = np.concatenate([part.lengths() for part in parts])
    dtype = max((part.block.counts.dtype for part in parts), key=lambda each: each.itemsize)
    terms: list[bytes] = []
    of_each: list[Integers] = []
    with tempfile.TemporaryFile(dir=file.parent) as positions, tempfile.TemporaryFile(dir=file.parent) as counts:
        renumbered = _renumbered(parts)
        for some in _by_terms([part.block for part in parts]):
            merged = _merged(parts, renumbered, some)
            terms += merged[0]
            of_each.append(merged[1])
            positions.write(merged[2].astype("<u4").data)
            counts.write(merged[3].astype(dtype).data)
        ends = np.cumsum(np.concatenate([*of_each, np.zeros(0, dtype=np.int64)]), dtype=np.int64)
        text = np.frombuffer(b"".join(terms), dtype=np.uint8)
        text_ends = np.cumsum([len(term) for term in terms], dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        arrays = {"chunks": chunks, "lengths": lengths, "text": text, "text_ends": text_ends, "ends": ends}
        write_block(
            file,
            {
                **{name: (array.dtype, len(array)) for name, array in arrays.items()},
                "positions": (np.dtype("<u4"), total),
                "counts": (dtype, total),
            },
            {
                **{name: [array] for name, array in arrays.items()},
                "positions": _read(positions, np.dtype("<u4")),
                "counts": _read(counts, dtype),
            },
        )


def _renumbered(parts: Sequence[LiveBlock]) -> list[Integers]:
    """Return for each part the new position of each of its chunks."""
    firsts = accumulate((len(part) for part in parts), initial=0)
    return [part.renumbered(first) for part, first in zip(parts, firsts, strict=False)]


def _by_terms(blocks: Sequence[Block]) -> Iterator[list[slice]]:
    """Yield, until no term is left, places of the next terms in each block: together all that come before a term."""
    starts = [0] * len(blocks)
    while any(start < len(block.ends) for start, block in zip(starts, blocks, strict=True)):
        bounds = [
            block.term(start + _TERMS)
            for start, block in zip(starts, blocks, strict=True)
            if start + _TERMS < len(block.ends)
        ]
        stops = [block.place(min(bounds)) if bounds else len(block.ends) for block in blocks]
        yield [slice(start, stop) for start, stop in zip(starts, stops, strict=True)]
        starts = stops


def _merged(
    parts: Sequence[LiveBlock], renumbered: Sequence[Integers], places: Sequence[slice]
) -> tuple[list[bytes], Integers, Positions, Counts]:
    """Return the terms at ``places`` that chunks have, how many have each, and the postings."""
    words = [
        [part.block.term(i) for i in range(some.start, some.stop)] for part, some in zip(parts, places, strict=True)
    ]
    together = sorted(set().union(*words))
    number = {word: i for i, word in enumerate(together)}
    numbers, positions, counts = [], [], []
    for part, new, some, own in zip(parts, renumbered, places, words, strict=True):
        if not own:
            continue
        ends = part.block.ends[some]
        first = int(part.block.ends[some.start - 1]) if some.start else 0
        inside = slice(first, int(ends[-1]))
        of_term = np.array([number[word] for word in own], dtype=np.uint32)
        numbers.append(part.of_postings(np.repeat(of_term, np.diff(ends, prepend=first)), inside))
        positions.append(new[part.of_postings(part.block.positions[inside], inside)])
        counts.append(part.of_postings(part.block.counts[inside], inside))
    numbered = np.concatenate(numbers)
    order = np.argsort(numbered, kind="stable")
    of_each = np.bincount(numbered, minlength=len(together))
    used = np.flatnonzero(of_each)
    return (
        [together[i] for i in used.tolist()],
        of_each[used],
        np.concatenate(positions)[order].astype(np.uint32),
        np.concatenate(counts)[order],
    )


def _read(file: IO[bytes], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    file.seek(0)
    while block := file.read(_READ * dtype.itemsize):
        yield np.frombuffer(block, dtype=dtype)
