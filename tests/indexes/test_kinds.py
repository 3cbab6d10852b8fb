"""Kinds of index: each answers like exact search, with and without a filter, and holds what was put into it."""

import shutil
from functools import cache

import numpy as np
import pytest

from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError, IndexWarning, StoreDamagedError
from ragembed.files import file_sha256
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.faiss_index import choose
from ragembed.indexes.faiss_index.building import build_index
from ragembed.indexes.faiss_index.index import DividedIndex, RefinedIndex, SegmentIndex
from ragembed.indexes.faiss_index.records import NAMES, IndexConfig, parse_spec
from ragembed.indexes.faiss_index.vectors import ArrayVectors
from ragembed.indexes.storage import reader, segments, upkeep
from ragembed.indexes.verification import verify_store
from ragembed.postprocess import unit_rows
from tests.conftest import KnownEncoder

SIZE, DIM = 900, 16
KINDS = (*NAMES, "PCAR16,IVF4,PQ8", "IVF4,SQ6")
SOME = pytest.mark.parametrize("store", ["flat", "sq8", "hnsw", "PCAR16,IVF4,PQ8"], indirect=True)
"""One kind of each family."""
EXACT = ("flat", "fp16", "sq8")
"""Kinds that compare every vector, and then rank by the raw ones."""
LEAST, LEAST_OF_CODES = 200, 256
"""Vectors that an approximate index needs here, and those that a product quantiser needs anywhere."""
FILTERS = {
    "tenth = 3": lambda i: i % 10 == 3,
    "tenth IN (1, 2, 3, 4, 5)": lambda i: 1 <= i % 10 <= 5,
    "i != 7": lambda i: i != 7,
}


def lower_limits(patch):
    """Let stores of few vectors have the kind that is asked for, and measure it on few questions."""
    patch.setattr(segments, "LEAST_APPROXIMATE", LEAST)
    patch.setattr(choose, "LEAST_ASKED", LEAST)
    for module in (choose, upkeep):
        patch.setattr(module, "LEAST_APPROXIMATE", LEAST)
    patch.setattr(upkeep, "QUERIES_PER_CHECK", 30)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    lower_limits(monkeypatch)


def text(i):
    return f"text number {i}"


@cache
def vectors():
    """Vectors that lie in some clusters, as those of texts do."""
    draw = np.random.default_rng(2)
    centres = draw.normal(size=(12, DIM))
    return centres[draw.integers(12, size=SIZE)] + 0.6 * draw.normal(size=(SIZE, DIM))


@cache
def table():
    return {text(i): vector for i, vector in enumerate(vectors().tolist())}


def encoder():
    return KnownEncoder(table(), name="clusters")


def records(numbers):
    return [ChunkRecord(f"id{i}", Chunk(text(i), metadata={"i": i, "tenth": i % 10})) for i in numbers]


@pytest.fixture(scope="module")
def templates(made_once):
    """A folder with a store of all the vectors for each kind of index."""

    def make(folder):
        with pytest.MonkeyPatch.context() as patch:
            lower_limits(patch)
            for kind in KINDS:
                with Store.create(folder / kind, encoder(), index=kind) as store:
                    store.add(records(range(SIZE)))

    return made_once("kinds", make)


@pytest.fixture(params=KINDS)
def store(request, templates, tmp_path):
    with Store.open(shutil.copytree(templates / request.param, tmp_path / "s"), encoder()) as store:
        yield store


def exact(numbers, vector, k):
    """The ids of the best ``k`` of the chunks ``numbers``, and their cosines."""
    stored = vectors()[np.asarray(numbers, dtype=int)].astype(np.float16).astype(np.float32)
    cosines = stored @ vector / np.linalg.norm(stored, axis=1) / np.linalg.norm(vector)
    best = np.argsort(-cosines, kind="stable")[:k]
    return [f"id{numbers[i]}" for i in best], cosines[best]


def queries(count=12):
    draw = np.random.default_rng(3)
    asked = draw.integers(SIZE, size=count)
    return [(vectors()[i] + 0.3 * draw.normal(size=DIM)).astype(np.float32) for i in asked]


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


def least_recall(store):
    [kind] = {kind for kind, _ in kinds_of(store)}
    return 1.0 if kind in EXACT else 0.95


def kinds_of(store):
    return [(segment["kind"], segment["rows"]) for segment in store.status()["segments"]]


# In a store


def test_store_has_the_requested_kind(store):
    [(kind, rows)] = kinds_of(store)
    assert (store.wanted_index, rows) == (IndexConfig(kind), SIZE)
    assert recall(store, range(SIZE), 10) >= least_recall(store)
    choice, check = store.index_choice(), store.index_check()
    if kind == "flat":  # which every store is at first
        assert (choice, check) == (None, None)
        return
    assert (choice.wanted, choice.kind, choice.rows, check.rows) == (IndexConfig(kind), kind, SIZE, SIZE)
    assert (choice.effort is None) == (kind in EXACT)
    assert check.segments == (store.status()["segments"][0]["folder"],)
    assert check.measurement.recall.mean >= (1.0 if kind in EXACT else 0.97)
    assert check.measurement.bytes == next(store.path.glob("segments/*/index.faiss")).stat().st_size


@pytest.mark.parametrize("kind", ["sq8", "fp16"])
def test_exact_kinds_rank_more_codes_until_no_other_vector_can_be_nearer(kind, tmp_path):
    """Vectors near to each other have the same codes, so their order by codes says little."""
    draw = np.random.default_rng(7)
    near = unit_rows((vectors()[0] + 0.01 * draw.normal(size=(200, DIM))).astype(np.float32))
    stored = ArrayVectors(np.concatenate([near, unit_rows(vectors().astype(np.float32))]))
    rows = np.arange(len(stored), dtype=np.int64) * 2 + 5
    allowed = draw.random(int(rows[-1]) + 1) < 0.5
    build_index(parse_spec(kind), stored, rows, tmp_path / "codes")
    build_index(parse_spec("flat"), stored, rows, tmp_path / "flat")
    specs = {"flat": parse_spec("flat"), "codes": parse_spec(kind)}
    opened = {name: SegmentIndex(tmp_path / name, spec, len(rows), DIM) for name, spec in specs.items()}
    wanted = unit_rows(np.concatenate([near[:5], np.stack(queries(5))]))
    for k in (1, 10, 150):
        for mask in (None, allowed):
            for parts in (1, 3):
                found, expected = (
                    RefinedIndex(
                        DividedIndex(opened[name], len(rows), parts, lambda jobs: [job() for job in jobs]),
                        specs[name],
                        stored,
                        rows,
                    ).search(wanted, k, mask)
                    for name in ("codes", "flat")
                )
                np.testing.assert_allclose(found[0], expected[0], atol=1e-6)
                assert (found[1] == expected[1]).mean() > 0.95  # the others tie within rounding


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "hnsw" not in kind])
def test_parts_of_a_search_find_together_what_the_whole_search_finds(kind, tmp_path):
    draw, spec = np.random.default_rng(8), parse_spec(kind)
    rows = np.arange(SIZE, dtype=np.int64) * 2 + 5
    allowed = draw.random(int(rows[-1]) + 1) < 0.5
    build_index(spec, ArrayVectors(unit_rows(vectors().astype(np.float32))), rows, tmp_path / "index")
    index = SegmentIndex(tmp_path / "index", spec, SIZE, DIM)
    assert index.compared(10, None) >= SIZE // 4
    wanted = unit_rows(np.stack(queries(5)).astype(np.float32))
    for k, mask, effort in ((1, None, None), (10, allowed, 1), (150, None, 3), (SIZE + 1, allowed, None)):
        whole = index.search(wanted, k, mask, 0.5, effort)
        for parts in (2, 50):
            divided = DividedIndex(index, SIZE, parts, lambda jobs: [job() for job in jobs])
            found = divided.search(wanted, k, mask, 0.5, effort)
            np.testing.assert_allclose(found[0], whole[0], atol=1e-6)
            np.testing.assert_array_equal(np.sort(found[1]), np.sort(whole[1]))


def test_filtered_search_finds_every_match(store, monkeypatch):
    """What a filter selects is compared one by one where it is little, and searched in the index otherwise."""
    assert recall(store, [i for i in range(SIZE) if i % 10 == 3], 10, "tenth = 3") == 1.0
    monkeypatch.setattr(reader, "_EXACT_ROWS", 0)
    monkeypatch.setattr(reader, "_EXACT_SHARE", 0.0)
    for where, holds in FILTERS.items():
        assert recall(store, [i for i in range(SIZE) if holds(i)], 10, where) >= least_recall(store)
    assert store.search_vector(queries(1)[0], 10, where="i < 0") == []


@SOME
def test_merging_keeps_the_kind(store):
    [(kind, _)] = kinds_of(store)
    left = [i for i in range(SIZE) if i % 10 and i < 800]
    store.delete(where="i >= 800 OR tenth = 0")
    store.add(records(range(800, 830)))
    assert kinds_of(store) == [(kind, SIZE)]
    store.add([ChunkRecord("other", Chunk("another text", metadata={"i": 5000, "tenth": 0}))])
    assert kinds_of(store) == [(kind, SIZE), ("flat", 1)]
    store.delete(["other"])
    store.optimize()
    left += list(range(800, 830))
    assert kinds_of(store) == [(kind, len(left))]
    assert store.status()["unused_vectors"] == 0
    assert recall(store, left, 10) >= least_recall(store)
    assert verify_store(store.path, encoder()).problems == []


@pytest.mark.parametrize("kind", ["sq8", "ivf-pq"])
def test_growing_store_gets_the_requested_kind(kind, tmp_path):
    with Store.create(tmp_path / "s", encoder(), index=kind) as store:
        store.add(records(range(150)))
        assert kinds_of(store) == [(kind if kind in EXACT else "flat", 150)]
        store.add(records(range(150, 300)))
        assert kinds_of(store) == [(kind, 300)]
        store.add(records(range(300, 580)))
        assert kinds_of(store)[-1] == (kind, 280)
        assert recall(store, range(580), 10) >= least_recall(store)
        store.add(records(range(580, 610)))  # more than twice as many as it was picked for
        assert kinds_of(store) == [(kind, 610)]
        assert recall(store, range(610), 10) >= least_recall(store)
    assert verify_store(store.path, encoder()).problems == []


@SOME
def test_damaged_index_is_rebuilt_with_its_kind(store):
    before, file = kinds_of(store), next(store.path.glob("segments/*/index.faiss"))
    store.close()
    data = file.read_bytes()
    damaged = bytearray(data)
    damaged[-1000] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(StoreDamagedError, match=r"index\.faiss"):
        store.search_vector(queries(1)[0], 3)
    report = verify_store(store.path, encoder(), repair=True)
    assert (report.problems, len(report.repaired)) == ([], 1)
    assert kinds_of(store) == before
    assert recall(store, range(SIZE), 10) >= least_recall(store)


@SOME
def test_verify_finds_foreign_vectors_in_every_kind(store):
    """An index whose hash and headers are right, but that was made of other vectors."""
    [(kind, _)] = kinds_of(store)
    store.close()
    [folder] = (store.path / "segments").iterdir()
    with Store.open(store.path, encoder()) as opened, opened.writer() as writer:
        rows = np.concatenate([rows for rows, _ in writer.live_raw()])
        vectors = np.concatenate([raw for _, raw in writer.live_raw()]).astype(np.float32)
        vectors[7] = -vectors[7]
        (folder / "index.faiss").unlink()
        build_index(parse_spec(kind), ArrayVectors(unit_rows(vectors)), rows, folder / "index.faiss")
        digest = file_sha256(folder / "index.faiss")
        with writer._database.transaction():
            writer._connection.execute("UPDATE segments SET index_sha256 = ?", (digest,))
    [problem] = verify_store(store.path, encoder()).problems
    assert problem.message == "the vectors in the index are not those that the embedder makes from the raw vectors"


# What is asked for


def test_sizes_of_approximate_indexes_are_documented(monkeypatch, tmp_path):
    monkeypatch.undo()
    sizes = (9_999, 10_000, 65_535, 65_536)
    assert [segments.kind_for(parse_spec("hnsw"), rows).name for rows in sizes] == ["flat"] + 3 * ["hnsw"]
    assert [segments.kind_for(parse_spec("IVF1024,Flat"), rows).family for rows in sizes] == 3 * ["exhaustive"] + [
        "lists"
    ]
    assert segments.kind_for(parse_spec("flat"), 10**6).name == "flat"
    assert (choose.LEAST_ASKED, choose.LEAST_APPROXIMATE) == (1_000, 50_000)
    monkeypatch.setattr(upkeep, "QUERIES_PER_CHECK", 10)
    with Store.create(tmp_path / "s", encoder(), index="ivf") as store:
        store.add(records(range(SIZE)))
        store.add([ChunkRecord(f"more{i}", Chunk(f"more {i}")) for i in range(99)])
        assert kinds_of(store) == [("flat", SIZE), ("flat", 99)]
        assert store.index_choice() is None
        store.add([ChunkRecord("last", Chunk("last"))])
        assert kinds_of(store) == [("ivf", 1_000)]


def test_unknown_kind_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(
        ConfigError, match=r"unknown kind of index .*: expected auto, flat, fp16, sq8, hnsw, .*IVF4096,PQ48"
    ):
        Store.create(tmp_path / "s", encoder(), index="Nonsense")
    assert not (tmp_path / "s" / "store.db").exists()


@pytest.mark.parametrize("kind", ["IVF4,PQ5", "PCA999,Flat"])
def test_unusable_factory_string_is_refused_before_any_change(tmp_path, kind):
    store = Store.create(tmp_path / "s", encoder(), index=kind)
    with pytest.raises(ConfigError, match="cannot be used") as raised:
        store.add(records(range(20)))
    assert "/faiss/" not in str(raised.value)
    assert (len(store), kinds_of(store)) == (0, [])
    with pytest.warns(IndexWarning, match="stays flat: hnsw needs at least 200 vectors"):
        store.optimize(index=IndexConfig("hnsw"))
    store.add(records(range(SIZE)))
    assert kinds_of(store) == [("hnsw", SIZE)]


def test_too_many_lists_wait_for_more_vectors(tmp_path):
    with Store.create(tmp_path / "s", encoder(), index="IVF5000,Flat") as store:
        store.add(records(range(SIZE)))
        assert kinds_of(store) == [("flat", SIZE)]
        assert recall(store, range(SIZE), 10) == 1.0


@pytest.mark.parametrize(
    "kind", ["PCAR8,IVF4,SQ8", "Pad32,IVF4,Flat", pytest.param("OPQ2_8,IVF4,PQ4", marks=pytest.mark.slow)]
)
def test_factory_string_may_change_the_dimension(tmp_path, kind):
    with Store.create(tmp_path / "s", encoder(), index=kind) as store:
        store.add(records(range(5)))
        assert kinds_of(store) == [("flat", 5)]
        store.add(records(range(5, SIZE)))
        assert kinds_of(store) == [(kind, SIZE)]
        assert recall(store, range(SIZE), 10) >= 0.8
    assert verify_store(store.path, encoder()).problems == []


# An index alone


def least_size(kind):
    return LEAST_OF_CODES if "PQ" in parse_spec(kind).factory(1, DIM) else 4 if "IVF4" in kind else 1


@pytest.mark.parametrize(
    ("kind", "size"), [(kind, size) for kind in KINDS for size in (1, 700) if size >= least_size(kind)]
)
def test_index_contains_its_vectors(kind, size, tmp_path):
    draw, spec = np.random.default_rng(size), parse_spec(kind)
    vectors = unit_rows(draw.normal(size=(size, DIM)).astype(np.float32))
    rows = np.sort(draw.choice(10 * size, size, replace=False)).astype(np.int64)
    told = []
    build_index(spec, ArrayVectors(vectors), rows, tmp_path / "i", told.append)
    assert sum(told) == size
    assert [file.name for file in tmp_path.iterdir()] == ["i"]
    index = SegmentIndex(tmp_path / "i", spec, size, DIM)
    seen = []
    for found_rows, found in index.contents():
        given = vectors[np.searchsorted(rows, found_rows)]
        seen += found_rows.tolist()
        np.testing.assert_array_equal(found, given if spec.lossless else index.kept_of(given))
    assert sorted(seen) == rows.tolist()
    assert seen == rows.tolist() or spec.family == "lists"
    refined = RefinedIndex(index, spec, ArrayVectors(vectors), rows)
    scores, best = refined.search(vectors[:3], 1)
    np.testing.assert_array_equal(best[:, 0], rows[:3])
    np.testing.assert_allclose(scores[:, 0], 1.0, rtol=1e-5)
    for wrong in ((spec, size + 1, DIM), (spec, size, DIM + 1)):
        with pytest.raises(StoreDamagedError, match="expected a FAISS index"):
            SegmentIndex(tmp_path / "i", *wrong)
    other = KINDS[KINDS.index(kind) - 1]
    with pytest.raises(StoreDamagedError, match=f"of kind {other}"):
        SegmentIndex(tmp_path / "i", parse_spec(other), size, DIM)
