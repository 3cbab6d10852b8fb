"""All that the shards have read, as one sequence of files and chunks, in the order in which the files were found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.documents.boilerplate import Keys, Stripper
from ragembed.documents.model import Chunk
from ragembed.indexes.boilerplate import strip_all
from ragembed.indexes.records import SourceRecord
from ragembed.indexes.scan import Scan
from ragembed.indexes.spool import spooled
from ragembed.scaling.work import READ, Arrays, Work, read_arrays

Positions = NDArray[np.int64]

SPOOL, INDEX, SCAN = "spool.jsonl", "index.safetensors", "scan.json"


class GatheredShards:
    """The files of all shards, whose tasks are done; it reads from the work folder what is asked for, and no more."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._indexes: list[Arrays] = [read_arrays(self._file(shard, INDEX)) for shard in range(work.plan.shards)]
        files = [len(index["starts"]) for index in self._indexes]
        self._shards = np.repeat(np.arange(len(files)), np.array(files, dtype=np.int64))
        self._starts = self._whole("starts")
        self.sizes = self._whole("sizes")
        """Chunks of each file."""
        self.ends = np.cumsum(self.sizes)
        """Chunks up to the end of each file."""

    def _whole(self, name: str) -> Positions:
        return np.concatenate([np.empty(0, dtype=np.int64), *(index[name] for index in self._indexes)])

    def _file(self, shard: int, name: str) -> Path:
        return self._work.output(READ, shard) / name

    @property
    def files(self) -> int:
        """How many files there are."""
        return len(self.sizes)

    @property
    def chunks(self) -> int:
        """How many chunks they have."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def lines(self) -> dict[str, tuple[str, Keys]]:
        """Of each file, by name, the hash of its content and the keys of its lines."""
        lines: dict[str, tuple[str, Keys]] = {}
        for shard, index in enumerate(self._indexes):
            contents = json.loads(self._file(shard, SCAN).read_bytes())["contents"]
            keys = np.split(index["keys"].view(np.uint64), np.cumsum(index["key_counts"]))[:-1]
            lines.update({path: (sha256, own) for (path, sha256), own in zip(contents, keys, strict=True)})
        return lines

    def scan(self) -> Scan:
        """Return what comparing the files with the store gave."""
        whole = Scan()
        for shard in range(len(self._indexes)):
            whole.add(Scan.from_dict(json.loads(self._file(shard, SCAN).read_bytes())["scan"]))
        return whole

    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        return self.between(0, self.files)

    def between(self, first: int, stop: int) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        """Yield the files from ``first`` to before ``stop``, and the chunks of each."""
        for shard, numbers in groupby(range(first, stop), key=lambda number: int(self._shards[number])):
            with self._file(shard, SPOOL).open("rb") as spool:
                for number in numbers:
                    spool.seek(int(self._starts[number]))
                    yield spooled(spool.readline())

    def texts(self, start: int, stop: int, stripper: Stripper) -> Iterator[str]:
        """Yield the texts that the chunks from ``start`` to before ``stop`` are embedded as, without boilerplate."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.ends, stop, side="left"))
        position = int(self.ends[first] - self.sizes[first])
        for source, chunks in self.between(first, min(last + 1, self.files)):
            wanted = chunks[max(start - position, 0) : stop - position]
            yield from (chunk.embedded_text for chunk in strip_all(stripper, source, wanted))
            position += len(chunks)
