"""Searching the segments of a store on Ray: each actor holds some of them, the reader's process keeps the database.

An actor gets the vectors of the queries, k, and which rows it may find; it returns scores and rows. It opens segments
from the store's folder, which all nodes share, checks their hashes and searches them just as this process would. All
else (filters, BM25, the cosines of candidates, reading chunks) is done here, so that it is the same on any engine.
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
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.embedders import load_postprocessing
from ragembed.indexes.storage.segments import Segment, SegmentFiles
from ragembed.ray_cluster import connected
from ragembed.types import Bools, Floats

_MOST_LOST = 3
"""Actors that may die over one query, each of which another takes the place of."""

_COLOUR = re.compile("\x1b\\[[0-9;]*m")

_TOGETHER = 64
"""Queries that one replica is asked at least, where several divide them among each other."""


@dataclass(frozen=True, slots=True)
class SegmentQuery:
    """Unit vectors of queries, shape ``(n, d)``, and what :func:`search_segment` is told of all segments alike.

    ``first`` is the number of the first query; ``embedder`` is what the database keeps of the embedder.
    """

    queries: Floats
    first: int
    k: int
    effort: int | None
    embedder: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowBits:
    """Which rows of a segment may be found: a bit for each from ``first`` on, the lowest of a byte first."""

    first: int
    count: int
    bits: NDArray[np.uint8]

    @classmethod
    def of(cls, mask: Bools, first: int, last: int) -> RowBits:
        """Return what ``mask`` tells of the rows from ``first`` to ``last``."""
        return cls(first, last + 1 - first, np.packbits(mask[first : last + 1], bitorder="little"))

    def mask(self) -> Bools:
        """Return what was told, for rows from 0 on."""
        mask = np.zeros(self.first + self.count, dtype=bool)
        mask[self.first :] = np.unpackbits(self.bits, count=self.count, bitorder="little")
        return mask


class SegmentHost:
    """What an actor does: it holds those segments of the store at ``path`` that it was last asked of."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: dict[str, Segment] = {}
        self._postprocess: dict[str, Callable[[Floats], Floats]] = {}

    def search(self, asked: Sequence[tuple[SegmentFiles, RowBits | None]], query: SegmentQuery) -> list[SegmentHits]:
        """Search the segments that are ``asked``, each among its rows that may be found, None for all."""
        self._held = {files.folder: self._segment(files) for files, _ in asked}
        return [self._found(self._held[files.folder], bits, query) for files, bits in asked]

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
    """The connection of this process to Ray, which all stores that are open share: it ends with the last of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._stack = ExitStack()

    def enter(self, address: str | None) -> Any:
        """Be connected, and return the module ``ray``."""
        with self._lock, ExitStack() as entered:
            ray = entered.enter_context(connected(address))
            if self._users == 0:
                self._stack = entered.pop_all()
            self._users += 1
            return ray

    def leave(self) -> None:
        """Need the connection no more."""
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
    """A query to one group; ``lost`` counts the actors that died over it, the last of which was ``actor``."""

    group: _ShardGroup
    asked: Sequence[tuple[SegmentFiles, RowBits | None]]
    query: SegmentQuery
    actor: Any = None
    lost: int = 0


class RaySegments:
    """Searches the segments of the store at ``path``, a folder that all nodes of a Ray cluster share, on actors.

    For each of the ``replicas`` there are as many actors as the store is to have shards; each holds about as many
    vectors as another, and keeps its segments for as long as they are of the store. Replicas take turns, and divide
    many queries among each other. A new actor takes the place of one that dies, and the query is asked again.
    ``address`` is that of :func:`ragembed.ray_cluster.connected`, and so is what is raised.
    """

    def __init__(self, path: Path, address: str | None, replicas: int) -> None:
        self._path = path.absolute()
        self._address = address
        self._replicas = replicas
        self._lock = threading.Lock()
        self._groups: list[_ShardGroup] = []
        self._ray: Any = _CONNECTION.enter(address)
        self._host = self._ray.remote(scheduling_strategy="SPREAD")(SegmentHost)
        self._connected = True

    def nearest(self, snapshot: Snapshot, queries: Floats, k: int, mask: Bools | None) -> Sequence[SegmentHits]:
        """Search all segments; see :class:`ragembed.indexes.search.snapshot.SegmentSearch`.

        Raises what an actor raises, and :class:`WorkerLostError` where one after the other dies over a query.
        """
        keys = {segment.files.folder: key for key, segment in snapshot.segments().items()}
        files = {segment.files.folder: segment.files for segment in snapshot.segments().values()}
        query = SegmentQuery(queries, 0, k, snapshot.effort(), catalog.embedder(snapshot.connection))
        tasks: list[_GroupQuery] = []
        for group, folders in self._placed(files, catalog.index_config(snapshot.connection).shards):
            bits = {folder: None if mask is None else _bits(snapshot, keys[folder], mask) for folder in folders}
            asked = [(files[folder], bits[folder]) for folder in folders]
            tasks += [_GroupQuery(group, asked, part) for part in _parts(query, self._replicas)]
        return [found for each in self._answers(tasks) for found in each]

    # Which actor holds what

    def _placed(self, files: Mapping[str, SegmentFiles], shards: int) -> list[tuple[_ShardGroup, list[str]]]:
        """Return the groups that hold the segments ``files``, by folder, and the folders of each."""
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
        """Raise :class:`WorkerLostError` where the process has left the cluster: Ray would start another unasked."""
        if not self._ray.is_initialized():
            raise WorkerLostError(
                f"this process is connected to Ray no more, which held the segments of {self._path}: close the store "
                "and open it again"
            )

    def _end(self, actors: Sequence[Any]) -> None:
        for actor in actors:
            self._ray.kill(actor)

    # Asking

    def _answers(self, tasks: Sequence[_GroupQuery]) -> Iterator[list[SegmentHits]]:
        """Yield what is found for each task, in any order."""
        under_way = {self._ask(task): task for task in tasks}
        while under_way:
            [answer], _ = self._ray.wait(list(under_way))
            task = under_way.pop(answer)
            try:
                found = self._ray.get(answer)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self._ray.exceptions.RayError as error:
                self._replace(task, error)
                under_way[self._ask(task)] = task
            else:
                yield found

    def _ask(self, task: _GroupQuery) -> Any:
        """Ask the replica whose turn it is, and return what stands for its answer."""
        with self._lock:
            task.actor = task.group.actors[next(task.group.turns) % len(task.group.actors)]
        return task.actor.search.remote(task.asked, task.query)

    def _replace(self, task: _GroupQuery, error: Exception) -> None:
        """Put a new actor in place of the one that died over ``task``."""
        self._require_connection()
        task.lost += 1
        if task.lost > _MOST_LOST:
            raise WorkerLostError(
                f"{task.lost} actors died over one question to a shard of {self._path} ({_first_line(error)}): Ray's "
                "logs say why; search in this process with engine='local'"
            ) from error
        with self._lock:
            if task.actor in task.group.actors:
                self._end([task.actor])  # it may be out of reach only
                task.group.actors[task.group.actors.index(task.actor)] = self._actor()

    def close(self) -> None:
        """End the actors, and the connection with those of the last store; the next search starts others."""
        with self._lock:
            if not self._connected:
                return
            if self._ray.is_initialized():
                self._end([actor for group in self._groups for actor in group.actors])
            self._groups, self._connected = [], False
            _CONNECTION.leave()


def _first_line(error: Exception) -> str:
    """Return what Ray says of an error before it shows where it was, without colours."""
    return _COLOUR.sub("", str(error)).strip().partition("\n")[0].strip()


def _bits(snapshot: Snapshot, key: int, mask: Bools) -> RowBits:
    return RowBits.of(mask, *catalog.row_range(snapshot.connection, key))


def _parts(query: SegmentQuery, replicas: int) -> list[SegmentQuery]:
    """Divide the queries of a search among replicas if there are many."""
    queries = query.queries
    count = max(1, min(replicas, len(queries) // _TOGETHER))
    bounds = np.linspace(0, len(queries), count + 1).astype(int).tolist()
    return [replace(query, queries=queries[start:stop], first=start) for start, stop in itertools.pairwise(bounds)]
