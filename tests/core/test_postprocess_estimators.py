"""The scikit-learn transformers: scikit-learn's estimator checks, and equality with its own transformers."""

import subprocess
import sys
import tempfile

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.preprocessing import Normalizer, QuantileTransformer, RobustScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ragembed.postprocess import (
    AllButTheTopEstimator,
    CenterEstimator,
    NormalizeEstimator,
    QuantileEstimator,
    RobustEstimator,
    WhitenEstimator,
    ZScoreEstimator,
)
from ragembed.postprocess.chain import Chain

ESTIMATORS = {
    "center": CenterEstimator(),
    "zscore": ZScoreEstimator(),
    "quantile-u": QuantileEstimator(),
    "quantile-n": QuantileEstimator(output="normal"),
    "robust": RobustEstimator(),
    "whiten": WhitenEstimator(),
    "whiten:1": WhitenEstimator(components=1),
    "abtt:2": AllButTheTopEstimator(),
    "abtt:1": AllButTheTopEstimator(directions=1),
    "normalize": NormalizeEstimator(),
}
RNG = np.random.default_rng(0)
X = (RNG.standard_normal((300, 8)) @ RNG.standard_normal((8, 8)) + RNG.uniform(-2, 2, 8)).astype(np.float32)
NEW = X[:40] * 1.5 + 0.1


# Array API input is not supported: ragembed works on NumPy arrays.
@parametrize_with_checks(list({type(estimator): estimator for estimator in ESTIMATORS.values()}.values()))
def test_scikit_learn_estimator_checks(estimator, check):
    if getattr(check, "func", check).__name__ != "check_array_api_input":
        check(estimator)


@pytest.mark.parametrize("spec", ESTIMATORS)
def test_estimators_equal_post_processors(spec):
    estimator = clone(ESTIMATORS[spec]).fit(X)
    out = estimator.transform(NEW)
    np.testing.assert_array_equal(out, Chain([spec]).fit(X).transform(NEW))
    assert out.dtype == np.float32
    assert len(estimator.get_feature_names_out()) == out.shape[1]


def test_feature_names():
    names = [f"x{i}" for i in range(8)]
    assert ZScoreEstimator().fit(X).get_feature_names_out(names).tolist() == names
    whiten = WhitenEstimator(components=2).fit(X)
    assert whiten.get_feature_names_out().tolist() == ["whitenestimator0", "whitenestimator1"]


# Equality with scikit-learn


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (CenterEstimator(), StandardScaler(with_std=False)),
        (ZScoreEstimator(), StandardScaler()),
        (RobustEstimator(), RobustScaler()),
        (WhitenEstimator(), PCA(whiten=True, svd_solver="full")),
        (WhitenEstimator(components=3), PCA(n_components=3, whiten=True, svd_solver="covariance_eigh")),
        (NormalizeEstimator(), Normalizer()),
    ],
    ids=["center", "zscore", "robust", "whiten", "whiten:3", "normalize"],
)
def test_results_equal_scikit_learn(ours, theirs, dtype):
    x, new = X.astype(dtype), NEW.astype(dtype)
    # The reference runs in float64, because its float32 rounding exceeds the tolerance.
    expected = clone(theirs).fit(X.astype(np.float64)).transform(NEW.astype(np.float64))
    np.testing.assert_allclose(clone(ours).fit(x).transform(new), expected, atol=1e-6 * np.abs(expected).max())


def reference(x, output):
    return QuantileTransformer(n_quantiles=min(1000, len(x)), subsample=None, output_distribution=output).fit(x)


@pytest.mark.parametrize("output", ["uniform", "normal"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 7, 1000, 1001])
def test_quantiles_equal_scikit_learn(n, dtype, output):
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, 7))
    x[:, 1] = np.round(x[:, 1])  # ties
    x[:, 2] = 0.25  # constant
    x[:, 3] = np.where(x[:, 3] > 0, 5.0, x[:, 3])  # ties at the upper bound
    x[:, 4] = np.where(x[:, 4] < 0, -7.0, x[:, 4])  # ties at the lower bound
    x[:, 5] = np.exp(4 * x[:, 5])  # a long tail
    x[:, 6] = 1000 + 1e-3 * x[:, 6]  # neighbouring values of float32
    x = x.astype(dtype)
    new = np.vstack([x, x * 1.5, x + dtype(1e-7), rng.uniform(-10, 10, (50, 7)).astype(dtype)])
    ours, theirs = QuantileEstimator(output=output).fit(x), reference(x, output)
    np.testing.assert_array_equal(ours.kernel_.quantiles_.T, theirs.quantiles_)
    np.testing.assert_allclose(ours.transform(new), theirs.transform(new), rtol=0, atol=1e-6)


# Imports


def test_only_estimators_import_scikit_learn():
    code = (
        "import sys, numpy as np\n"
        "from ragembed.postprocess import Chain\n"
        "x = np.eye(3, dtype=np.float32)\n"
        "Chain(['center', 'zscore', 'robust', 'quantile-u', 'quantile-n', 'abtt:1', 'whiten', 'normalize'])"
        ".fit(x).transform(x)\n"
        "assert not {'sklearn', 'scipy'} & set(sys.modules)\n"
        "from ragembed.postprocess import ZScoreEstimator\n"
        "assert 'sklearn' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tempfile.gettempdir())
