import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import stats

from ragembed.errors import ConfigError
from ragembed.evaluation import paired_bootstrap, retrieval

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


@given(a=VALUES, b=VALUES)
def test_swapped_systems_have_opposite_difference(a, b):
    ours, theirs = paired_bootstrap(a, b, resamples=50), paired_bootstrap(b, a, resamples=50)
    assert ours.difference == -theirs.difference
    assert ours.low == pytest.approx(-theirs.high)
    assert ours.p_value == theirs.p_value
    assert ours.low - 1e-12 <= ours.high
    assert 0.0 < ours.p_value <= 1.0


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
