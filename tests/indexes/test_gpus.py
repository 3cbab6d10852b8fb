"""The choice of GPUs and the copies of indexes on them. CPU indexes replace FAISS's GPU indexes."""

from functools import cache
from types import SimpleNamespace

import faiss
import numpy as np
import pytest

from ragembed.errors import ConfigError, GpuError
from ragembed.indexes import Store
from ragembed.indexes.faiss_index import gpus
from ragembed.indexes.faiss_index.building import build_index
from ragembed.indexes.faiss_index.gpus import building_gpus, centroids_on_gpus, choose_gpus, to_gpus
from ragembed.indexes.faiss_index.index import SegmentIndex
from ragembed.indexes.faiss_index.records import parse_spec
from ragembed.indexes.faiss_index.vectors import ArrayVectors

OUT_OF_MEMORY = "Error in allocMemory: StandardGpuResources: alloc fail (cudaMalloc error out of memory [2])"
DIM = 24


def clusters(count, seed=0):
    """Return unit vectors in clusters, like the vectors of texts."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(size=(20, DIM))
    vectors = centres[draw.integers(20, size=count)] + 0.7 * draw.normal(size=(count, DIM))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


DATA, QUERIES = clusters(3000), clusters(70, seed=9)
ROWS = np.arange(len(DATA), dtype=np.int64) * 7 + 5


class FakeGpus:
    """A fake of the functions of FAISS's GPU build and of PyTorch's free memory."""

    def __init__(self, count=2):
        self.count = count
        self.free = 10**9
        self.most_queries = 10**9
        self.copies, self.searched = [], []

    def clone(self, resources, index, options, numbers):
        self.copies.append((numbers, getattr(options, "shard", False), options.useFloat16))
        lists = faiss.try_extract_index_ivf(index)
        mapped = lists and isinstance(faiss.downcast_InvertedLists(lists.invlists), faiss.OnDiskInvertedLists)
        copy = faiss.downcast_index(index) if mapped else faiss.clone_index(index)  # FAISS cannot clone mapped lists
        search = copy.search

        def limited(queries, k):
            self.searched.append(len(queries))
            if len(queries) > self.most_queries:
                raise RuntimeError(OUT_OF_MEMORY)
            return search(queries, k)

        copy.search = limited
        return copy


@pytest.fixture
def fakes(monkeypatch):
    fake = FakeGpus()
    for name, value in {
        "get_num_gpus": lambda: fake.count,
        "StandardGpuResources": object,
        "GpuMultipleClonerOptions": SimpleNamespace,
        "index_cpu_to_gpu_multiple_py": fake.clone,
        "GpuParameterSpace": faiss.ParameterSpace,
    }.items():
        monkeypatch.setattr(faiss, name, value, raising=False)
    monkeypatch.setattr(gpus, "_room", lambda _gpu: fake.free)
    return fake


@cache
def stored(kind):
    """Return an index in the form of a store."""
    index = faiss.index_factory(DIM, kind, faiss.METRIC_INNER_PRODUCT)
    if "IVF" not in kind:
        index = faiss.IndexIDMap(index)
    index.train(DATA)
    index.add_with_ids(DATA, ROWS)
    return index


# Choosing


def test_auto_selects_all_gpus_or_the_cpu(fakes):
    assert choose_gpus("auto") == choose_gpus("gpu") == (0, 1)
    assert choose_gpus("cpu") == ()
    fakes.count = 0
    assert choose_gpus("auto") == ()


@pytest.mark.parametrize("asked", ["gpu", "gpu:0"])
def test_missing_gpu_raises_and_says_what_to_install(fakes, asked):
    fakes.count = 0
    with pytest.raises(
        GpuError, match=rf"device '{asked}' is not available because FAISS sees no GPU: .*pip install .*\[gpu\]'"
    ):
        choose_gpus(asked)


def test_unknown_gpu_number_raises_and_lists_the_gpus(fakes):
    with pytest.raises(GpuError, match="there is no GPU 7: choose among 0, 1"):
        choose_gpus("gpu:1,7")


@pytest.mark.parametrize("asked", ["", "GPU", "gpu:-1", "gpu:1,1"])
def test_unknown_device_raises(fakes, asked):
    with pytest.raises(ConfigError, match="gpu:0,2"):
        choose_gpus(asked)


def test_indexes_are_built_where_documents_are_encoded(fakes, encoder):
    assert building_gpus("gpu:1", encoder) == ((1,), "on GPU 1")
    assert building_gpus("cpu", encoder) == ((), "on the CPU")
    assert building_gpus(None, encoder) == building_gpus("mps", encoder) == ((0, 1), "on GPUs 0, 1")
    fakes.count = 0
    with pytest.raises(GpuError, match="FAISS sees no GPU"):
        building_gpus("gpu", encoder)


# Copies


@pytest.mark.parametrize("kind", ["Flat", "SQ8", "IVF40,Flat", "PCA24,IVF40,PQ12np"])
def test_gpu_copy_gives_the_same_results(fakes, kind):
    index, probes = stored(kind), 5 if "IVF" in kind else None
    if probes:
        faiss.ParameterSpace().set_index_parameter(index, "nprobe", probes)
    scores, rows = to_gpus(index, (0, 1)).search(QUERIES, 10, probes)
    expected_scores, expected_rows = index.search(QUERIES, 10)
    assert np.array_equal(rows, expected_rows)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)
    assert fakes.copies == [([0, 1], False, kind in ("SQ8", "PCA24,IVF40,PQ12np"))]


def test_an_index_that_does_not_fit_on_one_gpu_is_split(fakes):
    fakes.free = 4 * DATA.size - 1
    assert np.array_equal(to_gpus(stored("Flat"), (1, 0)).search(QUERIES, 5)[1], stored("Flat").search(QUERIES, 5)[1])
    assert fakes.copies == [([1, 0], True, False)]


@pytest.mark.parametrize(("numbers", "share"), [((0, 1), 0.5), ((1,), 1)])
def test_index_larger_than_all_gpus_raises(fakes, numbers, share):
    fakes.free = int(4 * DATA.size * share) - 1
    with pytest.raises(GpuError, match=r"do not fit in the memory of GPUs? .*use the CPU"):
        to_gpus(stored("Flat"), numbers)


def test_out_of_memory_reduces_the_batch_of_queries(fakes):
    fakes.most_queries = 64
    many = np.tile(QUERIES, (3, 1))
    assert np.array_equal(to_gpus(stored("Flat"), (0,)).search(many, 10)[1], stored("Flat").search(many, 10)[1])
    assert fakes.searched == [210, 105, 64, 64, 64, 18]
    fakes.most_queries = 0
    with pytest.raises(GpuError, match="the memory of GPU 0 is too small to search for 64 queries at once"):
        to_gpus(stored("Flat"), (0,)).search(QUERIES, 10)


@pytest.mark.parametrize("kind", ["HNSW16,Flat", "SQ4", "PCA16,SQfp16"])
def test_kinds_not_supported_on_gpus_raise(fakes, kind):
    with pytest.raises(ConfigError, match="cannot be searched on a GPU: search it on the CPU"):
        to_gpus(stored(kind), (0,))


# Building and searching


@pytest.mark.parametrize("kind", ["ivf", "ivf-pq"])
def test_build_on_gpus_equals_build_on_the_cpu(fakes, kind, tmp_path):
    spec = parse_spec(kind)
    for file, numbers in ((tmp_path / "cpu", ()), (tmp_path / "gpu", (0, 1))):
        build_index(spec, ArrayVectors(DATA), ROWS, file, gpus=numbers)
    assert [numbers for numbers, _, _ in fakes.copies] == [[0, 1], [0, 1]]
    on_cpu, on_gpu = (SegmentIndex(tmp_path / name, spec, len(DATA), DIM) for name in ("cpu", "gpu"))
    assert np.array_equal(on_gpu.search(QUERIES, 10)[1], on_cpu.search(QUERIES, 10)[1])


def test_training_without_enough_memory_raises(fakes):
    index = faiss.index_factory(DIM, "IVF40,Flat", faiss.METRIC_INNER_PRODUCT)
    fakes.free = 0
    with pytest.raises(GpuError, match="do not fit in the memory of GPU 1"), centroids_on_gpus(index, (1,)):
        pass


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_stored_index_is_searched_on_gpus_except_with_a_filter(fakes, kind, tmp_path):
    spec = parse_spec(kind)
    build_index(spec, ArrayVectors(DATA), ROWS, tmp_path / "i")
    on_gpus = SegmentIndex(tmp_path / "i", spec, len(DATA), DIM, gpus=(1,))
    on_cpu = SegmentIndex(tmp_path / "i", spec, len(DATA), DIM)
    assert np.array_equal(on_gpus.search(QUERIES, 10)[1], on_cpu.search(QUERIES, 10)[1])
    searched = len(fakes.searched)
    assert searched > 0
    on_gpus.search(QUERIES, 10, allowed=np.arange(ROWS[-1] + 1) % 2 == 0)
    on_gpus.search(QUERIES, 2500)
    assert len(fakes.searched) == searched


def test_a_store_is_searched_on_gpus(fakes, encoder, make_record, tmp_path):
    with Store.create(tmp_path, encoder) as store:
        store.add(make_record(f"{i}", f"text {i}") for i in range(20))
        expected = store.search("text 3", mode="dense")
    with Store.open(tmp_path, encoder, search_device="gpu:1") as store:
        assert store.search("text 3", mode="dense") == expected
    assert fakes.searched == [1]
    fakes.count = 0
    with pytest.raises(GpuError, match="FAISS sees no GPU"):
        Store.open(tmp_path, encoder, search_device="gpu")


@pytest.mark.skipif(faiss.get_num_gpus() == 0, reason="FAISS sees no GPU")
@pytest.mark.parametrize("kind", ["flat", "fp16", "sq8", "ivf", "ivf-sq8", "ivf-pq"])
def test_real_gpu_builds_and_searches_like_the_cpu(kind, tmp_path):
    spec = parse_spec(kind)
    for file, numbers in ((tmp_path / "cpu", ()), (tmp_path / "gpu", (0,))):
        build_index(spec, ArrayVectors(DATA), ROWS, file, gpus=numbers)
    expected = SegmentIndex(tmp_path / "cpu", spec, len(DATA), DIM).search(QUERIES, 10)[1].tolist()
    found = SegmentIndex(tmp_path / "gpu", spec, len(DATA), DIM, gpus=(0,)).search(QUERIES, 10)[1].tolist()
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, expected, strict=True)]) > 0.9
