"""Sentence tasks: similarity, clustering, classification and isotropy of a test collection."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ragembed.corpus import Corpus
from ragembed.errors import ConfigError
from ragembed.evaluation.encoding import Encoded
from ragembed.evaluation.inputs import at_least
from ragembed.evaluation.judgements import read_beir
from ragembed.evaluation.tasks import Measured, Task
from ragembed.extras import require
from ragembed.papers.sentences.isotropy import alignment, iso_score, uniformity
from ragembed.papers.sentences.sentence_collections import (
    SPLITS,
    LabelledTexts,
    SentencePairs,
    first_field,
    read_examples,
    read_labelled_texts,
    read_scored_pairs,
    read_sentence_pairs,
)

POSITIVE_SCORE = 5.0
"""Pairs with this score or more are positive: on a scale to 5, only those with the highest score (Stankevičius &
Lukoševičius 2024, section 4.4)."""


def sts_task(name: str, pairs: SentencePairs) -> Task:
    """Return the task of semantic textual similarity: Spearman and Pearson correlations, in per cent.

    With a separate query fit, the second sentences are encoded as queries.
    """

    def measure(encoded: Encoded, _: object) -> Measured:
        from ragembed.papers.sentences.sts import pearson, spearman

        both = encoded.halves(len(pairs.scores))
        scores = {"spearman": spearman(*both, pairs.scores), "pearson": pearson(*both, pairs.scores)}
        return Measured({**scores, "pairs": len(pairs.scores)}, "spearman")

    return Task(name, [*pairs.sentences1, *pairs.sentences2], pairs.sentences2, measure, "spearman")


def similarity_task(name: str, pairs: SentencePairs, folds: int = 10) -> Task:
    """Return the task to predict the similarity of sentence pairs, in cross-validation or with given splits."""

    def measure(encoded: Encoded, _: object) -> Measured:
        from ragembed.papers.sentences.classification import relatedness_regression, similarity_classification

        both = encoded.halves(len(pairs.scores))
        if pairs.splits:
            scores = relatedness_regression(*both, pairs.scores, pairs.splits)
            return Measured({**scores, "pairs": pairs.splits.count("test")}, "spearman")
        scores = similarity_classification(*both, pairs.scores, folds)
        return Measured({**scores, "pairs": len(pairs.scores), "runs": folds}, "spearman")

    return dataclasses.replace(sts_task(name, pairs), measure=measure)


def clustering_task(name: str, labelled: LabelledTexts, runs: int = 10) -> Task:
    """Return the task to find the labels with k-means: mean accuracy and that of each run, in per cent."""

    def measure(encoded: Encoded, advance: Callable[[int], None] | None) -> Measured:
        from ragembed.papers.sentences.clustering import clustering_accuracy

        return Measured(clustering_accuracy(encoded.documents, labelled.labels, runs, advance), "accuracy")

    return Task(name, labelled.texts, (), measure, "accuracy", runs=runs, unit="k-means runs")


def classification_task(
    name: str, labelled: LabelledTexts, folds: int = 10, classifier: str = "logistic", nested: bool = False
) -> Task:
    """Return the task to classify texts or pairs: accuracies in cross-validation or on the test split, in per cent."""

    def measure(encoded: Encoded, _: object) -> Measured:
        from ragembed.papers.sentences.classification import classification_accuracy, pair_features, split_accuracy

        labels, splits = labelled.labels, labelled.splits
        features: ArrayLike = encoded.documents
        if labelled.second_texts:
            features = pair_features(*encoded.halves(len(labels)))
        if not splits:
            return Measured(classification_accuracy(features, labels, folds, 0, classifier, nested), "accuracy")
        scores = split_accuracy(features, labels, splits, folds, classifier=classifier)
        return Measured({**scores, "train": splits.count("train"), "test": splits.count("test")}, "accuracy")

    documents = [*labelled.texts, *labelled.second_texts]
    return Task(name, documents, labelled.second_texts, measure, "accuracy")


def isotropy_task(
    name: str,
    texts: Sequence[str],
    pairs: SentencePairs | None = None,
    positive_score: float = POSITIVE_SCORE,
    with_uniformity: bool = True,
) -> Task:
    """Return the task of IsoScore, uniformity, which needs all distances, and the alignment of pairs with a high score.

    The texts of ``pairs`` are all first ones and then all second ones.
    """

    def measure(encoded: Encoded, _: object) -> Measured:
        vectors = encoded.documents
        scores: dict[str, Any] = {"iso_score": iso_score(vectors)}
        if with_uniformity:
            scores["uniformity"] = uniformity(vectors)
        if pairs is not None:
            half = len(pairs.scores)
            positive = np.array(pairs.scores) >= positive_score
            scores["alignment"] = alignment(vectors[:half][positive], vectors[half:][positive])
            scores |= {"positive_score": positive_score, "positive_pairs": int(positive.sum())}
        return Measured({**scores, "vectors": len(vectors)}, "iso_score")

    return Task(name, texts, (), measure, "iso_score")


# Readers check collections for everything that a measure would reject after all texts are encoded.


def read_sts(path: Path) -> Task:
    """Read a task for semantic textual similarity from a TSV file with ``score``, ``sentence1`` and ``sentence2``.

    The path can also be the folder of a year of STS, of STS-B, SICK or STR, as published. The test split is read if
    there are splits.
    """
    require("scipy", "correlation")
    name, pairs = read_scored_pairs(path)
    _require_different(path, pairs.scores, "scores")
    return sts_task(name, pairs)


def read_clustering(path: Path, runs: int = 10) -> Task:
    """Read a clustering task; k-means runs ``runs`` times.

    The path is a TSV file with the columns ``label`` and ``text``, or without a header if the labels are numbers.
    """
    require("sklearn", "clustering")
    labelled = read_labelled_texts(path)
    _require_different(path, labelled.labels, "labels")
    return clustering_task(path.stem, labelled, runs)


def read_classification(
    path: Path, folds: int = 10, classifier: str = "logistic", nested: bool = False, relatedness: bool = False
) -> Task:
    """Read a classification task.

    The path is a TSV file (``label`` or ``score``, then ``text`` or ``sentence1`` and ``sentence2``, and ``split``
    first if given), a probing task of SentEval, or a folder with the files of a collection as in SentEval, or of
    SciCite. With ``relatedness``, the scores of SICK are predicted instead of its labels; the rest is as in
    :func:`split_accuracy`.
    """
    require("sklearn", "classification")
    at_least(folds, 2, "the number of folds")
    name, examples = read_examples(path, relatedness)
    if examples.splits:
        _check_splits(path, examples, folds)
    if isinstance(examples, SentencePairs):
        if classifier != "logistic":
            raise ConfigError(f"{path} has scores, which no {classifier!r} predicts: leave out the classifier")
        _require_different(path, examples.scores, "scores")
        if not examples.splits and len(examples.scores) < folds:
            raise ConfigError(f"{path} has {len(examples.scores)} pairs, fewer than the {folds} folds: use fewer folds")
        return similarity_task(name, examples, folds)
    _require_different(path, examples.labels, "labels")
    if not examples.splits:
        _require_frequent(path, examples.labels, folds, nested)
    return classification_task(name, examples, folds, classifier, nested)


def read_isotropy(path: Path, positive_score: float = POSITIVE_SCORE, with_uniformity: bool = True) -> Task:
    """Read an isotropy task from a table of another task, a BEIR folder, or a text file with one text per line.

    Sentence pairs with ``positive_score`` or more count for the alignment; some authors use 4.
    """
    if path.is_dir():
        texts = tuple(read_beir(path).documents.values())
        return isotropy_task(path.absolute().name, texts, with_uniformity=with_uniformity)
    header = first_field(path)
    if header == "score":
        pairs = read_sentence_pairs(path)
        if max(pairs.scores, default=-math.inf) < positive_score:
            raise ConfigError(
                f"{path} has no pair with a score of {positive_score:g} or more, which alignment needs: choose a lower "
                "positive score, or give the sentences as a text file, one per line"
            )
        both = (*pairs.sentences1, *pairs.sentences2)
        return isotropy_task(path.stem, both, pairs, positive_score, with_uniformity)
    texts = read_labelled_texts(path).texts if header == "label" else tuple(Corpus(path))
    _require_different(path, texts, "texts")
    return isotropy_task(path.stem, texts, with_uniformity=with_uniformity)


READERS: Mapping[str, Callable[[Path], Task]] = {
    "sts": read_sts,
    "clustering": read_clustering,
    "classification": read_classification,
    "isotropy": read_isotropy,
}
"""The reader of each task, by the name of the task."""


def _check_splits(path: Path, examples: LabelledTexts | SentencePairs, folds: int) -> None:
    """Raise unless every split has what the measures need."""
    scored = isinstance(examples, SentencePairs)
    values: Sequence[Any] = examples.scores if isinstance(examples, SentencePairs) else examples.labels
    by_split = {
        split: [value for value, each in zip(values, examples.splits, strict=True) if each == split] for split in SPLITS
    }
    for split in SPLITS if scored else ("train", "test"):
        if not by_split[split]:
            raise ConfigError(f"{path} has nothing in the split {split!r}: expected at least one line")
        if scored or split == "train":
            _require_different(path, by_split[split], f"{'scores' if scored else 'labels'} in the split {split!r}")
    if scored:
        outside = [value for value in values if not 0 <= value <= 5]
        if outside:
            raise ConfigError(f"{path} has the score {outside[0]:g}: with splits, scores are 0 to 5")
    elif not by_split["dev"]:
        _require_frequent(path, by_split["train"], folds, nested=False)


def _require_frequent(path: Path, labels: Sequence[str], folds: int, nested: bool) -> None:
    """Raise unless each label is in every fold; with ``nested``, also in every fold of a training part."""
    rare, count = min(Counter(labels).items(), key=lambda item: item[1])
    inner = count - -(-count // folds)
    if count < folds or (nested and inner < folds):
        part = f", {inner} in the training part of a fold" if count >= folds else ""
        raise ConfigError(
            f"{path}: the label {rare!r} has {count} texts{part}, fewer than the {folds} folds: remove the label or "
            "use fewer folds"
        )


def _require_different(path: Path, values: Sequence[Any], name: str) -> None:
    """Raise unless ``values`` has at least two different values."""
    if len(set(values)) < 2:
        found = f"all {len(values)} {name} are {str(values[0])[:80]!r}" if values else f"it has no {name}"
        raise ConfigError(f"{path}: {found}: expected at least 2 different {name}")
