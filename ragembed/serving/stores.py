"""The stores that a server answers from: opened on first use, kept open, and brought up to date on request."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ragembed.documents.readers.registry import member_of, sheet_of
from ragembed.errors import ConfigError, RagembedError, StoreError, StoreLockedError
from ragembed.indexes.collection import Collection
from ragembed.indexes.filters.globs import path_in_store
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.watch import Watcher
from ragembed.indexes.search.context import one_line
from ragembed.indexes.search.relevance import collected_notes
from ragembed.indexes.storage.layout import require_store, root_of, source_path
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, Hit
from ragembed.serving.tool_schemas import EVERY

Answer = TypeVar("Answer")
_WATCH_RETRY_SECONDS = 10.0
"""Pause before a store is watched again after an error, such as a store that does not exist yet."""
_LOG = logging.getLogger(__name__)
_MOST_LISTED = 20


class UnknownNameError(ConfigError):
    """A request names a file or a chunk that the store does not have."""


class ServedStore:
    """A store at ``path`` with a name. Threads may share it. The store may be created after the server starts."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._run: _IndexingRun | None = None

    @property
    def root(self) -> Path:
        """Folder that the names of files are relative to."""
        return root_of(self.path)

    def open(self) -> Store:
        """Return the open store; raise :class:`ragembed.errors.StoreError` if it cannot be opened."""
        with self._lock:
            if self._store is None:
                self._store = Store.open(self.path)
            require_store(self.path)
            return self._store

    def warm_up(self) -> None:
        """Load the model, so that the first search is as quick as the next. A problem is logged."""
        try:
            self.open().embedder.encode_queries(["warm-up"])
        except RagembedError as error:
            _LOG.warning("the store %s is not ready: %s", self.name, error)
        except Exception:  # noqa: BLE001  the server answers from its other stores, and the log gets the traceback
            _LOG.exception("the store %s is not ready", self.name)

    def update(self, seconds: float) -> str | None:
        """Index changed files for up to ``seconds``, then in the background; return a note if results may be old."""
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

    def watch(self, stop: threading.Event) -> None:
        """Update the store whenever its files change, until ``stop`` is set or another process watches the store.

        After any other error, for example because the store does not exist yet, this tries again.
        """
        logged = None
        while not stop.is_set():
            try:
                Watcher(self.path, opened=self.open()).run(stop)
            except StoreLockedError as error:
                _LOG.error("the files of the store %s are not watched: %s", self.name, error)
                return
            except (RagembedError, OSError) as error:
                if str(error) != logged:
                    logged = str(error)
                    again = f"next attempt in {_WATCH_RETRY_SECONDS:g} s"
                    _LOG.error("the files of the store %s are not watched, %s: %s", self.name, again, error)
            stop.wait(_WATCH_RETRY_SECONDS)

    def state(self) -> str | None:
        """Return a note if results may miss something, because a run is under way or was interrupted."""
        return self.open().incomplete

    def size(self) -> tuple[int, int] | None:
        """Return the generation and the number of chunks, or None if the store cannot be read."""
        try:
            store = self.open()
            return store.read(lambda: (store.generation, len(store)))
        except StoreError:
            return None

    def summary(self) -> dict[str, Any]:
        """Return what the store contains as JSON values, or the problem if it cannot be read."""
        place = {"name": self.name, "root": str(self.root)}
        try:
            store = self.open()
            status = store.status()
            changed = store.stale_files()
            state = self.state()
        except StoreError as error:
            return {**place, "problem": str(error)}
        indexed = (status["indexing"] or {}).get("paths", [])
        return {
            **place,
            "indexed": [one_line(path) for path in indexed[:_MOST_LISTED]],
            "files": status["files"],
            "chunks": status["chunks"],
            "changed_files": len(changed),
            "skipped_files": len(status["skipped"]),
            "model": status["embedder"]["model"],
            "language": status["language"],
            "problem": state,
        }

    def name_of(self, path: str) -> str:
        """Return the name in the store for a path of a client. Nothing is read from the disk."""
        return source_path(Path(path), self.path) if Path(path).is_absolute() else path_in_store(path, None)

    def source(self, path: str) -> str:
        """Return the name of an indexed file; raise :class:`UnknownNameError` for every other path."""
        store, name = self.open(), self.name_of(path)
        if store.sources([name]):
            return name
        last = f"/{path.rsplit('/', 1)[-1]}"
        alike = [one_line(indexed) for indexed in store.sources() if f"/{indexed}".endswith(last)][:3]
        hint = (
            f"did you mean {' or '.join(alike)}?"
            if alike
            else f"expected a path from an answer, relative to {self.root}"
        )
        raise UnknownNameError(f"{path[:200]!r} is not an indexed file of the store {self.name}: {hint}")

    def chunks(self, path: str) -> tuple[str, list[ChunkRecord]]:
        """Return the name of an indexed file and its chunks, or those of a member for a path such as ``a.zip: b.md``.

        Raises like :meth:`source`.
        """
        store = self.open()
        archive, colon, member = path.partition(": ")
        if not colon or store.sources([self.name_of(path)]):
            source = self.source(path)
            return source, list(store.chunks(source))
        source = self.source(archive)
        records = [record for record in store.chunks(source) if member_of(source, record.chunk.metadata) == member]
        if not records:
            raise UnknownNameError(f"{source} has no text of {member[:200]!r}: expected a path from an answer")
        return source, records

    def similar(self, chunk_id: str, k: int, *, other_files: bool) -> list[Hit]:
        """Return the chunks nearest to a chunk, without itself; with ``other_files``, from other files only."""
        store = self.open()
        record = chunk_with_id(store, chunk_id)
        [vector] = store.vectors([record.id])
        where = {"path": {"$ne": record.source}} if other_files and record.source is not None else None
        hits = store.search_vector(vector, k + 1, where=where)
        return [hit for hit in hits if hit.id != record.id][:k]


class ServedTogether:
    """All served stores, searched as one. Threads may share it."""

    name = EVERY

    def __init__(self, stores: Mapping[str, ServedStore]) -> None:
        self._stores = stores
        self._lock = threading.Lock()
        self._collection: Collection | None = None
        self._logged: dict[str, str] = {}

    def open(self) -> Collection:
        """Return the open collection; raise :class:`ragembed.errors.StoreError` if no store can be opened."""
        with self._lock:
            if self._collection is None:
                self._collection = Collection.open({name: served.path for name, served in self._stores.items()})
            return self._collection

    def update(self, seconds: float) -> str | None:
        """Index the files that changed, for at most ``seconds`` together; see :meth:`ServedStore.update`."""
        deadline = time.monotonic() + seconds
        return self._noted(lambda served: served.update(max(0.0, deadline - time.monotonic())))

    def state(self) -> str | None:
        """Return notes on the stores that are left out or not complete, and on results ordered by rank."""
        collection = self.open()
        by_rank = "results of stores with different embedders are ordered by rank" * (len(collection.groups()) > 1)
        left_out = [f"the store {name} cannot be read and is left out" for name in collection.problems]
        if (problems := collection.problems) != self._logged:
            self._logged = problems
            for name, problem in problems.items():
                _LOG.warning("the store %s is left out: %s", name, problem)
        state = self._noted(lambda served: served.state() if served.name not in collection.problems else None)
        return "; ".join(note for note in (*left_out, state, by_rank) if note) or None

    def _noted(self, note: Callable[[ServedStore], str | None]) -> str | None:
        notes = []
        for name, served in self._stores.items():
            with contextlib.suppress(StoreError):  # The collection reports a store that cannot be opened.
                if text := note(served):
                    notes.append(f"{name}: {text}")
        return "; ".join(notes) or None


class ServedStores(dict[str, ServedStore]):
    """The served stores by name, and all of them together."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        super().__init__({name: ServedStore(name, path) for name, path in paths.items()})
        self._together = ServedTogether(self)

    def all_or(self, arguments: Mapping[str, Any]) -> list[ServedStore]:
        """Return the store that ``arguments`` name, or else all."""
        return [self[arguments["store"]]] if "store" in arguments else list(self.values())

    def taken_from(self, arguments: dict[str, Any]) -> Any:
        """Take the name of a store out of ``arguments``, and return it, or all stores together."""
        return self.get(arguments.pop("store", next(iter(self))), self._together)


def answered(
    served: Any, arguments: dict[str, Any], answer: Callable[[Any, Any, dict[str, Any]], Answer]
) -> tuple[Answer, list[str], list[str]]:
    """Return ``answer(served, store, arguments)`` from one snapshot, the notes about its filter, and of the search."""
    store = served.open()
    with collected_notes() as collected:
        result = store.read(lambda: answer(served, store, arguments))
    return result, store.filter_notes(arguments["where"]) if "where" in arguments else [], list(collected)


def conditions(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions on the results of a search among its arguments."""
    return {name: arguments.get(name) for name in ("where", "min_relevance")}


def chunk_with_id(store: Store | Collection, chunk_id: str) -> ChunkRecord:
    """Return a chunk; raise :class:`UnknownNameError` if there is none with this id."""
    for record in store.get([chunk_id]):
        return record
    raise UnknownNameError(
        f"no chunk has the id {chunk_id[:60]!r}: expected an id from a recent answer, because the ids of a file change "
        "with its text; search again"
    )


def in_document_order(records: Iterable[ChunkRecord]) -> list[ChunkRecord]:
    """Return the chunks of a file by member, sheet, page and line: the order in the store, except after edits."""

    def place(record: ChunkRecord) -> tuple[int, int]:
        return record.chunk.page or 0, record.chunk.start_line or 0

    parts: dict[tuple[str | None, str | None], list[ChunkRecord]] = {}
    for record in records:
        member = member_of(record.source, record.chunk.metadata)
        parts.setdefault((member, sheet_of(member or record.source, record.chunk.headings)), []).append(record)
    return [record for part in parts.values() for record in sorted(part, key=place)]


def joined(parts: Iterable[tuple[int | None, int | None, str]]) -> str:
    """Return first line, last line and text of consecutive chunks as one text, with the empty lines between them."""
    texts: list[str] = []
    line = None
    for start, end, text in parts:
        texts += [""] * (0 if line is None or start is None else max(0, start - line - 1))
        texts.append(text)
        line = end
    return "\n".join(texts)


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
        except Exception as error:  # noqa: BLE001  the answer gets a note, the log the traceback
            _LOG.exception("The store %s was not updated", self._request.store)
            self.problem = f"the store was not updated: {type(error).__name__}; run 'ragembed index' to see why"
        finally:
            self.done.set()
