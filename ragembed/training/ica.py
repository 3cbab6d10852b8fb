"""Independent components of the entry vectors (Liu 2024, sections 3.2 and appendix A).

Standardised columns, FastICA over all dimensions with the log-cosh contrast, times 100. The paper scales by 100
"because typically after ICA-transformation, the dimensional values are approximately 1% of original scale". This is so
of scikit-learn's ``arbitrary-variance`` alone: components of unit norm, so that values are about ``1/sqrt(n)`` for
``n`` entries. The authors' program runs with the present default, ``unit-variance``: values ``sqrt(n)`` times larger.

A last layer that ends in layer normalisation, as BERT's does, leaves its vectors no variance in one of the d
directions. What there is of it is rounding, which whitening enlarges to a component like the others. The authors'
program does so, too; it is one component of d, but its values may differ between machines.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from ragembed.errors import ConfigError
from ragembed.training.settings import Ica

SCALE = 100.0
ITERATIONS = 1000
_SEED = 42
_ROUNDING = 1e-5  # of the largest spread, below which a direction of float32 vectors holds rounding alone


@dataclass(frozen=True, slots=True)
class Components:
    """The transformed vectors, float32, shape ``(n, d)``, the iterations taken, and whether they converged."""

    vectors: NDArray[np.float32]
    iterations: int
    converged: bool


def require_entries(entries: int, dimensions: int) -> None:
    """Raise :class:`ConfigError` where there are no more entries than dimensions."""
    if entries <= dimensions:
        raise ConfigError(
            f"{entries:,} entries, vectors of {dimensions} dimensions: independent components need more entries than "
            "dimensions; choose ica none"
        )


def independent_components(vectors: NDArray[np.float32], convention: Ica) -> Components:
    """Return the independent components of ``vectors``, shape ``(n, d)``, in scikit-learn's ``convention``.

    After :data:`ITERATIONS` it stops where it is, as the authors' program does. Raises :class:`ConfigError` where there
    are no more rows than columns, or the rows vary in fewer than ``d - 1`` directions.
    """
    rows, columns = vectors.shape
    require_entries(rows, columns)
    scaled = StandardScaler().fit_transform(vectors.astype(np.float64))
    spread = np.sqrt(np.maximum(np.linalg.eigvalsh(scaled.T @ scaled), 0.0))
    varying = int((spread > _ROUNDING * spread[-1]).sum())
    if varying < columns - 1:
        raise ConfigError(
            f"the entry vectors vary in {varying} of {columns} directions: independent components need all of them, "
            "but for the one that layer normalisation takes; choose ica none"
        )
    transform = FastICA(fun="logcosh", max_iter=ITERATIONS, random_state=_SEED, whiten=convention)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", ConvergenceWarning)
        found = transform.fit_transform(scaled)
    stopped = any(issubclass(each.category, ConvergenceWarning) for each in raised)
    return Components((SCALE * found).astype(np.float32), int(transform.n_iter_), not stopped)
