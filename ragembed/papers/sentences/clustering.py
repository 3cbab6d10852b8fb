"""Clustering: agreement of k-means clusters with labels.

Source: Stankevičius & Lukoševičius 2024, section 3.5.1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import Labels, at_least, labels, matrix
from ragembed.extras import needed_for
from ragembed.resources import processors

with needed_for("clustering"):
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

_INITIALISATIONS = 10


def clustering_accuracy(
    vectors: ArrayLike, true_labels: Labels, runs: int = 10, advance: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Return the accuracy of k-means with one cluster per label for points of shape ``(n, d)``, in per cent.

    Run ``i`` uses the best of 10 initialisations with ``random_state=i``; ``advance`` is called with 1 after each. The
    keys are ``accuracy``, which is the mean, ``runs``, their number, and ``run_accuracies``, those of each.
    """
    points = matrix(vectors, "vectors")
    label_names, codes = labels(true_labels, "labels", len(points))
    if len(label_names) < 2:
        raise ConfigError(f"all {len(points)} rows have the same label: expected at least 2 different labels")

    def accuracy(seed: int) -> float:
        means = KMeans(n_clusters=len(label_names), n_init=_INITIALISATIONS, random_state=seed)
        return assignment_accuracy(codes, means.fit_predict(points))

    accuracies = []
    # Several runs at once with one thread each are faster than one run with several threads, which wait for each other
    # after every step: on a busy processor, by a factor of 7.
    # OpenMP has one thread for each region that a thread of the pool starts.
    one_thread = partial(threadpool_limits, limits=1, user_api="openmp")
    pool = ThreadPoolExecutor(min(processors(), at_least(runs, 1, "runs")), initializer=one_thread)
    with pool, threadpool_limits(limits=1, user_api="blas"), warnings.catch_warnings():
        # k-means warns if it finds fewer clusters than requested.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for of_run in pool.map(accuracy, range(runs)):
            accuracies.append(of_run)
            if advance is not None:
                advance(1)
    return {"accuracy": float(np.mean(accuracies)), "runs": runs, "run_accuracies": accuracies}


def assignment_accuracy(true_labels: Labels, clusters: Labels) -> float:
    """Return the per cent of correct rows under the best assignment of clusters to labels (Hungarian method)."""
    label_names, rows = labels(true_labels, "labels")
    cluster_names, columns = labels(clusters, "clusters", len(rows))
    together = np.zeros((len(label_names), len(cluster_names)), dtype=np.int64)
    np.add.at(together, (rows, columns), 1)
    return float(100.0 * together[linear_sum_assignment(together, maximize=True)].sum() / len(rows))
