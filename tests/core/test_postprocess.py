import numpy as np
import pytest

from ragembed.errors import NotFittedError
from ragembed.postprocess import Chain, TwoSidedChain, unit_rows

X = np.array([[1, 2, 5], [3, 2, 1], [5, 2, 0]], dtype=np.float32)


def test_center():
    assert Chain(["center"]).fit(X).transform(X).tolist() == [[-2, 0, 3], [0, 0, -1], [2, 0, -2]]


def test_zscore_uses_population_deviation_and_only_centres_a_constant_dimension():
    out = Chain(["zscore"]).fit(X).transform(X)
    np.testing.assert_allclose(out, [[-1.224745, 0, 1.388730], [0, 0, -0.462910], [1.224745, 0, -0.925820]], rtol=1e-5)


def test_a_dimension_that_is_constant_up_to_rounding_is_not_blown_up():
    x = np.full((50, 1), 0.1, dtype=np.float32)
    x[::2] = np.nextafter(np.float32(0.1), np.float32(1))
    assert np.abs(Chain(["zscore"]).fit(x).transform(x)).max() < 1e-6


def test_normalize_keeps_a_zero_row():
    assert unit_rows(np.array([[3, 4], [0, 0]], dtype=np.float32)).tolist() == [
        [pytest.approx(0.6), pytest.approx(0.8)],
        [0, 0],
    ]


def test_each_step_is_fitted_on_what_the_one_before_gives():
    chain = Chain(["normalize", "center"]).fit(X)
    np.testing.assert_allclose(chain.transform(X).mean(axis=0), 0, atol=1e-7)


def test_two_sides_are_fitted_apart():
    queries = X + 10
    chain = TwoSidedChain.fit(["center"], X, queries)
    np.testing.assert_allclose(chain.documents.transform(X), chain.queries.transform(queries), atol=1e-6)
    one = TwoSidedChain.fit(["center"], X, None)
    assert one.queries is one.documents


@pytest.mark.parametrize("names", [["center"], ["zscore", "normalize"], ["normalize"], []])
@pytest.mark.parametrize("two", [True, False])
def test_state_round_trip(names, two):
    chain = TwoSidedChain.fit(names, X, X * 2 if two else None)
    back = TwoSidedChain.restore(names, chain.state(), two)
    for side in ("documents", "queries"):
        np.testing.assert_array_equal(getattr(back, side).transform(X), getattr(chain, side).transform(X))


def test_missing_state_is_named():
    with pytest.raises(NotFittedError, match="'mean'"):
        Chain(["center"]).restore({})


def test_output_is_float32_c_order():
    out = Chain([]).fit(X).transform(np.asfortranarray(X.astype(np.float64)))
    assert out.dtype == np.float32
    assert out.flags.c_contiguous
