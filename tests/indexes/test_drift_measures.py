"""Measures of drift against values computed by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.indexes.indexing import drift
from ragembed.indexes.indexing.drift import judge, unseen_tokens, weight_shift


def test_unseen_tokens():
    fitted, now = np.array([10, 1, 8, 1, 2, 0, 0]), np.array([4, 1, 2, 0, 1, 3, 4])
    unseen, expected, new = unseen_tokens(fitted, now, special=[0])
    assert unseen == pytest.approx(7 / 11)  # tokens 5 and 6 are in seven of the eleven pairs of a text and a token
    assert expected == pytest.approx(2 / 12)  # tokens 1 and 3 occur in one text of the fit each
    assert new == [6, 5]  # the most frequent first
    assert unseen_tokens(fitted, fitted, special=[0]) == (0, pytest.approx(2 / 12), [])


def test_weight_shift():
    fitted, now = np.array([1, 1, 0], dtype=np.float32), np.array([1, 3, 0], dtype=np.float32)
    texts = [np.array([0, 1]), np.array([1, 1]), np.array([], dtype=np.int64)]
    assert weight_shift(texts[:1], fitted, now, 1.0) == pytest.approx(0.25)  # from 1/2, 1/2 to 1/4, 3/4
    assert weight_shift(texts, fitted, now, 1.0) == pytest.approx(0.125)
    assert weight_shift(texts, fitted, now, 0.5) == pytest.approx(0.0625)
    assert weight_shift([], fitted, now, 1.0) == 0
    assert weight_shift([np.array([2, 1])], fitted, now, 1.0) == 0
    assert weight_shift([np.array([2, 2])], fitted, now, 1.0) == 0  # weights that are all 0 count as uniform


@given(st.lists(st.floats(0, 10, width=32), min_size=3, max_size=3), st.lists(st.integers(0, 2), max_size=9))
def test_weight_shift_is_at_most_one(weights, ids):
    fitted = np.array([1, 2, 3], dtype=np.float32)
    shift = weight_shift([np.array(ids, dtype=np.int64)], fitted, np.array(weights, dtype=np.float32), 1.0)
    assert -1e-9 <= shift <= 1 + 1e-6


@pytest.mark.parametrize(
    ("vectors", "added", "mean", "shift", "unfitted", "verdict"),
    [
        (1000, None, None, None, None, "keep"),
        (1000, 0, 0.0, 0.0, 0.0, "keep"),
        (1000, 500, drift.REFIT_ABOVE, drift.REBUILD_ABOVE, drift.UNSEEN_ABOVE, "keep"),
        (1000, 500, drift.REFIT_ABOVE + 0.01, 0.0, None, "refit"),
        (80, 40, 0.22, None, None, "keep"),  # chance moves the mean of so few by √(40 / (80 · 40)) = 0.11 spreads
        (80, 40, 0.23, None, None, "refit"),
        (80, 80, None, None, None, "refit"),  # all texts are new
        (1000, 500, 0.5, drift.REBUILD_ABOVE + 0.01, None, "rebuild"),
        (1000, 0, 0.0, None, drift.UNSEEN_ABOVE + 0.01, "rebuild"),
    ],
)
def test_verdict(vectors, added, mean, shift, unfitted, verdict):
    found, reasons = judge(vectors, added, mean, shift, unfitted)
    assert found == verdict
    assert bool(reasons) == (verdict != "keep")


def test_chance_does_not_ask_for_a_refit():
    draw = np.random.default_rng(0)
    moved = []
    for _ in range(500):
        kept, added = draw.normal(size=(40, 8)), draw.normal(size=(40, 8))
        spread = np.sqrt(kept.var(axis=0).sum())
        moved.append(np.linalg.norm(np.concatenate([kept, added]).mean(axis=0) - kept.mean(axis=0)) / spread)
    assert np.mean([judge(80, 40, each, None, None)[0] == "refit" for each in moved]) < 0.01
