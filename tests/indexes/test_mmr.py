"""Maximal marginal relevance: by hand, and against a reference implementation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError
from ragembed.indexes import Store
from ragembed.indexes.search.ranking import mmr
from ragembed.postprocess import unit_rows
from tests.conftest import KnownEncoder, record


def at_angles(*degrees):
    return np.array([[math.cos(math.radians(a)), math.sin(math.radians(a))] for a in degrees], dtype=np.float32)


def direct_mmr(query, vectors, k, lambda_mult):
    """The formula of Carbonell & Goldstein in double precision."""
    query, vectors = query.astype(float), vectors.astype(float)
    chosen = []
    while len(chosen) < min(k, len(vectors)):
        scores = {
            i: lambda_mult * (vectors[i] @ query)
            - (1 - lambda_mult) * max((vectors[i] @ vectors[j] for j in chosen), default=0.0)
            for i in range(len(vectors))
            if i not in chosen
        }
        chosen.append(max(scores, key=scores.get))
    return chosen


EAST = at_angles(0)[0]


def test_mmr_prefers_the_first_of_equals():
    assert mmr(EAST, at_angles(20, -20, 20, -20), 4, 0.5) == [0, 1, 2, 3]
    assert mmr(EAST, at_angles(5, 5, 5), 3, 1.0) == [0, 1, 2]
    assert mmr(EAST, np.zeros((0, 2), dtype=np.float32), 3, 0.5) == []


@given(st.integers(0, 12), st.integers(0, 15), st.integers(1, 10), st.integers(0, 10**6))
def test_mmr_equals_the_reference(count, k, tenths, seed):
    draw = np.random.default_rng(seed)
    vectors, query = (unit_rows(draw.normal(size=(n, 6)).astype(np.float32)) for n in (count, 1))
    chosen = mmr(query[0], vectors, k, tenths / 10)
    assert chosen == direct_mmr(query[0], vectors, k, tenths / 10)


# In a store


@pytest.fixture
def plane(tmp_path):
    table = {f"at {a}": at_angles(a)[0].tolist() for a in (12, -30, 10)} | {"east": [1.0, 0.0]}
    store = Store.create(tmp_path / "s", KnownEncoder(table))
    store.add([record(str(a), f"at {a}", metadata={"angle": a}) for a in (12, -30, 10)])
    return store


def ids(hits):
    return [hit.id for hit in hits]


def test_search_mmr_returns_hits_in_order_of_choice(plane):
    hits = plane.search_mmr("east", 3)
    assert ids(hits) == ["10", "-30", "12"]
    assert [hit.score for hit in hits] == pytest.approx([math.cos(math.radians(a)) for a in (10, 30, 12)], abs=1e-3)
    assert [hit.score for hit in hits] == [hit.dense for hit in hits]
    assert all(hit.lexical is None for hit in hits)
    assert ids(plane.search_mmr("east", 2)) == ["10", "-30"]
    assert ids(plane.search_mmr("east", 3, lambda_mult=1.0)) == ["10", "12", "-30"]


def test_search_mmr_chooses_from_the_nearest_and_the_selected(plane):
    assert ids(plane.search_mmr("east", 2, fetch_k=2)) == ["10", "12"]
    assert ids(plane.search_mmr("east", 2, fetch_k=0)) == ["10", "12"]
    assert ids(plane.search_mmr("east", 10**6, fetch_k=10**6)) == ["10", "-30", "12"]
    assert ids(plane.search_mmr("east", 3, where="angle > 0")) == ["10", "12"]
    assert plane.search_mmr("east", 3, where="angle > 90") == []


@pytest.mark.parametrize("lambda_mult", [-0.01, math.nan])
def test_lambda_out_of_range_is_refused(plane, lambda_mult):
    with pytest.raises(ConfigError, match=r"lambda_mult is .*: expected a number from 0 \(unlike each other\) to 1"):
        plane.search_mmr("east", 3, lambda_mult=lambda_mult)
