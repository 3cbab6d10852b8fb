"""The planes of figures 1 and 2, compared with NumPy's SVD."""

import numpy as np
import pytest

from ragembed.papers.training.pictures import pca_plane, svd_plane


@pytest.fixture
def vectors():
    draw = np.random.default_rng(0)
    return (draw.normal(size=(50, 6)) * [3, 2, 1, 1, 0.5, 0.1] + 1.0).astype(np.float32)


def test_planes_match_singular_vectors(vectors):
    left, values, _ = np.linalg.svd(vectors.astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(np.abs(svd_plane(vectors)), np.abs(left * values)[:, :2], atol=1e-6)
    left, _, _ = np.linalg.svd(vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64), full_matrices=False)
    np.testing.assert_allclose(np.abs(pca_plane(vectors)), np.abs(left[:, :2]) * np.sqrt(50), atol=1e-6)
