"""Relatedness: a regression on frozen vectors that predicts the scores of sentence pairs, with given splits.

Source: Tai, Socher & Manning 2015 (section 4.2), as in SentEval (``senteval/tools/relatedness.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import numbers
from ragembed.papers.sentences.classification import SimilarityScore, pair_features, rows_of_splits
from ragembed.papers.sentences.correlation import pearson_correlation, spearman_correlation

_SCORES = np.arange(1.0, 6.0)
_BATCH, _EPOCHS, _MOST_EPOCHS, _PATIENCE = 64, 50, 1000, 3


def relatedness_regression(
    vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike, splits: Sequence[str], seed: int = 0
) -> SimilarityScore:
    """Predict the scores of the pairs of the test split with a regression that is fitted on the train split.

    This is the supervised evaluation of STS-B and SICK-R in SentEval, after Tai, Socher & Manning 2015. A linear layer
    with a softmax maps ``|u - v|`` and ``u * v`` to a distribution over the scores 1 to 5; the prediction is its mean.
    A judged score between two whole scores is learned as both; below 1, it is learned as a part of 1. The mean squared
    error of the distributions is minimised with Adam in batches of 64. After every 50 epochs, the Pearson correlation
    on the dev split is computed; the best weights are kept, and training ends with the fourth time that they do not
    improve, or after 1,000 epochs.
    """
    features = pair_features(vectors1, vectors2)
    judged = numbers(scores, "scores", len(features))
    outside = (judged < 0.0) | (judged > _SCORES[-1])
    if outside.any():
        raise ConfigError(f"a score is {judged[outside][0]}: expected 0 to {_SCORES[-1]:g}")
    train, dev, test = rows_of_splits(splits, len(features))
    if not len(dev):
        raise ConfigError("no pair is in the split dev, which decides when training ends: expected at least 2")
    targets = np.maximum(0.0, 1.0 - np.abs(judged[:, None] - _SCORES))
    best, patience = -1.0, 0
    kept = None
    for epoch, (weights, bias) in _train_distribution(features[train], targets[train], seed):
        if epoch % _EPOCHS:
            continue
        correlation = pearson_correlation(_softmax(features[dev] @ weights + bias) @ _SCORES, judged[dev])
        if correlation > best:
            best, kept = correlation, (weights.copy(), bias.copy())
        elif patience == _PATIENCE:
            break
        else:
            patience += 1
    if kept is None:
        raise ConfigError("the predictions for the dev split have a correlation of -1: check the scores")
    predictions = _softmax(features[test] @ kept[0] + kept[1]) @ _SCORES
    return SimilarityScore(
        100.0 * spearman_correlation(predictions, judged[test]), 100.0 * pearson_correlation(predictions, judged[test])
    )


def _train_distribution(
    features: NDArray[np.float64], targets: NDArray[np.float64], seed: int
) -> Iterator[tuple[int, tuple[NDArray[np.float32], NDArray[np.float32]]]]:
    """Yield the number of the epoch and the weights (updated in place) of a linear layer with a softmax."""
    generator = np.random.default_rng(seed)
    rows, goals = features.astype(np.float32), targets.astype(np.float32)
    bound = 1.0 / math.sqrt(rows.shape[1])
    parameters = tuple(
        generator.uniform(-bound, bound, shape).astype(np.float32)
        for shape in ((rows.shape[1], goals.shape[1]), goals.shape[1:])
    )
    moments = [(np.zeros_like(each), np.zeros_like(each)) for each in parameters]
    step = 0
    for epoch in range(1, _MOST_EPOCHS + _EPOCHS + 1):
        order = generator.permutation(len(rows))
        for start in range(0, len(rows), _BATCH):
            batch = order[start : start + _BATCH]
            found = _softmax(rows[batch] @ parameters[0] + parameters[1])
            slope = 2.0 * (found - goals[batch]) / found.size
            slope = found * (slope - (slope * found).sum(axis=1, keepdims=True))
            step += 1
            for each, (mean, square), gradient in zip(
                parameters, moments, (rows[batch].T @ slope, slope.sum(axis=0)), strict=True
            ):
                mean += 0.1 * (gradient - mean)
                square += 0.001 * (gradient * gradient - square)
                each -= 0.001 * (mean / (1.0 - 0.9**step)) / (np.sqrt(square / (1.0 - 0.999**step)) + 1e-8)
        yield epoch, (parameters[0], parameters[1])


def _softmax(values: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    shares: NDArray[Any] = powers / powers.sum(axis=1, keepdims=True)
    return shares
