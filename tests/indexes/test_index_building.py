"""Indexes written in blocks equal the indexes that FAISS builds in one step."""

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError
from ragembed.indexes.faiss_index import building, vectors
from ragembed.indexes.faiss_index.building import build_index
from ragembed.indexes.faiss_index.index import SegmentIndex
from ragembed.indexes.faiss_index.records import NAMES, parse_spec
from ragembed.indexes.faiss_index.vectors import ArrayVectors, blocks, rows_in, stratified
from ragembed.postprocess import unit_rows

SIZE, DIM = 900, 16
BLOCK = 70
LISTS = [
    "ivf",
    "ivf-sq8",
    "ivf-pq",
    "IVF8,SQfp16",
    "IVF8_HNSW8,Flat",
    "PCA8,IVF8,Flat",
    "PCAR8,IVF8,SQ8",
    "IVF8,PQ4x4",
]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(vectors, "_BLOCK_BYTES", BLOCK * 4 * DIM)
    monkeypatch.setattr(building, "_FILE_BYTES", 2 * BLOCK * DIM)


class Watched(ArrayVectors):
    """Vectors that record the largest number of vectors requested at once."""

    def __init__(self, array):
        super().__init__(array)
        self.in_blocks, self.in_samples = [], []

    def block(self, start, stop):
        self.in_blocks.append(stop - start)
        return super().block(start, stop)

    def at(self, positions):
        self.in_samples.append(len(positions))
        return super().at(positions)


def clusters(count, dim=DIM, seed=0):
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(12, dim))
    return unit_rows((centres[draw.integers(12, size=count)] + 0.6 * draw.normal(size=(count, dim))).astype(np.float32))


def ids(count):
    return np.arange(5, 5 + 3 * count, 3, dtype=np.int64)


def build(name, array, file, **options):
    build_index(parse_spec(name), ArrayVectors(array), ids(len(array)), file, **options)
    return file


def lists_of(index):
    """Return the ids and codes of each inverted list."""
    ivf = faiss.extract_index_ivf(index)
    inverted = ivf.invlists
    return [
        (
            faiss.rev_swig_ptr(inverted.get_ids(number), inverted.list_size(number)).copy(),
            faiss.rev_swig_ptr(inverted.get_codes(number), inverted.list_size(number) * ivf.code_size).copy(),
        )
        for number in range(ivf.nlist)
    ]


# Streamed files


@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
@pytest.mark.parametrize("name", ["flat", "fp16"])
@pytest.mark.usefixtures("small_blocks")
def test_streamed_file_equals_the_file_of_faiss(name, size, tmp_path):
    array = clusters(size)
    whole = faiss.IndexIDMap(
        faiss.index_factory(DIM, {"flat": "Flat", "fp16": "SQfp16"}[name], faiss.METRIC_INNER_PRODUCT)
    )
    whole.add_with_ids(array, ids(size))
    faiss.write_index(whole, str(tmp_path / "whole"))
    assert build(name, array, tmp_path / "streamed").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.usefixtures("small_blocks")
def test_lists_equal_those_of_an_index_built_in_memory(name, tmp_path):
    array, queries = clusters(SIZE), clusters(25, seed=1)
    merged = faiss.read_index(str(build(name, array, tmp_path / "index.faiss")))
    whole = faiss.clone_index(merged)
    whole.reset()
    for start in range(0, SIZE, BLOCK):  # in equal blocks, because rounding in transforms depends on the block size
        whole.add_with_ids(array[start : start + BLOCK], ids(SIZE)[start : start + BLOCK])
    assert merged.ntotal == whole.ntotal == SIZE
    for (found_ids, found_codes), (expected_ids, expected_codes) in zip(lists_of(merged), lists_of(whole), strict=True):
        np.testing.assert_array_equal(found_ids, expected_ids)
        np.testing.assert_array_equal(found_codes, expected_codes)
    for probes in (1, 3, 8):
        faiss.ParameterSpace().set_index_parameter(merged, "nprobe", probes)
        faiss.ParameterSpace().set_index_parameter(whole, "nprobe", probes)
        for found, expected in zip(merged.search(queries, 10), whole.search(queries, 10), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["ivf", "ivf-sq8", "ivf-pq"])
def test_file_does_not_depend_on_the_block_size(name, tmp_path, monkeypatch):
    array = clusters(SIZE)
    whole = build(name, array, tmp_path / "whole").read_bytes()
    for size in (SIZE - 1, BLOCK, 9):
        monkeypatch.setattr(vectors, "_BLOCK_BYTES", size * 4 * DIM)
        monkeypatch.setattr(building, "_FILE_BYTES", 2 * size * DIM)
        assert build(name, array, tmp_path / "parts").read_bytes() == whole


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("small_blocks")
def test_same_vectors_give_the_same_file(name, tmp_path):
    array = clusters(SIZE)
    assert build(name, array, tmp_path / "a").read_bytes() == build(name, array, tmp_path / "b").read_bytes()


@pytest.mark.parametrize("name", [*NAMES, *LISTS[3:]])
@pytest.mark.usefixtures("small_blocks")
def test_index_finds_its_own_vectors(name, tmp_path):
    array, told = clusters(SIZE), []
    index = SegmentIndex(build(name, array, tmp_path / "i", advance=told.append), parse_spec(name), SIZE, DIM)
    assert sum(told) == SIZE
    assert len(told) > 1
    held = np.concatenate([rows for rows, _ in index.contents()])
    assert sorted(held.tolist()) == ids(SIZE).tolist()
    _, found = index.search(array[:40], 40, effort=index.most_effort or None)  # 40 results because of coarse codes
    assert np.mean([row in of_query for row, of_query in zip(ids(40), found, strict=True)]) >= 0.95


def test_equal_vectors_are_all_found_despite_empty_lists(tmp_path):
    array = np.tile(clusters(1), (SIZE, 1))
    index = SegmentIndex(build("ivf", array, tmp_path / "i"), parse_spec("ivf"), SIZE, DIM)
    assert sum(len(rows) for rows, _ in index.contents()) == SIZE
    _, found = index.search(array[:1], SIZE, effort=index.most_effort)
    assert sorted(found[0].tolist()) == ids(SIZE).tolist()


def test_lists_are_memory_mapped(tmp_path):
    index = SegmentIndex(build("ivf", clusters(SIZE), tmp_path / "i"), parse_spec("ivf"), SIZE, DIM)
    assert isinstance(index._inverted, faiss.OnDiskInvertedLists)


# Bounds


@pytest.mark.parametrize("name", [*NAMES, "PCAR8,IVF8,SQ8"])
@pytest.mark.usefixtures("small_blocks")
def test_memory_holds_one_block_and_one_sample(name, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_TRAINING", 300)
    monkeypatch.setattr(building, "_CODED_AT_ONCE", 200)
    watched = Watched(clusters(SIZE))
    build_index(parse_spec(name), watched, ids(SIZE), tmp_path / "i")
    assert max(watched.in_blocks) == BLOCK
    assert sum(watched.in_blocks) == (2 * SIZE if name == "sq8" else SIZE)  # sq8 first finds the range of the values
    if name in ("flat", "fp16", "sq8", "hnsw"):
        assert not watched.in_samples
    elif name == "hnsw-sq8":
        assert watched.in_samples == [300]
    else:
        centroids = min(SIZE, 64 * faiss.extract_index_ivf(faiss.read_index(str(tmp_path / "i"))).nlist)
        if name.startswith("PCA"):
            assert watched.in_samples == [centroids]
        else:
            of_codec, *coded, of_vectors = watched.in_samples
            assert (of_codec, max(coded), sum(coded), of_vectors) == (200, 200, centroids, 300)


def test_centroids_from_codes_are_those_of_the_vectors(tmp_path):
    array = clusters(4_000, 64)
    index = faiss.read_index(str(build("ivf-sq8", array, tmp_path / "i")))
    found = faiss.extract_index_ivf(index).quantizer
    exact = faiss.index_factory(64, f"IVF{found.ntotal},SQ8", faiss.METRIC_INNER_PRODUCT)
    exact.cp.niter, exact.cp.seed, exact.cp.min_points_per_centroid = building._LIST_ROUNDS, building._SEED, 1
    exact.train(array)
    ours, theirs = (float(each.search(array, 1)[0].mean()) for each in (found, exact.quantizer))
    assert ours == pytest.approx(theirs, rel=0.005)


@pytest.mark.parametrize("name", [*NAMES, "PCAR8,IVF8,SQ8"])
@pytest.mark.usefixtures("small_blocks")
def test_interrupted_build_leaves_no_temporary_file(name, tmp_path):
    build(name, clusters(SIZE), tmp_path / "index.faiss")
    assert [file.name for file in tmp_path.iterdir()] == ["index.faiss"]

    def interrupt(_count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(name, clusters(SIZE), tmp_path / "index.faiss", advance=interrupt)
    assert [file.name for file in tmp_path.iterdir()] == ["index.faiss"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("IVF1000,Flat", "Number of training points"),
        ("IVF8,PQ5", "dimension"),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_unsupported_kind_raises_and_leaves_no_temporary_file(name, why, tmp_path):
    with pytest.raises(
        ConfigError, match=f"FAISS cannot build an index of kind {name} from 900 vectors of dimension 16: .*{why}"
    ):
        build(name, clusters(SIZE), tmp_path / "index.faiss")
    assert {file.name for file in tmp_path.iterdir()} <= {"index.faiss"}


# Samples and blocks


@given(st.integers(0, 5_000), st.integers(1, 600), st.integers(0, 2**32))
def test_sample_has_one_position_per_stratum(total, count, seed):
    sample = stratified(total, count, seed)
    assert sample.dtype == np.int64
    np.testing.assert_array_equal(sample, stratified(total, count, seed))
    if total <= count:
        assert sample.tolist() == list(range(total))
        return
    bounds = np.linspace(0, total, count + 1).astype(np.int64)
    assert len(sample) == count
    assert (bounds[:-1] <= sample).all()
    assert (sample < bounds[1:]).all()


def test_other_seed_draws_other_sample():
    assert stratified(10_000, 100, 0).tolist() != stratified(10_000, 100, 1).tolist()


@given(st.integers(0, 200), st.none() | st.integers(1, 250))
def test_blocks_have_all_vectors_in_order(count, size):
    array = np.arange(3 * count, dtype=np.float32).reshape(-1, 3)
    parts = list(blocks(ArrayVectors(array), size))
    np.testing.assert_array_equal(
        np.concatenate([np.zeros((0, 3), dtype=np.float32), *(part for _, part in parts)]), array
    )
    assert [start for start, _ in parts] == list(range(0, count, size or count or 1))
    assert rows_in(1, 3) == 1
    assert rows_in(24, 3) == 2
