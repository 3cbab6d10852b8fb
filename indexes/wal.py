"""SQLite's write-ahead log, ``store.db-wal``: its frames, and whether bytes of it were altered.

The format, https://www.sqlite.org/fileformat2.html#the_write_ahead_log: a header of 32 bytes, then frames, each a
header of 24 bytes and one page. The files beside the log (``-shm``, the database) are not opened here: closing
them would drop the locks that SQLite holds on them in this process.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

_MAGIC = {0x377F0682: "<u4", 0x377F0683: ">u4"}  # the byte order of the words that checksums are made of
_VERSION = 3007000
_HEADER = struct.Struct(">4I8s2I")  # magic, version, page size, checkpoint, salts, checksum
_FRAME = struct.Struct(">2I8s2I")  # page, size after a commit, salts, checksum
_MODULUS = 1 << 32

_Words = npt.NDArray[np.uint32]
_Sums = tuple[int, int]


class Frame(NamedTuple):
    """One page in the log."""

    page: int  # its number, from 1
    commit: int  # the database's size in pages after the transaction that this frame ends; 0 within a transaction
    offset: int  # where the bytes of the page begin in the log


class _Header(NamedTuple):
    page_size: int
    salts: bytes
    sums: _Sums
    order: str


class _Stored(NamedTuple):
    frame: Frame
    salts: bytes
    sums: _Sums

    def is_unfinished(self) -> bool:
        """Tell whether SQLite left salts and checksum for the end of the transaction, as it does in large ones."""
        return self.frame.page > 0 and not any(self.salts) and self.sums == (0, 0)


def is_page_size(size: int) -> bool:
    """Tell whether SQLite can have pages of ``size`` bytes: a power of two from 512 to 65536."""
    return 512 <= size <= 65536 and size & (size - 1) == 0


def frames(wal: Path) -> Iterator[Frame]:
    """Yield the valid frames in order, one page in memory at a time; none where there is no log.

    A frame is valid when it and all before it have the salts of the header and the right checksum. Those after the
    last frame with a ``commit`` belong to a transaction that has not ended.
    """
    if wal.exists():
        with wal.open("rb", buffering=0) as file:
            header = _read_header(file)
            if header is not None:
                for stored in _valid(file, header):
                    yield stored.frame


def pages(wal: Path) -> set[int]:
    """Return the numbers of all pages that frames with the salts of the header are of; reads no page.

    These are at least the pages of the valid frames. Empty where there is no log.
    """
    if not wal.exists():
        return set()
    with wal.open("rb", buffering=0) as file:
        header = _read_header(file)
        if header is None:
            return set()
        return {stored.frame.page for stored in _stored(file, header) if stored.salts == header.salts}


def damage(wal: Path) -> str | None:
    """Return one sentence if the log was altered in a way that killing a process does not explain, else None.

    Reported are a header without its checksum, and a frame

    - with only one of the header's two salts, or with other salts than a later frame has, which are the header's; or
    - without its checksum, where a later frame ends a transaction; or
    - without its checksum, that ends a transaction itself, or did before one word was altered. Where frames follow it,
      it is reported only if another value of one 32-bit word would give the checksum: SQLite writes a frame in two
      parts, and killed in between leaves the page of an earlier frame in the second.

    So any altered byte of a transaction that has ended is found. Not reported is what a kill leaves: a file shorter
    than its header; an incomplete last frame; a transaction without its end, whose frames SQLite may have written
    without salts or over others; the rest of one that was rolled back; frames from before the log was begun anew.

    A power cut may leave a torn frame, which can be reported too. No process may write to the log meanwhile.
    """
    if not wal.exists() or wal.stat().st_size < _HEADER.size:
        return None
    with wal.open("rb", buffering=0) as file:
        header = _read_header(file)
        if header is None:
            found = "it does not begin with a header of SQLite's, so none of its commits can be read"
        else:
            number = _altered(file, header)
            if number is None:
                return None
            found = f"frame {number} is not what was written, so no commit from there on can be read"
    return f"{wal} is damaged: {found}"


def _altered(file: BinaryIO, header: _Header) -> int | None:
    """Return the number, from 1, of the frame that was altered."""
    valid, sums = 0, header.sums
    for stored in _valid(file, header):
        valid, sums = valid + 1, stored.sums
    broken: _Stored | None = None
    foreign: int | None = None
    last, last_end = valid, valid
    for last, stored in enumerate(_stored(file, header, valid), valid + 1):
        same = (stored.salts[:4] == header.salts[:4]) + (stored.salts[4:] == header.salts[4:])
        if same == 1:
            return last
        if same == 0 and not stored.is_unfinished():
            foreign = foreign or last
        elif same == 2 and foreign is not None:
            return foreign
        else:
            broken = broken or stored
            last_end = last if same == 2 and stored.frame.commit else last_end
    if broken is None:
        return None
    first = valid + 1
    if last_end > first or last_end == last == first or _one_word_explains(file, header, broken, sums):
        return first
    return None


def _read_header(file: BinaryIO) -> _Header | None:
    file.seek(0)
    block = file.read(_HEADER.size)
    if len(block) < _HEADER.size:
        return None
    magic, version, page_size, _, salts, first, second = _HEADER.unpack(block)
    order = _MAGIC.get(magic)
    if order is None or version != _VERSION or not is_page_size(page_size):
        return None
    if _checksum((0, 0), _words(block[:24], order)) != (first, second):
        return None
    return _Header(page_size, salts, (first, second), order)


def _stored(file: BinaryIO, header: _Header, skip: int = 0) -> Iterator[_Stored]:
    """Yield every complete frame after the first ``skip``, whatever its salts and checksum."""
    step = _FRAME.size + header.page_size
    end = file.seek(0, os.SEEK_END)
    for start in range(_HEADER.size + skip * step, end - step + 1, step):
        file.seek(start)
        page, commit, salts, first, second = _FRAME.unpack(file.read(_FRAME.size))
        yield _Stored(Frame(page, commit, start + _FRAME.size), salts, (first, second))


def _valid(file: BinaryIO, header: _Header) -> Iterator[_Stored]:
    sums = header.sums
    for stored in _stored(file, header):
        if stored.salts != header.salts or stored.frame.page == 0:
            return
        sums = _checksum(sums, _frame_words(file, header, stored))
        if sums != stored.sums:
            return
        yield stored


def _frame_words(file: BinaryIO, header: _Header, stored: _Stored) -> _Words:
    file.seek(stored.frame.offset - _FRAME.size)
    block = file.read(_FRAME.size + header.page_size)
    return _words(block[:8] + block[_FRAME.size :], header.order)


def _words(block: bytes, order: str) -> _Words:
    return np.frombuffer(block, order).astype(np.uint32)


def _checksum(sums: _Sums, words: _Words) -> _Sums:
    """Return SQLite's checksum ``sums`` carried on over ``words``, an even number of them.

    SQLite repeats s0 += x[i] + s1; s1 += x[i+1] + s0, modulo 2**32. That is one sequence t[i] = x[i] + t[i-1] + t[i-2]
    that starts with t[-2] = s0, t[-1] = s1 and ends with them. It is linear: a word counts in a later term as often
    as the Fibonacci number of the distance says.
    """
    n = len(words)
    fibonacci, first, second = _weights(n)
    s0 = int(words @ first) + fibonacci[n - 1] * sums[0] + fibonacci[n] * sums[1]
    s1 = int(words @ second) + fibonacci[n] * sums[0] + fibonacci[n + 1] * sums[1]
    return s0 % _MODULUS, s1 % _MODULUS


@cache
def _weights(n: int) -> tuple[list[int], _Words, _Words]:
    """Return the Fibonacci numbers 0 to n + 1 modulo 2**32, and how often each of n words counts in s0 and in s1."""
    fibonacci = [0, 1]
    for _ in range(n):
        fibonacci.append((fibonacci[-1] + fibonacci[-2]) % _MODULUS)
    return fibonacci, np.array(fibonacci[n - 1 :: -1], np.uint32), np.array(fibonacci[n:0:-1], np.uint32)


def _one_word_explains(file: BinaryIO, header: _Header, stored: _Stored, before: _Sums) -> bool:
    """Tell whether a frame that ends a transaction would have its checksum if one word, or one sum, were another.

    For a frame that ends none, the word is the one that would say so. A word that is off by e puts the checksum off by
    e times its two weights, one of which is odd.
    """
    words = _frame_words(file, header, stored)
    found = _checksum(before, words)
    off = [(stored.sums[i] - found[i]) % _MODULUS for i in (0, 1)]
    _, first, second = _weights(len(words))
    explains = first * np.uint32(off[1]) == second * np.uint32(off[0])
    return (0 in off or bool(explains.any())) if stored.frame.commit else bool(explains[1])
