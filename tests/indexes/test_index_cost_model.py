"""The kinds of index that fit a budget, and their order, for invented machines; and the records in a store."""

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError
from ragembed.indexes.faiss_index.choose import LATENCY_SLACK, LEAST_APPROXIMATE, ORDER, Machine, choose, cost
from ragembed.indexes.faiss_index.records import (
    LATENCY_MS,
    NAMES,
    RECALL,
    Budget,
    IndexConfig,
    IndexEvaluation,
    IndexSelection,
    parse_spec,
)

USUAL = Machine(0.1, 0.1, 8 * 1024**3)
FAST = Machine(0.01, 0.01, 8 * 1024**3)

sizes = st.integers(1, 10**9)
dims = st.integers(1, 4096)
memories = st.none() | st.integers(1, 10**13)
latencies = st.none() | st.floats(1e-3, 1e6)
budgets = st.builds(Budget, memories, latencies, st.none() | st.floats(0.01, 1.0))
machines = st.builds(Machine, st.floats(1e-3, 10), st.floats(1e-3, 10), st.integers(1, 10**12))


def names(options):
    return [option.spec.name for option in options]


def fitting(options):
    return [option.spec.name for option in options if option.obstacle is None]


# Properties of every choice


@given(sizes, dims, budgets, machines)
def test_every_kind_is_an_option(rows, dim, budget, machine):
    left_out = {"fp16", "flat"} if rows >= LEAST_APPROXIMATE else {"fp16"}
    assert sorted(names(choose(rows, dim, budget, machine))) == sorted(set(NAMES) - left_out)


@given(st.integers(1, LEAST_APPROXIMATE - 1), dims, budgets, machines)
def test_no_approximate_kind_is_chosen_below_50_000_vectors(rows, dim, budget, machine):
    options = choose(rows, dim, budget, machine)
    assert {options[0].spec.name, options[1].spec.name} == {"flat", "sq8"}
    for option in options[2:]:
        assert option.obstacle.startswith(f"approximate, which is chosen from 50,000 vectors on, not for {rows:,}")
        assert option.excess == math.inf


@given(sizes, dims, budgets, machines)
def test_fitting_kinds_come_first_then_kinds_by_excess(rows, dim, budget, machine):
    options = choose(rows, dim, budget, machine)
    fit = fitting(options)
    assert names(options)[: len(fit)] == [name for name in ORDER if name in fit]
    assert all(option.excess <= 1 and option.worth_trying for option in options[: len(fit)])
    rest = options[len(fit) :]
    assert all(option.excess > 1 for option in rest)
    for worth_trying in (True, False):
        excesses = [option.excess for option in rest if option.worth_trying is worth_trying]
        assert excesses == sorted(excesses)
    assert [option.worth_trying for option in rest] == sorted((o.worth_trying for o in rest), reverse=True)


@given(sizes, dims, budgets, machines)
def test_chosen_kinds_meet_memory_and_latency_limits(rows, dim, budget, machine):
    for option in choose(rows, dim, budget, machine):
        if not option.worth_trying:
            continue
        assert option.cost == cost(option.spec, rows, dim, machine)
        assert budget.max_memory is None or option.cost.bytes <= budget.max_memory * (1 + 1e-9)
        assert option.cost.building_bytes <= machine.memory * (1 + 1e-9)
        slack = 1.0 if option.spec.family == "exhaustive" else LATENCY_SLACK
        assert option.cost.latency_ms <= budget.wanted_latency_ms * slack


@given(sizes, dims, machines, st.integers(1, 10**13), st.floats(1e-3, 1e6), st.floats(1, 100))
def test_larger_budget_keeps_all_options(rows, dim, machine, memory, latency, factor):
    small = choose(rows, dim, Budget(memory, latency), machine)
    for wider in (
        Budget(math.ceil(memory * factor), latency),
        Budget(memory, latency * factor),
        Budget(None, latency),
    ):
        options = choose(rows, dim, wider, machine)
        assert set(fitting(small)) <= set(fitting(options))
        if fitting(small):
            assert ORDER.index(names(options)[0]) <= ORDER.index(names(small)[0])


@given(sizes, dims, budgets, machines)
def test_recall_limit_rules_out_no_kind_before_measuring(rows, dim, budget, machine):
    open_recall = Budget(budget.max_memory, budget.max_latency_ms)
    assert choose(rows, dim, budget, machine) == choose(rows, dim, open_recall, machine)


# Examples


@pytest.mark.parametrize(
    ("rows", "budget", "machine", "first"),
    [
        (49_999, Budget(), USUAL, "flat"),
        (49_999, Budget(max_latency_ms=1e-6), USUAL, "flat"),
        (49_999, Budget(max_memory=40 * 10**6), USUAL, "sq8"),
        (50_000, Budget(), USUAL, "sq8"),  # 50,000 x 384 x 0.1 ns are 2 ms
        (10**6, Budget(), FAST, "sq8"),
        (10**6, Budget(), USUAL, "ivf-sq8"),
        (10**6, Budget(max_latency_ms=50), USUAL, "sq8"),
        (10**6, Budget(max_memory=10**9), FAST, "sq8"),
        (10**6, Budget(max_memory=400 * 10**6), USUAL, "ivf-sq8"),
        (10**6, Budget(max_memory=200 * 10**6), USUAL, "ivf-pq"),
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


def test_costs_of_a_million_vectors():
    assert cost(parse_spec("flat"), 10**6, 384, USUAL).bytes == 10**6 * (4 * 384 + 8)
    assert cost(parse_spec("sq8"), 10**6, 384, USUAL).bytes == 10**6 * (384 + 8)
    assert cost(parse_spec("flat"), 10**6, 384, USUAL).latency_ms == pytest.approx(38.4)
    assert cost(parse_spec("ivf-pq"), 10**6, 384, USUAL).bytes == 10**6 * (96 + 8) + 4000 * 384 * 4
    assert cost(parse_spec("ivf"), 10**6, 384, USUAL).building_bytes == 0
    graph = cost(parse_spec("hnsw"), 10**6, 384, USUAL)
    assert graph.building_bytes == graph.bytes > cost(parse_spec("flat"), 10**6, 384, USUAL).bytes


# Budgets


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"max_memory": 0}, "max_memory is 0: expected more than 0"),
        ({"max_memory": -5}, "max_memory is -5"),
        ({"max_latency_ms": 0.0}, "max_latency_ms is 0.0"),
        ({"max_latency_ms": math.nan}, "max_latency_ms is nan"),
        ({"min_recall": 0}, "min_recall is 0: expected a share above 0 and up to 1"),
        ({"min_recall": 1.01}, r"min_recall is 1\.01"),
        ({"min_recall": 98}, "min_recall is 98"),
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


def test_small_budget_is_not_shown_as_zero():
    assert Budget(max_memory=300 * 1024).describe(defaults=False) == "0.31 MB"


# Records in a store


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


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
    made = kind.from_dict(kept()[kind])
    assert kind.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    assert made.describe()


@pytest.mark.parametrize("kind", [IndexConfig, IndexSelection, IndexEvaluation])
@given(data=st.data())
def test_invalid_records_raise_or_can_be_described(kind, data):
    values = kept()[kind]
    name = data.draw(st.sampled_from(sorted(values)))
    values[name] = data.draw(JSON)
    with contextlib.suppress(ConfigError):
        assert kind.from_dict(values).describe() is not None
