"""The bootstrap agrees with theory, the randomisation test with enumeration; comparisons of systems."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import stats

from ragembed.errors import ConfigError
from ragembed.evaluation import compare, paired_bootstrap, paired_randomisation, retrieval, score_rankings

VALUES = npst.arrays(np.float64, 15, elements=st.floats(0, 1))


def test_equal_systems_do_not_differ():
    result = paired_bootstrap([0.1, 0.5, 0.9], [0.1, 0.5, 0.9], resamples=100)
    assert (result.difference, result.low, result.high, result.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_two_queries_by_hand():
    """For the differences 0 and 1, a resampled mean is 0, ½ or 1 with probability ¼, ½, ¼; ½ is observed.

    Shifted by ½, the means are -½, 0 and ½: half of them are as far from 0 as the observed mean.
    """
    result = paired_bootstrap([1.0, 3.0], [1.0, 2.0])
    assert result.difference == 0.5
    assert (result.low, result.high) == (0.0, 1.0)
    assert result.p_value == pytest.approx(0.5, abs=0.02)


def test_bootstrap_agrees_with_normal_theory():
    generator = np.random.default_rng(0)
    a, b = generator.normal([[0.05], [0.02]], 0.2, size=(2, 400))
    result = paired_bootstrap(a, b)
    test = stats.ttest_rel(a, b)
    interval = test.confidence_interval(0.95)
    assert result.difference == pytest.approx(np.mean(a - b))
    assert result.low == pytest.approx(interval.low, abs=0.002)
    assert result.high == pytest.approx(interval.high, abs=0.002)
    assert result.p_value == pytest.approx(test.pvalue, abs=0.02)


def test_seed_makes_results_reproducible_in_blocks(monkeypatch):
    generator = np.random.default_rng(1)
    a, b = generator.uniform(size=(2, 30))
    whole = paired_bootstrap(a, b, resamples=100, seed=4)
    assert paired_bootstrap(a, b, resamples=100, seed=4) == whole
    assert paired_bootstrap(a, b, resamples=100, seed=5) != whole
    monkeypatch.setattr(retrieval, "_BLOCK_CELLS", 70)
    assert paired_bootstrap(a, b, resamples=100, seed=4) == whole


@pytest.mark.parametrize(
    ("a", "b", "resamples", "message"),
    [
        ([1.0], [0.0], 10, "got values for 1 queries: expected at least 2"),
        ([], [], 10, "got values for 0 queries"),
        ([1.0, 2.0], [1.0], 10, "1 values for 2 rows"),
        ([1.0, np.nan], [1.0, 1.0], 10, "a has nan at position 1"),
        ([1.0, 2.0], [1.0, 1.0], 0, "resamples is 0"),
    ],
)
def test_bootstrap_errors(a, b, resamples, message):
    with pytest.raises(ConfigError, match=message):
        paired_bootstrap(a, b, resamples)


SCORES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=9)


@given(SCORES)
def test_few_queries_use_all_exchanges(values):
    a, b = np.array(values, dtype=float).T
    differences = [int(x - y) for x, y in values]
    sums = [
        abs(sum(sign * each for sign, each in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    expected = sum(each >= abs(sum(differences)) for each in sums) / len(sums)
    assert paired_randomisation(a / 20, b / 20) == pytest.approx(expected)


def test_random_exchanges_agree_with_scipy():
    generator = np.random.default_rng(3)
    a = generator.random(40)
    b = a + generator.normal(0.03, 0.1, 40)
    theirs = stats.permutation_test(
        (a - b,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(1)
    ).pvalue
    assert paired_randomisation(a, b, draws=20_000) == pytest.approx(theirs, abs=0.01)


def test_p_value_of_equal_and_very_different_systems():
    assert paired_randomisation([0.3] * 50, [0.3] * 50) == 1.0
    assert paired_randomisation([1.0] * 50, [0.0] * 50, draws=999) == 1 / 1000
    assert paired_randomisation([1.0] * 4, [0.0] * 4) == 2 / 16


@pytest.mark.parametrize(("a", "b", "message"), [([1.0], [1.0, 2.0], "for 1 rows"), ([], [], "0: expected at least 1")])
def test_invalid_values_are_errors(a, b, message):
    with pytest.raises(ConfigError, match=message):
        paired_randomisation(a, b)


def test_compare_each_measure():
    relevance = {f"q{i}": {"a": 1} for i in range(12)}
    worse = score_rankings({query: ["x", "a"] for query in relevance}, relevance)
    better = score_rankings({query: ["a"] for query in relevance}, relevance)
    found = compare(worse, better)
    assert list(found) == ["ndcg@10", "recall@100", "mrr@10", "map"]
    mrr = found["mrr@10"]
    assert (mrr.first, mrr.second, mrr.difference, mrr.low, mrr.high) == (50.0, 100.0, 50.0, 50.0, 50.0)
    assert mrr.p_value == 2 / 2**12
    assert mrr.significant
    assert found["recall@100"].p_value == 1.0
    assert not found["recall@100"].significant
    assert compare(better, worse)["mrr@10"].difference == -50.0


def test_compare_different_queries_is_an_error():
    one, other = (score_rankings({}, {name: {"a": 1}, "c": {"a": 1}}) for name in "pq")
    with pytest.raises(ConfigError, match="scored on different queries"):
        compare(one, other)
