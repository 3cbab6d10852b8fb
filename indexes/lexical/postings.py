"""Posting lists: for each term, the chunks that contain it and how often.

A :class:`PostingsBlock` holds the postings of some chunks as arrays, in memory or mapped from a file. A
:class:`LiveBlock` excludes chunks that have changed since.
"""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ModelError, StoreDamagedError
from ragembed.files import create_file
from ragembed.tensor_map import map_tensors
from ragembed.types import Bools, Integers

Positions = NDArray[np.uint32]
Counts = NDArray[np.unsignedinteger[Any]]

_NAMES = {np.dtype("u1"): "U8", np.dtype("<u2"): "U16", np.dtype("<u4"): "U32", np.dtype("<i8"): "I64"}
_ALIGNED = 8
_TERMS_KEPT = 10_000
_SEARCH = 16
"""Number of postings that can be scanned in the time of one binary search."""
_TERMS = 4096
"""Number of terms that are merged at once."""
_READ = 1 << 20

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class PostingsBlock:
    """The postings of ``n`` chunks with ``t`` distinct terms and ``p`` postings.

    ``chunks`` are keys and ``lengths`` numbers of terms, int64, shape ``(n,)``; the index of a chunk there is its
    position. ``text`` has the terms in UTF-8, sorted by bytes, uint8; ``text_ends`` their ends, and ``ends`` those of
    their postings, int64, shape ``(t,)``. A posting is a position (uint32, ascending for each term) with a number of
    occurrences in ``counts`` (an unsigned type); both shape ``(p,)``.
    """

    chunks: Integers
    lengths: Integers
    text: NDArray[np.uint8]
    text_ends: Integers
    ends: Integers
    positions: Positions
    counts: Counts

    @classmethod
    def read(cls, file: Path) -> PostingsBlock:
        """Map a file of :func:`write_block`; raises :class:`StoreDamagedError` if it is invalid."""
        try:
            arrays = dict(map_tensors(file))
            block = cls(**arrays)
        except (ModelError, TypeError) as error:
            raise StoreDamagedError(
                f"{file} does not contain postings: rebuild it with 'ragembed doctor --repair'"
            ) from error
        if not block._is_consistent():
            raise StoreDamagedError(f"the arrays of {file} do not match: rebuild it with 'ragembed doctor --repair'")
        return block

    def _is_consistent(self) -> bool:
        arrays = [getattr(self, field.name) for field in fields(self)]
        return (
            all(array.ndim == 1 for array in arrays)
            and all(array.dtype == np.int64 for array in (self.chunks, self.lengths, self.text_ends, self.ends))
            and self.text.dtype == np.uint8
            and self.positions.dtype == np.uint32
            and self.counts.dtype.kind == "u"
            and len(self.chunks) == len(self.lengths)
            and len(self.text_ends) == len(self.ends)
            and len(self.positions) == len(self.counts) == _last(self.ends)
            and len(self.text) == _last(self.text_ends)
        )

    def is_sound(self) -> bool:
        """Return whether all values are in their ranges; reads the whole block."""
        return (
            all(bool((np.diff(ends, prepend=0) >= 0).all()) for ends in (self.ends, self.text_ends))
            and bool((self.lengths >= 0).all())
            and (not len(self.positions) or int(self.positions.max()) < len(self.chunks))
        )

    def save(self, file: Path) -> None:
        """Write the block to ``file``."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        sizes = {name: (array.dtype, len(array)) for name, array in arrays.items()}
        write_block(file, sizes, {name: [array] for name, array in arrays.items()})

    def term(self, i: int) -> bytes:
        """Return the term with index ``i``, in UTF-8."""
        text, ends = self._views
        return text[ends[i - 1] if i else 0 : ends[i]].tobytes()

    @cached_property
    def _found(self) -> dict[bytes, slice]:
        """The slices of terms of earlier queries."""
        return {}

    @cached_property
    def _views(self) -> tuple[memoryview, memoryview]:
        """``text`` and ``text_ends`` as views whose items are read three times as fast as those of an array."""
        return self.text.data, self.text_ends.data

    def place(self, term: bytes) -> int:
        """Return the index of the first term that is not less than ``term``."""
        return bisect_left(range(len(self.ends)), term, key=self.term)

    def of(self, term: bytes) -> slice:
        """Return the slice of the postings of ``term``; empty if no chunk contains the term."""
        postings = self._found.get(term)
        if postings is None:
            i = self.place(term)
            is_term = i < len(self.ends) and self.term(i) == term
            postings = slice(int(self.ends[i - 1]) if i else 0, int(self.ends[i])) if is_term else slice(0, 0)
            if len(self._found) == _TERMS_KEPT:
                self._found.clear()
            self._found[term] = postings
        return postings


def _last(ends: Integers) -> int:
    return int(ends[-1]) if len(ends) else 0


def counts_type(most: int) -> np.dtype[Any]:
    """Return the smallest unsigned type that holds ``most``."""
    return np.min_scalar_type(most).newbyteorder("<")


def write_block(
    file: Path, sizes: Mapping[str, tuple[np.dtype[Any], int]], pieces: Mapping[str, Iterable[NDArray[Any]]]
) -> None:
    """Write one-dimensional arrays as a safetensors file, piece by piece.

    ``sizes`` are the type and length of each array, by its name in :class:`PostingsBlock`; ``pieces`` are its parts.
    """
    header: dict[str, dict[str, Any]] = {}
    start = 0
    ordered = sorted(sizes, key=lambda name: -sizes[name][0].itemsize)  # largest items first: all arrays are aligned
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


@dataclass(frozen=True, eq=False)
class LiveBlock:
    """A block and a mask of its chunks that are unchanged since it was built, shape ``(n,)``; None if all are."""

    block: PostingsBlock
    live: Bools | None = None

    @classmethod
    def without(cls, block: PostingsBlock, stale: Integers) -> LiveBlock:
        """Return ``block`` without the chunks whose keys are ``stale``."""
        return cls(block, ~np.isin(block.chunks, stale) if len(stale) else None)

    def __len__(self) -> int:
        return len(self.block.chunks) if self.live is None else int(self.live.sum())

    def chunks(self) -> Integers:
        """Return the keys of the live chunks."""
        return self.of_chunks(self.block.chunks)

    def lengths(self) -> Integers:
        """Return the number of terms of each live chunk."""
        return self.of_chunks(self.block.lengths)

    def of_chunks(self, values: Integers) -> Integers:
        """Return the elements of ``values``, which has one for each chunk, that belong to live chunks."""
        return values if self.live is None else values[self.live]

    @cached_property
    def dead(self) -> Integers:
        """The positions of the chunks that are not live, ascending."""
        return np.zeros(0, dtype=np.int64) if self.live is None else np.flatnonzero(~self.live)

    @cached_property
    def order(self) -> Integers:
        """The positions of the chunks, sorted by key."""
        return np.argsort(self.block.chunks, kind="stable")

    def count(self, inside: slice) -> int:
        """Return the number of live chunks in the postings ``inside``, the slice of one term."""
        positions = self.block.positions[inside]
        if self.live is None or not len(positions):
            return len(positions)
        if len(self.dead) * _SEARCH > len(positions):
            return int(np.count_nonzero(self.live[positions]))
        at = np.minimum(np.searchsorted(positions, self.dead.astype(positions.dtype)), len(positions) - 1)
        return len(positions) - int(np.count_nonzero(positions[at] == self.dead))

    def of_postings(self, values: NDArray[Scalar], inside: slice) -> NDArray[Scalar]:
        """Return the elements of ``values``, which has one for each posting ``inside``, that belong to live chunks."""
        return values if self.live is None else values[self.live[self.block.positions[inside]]]

    def renumbered(self, first: int) -> Integers:
        """Return new positions of the chunks: live ones are numbered from ``first``, others get arbitrary numbers."""
        live = np.ones(len(self.block.chunks), dtype=np.bool_) if self.live is None else self.live
        return np.cumsum(live, dtype=np.int64) - 1 + first


def merge(parts: Sequence[LiveBlock], file: Path) -> None:
    """Write the live chunks of ``parts``, in order, as one block to ``file``, beside which temporary files buffer."""
    chunks = np.concatenate([part.chunks() for part in parts])
    lengths = np.concatenate([part.lengths() for part in parts])
    dtype = max((part.block.counts.dtype for part in parts), key=lambda candidate: candidate.itemsize)
    terms: list[bytes] = []
    of_each: list[Integers] = []
    with tempfile.TemporaryFile(dir=file.parent) as positions, tempfile.TemporaryFile(dir=file.parent) as counts:
        firsts = accumulate((len(part) for part in parts), initial=0)
        renumbered = [part.renumbered(first) for part, first in zip(parts, firsts, strict=False)]
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


def _by_terms(blocks: Sequence[PostingsBlock]) -> Iterator[list[slice]]:
    """Yield slices of the terms of each block. Together, the slices of one step have all terms up to some bound."""
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
    """Return the terms at ``places`` that live chunks contain, the number of postings of each, and the postings."""
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
