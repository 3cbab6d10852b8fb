"""Independent components: separation of mixed sources, and the two conventions of scikit-learn."""

import numpy as np
import pytest

from ragembed.errors import ConfigError
from ragembed.papers.training.entries import ITERATIONS, independent_components


@pytest.fixture(scope="module")
def mixed():
    """Heavy-tailed sources and a mixture of them."""
    draw = np.random.default_rng(0)
    sources = draw.laplace(size=(2000, 4))
    return sources, (sources @ draw.normal(size=(4, 4)) + 3.0).astype(np.float32)


def test_mixed_sources_are_separated(mixed):
    sources, vectors = mixed
    found = independent_components(vectors, "unit-variance")
    matched = np.abs(np.corrcoef(sources.T, found.vectors.T)[:4, 4:])
    assert (matched.max(axis=1) > 0.99).all()
    assert found.converged
    assert 1 < found.iterations < ITERATIONS
    assert found.vectors.dtype == np.float32


def test_unit_variance_times_100(mixed):
    vectors = independent_components(mixed[1], "unit-variance").vectors
    np.testing.assert_allclose(vectors.std(axis=0), 100.0, rtol=1e-4)


def test_arbitrary_variance_is_smaller_by_the_root_of_entries(mixed):
    new = independent_components(mixed[1], "unit-variance").vectors
    old = independent_components(mixed[1], "arbitrary-variance").vectors
    np.testing.assert_allclose(np.linalg.norm(old, axis=0), 100.0, rtol=1e-4)
    np.testing.assert_allclose(new / old, np.sqrt(len(new)), rtol=1e-3)


def test_missing_convergence_is_reported(monkeypatch, mixed):
    monkeypatch.setattr("ragembed.papers.training.entries.ITERATIONS", 1)
    found = independent_components(mixed[1], "unit-variance")
    assert (found.iterations, found.converged) == (1, False)


def test_too_few_entries_or_directions_are_an_error(mixed):
    with pytest.raises(ConfigError, match="4 entries and vectors of 4 dimensions"):
        independent_components(mixed[1][:4], "unit-variance")
    flat = mixed[1].copy()
    flat[:, 2] = flat[:, 3] = flat[:, 0]
    with pytest.raises(ConfigError, match="vary in 2 of 4 directions"):
        independent_components(flat, "unit-variance")


def test_vectors_of_layer_normalisation_have_all_components(mixed):
    centred = mixed[1] - mixed[1].mean(axis=1, keepdims=True)
    normalised = (centred / centred.std(axis=1, keepdims=True)).astype(np.float32)
    found = independent_components(normalised, "unit-variance")
    np.testing.assert_allclose(found.vectors.std(axis=0), 100.0, rtol=1e-3)
