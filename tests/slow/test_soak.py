"""Eight readers and one writer of one store, in threads and in processes; and a second writer.

Each group of chunks is complete in one version in every generation: all its chunks carry the same version, in metadata
and text. As a program, ``test_soak.py read STORE NUMBER`` is one reader and ``test_soak.py hold STORE`` a writer that
keeps the lock; so this module imports nothing from other tests.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.documents.model import Chunk
from ragembed.errors import StoreLockedError
from ragembed.indexes import ChunkRecord, Hit, Store
from ragembed.indexes.indexing.refit import refit_store
from ragembed.resources import give_back

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("needs_minilm")]

SECONDS = 60 * float(os.environ.get("RAGEMBED_SLOW_SCALE", "1"))
LARGEST_GROWTH = 30_000_000
"""Bytes that a reader may gain after its first reads: it opens every generation, and memory has gaps."""
WARM = 50
"""Reads after which a reader has filled its caches."""
READERS, GROUPS, PARTS, LOOSE, K = 8, 12, 5, 300, 10
CONFIG = EmbedderConfig(extractor="re:dim=64", weighting="uniform", postprocess=("normalize",), query_fit="shared")
CHAINS = (("normalize",), ())
"""Post-processors that the writer switches between: other files and fingerprints, the same unit vectors."""


def embedder() -> Embedder:
    """Return an embedder that is the same in every process."""
    return Embedder(CONFIG).fit(["word"])


def text_of(group: int, part: int, version: int) -> str:
    """Return the text of a part; its words tell the group and the version."""
    drawn = np.random.default_rng([group, part, version]).integers(1000, size=8).tolist()
    return f"group{group}x part{part} version{version} {' '.join(f'w{i}x' for i in drawn)}"


def group_records(group: int, version: int) -> list[ChunkRecord]:
    """Return the chunks of a group; adding them replaces the former version in one commit."""
    metadata = {"group": group, "version": version}
    return [
        ChunkRecord(f"{group}-{part}", Chunk(text_of(group, part, version), metadata=metadata)) for part in range(PARTS)
    ]


def loose(numbers: Iterable[int]) -> list[ChunkRecord]:
    """Return chunks of no group; a tenth of them each has the same number ``loose`` in its metadata."""
    return [
        ChunkRecord(f"loose-{i}", Chunk(f"loose {text_of(99, i % 9, i)}", metadata={"loose": i % 10})) for i in numbers
    ]


def make_store(path: Path) -> None:
    with Store.create(path, embedder()) as store:
        store.add([*(record for group in range(GROUPS) for record in group_records(group, 0)), *loose(range(LOOSE))])


class Reader:
    """Asks random queries, and notes what is wrong with the answers."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._rng = np.random.default_rng(number)
        self._seen: dict[int, int] = defaultdict(int)
        self._embedder = embedder()
        self.reads = 0
        self.wrong: list[str] = []
        self.grown = (0, 0)

    def run(self, folder: Path, number: int) -> None:
        """Ask until there is the file ``stop``; note how many open files and bytes of memory the process has gained."""
        self.ask()
        (folder / f"ready-{number}").touch()
        before = usage()
        while not (folder / "stop").exists():
            self.ask()
            if self.reads == WARM:
                before = usage()
        after = usage()
        self.grown = (after[0] - before[0], after[1] - before[1])

    def ask(self) -> None:
        """Ask one query of a kind drawn at random; the newest version seen so far may not be undercut."""
        group = int(self._rng.integers(GROUPS))
        kind = int(self._rng.integers(6))
        if kind == 5:
            self.wrong += self._torn(found := self._store.get([f"{group}-{part}" for part in range(PARTS)]))
            expected = PARTS
        else:
            query, mode, where, expected = (
                (f"group{group}x part1", "dense", None, K),
                (f"group{group}x", "lexical", None, PARTS),
                (f"group{group}x part1 loose", "hybrid", None, K),
                ("part1", "dense", f"group = {group}", PARTS),
                ("part1 loose", "hybrid", f"group IN ({group}, {(group + 1) % GROUPS})", K),
            )[kind]
            found = self._store.search(query, K, mode, where=where)
            self.wrong += [*self._torn(found), *self._wrong_scores(query, found)]
        if len(found) != expected:
            self.wrong.append(f"kind {kind}: {len(found)} results, expected {expected}")
        self.reads += 1

    def _torn(self, chunks: Sequence[ChunkRecord | Hit]) -> Iterator[str]:
        versions: dict[int, set[int]] = defaultdict(set)
        for found in chunks:
            if "group" in found.chunk.metadata:
                group, version = found.chunk.metadata["group"], found.chunk.metadata["version"]
                versions[group].add(version)
                if found.chunk.text != text_of(group, int(found.id.split("-")[1]), version):
                    yield f"chunk {found.id} of version {version} has the text {found.chunk.text!r}"
        for group, there in versions.items():
            if len(there) > 1:
                yield f"group {group} is found in versions {sorted(there)} at once"
            if min(there) < self._seen[group]:
                yield f"group {group} is found in version {min(there)} after {self._seen[group]}"
            self._seen[group] = max(self._seen[group], *there)

    def _wrong_scores(self, query: str, hits: Sequence[Hit]) -> Iterator[str]:
        scores = [hit.score for hit in hits]
        if scores != sorted(scores, reverse=True):
            yield f"scores are not in order: {scores}"
        if dense := [hit for hit in hits if hit.dense is not None]:
            texts = [hit.chunk.embedded_text for hit in dense]
            expected = self._embedder.encode_documents(texts) @ self._embedder.encode_queries([query])[0]
            for hit, cosine in zip(dense, expected.tolist(), strict=True):
                if abs(float(hit.dense or 0.0) - cosine) > 2e-3:
                    yield f"chunk {hit.id} has the cosine {hit.dense}, its text {cosine}"


def usage() -> tuple[int, int]:
    """Return the number of open files and the bytes of memory of this process, as far as the system shows them."""
    if not Path("/proc/self/fd").is_dir():
        return 0, 0
    gc.collect()
    give_back()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return len(list(Path("/proc/self/fd").iterdir())), pages * os.sysconf("SC_PAGE_SIZE")


def write(path: Path, store: Store, seconds: float) -> int:
    """Change and copy the store for some seconds; returns how often."""
    rng, versions, last, turn = np.random.default_rng(0), [0] * GROUPS, LOOSE, 0
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        turn += 1
        if turn % 40 == 0:
            store.optimize()
        elif turn % 15 == 0:
            copy = path.with_name("copy")
            store.copy(copy)
            with Store.open(copy) as copied:
                assert len(copied) == len(store)
        elif turn % 25 == 0:
            refit_store(path, CHAINS[turn // 25 % len(CHAINS)])
        elif turn % 7 == 0:
            store.delete(where=f"loose = {turn % 10}")
        elif turn % 7 == 1:
            store.add(loose(range(last - LOOSE, last)))
        else:
            groups = rng.choice(GROUPS, 2, replace=False).tolist()
            for group in groups:
                versions[group] += 1
            last += 10
            records = [record for group in groups for record in group_records(group, versions[group])]
            store.add([*records, *loose(range(last - 10, last))])
            store.delete([f"loose-{i}" for i in range(last - LOOSE - 10, last - LOOSE)])
    return turn


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start this module as a program."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def await_files(files: Sequence[Path]) -> None:
    ends = time.monotonic() + 120
    while not all(file.exists() for file in files):
        assert time.monotonic() < ends, f"nobody made {', '.join(file.name for file in files if not file.exists())}"
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_readers_beside_a_writer_see_whole_generations(kind, tmp_path):
    path = tmp_path / "store"
    make_store(path)
    wrong, reads, grown = [], [], []
    with Store.open(path) as store:
        if kind == "threads":
            readers = [Reader(store, number) for number in range(READERS)]
            with ThreadPoolExecutor(READERS) as executor:
                running = [executor.submit(reader.run, tmp_path, i) for i, reader in enumerate(readers)]
                writes = _write_until_done(path, store)
                for one in running:
                    one.result()
            wrong, reads = [line for one in readers for line in one.wrong], [one.reads for one in readers]
        else:
            processes = [start("read", path, number) for number in range(READERS)]
            writes = _write_until_done(path, store)
            for process in processes:
                output, errors = process.communicate()
                assert process.returncode == 0, errors
                told = json.loads(output)
                wrong += told["wrong"]
                reads.append(told["reads"])
                grown.append(told["grown"])
        assert not store.verify().problems
    assert wrong == []
    assert min(reads) > 1
    assert writes > 1
    if grown:
        files, memory = map(max, zip(*grown, strict=True))
        assert files <= 8  # the files of another generation
        assert memory < LARGEST_GROWTH


def _write_until_done(path: Path, store: Store) -> int:
    try:
        await_files([path.parent / f"ready-{number}" for number in range(READERS)])
        return write(path, store, SECONDS)
    finally:
        (path.parent / "stop").touch()


def test_a_second_writer_is_refused_waits_or_takes_over_from_a_dead_one(tmp_path):
    path = tmp_path / "store"
    make_store(path)
    holder = start("hold", path)
    await_files([tmp_path / "held"])
    with Store.open(path) as store:
        with pytest.raises(StoreLockedError, match=rf"PID {holder.pid}\b"):
            store.optimize()
        with ThreadPoolExecutor(1) as executor:
            waiting = executor.submit(store.optimize, wait_seconds=60)
            time.sleep(0.5)
            assert not waiting.done()
            (tmp_path / "stop").touch()
            waiting.result()
        holder.communicate()
        (tmp_path / "stop").unlink()
        (tmp_path / "held").unlink()
        other = start("hold", path)
        await_files([tmp_path / "held"])
        other.send_signal(signal.SIGKILL)
        other.communicate()
        store.optimize()


def main(task: str, store: str, number: str = "0") -> None:
    path = Path(store)
    with Store.open(path) as opened:
        if task == "read":
            reader = Reader(opened, int(number))
            reader.run(path.parent, int(number))
            sys.stdout.write(json.dumps({"reads": reader.reads, "wrong": reader.wrong, "grown": reader.grown}))
        else:
            with opened.writer():
                (path.parent / "held").touch()
                await_files([path.parent / "stop"])


if __name__ == "__main__":
    main(*sys.argv[1:])
