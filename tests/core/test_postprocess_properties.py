"""Properties of post-processors that hold for any vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ragembed.postprocess.quantile import Quantile
from ragembed.postprocess.steps import AllButTheTop, unit_rows

LEVELS = st.integers(-50, 50).map(float)  # few levels, so that ties occur


def grids(rows=(1, 30), columns=(1, 5)):
    shape = st.tuples(st.integers(*rows), st.integers(*columns))
    return npst.arrays(np.float32, shape, elements=LEVELS)


@st.composite
def scattered(draw):
    """Vectors of full rank with more rows than columns and different spreads and means."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    d = draw(st.integers(2, 6))
    x = rng.standard_normal((draw(st.integers(4 * d, 60)), d)) @ rng.standard_normal((d, d))
    return (x * rng.uniform(0.5, 2, d) + rng.uniform(-3, 3, d)).astype(np.float32)


@given(x=grids(rows=(1, 40)))
@pytest.mark.parametrize("output", ["uniform", "normal"])
def test_shares_do_not_depend_on_other_rows(output, x):
    kernel = Quantile(output).fit(x)
    alone = [kernel.transform(row[None])[0] for row in x]
    np.testing.assert_array_equal(kernel.transform(x), alone)


@given(x=scattered(), count=st.integers(1, 2))
def test_removed_directions_have_no_component(x, count):
    kernel = AllButTheTop(count).fit(x)
    out = kernel.transform(x)
    scale = np.abs(x).max()
    np.testing.assert_allclose(out @ kernel.directions_.T, 0, atol=1e-5 * scale)
    np.testing.assert_allclose(kernel.directions_ @ kernel.directions_.T, np.eye(count), atol=1e-10)
    lost = (x - x.mean(axis=0)).var(axis=0).sum() - out.var(axis=0).sum()
    top = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1][:count].sum()
    assert lost == pytest.approx(top, rel=1e-3, abs=1e-4)


@given(x=npst.arrays(np.float32, (5, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_normalize_is_idempotent(x):
    once = unit_rows(x)
    lengths = np.linalg.norm(once.astype(np.float64), axis=1)
    normal = np.abs(x).max(axis=1) > 1e-37  # float32 loses digits below it
    np.testing.assert_allclose(lengths[normal], 1, rtol=1e-6)
    np.testing.assert_allclose(unit_rows(once)[normal], once[normal], rtol=1e-6)
    assert (lengths[~x.any(axis=1)] == 0).all()
