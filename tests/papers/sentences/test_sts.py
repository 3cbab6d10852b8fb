import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import stats

from ragembed.errors import ConfigError
from ragembed.papers import cosines, pearson, spearman
from tests.papers.sentences.conftest import at_angles

VECTORS = npst.arrays(np.float32, (12, 3), elements=st.integers(-3, 3).map(float))
SCORES = npst.arrays(np.float64, 12, elements=st.integers(0, 5).map(float))


def between(degrees):
    """Return pairs of unit vectors with these angles between them, in degrees."""
    return np.tile([1.0, 0.0], (len(degrees), 1)), at_angles(degrees)


def test_cosines_by_hand():
    first = [[3.0, 4.0], [1.0, 0.0], [1.0, 1.0], [2.0, 0.0]]
    second = [[4.0, 3.0], [0.0, 5.0], [-2.0, -2.0], [1.0, np.sqrt(3.0)]]
    np.testing.assert_allclose(cosines(first, second), [0.96, 0.0, -1.0, 0.5], atol=1e-12)


def test_cosine_of_zero_vector_is_0():
    assert cosines([[0.0, 0.0], [1.0, 0.0]], [[1.0, 2.0], [0.0, 0.0]]).tolist() == [0.0, 0.0]


def test_float16_and_tiny_vectors_keep_their_cosines():
    assert cosines(np.array([[300.0, 400.0]], np.float16), np.array([[300.0, 400.0]], np.float16)).tolist() == [1.0]
    assert cosines(np.array([[1e-30, 0.0]], np.float32), np.array([[1e-30, 1e-30]], np.float32)) == pytest.approx(
        np.sqrt(0.5)
    )


@given(first=VECTORS, second=VECTORS, scores=SCORES)
def test_correlations_equal_scipy(first, second, scores):
    similarities = cosines(first, second)
    if np.ptp(similarities) == 0.0 or np.ptp(scores) == 0.0:
        with pytest.raises(ConfigError, match="are equal"):
            spearman(first, second, scores)
        return
    assert spearman(first, second, scores) == pytest.approx(100 * stats.spearmanr(similarities, scores)[0], abs=1e-6)
    assert pearson(first, second, scores) == pytest.approx(100 * stats.pearsonr(similarities, scores)[0], abs=1e-6)


def test_equal_pairs_tie_despite_rounding():
    vectors = np.random.default_rng(0).normal(size=(50, 384)).astype(np.float32)
    assert (cosines(vectors, vectors) == 1.0).all()


def test_very_small_and_large_scores_are_distinguished():
    first, second = between([0, 60, 90])
    assert pearson(first, second, [2e-200, 1e-200, 0.0]) == pytest.approx(100.0)
    assert pearson(first, second, [2e200, 1e200, 0.0]) == pytest.approx(100.0)


@pytest.mark.parametrize("measure", [spearman, pearson])
@pytest.mark.parametrize(
    ("first", "second", "scores", "message"),
    [
        (np.eye(3), np.eye(3)[:2], [1, 2, 3], r"shapes \(3, 3\) and \(2, 3\)"),
        (np.eye(3), np.eye(3)[:, :2], [1, 2, 3], "expected the same"),
        (np.eye(3), np.eye(3), [1, 2], "2 values for 3 rows"),
        (np.eye(3), np.eye(3), [1, 2, np.nan], "scores has nan at position 2"),
        (np.eye(3), np.eye(3), ["a", "b", "c"], "expected numbers"),
        (np.eye(3), np.eye(3), [[1, 2, 3]], r"scores has the shape \(1, 3\)"),
        (np.eye(3), np.eye(3)[[1, 2, 0]], [1, 2, 3], "all 3 predictions are equal"),
        (np.eye(2), [[1.0, 1.0], [0.0, 1.0]], [3, 3], "all 2 scores are equal"),
        (np.eye(1), np.eye(1), [3], "at least 2"),
        (np.zeros((0, 3)), np.zeros((0, 3)), [], "0 rows"),
        ([1.0, 2.0], [1.0, 2.0], [1, 2], r"the shape \(2,\): expected \(n, d\)"),
        ([[1.0], [np.inf]], [[1.0], [2.0]], [1, 2], "row 1 of the first array has NaN or infinity"),
        ([[1.0], [1.0]], [[np.nan], [2.0]], [1, 2], "row 0 of the second array has NaN or infinity"),
        ([["a"], ["b"]], [["a"], ["b"]], [1, 2], "expected numbers"),
    ],
)
def test_correlation_errors(measure, first, second, scores, message):
    with pytest.raises(ConfigError, match=message):
        measure(first, second, scores)
