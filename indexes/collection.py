"""Several stores that are searched as one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from ragembed.errors import ConfigError, MissingExtraError, ModelError, StoreError
from ragembed.indexes.filters import Where
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.search.searchable import TRIES, Answer, Searchable, retried
from ragembed.indexes.search.snapshot import require_mergeable
from ragembed.indexes.storage.lock import is_being_written
from ragembed.indexes.storage.reader import StoreView
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, VectorEncoder

if TYPE_CHECKING:
    from ragembed.indexes.search.explain import WhyNot

_FAILURES = (StoreError, ModelError, MissingExtraError, OSError)
"""Errors of a single store, which do not keep the others from answering."""
_RETRY_SECONDS = 30.0
"""Time during which a store that failed during a search is not tried again."""


class Collection(Searchable):
    """Several stores, opened for reading and searched as one.

    Stores with the same embedder and language give the ids and scores that one store with all their chunks would give.
    Stores with different embedders are searched one by one, and their hits are ordered by rank. A store that cannot be
    read is left out; :attr:`problems` says why. :attr:`Hit.store` is the name of the store that a hit comes from.

    Create a collection with :meth:`open`; do not call the class itself. Close it with :meth:`close`, or use it as a
    context manager. Threads may share it.

    Examples
    --------
    >>> from ragembed import Collection, Store
    >>> with Store.open("notes") as store:
    ...     store.copy("copy")
    >>> with Collection.open({"mine": "notes", "theirs": "copy"}) as both:
    ...     [(hit.store, hit.id) for hit in both.search("How do I brew tea?", k=2)]
    [('mine', 'tea'), ('theirs', 'tea')]
    """

    def __init__(self, paths: Mapping[str, Path], fusion: Fusion | None, open_store: Callable[[Path], Store]) -> None:
        super().__init__(lambda: self._opened(list(self.paths), {}), fusion)
        self.paths = dict(paths)
        self._open_store = open_store
        self._lock = threading.Lock()
        self._stores: dict[str, Store] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._problems: dict[str, str] = {}

    @classmethod
    def open(
        cls,
        stores: Mapping[str, str | Path],
        embedder: VectorEncoder | None = None,
        *,
        fusion: Fusion | None = None,
        device: str | None = None,
        search_device: str = "cpu",
        threads: int | None = None,
    ) -> Collection:
        """Open stores for searching them together; raise :class:`StoreError` if none can be opened.

        Parameters
        ----------
        stores : mapping of str to str or pathlib.Path
            The folder of each store, by the name that its hits get.
        embedder : ragembed.indexes.VectorEncoder, optional
            The embedder that the stores were created with. You only need it if that is not a
            :class:`ragembed.Embedder`.
        fusion : ragembed.Fusion, optional
            Default settings of hybrid search. None uses those of the stores if they agree, else the defaults of
            :class:`ragembed.Fusion`.
        device, search_device, threads : optional
            As in :meth:`ragembed.Store.open`.
        """
        if not stores:
            raise ConfigError("the collection has no stores: expected at least one")

        def open_store(path: Path) -> Store:
            return Store.open(path, embedder, device=device, search_device=search_device, threads=threads)

        collection = cls({name: Path(path) for name, path in stores.items()}, fusion, open_store)
        try:
            collection.read(lambda: None)
        except BaseException:
            collection.close()
            raise
        return collection

    # Reading

    @override
    def read(self, answer: Callable[[], Answer]) -> Answer:
        """Return the result of a function whose reads from this collection all see the same snapshots.

        If it fails, each store is tried alone, and those that fail are left out.

        Parameters
        ----------
        answer : callable
            Function without arguments and without side effects. It may be called again.
        """
        if getattr(self._held, "snapshot", None) is not None:
            return answer()
        with self._lock:
            recent = {name: problem for name, (at, problem) in self._failed.items() if time.monotonic() < at}
        names = [name for name in self.paths if name not in recent] or list(self.paths)
        problems = {name: problem for name, problem in recent.items() if name not in names}
        try:
            return self._attempt(names, answer, problems)
        except _FAILURES:
            failing = {name: str(error) for name in names if (error := self._failure(name, answer)) is not None}
            working = [name for name in names if name not in failing]
            if not working or not failing:
                raise
            problems |= failing
            with self._lock:
                self._failed.update(
                    (name, (time.monotonic() + _RETRY_SECONDS, problem)) for name, problem in failing.items()
                )
            return self._attempt(working, answer, problems)
        finally:
            self._problems = problems

    def _failure(self, name: str, answer: Callable[[], object]) -> Exception | None:
        try:
            self._attempt([name], answer, {})
        except _FAILURES as error:
            return error
        return None

    def _attempt(self, names: Sequence[str], answer: Callable[[], Answer], problems: dict[str, str]) -> Answer:
        """Return ``answer`` of snapshots of the stores ``names``; note in ``problems`` those that do not open."""
        for _ in range(TRIES - 1):
            with suppress(FileNotFoundError), self.snapshot(self._opened(names, problems)):
                return answer()
        with self.snapshot(self._opened(names, problems)):
            return answer()

    @contextmanager
    def _opened(self, names: Sequence[str], problems: dict[str, str]) -> Iterator[list[StoreView]]:
        """Hold views of the stores that can be opened, and note in ``problems`` why others cannot."""
        with ExitStack() as stack:
            views, failures = [], {}
            for name in names:
                view = self._view(name, stack)
                if isinstance(view, StoreView):
                    views.append(view)
                else:
                    failures[name] = view
            if not views:
                raise next(iter(failures.values()))
            problems.update((name, str(error)) for name, error in failures.items())
            yield views

    def _view(self, name: str, stack: ExitStack) -> StoreView | Exception:
        """Return a view of a store, which ``stack`` ends, or the error that keeps it from being opened."""
        try:
            [view] = stack.enter_context(self._store(name).reader.views(name))
            require_mergeable(view)
        except _FAILURES as error:
            return error
        return view

    def _store(self, name: str) -> Store:
        with self._lock:
            if name not in self._stores:
                self._stores[name] = self._open_store(self.paths[name])
            return self._stores[name]

    # Searching

    @override
    def why_not(
        self,
        query: str,
        source: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        fusion: Fusion | None = None,
        store: str | None = None,
    ) -> WhyNot:
        # The file is compared with the stores that have the same embedder as its own.
        if store not in self.paths:
            raise ConfigError(f"unknown store {store!r}: expected one of {', '.join(self.paths)}")
        return super().why_not(query, source, k, mode, fusion=fusion, store=store)

    # Contents

    def chunks(self, *, where: Where | None = None, limit: int | None = None, offset: int = 0) -> Iterator[ChunkRecord]:
        """Yield the chunks of one store after the other, each with the name of its store.

        Parameters
        ----------
        where, limit, offset : optional
            As in :meth:`ragembed.Store.chunks`.
        """
        every = (
            replace(record, store=name) for name, store in self.stores.items() for record in store.chunks(where=where)
        )
        return islice(every, offset, None if limit is None else offset + limit)

    @property
    def problems(self) -> dict[str, str]:
        """The reason for each store that did not take part in the last answer, by name."""
        return dict(self._problems)

    @retried
    def groups(self, mode: Mode = "hybrid") -> list[list[str]]:
        """Return the names of the stores in groups. Hits of different groups are ordered by rank, not by score.

        Parameters
        ----------
        mode : {"hybrid", "dense", "lexical"}, default "hybrid"
            Mode of search.
        """
        with self.snapshot() as snapshot:
            return [[str(store.name) for store in group.stores] for group in snapshot.groups(mode)]

    @property
    def being_written(self) -> bool:
        """Whether a process of this machine is writing to one of the stores now."""
        return any(is_being_written(path) for path in self.paths.values())

    @property
    def stores(self) -> dict[str, Store]:
        """The stores that can be opened, by name."""
        stores = {}
        for name in self.paths:
            with suppress(*_FAILURES):
                stores[name] = self._store(name)
        return stores

    # Closing

    def close(self) -> None:
        """Close the stores. The next use of the collection opens them again."""
        with self._lock:
            stores, self._stores = self._stores, {}
            self._states.clear()
            self._failed.clear()
        for store in stores.values():
            store.close()
