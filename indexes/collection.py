"""Several stores that are searched as one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Collection as AnyCollection
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from typing_extensions import override

from ragembed.errors import ConfigError, MissingExtraError, ModelError, StoreError
from ragembed.indexes.filters import Where, parse
from ragembed.indexes.filters.notes import notes_on
from ragembed.indexes.search import search
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.hybrid import Candidates
from ragembed.indexes.search.merged_snapshot import MergedSnapshot, MergedState, require_mergeable
from ragembed.indexes.search.ranking import RankingOptions, rank
from ragembed.indexes.search.relevance import note_unknown
from ragembed.indexes.search.search import Mode
from ragembed.indexes.search.searchable import Searchable
from ragembed.indexes.search.snapshot import Snapshot, StoreSnapshot, vectors_of
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.layout import STORE_FOLDER
from ragembed.indexes.storage.lock import is_being_written
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, Hit, Hits, VectorEncoder
from ragembed.types import Floats

if TYPE_CHECKING:
    from ragembed.indexes.search.explain import Explanation
    from ragembed.indexes.search.why_not import WhyNot

Answer = TypeVar("Answer")
Members: TypeAlias = "Sequence[tuple[str, StoreSnapshot]]"
"""Snapshots with the names of their stores."""

_FAILURES = (StoreError, ModelError, MissingExtraError, OSError)
"""Errors of a single store, which do not keep the others from answering."""
_TRIES = 5
_MOST_KEPT = 16
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
        self.paths = dict(paths)
        self._fusion = fusion
        self._open_store = open_store
        self._lock = threading.Lock()
        self._stores: dict[str, Store] = {}
        self._kept: dict[tuple[str | None, str | None], MergedState] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._problems: dict[str, str] = {}
        self._current = threading.local()

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
            collection._read_all(lambda _: None)
        except BaseException:
            collection.close()
            raise
        return collection

    # Reading

    def _read(self, answer: Callable[[Snapshot], Answer], mode: Mode | None = None) -> Answer:
        def of_one(groups: Sequence[MergedSnapshot]) -> Answer:
            if len(groups) > 1:
                named = "; ".join(", ".join(name for name, _ in each.members) for each in groups)
                raise ConfigError(
                    f"the stores have different embedders or languages ({named}), so their scores cannot be compared: "
                    "search one of them, or stores that were made with the same settings"
                )
            return answer(groups[0])

        return self._read_all(lambda members: of_one(self._grouped(members, mode)))

    def _read_all(self, answer: Callable[[Members], Answer]) -> Answer:
        """Return ``answer`` of the snapshots of all stores that can be read, by name.

        If it fails, each store is tried alone, and those that fail are left out. ``answer`` has no side effects.
        """
        if (held := getattr(self._current, "members", None)) is not None:
            return answer(held)
        problems: dict[str, str] = {}
        with self._lock:
            recent = {name: problem for name, (at, problem) in self._failed.items() if time.monotonic() < at}
        names = [name for name in self.paths if name not in recent] or list(self.paths)
        problems |= {name: problem for name, problem in recent.items() if name not in names}
        try:
            return self._attempt(names, answer, problems)
        except _FAILURES:
            failing = {name: str(found) for name in names if (found := self._failure(name, answer)) is not None}
            rest = [name for name in names if name not in failing]
            if not rest or not failing:
                raise
            problems |= failing
            with self._lock:
                self._failed.update(
                    (name, (time.monotonic() + _RETRY_SECONDS, problem)) for name, problem in failing.items()
                )
            return self._attempt(rest, answer, problems)
        finally:
            self._problems = problems

    def _failure(self, name: str, answer: Callable[[Members], object]) -> Exception | None:
        try:
            self._attempt([name], answer, {})
        except _FAILURES as error:
            return error
        return None

    def _attempt(
        self,
        names: Sequence[str],
        answer: Callable[[Members], Answer],
        problems: dict[str, str],
    ) -> Answer:
        """Return ``answer`` of the snapshots of the stores ``names``; note in ``problems`` those that do not open."""
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError):  # A writer removed a file of a snapshot: read newer snapshots.
                return self._once(names, answer, problems)
        return self._once(names, answer, problems)

    def _once(self, names: Sequence[str], answer: Callable[[Members], Answer], problems: dict[str, str]) -> Answer:
        with ExitStack() as stack:
            held = [(name, self._held(name, stack)) for name in names]
            members = [(name, found) for name, found in held if isinstance(found, StoreSnapshot)]
            failures = [(name, found) for name, found in held if isinstance(found, Exception)]
            if not members:
                raise failures[0][1]
            problems.update((name, str(error)) for name, error in failures)
            self._current.members = members
            stack.callback(setattr, self._current, "members", None)
            return answer(members)

    def _held(self, name: str, stack: ExitStack) -> StoreSnapshot | Exception:
        """Return a snapshot of a store, which ``stack`` ends, or the error that keeps it from being opened."""
        try:
            snapshot = stack.enter_context(self._store(name)._reader.hold())
            require_mergeable(snapshot)
        except _FAILURES as error:
            return error
        return snapshot

    def _store(self, name: str) -> Store:
        with self._lock:
            if name not in self._stores:
                self._stores[name] = self._open_store(self.paths[name])
            return self._stores[name]

    def _grouped(self, members: Members, mode: Mode | None) -> list[MergedSnapshot]:
        """Return a snapshot for each group of stores whose scores in a mode can be compared; for None, one of all."""
        groups: dict[tuple[str | None, str | None], list[tuple[str, StoreSnapshot]]] = {}
        for name, each in members:
            fingerprint = each.fingerprint() if mode in ("hybrid", "dense") else None
            language = each.language() if mode in ("hybrid", "lexical") else None
            groups.setdefault((fingerprint, language), []).append((name, each))
        with self._lock:
            if len(self._kept) > _MOST_KEPT:
                self._kept.clear()
            return [
                MergedSnapshot(group, self._kept.setdefault(key, MergedState()), self._fusion)
                for key, group in groups.items()
            ]

    def _folder(self, store: str | None) -> Path:
        # A hit that comes from no store has a name that is relative to the working directory.
        return Path(STORE_FOLDER) if store is None else self.paths[store]

    @override
    def read(self, answer: Callable[[], Answer]) -> Answer:
        """Return the result of a function whose reads from this collection all see the same snapshots.

        Parameters
        ----------
        answer : callable
            Function without arguments and without side effects. It may be called again.
        """
        return self._read_all(lambda _: answer())

    # Searching

    @override
    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        min_relevance: float | None = None,
        vectors: Floats | None = None,
    ) -> list[list[Hit]]:
        if vectors is not None or isinstance(queries, str):
            return super().search_many(
                queries,
                k,
                mode,
                where=where,
                fusion=fusion,
                ranking=ranking,
                min_relevance=min_relevance,
                vectors=vectors,
            )
        condition = None if where is None else parse(where)
        texts = list(queries)

        def answer(members: Members) -> list[list[Hit]]:
            groups = self._grouped(members, mode)
            if len(groups) == 1:
                [group] = groups
                found = search.search(
                    group, texts, k, mode, condition, fusion or group.fusion(), ranking, min_relevance=min_relevance
                )
                return [Hits(hits) for hits in found]
            sources = [
                search.sources(each, texts, k, mode, condition, fusion or each.fusion(), min_relevance)
                for each in groups
            ]
            by_rank = [search.by_rank(of_query) for of_query in zip(*sources, strict=True)]
            found = [rank(each, k, ranking or RankingOptions()) for each in by_rank]
            if min_relevance is not None:
                for group in groups:
                    names = {name for name, _ in group.members}
                    own = (hit for hits in found for hit in hits if hit.store in names)
                    note_unknown(own, min_relevance, group.relevance(), group.count())
            return [Hits(hits) for hits in found]

        return self._read_all(answer)

    @override
    def explain(
        self,
        query: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        min_relevance: float | None = None,
        ids: AnyCollection[str] | None = None,
    ) -> list[Explanation]:
        # If the stores have different embedders, the explained score is that among the stores with the same one.
        from ragembed.indexes.search.explain import explain_hits

        condition = None if where is None else parse(where)

        def answer(members: Members) -> list[Explanation]:
            groups = self._grouped(members, mode)
            hits = self.search(query, k, mode, where=where, fusion=fusion, ranking=ranking, min_relevance=min_relevance)
            found: dict[int, Explanation] = {}
            for group in groups:
                stores = {name for name, _ in group.members}
                at = [i for i, hit in enumerate(hits) if hit.store in stores and (ids is None or hit.id in ids)]
                trace: list[Candidates] = []
                fused = fusion or group.fusion()
                search.search(group, [query], k, mode, condition, fused, ranking, trace)
                of_group = explain_hits(group, query, [hits[i] for i in at], mode, fused, trace)
                found.update(zip(at, of_group, strict=True))
            return [found[i] for i in sorted(found)]

        return self._read_all(answer)

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
        from ragembed.indexes.search.why_not import why_not

        if store not in self.paths:
            raise ConfigError(f"unknown store {store!r}: expected one of {', '.join(self.paths)}")

        def answer(members: Members) -> WhyNot:
            for group in self._grouped(members, "hybrid"):
                if any(name == store for name, _ in group.members):
                    return why_not(group, query, source, k, mode, fusion or group.fusion(), store)
            raise StoreError(f"the store {store} cannot be read: {self.problems.get(str(store), 'it failed')}")

        return self._read_all(answer)

    def filter_notes(self, where: Where) -> list[str]:
        """Return the notes of :meth:`ragembed.Store.filter_notes` that hold in every store.

        Parameters
        ----------
        where : str or mapping
            Filter, as in :meth:`search`.
        """
        condition = parse(where)

        def answer(members: Members) -> list[str]:
            first, *others = [notes_on(each.connection, condition) for _, each in members if each.count()] or [{}]
            everywhere = (note for leaf, note in first.items() if all(leaf in notes for notes in others))
            return list(dict.fromkeys(everywhere))

        return self._read_all(answer)

    # Contents

    def get(self, ids: Sequence[str]) -> list[ChunkRecord]:
        """Return the chunks with these ids, in the order of ``ids``, each with the name of its store.

        Several stores may have a chunk with the same id. Unknown ids are left out.

        Parameters
        ----------
        ids : sequence of str
            Ids of the chunks.
        """

        def answer(members: Members) -> list[ChunkRecord]:
            found = [(name, catalog.chunks_by_id(each.connection, ids)) for name, each in members]
            wanted = dict.fromkeys(ids)
            return [replace(of[each], store=name) for each in wanted for name, of in found if each in of]

        return self._read_all(answer)

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

    def ids(self) -> list[str]:
        """Return the ids of all chunks, store by store. Several stores may have a chunk with the same id."""
        return self._read_all(
            lambda members: [each for _, one in members for each in catalog.chunk_ids(one.connection)]
        )

    def vectors(self, ids: Sequence[str]) -> Floats:
        """Return the unit vectors of chunks, float32, shape ``(n, d)``, in the order of ``ids``.

        Raise KeyError for an id that is in no store, and :class:`ConfigError` if the stores have different embedders.

        Parameters
        ----------
        ids : sequence of str
            Ids of the chunks. If several stores have an id, the first of them counts.
        """

        def answer(snapshot: Snapshot) -> Floats:
            records = {record.id: record for record in reversed(self.get(ids))}
            return vectors_of(snapshot, [records[each] for each in ids])

        return self._read(answer, "dense")

    @property
    def problems(self) -> dict[str, str]:
        """The reason for each store that did not take part in the last answer, by name."""
        return dict(self._problems)

    def groups(self, mode: Mode = "hybrid") -> list[list[str]]:
        """Return the names of the stores in groups. Hits of different groups are ordered by rank, not by score.

        Parameters
        ----------
        mode : {"hybrid", "dense", "lexical"}, default "hybrid"
            Mode of search.
        """
        return self._read_all(
            lambda members: [[name for name, _ in each.members] for each in self._grouped(members, mode)]
        )

    def __len__(self) -> int:
        """Return the number of chunks."""
        return self._read_all(lambda members: sum(each.count() for _, each in members))

    @property
    def generation(self) -> int:
        """Number of changes that have been committed to the stores."""
        return self._read_all(lambda members: sum(each.generation() for _, each in members))

    @property
    def language(self) -> str:
        """Language whose stemmer lexical search uses, that of the first store."""
        return self._read_all(lambda members: members[0][1].language())

    @property
    def unfinished(self) -> bool:
        """Whether the last indexing run of a store was interrupted, or is not finished yet."""
        return self._read_all(
            lambda members: any(catalog.meta(each.connection, "unfinished", False) for _, each in members)
        )

    @property
    def being_written(self) -> bool:
        """Whether a process of this machine is writing to one of the stores now."""
        return any(is_being_written(path) for path in self.paths.values())

    @property
    def embedder(self) -> VectorEncoder:
        """Embedder of the stores; raise :class:`ConfigError` if they have different ones."""
        return self._read(lambda snapshot: snapshot.embedder(), "dense")

    @property
    def stores(self) -> dict[str, Store]:
        """The stores that can be opened, by name."""
        found = {}
        for name in self.paths:
            with suppress(*_FAILURES):
                found[name] = self._store(name)
        return found

    # Closing

    def close(self) -> None:
        """Close the stores. The next use of the collection opens them again."""
        with self._lock:
            stores, self._stores, self._kept = self._stores, {}, {}
            self._failed.clear()
        for store in stores.values():
            store.close()

    def __enter__(self) -> Collection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
