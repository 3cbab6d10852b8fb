"""Indexes written in blocks equal the indexes that FAISS builds in one step."""

import faiss
import numpy as np
import pytest

from ragembed.errors import ConfigError
from ragembed.indexes.faiss_index import building, vectors
from ragembed.indexes.faiss_index.building import build_index
from ragembed.indexes.faiss_index.index import SegmentIndex
from ragembed.indexes.faiss_index.records import NAMES, parse_spec
from ragembed.indexes.faiss_index.vectors import ArrayVectors
from ragembed.postprocess import unit_rows

SIZE, DIM = 900, 16
BLOCK = 70
LISTS = ["ivf", "ivf-pq", "IVF8_HNSW8,Flat", "PCAR8,IVF8,SQ8"]


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


@pytest.mark.parametrize("size", [1, BLOCK, 3 * BLOCK + 7])
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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("small_blocks")
def test_same_vectors_give_the_same_file(name, tmp_path):
    array = clusters(SIZE)
    assert build(name, array, tmp_path / "a").read_bytes() == build(name, array, tmp_path / "b").read_bytes()


def test_equal_vectors_are_all_found_despite_empty_lists(tmp_path):
    array = np.tile(clusters(1), (SIZE, 1))
    index = SegmentIndex(build("ivf", array, tmp_path / "i"), parse_spec("ivf"), SIZE, DIM)
    assert sum(len(rows) for rows, _ in index.contents()) == SIZE
    _, found = index.search(array[:1], SIZE, effort=index.most_effort)
    assert sorted(found[0].tolist()) == ids(SIZE).tolist()


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


@pytest.mark.parametrize("name", ["flat", "hnsw", "ivf-pq", "PCAR8,IVF8,SQ8"])
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
