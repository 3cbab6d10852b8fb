"""Hashes of files, read once for each version of a file and remembered in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

_REMEMBERED_BYTES = 1 << 20
"""Size from which reading a file costs more than remembering its hash."""


def file_sha256(path: Path) -> str:
    """Return the file's sha256 in hex, read once for each (path, size, modification time) if it is large.

    The memory is a JSON file in the user's cache folder (``$XDG_CACHE_HOME/ragembed``); where that cannot be
    written, the file is read again each time.
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
    known = {name: value for name, value in known.items() if os.path.exists(name)}  # noqa: PTH110  Path.exists() raises in folders that cannot be read
    _write_cache(cache, {**known, str(path): [*version, digest]})
    return digest


def cache_folder() -> Path:
    """Return the folder for what can be made again, ``$XDG_CACHE_HOME/ragembed``; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "ragembed"  # noqa: PTH111  Path.home() raises where there is none


def read_sha256(path: Path) -> str:
    """Read the whole file and return its sha256 in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _read_cache(cache: Path) -> dict[str, object]:
    try:
        known = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write_cache(cache: Path, known: dict[str, object]) -> None:
    temporary = cache.with_suffix(f".{os.getpid()}.tmp")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(known), encoding="utf-8")
        temporary.replace(cache)
    except OSError:
        return  # a home that cannot be written costs one more reading of the file, nothing else
