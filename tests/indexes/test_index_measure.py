"""Recall of searches with known results, exact search against brute force, and the smallest sufficient effort."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.evaluation.retrieval import paired_bootstrap
from ragembed.indexes.faiss_index import choose, vectors
from ragembed.indexes.faiss_index.choose import Truth, exact, latency_ms, least_effort, recall
from ragembed.indexes.faiss_index.index import USUAL_K
from ragembed.indexes.faiss_index.vectors import ArrayVectors
from ragembed.postprocess import unit_rows

DIM = 8


def unit(count, seed=0):
    return unit_rows(np.random.default_rng(seed).normal(size=(count, DIM)).astype(np.float32))


def truth(queries=20, k=10, kth=0.5):
    return Truth(unit(queries), np.full(queries, kth, dtype=np.float32), k)


def finds(*counts, nearest=0.9, other=0.1):
    """Return a search that finds these numbers of nearest vectors, one number for each query."""
    scores = np.array([[nearest] * count + [other] * (USUAL_K - count) for count in counts], dtype=np.float32)
    return lambda _queries, k: scores[:, :k]


# Recall


def test_recall_is_the_mean_share_of_nearest_vectors_found():
    found = recall(finds(10, 5, 0, 9), truth(4))
    assert found.mean == pytest.approx(0.6)
    assert found.queries == 4


def test_ties_with_the_tenth_count_as_found():
    assert recall(finds(10, 10, nearest=0.5), truth(2)).mean == 1.0
    assert recall(finds(10, 10, nearest=0.5 - 1e-6), truth(2)).mean == 1.0
    assert recall(finds(10, 10, nearest=0.5 - 1e-5), truth(2)).mean == 0.0


@given(st.lists(st.integers(0, 10), min_size=2, max_size=60))
def test_interval_is_a_percentile_bootstrap(counts):
    found = recall(finds(*counts), truth(len(counts)))
    expected = paired_bootstrap(np.array(counts) / 10, np.zeros(len(counts)))
    assert (found.low, found.high) == pytest.approx((expected.low, min(expected.high, 1.0)))
    assert 0 <= found.low <= found.mean + 1e-9
    assert found.mean - 1e-9 <= found.high <= 1


# Exact search


def brute_force(parts, queries):
    kept = np.concatenate([array if allowed is None else array[allowed] for array, allowed in parts])
    return -np.sort(-(queries @ kept.T), axis=1)


@pytest.mark.parametrize(("allowed", "rows_in_block"), [(None, 50), (0.5, 3), (0.1, 10_000)])
def test_exact_search_equals_brute_force(allowed, rows_in_block, monkeypatch):
    monkeypatch.setattr(vectors, "_BLOCK_BYTES", rows_in_block * 4 * DIM)
    arrays = [unit(120, 1), unit(7, 2), unit(300, 3)]
    draw = np.random.default_rng(4)
    parts = [(array, None if allowed is None else draw.random(len(array)) < allowed) for array in arrays]
    queries = unit(25, 5)
    expected = brute_force(parts, queries)
    found = exact([(ArrayVectors(array), mask) for array, mask in parts], queries)
    assert found.k == 10
    assert found.queries is queries
    np.testing.assert_allclose(found.kth, expected[:, 9], atol=1e-6)


# Effort


class Ladder:
    """Searches that find everything from the effort ``enough`` on, and half of it below."""

    def __init__(self, enough):
        self.enough, self.tried = enough, []

    def __call__(self, effort):
        self.tried.append(effort)
        return finds(*[10 if effort >= self.enough else 5] * 20)


@given(st.integers(1, choose.MOST_EFFORT), st.data())
def test_least_effort_is_enough_and_the_next_lower_is_not(most, data):
    enough = data.draw(st.integers(1, most))
    ladder = Ladder(enough)
    effort = least_effort(ladder, most, truth(), 0.98)
    assert enough <= effort <= max(enough, int(1.15 * (enough - 1)))
    assert effort <= most
    assert all(tried <= most for tried in ladder.tried)
    assert max(ladder.tried) <= max(6, 2.1 * enough)  # a search with a much higher effort would take long
    assert len(ladder.tried) <= 20


def test_effort_is_not_raised_beyond_the_limit_of_time():
    ladder = Ladder(10**9)
    assert least_effort(ladder, 1000, truth(), 0.98, limit_ms=0.0) == 1
    assert ladder.tried == [1]


def test_interval_must_reach_the_wanted_recall():
    def search(effort):
        return finds(*([10] * 19 + [8] if effort < 40 else [10] * 20))

    assert recall(search(1), truth()).mean >= 0.98
    assert least_effort(search, 100, truth(), 0.985) >= 40
    assert least_effort(search, 100, truth(), 0.9) == 1


def test_effort_has_a_limit(monkeypatch):
    monkeypatch.setattr(choose, "MOST_EFFORT", 50)
    ladder = Ladder(60)
    assert least_effort(ladder, 10_000, truth(), 0.98) == 50
    assert all(tried <= 50 for tried in ladder.tried)
    assert least_effort(Ladder(20), 30, truth(), 0.98) <= 23


# Latency


def test_latency_is_the_95th_percentile_of_best_of_three_times(monkeypatch):
    now = [0.0]
    asked = []

    def search(queries, k):
        asked.append((queries.shape, k))
        number, turn = divmod(len(asked) - 1, 3)
        now[0] += (number + 1) * 1e-3 * (1 if turn == 1 else 50)

    monkeypatch.setattr(choose, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    assert latency_ms(search, unit(250)) == pytest.approx(np.percentile(np.arange(1, 101), 95))
    assert asked == [((1, DIM), USUAL_K)] * 300
