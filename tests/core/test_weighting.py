import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ragembed.pooling import weighted_sum
from ragembed.weighting import TokenStatistics, blend, count_tokens


def test_document_frequency_counts_texts_not_tokens():
    statistics = count_tokens([[3, 3, 3], [3, 4], []], vocabulary=6, always=[0])
    assert statistics.texts == 3
    assert statistics.document_frequency.tolist() == [3, 0, 0, 2, 1, 0]


def test_idf_is_the_papers():
    statistics = TokenStatistics(4, np.array([4, 2, 1, 0]))
    np.testing.assert_allclose(statistics.idf(), [0.0, np.log(2), np.log(4), np.log(4)], rtol=1e-6)


def test_blend_by_hand():
    idf = np.array([0.0, 1.0, 3.0], dtype=np.float32)
    ids = np.array([0, 1, 2, 2])
    np.testing.assert_allclose(blend(ids, idf, 1.0), [0, 1 / 7, 3 / 7, 3 / 7], rtol=1e-6)
    np.testing.assert_allclose(blend(ids, idf, 0.5), [1 / 8, 1 / 14 + 1 / 8, 3 / 14 + 1 / 8, 3 / 14 + 1 / 8], rtol=1e-6)
    np.testing.assert_allclose(blend(ids, idf, 0.0), [0.25] * 4)


def test_all_weights_zero_is_uniform():
    assert blend(np.array([0, 0]), np.zeros(1, dtype=np.float32), 1.0).tolist() == [0.5, 0.5]


@given(
    idf=npst.arrays(np.float32, 10, elements=st.floats(0, 12, width=32)),
    ids=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    share=st.floats(0, 1),
)
def test_weights_are_a_distribution(idf, ids, share):
    weights = blend(np.array(ids), idf, share)
    assert weights.sum() == pytest.approx(1.0, abs=1e-5)
    assert (weights >= 0).all()


def test_weighted_sum_ignores_padding():
    hidden = np.array([[[1, 2], [3, 4], [99, 99]]], dtype=np.float32)
    weights = np.array([[0.25, 0.75, 0.0]], dtype=np.float32)
    assert weighted_sum(hidden, weights).tolist() == [[2.5, 3.5]]
