"""Blocks: which texts are encoded together. They are those of a run in one process, so that vectors are the same.

A model that computes in bfloat16 gives a text a slightly different vector in other company.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragembed.documents.boilerplate import Stripper
from ragembed.embedder import Embedder
from ragembed.indexes.records import text_hash
from ragembed.indexes.run_encoding import RunEncoder
from ragembed.indexes.segments import to_raw
from ragembed.indexes.steps import Known
from ragembed.indexes.writer import BATCH
from ragembed.scaling.gathered import GatheredShards
from ragembed.scaling.work import EMBED, Work, read_arrays, write_arrays

Floats = NDArray[np.float32]
Positions = NDArray[np.int64]

_ENDS, _CHUNKS, _FIRST, _RAW = "ends", "chunks", "first", "raw"


@dataclass(frozen=True, slots=True)
class Blocks:
    """The chunks whose texts are encoded, block by block: ``chunks[ends[i - 1]:ends[i]]`` are those of block i.

    ``first`` are the hashes of the first text of each, uint8, shape ``(blocks, 16)``.
    """

    ends: Positions
    chunks: Positions
    first: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.ends)

    def of(self, number: int) -> Positions:
        """Return the chunks of a block, ascending."""
        return self.chunks[self.ends[number - 1] if number else 0 : self.ends[number]]


def plan_blocks(sizes: Sequence[int], hashes: Sequence[bytes], known: Known) -> Blocks:
    """Return the blocks of files with so many chunks each, whose texts have ``hashes``, leaving out what is known.

    Whole files are taken together until they have ``BATCH`` chunks, as the writer takes them; of these chunks those
    whose text was in none before are encoded, ``BATCH`` at a time.
    """
    there = set(known(hashes))
    ends: list[int] = []
    chunks: list[int] = []
    for start, stop in _together(sizes):
        new = []
        for chunk in range(start, stop):
            if hashes[chunk] not in there:
                there.add(hashes[chunk])
                new.append(chunk)
        for i in range(0, len(new), BATCH):
            chunks += new[i : i + BATCH]
            ends.append(len(chunks))
    firsts = b"".join(hashes[chunks[end]] for end in [0, *ends[:-1]]) if ends else b""
    first = np.frombuffer(firsts, dtype=np.uint8).reshape(-1, 16)
    return Blocks(np.array(ends, dtype=np.int64), np.array(chunks, dtype=np.int64), first)


def _together(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first chunk of files that are written together, and that after their last."""
    start = stop = 0
    for size in sizes:
        stop += size
        if stop - start >= BATCH:
            yield start, stop
            start = stop
    if stop > start:
        yield start, stop


def write_blocks(work: Work, blocks: Blocks) -> None:
    """Keep the blocks for the workers."""
    write_arrays(work.blocks_file, {_ENDS: blocks.ends, _CHUNKS: blocks.chunks, _FIRST: blocks.first})


def read_blocks(work: Work) -> Blocks:
    """Return the blocks."""
    arrays = read_arrays(work.blocks_file)
    return Blocks(arrays[_ENDS], arrays[_CHUNKS], arrays[_FIRST])


def embed_block(
    work: Work, gathered: GatheredShards, stripper: Stripper, embedder: Embedder, blocks: Blocks, number: int
) -> int:
    """Encode the texts of a block and write their raw vectors; return how many they are."""
    chunks = blocks.of(number)
    start, stop = int(chunks[0]), int(chunks[-1]) + 1
    wanted = np.zeros(stop - start, dtype=bool)
    wanted[chunks - start] = True
    texts = [text for text, take in zip(gathered.texts(start, stop, stripper), wanted, strict=True) if take]
    write_arrays(work.output(EMBED, number), {_RAW: to_raw(RunEncoder(embedder)(texts))})
    return len(texts)


class EncodedBlocks:
    """What the blocks' tasks wrote, found again by text."""

    def __init__(self, work: Work, blocks: Blocks) -> None:
        self._work = work
        self._numbers = {bytes(first): number for number, first in enumerate(blocks.first)}
        self._sizes = np.diff(blocks.ends, prepend=0)

    def raw(self, texts: Sequence[str]) -> Floats | None:
        """Return the raw vectors of the texts of a block, float32, shape ``(n, d)``; None where they are no block's."""
        number = self._numbers.get(text_hash(texts[0]))
        if number is None or self._sizes[number] != len(texts):
            return None
        raw: Floats = read_arrays(self._work.output(EMBED, number))[_RAW].astype(np.float32)
        return raw
