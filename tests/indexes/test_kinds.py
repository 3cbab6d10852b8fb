"""Kinds of index: each answers like exact search, with and without a filter, and holds what was put into it."""

import numpy as np
import pytest

from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.indexes import ChunkRecord, Store, faiss_index, kinds, view
from ragembed.indexes.faiss_index import SegmentIndex, write_index
from ragembed.indexes.verify import verify_store
from ragembed.postprocess import unit_rows
from tests.conftest import KnownEncoder

SIZE, DIM = 900, 16
APPROXIMATE = ("hnsw", "ivf")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Let segments of few vectors have the kind that is asked for."""
    monkeypatch.setattr(kinds, "LEAST_APPROXIMATE", 200)


def text(i):
    return f"text number {i}"


def encoder():
    """Vectors that lie in some clusters, as those of texts do."""
    draw = np.random.default_rng(2)
    centres = draw.normal(size=(12, DIM))
    vectors = centres[draw.integers(12, size=SIZE)] + 0.6 * draw.normal(size=(SIZE, DIM))
    return KnownEncoder({text(i): vectors[i].tolist() for i in range(SIZE)}, name="clusters")


def records(numbers):
    return [ChunkRecord(f"id{i}", Chunk(text(i), metadata={"i": i, "tenth": i % 10})) for i in numbers]


@pytest.fixture(params=kinds.KINDS)
def store(request, tmp_path):
    with Store.create(tmp_path / "s", encoder(), index=request.param) as store:
        store.add(records(range(SIZE)))
        yield store


def exact(numbers, vector, k):
    """The ids of the best ``k`` of the chunks ``numbers``, and their cosines."""
    table = encoder().table
    stored = np.array([table[text(i)] for i in numbers], dtype=np.float16).astype(np.float32)
    cosines = stored @ vector / np.linalg.norm(stored, axis=1) / np.linalg.norm(vector)
    best = np.argsort(-cosines, kind="stable")[:k]
    return [f"id{numbers[i]}" for i in best], cosines[best]


def queries(count=12):
    draw = np.random.default_rng(3)
    table = encoder().table
    return [
        (np.array(table[text(i)]) + 0.3 * draw.normal(size=DIM)).astype(np.float32)
        for i in draw.integers(SIZE, size=count)
    ]


def recall(store, numbers, k, where=None):
    """Mean share of the exact ``k`` best that are found; the scores of all that are found must be exact."""
    shares = []
    for vector in queries():
        hits = store.search_vector(vector, k, where=where)
        wanted, cosines = exact(numbers, vector, len(numbers))
        score_of = dict(zip(wanted, cosines.tolist(), strict=True))
        assert len({hit.id for hit in hits}) == len(hits) == min(k, len(numbers))
        for hit in hits:
            assert hit.score == pytest.approx(score_of[hit.id], abs=1e-5)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        shares.append(len({hit.id for hit in hits} & set(wanted[:k])) / max(1, min(k, len(wanted))))
    return float(np.mean(shares))


def kinds_of(store):
    return [(segment["kind"], segment["rows"]) for segment in store.status()["segments"]]


def test_a_store_has_the_kind_that_was_asked_for(store):
    [(kind, rows)] = kinds_of(store)
    assert (kind, rows) == (store.status()["index"], SIZE)
    assert recall(store, range(SIZE), 10) >= (1.0 if kind == "flat" else 0.95)


@pytest.mark.parametrize("where", ["i >= 890", "tenth = 3", "tenth IN (1, 2, 3, 4, 5)", "i != 7", "i < 0", "i = 5"])
@pytest.mark.parametrize("exactly", [True, False], ids=["one by one", "in the index"])
def test_a_filter_finds_as_many_as_there_are(store, where, exactly, monkeypatch):
    if not exactly:
        monkeypatch.setattr(view, "_EXACT_ROWS", 0)
        monkeypatch.setattr(view, "_EXACT_SHARE", 0.0)
    numbers = [
        i
        for i in range(SIZE)
        if {
            "i >= 890": i >= 890,
            "tenth = 3": i % 10 == 3,
            "tenth IN (1, 2, 3, 4, 5)": 1 <= i % 10 <= 5,
            "i != 7": i != 7,
            "i < 0": False,
            "i = 5": i == 5,
        }[where]
    ]
    found = recall(store, numbers, 10, where) if numbers else 1.0
    assert found >= (1.0 if exactly and (store.status()["index"] == "flat" or len(numbers) < 500) else 0.95)
    if not numbers:
        assert store.search_vector(queries(1)[0], 10, where=where) == []


def test_chunks_that_were_deleted_are_not_found(store):
    store.delete(where="tenth IN (1, 2, 3, 4)")
    assert store.status()["unused_vectors"] == 360
    assert recall(store, [i for i in range(SIZE) if not 1 <= i % 10 <= 4], 10) >= 0.95


@pytest.mark.parametrize("k", [SIZE // 2, SIZE, 10 * SIZE])
def test_as_many_are_found_as_asked_for_however_many_these_are(tmp_path, k):
    with Store.create(tmp_path / "s", encoder(), index="hnsw") as store:
        store.add(records(range(SIZE)))
        assert len(store.search_vector(queries(1)[0], k)) == min(k, SIZE)


def test_as_many_are_found_as_asked_for_in_inverted_lists_too(tmp_path):
    with Store.create(tmp_path / "s", encoder(), index="ivf") as store:
        store.add(records(range(SIZE)))
        for k in (SIZE // 2, SIZE, 10 * SIZE):
            assert len(store.search_vector(queries(1)[0], k)) == min(k, SIZE)


def test_a_store_is_as_it_was_committed(store):
    report = verify_store(store.path, encoder())
    assert (report.problems, report.notes, report.vectors) == ([], [], SIZE)


def test_a_damaged_index_is_rebuilt_with_its_kind(store):
    before = kinds_of(store)
    store.close()
    file = next(store.path.glob("segments/*/index.faiss"))
    data = bytearray(file.read_bytes())
    data[-1000] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreDamagedError, match=r"index\.faiss"):
        store.search_vector(queries(1)[0], 3)
    report = verify_store(store.path, encoder(), repair=True)
    assert (report.problems, len(report.repaired)) == ([], 1)
    assert kinds_of(store) == before
    assert recall(store, range(SIZE), 10) >= 0.95


def test_merging_keeps_the_kind(tmp_path):
    for kind in APPROXIMATE:
        with Store.create(tmp_path / kind, encoder(), index=kind) as store:
            for start in range(0, SIZE, 300):
                store.add(records(range(start, start + 300)))
            assert kinds_of(store) == [(kind, 300)] * 3
            store.delete(where="tenth = 0")
            store.optimize()
            assert kinds_of(store) == [(kind, 810)]
            assert recall(store, [i for i in range(SIZE) if i % 10], 10) >= 0.95
            store.delete(where="i >= 150")
            store.optimize()
            assert kinds_of(store) == [("flat", 135)]
            assert recall(store, [i for i in range(150) if i % 10], 10) == 1.0
        assert verify_store(tmp_path / kind, encoder()).problems == []


def test_a_small_segment_is_flat_and_a_larger_one_is_not(tmp_path):
    with Store.create(tmp_path / "s", encoder(), index="hnsw") as store:
        store.add(records(range(199)))
        store.add(records(range(199, 399)))
        assert kinds_of(store) == [("flat", 199), ("hnsw", 200)]
        assert recall(store, range(399), 10) >= 0.95
        assert recall(store, range(300), 10, "i < 300") == 1.0


@pytest.mark.parametrize("kind", kinds.KINDS)
@pytest.mark.parametrize("size", [1, 65, 700])
def test_an_index_holds_what_was_put_into_it(kind, size, tmp_path):
    draw = np.random.default_rng(size)
    vectors = unit_rows(draw.normal(size=(size, DIM)).astype(np.float32))
    rows = np.sort(draw.choice(10 * size, size, replace=False)).astype(np.int64)
    write_index(kind, vectors, rows, tmp_path / "i")
    index = SegmentIndex(tmp_path / "i", kind, size, DIM)
    found_rows, found = index.contents()
    np.testing.assert_array_equal(found_rows, rows)
    np.testing.assert_array_equal(found, vectors)
    scores, best = index.search(vectors[:3], 1, None, 1.0)
    np.testing.assert_array_equal(best[:, 0], rows[:3])
    np.testing.assert_allclose(scores[:, 0], 1.0, rtol=1e-5)
    for wrong in ((kind, size + 1, DIM), (kind, size, DIM + 1)):
        with pytest.raises(StoreDamagedError, match="expected a FAISS index"):
            SegmentIndex(tmp_path / "i", *wrong)
    for other in set(kinds.KINDS) - {kind}:
        with pytest.raises(StoreDamagedError, match=f"of kind {other}"):
            SegmentIndex(tmp_path / "i", other, size, DIM)


def test_rows_that_are_not_allowed_are_never_found(tmp_path):
    vectors = np.random.default_rng(1).normal(size=(700, DIM)).astype(np.float32)
    rows = np.arange(1, 701, dtype=np.int64)
    for kind in kinds.KINDS:
        write_index(kind, vectors, rows, tmp_path / kind)
        index = SegmentIndex(tmp_path / kind, kind, 700, DIM)
        for size in (701, 400, 8, 1):  # rows beyond the mask are not allowed either
            allowed = np.random.default_rng(size).random(size) < 0.5
            allowed[0] = False
            scores, found = index.search(vectors[:5], 20, allowed, 0.3)
            assert allowed[found[found >= 0]].all()
            assert (scores[found < 0] == -np.inf).all()
            assert size > 8 or (found >= 0).sum(axis=1).max(initial=0) <= allowed.sum()


def test_an_unknown_kind_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(ConfigError, match="unknown index kind 'pq': expected one of flat, hnsw, ivf"):
        Store.create(tmp_path / "s", encoder(), index="pq")
    assert not (tmp_path / "s" / "store.db").exists()
    assert kinds.checked_kind("ivf") == "ivf"


def test_the_least_size_is_the_one_that_is_documented(monkeypatch):
    monkeypatch.undo()
    assert [kinds.kind_for("hnsw", rows) for rows in (9_999, 10_000)] == ["flat", "hnsw"]
    assert kinds.kind_for("flat", 10**6) == "flat"
    assert faiss_index._TYPES.keys() == set(kinds.KINDS)
