"""Search of a store's segments on Ray: actors hold the segments, and the reader's process keeps the database.

An actor receives the query vectors, k, and the rows that it may return; it returns scores and rows. It opens segments
from the store's folder, which all nodes share, checks their hashes, and searches them just as this process would.
Everything else (filters, BM25, cosines of candidates, reading chunks) runs in this process, so every engine returns the
same results.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import WorkerLostError
from ragembed.indexes.search.segment_search import SegmentHits, search_segment
from ragembed.indexes.search.snapshot import StoreSnapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.embedders import load_postprocessing
from ragembed.indexes.storage.segments import Segment, SegmentFiles
from ragembed.ray_cluster import connected
from ragembed.types import Bools, Floats

_MOST_LOST = 3
"""Number of actors that may die during one query and be replaced."""

_COLOUR = re.compile("\x1b\\[[0-9;]*m")

_TOGETHER = 64
"""Minimum number of queries for each replica if several divide them."""


@dataclass(frozen=True, slots=True)
class SegmentQuery:
    """Unit vectors of queries, shape ``(n, d)``, and the arguments of :func:`search_segment` that all segments share.

    ``first`` is the number of the first query. ``embedder`` is the database record of the embedder.
    """

    queries: Floats
    first: int
    k: int
    effort: int | None
    embedder: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowBits:
    """The rows of a segment that may be returned: one bit per row from ``first`` on, lowest bit of a byte first."""

    first: int
    count: int
    bits: NDArray[np.uint8]

    @classmethod
    def of(cls, mask: Bools, first: int, last: int) -> RowBits:
        """Return the bits of ``mask`` for the rows from ``first`` to ``last``, inclusive."""
        return cls(first, last + 1 - first, np.packbits(mask[first : last + 1], bitorder="little"))

    def mask(self) -> Bools:
        """Return a mask for rows from 0 on."""
        mask = np.zeros(self.first + self.count, dtype=bool)
        mask[self.first :] = np.unpackbits(self.bits, count=self.count, bitorder="little")
        return mask


class SegmentHost:
    """The work of an actor. It holds the segments of the store at ``path`` that its last query named."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: dict[str, Segment] = {}
        self._postprocess: dict[str, Callable[[Floats], Floats]] = {}

    def search(self, requests: Sequence[tuple[SegmentFiles, RowBits | None]], query: SegmentQuery) -> list[SegmentHits]:
        """Search the segments in ``requests``, each with the rows that may be returned, or None for all rows."""
        self._held = {files.folder: self._segment(files) for files, _ in requests}
        return [self._found(self._held[files.folder], bits, query) for files, bits in requests]

    def _segment(self, files: SegmentFiles) -> Segment:
        held = self._held.get(files.folder)
        return Segment(self._path, files) if held is None or held.files != files else held

    def _found(self, segment: Segment, bits: RowBits | None, query: SegmentQuery) -> SegmentHits:
        if not segment.flat and segment.rows is None:
            segment.rows = segment.index().rows()
        mask = None if bits is None else bits.mask()
        found = search_segment(
            segment,
            query.queries,
            query.k,
            mask,
            segment.rows,
            query.effort,
            lambda raw: self._chain(query.embedder)(raw),
        )
        return found._replace(first=query.first)

    def _chain(self, record: Mapping[str, Any]) -> Callable[[Floats], Floats]:
        fingerprint = record["fingerprint"]
        if fingerprint not in self._postprocess:
            self._postprocess = {fingerprint: load_postprocessing(self._path, record)}
        return self._postprocess[fingerprint]


class _Connection:
    """The connection of this process to Ray. All open stores share it, and it closes with the last of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._stack = ExitStack()

    def enter(self, address: str | None) -> Any:
        """Connect if needed, and return the module ``ray``."""
        with self._lock, ExitStack() as entered:
            ray = entered.enter_context(connected(address))
            if self._users == 0:
                self._stack = entered.pop_all()
            self._users += 1
            return ray

    def leave(self) -> None:
        """Release the connection."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._stack.close()


_CONNECTION = _Connection()


@dataclass(slots=True, eq=False)
class _ShardGroup:
    """Actors that hold the same segments, one for each replica, and the folders of these segments."""

    actors: list[Any]
    folders: set[str] = field(default_factory=set)
    turns: Iterator[int] = field(default_factory=itertools.count)


@dataclass(slots=True, eq=False)
class _GroupQuery:
    """A query to one group; ``lost`` counts the actors that died during it, and ``actor`` is the last one used."""

    group: _ShardGroup
    requests: Sequence[tuple[SegmentFiles, RowBits | None]]
    query: SegmentQuery
    actor: Any = None
    lost: int = 0


class RaySegments:
    """Searches the segments of the store at ``path`` on actors; all nodes of the Ray cluster must share this folder.

    For each of the ``replicas``, there is one actor per shard of the store. The actors hold similar numbers of vectors,
    and keep their segments as long as the store uses them. Replicas take turns, and divide many queries between them.
    If an actor dies, a new one replaces it and runs the query again. ``address`` and errors are those of
    :func:`ragembed.ray_cluster.connected`.
    """

    waits_for_others = True

    def __init__(self, path: Path, address: str | None, replicas: int) -> None:
        self._path = path.absolute()
        self._address = address
        self._replicas = replicas
        self._lock = threading.Lock()
        self._groups: list[_ShardGroup] = []
        self._ray: Any = _CONNECTION.enter(address)
        self._host = self._ray.remote(scheduling_strategy="SPREAD")(SegmentHost)
        self._connected = True

    def nearest(self, snapshot: StoreSnapshot, queries: Floats, k: int, mask: Bools | None) -> Sequence[SegmentHits]:
        """Search all segments; see :class:`ragembed.indexes.search.snapshot.SegmentSearch`.

        Raises the errors of an actor, and :class:`WorkerLostError` if too many actors die during one query.
        """
        keys = {segment.files.folder: key for key, segment in snapshot.segments().items()}
        files = {segment.files.folder: segment.files for segment in snapshot.segments().values()}
        query = SegmentQuery(queries, 0, k, snapshot.effort(), catalog.embedder(snapshot.connection))
        tasks: list[_GroupQuery] = []
        for group, folders in self._placed(files, catalog.index_config(snapshot.connection).shards):
            bits = {folder: None if mask is None else _bits(snapshot, keys[folder], mask) for folder in folders}
            requests = [(files[folder], bits[folder]) for folder in folders]
            tasks += [_GroupQuery(group, requests, part) for part in _parts(query, self._replicas)]
        return [found for each in self._answers(tasks) for found in each]

    # Assignment of segments to actors

    def _placed(self, files: Mapping[str, SegmentFiles], shards: int) -> list[tuple[_ShardGroup, list[str]]]:
        """Return the groups that hold the segments ``files``, and the folders of each group."""
        with self._lock:
            if not self._connected:
                _CONNECTION.enter(self._address)
                self._connected = True
            self._require_connection()
            while len(self._groups) > shards:
                self._end(self._groups.pop().actors)
            while len(self._groups) < shards:
                self._groups.append(_ShardGroup([self._actor() for _ in range(self._replicas)]))
            for group in self._groups:
                group.folders &= files.keys()
            held = {group: sum(files[folder].rows for folder in group.folders) for group in self._groups}
            new = files.keys() - {folder for group in self._groups for folder in group.folders}
            for folder in sorted(new, key=lambda folder: (-files[folder].rows, folder)):
                group = min(self._groups, key=lambda group: held[group])
                group.folders.add(folder)
                held[group] += files[folder].rows
            return [(group, sorted(group.folders)) for group in self._groups if group.folders]

    def _actor(self) -> Any:
        return self._host.remote(self._path)

    def _require_connection(self) -> None:
        """Raise :class:`WorkerLostError` if this process has left the cluster; Ray would silently start another."""
        if not self._ray.is_initialized():
            raise WorkerLostError(
                f"this process lost its connection to Ray, which held the segments of {self._path}: close the store "
                "and open it again"
            )

    def _end(self, actors: Sequence[Any]) -> None:
        for actor in actors:
            self._ray.kill(actor)

    # Queries to actors

    def _answers(self, tasks: Sequence[_GroupQuery]) -> Iterator[list[SegmentHits]]:
        """Yield the results of each task, in any order."""
        under_way = {self._submit(task): task for task in tasks}
        while under_way:
            [answer], _ = self._ray.wait(list(under_way))
            task = under_way.pop(answer)
            try:
                found = self._ray.get(answer)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self._ray.exceptions.RayError as error:
                self._replace(task, error)
                under_way[self._submit(task)] = task
            else:
                yield found

    def _submit(self, task: _GroupQuery) -> Any:
        """Send a task to the next replica, and return a reference to its result."""
        with self._lock:
            task.actor = task.group.actors[next(task.group.turns) % len(task.group.actors)]
        return task.actor.search.remote(task.requests, task.query)

    def _replace(self, task: _GroupQuery, error: Exception) -> None:
        """Replace the actor that died during ``task`` by a new one."""
        self._require_connection()
        task.lost += 1
        if task.lost > _MOST_LOST:
            raise WorkerLostError(
                f"{task.lost} actors died during one query to a shard of {self._path} ({_first_line(error)}): see "
                "Ray's logs for the cause, or search in this process with engine='local'"
            ) from error
        with self._lock:
            if task.actor in task.group.actors:
                self._end([task.actor])  # It may be alive but unreachable.
                task.group.actors[task.group.actors.index(task.actor)] = self._actor()

    def close(self) -> None:
        """Stop the actors, and close the connection with the last store. The next search starts new actors."""
        with self._lock:
            if not self._connected:
                return
            if self._ray.is_initialized():
                self._end([actor for group in self._groups for actor in group.actors])
            self._groups, self._connected = [], False
            _CONNECTION.leave()


def _first_line(error: Exception) -> str:
    """Return the first line of a Ray error without colours; the rest is a traceback."""
    return _COLOUR.sub("", str(error)).strip().partition("\n")[0].strip()


def _bits(snapshot: StoreSnapshot, key: int, mask: Bools) -> RowBits:
    return RowBits.of(mask, *catalog.row_range(snapshot.connection, key))


def _parts(query: SegmentQuery, replicas: int) -> list[SegmentQuery]:
    """Divide the queries of a search among replicas if there are many."""
    queries = query.queries
    count = max(1, min(replicas, len(queries) // _TOGETHER))
    bounds = np.linspace(0, len(queries), count + 1).astype(int).tolist()
    return [replace(query, queries=queries[start:stop], first=start) for start, stop in itertools.pairwise(bounds)]
