"""Classification and relatedness: classifiers and a regression on frozen vectors.

Source: Stankevičius & Lukoševičius 2024, section 3.5.3, and Wang & Kuo 2020, section V-B, both after SentEval (Conneau
& Kiela 2018), whose program ``senteval/tools`` sets the strengths of regularisation and when training stops. The
regression is that of Tai, Socher & Manning 2015, section 4.2. The vectors are not scaled, which shows the effect of
post-processors.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import Labels, at_least, labels, matrix, numbers, pair
from ragembed.extras import needed_for
from ragembed.papers.sentences.sts import pearson_correlation, spearman_correlation

with needed_for("classification"):
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold, StratifiedKFold
    from sklearn.neural_network import MLPClassifier

if TYPE_CHECKING:
    from torch import nn

CLASSIFIERS = ("logistic", "mlp")
_ITERATIONS = 10_000
_STRENGTH = {"logistic": 1.0, "mlp": 1e-5}
"""Regularisation that is not chosen: scikit-learn's default C, and SentEval's smallest weight decay."""
_DECAYS = tuple(10.0**power for power in range(-5, -1))
_INVERSE_STRENGTHS = {"folds": (-2, 4), "train": (-1, 6), "dev": (-2, 4)}
"""Powers of two for C: for nested cross-validation, for cross-validation on a train split, and with a dev split."""
_HIDDEN, _BATCH, _EPOCHS, _MOST_EPOCHS, _PATIENCE, _HELD_OUT = 50, 64, 4, 200, 5, 0.05


def classification_accuracy(
    vectors: ArrayLike,
    true_labels: Labels,
    folds: int = 10,
    seed: int = 0,
    classifier: str = "logistic",
    nested: bool = False,
) -> dict[str, Any]:
    """Return the accuracy of a classifier for features of shape ``(n, d)`` in stratified cross-validation, in per cent.

    The keys are ``accuracy``, which is the mean, ``runs``, the number of folds, and ``run_accuracies``, those of each.
    The classifier is ``logistic``, or ``mlp``, SentEval's perceptron with 50 hidden units. With ``nested``, each fold
    chooses C from 2⁻² to 2³, or a weight decay from 10⁻⁵ to 10⁻², else C is 1 and the decay 10⁻⁵.
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
    strength = _STRENGTH[_known(classifier)]
    accuracies = []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(features, codes):
        if nested:
            strength, _ = _chosen(classifier, "folds", features[train], codes[train], folds, seed)
        model = _fit(classifier, strength, features[train], codes[train], seed)
        accuracies.append(_accuracy(model, features[test], codes[test]))
    return {"accuracy": float(np.mean(accuracies)), "runs": folds, "run_accuracies": accuracies}


def split_accuracy(
    vectors: ArrayLike,
    true_labels: Labels,
    splits: Sequence[str],
    folds: int = 10,
    seed: int = 0,
    classifier: str = "logistic",
) -> dict[str, float]:
    """Return the accuracy on the test split of a classifier that is fitted on the train split, in per cent.

    The regularisation, of SentEval's values, is the best one on the dev split, or in cross-validation without one. The
    keys are ``accuracy``, ``dev_accuracy``, that of the choice, and ``strength``, the chosen C or weight decay.
    """
    features = matrix(vectors, "vectors").astype(np.float64)
    _, codes = labels(true_labels, "labels", len(features))
    train, dev, test = rows_of_splits(splits, len(features))
    counts = np.bincount(codes[train])
    rarest = counts[counts > 0].min()
    if (counts > 0).sum() < 2:
        raise ConfigError(f"all {len(train)} rows of the train split have the same label: expected 2 different labels")
    if not len(dev) and rarest < at_least(folds, 2, "folds"):
        raise ConfigError(
            f"a label has {rarest} rows in the train split, fewer than the {folds} folds: remove it or use fewer folds"
        )
    held_out = (features[dev], codes[dev]) if len(dev) else None
    case = "train" if held_out is None else "dev"
    strength, accuracy = _chosen(_known(classifier), case, features[train], codes[train], folds, seed, held_out)
    model = _fit(classifier, strength, features[train], codes[train], seed, held_out)
    return {"accuracy": _accuracy(model, features[test], codes[test]), "dev_accuracy": accuracy, "strength": strength}


def pair_features(vectors1: ArrayLike, vectors2: ArrayLike) -> NDArray[np.float64]:
    """Return ``|u - v|`` and ``u * v``, concatenated, for pairs of vectors as in SentEval, shape ``(n, 2 * d)``."""
    first, second = pair(vectors1, vectors2)
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def similarity_classification(
    vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike, folds: int = 10, seed: int = 0
) -> dict[str, float]:
    """Predict the similarity of pairs with logistic regression on ``|u - v|`` and ``u * v``, in cross-validation.

    The classes are whole scores, with the weights of :func:`split_target`; the prediction is their mean. Returns its
    correlations with the scores over all pairs, ``spearman`` and ``pearson``, in per cent.
    """
    first, second = pair(vectors1, vectors2, least=at_least(folds, 2, "folds"))
    judged = numbers(scores, "scores", len(first))
    if (judged == judged[0]).all():
        raise ConfigError(f"all {len(judged)} scores are equal: expected at least 2 different scores")
    features = pair_features(first, second)
    low = math.floor(judged.min())
    targets = split_target(judged, low, math.ceil(judged.max()))
    predictions = np.empty(len(judged))
    for train, test in KFold(folds, shuffle=True, random_state=seed).split(features):
        rows, classes = np.nonzero(targets[train])
        if len(np.unique(classes)) < 2:
            raise ConfigError(
                "the training part of a fold has a single class: add pairs or use another number of folds"
            )
        model = _regression(features[train][rows], classes, weights=targets[train][rows, classes])
        predictions[test] = model.predict_proba(features[test]) @ (low + model.classes_)
    return _correlations(predictions, judged)


def split_target(scores: ArrayLike, low: int, high: int) -> NDArray[np.float64]:
    """Split each score between the two nearest classes: weights of shape ``(n, high - low + 1)``, each row sums to 1.

    The score 3.6 is class 3 with weight 0.4 and class 4 with weight 0.6.
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


def _known(classifier: str) -> str:
    if classifier not in CLASSIFIERS:
        raise ConfigError(f"unknown classifier {classifier!r}: expected {' or '.join(CLASSIFIERS)}")
    return classifier


def rows_of_splits(splits: Sequence[str], count: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of train, dev and test; only dev can be empty."""
    named = np.asarray(splits)
    if named.shape != (count,):
        raise ConfigError(f"splits has the shape {named.shape} for {count} rows: expected one for each")
    train, dev, test = (np.flatnonzero(named == name) for name in ("train", "dev", "test"))
    unknown = sorted(set(named.tolist()) - {"train", "dev", "test"})
    if unknown:
        raise ConfigError(f"unknown split {unknown[0]!r}: expected one of train, dev, test")
    for name, rows in (("train", train), ("test", test)):
        if not len(rows):
            raise ConfigError(f"no row is in the split {name}: expected at least 1")
    return train, dev, test


def _chosen(
    classifier: str,
    case: str,
    features: NDArray[np.float64],
    codes: NDArray[np.intp],
    folds: int,
    seed: int,
    dev: tuple[NDArray[np.float64], NDArray[np.intp]] | None = None,
) -> tuple[float, float]:
    """Return the strength with the best accuracy on ``dev``, or in cross-validation, and that accuracy."""
    low, high = _INVERSE_STRENGTHS[case]
    strengths = _DECAYS if classifier == "mlp" else tuple(2.0**power for power in range(low, high))
    accuracies = []
    for strength in strengths:
        if dev is not None:
            found = [_accuracy(_fit(classifier, strength, features, codes, seed, dev), *dev)]
        else:
            found = []
            for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(features, codes):
                held_out = features[test], codes[test]
                found.append(
                    _accuracy(_fit(classifier, strength, features[train], codes[train], seed, held_out), *held_out)
                )
        accuracies.append(float(np.mean(found)))
    best = int(np.argmax(accuracies))
    return strengths[best], accuracies[best]


def _fit(
    classifier: str,
    strength: float,
    features: NDArray[np.float64],
    codes: NDArray[np.intp],
    seed: int,
    held_out: tuple[NDArray[np.float64], NDArray[np.intp]] | None = None,
) -> LogisticRegression | MLPClassifier:
    """Fit a classifier; the perceptron stops by its accuracy on ``held_out``, by default a part of the rows."""
    if classifier == "logistic":
        return _regression(features, codes, strength)
    random = np.random.RandomState(seed)
    if held_out is None:
        order = random.permutation(len(codes))
        count = max(1, int(_HELD_OUT * len(codes)))
        held_out = features[order[:count]], codes[order[:count]]
        features, codes = features[order[count:]], codes[order[count:]]
    model = _perceptron(strength, len(codes), random)
    known = np.unique(codes)
    best, missed = -1.0, 0
    kept: tuple[list[Any], list[Any]] = ([], [])
    for epoch in range(1, _MOST_EPOCHS + _EPOCHS + 1):
        model.partial_fit(features, codes, classes=known)
        if epoch % _EPOCHS:
            continue
        accuracy = _accuracy(model, *held_out)
        if accuracy > best:
            best, kept = accuracy, ([each.copy() for each in model.coefs_], [each.copy() for each in model.intercepts_])
        elif missed == _PATIENCE:
            break
        else:
            missed += 1
    model.coefs_, model.intercepts_ = kept
    return model


def _perceptron(strength: float, rows: int, random: np.random.RandomState) -> MLPClassifier:
    """Return SentEval's perceptron, not trained; ``strength`` is the weight decay, as in PyTorch."""
    batch = min(_BATCH, rows)
    # PyTorch adds strength * weights to the gradient; scikit-learn divides alpha by the number of rows in a batch.
    return MLPClassifier(
        (_HIDDEN,), activation="logistic", alpha=strength * batch, batch_size=batch, random_state=random
    )


def _accuracy(
    model: LogisticRegression | MLPClassifier, features: NDArray[np.float64], codes: NDArray[np.intp]
) -> float:
    return float(100.0 * np.mean(model.predict(features) == codes))


def _regression(
    features: NDArray[np.float64],
    classes: NDArray[np.intp],
    strength: float = _STRENGTH["logistic"],
    weights: NDArray[np.float64] | None = None,
) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            return LogisticRegression(C=strength, max_iter=_ITERATIONS).fit(features, classes, sample_weight=weights)
        except ConvergenceWarning as warning:
            raise ConfigError(
                f"logistic regression does not converge in {_ITERATIONS:,} iterations because the dimensions of the "
                "vectors have very different scales: use the post-processor zscore or normalize"
            ) from warning


_SCORES = np.arange(1.0, 6.0)
_PAIRS, _ROUND, _MOST_EPOCHS_OF_PAIRS, _ROUNDS = 64, 50, 1050, 3


def relatedness_regression(
    vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike, splits: Sequence[str], seed: int = 0
) -> dict[str, float]:
    """Predict the scores of the pairs of the test split with a regression that is fitted on the train split.

    This is the evaluation of STS-B and SICK-R in SentEval, after Tai, Socher & Manning 2015: a softmax layer over the
    scores 1 to 5 on ``|u - v|`` and ``u * v``, trained with Adam on the mean squared error; every 50 epochs, the
    correlation on the dev split decides which weights are kept and when training ends. The result is that of
    :func:`similarity_classification`.
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
    best_layer = None
    for layer in islice(_epochs(features[train], targets[train], seed), _ROUND - 1, _MOST_EPOCHS_OF_PAIRS, _ROUND):
        correlation = pearson_correlation(_mean_scores(layer, features[dev]), judged[dev])
        if correlation > best:
            best, best_layer = correlation, deepcopy(layer)
        elif patience == _ROUNDS:
            break
        else:
            patience += 1
    if best_layer is None:
        raise ConfigError("the predictions for the dev split have a correlation of -1: check the scores")
    return _correlations(_mean_scores(best_layer, features[test]), judged[test])


def _correlations(predictions: NDArray[np.float64], judged: NDArray[np.float64]) -> dict[str, float]:
    measures = {"spearman": spearman_correlation, "pearson": pearson_correlation}
    return {name: 100.0 * correlation(predictions, judged) for name, correlation in measures.items()}


def _epochs(features: NDArray[np.float64], targets: NDArray[np.float64], seed: int) -> Iterator[nn.Linear]:
    """Yield a linear layer after each epoch of its training, in which its softmax learns ``targets``."""
    with needed_for("relatedness"):
        import torch

    generator = np.random.default_rng(seed)
    rows, goals = (torch.tensor(values, dtype=torch.float32) for values in (features, targets))
    bound = 1.0 / math.sqrt(rows.shape[1])
    layer = torch.nn.Linear(rows.shape[1], goals.shape[1], device="meta").to_empty(device="cpu")
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(generator.uniform(-bound, bound, (rows.shape[1], goals.shape[1])).T))
        layer.bias.copy_(torch.from_numpy(generator.uniform(-bound, bound, goals.shape[1])))
    adam = torch.optim.Adam(layer.parameters())
    while True:
        order = torch.from_numpy(generator.permutation(len(rows)))
        for start in range(0, len(rows), _PAIRS):
            batch = order[start : start + _PAIRS]
            adam.zero_grad()
            loss = torch.nn.functional.mse_loss(torch.softmax(layer(rows[batch]), dim=1), goals[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        yield layer


def _mean_scores(layer: nn.Linear, features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of the scores with the probabilities of the layer, shape ``(n,)``."""
    import torch

    with torch.no_grad():
        shares = torch.softmax(layer(torch.tensor(features, dtype=torch.float32)), dim=1)
    means: NDArray[np.float64] = shares.double().numpy() @ _SCORES
    return means
