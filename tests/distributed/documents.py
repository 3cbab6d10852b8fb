"""Documents, requests and pools for tests of runs with workers."""

import random

import pytest

from ragembed import EmbedderConfig
from ragembed.distributed.members import stores_in
from ragembed.distributed.workers import WorkerPool
from ragembed.indexes import Store
from ragembed.indexes.indexing.request import IndexingRequest

WORDS = [f"word{i}" for i in range(400)]
LICENCE = "this text is distributed under the terms of a licence that all files repeat"


class Here(WorkerPool):
    """Runs tasks in this process, in another order. ``tasks`` are the finished tasks."""

    def __init__(self, stop_after=None, stop_at=None):
        super().__init__()
        self.tasks = []
        self._stop_after, self._stop_at = stop_after, stop_at

    def run(self, make, stage, numbers):
        perform = make()
        for number in reversed(numbers):  # a pool may run tasks in any order
            if len(self.tasks) == self._stop_after or stage == self._stop_at:
                raise KeyboardInterrupt
            self.tasks.append((stage, number))
            yield perform(stage, number)


def write_docs(folder):
    """Write files with many and few chunks, a copy, a repeated licence, and a file that cannot be read."""
    folder.mkdir()
    rng = random.Random(3)
    for i in range(24):
        paragraphs = [" ".join(rng.choices(WORDS, k=40)) for _ in range(rng.choice([1, 4, 12]))]
        (folder / f"{i:02}.md").write_text("\n\n".join([LICENCE, *paragraphs]))
    (folder / "copy.md").write_bytes((folder / "07.md").read_bytes())
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing of the kind")
    (folder / "latin.txt").write_bytes("naïve café au lait, déjà vu".encode("latin-1"))
    return folder


@pytest.fixture
def docs(tmp_path):
    return write_docs(tmp_path / "docs")


def config(**changes):
    return EmbedderConfig(extractor="re:dim=32", **changes)


def request(name, docs, **changes):
    paths = changes.pop("paths", (docs,))
    return IndexingRequest(docs.parent / name, paths, embedder=changes.pop("embedder", config()), **changes)


def contents(folder):
    """All that the stores in a folder hold."""
    found = {}
    for name, path in stores_in(folder).items():
        with Store.open(path) as store:
            assert not store.unfinished
            assert store.verify().problems == []
            kept = list(store.chunks()), list(store.sources().values())
            found[name] = *kept, store.embedder.fingerprint, store.vectors(store.ids()).tobytes()
        assert not (path / "work").exists()
    return found
