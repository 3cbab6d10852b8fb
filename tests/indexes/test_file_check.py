"""Index files: sound ones of every kind are accepted, and crafted ones are refused before FAISS reads them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pytest

from ragembed.errors import StoreDamagedError
from ragembed.indexes.faiss_index.building import build_index
from ragembed.indexes.faiss_index.file_check import COUNT, HEADER, check_index_file
from ragembed.indexes.faiss_index.records import NAMES, parse_spec
from ragembed.indexes.faiss_index.vectors import ArrayVectors
from ragembed.postprocess import unit_rows

ROWS, DIM = 300, 16
KINDS = (
    *NAMES,
    *("SQ6", "SQbf16", "HNSW8_SQ4", "IVF4_HNSW8,Flat", "IVF4,PQ4x4", "PCAR8,IVF4,SQ8", "PCAW8,Flat"),
    *("OPQ4_8,IVF4,PQ4x4", "Pad32,IVF4,Flat", "L2norm,SQ8", "RR8,Flat"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    folder = tmp_path_factory.mktemp("made")
    vectors = unit_rows(np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32))

    def content(kind: str) -> bytes:
        file = folder / kind
        if not file.exists():
            build_index(parse_spec(kind), ArrayVectors(vectors), np.arange(ROWS), file)
        return file.read_bytes()

    return content


@pytest.mark.parametrize("kind", KINDS)
def test_sound_files_are_accepted(made: Callable[[str], bytes], kind: str, tmp_path: Path) -> None:
    file = tmp_path / "index.faiss"
    data = made(kind)
    file.write_bytes(data)
    check_index_file(file, parse_spec(kind), ROWS, DIM)
    for rows, dim in ((ROWS + 1, DIM), (ROWS, DIM + 1)):
        with pytest.raises(StoreDamagedError, match="was not made by ragembed"):
            check_index_file(file, parse_spec(kind), rows, dim)
    for end in {0, 3, len(data) // 2, len(data) - 1}:
        file.write_bytes(data[:end])
        with pytest.raises(StoreDamagedError, match="was not made by ragembed"):
            check_index_file(file, parse_spec(kind), ROWS, DIM)
    file.write_bytes(data + b"\0")
    with pytest.raises(StoreDamagedError, match="it has 1 bytes after its end"):
        check_index_file(file, parse_spec(kind), ROWS, DIM)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_told_from_the_others(made: Callable[[str], bytes], kind: str, tmp_path: Path) -> None:
    file = tmp_path / "index.faiss"
    file.write_bytes(made(kind))
    spec = parse_spec(kind)
    for other in map(parse_spec, KINDS):
        if (other.family, other.codes, other.transformed) != (spec.family, spec.codes, spec.transformed):
            with pytest.raises(StoreDamagedError, match="was not made by ragembed"):
                check_index_file(file, other, ROWS, DIM)


def with_links(data: bytes, value: int) -> bytes:
    """Return a graph whose first links are ``value``."""
    index = faiss.deserialize_index(np.frombuffer(data, np.uint8))
    links = faiss.vector_to_array(faiss.downcast_index(index.index).hnsw.neighbors).astype("<i4").tobytes()
    at = data.index(links)
    return data[:at] + struct.pack("<8i", *[value] * 8) + data[at + 32 :]


def on_disk(data: bytes) -> bytes:
    """Return an index whose lists FAISS would map from another file."""
    at = data.index(b"ilar")
    path = b"/etc/passwd"
    return data[:at] + b"ilod" + bytes(40) + COUNT.pack(len(path)) + path


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("hnsw", lambda data: with_links(data, ROWS)),
        ("hnsw", lambda data: with_links(data, -2)),
        ("hnsw-sq8", lambda data: with_links(data, 2**31 - 1)),
        ("ivf", on_disk),
        ("ivf-sq8", lambda data: data.replace(b"full", b"sprs")),
        ("ivf-pq", lambda data: data.replace(struct.pack("<QQQ", 16, 4, 8), struct.pack("<QQQ", 16, 4, 40))),
        ("fp16", lambda data: data.replace(b"IxSQ", b"IxPQ")),
        ("flat", lambda data: HEADER.pack(b"IxMp", DIM, ROWS, 0, 0, True, 0) + data),
        ("flat", lambda data: data.replace(b"IxMp", b"IxM2")),
    ],
)
def test_crafted_files_are_refused(
    made: Callable[[str], bytes], kind: str, change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    file = tmp_path / "index.faiss"
    data = made(kind)
    file.write_bytes(change(data))
    assert file.read_bytes() != data
    with pytest.raises(StoreDamagedError, match="was not made by ragembed"):
        check_index_file(file, parse_spec(kind), ROWS, DIM)
