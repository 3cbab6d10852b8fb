"""The index that is built for a budget, the reasons, and the error if no index meets the budget."""

import numpy as np
import pytest

from ragembed.errors import BudgetError
from ragembed.indexes.faiss_index import choose
from ragembed.indexes.faiss_index.building import IndexInput, build_index
from ragembed.indexes.faiss_index.choose import Machine, TuningQueries, pick
from ragembed.indexes.faiss_index.index import RefinedIndex, SegmentIndex
from ragembed.indexes.faiss_index.records import Budget, IndexConfig, parse_spec
from ragembed.indexes.faiss_index.vectors import ArrayVectors
from ragembed.postprocess import unit_rows

SIZE, DIM = 1_500, 16
ROWS = np.arange(3, 3 + 2 * SIZE, 2, dtype=np.int64)
FLAT_BYTES, CODE_BYTES = SIZE * (4 * DIM + 8), SIZE * (DIM + 8)
FAST = Machine(0.1, 0.1, 8 * 1024**3)
SLOW = Machine(1e4, 1e4, 8 * 1024**3)
"""A machine too slow for exhaustive search in 30 ms."""


@pytest.fixture
def few(monkeypatch):
    """Allow approximate kinds for few vectors."""
    monkeypatch.setattr(choose, "LEAST_APPROXIMATE", SIZE)


@pytest.fixture
def latencies(monkeypatch):
    """Fake measured latencies, one for each kind that is built."""
    values = [1.0] * 9
    left = iter(values)
    monkeypatch.setattr(choose, "latency_ms", lambda *_: next(left))
    return values


def clusters(count, seed=0):
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(size=(12, DIM))
    return unit_rows((centres[draw.integers(12, size=count)] + 0.6 * draw.normal(size=(count, DIM))).astype(np.float32))


VECTORS = ArrayVectors(clusters(SIZE))
TUNING_QUERIES = TuningQueries(clusters(60, 2), clusters(60, 3))


def picked(folder, wanted=None, machine=FAST, vectors=VECTORS, queries=TUNING_QUERIES, progress=None):
    rows = ROWS[: len(vectors)]
    given = IndexInput(vectors, rows, folder / "index.faiss")
    return pick(given, queries, wanted or IndexConfig(), progress, machine=machine)


def names(folder):
    return sorted(file.name for file in folder.iterdir())


# The picked kind


def test_first_kind_within_the_budget_is_picked(tmp_path, latencies):
    best = picked(tmp_path)
    assert (best.kind, best.effort) == ("flat", None)
    assert best.reasons == ("flat: the first kind within the budget of 30 ms a query, recall@10 0.98",)
    assert best.runner_up.startswith("sq8 (about ")
    assert (best.measured.recall.mean, best.measured.recall.low, best.measured.recall.queries) == (1.0, 1.0, 60)
    assert best.measured.latency_ms == 1.0
    assert best.measured.bytes == (tmp_path / "index.faiss").stat().st_size
    assert names(tmp_path) == ["index.faiss"]


def test_kind_that_should_be_fast_enough_is_built_before_preferred_ones(tmp_path, few, latencies):
    best = picked(tmp_path, IndexConfig(budget=Budget(max_latency_ms=10, min_recall=0.9)), SLOW)
    assert best.kind == "hnsw-sq8"
    assert best.reasons[1:] == (
        "not ivf-sq8: about 16 ms a query, more than 10",
        "hnsw-sq8: the first kind within the budget of 10 ms a query, recall@10 0.9",
    )


def test_kind_that_exceeds_the_budget_when_measured_is_skipped(tmp_path, latencies):
    latencies[0] = 31.0
    best = picked(tmp_path)
    assert best.kind == "sq8"
    assert best.reasons[0].startswith("not flat: measured recall@10 1.0000 (1.0000 to 1.0000), 31 ms a query, ")
    assert names(tmp_path) == ["index.faiss"]
    SegmentIndex(tmp_path / "index.faiss", parse_spec("sq8"), SIZE, DIM)


@pytest.mark.usefixtures("few")
def test_approximate_index_is_tuned_to_the_wanted_recall(tmp_path, latencies):
    best = picked(tmp_path, machine=SLOW)
    assert best.kind == "ivf-sq8"
    assert [reason.split(":")[0] for reason in best.reasons] == ["not sq8", "ivf-sq8"]
    assert best.runner_up.startswith("hnsw-sq8 (about ")
    assert best.measured.recall.mean >= 0.98
    assert 1 <= best.effort <= SIZE
    index = SegmentIndex(tmp_path / "index.faiss", best.spec, SIZE, DIM)
    scores, _ = RefinedIndex(index, best.spec, VECTORS, ROWS).search(TUNING_QUERIES.measuring, 18, effort=best.effort)
    kth = np.sort(TUNING_QUERIES.measuring @ clusters(SIZE).T, axis=1)[:, -10]
    assert (scores[:, :10] >= kth[:, None] - 2e-6).mean() == pytest.approx(best.measured.recall.mean)


@pytest.mark.usefixtures("few")
def test_at_most_three_kinds_are_built(tmp_path, latencies, monkeypatch):
    latencies[:] = [40.0, 50.0, 60.0, 70.0]
    built = []
    monkeypatch.setattr(choose, "build_index", lambda spec, *rest: built.append(spec.name) or build_index(spec, *rest))
    best = picked(tmp_path)
    assert built == ["sq8", "ivf-sq8", "hnsw-sq8"]
    assert best.kind == "sq8"
    assert best.reasons[-1].startswith("sq8: the closest kind; none is within the budget")
    assert names(tmp_path) == ["index.faiss"]


@pytest.mark.parametrize("name", ["flat", "hnsw-sq8", "ivf-pq", "PCA8,IVF8,Flat", "HNSW8,SQ8"])
def test_requested_kind_is_picked(name, tmp_path):
    best = picked(tmp_path, IndexConfig(name))
    assert best.kind == name
    assert best.reasons == (f"{name} was requested",)
    assert best.runner_up is None
    assert (best.effort is None) == (best.spec.family == "exhaustive")
    SegmentIndex(tmp_path / "index.faiss", best.spec, SIZE, DIM)


# Impossible budgets


@pytest.mark.parametrize(
    ("budget", "slow", "closest"),
    [
        (Budget(max_memory=CODE_BYTES - 1_000), 1.0, "sq8"),
        (Budget(max_latency_ms=1.0), 9.0, "flat"),
        (Budget(max_latency_ms=1.0, max_memory=FLAT_BYTES + 1_000), 9.0, "flat"),
    ],
)
def test_impossible_budget_raises_and_names_the_closest_kind(budget, slow, closest, tmp_path, latencies):
    latencies[:] = [slow] * 9
    with pytest.raises(BudgetError) as caught:
        picked(tmp_path, IndexConfig(budget=budget))
    said = str(caught.value)
    assert said.startswith(
        f"no index of 1,500 vectors of dimension 16 meets the budget of {budget.describe(defaults=False)}"
    )
    assert f"the closest is {closest} with recall@10 1.0000 (1.0000 to 1.0000), {slow:g} ms a query" in said
    assert "--index hnsw" in said
    assert names(tmp_path) == []


def test_unreachable_recall_of_a_requested_kind_raises(tmp_path):
    with pytest.raises(BudgetError, match=r"\(built: IVF4,PQ1\): the closest is IVF4,PQ1 with recall@10 0\.\d+ \("):
        picked(tmp_path, IndexConfig("IVF4,PQ1", Budget(min_recall=0.9999)))
    assert names(tmp_path) == []


# Queries


@pytest.mark.parametrize("counts", [(0, 0), (1, 0), (0, 1)])
def test_without_queries_nothing_is_measured(counts, tmp_path):
    queries = TuningQueries(clusters(counts[0]), clusters(counts[1]))
    best = picked(tmp_path, IndexConfig(budget=Budget(min_recall=0.99)), queries=queries)
    assert (best.kind, best.measured.recall, best.measured.latency_ms) == ("flat", None, None)
