"""Rows of chunks in memory equal those in the database, and arithmetic on numbers equals NumPy's."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.indexes import Store
from ragembed.indexes.faiss_index.vectors import places_in
from ragembed.indexes.storage import catalog, segments
from ragembed.indexes.storage.reader import ChunkRows, KeptRows
from ragembed.indexes.storage.segments import RAW_TYPE, to_vectors
from ragembed.postprocess import unit_rows
from tests.conftest import KnownEncoder, record


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.sets(st.integers(0, 14)), st.booleans())
def test_rows_and_chunks_equal_those_of_a_plain_loop(rows, wanted, ascending):
    """Several chunks may use one row, and the rows need not ascend with the keys."""
    keys = np.cumsum(1 + np.arange(len(rows)) % 3)
    rows = np.array(sorted(rows) if ascending else rows, dtype=np.int64)
    kept = ChunkRows(keys, rows)
    found = kept.of_rows(np.array(sorted(wanted), dtype=np.int64))
    pairs = [(key, row) for key, row in zip(keys.tolist(), rows.tolist(), strict=True) if row in wanted]
    assert list(zip(*(each.tolist() for each in found), strict=True)) == pairs
    assert kept.of_keys(keys[::-1]).tolist() == rows[::-1].tolist()
    with pytest.raises(KeyError, match="99"):
        kept.of_keys(np.array([keys[0], 99]))


def test_many_lookups_are_answered_from_memory(tmp_path):
    with Store.create(tmp_path / "s", KnownEncoder()) as store, closing(sqlite3.connect(store.path / "store.db")) as db:
        for start in (0, 20):
            store.add([record(f"c{i}", f"text {i // 2}") for i in range(start, start + 20)])
            kept = KeptRows()
            keys, rows = catalog.chunk_rows(db)
            for _ in range(4):
                assert kept.of_keys(db, len(keys), keys).tolist() == rows.tolist()
                found = kept.of_rows(db, len(keys), rows[:3])
                assert [each.tolist() for each in found] == [
                    each.tolist() for each in catalog.chunks_of_rows(db, rows[:3].tolist())
                ]


def test_half_precision_is_read_exactly():
    halves = np.arange(1 << 16, dtype=np.uint16).view(RAW_TYPE).reshape(256, 256)
    finite = np.where(np.isfinite(halves), halves, RAW_TYPE.type(0))
    seen = []
    for raw in (finite, halves):
        to_vectors(raw, lambda floats: seen.append(floats) or np.ones_like(floats))
        np.testing.assert_array_equal(seen[-1], raw.astype(np.float32))


@pytest.mark.parametrize("count", [0, 1, 4, 5, 12])
def test_vectors_are_converted_in_blocks(monkeypatch, count):
    raw = np.random.default_rng(0).normal(size=(20, 3)).astype(RAW_TYPE)
    positions = np.arange(count, dtype=np.int64)[::-1] + 2
    sizes = []
    monkeypatch.setattr(segments, "_CONVERTED_ROWS", 4)
    found = to_vectors(raw, lambda floats: sizes.append(len(floats)) or floats[:, :2], positions)
    assert max(sizes) <= 4
    np.testing.assert_array_equal(found, unit_rows(raw[positions][:, :2].astype(np.float32)))


@given(st.sets(st.integers(-50, 50), min_size=1), st.lists(st.integers(-60, 60)))
def test_places_are_those_of_the_numbers(numbers, wanted):
    ascending, wanted = np.array(sorted(numbers)), np.array(wanted, dtype=np.int64)
    assert (ascending[places_in(ascending, wanted)] == wanted).tolist() == [each in numbers for each in wanted.tolist()]
