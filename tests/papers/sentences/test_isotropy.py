import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.spatial.distance import pdist
from scipy.special import logsumexp

from ragembed.errors import ConfigError
from ragembed.papers import alignment, iso_score, uniformity
from ragembed.papers.sentences import isotropy

POINTS = npst.arrays(np.float32, st.tuples(st.integers(2, 20), st.integers(2, 5)), elements=st.floats(-9, 9, width=32))


def as_published(vectors):
    """Compute algorithm 1 of Rudman et al. 2022 from the variances of the principal components."""
    variances = np.linalg.eigvalsh(np.cov(vectors.astype(np.float64), rowvar=False))
    d = len(variances)
    normed = np.sqrt(d) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(normed - 1.0) / np.sqrt(2.0 * (d - np.sqrt(d)))
    used = (d - defect**2 * (d - np.sqrt(d))) ** 2 / d**2
    return (d * used - 1.0) / (d - 1.0)


@given(POINTS)
def test_iso_score_equals_published_algorithm(points):
    if np.ptp(points, axis=0).max() < 1e-3:
        return
    assert iso_score(points) == pytest.approx(as_published(points), abs=1e-6)
    assert -1e-9 <= iso_score(points) <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.full((5, 3), 0.1, dtype=np.float32), "all 5 vectors are equal"),
        (np.array([[1.0], [2.0]]), "1 dimension"),
        (np.ones((1, 3)), "1 rows: expected at least 2"),
        (np.ones((0, 3)), "0 rows"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), "row 1 of vectors has NaN"),
    ],
)
def test_iso_score_needs_variance(vectors, message):
    with pytest.raises(ConfigError, match=message):
        iso_score(vectors)


def test_alignment_by_hand():
    assert alignment([[0.0, 0.0], [1.0, 1.0]], [[3.0, 4.0], [1.0, 2.0]]) == pytest.approx((25.0 + 1.0) / 2.0)
    assert alignment([[5.0, 5.0]], [[5.0, 5.0]]) == 0.0


def test_alignment_needs_pairs():
    with pytest.raises(ConfigError, match="expected the same"):
        alignment(np.ones((2, 2)), np.ones((3, 2)))
    with pytest.raises(ConfigError, match="0 rows"):
        alignment(np.ones((0, 2)), np.ones((0, 2)))
    with pytest.raises(ConfigError, match="NaN"):
        alignment([[np.nan]], [[0.0]])


def test_uniformity_of_distant_vectors_does_not_underflow():
    assert uniformity([[0.0], [1000.0]]) == pytest.approx(-2e6)
    assert uniformity([[0.0], [1000.0], [3000.0]]) == pytest.approx(-2e6 - np.log(3.0))


@pytest.mark.parametrize("cells", [1, 40, 1 << 21])
@given(points=POINTS, t=st.floats(0.1, 4.0))
def test_uniformity_in_blocks_equals_all_pairs(cells, points, t):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isotropy, "_BLOCK_CELLS", cells)
        reached = uniformity(points, t)
    exponents = -t * pdist(points.astype(np.float64), "sqeuclidean")
    assert reached == pytest.approx(logsumexp(exponents) - np.log(len(exponents)), abs=1e-9, rel=1e-9)
