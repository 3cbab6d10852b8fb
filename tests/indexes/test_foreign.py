"""Reading the vectors of FAISS index files that other programs wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.indexes.ann import foreign
from ragembed.indexes.ann.foreign import read_vectors


def index_of(kind: str, metric: int = faiss.METRIC_L2, rows: int = 200, dim: int = 8) -> tuple[Any, np.ndarray]:
    vectors = np.random.default_rng(0).normal(size=(rows, dim)).astype(np.float32)
    index = faiss.index_factory(dim, kind, metric)
    index.train(vectors)
    index.add(vectors)
    return index, vectors


def stored(index: Any, folder: Path) -> Path:
    file = folder / "índice.faiss"
    file.write_bytes(faiss.serialize_index(index).tobytes())
    return file


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [
        ("Flat", 0.0),
        ("HNSW8,Flat", 0.0),
        ("IVF4,Flat", 0.0),
        ("SQfp16", 0.005),
        ("SQ8", 0.05),
        ("IVF4,SQ8", 0.05),
        ("PCA8,IVF2,Flat", 1e-5),
        ("IVF2,SQ4", 0.3),
        ("Flat,RFlat", 0.0),
    ],
)
@pytest.mark.parametrize("metric", [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT])
def test_vectors_of_many_kinds_are_read(tmp_path: Path, kind: str, tolerance: float, metric: int) -> None:
    index, vectors = index_of(kind, metric)
    found = read_vectors(stored(index, tmp_path))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, vectors, rtol=0, atol=tolerance)


def test_an_empty_index_has_no_vectors(tmp_path: Path) -> None:
    for index in (faiss.IndexFlatL2(3), faiss.IndexHNSWFlat(3, 4)):
        assert read_vectors(stored(index, tmp_path)).shape == (0, 3)


def test_index_without_ordered_positions_raises(tmp_path: Path) -> None:
    index, _ = index_of("IVF4,Flat")
    index.remove_ids(np.array([3]))
    with pytest.raises(ConfigError, match=r"is an IndexIVFFlat, which cannot return its vectors in order of position"):
        read_vectors(stored(index, tmp_path))


def test_other_metric_raises(tmp_path: Path) -> None:
    index, _ = index_of("Flat", faiss.METRIC_L1)
    with pytest.raises(ConfigError, match="uses FAISS metric number 2: expected"):
        read_vectors(stored(index, tmp_path))


@pytest.mark.parametrize("kind", ["Flat", "SQ8"])
def test_a_truncated_index_is_damaged(tmp_path: Path, kind: str) -> None:
    file = stored(index_of(kind, rows=3, dim=2)[0], tmp_path)
    data = file.read_bytes()
    for size in range(len(data)):
        file.write_bytes(data[:size])
        with pytest.raises(StoreDamagedError, match=file.name):
            read_vectors(file)


@pytest.mark.parametrize("data", [b"", b"text", b"a text that is longer than the header of an index, by far"])
def test_other_files_raise(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "index.faiss"
    file.write_bytes(data)
    with pytest.raises(StoreDamagedError, match="cannot be read as a FAISS index"):
        read_vectors(file)


@pytest.mark.parametrize(("dim", "count"), [(2, 2**40), (2, 4), (2, -3), (0, 3), (-2, -3), (2**31 - 1, 2**62)])
def test_index_with_a_wrong_size_is_damaged(tmp_path: Path, dim: int, count: int) -> None:
    file = tmp_path / "index.faiss"
    data = faiss.serialize_index(index_of("Flat", rows=3, dim=2)[0]).tobytes()
    values = (dim * count) % 2**64
    header = foreign._HEADER.pack(b"IxF2", dim, count, 0, 0, True, 1, values)
    file.write_bytes(header + data[len(header) :])
    with pytest.raises(StoreDamagedError, match=r"which does not match its header .*: expected a complete FAISS index"):
        read_vectors(file)
