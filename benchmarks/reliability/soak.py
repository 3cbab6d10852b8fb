"""Eight readers and one writer, for a minute in threads of one process and for a minute in processes.

Every answer is of one generation, complete and in order, no read takes a second. Then the lock: a second writer fails
within two seconds and names the first, `--wait` waits, and the lock of a killed process is free at once.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from report import table

from ragembed.errors import RagembedError
from ragembed.indexes import Hit, Store
from ragembed.indexes.fitting import refit_store
from reliability.common import finish, parser, scratch
from reliability.groups import CHAINS, GROUPS, LOOSE, PARTS, Watch, add, loose, make_store, name_of, put_group
from reliability.locks import measure_locks

READERS = 8
LONGEST_READ = 1.0
"""Seconds."""

_K = 10
_READY_SECONDS = 60.0


@dataclass
class Tally:
    """What one reader, or several, met."""

    times: list[float] = field(default_factory=list)
    longest: float = 0.0
    slowest: str = ""
    errors: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)

    def join(self, other: Tally) -> None:
        """Add what another reader met."""
        if other.longest > self.longest:
            self.longest, self.slowest = other.longest, other.slowest
        self.times += other.times
        self.errors += other.errors
        self.torn += other.torn


def read(path: Path, store: Store | None, number: int, seed: int) -> Tally:
    """Ask ``store``, or the one at ``path``, until there is the file ``stop`` beside it."""
    opened = store or Store.open(path)
    reader = _Reader(opened, np.random.default_rng([seed, number]))
    reader.ask()  # loads the embedder and maps the files, unmeasured
    (path.parent / f"ready-{number}").touch()
    tally = Tally()
    while not (path.parent / "stop").exists():
        started = time.perf_counter()
        try:
            name, check = reader.ask()
        except RagembedError as error:
            tally.errors.append(f"{type(error).__name__}: {error}")
            continue
        taken = time.perf_counter() - started
        tally.times.append(taken)
        if taken > tally.longest:
            tally.longest, tally.slowest = taken, name
        tally.torn += [f"{name}: {sentence}" for sentence in check()]
    if store is None:
        opened.close()
    return tally


class _Reader:
    """Asks one of several kinds of questions at a time."""

    def __init__(self, store: Store, rng: np.random.Generator) -> None:
        self._store = store
        self._rng = rng
        self._watch = Watch()
        self._kinds = (self._dense, self._lexical, self._hybrid, self._of_group, self._hybrid_of_group, self._get)

    def ask(self) -> tuple[str, Callable[[], Iterator[str]]]:
        """Ask, and return the question's kind, and what yields a sentence for each thing that is wrong."""
        return self._kinds[self._rng.integers(len(self._kinds))](int(self._rng.integers(GROUPS)))

    def _dense(self, group: int) -> tuple[str, Callable[[], Iterator[str]]]:
        question = f"{name_of(group)} part1"
        hits = self._store.search(question, _K, "dense")
        return "dense", lambda: self._wrong(question, hits, _K)

    def _lexical(self, group: int) -> tuple[str, Callable[[], Iterator[str]]]:
        hits = self._store.search(name_of(group), _K, "lexical")
        return "lexical", lambda: self._wrong(name_of(group), hits, PARTS)

    def _hybrid(self, group: int) -> tuple[str, Callable[[], Iterator[str]]]:
        question = f"{name_of(group)} part1 loose"
        hits = self._store.search(question, _K)
        return "hybrid", lambda: self._wrong(question, hits, _K)

    def _of_group(self, group: int) -> tuple[str, Callable[[], Iterator[str]]]:
        hits = self._store.search("part1", _K, "dense", where=f"group = {group}")
        return "dense, filtered", lambda: self._wrong("part1", hits, PARTS)

    def _hybrid_of_group(self, group: int) -> tuple[str, Callable[[], Iterator[str]]]:
        hits = self._store.search("part1 loose", _K, where=f"group IN ({group}, {(group + 1) % GROUPS})")
        return "hybrid, filtered", lambda: self._wrong("part1 loose", hits, min(_K, 2 * PARTS))

    def _get(self, group: int) -> tuple[str, Callable[[], Iterator[str]]]:
        even = group - group % 2
        found = self._store.get([f"{even}-{part}" for part in range(PARTS)])
        lost = [] if len(found) == PARTS else [f"{len(found)} chunks of {PARTS}"]
        return "get", lambda: iter([*lost, *self._watch.torn(found)])

    def _wrong(self, question: str, hits: Sequence[Hit], expected: int) -> Iterator[str]:
        if len(hits) != expected:
            yield f"{len(hits)} results, expected {expected}"
        yield from self._watch.torn(hits)
        yield from self._watch.wrong_scores(question, hits)


class Writer:
    """Changes a store without end: versions of groups, loose chunks, now and then all of its segments and its chain."""

    def __init__(self, path: Path, store: Store, seed: int) -> None:
        self._path = path
        self._store = store
        self._rng = np.random.default_rng(seed)
        self._versions = [0] * GROUPS
        self._loose = LOOSE
        self.counts = dict.fromkeys(("writes", "merged", "refitted"), 0)

    def turn(self, number: int) -> None:
        """Make one change, another kind by number."""
        self.counts["writes"] += 1
        if number % 40 == 0:
            self._store.optimize()
            self.counts["merged"] += 1
        elif number % 25 == 0:
            refit_store(self._path, CHAINS[number // 25 % len(CHAINS)])
            self.counts["refitted"] += 1
        elif number % 7 == 0:
            self._store.delete(where=f"loose = {number % 10}")
        elif number % 7 == 1:
            self._store.add(loose(range(self._loose - LOOSE, self._loose)))
        else:
            self._put_groups()

    def _put_groups(self) -> None:
        with self._store.writer() as writer:
            for group in self._rng.choice(GROUPS, 2, replace=False).tolist():
                self._versions[group] += 1
                put_group(writer, group, self._versions[group])
            add(writer, loose(range(self._loose, self._loose + 10)))
            self._loose += 10
            writer.delete([f"loose-{i}" for i in range(self._loose - LOOSE - 10, self._loose - LOOSE)])
            writer.merge()


def soak(folder: Path, seconds: float, seed: int, *, processes: bool) -> tuple[Tally, dict[str, int]]:
    """Let readers and a writer at one store, in processes or in threads that share one :class:`Store`."""
    path = folder / "store"
    make_store(path)
    with Store.open(path) as store, _executor(processes=processes) as executor:
        shared = None if processes else store
        readers = [executor.submit(read, path, shared, number, seed) for number in range(READERS)]
        try:
            _await_readers(folder, readers)
            writer, ends = Writer(path, store, seed), time.monotonic() + seconds
            while time.monotonic() < ends:
                writer.turn(writer.counts["writes"] + 1)
        finally:
            (folder / "stop").touch()
        total = Tally()
        for reader in readers:
            total.join(reader.result())
        problems = store.verify().problems
    total.errors += [f"verify: {problem.file}: {problem.message}" for problem in problems]
    return total, writer.counts


def _executor(*, processes: bool) -> Executor:
    if processes:
        return ProcessPoolExecutor(READERS, mp_context=multiprocessing.get_context("spawn"))
    return ThreadPoolExecutor(READERS)


def _await_readers(folder: Path, readers: Sequence[Future[Tally]]) -> None:
    ends = time.monotonic() + _READY_SECONDS
    while not all((folder / f"ready-{number}").exists() for number in range(READERS)):
        for reader in readers:
            if reader.done():
                reader.result()
        if time.monotonic() > ends:
            raise TimeoutError(f"the readers were not ready within {_READY_SECONDS:.0f} s")
        time.sleep(0.01)


def main() -> None:
    """Measure, print the tables and put them into the page of results."""
    options = parser(__doc__, "about three minutes; a trial 40 seconds")
    options.add_argument("--seconds", type=float, help="of each of the two runs (default: 60, in a trial 8)")
    arguments = options.parse_args()
    seconds = arguments.seconds or (8 if arguments.trial else 60)
    rows, broken = [], []
    with scratch(arguments.folder) as folder:
        for name, processes in (("threads that share one `Store`", False), ("processes", True)):
            place = folder / name.split()[0]
            place.mkdir()
            tally, writes = soak(place, seconds, arguments.seed, processes=processes)
            rows.append(_row(name, tally, writes))
            broken += [f"{name}: {sentence}" for sentence in (*tally.errors, *tally.torn)]
            if tally.longest >= LONGEST_READ:
                broken.append(f"{name}: a {tally.slowest} read took {tally.longest:.2f} s")
        locks = measure_locks(folder, 2 if arguments.trial else 10)
    broken += locks.broken
    about = (
        f"{READERS} readers and one writer, {seconds:.0f} s; {GROUPS} groups of {PARTS} chunks and about {LOOSE} "
        f"others; seed {arguments.seed}. The writer puts a new version of a whole group in place of the former in each "
        "commit, adds, deletes by id and filter, merges all segments, and changes the post-processors. Reads are "
        "dense, lexical, hybrid and filtered searches and `get`. Torn: an answer with two versions of a group, a "
        "version before one that the same reader has seen, a text that is not that of its version, a cosine that is "
        "not that of its text, scores out of order, or other than min(k, matches) results. A read's time is that of "
        "the call, in the reader, while all readers and the writer share the processors."
    )
    header = ["", "reads", "writes", "all merged", "refitted", "errors", "torn", "median read, ms", "longest read, s"]
    parts = [about, table(header, rows), locks.about, locks.table()]
    finish("soak", "readers and a writer", parts, broken, trial=arguments.trial)


def _row(name: str, tally: Tally, writes: Mapping[str, int]) -> list[str]:
    counts = (len(tally.times), *writes.values(), len(tally.errors), len(tally.torn))
    longest = f"{tally.longest:.3f} ({tally.slowest})"
    return [name, *(f"{count:,}" for count in counts), f"{1000 * statistics.median(tally.times):.1f}", longest]


if __name__ == "__main__":
    main()
