from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from ragembed.errors import ConfigError
from ragembed.papers import assignment_accuracy, clustering_accuracy


def blobs(per_cluster=20, clusters=3, spread=0.01):
    generator = np.random.default_rng(1)
    centres = 10.0 * np.eye(clusters)
    points = np.concatenate([centre + spread * generator.normal(size=(per_cluster, clusters)) for centre in centres])
    return points.astype(np.float32), np.repeat(np.arange(clusters), per_cluster)


@pytest.mark.parametrize(
    ("labels", "clusters", "expected"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1], 100.0),
        ([0, 0, 1, 1], [1, 1, 0, 0], 100.0),
        (["x", "x", "y", "y"], [7, 7, -1, -1], 100.0),
        ([0, 0, 1, 1], [0, 1, 0, 1], 50.0),
        # Greedy would give cluster 0 to label 0 (3 rows) and leave label 1 with 0: 3 of 7. The best is 2 + 2.
        ([0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0, 0], 100.0 * 4 / 7),
        # Fewer clusters than labels: one label counts as wrong.
        ([0, 0, 1, 1, 2], [5, 5, 5, 6, 6], 60.0),
        ([0, 1, 2, 3], [0, 0, 0, 0], 25.0),
        # More clusters than labels: one cluster is not assigned.
        ([0, 0, 0, 1], [0, 0, 1, 2], 75.0),
        ([4], [9], 100.0),
    ],
)
def test_assignment_by_hand(labels, clusters, expected):
    assert assignment_accuracy(labels, clusters) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_assignment_is_optimal(rows):
    labels, clusters = zip(*rows, strict=True)
    best = max(sum(names[cluster] == label for label, cluster in rows) for names in permutations(range(4)))
    assert assignment_accuracy(labels, clusters) == pytest.approx(100.0 * best / len(rows))


def test_runs_equal_scikit_learn_with_the_first_seeds():
    generator = np.random.default_rng(2)
    points, labels = generator.normal(size=(200, 4)), generator.integers(0, 20, size=200)
    expected = [
        assignment_accuracy(labels, KMeans(n_clusters=20, n_init=10, random_state=seed).fit_predict(points))
        for seed in range(3)
    ]
    score = clustering_accuracy(points, labels, runs=3)
    assert score["run_accuracies"] == expected
    assert len(set(expected)) > 1
    assert score["accuracy"] == pytest.approx(np.mean(expected))


@pytest.mark.parametrize(
    ("vectors", "labels", "runs", "message"),
    [
        (np.eye(3), [0, 1], 1, "2 values for 3 rows"),
        (np.eye(3), [0, 0, 0], 1, "the same label"),
        (np.eye(3), [0.5, 1.0, 2.0], 1, "expected strings or integers"),
        (np.eye(3), [0, 1, 2], 0, "runs is 0"),
        (np.zeros((0, 3)), [], 1, "0 rows"),
        ([[0.0], [np.nan]], [0, 1], 1, "row 1 of vectors has NaN"),
    ],
)
def test_clustering_errors(vectors, labels, runs, message):
    with pytest.raises(ConfigError, match=message):
        clustering_accuracy(vectors, labels, runs)


def test_labels_and_clusters_of_different_length_are_an_error():
    with pytest.raises(ConfigError, match="1 values for 2 rows"):
        assignment_accuracy([0, 1], [0])
    with pytest.raises(ConfigError, match="got 0 labels"):
        assignment_accuracy([], [])
