"""Reading a shard: its files to chunks in a spool, with what comparing them with the store gave."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ragembed.documents.discovery import Candidate
from ragembed.files import write_file
from ragembed.indexes.folders import publish, temporary_folder
from ragembed.indexes.layout import source_path
from ragembed.indexes.scan import Scan, Scanner
from ragembed.indexes.spool import Spool
from ragembed.scaling.gathered import INDEX, SCAN, SPOOL
from ragembed.scaling.work import READ, Work, write_arrays

MOST_DEATHS = 3
"""Workers that may die while they read a file; then it is skipped."""


def read_shard(work: Work, scanner: Scanner, shard: int) -> int:
    """Read the files of a shard and write what is in them; return how many there are.

    A file in which ``MOST_DEATHS`` workers died, one after the other, is skipped with that as the reason.
    """
    files = work.candidates(shard)
    final = work.output(READ, shard)
    trial = _Trial(final.with_name(f"{final.name}.trying"))
    # Another may be at the same shard: a worker that is out of reach, or one that was started by hand.
    temporary = temporary_folder(final.with_name(f"{final.name}.{uuid.uuid4().hex}"))
    result = Scan()
    with Spool(temporary / SPOOL) as spool:
        for file in files:
            _read_one(work, scanner, file, result, spool, trial)
    trial.pause()
    counts = [len(keys) for _, keys in spool.lines.values()]
    keys = [keys for _, keys in spool.lines.values()]
    write_arrays(
        temporary / INDEX,
        {
            "starts": np.array(spool.starts, dtype=np.int64),
            "sizes": np.array(spool.sizes, dtype=np.int64),
            "key_counts": np.array(counts, dtype=np.int64),
            "keys": np.concatenate([np.empty(0, np.uint64), *keys]).view(np.int64),
        },
    )
    contents = [(path, sha256) for path, (sha256, _) in spool.lines.items()]
    write_file(temporary / SCAN, json.dumps({"scan": result.to_dict(), "contents": contents}).encode())
    try:
        publish(temporary, final)
    except OSError:
        if not final.is_dir():
            raise
        shutil.rmtree(temporary)  # the other has been quicker
    trial.remove()
    return len(files)


def _read_one(work: Work, scanner: Scanner, file: Candidate, result: Scan, spool: Spool, trial: _Trial) -> None:
    name = source_path(file.path, Path(work.plan.store))
    if (deaths := trial.deaths_in(name)) >= MOST_DEATHS:
        result.skipped[name] = f"{deaths} processes that read it died one after the other"
        return
    with trial.of(name):
        scanner.read(file, result, spool)


class _Trial:
    """Which file is being read, in a file that outlives the process: whoever finds it there knows what killed it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._deaths: dict[str, int] = {}
        try:
            kept = json.loads(file.read_bytes())
        except (FileNotFoundError, ValueError):  # one that was not finished says nothing
            return
        self._deaths = kept["deaths"]
        if kept["reading"] is not None:
            self._deaths[kept["reading"]] = self._deaths.get(kept["reading"], 0) + 1

    def deaths_in(self, name: str) -> int:
        return self._deaths.get(name, 0)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        self._write(name)
        try:
            yield
        except BaseException:  # an interruption, or an error that is told, is no death
            self.pause()
            raise

    def pause(self) -> None:
        self._write(None)

    def _write(self, name: str | None) -> None:
        write_file(self._file, json.dumps({"reading": name, "deaths": self._deaths}).encode())

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)
