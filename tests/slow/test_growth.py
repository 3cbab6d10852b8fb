"""What one more document writes to the disk, as a store grows."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest

from ragembed.indexes import ChunkRecord, Store
from tests.conftest import KnownEncoder, record
from tests.slow.helpers import scaled, words

pytestmark = pytest.mark.slow

ADDS = 40


def written() -> int:
    """Return how many bytes this process has caused to be written to a disk, in whole pages."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["write_bytes"])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux's counters")
def test_what_one_more_chunk_writes_does_not_grow_with_the_store(tmp_path):
    rng, encoder, means = np.random.default_rng(0), KnownEncoder(dim=64), []
    Store.create(tmp_path / "s", encoder, index="flat").close()
    with Store.open(tmp_path / "s", encoder) as store:
        for size in (4_000, max(16_000, scaled(40_000))):
            for start in range(len(store), size, 4_000):
                store.add([new(i, rng) for i in range(start, min(start + 4_000, size))])
            marks = [written()]
            for i in range(ADDS):
                store.add([new(size + i, rng)])
                marks.append(written())
            means.append(statistics.fmean(np.diff(marks).tolist()))
    if not means[0]:
        pytest.skip("nothing is written to a disk here: choose another place than memory with --basetemp")
    assert means[1] <= 2 * means[0]


def new(number: int, rng: np.random.Generator) -> ChunkRecord:
    return record(str(number), f"document{number} {words(rng, 24)}")
