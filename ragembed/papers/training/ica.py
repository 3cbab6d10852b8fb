"""Independent components of the entry vectors (Liu 2024, section 3.2 and appendix A).

The columns are standardised, transformed with FastICA over all dimensions (log-cosh contrast), and multiplied by 100.
The paper scales by 100 "because typically after ICA-transformation, the dimensional values are approximately 1% of
original scale". This is true only for scikit-learn's ``arbitrary-variance``, where components have unit norm and values
are about ``1/sqrt(n)`` for ``n`` entries. The authors' program uses the current default, ``unit-variance``, with values
larger by the factor ``sqrt(n)``.

If the last layer ends with layer normalisation, as in BERT, the vectors have no variance in one of ``d`` directions.
This direction contains only rounding errors, and whitening enlarges them to the scale of the other components. The
authors' program has the same property. It concerns one of ``d`` components, whose values may differ between machines.
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
from ragembed.papers.training.settings import Ica

SCALE = 100.0
ITERATIONS = 1000
_SEED = 42
_ROUNDING = 1e-5  # relative to the largest spread; a direction with less contains only float32 rounding errors


@dataclass(frozen=True, slots=True)
class Components:
    """The transformed vectors (float32 of shape ``(n, d)``), the number of iterations, and whether they converged."""

    vectors: NDArray[np.float32]
    iterations: int
    converged: bool


def require_entries(entries: int, dimensions: int) -> None:
    """Raise :class:`ConfigError` unless there are more entries than dimensions."""
    if entries <= dimensions:
        raise ConfigError(
            f"there are {entries:,} entries and vectors of {dimensions} dimensions: independent components need more "
            "entries than dimensions; set ica to 'none'"
        )


def independent_components(vectors: NDArray[np.float32], convention: Ica) -> Components:
    """Return the independent components of ``vectors``, shape ``(n, d)``.

    ``convention`` is the scaling in scikit-learn's terms. Like the authors' program, the function uses the result after
    :data:`ITERATIONS` iterations even if it has not converged. Raises :class:`ConfigError` if there are not more rows
    than columns, or the rows vary in fewer than ``d - 1`` directions.
    """
    rows, columns = vectors.shape
    require_entries(rows, columns)
    scaled = StandardScaler().fit_transform(vectors.astype(np.float64))
    spread = np.sqrt(np.maximum(np.linalg.eigvalsh(scaled.T @ scaled), 0.0))
    varying = int((spread > _ROUNDING * spread[-1]).sum())
    if varying < columns - 1:
        raise ConfigError(
            f"the entry vectors vary in {varying} of {columns} directions: independent components need at least "
            f"{columns - 1}; set ica to 'none'"
        )
    transform = FastICA(fun="logcosh", max_iter=ITERATIONS, random_state=_SEED, whiten=convention)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", ConvergenceWarning)
        found = transform.fit_transform(scaled)
    stopped = any(issubclass(each.category, ConvergenceWarning) for each in raised)
    return Components((SCALE * found).astype(np.float32), int(transform.n_iter_), not stopped)
