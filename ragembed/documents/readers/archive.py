"""Read zip and tar archives, and compressed files, as folders. Nothing is written to disk; paths are only names.

The standard library's ``tarfile`` reads headers of any length into memory and applies slow patterns to them, so this
module reads the blocks of a tar file itself and only leaves the parsing of one block to ``tarfile``.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from ragembed.documents.model import Member
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import well_formed
from ragembed.errors import DocumentError

MOST_ENTRIES = 100_000
"""Maximum number of entries of a zip archive, read or not. Each takes a kilobyte of memory."""
LARGEST_STREAM = 10
"""Maximum size of a compressed tar archive, unpacked, as a multiple of the maximum size of a file."""
LARGEST_HEADER = 65_536
"""Maximum size of the extended header of a member of a tar archive, in bytes."""
UNPACKING_ERRORS = (
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
)
"""The errors of the standard library's modules for damaged or unsupported compressed data."""
_OPENERS: dict[str, Callable[[io.BytesIO], io.BufferedIOBase]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".tgz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".tbz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".txz": lzma.LZMAFile,
}
_DIRECTORY_ENTRY = b"PK\x01\x02"
_BLOCK = 512
_EXTENSIONS, _WITHOUT_CONTENT = b"KLXgx", b"123456"
"""The types of entries with more of the next header, and of links, devices, folders and pipes."""
_REGULAR = 8
"""The type of regular files in the upper bits of a Unix mode, which zip archives from Unix keep."""
_PAX_RECORD = re.compile(rb"(\d{1,20}) ([^=\n]{1,100})=")


def parse_zip(file: RawFile) -> Iterator[Member]:
    """Yield the files in a zip archive of at most ``MOST_ENTRIES`` entries, in the order of the archive."""
    if file.data.count(_DIRECTORY_ENTRY) > MOST_ENTRIES:
        raise DocumentError(f"has more than {MOST_ENTRIES:,} entries: unpack it, and index the folder")
    try:
        archive = zipfile.ZipFile(io.BytesIO(file.data))
    except UNPACKING_ERRORS as error:
        raise DocumentError(f"broken zip: {error}") from error
    with archive:
        for entry in archive.infolist():
            if entry.filename.endswith("/") or not entry.file_size:
                continue
            name = _path_of(entry.filename)
            refused = _name_problem(name)
            if entry.external_attr >> 28 not in (0, _REGULAR):
                refused = "it is a link or a device"
            elif entry.flag_bits & 1:
                refused = "it is encrypted"
            yield Member(
                name,
                entry.file_size,
                partial(_unpacked, partial(archive.open, entry), entry.file_size),
                packed=entry.compress_size,
                refused=refused,
            )


def parse_tar(file: RawFile) -> Iterator[Member]:
    """Yield the files in a tar archive, within ``LARGEST_STREAM``, or the content of another compressed file."""
    opener = _OPENERS.get(file.suffix)
    stream = _Stream(
        io.BytesIO(file.data) if opener is None else opener(io.BytesIO(file.data)),
        max(len(file.data), LARGEST_STREAM * file.options.max_member_bytes),
    )
    head = stream.read(_BLOCK)
    if opener is None or _is_tar(head):
        yield from _tar_members(stream, head)
        return
    content = head + stream.read(file.options.max_member_bytes)
    yield Member(Path(file.name).stem, len(content), lambda: content, packed=len(file.data))


def _tar_members(stream: _Stream, block: bytes) -> Iterator[Member]:
    """Yield the members of a tar archive, whose first block is ``block``."""
    extended = _ExtendedHeader()
    while block.strip(b"\0"):
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
        except tarfile.HeaderError as error:
            raise DocumentError(f"broken tar: {error}") from error
        if header.type in _EXTENSIONS:
            extended.add(header.type, stream.exactly(header.size, LARGEST_HEADER))
            stream.skip_padding()
        else:
            yield from _tar_member(stream, header, block, extended)
            extended = _ExtendedHeader()
        block = stream.read(_BLOCK)


def _tar_member(stream: _Stream, header: tarfile.TarInfo, block: bytes, extended: _ExtendedHeader) -> Iterator[Member]:
    """Yield the member with ``header`` if it is not a folder, and skip its content if nobody has loaded it."""
    name = _path_of(extended.name or header.name)
    size = header.size if extended.size is None else extended.size
    refused = _name_problem(name)
    if header.type == tarfile.GNUTYPE_SPARSE:
        more = block[482]  # further headers follow
        while more:
            more = stream.exactly(_BLOCK)[504]
    if not header.isreg() or header.type == tarfile.GNUTYPE_SPARSE or extended.sparse:
        refused = "it is a link, a device or a sparse file"
    if header.type in _WITHOUT_CONTENT:
        size = 0
    end = stream.position + size
    if not header.isdir() and (size or refused):
        yield Member(name, size, lambda: stream.exactly(size), refused=refused)
    stream.skip(end - stream.position)
    stream.skip_padding()


class _ExtendedHeader:
    """Values that precede the header of a member of a tar archive, because they do not fit into it."""

    def __init__(self) -> None:
        self.name = ""
        self.size: int | None = None
        self.sparse = False

    def add(self, kind: bytes, content: bytes) -> None:
        """Add the values of an extended header of type ``kind``. Only the names and sizes of files matter."""
        if kind == tarfile.GNUTYPE_LONGNAME:
            self.name = content.partition(b"\0")[0].decode("utf-8", "replace")
        if kind not in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            return
        start = 0
        while record := _PAX_RECORD.match(content, start):
            key, end = record[2], start + int(record[1])
            value = content[record.end() : end - 1]
            if key == b"path":
                self.name = value.decode("utf-8", "replace")
            elif key == b"size" and value.isdigit():
                self.size = int(value)
            self.sparse = self.sparse or key.startswith(b"GNU.sparse.")
            start = max(end, record.end())


class _Stream:
    """A file that is read forwards, up to ``limit`` bytes. ``position`` is the number of bytes read so far."""

    def __init__(self, file: io.BufferedIOBase, limit: int) -> None:
        self.position = 0
        self._file = file
        self._limit = limit

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or all that are left; raise :class:`DocumentError` beyond ``limit`` bytes."""
        # One byte more than is allowed shows whether the file is too large.
        allowed = min(size, self._limit + 1 - self.position)
        try:
            data = self._file.read(allowed)
        except UNPACKING_ERRORS as error:
            raise DocumentError(f"cannot be unpacked: {error}") from error
        self.position += len(data)
        if self.position > self._limit:
            raise DocumentError(f"unpacks to more than {self._limit:,} bytes")
        return data

    def exactly(self, size: int, largest: int | None = None) -> bytes:
        """Return the next ``size`` bytes. Raises :class:`DocumentError` if there are fewer, or ``size`` is invalid."""
        data = self.read(size) if 0 <= size <= (largest or self._limit) else b""
        if len(data) != size:
            raise DocumentError("broken tar: cut off, or with an invalid header")
        return data

    def skip(self, size: int) -> None:
        """Skip ``size`` bytes, or all that are left."""
        while size > 0 and (data := self.read(min(size, 1 << 20))):
            size -= len(data)

    def skip_padding(self) -> None:
        """Skip the rest of a block."""
        self.skip(-self.position % _BLOCK)


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "replace")
    except tarfile.HeaderError:
        return False
    return True


def _unpacked(opened: Callable[[], IO[bytes]], size: int) -> bytes:
    """Read one member, which declares to have ``size`` bytes."""
    try:
        with opened() as file:
            return file.read(size)
    except UNPACKING_ERRORS as error:
        raise DocumentError(f"cannot be unpacked: {error}") from error


def _path_of(name: str) -> str:
    """Return the name of an entry as a path with ``/`` and without ``./`` at its start."""
    return well_formed(name).replace("\\", "/").removeprefix("./")


def _name_problem(name: str) -> str | None:
    """Return the reason to skip a member whose name is not a path below the archive, or None."""
    parts = name.split("/")
    if not parts[0] or ".." in parts or re.match("[A-Za-z]:", name):
        return "its name leads outside the archive"
    return None
