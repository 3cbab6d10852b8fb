"""The kinds of index that fit a budget, and their order, for invented machines; and the records in a store."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.config.fields import read_value
from ragembed.errors import ConfigError
from ragembed.indexes.faiss_index.choose import LEAST_APPROXIMATE, Machine, choose
from ragembed.indexes.faiss_index.records import (
    LATENCY_MS,
    RECALL,
    Budget,
    IndexConfig,
    IndexEvaluation,
    IndexSelection,
)

USUAL = Machine(0.1, 0.1, 8 * 1024**3)

dims = st.integers(1, 4096)
memories = st.none() | st.integers(1, 10**13)
latencies = st.none() | st.floats(1e-3, 1e6)
budgets = st.builds(Budget, memories, latencies, st.none() | st.floats(0.01, 1.0))
machines = st.builds(Machine, st.floats(1e-3, 10), st.floats(1e-3, 10), st.integers(1, 10**12))


def names(options):
    return [option.spec.name for option in options]


# Properties of every choice


@given(st.integers(1, LEAST_APPROXIMATE - 1), dims, budgets, machines)
def test_no_approximate_kind_is_chosen_below_50_000_vectors(rows, dim, budget, machine):
    options = choose(rows, dim, budget, machine)
    assert {options[0].spec.name, options[1].spec.name} == {"flat", "sq8"}
    for option in options[2:]:
        assert option.obstacle.startswith(f"approximate, which is chosen from 50,000 vectors on, not for {rows:,}")
        assert option.excess == math.inf


# Examples


@pytest.mark.parametrize(
    ("rows", "budget", "machine", "first"),
    [
        (49_999, Budget(), USUAL, "flat"),
        (50_000, Budget(), USUAL, "sq8"),  # 50,000 x 384 x 0.1 ns are 2 ms
        (10**6, Budget(), USUAL, "ivf-sq8"),
        (10**6, Budget(max_memory=10**6), USUAL, "ivf-pq"),  # nothing fits: the kind with the smallest excess
        (10**6, Budget(), Machine(0.1, 0.1, 10**8), "ivf-sq8"),  # too little memory to build a graph
        (10**9, Budget(max_latency_ms=5), Machine(0.1, 0.1, 10**13), "hnsw-sq8"),
        (300_000, Budget(max_latency_ms=1), USUAL, "ivf-sq8"),
        (300_000, Budget(max_latency_ms=0.3), USUAL, "hnsw-sq8"),  # lists may take too long, so the graph comes first
    ],
)
def test_first_kind_to_try(rows, budget, machine, first):
    assert names(choose(rows, 384, budget, machine))[0] == first


def test_obstacle_names_the_limit_and_the_value():
    obstacle = {option.spec.name: option.obstacle for option in choose(10**6, 384, Budget(10**9), USUAL)}
    assert obstacle["sq8"] == "about 38 ms a query, more than 30"
    assert obstacle["hnsw"] == "about 1,829 MB, more than 1,000"
    assert obstacle["hnsw-sq8"] is None
    small = {option.spec.name: option.obstacle for option in choose(10**6, 384, Budget(), Machine(0.1, 0.1, 10**8))}
    assert small["hnsw-sq8"] == "about 677 MB to build it, more than 100"


# Budgets


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"max_memory": 0}, "max_memory is 0: expected more than 0"),
        ({"max_latency_ms": 0.0}, "max_latency_ms is 0.0"),
        ({"min_recall": 0}, "min_recall is 0: expected a share above 0 and up to 1"),
        ({"min_recall": math.nan}, "min_recall is nan"),
    ],
)
def test_invalid_budget_raises(budget, message):
    with pytest.raises(ConfigError, match=message):
        Budget(**budget)


def test_budget_as_text():
    assert Budget().open
    assert not Budget(min_recall=RECALL).open
    assert Budget().describe() == "30 ms a query, recall@10 0.98"
    assert Budget().describe(defaults=False) == ""
    whole = Budget(500 * 10**6, 5.0, 0.9)
    assert whole.describe() == whole.describe(defaults=False) == "5 ms a query, 500 MB, recall@10 0.9"
    assert Budget(max_memory=2 * 10**9).describe(defaults=False) == "2,000 MB"
    assert (Budget().wanted_latency_ms, Budget().wanted_recall) == (LATENCY_MS, RECALL)


# Records in a store


def kept():
    store_index = {"kind": "ivf", "max_memory": 5, "max_latency_ms": 0.5, "min_recall": None}
    measurement = {"recall": {"mean": 0.9, "low": 0.8, "high": 1.0, "queries": 30}, "latency_ms": 1.0, "bytes": 10}
    choice = {"wanted": store_index, "kind": "ivf", "effort": 3, "rows": 9, "reasons": ["r"], "runner_up": None}
    return {
        IndexConfig: store_index,
        IndexSelection: {**choice, "built_on": "on the CPU"},
        IndexEvaluation: {"measurement": measurement, "date": "2026-01-01", "rows": 9, "segments": ["s"]},
    }


@pytest.mark.parametrize("kind", [IndexConfig, IndexSelection, IndexEvaluation])
def test_records_survive_a_round_trip(kind):
    made = read_value(kind, kept()[kind], "record")
    assert read_value(kind, json.loads(json.dumps(made.to_dict())), "record") == made
    assert made.describe()
