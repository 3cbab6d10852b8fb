"""Blocks of postings: which of some chunks have a term how often, as arrays, in memory or mapped from a file."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ModelError, StoreDamagedError
from ragembed.files import create_file
from ragembed.tensor_map import map_tensors

Integers = NDArray[np.int64]
Positions = NDArray[np.uint32]
Counts = NDArray[np.unsignedinteger[Any]]

_NAMES = {np.dtype("u1"): "U8", np.dtype("<u2"): "U16", np.dtype("<u4"): "U32", np.dtype("<i8"): "I64"}
_ALIGNED = 8


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The postings of ``n`` chunks with ``t`` different terms.

    Parameters
    ----------
    chunks
        Keys of the chunks, int64, shape ``(n,)``; a chunk's place in it is its position.
    lengths
        How many terms each chunk has, int64, shape ``(n,)``.
    text, text_ends
        The terms as UTF-8, in order of their bytes, one after another, uint8; where each ends, int64, shape ``(t,)``.
    ends
        Where the postings of each term end, int64, shape ``(t,)``.
    positions, counts
        The postings: positions of chunks, uint32, ascending for each term, and how often each of these has the term, an
        unsigned type; shapes ``(p,)``.
    """

    chunks: Integers
    lengths: Integers
    text: NDArray[np.uint8]
    text_ends: Integers
    ends: Integers
    positions: Positions
    counts: Counts

    @classmethod
    def read(cls, file: Path) -> Block:
        """Map a file of :func:`write_block`; raises :class:`StoreDamagedError` where it is not one."""
        try:
            arrays = dict(map_tensors(file))
            block = cls(**arrays)
        except (ModelError, TypeError) as error:
            raise StoreDamagedError(
                f"{file} does not hold postings: rebuild it with: ragembed verify --repair"
            ) from error
        if not block._is_consistent():
            raise StoreDamagedError(f"the arrays of {file} do not fit: rebuild it with: ragembed verify --repair")
        return block

    def _is_consistent(self) -> bool:
        return (
            len(self.chunks) == len(self.lengths)
            and len(self.text_ends) == len(self.ends)
            and len(self.positions) == len(self.counts) == _last(self.ends)
            and len(self.text) == _last(self.text_ends)
        )

    def save(self, file: Path) -> None:
        """Write the block to ``file``."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        sizes = {name: (array.dtype, len(array)) for name, array in arrays.items()}
        write_block(file, sizes, {name: [array] for name, array in arrays.items()})

    def term(self, i: int) -> bytes:
        """Return the term at place ``i``, UTF-8."""
        return self.text[_start(self.text_ends, i) : self.text_ends[i]].tobytes()

    def place(self, term: bytes) -> int:
        """Return the place of the first term that does not come before ``term``."""
        return bisect_left(range(len(self.ends)), term, key=self.term)

    def of(self, term: bytes) -> slice:
        """Return where the postings of ``term`` are; an empty place where no chunk has it."""
        i = self.place(term)
        if i == len(self.ends) or self.term(i) != term:
            return slice(0, 0)
        return slice(_start(self.ends, i), int(self.ends[i]))


def _start(ends: Integers, i: int) -> int:
    return int(ends[i - 1]) if i else 0


def _last(ends: Integers) -> int:
    return int(ends[-1]) if len(ends) else 0


def counts_type(most: int) -> np.dtype[Any]:
    """Return the smallest unsigned type that holds ``most``."""
    return np.min_scalar_type(most).newbyteorder("<")


Pieces = Iterable[NDArray[Any]]


def write_block(file: Path, sizes: Mapping[str, tuple[np.dtype[Any], int]], pieces: Mapping[str, Pieces]) -> None:
    """Write arrays of one dimension as a safetensors file, each piece by piece.

    ``sizes`` are the type and the length of each, by its name in :class:`Block`, ``pieces`` what to write of it.
    """
    header: dict[str, dict[str, Any]] = {}
    start = 0
    ordered = sorted(sizes, key=lambda name: -sizes[name][0].itemsize)  # so that each begins where its type may
    for name in ordered:
        dtype, length = sizes[name]
        end = start + dtype.itemsize * length
        header[name] = {"dtype": _NAMES[dtype], "shape": [length], "data_offsets": [start, end]}
        start = end
    described = json.dumps(header).encode()
    described += b" " * (-len(described) % _ALIGNED)
    with create_file(file) as stream:
        stream.write(len(described).to_bytes(8, "little") + described)
        for name in ordered:
            for piece in pieces[name]:
                stream.write(np.ascontiguousarray(piece, dtype=sizes[name][0]).data)
