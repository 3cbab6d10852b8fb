"""Altered index files: FAISS reads those that pass the check, in a process with limits, and must not crash."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ragembed.indexes.faiss_index.building import build_index
from ragembed.indexes.faiss_index.records import parse_spec
from ragembed.indexes.faiss_index.vectors import ArrayVectors
from ragembed.postprocess import unit_rows
from tests.indexes.test_file_check import DIM, KINDS, ROWS
from tests.slow.helpers import SCALE

pytestmark = pytest.mark.slow
FILES = 150
_READ = """
import sys
import numpy as np
from pathlib import Path
from ragembed.errors import StoreDamagedError
from ragembed.indexes.faiss_index.index import SegmentIndex
from ragembed.indexes.faiss_index.records import parse_spec

kind, rows, dim = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
queries = np.random.default_rng(1).normal(size=(3, dim)).astype(np.float32)
allowed = np.arange(rows) % 2 == 0
accepted = 0
for file in sys.argv[4:]:
    print(Path(file).name, flush=True)
    try:
        index = SegmentIndex(Path(file), parse_spec(kind), rows, dim)
    except StoreDamagedError:
        continue
    accepted += 1
    for effort in (1, index.most_effort or None):
        index.search(queries, 10, effort=effort)
        index.search(queries, 10, allowed, 0.5, effort)
    index.search(np.full((1, dim), np.nan, dtype=np.float32), 10)
    index.search(np.full((1, dim), 3e38, dtype=np.float32), 10, allowed, 0.5)
    index.rows()
    sum(len(part) for part, _ in index.contents())
    index.kept_of(queries)
print("accepted", accepted)
"""


def altered(data: bytes, draw: np.random.Generator) -> bytes:
    """Return the file with another number somewhere, most likely in a header, or with bytes removed or repeated."""
    found = bytearray(data)
    for _ in range(int(draw.integers(1, 3))):
        at = int(draw.choice([draw.integers(0, min(400, len(data))), draw.integers(0, len(data))]))
        change = draw.integers(0, 7)
        if change <= 2:
            found[at : at + 1] = bytes([draw.integers(0, 256)])
        elif change == 3:
            found[at : at + 4] = struct.pack("<i", draw.choice([-(2**31), -2, -1, 0, 1, ROWS - 1, 2**16, 2**31 - 1]))
        elif change == 4:
            found[at : at + 8] = struct.pack("<q", draw.choice([-(2**63), -1, 0, 1, 2**32, 2**40, 2**63 - 1]))
        elif change == 5:
            del found[at : at + int(draw.integers(1, 9))]
        else:
            found[at:at] = found[at : at + int(draw.integers(1, 9))]
    return bytes(found)


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))


@pytest.mark.parametrize("kind", KINDS)
def test_altered_index_files(kind: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(KINDS.index(kind))
    vectors = unit_rows(draw.normal(size=(ROWS, DIM)).astype(np.float32))
    build_index(parse_spec(kind), ArrayVectors(vectors), np.arange(ROWS), tmp_path / "made")
    data = (tmp_path / "made").read_bytes()
    for _ in range(max(1, round(SCALE))):
        files = [tmp_path / f"{number}.faiss" for number in range(FILES)]
        for file in files:
            file.write_bytes(altered(data, draw))
        command = [sys.executable, "-P", "-c", _READ, kind, str(ROWS), str(DIM), *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, preexec_fn=limited)
        assert done.returncode == 0, (done.returncode, done.stdout.split()[-1:], done.stderr)
