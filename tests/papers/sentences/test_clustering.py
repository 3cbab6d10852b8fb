from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from ragembed.errors import ConfigError
from ragembed.papers import assignment_accuracy, clustering_accuracy


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
