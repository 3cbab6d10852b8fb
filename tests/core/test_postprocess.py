"""Post-processors on small arrays with results worked out by hand, and on degenerate arrays."""

import numpy as np
import pytest

from ragembed.errors import ConfigError, NotFittedError, RankError
from ragembed.postprocess.chain import post_processor
from ragembed.postprocess.quantile import Quantile
from ragembed.postprocess.steps import AllButTheTop, Center, CommonComponents, Robust, Whiten, ZScore

SPECS = ("center", "zscore", "quantile-u", "quantile-n", "robust", "whiten", "normalize")
X = np.array([[1, 2, 5], [3, 2, 1], [5, 2, 0]], dtype=np.float32)
# Variances 8 and 2 (n - 1) along the diagonals of the plane, 0 along the third axis.
CROSS = np.array([[2, 2, 7], [-2, -2, 7], [1, -1, 7], [-1, 1, 7]], dtype=np.float32) * np.sqrt(1.5).astype(np.float32)


def fitted(kernel, x):
    return kernel.fit(x).transform(x)


# Results worked out by hand


def test_zscore_only_centres_a_constant_dimension():
    expected = [[-1.224745, 0, 1.388730], [0, 0, -0.462910], [1.224745, 0, -0.925820]]
    np.testing.assert_allclose(fitted(ZScore(), X), expected, rtol=1e-5)


def test_robust_only_centres_a_constant_dimension():
    x = np.array([[1, 4], [2, 4], [3, 4], [4, 4], [1000, 4]], dtype=np.float32)
    assert fitted(Robust(), x).tolist() == [[-1, 0], [-0.5, 0], [0, 0], [0.5, 0], [498.5, 0]]


def test_outlier_does_not_make_quartiles_equal():
    x = np.array([[0.1], [0.2], [0.3], [0.4], [1e9]], dtype=np.float32)
    np.testing.assert_allclose(fitted(Robust(), x)[:4, 0], [-1, -0.5, 0, 0.5], atol=1e-6)


@pytest.mark.parametrize("spec", ["zscore", "robust", "whiten"])
def test_dimension_that_is_constant_up_to_rounding_is_not_scaled(spec):
    x = np.full((50, 1), 0.1, dtype=np.float32)
    x[::2] = np.nextafter(np.float32(0.1), np.float32(1))
    assert np.abs(fitted(post_processor(spec), x)).max() < 1e-6


def test_quantile_rejects_an_unknown_output():
    with pytest.raises(ConfigError, match="'uniform' or 'normal'"):
        Quantile("gaussian")


def test_whiten_rejects_more_directions_than_the_rank():
    with pytest.raises(ConfigError, match=r"whiten:3 needs more directions than the rank .*, 2 .*write whiten:2"):
        Whiten(3).fit(CROSS)
    with pytest.raises(ConfigError, match=r"the rank of the fitted vectors, 0 .*write whiten, or"):
        Whiten(1).fit(CROSS[:1])
    with pytest.raises(ConfigError, match="at least 1"):
        Whiten(0)


def test_whiten_of_equal_vectors_only_centres():
    kernel = Whiten().fit(np.full((4, 2), 3, dtype=np.float32))
    assert kernel.transform(np.array([[3, 3], [4, 1]], dtype=np.float32)).tolist() == [[0, 0], [1, -2]]


def test_whiten_of_fewer_vectors_than_dimensions():
    x = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    out = fitted(Whiten(), x)
    assert out.shape == (5, 4)
    np.testing.assert_allclose(out.T @ out / 4, np.eye(4), atol=1e-5)


def test_abtt_rejects_more_directions_than_the_rank():
    with pytest.raises(ConfigError, match=r"abtt:3 .* rank of the fitted vectors, 2 .*write abtt:2"):
        AllButTheTop(3).fit(CROSS)
    with pytest.raises(ConfigError, match=r"rank of the fitted vectors, 0 .*write center"):
        AllButTheTop(2).fit(CROSS[:1])
    with pytest.raises(ConfigError, match="at least 1"):
        AllButTheTop(0)


# Degenerate input


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "x",
    [
        np.array([[1, 2, 3]], dtype=np.float32),
        np.full((5, 3), 0.1, dtype=np.float32),
        np.zeros((5, 3), dtype=np.float32),
        np.array([[0, 1, 2], [0, 1, 2.5]], dtype=np.float32),
    ],
    ids=["one row", "all alike", "zeros", "constant dimensions"],
)
def test_degenerate_fit_gives_finite_vectors(spec, x):
    kernel = post_processor(spec).fit(x)
    for rows in (x, x + 1, np.zeros_like(x)):
        assert np.isfinite(kernel.transform(rows)).all()


@pytest.mark.parametrize("spec", [*SPECS, "abtt:2"])
def test_empty_input_gives_empty_output(spec):
    kernel = post_processor(spec).fit(X)
    assert kernel.transform(X[:0]).shape == (0, kernel.transform(X).shape[1])
    with pytest.raises(ConfigError, match=r"shape \(0, 3\)"):
        kernel.fit(X[:0])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_values_are_rejected(value):
    with pytest.raises(ConfigError, match="NaN or infinity"):
        Center().fit(np.array([[value, 1]], dtype=np.float32))


@pytest.mark.parametrize("spec", [*SPECS, "abtt:2", "whiten:2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_output_is_float32_in_c_order(spec, dtype):
    kernel = post_processor(spec).fit(X.astype(dtype))
    out = kernel.transform(np.asfortranarray(X.astype(dtype)))
    assert out.dtype == np.float32
    assert out.flags.c_contiguous
    np.testing.assert_allclose(out, kernel.transform(X), atol=1e-6)


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec != "normalize"])
def test_transform_before_fit_and_with_another_dimension(spec):
    kernel = post_processor(spec)
    assert kernel.dims is None
    with pytest.raises(NotFittedError, match="call fit"):
        kernel.transform(X)
    with pytest.raises(NotFittedError, match="call fit"):
        kernel.state()
    with pytest.raises(ConfigError, match=r"2 dimensions: .* was fitted on 3"):
        kernel.fit(X).transform(X[:, :2])


def test_common_removes_the_first_singular_vectors_of_the_uncentred_matrix():
    vectors = np.random.default_rng(5).normal(size=(40, 6)).astype(np.float32) + np.float32(2.0)
    _, values, directions = np.linalg.svd(vectors.astype(np.float64), full_matrices=False)
    plain, weighted = CommonComponents(1).fit(vectors), CommonComponents(3, weighted=True).fit(vectors)
    pc = directions[:1]
    assert plain.transform(vectors) == pytest.approx(vectors - vectors @ pc.T @ pc, abs=1e-5)
    shares = values[:3] ** 2 / (values[:3] ** 2).sum()
    expected = vectors - sum(share * np.outer(vectors @ pc, pc) for share, pc in zip(shares, directions, strict=False))
    assert weighted.transform(vectors) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(RankError, match=r"common:2 needs more directions than the rank .* 1 .*: write common:1"):
        CommonComponents(2).fit(np.ones((5, 3), dtype=np.float32))
    with pytest.raises(ConfigError, match="common-weighted:0 removes 0 directions"):
        CommonComponents(0, weighted=True)
