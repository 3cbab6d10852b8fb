"""Sums of the database's pages, ``store.db-sums``: what finds an altered byte, in free pages and unused space too.

The file, all numbers uint32, little-endian:

- 16 bytes: ``RGESUMS1``, the page size, and the CRC-32 of these twelve bytes;
- 8 bytes for each page of the database, in order: the CRC-32 of the page, and the CRC-32 of those four bytes followed
  by the page's number, counted from 1. The second tells an altered sum from an altered page. Eight zero bytes stand
  for a page that no commit has written, and that holds nothing but zeros; SQLite leaves such holes, and never writes
  the page that its locks are on, at 1 GiB.

CRC-32 is that of zlib. A page, or a number of pages, that does not agree with the sums is right where a transaction in
``store.db-wal`` explains it: the process was killed after it had copied the log into the database and before it had
written the sums. The next writer then writes them again.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from ragembed.errors import StoreDamagedError
from ragembed.files import NO_LINK, replace_file
from ragembed.indexes import wal

SUMS_SUFFIX = "-sums"

_MAGIC = b"RGESUMS1"
_HEADER_BYTES = 16
_ENTRY_BYTES = 8
_NEVER_WRITTEN = bytes(_ENTRY_BYTES)
_LOCKS_AT = 1 << 30
_BLOCK_BYTES = 1 << 20
_SHOWN = 20
_KEPT = 32


def build(database: Path, final: Path | None = None) -> None:
    """Write the sums of all pages of ``database`` anew, whole or not at all, and wait until they are on disk.

    They go beside ``final``, the name that the database is going to have, where it has another now. Raises
    :class:`StoreDamagedError` where ``database`` is no SQLite database, OSError where a file cannot be read or written.
    """
    file = _PageFile(database)
    entries = [_entry(number, page, file.page_size) for number, page in file.pages(range(1, file.whole + 1))]
    header = _MAGIC + file.page_size.to_bytes(4, "little")
    replace_file(_sums_path(final or database), header + _crc(header) + b"".join(entries))


def update(database: Path, pages: Collection[int]) -> None:
    """Write the sums of ``pages``, counted from 1, as they are in the file now, and wait until they are on disk.

    Numbers beyond the database's end are left out. The sums get as many entries as the database has pages; what is
    written is in proportion to ``pages``. Where there are no sums yet, all are made. Raises as :func:`build`.
    """
    sums = _sums_path(database)
    if not sums.exists():
        build(database)
        return
    file = _PageFile(database)
    with open(os.open(sums, os.O_RDWR | getattr(os, "O_BINARY", 0) | NO_LINK), "r+b") as out:  # noqa: PTH123  as above
        out.truncate(_HEADER_BYTES + _ENTRY_BYTES * file.whole)
        for number, page in file.pages(sorted(number for number in set(pages) if 1 <= number <= file.whole)):
            out.seek(_HEADER_BYTES + _ENTRY_BYTES * (number - 1))
            out.write(_entry(number, page, file.page_size))
        out.flush()
        os.fsync(out.fileno())


def damaged(database: Path) -> list[str]:
    """Return a sentence for each page that is not what was committed, and for each damage to the sums.

    After twenty, the last says how many more there are. Reads all of the database. Damage to the log itself is for
    :func:`ragembed.indexes.wal.damage` to find. No process may write to the store meanwhile. Raises OSError where a
    file cannot be read.
    """
    sums = _sums_path(database)
    if not sums.exists():
        return [f"{sums} is missing: without it, damage to {database} cannot be found"]
    stored = sums.read_bytes()
    header, checksum = stored[:12], stored[12:_HEADER_BYTES]
    page_size = int.from_bytes(header[8:], "little")
    if header[:8] != _MAGIC or checksum != _crc(header) or not wal.is_page_size(page_size):
        return [f"{sums} is damaged: it does not begin with a header of sums"]
    found = list(_disagreements(_PageFile(database, page_size), sums, stored[_HEADER_BYTES:]))
    rest = found[_SHOWN:]
    if not rest:
        return found
    where = f" in {sums}" if all(problem.endswith(f"in {sums} is damaged") for problem in rest) else ""
    return [*found[:_SHOWN], f"and {len(rest):,} more{where}"]


class _PageFile:
    """The database file as pages; ``page_size`` is what the file says unless another is given."""

    def __init__(self, path: Path, page_size: int | None = None) -> None:
        self.path = path
        self._descriptor = _open(path)
        self.stated_page_size = _page_size(self._descriptor.read(2, 16))
        if page_size is None and not wal.is_page_size(self.stated_page_size):
            raise StoreDamagedError(
                f"{path} is not a SQLite database: it says that its pages have {self.stated_page_size} bytes, and they "
                "have 512 to 65536; delete the store and index again"
            )
        self.page_size = page_size or self.stated_page_size
        self.whole, self.rest = divmod(self._descriptor.status().st_size, self.page_size)

    def pages(self, numbers: Iterable[int]) -> Iterator[tuple[int, memoryview]]:
        """Yield ascending page numbers with the pages' bytes, of which the file's last page may have too few."""
        for first, count in _runs(numbers, _BLOCK_BYTES // self.page_size):
            block = memoryview(self._descriptor.read(count * self.page_size, (first - 1) * self.page_size))
            for i in range(count):
                yield first + i, block[i * self.page_size : (i + 1) * self.page_size]


def _disagreements(file: _PageFile, sums: Path, entries: bytes) -> Iterator[str]:
    count, summed = file.whole + (file.rest > 0), len(entries) // _ENTRY_BYTES
    problems: dict[int, str] = {}
    for number, page in file.pages(range(1, count + 1)):
        entry = entries[(number - 1) * _ENTRY_BYTES : number * _ENTRY_BYTES] if number <= summed else _NEVER_WRITTEN
        problem = _problem(number, page, entry) if len(page) == file.page_size else None
        if problem is not None:
            problems[number] = problem
    as_summed = not problems and not file.rest and count == summed
    explained, sizes = (set(), set()) if as_summed else _log_explains(file, {*problems, count})

    if file.stated_page_size != file.page_size:
        yield (
            f"page 1 of {file.path} says that pages have {file.stated_page_size} bytes, "
            f"{sums} has the sums of pages of {file.page_size}"
        )
    if file.rest and count not in explained:
        yield f"page {count} of {file.path} is cut off: it has {file.rest} of {file.page_size} bytes"
    if len(entries) % _ENTRY_BYTES:
        yield f"{sums} is damaged: its last entry is cut off"
    if count != summed and count not in sizes and not (count > summed and count in explained):
        yield f"{sums} has the sums of {summed:,} pages, {file.path} has {count:,} pages: one of them is damaged"
        problems = {number: problem for number, problem in problems.items() if number <= summed}
    for number, problem in problems.items():
        if number not in explained:
            yield problem.format(number=number, database=file.path, sums=sums)


def _problem(number: int, page: memoryview, entry: bytes) -> str | None:
    if entry == _sums(number, page):
        return None
    if entry == _NEVER_WRITTEN:
        empty = not bytes(page).strip(b"\0")
        return None if empty else "page {number} of {database} is not empty, and {sums} has no sum of it"
    if entry[4:] != _crc(entry[:4] + number.to_bytes(4, "little")):
        return "the sum of page {number} in {sums} is damaged"
    return "page {number} of {database} is not what was committed"


def _log_explains(file: _PageFile, numbers: Collection[int]) -> tuple[set[int], set[int]]:
    """Return the pages among ``numbers`` that are as a commit in the log has them, and the log's database sizes."""
    log = file.path.with_name(file.path.name + "-wal")
    explained: set[int] = set()
    sizes: set[int] = set()
    if not log.exists():
        return explained, sizes
    pending: set[int] = set()
    with log.open("rb") as content:
        for frame in wal.frames(log):
            if frame.page in numbers:
                content.seek(frame.offset)
                [(_, page)] = file.pages([frame.page])
                if page and content.read(file.page_size)[: len(page)] == page:
                    pending.add(frame.page)
            if frame.commit:
                explained |= pending
                sizes.add(frame.commit)
                pending.clear()
    return explained, sizes


def _entry(number: int, page: memoryview, page_size: int) -> bytes:
    return _NEVER_WRITTEN if number == _LOCKS_AT // page_size + 1 else _sums(number, page)


def _sums(number: int, page: memoryview) -> bytes:
    sum_of_page = _crc(page)
    return sum_of_page + _crc(sum_of_page + number.to_bytes(4, "little"))


def _crc(block: bytes | memoryview) -> bytes:
    return zlib.crc32(block).to_bytes(4, "little")


def _sums_path(database: Path) -> Path:
    return database.with_name(database.name + SUMS_SUFFIX)


def _page_size(stored: bytes) -> int:
    """Return the page size in two bytes of a database's header, in which 1 stands for 65536."""
    size = int.from_bytes(stored, "big")
    return 65536 if size == 1 else size


def _runs(numbers: Iterable[int], longest: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the count of each run of consecutive numbers."""
    first = count = 0
    for number in numbers:
        if count and number == first + count and count < longest:
            count += 1
            continue
        if count:
            yield first, count
        first, count = number, 1
    if count:
        yield first, count


class _Descriptor:
    """A file open for reading, closed when nothing refers to it any more."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        os.close(self._number)

    def status(self) -> os.stat_result:
        return os.fstat(self._number)

    def read(self, size: int, offset: int) -> bytes:
        if os.name == "nt":
            os.lseek(self._number, offset, os.SEEK_SET)
            return os.read(self._number, size)
        return os.pread(self._number, size, offset)


_kept: dict[tuple[int, int], _Descriptor] = {}  # by device and inode, the last used last
_keeping = threading.Lock()


def _open(database: Path) -> _Descriptor:
    """Open the database file beside SQLite, in a way that leaves SQLite its locks.

    POSIX drops all locks that a process has on a file as soon as it closes any descriptor of it; another process would
    then take the database for its own alone and remove the log. The descriptors of the last files are therefore kept,
    but for those of removed files. See https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
    if os.name == "nt":
        return _Descriptor(os.open(database, flags))
    with _keeping:
        for key in [key for key, descriptor in _kept.items() if descriptor.status().st_nlink == 0]:
            del _kept[key]
        status = database.stat()
        key = (status.st_dev, status.st_ino)
        kept = _kept.pop(key) if key in _kept else _Descriptor(os.open(database, flags))
        _kept[key] = kept
        if len(_kept) > _KEPT:
            del _kept[next(iter(_kept))]
        return kept
