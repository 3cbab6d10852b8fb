import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

from ragembed.errors import ConfigError
from ragembed.papers import classification_accuracy, similarity_classification, split_target
from tests.papers.sentences.conftest import noisy, pairs


def test_constant_vectors_predict_the_largest_class():
    score = classification_accuracy(np.ones((40, 2)), [0] * 30 + [1] * 10)
    assert score["accuracy"] == pytest.approx(75.0)


def test_accuracy_equals_scikit_learn_cross_validation():
    points, labels = noisy()
    folds = StratifiedKFold(10, shuffle=True, random_state=7)
    expected = 100.0 * cross_val_score(LogisticRegression(max_iter=1000), points, labels, cv=folds)
    score = classification_accuracy(points, labels, seed=7)
    assert score["run_accuracies"] == pytest.approx(expected)
    assert score["accuracy"] == pytest.approx(expected.mean())
    assert 50.0 < score["accuracy"] < 100.0


@pytest.mark.parametrize(
    ("vectors", "labels", "folds", "message"),
    [
        (np.eye(4), [0, 0, 1], 2, "3 values for 4 rows"),
        (np.eye(4), [1, 1, 1, 1], 2, "the same label"),
        (np.eye(5), ["a", "a", "a", "b", "b"], 3, "the label 'b' has 2 rows, fewer than the 3 folds"),
        (np.eye(4), [0, 0, 1, 1], 1, "folds is 1"),
        (np.zeros((0, 2)), [], 2, "0 rows"),
        ([[1.0], [np.nan], [2.0], [3.0]], [0, 0, 1, 1], 2, "row 1 of vectors has NaN"),
    ],
)
def test_classification_errors(vectors, labels, folds, message):
    with pytest.raises(ConfigError, match=message):
        classification_accuracy(vectors, labels, folds)


def test_regression_without_convergence_is_an_error(monkeypatch):
    monkeypatch.setattr("ragembed.papers.sentences.classification._ITERATIONS", 1)
    points, labels = noisy()
    with pytest.raises(ConfigError, match="does not converge in 1 iterations"):
        classification_accuracy(points, labels)


def test_whole_scores_are_one_class():
    assert split_target([1, 3, 5], 1, 5).tolist() == [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
    assert split_target([-1.25], -2, 0).tolist() == [[0.25, 0.75, 0.0]]


@given(st.lists(st.floats(-2.0, 3.0), max_size=20))
def test_mean_of_classes_equals_score(scores):
    weights = split_target(scores, -2, 3)
    assert weights.shape == (len(scores), 6)
    assert (weights >= 0.0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(weights @ np.arange(-2, 4), scores, atol=1e-12)


@pytest.mark.parametrize(
    ("scores", "low", "high", "message"),
    [
        ([0.5], 1, 5, "a score is 0.5: expected 1 to 5"),
        ([1.0, 5.1], 1, 5, "a score is 5.1"),
        ([1.0], 1, 1, "from 1 to 1: expected at least 2"),
        ([np.nan], 0, 5, "scores has nan at position 0"),
    ],
)
def test_invalid_scores_cannot_be_split(scores, low, high, message):
    with pytest.raises(ConfigError, match=message):
        split_target(scores, low, high)


def test_similarity_by_a_plain_loop():
    first, second, scores = pairs(80, 5, 1, 0.3)
    features = np.hstack([abs(first - second), first * second])
    predictions = np.zeros(len(scores))
    for train, test in KFold(3, shuffle=True, random_state=0).split(features):
        rows, classes, weights = [], [], []
        for i in train:
            for each in range(1, 6):
                if (weight := max(0.0, 1.0 - abs(scores[i] - each))) > 0.0:
                    rows.append(features[i])
                    classes.append(each)
                    weights.append(weight)
        model = LogisticRegression(max_iter=1000).fit(np.array(rows), classes, sample_weight=weights)
        predictions[test] = model.predict_proba(features[test]) @ model.classes_
    score = similarity_classification(first, second, scores, folds=3)
    assert score["spearman"] == pytest.approx(100 * stats.spearmanr(predictions, scores)[0], abs=0.2)
    assert score["pearson"] == pytest.approx(100 * stats.pearsonr(predictions, scores)[0], abs=0.2)
    assert score["spearman"] > 60.0


@pytest.mark.parametrize(
    ("rows", "scores", "message"),
    [
        (12, [1.0] * 12, "all 12 scores are equal"),
        (12, [1.0] * 11 + [2.0], "the training part of a fold has a single class"),
        (12, [1.0] * 11, "11 values for 12 rows"),
        (9, list(range(9)), "9 rows: expected at least 10"),
    ],
)
def test_invalid_similarities_are_errors(rows, scores, message):
    vectors = np.random.default_rng(0).normal(size=(rows, 2))
    with pytest.raises(ConfigError, match=message):
        similarity_classification(vectors, vectors, scores)
