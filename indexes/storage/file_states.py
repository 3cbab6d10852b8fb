"""Whether the files in a store changed or were deleted since they were indexed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ragembed.files import open_regular
from ragembed.indexes.storage.layout import file_path, is_below
from ragembed.indexes.types import SourceRecord, storable_time
from ragembed.stopping import check

FileState = Literal["changed", "deleted"]

_HASHES_KEPT = 1000
_HASH_PART = 2**20


def file_state(record: SourceRecord, roots: Sequence[str], store: Path, *, read: bool = True) -> FileState | None:
    """Return how a file differs from its record, or None if it does not, is behind a URL, or cannot be accessed now.

    ``roots`` are the indexed paths. As in an indexing run, links below them are not followed, and a file with the same
    size and time is unchanged. If only the time differs, its content decides; without ``read``, it counts as changed.
    """
    place = file_path(record.path, store)
    if not isinstance(place, Path):
        return None
    root = root_place(record.path, roots, store)
    try:
        status = _status(place, root)
    except (FileNotFoundError, NotADirectoryError):
        return "deleted"
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return "deleted"
    if not stat.S_ISREG(status.st_mode) or status.st_size != record.size:
        return "changed"
    if storable_time(status.st_mtime_ns) == record.mtime_ns:
        return None
    if read and root is not None and _content_hash(place, root, status.st_size, status.st_mtime_ns) == record.sha256:
        return None
    return "changed"


def root_place(source: str, roots: Sequence[str], store: Path) -> Path | None:
    """Return the innermost of the indexed paths ``roots`` that contains a file, or None if none does."""
    above = [root for root in roots if is_below(source, root)]
    place = file_path(max(above, key=len), store) if above else None
    return place if isinstance(place, Path) else None


def _status(place: Path, root: Path | None) -> os.stat_result:
    """Return the status of a file; it is that of a link if the file or a folder above it, below ``root``, is one."""
    if place == root:
        return place.stat()
    if root is not None:
        for folder in list(place.parents)[: len(place.relative_to(root).parts) - 1]:
            if stat.S_ISLNK((status := folder.lstat()).st_mode):
                return status
    return place.lstat()


@lru_cache(_HASHES_KEPT)
def _content_hash(place: Path, root: Path, size: int, mtime_ns: int) -> str | None:
    """Return the hash of a file with this size and time, or None if it cannot be read without following links."""
    try:
        with open_regular(place, root) as file:
            status = os.fstat(file.fileno())
            if (status.st_size, status.st_mtime_ns) != (size, mtime_ns):
                return None
            made = hashlib.sha256()
            for part in iter(lambda: file.read(_HASH_PART), b""):
                check()
                made.update(part)
            return made.hexdigest()
    except OSError:
        return None
