"""Classification: logistic regression on frozen vectors, by cross-validation.

Source: Stankevičius & Lukoševičius 2024, section 3.5.3, after SentEval (Conneau & Kiela 2018). The vectors are the
features as they are, so that a post-processor shows its effect; the regularisation is scikit-learn's default, ``C=1``.
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
    """The mean ``accuracy`` of the ``folds``, and theirs, in per cent."""

    accuracy: float
    folds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SimilarityScore:
    """Correlation of predicted with judged similarity over all pairs, each predicted by its fold, in per cent."""

    spearman: float
    pearson: float


def classification_accuracy(
    vectors: ArrayLike, true_labels: Labels, folds: int = 10, seed: int = 0
) -> ClassificationScore:
    """Return the accuracy of logistic regression in stratified cross-validation.

    Parameters
    ----------
    vectors
        Shape ``(n, d)``.
    true_labels
        The label of each row, shape ``(n,)``, strings or integers: two or more, each on at least ``folds`` rows.
    folds, seed
        The number of folds, 2 or more, and the seed of the shuffle that deals rows to them.

    Raises
    ------
    ConfigError
        Where lengths differ, values are not finite, a label is too rare, or the regression does not converge.
    """
    features = matrix(vectors, "vectors").astype(np.float64)
    found, codes = labels(true_labels, "labels", len(features))
    if len(found) < 2:
        raise ConfigError(f"all {len(features)} rows have the same label: expected at least 2 different ones")
    counts = np.bincount(codes)
    if counts.min() < at_least(folds, 2, "folds"):
        rare = counts.argmin()
        raise ConfigError(
            f"the label {found[rare].item()!r} is on {counts[rare]} rows, fewer than the {folds} folds: "
            "leave it out, or take fewer folds"
        )
    accuracies = []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(features, codes):
        predicted = _regression(features[train], codes[train]).predict(features[test])
        accuracies.append(float(100.0 * np.mean(predicted == codes[test])))
    return ClassificationScore(float(np.mean(accuracies)), tuple(accuracies))


def similarity_classification(
    vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike, folds: int = 10, seed: int = 0
) -> SimilarityScore:
    """Predict the similarity of pairs by a classifier of ``|u - v|`` and ``u * v``, in cross-validation.

    The classes are the integers from the least score rounded down to the greatest rounded up. A score between two of
    them is learned as both, with the weights of :func:`split_target`; the prediction is the mean of the classes by
    their probabilities.

    Parameters
    ----------
    vectors1, vectors2
        The vectors of the first and of the second sentences, shape ``(n, d)``, ``n >= folds``.
    scores
        The judged similarity of each pair, shape ``(n,)``.
    folds, seed
        The number of folds, 2 or more, and the seed of the shuffle that deals pairs to them.

    Raises
    ------
    ConfigError
        Where lengths differ, values are not finite, all scores are equal, a fold leaves a single class to learn from,
        or the regression does not converge.
    """
    first, second = pair(vectors1, vectors2, least=at_least(folds, 2, "folds"))
    judged = numbers(scores, "scores", len(first))
    if (judged == judged[0]).all():
        raise ConfigError(f"all {len(judged)} scores are equal: there is nothing to predict")
    features = np.concatenate([np.abs(first - second), first * second], axis=1)
    low = math.floor(judged.min())
    targets = split_target(judged, low, math.ceil(judged.max()))
    predictions = np.empty(len(judged))
    for train, test in KFold(folds, shuffle=True, random_state=seed).split(features):
        rows, classes = np.nonzero(targets[train])
        if len(np.unique(classes)) < 2:
            raise ConfigError("the scores outside of a fold are all one class: give more pairs, or take fewer folds")
        model = _regression(features[train][rows], classes, targets[train][rows, classes])
        predictions[test] = model.predict_proba(features[test]) @ (low + model.classes_)
    return SimilarityScore(
        100.0 * spearman_correlation(predictions, judged), 100.0 * pearson_correlation(predictions, judged)
    )


def split_target(scores: ArrayLike, low: int, high: int) -> NDArray[np.float64]:
    """Split each score over the two integer classes beside it: 3.6 is class 3 with 0.4 and class 4 with 0.6.

    Parameters
    ----------
    scores
        Shape ``(n,)``, from ``low`` to ``high``.
    low, high
        The first and the last class, ``low < high``.

    Returns
    -------
    float64, shape ``(n, high - low + 1)``: the weights of the classes, which sum to 1 in each row.
    """
    if low >= high:
        raise ConfigError(f"the classes are from {low} to {high}: expected at least two")
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
                f"logistic regression does not converge in {_ITERATIONS:,} iterations, as the dimensions of the "
                "vectors differ too much in scale: post-process them with zscore or normalize"
            ) from warning
