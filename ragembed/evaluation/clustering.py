"""Clustering: how well the clusters of k-means agree with the labels.

Source: Stankevičius & Lukoševičius 2024, section 3.5.1.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import Labels, at_least, labels, matrix
from ragembed.extras import needed_for

with needed_for("clustering"):
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

_INITIALISATIONS = 10


@dataclass(frozen=True, slots=True)
class ClusteringScore:
    """The mean ``accuracy`` of the ``runs``, and theirs, in per cent."""

    accuracy: float
    runs: tuple[float, ...]


def clustering_accuracy(vectors: ArrayLike, true_labels: Labels, runs: int = 10) -> ClusteringScore:
    """Cluster ``vectors`` with k-means into as many clusters as there are labels, ``runs`` times, and compare.

    Run ``i`` takes the best of 10 initialisations drawn with ``random_state=i``. Where the vectors have fewer different
    values than there are labels, k-means finds fewer clusters, and the labels left over count as missed.

    Parameters
    ----------
    vectors
        Shape ``(n, d)``. Nothing is normalised here.
    true_labels
        The label of each row, shape ``(n,)``, strings or integers, at least two different ones.
    runs
        How many runs are averaged.

    Raises
    ------
    ConfigError
        Where lengths differ, values are not finite, or there is one label only.
    """
    points = matrix(vectors, "vectors")
    found, codes = labels(true_labels, "labels", len(points))
    if len(found) < 2:
        raise ConfigError(f"all {len(points)} rows have the same label: expected at least 2 different ones")
    accuracies = []
    for seed in range(at_least(runs, 1, "runs")):
        means = KMeans(n_clusters=len(found), n_init=_INITIALISATIONS, random_state=seed)
        with warnings.catch_warnings():
            # It says that fewer clusters than wanted were found.
            warnings.simplefilter("ignore", ConvergenceWarning)
            clusters = means.fit_predict(points)
        accuracies.append(assignment_accuracy(codes, clusters))
    return ClusteringScore(float(np.mean(accuracies)), tuple(accuracies))


def assignment_accuracy(true_labels: Labels, clusters: Labels) -> float:
    """Return the percentage of rows whose cluster stands for their label, under the best one-to-one assignment.

    The assignment of clusters to labels is the one that most rows agree with (Hungarian method). There may be more or
    fewer clusters than labels: what is left over stands for nothing.

    Parameters
    ----------
    true_labels, clusters
        The label and the cluster of each row, shape ``(n,)``, ``n >= 1``, strings or integers; names do not matter.
    """
    label_names, rows = labels(true_labels, "labels")
    cluster_names, columns = labels(clusters, "clusters", len(rows))
    together = np.zeros((len(label_names), len(cluster_names)), dtype=np.int64)
    np.add.at(together, (rows, columns), 1)
    return float(100.0 * together[linear_sum_assignment(together, maximize=True)].sum() / len(rows))
