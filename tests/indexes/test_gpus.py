"""GPUs: which are chosen, what is planned for made-up ones, and FAISS on them, real or stood in for."""

import ctypes
import gc
import re
import weakref
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError, GpuError
from ragembed.indexes.ann.gpu_faiss import (
    GpuFlat,
    GpuLists,
    can_search_on_gpu,
    load_of,
    to_cpu,
    to_gpus,
    train,
    visible_gpus,
)
from ragembed.indexes.ann.gpus import (
    Gpu,
    GpuPlan,
    budget,
    choose_gpus,
    describe_choice,
    flat_load,
    lists_load,
    plan_gpus,
    smaller,
    with_retry,
)

GIB = 1024**3
LEAST_ROWS = 64
OUT_OF_MEMORY = (
    "Error in allocMemory at StandardGpuResources.cpp:592: StandardGpuResources: alloc fail type IVFLists dev 0 space "
    "Device stream 0x1 size 4096 bytes (cudaMalloc error out of memory [2])"
)


on_a_gpu = pytest.mark.skipif(faiss.get_num_gpus() == 0, reason="FAISS sees no GPU")


def gpu(number=0, free=16.0, total=16.0):
    return Gpu(number, int(total * GIB), int(free * GIB))


def clusters(count, dim, seed=0):
    """Unit vectors around a few directions, as those of texts lie."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(size=(20, dim))
    vectors = centres[draw.integers(20, size=count)] + 0.7 * draw.normal(size=(count, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def probed(index, queries, probes):
    """What the CPU finds in so many lists."""
    parameters = faiss.SearchParametersIVF(nprobe=probes)
    if isinstance(index, faiss.IndexPreTransform):
        parameters = faiss.SearchParametersPreTransform(index_params=parameters)
    return index.search(queries, 10, params=parameters)


def overlap(found, expected):
    """Share of the expected neighbours that were found."""
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), expected.tolist(), strict=True)])


# Choosing


GPUS = (gpu(0), gpu(1), gpu(3))


@pytest.mark.guarantee(53)
def test_auto_takes_all_gpus_or_the_cpu():
    assert choose_gpus("auto", GPUS) == GPUS
    assert choose_gpus("auto", ()) == ()


def test_the_cpu_is_chosen_where_there_are_gpus():
    assert choose_gpus("cpu", GPUS) == ()


def test_gpu_takes_all():
    assert choose_gpus("gpu", GPUS) == GPUS


@given(st.lists(st.integers(0, 20), unique=True, min_size=1), st.data())
def test_numbers_take_these_in_this_order(numbers, data):
    chosen = data.draw(st.lists(st.sampled_from(numbers), unique=True, min_size=1))
    visible = [gpu(number) for number in numbers]
    found = choose_gpus("gpu:" + ",".join(map(str, chosen)), visible)
    assert [one.number for one in found] == chosen


@pytest.mark.parametrize("asked", ["gpu", "gpu:0"])
def test_a_gpu_where_there_is_none_is_an_error_that_says_what_to_install(asked):
    with pytest.raises(GpuError, match=re.escape(f"{asked} was asked for, but FAISS sees no GPU")) as caught:
        choose_gpus(asked, ())
    assert "pip install 'ragembed[gpu]'" in str(caught.value)


def test_an_absent_gpu_is_an_error_that_names_those_there_are():
    with pytest.raises(GpuError, match=r"there is no GPU 2, 7: there is GPUs 0, 1, 3$"):
        choose_gpus("gpu:2,0,7", GPUS)


@pytest.mark.parametrize("asked", ["", "GPU", "gpu:", "gpu:a", "gpu:0,", "gpu:-1", "gpu:0, 1", " gpu", "cuda", "gpu:٣"])
def test_what_is_no_device_is_an_error(asked):
    with pytest.raises(ConfigError, match="expected auto, cpu, gpu, or numbers of GPUs as in gpu:0,2"):
        choose_gpus(asked, GPUS)


@pytest.mark.parametrize("asked", ["gpu:1,1", "gpu:1,01"])
def test_a_gpu_named_twice_is_an_error(asked):
    with pytest.raises(ConfigError, match="names a GPU twice"):
        choose_gpus(asked, GPUS)


@pytest.mark.parametrize(
    ("asked", "chosen", "line"),
    [
        ("auto", (), "on the CPU, as FAISS sees no GPU"),
        ("cpu", (), "on the CPU"),
        ("gpu:3", (gpu(3),), "on GPU 3"),
        ("auto", GPUS, "on GPUs 0, 1, 3"),
    ],
)
def test_what_was_chosen_is_said(asked, chosen, line):
    assert describe_choice(asked, chosen) == line


# Planning


sizes = st.integers(GIB, 96 * GIB)


@st.composite
def cases(draw):
    """Some GPUs, and a load that takes from hardly anything to more than there is of their memory."""
    totals = draw(st.lists(sizes, min_size=1, max_size=5))
    several = tuple(Gpu(2 * i, total, draw(st.integers(total // 2, total))) for i, total in enumerate(totals))
    memory = int(draw(st.floats(0, 1.2)) * sum(one.free_bytes for one in several))
    dim, neighbours = draw(st.integers(1, 4096)), draw(st.integers(1, 200))
    if draw(st.booleans()):
        vectors = max(1, memory // (4 * dim))
        return several, flat_load(vectors, dim, neighbours=neighbours, half_allowed=draw(st.booleans()))
    codes = draw(st.sampled_from([0, 48]))
    code_bytes = codes or draw(st.sampled_from([dim, 4 * dim]))
    vectors = max(1, memory // (code_bytes + 8))
    lists = draw(st.integers(1, max(1, min(vectors // 39, 10**6))))
    load = lists_load(
        vectors,
        dim,
        code_bytes=code_bytes,
        lists=lists,
        longest=-(-vectors // lists) * 3,
        probes=draw(st.integers(1, min(lists, 200))),
        neighbours=neighbours,
        residual=draw(st.booleans()),
        codes=codes,
    )
    return several, load


def planned(several, load):
    try:
        return plan_gpus(several, load)
    except GpuError:
        return None


def rank(plan):
    """What is better is less."""
    if plan is None:
        return (2,)
    return (int(plan.half), len(plan.left_out), plan.placement == "sharded", -plan.block_rows)


@given(cases())
def test_no_device_is_filled_beyond_its_budget(case):
    several, load = case
    plan = planned(several, load)
    if plan is None:
        return
    each = load.half_bytes if plan.half else load.vector_bytes
    for one, (start, stop) in zip(plan.gpus, plan.ranges, strict=True):
        assert (stop - start) * each + load.lists * load.list_bytes <= plan.held_bytes
        assert plan.held_bytes + plan.temp_bytes == plan.device_bytes <= 0.8 * one.free_bytes
    assert plan.temp_bytes > plan.page_bytes


@given(cases())
def test_every_vector_has_a_place(case):
    several, load = case
    plan = planned(several, load)
    if plan is None:
        return
    assert len(plan.ranges) == len(plan.gpus)
    if plan.placement == "replicated":
        assert set(plan.ranges) == {(0, load.vectors)}
    else:
        assert plan.ranges[0][0] == 0
        assert plan.ranges[-1][1] == load.vectors
        assert all(before[1] == after[0] for before, after in zip(plan.ranges, plan.ranges[1:], strict=False))


@given(cases())
def test_every_gpu_is_used_or_left_out_in_the_order_asked_for(case):
    several, load = case
    plan = planned(several, load)
    if plan is None:
        return
    assert sorted(plan.gpus + plan.left_out, key=several.index) == list(several)
    assert list(plan.gpus) == sorted(plan.gpus, key=several.index)
    assert all(budget(out) <= min(map(budget, plan.gpus)) for out in plan.left_out)


@given(cases())
def test_replicated_in_float32_is_preferred(case):
    several, load = case
    best = GpuPlan(several, (), "replicated", False, load, LEAST_ROWS)
    if best.fits():
        plan = plan_gpus(several, load)
        assert (plan.placement, plan.half, plan.left_out) == ("replicated", False, ())


@given(cases())
def test_float16_is_for_what_fits_in_no_other_way(case):
    several, load = case
    plan = planned(several, load)
    if plan is None or not plan.half:
        return
    assert load.half_bytes is not None
    assert planned(several, replace(load, half_bytes=None)) is None


@given(cases(), st.data(), sizes)
def test_more_memory_never_makes_a_plan_worse(case, data, more):
    several, load = case
    grown = data.draw(st.sampled_from(several))
    with_more = tuple(replace(one, free_bytes=one.free_bytes + more) if one is grown else one for one in several)
    assert rank(planned(with_more, load)) <= rank(planned(several, load))


@given(cases(), st.integers(1, 10**8))
def test_more_vectors_never_make_a_plan_better(case, more):
    several, load = case
    assert rank(planned(several, load)) <= rank(planned(several, replace(load, vectors=load.vectors + more)))


@given(cases())
def test_smaller_plans_take_ever_less_until_there_is_none(case):
    several, load = case
    plan = GpuPlan(several, (), "replicated", False, load, 100_000)
    taken = []
    while plan is not None:
        taken.append((plan.temp_bytes, plan.device_bytes, plan.block_rows))
        plan = smaller(plan)
    assert taken == sorted(set(taken), reverse=True)
    assert taken[-1][2] == LEAST_ROWS


VECTORS, DIM = 10_000_000, 384  # 14.3 GiB in float32, and some working memory


@pytest.mark.parametrize(
    ("free", "placement", "half", "used"),
    [
        ((40, 40), "replicated", False, [0, 1]),
        ((12, 12), "sharded", False, [0, 1]),
        ((40, 1), "replicated", False, [0]),
        ((12, 1, 12), "sharded", False, [0, 2]),
        ((7, 7), "sharded", True, [0, 1]),
        ((12, 2), "replicated", True, [0]),
    ],
)
def test_plans_of_some_machines(free, placement, half, used):
    several = [gpu(number, one, 80) for number, one in enumerate(free)]
    plan = plan_gpus(several, flat_load(VECTORS, DIM, half_allowed=True))
    assert (plan.placement, plan.half, [one.number for one in plan.gpus]) == (placement, half, used)


def test_a_gpu_with_nothing_free_is_left_out():
    plan = plan_gpus([gpu(0, 0), gpu(1)], flat_load(1000, 64))
    assert [one.number for one in plan.gpus] == [1]
    assert "(GPU 0 left out: too little memory free)" in plan.describe()


def test_blocks_shrink_before_vectors_are_sharded():
    several = [gpu(0, 2, 4), gpu(1, 2, 4)]
    plan = plan_gpus(several, flat_load(900_000, 384))
    assert plan.placement == "replicated"
    assert plan.block_rows < plan_gpus(several, flat_load(100_000, 384)).block_rows


def test_replicas_share_the_queries_of_a_block_and_shards_do_not():
    load = flat_load(1000, 64)
    replicated = GpuPlan((gpu(0), gpu(1)), (), "replicated", False, load, 1000)
    assert replicated.page_bytes == 500 * 64 * 4
    assert replace(replicated, placement="sharded").page_bytes == 1000 * 64 * 4


def test_working_memory_of_a_flat_index_is_what_faiss_allocates():
    plan = plan_gpus([gpu()], flat_load(1_000_000, 100), block_rows=1024)
    queries, found = 2 * 1024 * 100 * 4, 1024 * 12
    tiles = 2 * 512 * (4 * 262_144 + 4 * 12)  # 1 GiB of scores in two tiles of 512 queries, 4 tiles of columns
    assert plan.temp_bytes == queries + tiles + found
    assert plan.held_bytes == 1_000_000 * 404


def test_working_memory_of_lists_holds_residuals_and_what_each_list_finds():
    shape = {"code_bytes": 100, "lists": 1000, "longest": 2000, "probes": 16, "neighbours": 10}
    plain, residual = (
        plan_gpus([gpu()], lists_load(10**6, 100, **shape, residual=residual), block_rows=1024)
        for residual in (False, True)
    )
    assert plain.held_bytes == 10**6 * 108 + 1000 * (404 + 3200 + 1024)
    assert residual.temp_bytes - plain.temp_bytes == 1024 * 16 * 100 * 4
    assert plain.temp_bytes == 2 * 1024 * 400 + 2 * 512 * (4000 + 120) + 1024 * (120 + 16 * 120)


def test_working_memory_of_coded_lists_holds_the_tables_of_some_queries():
    load = lists_load(10**6, 96, code_bytes=48, lists=100, longest=500_000, probes=64, neighbours=10, codes=48)
    assert load.query_bytes == 0
    assert load.scratch_bytes == 8 * 2 * (64 * (8 + 4 * 500_000) + 64 * 48 * 1024 + 8 * 120)


def test_a_load_that_fits_nowhere_is_an_error_with_what_it_needs_and_a_remedy():
    with pytest.raises(GpuError) as caught:
        plan_gpus([gpu(0, 4), gpu(2, 3)], flat_load(VECTORS, DIM))
    message = str(caught.value)
    assert "10,000,000 vectors of dimension 384 do not fit on GPUs 0, 2" in message
    assert re.search(r"7\.\d GiB or more would be needed on each of 2", message)
    assert "3.2 GiB of GPU 0, 2.4 GiB of GPU 2 may be used (80% of what is free)" in message
    assert "use the CPU" in message


def test_planning_for_no_gpu_is_an_error():
    with pytest.raises(ConfigError, match="no GPU to plan for"):
        plan_gpus((), flat_load(10, 4))


def test_a_plan_says_in_a_line_where_vectors_are():
    load = flat_load(1_000_000, 100, half_allowed=True)
    plan = GpuPlan((gpu(0),), (), "replicated", False, load, 1024)
    assert plan.describe() == (
        "1,000,000 vectors of dimension 100 on GPU 0; 385.3 MiB each, and 1.0 GiB to search for 1,024 at a time"
    )
    both = replace(plan, gpus=(gpu(0), gpu(1)))
    assert " on GPUs 0, 1, all of them on each; 385.3 MiB each" in both.describe()
    sharded = replace(both, placement="sharded", half=True)
    assert " in float16 on GPUs 0, 1, 1/2 of them on each; 97.3 MiB each" in sharded.describe()


# Retrying


class Device:
    """Runs out of memory for blocks of more queries than it has room for, and tells what it was asked."""

    def __init__(self, most, message=OUT_OF_MEMORY):
        self.most, self.message, self.tried = most, message, []

    def __call__(self, plan):
        self.tried.append(plan.block_rows)
        if plan.block_rows > self.most:
            raise RuntimeError(self.message)
        return "done"


PLAN = GpuPlan((gpu(4),), (), "replicated", False, flat_load(1000, 16), 1000)


def test_what_fits_runs_once():
    device = Device(1000)
    assert with_retry(PLAN, device) == ("done", PLAN)
    assert device.tried == [1000]


@pytest.mark.parametrize("message", [OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "(error 2 out of memory)"])
def test_out_of_memory_is_retried_with_half_as_many_queries(message):
    device = Device(250, message)
    done, plan = with_retry(PLAN, device)
    assert (done, plan) == ("done", replace(PLAN, block_rows=250))
    assert device.tried == [1000, 500, 250]


def test_out_of_memory_with_the_fewest_queries_is_an_error_with_a_remedy():
    device = Device(0)
    with pytest.raises(GpuError, match="memory ran out on GPU 4 even with 64 queries at a time: free memory") as caught:
        with_retry(PLAN, device)
    assert "cudaMalloc error out of memory" in str(caught.value)
    assert device.tried == [1000, 500, 250, 125, 64]


def test_other_errors_are_not_retried():
    device = Device(0, "Error: 'k <= 2048' failed")
    with pytest.raises(RuntimeError, match="k <= 2048"):
        with_retry(PLAN, device)
    assert device.tried == [1000]


def test_what_a_failed_run_held_is_let_go_of_before_the_next():
    held = []

    class Memory:
        pass

    def run(plan):
        gc.collect()
        assert [one() for one in held] == [None] * len(held)
        memory = Memory()
        held.append(weakref.ref(memory))
        if plan.block_rows > 300:
            raise RuntimeError(OUT_OF_MEMORY)
        return "done"

    assert with_retry(PLAN, run)[0] == "done"
    assert len(held) == 3


# FAISS on GPUs that are stood in for


class FakeDriver:
    """CUDA's driver of two GPUs, of which it may let contexts be made."""

    def __init__(self, failing=(), without_context=()):
        self.failing, self.without_context = failing, without_context
        self.retained, self.current = [], []

    def __getattr__(self, name):
        def call(*arguments):
            return 101 if name in self.failing else getattr(self, "_" + name)(*arguments) or 0

        call.__name__ = name
        return call

    def _cuInit(self, flags):
        assert flags == 0

    def _cuDeviceGet(self, device, number):
        device._obj.value = number + 10

    def _cuDeviceTotalMem_v2(self, total, device):
        total._obj.value = device.value * GIB

    def _cuDevicePrimaryCtxRetain(self, context, device):
        if device.value in self.without_context:
            return 2
        self.retained.append(device.value)
        context._obj.value = 100 + device.value
        return 0

    def _cuCtxPushCurrent_v2(self, context):
        self.current.append(context.value)

    def _cuMemGetInfo_v2(self, free, total):
        total._obj.value = (self.current[-1] - 100) * GIB
        free._obj.value = total._obj.value - GIB

    def _cuCtxPopCurrent_v2(self, context):
        context._obj.value = self.current.pop()

    def _cuDevicePrimaryCtxRelease_v2(self, device):
        self.retained.remove(device.value)


@pytest.fixture
def driver(monkeypatch):
    def install(**settings):
        fake = FakeDriver(**settings)
        monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2)
        monkeypatch.setattr(ctypes, "CDLL", {"libcuda.so.1": fake}.__getitem__)
        return fake

    return install


def test_no_gpu_is_visible_where_faiss_sees_none(monkeypatch):
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 0)
    assert visible_gpus() == ()


def test_the_memory_of_gpus_is_asked_of_the_driver(driver):
    fake = driver()
    assert visible_gpus() == (Gpu(0, 10 * GIB, 9 * GIB), Gpu(1, 11 * GIB, 10 * GIB))
    assert (fake.retained, fake.current) == ([], [])


def test_a_gpu_that_cannot_be_used_has_nothing_free(driver):
    driver(without_context=(11,))
    assert visible_gpus() == (Gpu(0, 10 * GIB, 9 * GIB), Gpu(1, 11 * GIB, 0))


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGet", "cuMemGetInfo_v2"])
def test_a_driver_that_fails_is_an_error_and_is_left_as_it_was(driver, call):
    fake = driver(failing=(call,))
    with pytest.raises(GpuError, match=f"answers {call} with error 101"):
        visible_gpus()
    assert fake.retained == []


def test_a_driver_that_cannot_be_loaded_is_an_error(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: no such file")

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(GpuError, match=r"libcuda\.so\.1: no such file; ask for cpu"):
        visible_gpus()


class FakeResources:
    def __init__(self):
        self.temp, self.pinned = [], None

    def setTempMemory(self, size):
        self.temp.append(size)

    def setPinnedMemory(self, size):
        self.pinned = size


class FakeGpus:
    """What FAISS's build for GPUs adds, of CPU indexes, with room for so many queries at once."""

    def __init__(self):
        self.most_queries = self.most_page = 10**9
        self.resources, self.parts, self.clones, self.searched = [], [], [], []
        fakes = self

        class Part(faiss.IndexFlatIP):
            def __init__(self, resources, dim, config):
                super().__init__(dim)
                fakes.parts.append((config.device, config.useFloat16, self))
                self.referenced_objects = [resources, config]

            def setMinPagingSize(self, size):
                if size > fakes.most_page:
                    raise RuntimeError(OUT_OF_MEMORY)

            def add(self, x):
                half = self.referenced_objects[1].useFloat16
                super().add(x.astype(np.float16).astype(np.float32) if half else x)

            def search(self, x, k):
                fakes.searched.append(len(x))
                if len(x) > fakes.most_queries:
                    raise RuntimeError(OUT_OF_MEMORY)
                return super().search(x, k)

        self.part = Part

    def new_resources(self):
        self.resources.append(FakeResources())
        return self.resources[-1]

    def clone(self, resources, index, options, numbers):
        self.clones.append((numbers, options))
        assert len(resources) == len(numbers)
        return faiss.clone_index(index)


@pytest.fixture
def fakes(monkeypatch):
    fake = FakeGpus()
    for name, value in {
        "StandardGpuResources": fake.new_resources,
        "GpuIndexFlatConfig": SimpleNamespace,
        "GpuIndexFlatIP": fake.part,
        "GpuMultipleClonerOptions": SimpleNamespace,
        "index_cpu_to_gpu_multiple_py": fake.clone,
        "index_gpu_to_cpu": faiss.clone_index,
        "GpuParameterSpace": faiss.ParameterSpace,
    }.items():
        monkeypatch.setattr(faiss, name, value, raising=False)
    return fake


DATA, QUERIES = clusters(3000, 24), clusters(70, 24, seed=9)
ROWS = np.arange(len(DATA), dtype=np.int64) * 7 + 5


@cache
def stored(kind, dim=24):
    """An index as a store has it."""
    data = DATA if dim == 24 else clusters(len(DATA), dim)
    index = faiss.index_factory(dim, kind, faiss.METRIC_INNER_PRODUCT)
    if "IVF" not in kind:
        index = faiss.IndexIDMap(index)
    index.train(data)
    index.add_with_ids(data, ROWS)
    return index


def plan_for(index, count=1, placement="replicated", half=False, rows=32, **settings):
    load = load_of(index, neighbours=10, half_allowed=half, **settings)
    return GpuPlan(tuple(gpu(2 * i) for i in range(count)), (), placement, half, load, rows)


PLACEMENTS = [(1, "replicated"), (2, "replicated"), (3, "sharded")]


@pytest.mark.parametrize("kind", ["Flat", "SQfp16"])
@pytest.mark.parametrize(("count", "placement"), PLACEMENTS)
def test_a_flat_index_answers_on_gpus_as_on_the_cpu(fakes, kind, count, placement):
    index = stored(kind)
    there = to_gpus(index, plan_for(index, count, placement))
    scores, rows = there.search(QUERIES, 10)
    expected_scores, expected_rows = index.search(QUERIES, 10)
    assert np.array_equal(rows, expected_rows)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)
    assert [device for device, _, _ in fakes.parts] == [0, 2, 4][:count]
    each = 1000 if placement == "sharded" else 3000
    assert [part.ntotal for _, _, part in fakes.parts] == [each] * count


def test_float16_is_asked_of_faiss_where_the_plan_says_so(fakes):
    index = stored("Flat")
    there = to_gpus(index, plan_for(index, 2, "sharded", half=True))
    assert [half for _, half, _ in fakes.parts] == [True, True]
    assert overlap(there.search(QUERIES, 10)[1], index.search(QUERIES, 10)[1]) > 0.95


@pytest.mark.parametrize("size", [0, 1, 32, 70])
def test_queries_are_searched_for_in_blocks(fakes, size):
    index = stored("Flat")
    scores, rows = to_gpus(index, plan_for(index)).search(QUERIES[:size], 10)
    assert scores.shape == rows.shape == (size, 10)
    assert sum(fakes.searched) == size
    assert all(rows_at_once <= 32 for rows_at_once in fakes.searched)


def test_missing_neighbours_are_marked(fakes):
    index = stored("IVF40,Flat")
    scores, rows = to_gpus(index, plan_for(index)).search(QUERIES, 2000, probes=1)
    assert (rows[:, -1] == -1).all()
    assert np.isneginf(scores[:, -1]).all()
    assert (rows[:, 0] >= 0).all()


def test_no_more_neighbours_than_vectors_are_returned(fakes):
    index = faiss.IndexFlatIP(24)
    index.add(DATA[:5])
    assert to_gpus(index, plan_for(index)).search(QUERIES, 10)[1].shape == (70, 5)


@pytest.mark.parametrize("kind", ["Flat", "IVF40,Flat"])
def test_more_neighbours_than_a_gpu_picks_are_an_error(fakes, kind):
    index = stored(kind)
    with pytest.raises(ConfigError, match="picks at most 2,048 neighbours, not 2,500"):
        to_gpus(index, plan_for(index)).search(QUERIES, 2500)


def test_more_lists_than_a_gpu_picks_are_an_error(fakes):
    index = stored("IVF40,Flat")
    with pytest.raises(ConfigError, match="picks at most 2,048 lists, not 3,000"):
        to_gpus(index, plan_for(index)).search(QUERIES, 10, probes=3000)


def test_a_search_that_runs_out_of_memory_is_repeated_smaller_and_stays_so(fakes):
    index = stored("Flat")
    there = to_gpus(index, plan_for(index, rows=256))
    before = there.plan
    fakes.most_queries = 64
    _, rows = there.search(QUERIES, 10)
    assert np.array_equal(rows, index.search(QUERIES, 10)[1])
    assert fakes.searched == [70, 70, 64, 6]
    assert there.plan == replace(before, block_rows=64)
    assert fakes.resources[0].temp == [replace(before, block_rows=rows).temp_bytes for rows in (256, 128, 64)]
    there.search(QUERIES, 10)
    assert fakes.searched[4:] == [64, 6]


def test_a_search_with_too_little_memory_for_any_query_is_an_error(fakes):
    index = stored("Flat")
    there = to_gpus(index, plan_for(index))
    fakes.most_queries = 0
    with pytest.raises(GpuError, match="memory ran out on GPU 0"):
        there.search(QUERIES, 10)


def test_a_copy_that_runs_out_of_memory_is_repeated_smaller(fakes):
    index = stored("Flat")
    fakes.most_page = 64 * 24 * 4
    there = to_gpus(index, plan_for(index, rows=256))
    assert there.plan.block_rows == 64
    assert fakes.resources[-1].pinned == 2 * fakes.most_page


@pytest.mark.parametrize("kind", ["IVF40,Flat", "IVF40,SQ8", "IVF40,PQ12np", "PCA24,IVF40,PQ12np"])
@pytest.mark.parametrize(("count", "placement"), PLACEMENTS)
def test_lists_answer_on_gpus_as_on_the_cpu(fakes, kind, count, placement):
    index = stored(kind)
    there = to_gpus(index, plan_for(index, count, placement, probes=5))
    scores, rows = there.search(QUERIES, 10, probes=5)
    expected_scores, expected_rows = probed(index, QUERIES, 5)
    assert np.array_equal(rows, expected_rows)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)
    ((numbers, options),) = fakes.clones
    assert numbers == [0, 2, 4][:count]
    assert options.shard == (placement == "sharded")
    assert options.useFloat16 is False


def test_long_codes_have_their_tables_in_float16(fakes):
    index = stored("IVF4,PQ64np", dim=64)
    to_gpus(index, plan_for(index))
    assert fakes.clones[0][1].useFloat16 is True


@pytest.mark.guarantee(53)
@pytest.mark.parametrize("kind", ["Flat", "SQfp16", "IVF40,Flat", "IVF40,SQ8", "IVF40,PQ12np"])
def test_what_comes_back_to_the_cpu_answers_the_same(fakes, kind):
    index = stored(kind)
    back = to_cpu(to_gpus(index, plan_for(index)))
    assert np.array_equal(back.search(QUERIES, 10)[1], index.search(QUERIES, 10)[1])
    assert faiss.serialize_index(back).size


@pytest.mark.parametrize(
    "kind",
    ["HNSW16,Flat", "HNSW16,SQ8", "SQ8", "IVF40,PQ6x4", "IVF40,PQ12x4fs", "IVF40_HNSW8,Flat", "PCA16,Flat"],
)
def test_what_gpus_cannot_search_is_told_and_refused(fakes, kind):
    index = stored(kind)
    assert not can_search_on_gpu(index)
    with pytest.raises(ConfigError, match="cannot be searched on a GPU: search it on the CPU"):
        load_of(index, neighbours=10)
    with pytest.raises(ConfigError, match="cannot be searched on a GPU"):
        to_gpus(index, PLAN)


def test_codes_that_gpus_cannot_search_are_told_apart():
    index = faiss.clone_index(stored("IVF40,PQ12np"))
    assert can_search_on_gpu(index)
    index.polysemous_ht = 5
    assert not can_search_on_gpu(index)
    index.polysemous_ht, index.by_residual = 0, False
    assert not can_search_on_gpu(index)


def test_another_metric_is_told_apart():
    for index in (faiss.IndexFlatL2(24), faiss.index_factory(24, "IVF4,Flat")):
        assert not can_search_on_gpu(index)


def test_a_plan_for_another_index_is_refused(fakes):
    index = stored("Flat")
    plan = plan_for(index)
    with pytest.raises(ConfigError, match="the plan is for 2,999 vectors of dimension 24, but the index has 3,000"):
        to_gpus(index, replace(plan, load=replace(plan.load, vectors=2999)))


def test_the_load_of_an_index_is_read_off_it():
    assert load_of(stored("Flat"), neighbours=7, half_allowed=True) == flat_load(
        3000, 24, neighbours=7, half_allowed=True
    )
    index = stored("IVF40,SQ8")
    longest = max(index.invlists.list_size(i) for i in range(40))
    assert load_of(index, neighbours=7, probes=3) == lists_load(
        3000, 24, code_bytes=24, lists=40, longest=longest, probes=3, neighbours=7, residual=True
    )
    assert load_of(stored("IVF40,PQ12np"), neighbours=7, probes=3).scratch_bytes > 0


def test_a_flat_index_mapped_into_memory_is_copied(fakes, tmp_path):
    index = stored("Flat")
    faiss.write_index(index, str(tmp_path / "index"))
    mapped = faiss.read_index(str(tmp_path / "index"), faiss.IO_FLAG_MMAP_IFC)
    there = to_gpus(mapped, plan_for(mapped, 2, "sharded"))
    assert np.array_equal(there.search(QUERIES, 10)[1], index.search(QUERIES, 10)[1])


# Training and assigning


def untrained(kind):
    return faiss.index_factory(24, kind, faiss.METRIC_INNER_PRODUCT)


def centroids(index):
    lists = faiss.extract_index_ivf(index)
    return lists.quantizer.reconstruct_n(0, lists.nlist)


def training_plan(count=1, placement="replicated", rows=256):
    return GpuPlan(tuple(gpu(2 * i) for i in range(count)), (), placement, False, flat_load(40, 24), rows)


@pytest.mark.parametrize("kind", ["IVF40,Flat", "IVF40,SQ8", "PCA24,IVF40,PQ12np"])
@pytest.mark.parametrize(("count", "placement"), PLACEMENTS)
def test_training_on_gpus_finds_the_centroids_that_the_cpu_does(fakes, kind, count, placement):
    plan = training_plan(count, placement)
    expected, index = untrained(kind), untrained(kind)
    expected.train(DATA)
    assert train(index, DATA, plan) == plan
    assert index.is_trained
    np.testing.assert_allclose(centroids(index), centroids(expected), atol=1e-4)
    assert len(fakes.parts) == count
    assert faiss.extract_index_ivf(index).clustering_index is None


def test_training_that_runs_out_of_memory_is_repeated_smaller(fakes):
    fakes.most_page = 64 * 24 * 4
    index = untrained("IVF40,Flat")
    assert train(index, DATA, training_plan()).block_rows == 64
    assert index.is_trained


def test_training_with_too_little_memory_is_an_error_and_leaves_the_index_as_it_was(fakes):
    fakes.most_page = 0
    index = untrained("IVF40,Flat")
    with pytest.raises(GpuError, match="memory ran out"):
        train(index, DATA, training_plan())
    assert index.clustering_index is None
    assert index.quantizer.ntotal == 0


@pytest.mark.parametrize(("count", "placement"), PLACEMENTS)
def test_vectors_are_assigned_to_the_list_that_the_cpu_assigns_them_to(fakes, count, placement):
    index = stored("IVF40,Flat")
    assigned = to_gpus(index.quantizer, training_plan(count, placement)).assign(DATA)
    assert assigned.dtype == np.int64
    assert np.array_equal(assigned, index.quantizer.search(DATA, 1)[1].ravel())


# FAISS on a GPU


def real_plan(load, count=1, placement="replicated", half=False, rows=1024):
    """Of the first GPU, as often as is asked for."""
    return GpuPlan(visible_gpus()[:1] * count, (), placement, half, load, rows)


BIG, MANY = clusters(10_000, 64), clusters(3000, 64, seed=9)


@cache
def big(kind):
    index = faiss.index_factory(64, kind, faiss.METRIC_INNER_PRODUCT)
    if "IVF" not in kind:
        index = faiss.IndexIDMap(index)
    index.train(BIG)
    index.add_with_ids(BIG, np.arange(len(BIG), dtype=np.int64) + 100)
    return index


@on_a_gpu
def test_gpus_have_memory():
    for number, one in enumerate(visible_gpus()):
        assert one.number == number
        assert 0 < one.free_bytes <= one.total_bytes


@on_a_gpu
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", ["Flat", "SQfp16"])
@pytest.mark.parametrize(("count", "placement"), PLACEMENTS)
def test_a_gpu_searches_a_flat_index_as_the_cpu_does(kind, count, placement, half):
    index = big(kind)
    there = to_gpus(index, real_plan(load_of(index, neighbours=10, half_allowed=True), count, placement, half))
    scores, rows = there.search(MANY, 10)
    expected_scores, expected_rows = index.search(MANY, 10)
    np.testing.assert_allclose(scores, expected_scores, atol=5e-3 if half else 1e-4)
    assert overlap(rows, expected_rows) > (0.95 if half else 0.99)


@on_a_gpu
@pytest.mark.parametrize("kind", ["IVF64,Flat", "IVF64,SQ8", "IVF64,PQ32np", "PCA64,IVF64,PQ32np", "IVF64,PQ64np"])
@pytest.mark.parametrize(("count", "placement"), PLACEMENTS)
def test_a_gpu_searches_lists_as_the_cpu_does(kind, count, placement):
    index = big(kind)
    there = to_gpus(index, real_plan(load_of(index, neighbours=10, probes=8), count, placement))
    assert isinstance(there, GpuLists)
    for probes in (1, 8):
        assert overlap(there.search(MANY, 10, probes)[1], probed(index, MANY, probes)[1]) > 0.9


@pytest.mark.guarantee(53)
@on_a_gpu
@pytest.mark.parametrize("kind", ["Flat", "IVF64,Flat", "IVF64,SQ8", "IVF64,PQ32np"])
def test_a_copy_comes_back_from_a_gpu(kind):
    index = big(kind)
    back = to_cpu(to_gpus(index, real_plan(load_of(index, neighbours=10))))
    assert overlap(back.search(MANY, 10)[1], index.search(MANY, 10)[1]) > 0.99


@on_a_gpu
@pytest.mark.parametrize(("count", "placement"), PLACEMENTS)
def test_a_gpu_trains_and_assigns_as_the_cpu_does(count, placement):
    expected, index = (faiss.index_factory(64, "IVF128,SQ8", faiss.METRIC_INNER_PRODUCT) for _ in range(2))
    expected.train(BIG)
    plan = real_plan(flat_load(128, 64), count, placement)
    train(index, BIG, plan)
    assert index.is_trained
    on_cpu, on_gpu = (one.quantizer.search(BIG, 1)[0].mean() for one in (expected, index))
    assert on_gpu == pytest.approx(on_cpu, rel=0.01)
    assigner = to_gpus(index.quantizer, plan)
    assert isinstance(assigner, GpuFlat)
    assert np.mean(assigner.assign(BIG) == index.quantizer.search(BIG, 1)[1].ravel()) > 0.999


@on_a_gpu
def test_what_is_planned_on_the_gpus_there_are_runs_on_them():
    index = big("Flat")
    plan = plan_gpus(choose_gpus("gpu", visible_gpus()), load_of(index, neighbours=5))
    assert overlap(to_gpus(index, plan).search(MANY, 5)[1], index.search(MANY, 5)[1]) > 0.99
