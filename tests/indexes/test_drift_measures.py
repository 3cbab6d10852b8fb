"""Measures of drift against values computed by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.extractors.weighting import TokenStatistics
from ragembed.indexes.indexing import drift
from ragembed.indexes.indexing.drift import (
    Vocabulary,
    chance_size,
    idf_shifts,
    judge,
    mean_shift,
    nearest,
    overlap,
    weight_shift,
)
from ragembed.postprocess.moments import Moments

TOKENS = ["[CLS]", "[UNK]", "wing", "flow", "##s", "heat"]


def statistics(texts, frequency, occurrences=None):
    frequency = np.array(frequency, dtype=np.int64)
    return TokenStatistics(texts, frequency, np.array(frequency if occurrences is None else occurrences))


def test_mean_shift_is_in_units_of_the_spread():
    fitted = Moments.of(np.array([[0, 0], [2, 0], [0, 2], [2, 2]], dtype=np.float32))
    np.testing.assert_array_equal(fitted.mean, [1, 1])
    assert (fitted.count, fitted.spread) == (4, pytest.approx(math.sqrt(2)))
    now = Moments.of(np.array([[4, 5]], dtype=np.float32))
    assert mean_shift(fitted, now) == pytest.approx(5 / math.sqrt(2))
    assert mean_shift(fitted, fitted) == 0
    assert mean_shift(now, fitted) == 0  # a single vector has no spread


def test_moments_do_not_depend_on_blocks():
    vectors = np.random.default_rng(0).normal(3, 2, (9000, 5)).astype(np.float32)
    moments = Moments.of(vectors)
    assert moments.spread == pytest.approx(math.sqrt(vectors.var(axis=0, dtype=np.float64).sum()))


def test_shares_of_tokens():
    fitted = statistics(10, [10, 1, 8, 1, 2, 0], [10, 1, 20, 1, 3, 0])
    now = statistics(4, [4, 1, 2, 0, 1, 4], [4, 2, 2, 0, 1, 5])
    found = Vocabulary.of(fitted, now, TOKENS, special=[0])
    assert found.unseen == pytest.approx(4 / 8)  # heat is in four of the eight pairs of a text and a token
    assert found.expected == pytest.approx(2 / 12)  # [UNK] and flow occur in one text each
    assert (found.unknown, found.unknown_fitted) == (pytest.approx(2 / 10), pytest.approx(1 / 25))
    assert (found.pieces, found.pieces_fitted) == (pytest.approx(1 / 10), pytest.approx(3 / 25))


def test_vocabulary_without_unknown_tokens_and_pieces():
    found = Vocabulary.of(statistics(2, [2, 1]), statistics(2, [1, 1]), ["wing", "flow"], special=[])
    assert (found.unknown, found.unknown_fitted, found.pieces, found.pieces_fitted) == (None, None, None, None)
    assert (found.unseen, found.expected) == (0, pytest.approx(1 / 3))


def test_largest_idf_shifts_come_first():
    fitted = statistics(100, [100, 0, 50, 10, 4, 0])
    now = statistics(100, [100, 0, 50, 40, 4, 30])
    heat, flow = idf_shifts(fitted, now, TOKENS, special=[0], count=5)
    assert (heat.token, flow.token) == ("heat", "flow")  # the idf of wing is unchanged, ##s is rare
    assert (heat.fitted, heat.now) == (pytest.approx(math.log(101)), pytest.approx(math.log(101 / 31)))
    assert flow.fitted - flow.now == pytest.approx(math.log(41 / 11))
    assert idf_shifts(fitted, now, TOKENS, special=[0], count=1) == (heat,)


def test_tokens_in_half_a_per_cent_of_the_texts_are_compared():
    fitted, now = statistics(10_000, [0, 49]), statistics(10_000, [0, 0])
    assert idf_shifts(fitted, now, ["a", "b"], special=[], count=5) == ()
    assert len(idf_shifts(statistics(10_000, [0, 50]), now, ["a", "b"], special=[], count=5)) == 1


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


def test_overlap_is_the_share_of_common_results():
    assert overlap(np.array([[1, 2, 3], [4, 5, 6]]), np.array([[3, 2, 1], [4, 7, 8]])) == pytest.approx(4 / 6)
    assert overlap(np.empty((0, 3), dtype=np.int64), np.empty((0, 3), dtype=np.int64)) == 1


@pytest.mark.parametrize(
    ("before", "now", "kept", "size"),
    [
        (100, 100, 100, 100),  # nothing changed
        (100, 110, 100, 100),  # only added: the old vectors
        (80, 50, 50, 36),  # only removed: 1/m = 2/50 - 1/80
        (100, 100, 50, 50),  # half replaced
        (90, 90, 0, 30),  # all replaced
        (0, 10, 0, 10),
        (1, 1, 0, 1),
    ],
)
def test_chance_size(before, now, kept, size):
    assert chance_size(before, now, kept) == size


def test_fits_on_a_part_of_chance_size_differ_like_samples():
    rng = np.random.default_rng(0)
    changed, by_chance = [], []
    for _ in range(4000):
        numbers = rng.normal(size=140)
        before, now = numbers[:80], numbers[40:140]  # 40 of 80 are kept, 60 are new
        changed.append(before.mean() - now.mean())
        by_chance.append(rng.choice(now, chance_size(80, 100, 40), replace=False).mean() - now.mean())
    assert np.std(by_chance) == pytest.approx(np.std(changed), rel=0.06)


def test_nearest_have_the_largest_products():
    rng = np.random.default_rng(1)
    queries, documents = (rng.normal(size=(n, 6)).astype(np.float32) for n in (150, 40))
    expected = np.argsort(-(queries @ documents.T), axis=1)[:, :10]
    np.testing.assert_array_equal(np.sort(nearest(queries, documents, 10)), np.sort(expected))
    assert nearest(queries, documents[:3], 10).shape == (150, 3)


@pytest.mark.parametrize(
    ("overlap", "chance", "shift", "unfitted", "verdict"),
    [
        (None, 1.0, None, None, "keep"),
        (1.0, 1.0, 0.0, 0.0, "keep"),
        (drift.REFIT_BELOW, 1.0, drift.REBUILD_ABOVE, drift.UNSEEN_ABOVE, "keep"),
        (drift.REFIT_BELOW - 0.01, 1.0, 0.0, None, "refit"),
        (drift.REFIT_BELOW - 0.01, 0.95, 0.0, None, "keep"),
        (0.1, 1.0, drift.REBUILD_ABOVE + 0.01, None, "rebuild"),
        (1.0, 1.0, None, drift.UNSEEN_ABOVE + 0.01, "rebuild"),
    ],
)
def test_verdict(overlap, chance, shift, unfitted, verdict):
    found, reasons = judge(overlap, chance, shift, unfitted)
    assert found == verdict
    assert bool(reasons) == (verdict != "keep")
    assert all("more than" in reason or "less than" in reason for reason in reasons)
