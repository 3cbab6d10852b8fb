"""Hashes of files, cached in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from ragembed.files import open_regular, read_regular

_REMEMBERED_BYTES = 1 << 20
"""Smallest size of a file whose hash is cached; a smaller file is faster to read than the cache."""
_MOST_BYTES = 16 << 20
"""Largest cache that is read."""


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file in hex; for a large file it is cached by path, size and modification time.

    The cache is a JSON file in ``$XDG_CACHE_HOME/ragembed``. If it cannot be written, the file is read each time.
    """
    path = path.resolve()
    stat = path.stat()
    if stat.st_size < _REMEMBERED_BYTES:
        return read_sha256(path)
    version = [stat.st_size, stat.st_mtime_ns]
    cache = cache_folder() / "hashes.json"
    known = _read_cache(cache)
    entry = known.get(str(path))
    if isinstance(entry, list) and len(entry) == 3 and entry[:2] == version:
        return str(entry[2])
    digest = read_sha256(path)
    known = {name: value for name, value in known.items() if os.path.exists(name)}  # noqa: PTH110  Path.exists() raises in unreadable folders
    _write_cache(cache, {**known, str(path): [*version, digest]})
    return digest


def cache_folder() -> Path:
    """Return the cache folder, ``$XDG_CACHE_HOME/ragembed`` or ``~/.cache/ragembed``; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "ragembed"  # noqa: PTH111  Path.home() raises if there is none


def read_sha256(path: Path) -> str:
    """Read the whole file, which must be a regular one, and return its sha256 in hex."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _read_cache(cache: Path) -> dict[str, object]:
    """Return the cached hashes by path; an empty dict if the cache cannot be read."""
    try:
        known = json.loads(read_regular(cache, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _write_cache(cache: Path, known: dict[str, object]) -> None:
    """Write the cache, if possible."""
    temporary = cache.with_suffix(f".{os.getpid()}.tmp")
    try:
        cache.parent.mkdir(0o700, parents=True, exist_ok=True)
        temporary.write_text(json.dumps(known), encoding="utf-8")
        temporary.replace(cache)
    except OSError:
        return  # without a cache, the file is read again next time
