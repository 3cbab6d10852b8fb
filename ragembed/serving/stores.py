"""The stores that a server answers from: opened on first use, kept open, and brought up to date on request."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ragembed.errors import RagembedError
from ragembed.files import open_regular
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import index_files
from ragembed.indexes.storage.layout import file_path, is_below, require_store
from ragembed.indexes.store import Store
from ragembed.indexes.types import SourceRecord

_HASHES_KEPT = 1000


class ServedStore:
    """A store at ``path`` with a name. Threads may share it. The store may be created after the server starts."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._run: _IndexingRun | None = None
        self._hashes: dict[tuple[str, int, int], str | None] = {}

    @property
    def root(self) -> Path:
        """Folder that the names of files are relative to."""
        return Path(os.path.abspath(self.path)).parent  # noqa: PTH100  resolve() would follow symbolic links

    def open(self) -> Store:
        """Return the open store; raise :class:`ragembed.errors.StoreError` if it cannot be opened."""
        with self._lock:
            if self._store is None:
                self._store = Store.open(self.path)
            require_store(self.path)
            return self._store

    def update(self, seconds: float) -> str | None:
        """Index the files that changed, for at most ``seconds``; return a note if results may still be out of date.

        A run that needs longer continues in the background.
        """
        store, deadline = self.open(), time.monotonic() + seconds
        is_own = False
        while not is_own:  # a run that another call started may have passed the files that changed since
            with self._lock:
                if self._run is None or self._run.done.is_set():
                    self._run, is_own = _IndexingRun(self.path, store), True
                run = self._run
            if not run.done.wait(max(0.0, deadline - time.monotonic())):
                return f"the store is still being updated after {seconds:g} s: recent changes may be missing"
        return run.problem

    def changed(self, names: Iterable[str], *, read: bool = True) -> set[str]:
        """Return the files that changed or disappeared since they were indexed; files behind URLs are not checked.

        If only the time of a file differs, its content decides; without ``read``, the file counts as changed.
        """
        store = self.open()
        roots: Sequence[str] = (store.last_request() or {}).get("paths", [])
        return {name for name, record in store.sources(names).items() if self._is_changed(record, roots, read)}

    def _is_changed(self, record: SourceRecord, roots: Sequence[str], read: bool) -> bool:
        place = file_path(record.path, self.path)
        if not isinstance(place, Path):
            return False
        try:
            status = place.stat()
        except OSError:
            return True
        if status.st_size != record.size or not read:
            return (status.st_size, status.st_mtime_ns) != (record.size, record.mtime_ns)
        if status.st_mtime_ns == record.mtime_ns:
            return False
        known = record.path, status.st_size, status.st_mtime_ns
        if known not in self._hashes:
            while len(self._hashes) >= _HASHES_KEPT:
                self._hashes.pop(next(iter(self._hashes)), None)
            self._hashes[known] = self._hash(place, [root for root in roots if is_below(record.path, root)])
        return self._hashes[known] != record.sha256

    def _hash(self, place: Path, roots: Sequence[str]) -> str | None:
        """Return the hash of a file, or None if it cannot be read without following links below its root."""
        if not roots:
            return None
        root = file_path(max(roots, key=len), self.path)
        try:
            with open_regular(place, root if isinstance(root, Path) else None) as file:
                return hashlib.sha256(file.read()).hexdigest()
        except OSError:
            return None


class _IndexingRun:
    """A run of ``ragembed index`` in a thread of its own, which ends with the process."""

    def __init__(self, path: Path, store: Store) -> None:
        self.done = threading.Event()
        self.problem: str | None = None
        self._request = IndexingRequest(path, opened=store)
        threading.Thread(target=self._index, name="ragembed-auto-index", daemon=True).start()

    def _index(self) -> None:
        try:
            index_files(self._request)
        except RagembedError as error:
            self.problem = f"the store was not updated: {error}"
        except Exception as error:
            logging.getLogger(__name__).exception("The store %s was not updated", self._request.store)
            self.problem = f"the store was not updated: {type(error).__name__}; run 'ragembed index' to see why"
        finally:
            self.done.set()
