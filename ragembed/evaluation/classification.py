"""Classification: logistic regression on frozen vectors, with cross-validation.

Source: Stankevičius & Lukoševičius 2024, section 3.5.3, after SentEval (Conneau & Kiela 2018). The vectors are not
scaled, which shows the effect of post-processors. The regularisation is scikit-learn's default, ``C=1``.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.errors import ConfigError
from ragembed.evaluation.correlation import pearson_correlation, spearman_correlation
from ragembed.evaluation.inputs import Labels, at_least, labels, matrix, numbers, pair
from ragembed.extras import needed_for

with needed_for("classification"):
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold, StratifiedKFold

_ITERATIONS = 10_000


@dataclass(frozen=True, slots=True)
class ClassificationScore:
    """The result of :func:`classification_accuracy`, in per cent.

    Attributes
    ----------
    accuracy : float
        Mean accuracy of the folds.
    folds : tuple of float
        Accuracy of each fold.

    Examples
    --------
    >>> from ragembed.evaluation import ClassificationScore
    >>> ClassificationScore(accuracy=75.0, folds=(100.0, 50.0)).accuracy
    75.0
    """

    accuracy: float
    folds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SimilarityScore:
    """The result of :func:`similarity_classification`, in per cent.

    Attributes
    ----------
    spearman, pearson : float
        Correlations of predicted and judged similarity over all pairs.

    Examples
    --------
    >>> from ragembed.evaluation import SimilarityScore
    >>> SimilarityScore(spearman=81.5, pearson=80.2).spearman
    81.5
    """

    spearman: float
    pearson: float


def classification_accuracy(
    vectors: ArrayLike, true_labels: Labels, folds: int = 10, seed: int = 0
) -> ClassificationScore:
    """Return the accuracy of logistic regression in stratified cross-validation.

    Parameters
    ----------
    vectors : array_like
        Features, shape ``(n, d)``.
    true_labels : sequence of str or int
        Label of each row, shape ``(n,)``. At least two different labels, each on at least ``folds`` rows.
    folds : int
        Number of folds, 2 or more.
    seed : int
        Seed of the shuffle that assigns rows to folds.

    Returns
    -------
    ClassificationScore
        The accuracies, in per cent.

    Raises
    ------
    ConfigError
        If the lengths differ, a value is not finite, a label is too rare, or the regression does not converge.

    Examples
    --------
    >>> from ragembed.evaluation import classification_accuracy
    >>> vectors = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
    >>> classification_accuracy(vectors, ["tea", "tea", "wing", "wing"], folds=2)
    ClassificationScore(accuracy=100.0, folds=(100.0, 100.0))
    """
    features = matrix(vectors, "vectors").astype(np.float64)
    found, codes = labels(true_labels, "labels", len(features))
    if len(found) < 2:
        raise ConfigError(f"all {len(features)} rows have the same label: expected at least 2 different labels")
    counts = np.bincount(codes)
    if counts.min() < at_least(folds, 2, "folds"):
        rare = counts.argmin()
        raise ConfigError(
            f"the label {found[rare].item()!r} has {counts[rare]} rows, fewer than the {folds} folds: "
            "remove the label or use fewer folds"
        )
    accuracies = []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(features, codes):
        predicted = _regression(features[train], codes[train]).predict(features[test])
        accuracies.append(float(100.0 * np.mean(predicted == codes[test])))
    return ClassificationScore(float(np.mean(accuracies)), tuple(accuracies))


def similarity_classification(
    vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike, folds: int = 10, seed: int = 0
) -> SimilarityScore:
    """Predict the similarity of pairs with logistic regression on ``|u - v|`` and ``u * v``, in cross-validation.

    The classes are the integers from the smallest score, rounded down, to the largest, rounded up. A score between two
    classes is learned as both, with the weights of :func:`split_target`. The prediction is the mean of the classes,
    weighted by their probabilities.

    Parameters
    ----------
    vectors1 : array_like
        Vectors of the first sentences, shape ``(n, d)`` with ``n >= folds``.
    vectors2 : array_like
        Vectors of the second sentences, shape ``(n, d)``.
    scores : array_like
        Judged similarity of each pair, shape ``(n,)``.
    folds : int
        Number of folds, 2 or more.
    seed : int
        Seed of the shuffle that assigns pairs to folds.

    Returns
    -------
    SimilarityScore
        Correlations of predicted and judged similarity, in per cent.

    Raises
    ------
    ConfigError
        If the lengths differ, a value is not finite, all scores are equal, the training part of a fold has a single
        class, or the regression does not converge.

    Examples
    --------
    >>> from ragembed.evaluation import similarity_classification
    >>> first = [[1.0, 0.0], [0.0, 1.0]] * 4
    >>> second = [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]] * 2
    >>> score = similarity_classification(first, second, [5, 5, 0, 0, 5, 5, 0, 0], folds=4)
    >>> score.pearson > 90.0
    True
    """
    first, second = pair(vectors1, vectors2, least=at_least(folds, 2, "folds"))
    judged = numbers(scores, "scores", len(first))
    if (judged == judged[0]).all():
        raise ConfigError(f"all {len(judged)} scores are equal: expected at least 2 different scores")
    features = np.concatenate([np.abs(first - second), first * second], axis=1)
    low = math.floor(judged.min())
    targets = split_target(judged, low, math.ceil(judged.max()))
    predictions = np.empty(len(judged))
    for train, test in KFold(folds, shuffle=True, random_state=seed).split(features):
        rows, classes = np.nonzero(targets[train])
        if len(np.unique(classes)) < 2:
            raise ConfigError(
                "the training part of a fold has a single class: add pairs or use another number of folds"
            )
        model = _regression(features[train][rows], classes, targets[train][rows, classes])
        predictions[test] = model.predict_proba(features[test]) @ (low + model.classes_)
    return SimilarityScore(
        100.0 * spearman_correlation(predictions, judged), 100.0 * pearson_correlation(predictions, judged)
    )


def split_target(scores: ArrayLike, low: int, high: int) -> NDArray[np.float64]:
    """Split each score between the two nearest integer classes.

    Parameters
    ----------
    scores : array_like
        Scores from ``low`` to ``high``, shape ``(n,)``.
    low, high : int
        First and last class, ``low < high``.

    Returns
    -------
    numpy.ndarray
        Weights of the classes, float64, shape ``(n, high - low + 1)``; each row sums to 1.

    Raises
    ------
    ConfigError
        If ``low`` is not below ``high``, or a score is outside of the range.

    Examples
    --------
    The score 3.6 is class 3 with weight 0.4 and class 4 with weight 0.6:

    >>> from ragembed.evaluation import split_target
    >>> split_target([3.6], 3, 5).round(1).tolist()
    [[0.4, 0.6, 0.0]]
    """
    if low >= high:
        raise ConfigError(f"the classes are from {low} to {high}: expected at least 2")
    values = numbers(scores, "scores")
    outside = (values < low) | (values > high)
    if outside.any():
        raise ConfigError(f"a score is {values[outside][0]}: expected {low} to {high}")
    below = np.minimum(np.floor(values), high - 1)
    rows, columns = np.arange(len(values)), (below - low).astype(np.intp)
    weights = np.zeros((len(values), high - low + 1))
    weights[rows, columns + 1] = values - below
    weights[rows, columns] = 1.0 - weights[rows, columns + 1]
    return weights


def _regression(
    features: NDArray[np.float64], classes: NDArray[np.intp], weights: NDArray[np.float64] | None = None
) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            return LogisticRegression(max_iter=_ITERATIONS).fit(features, classes, sample_weight=weights)
        except ConvergenceWarning as warning:
            raise ConfigError(
                f"logistic regression does not converge in {_ITERATIONS:,} iterations because the dimensions of the "
                "vectors have very different scales: use the post-processor zscore or normalize"
            ) from warning
