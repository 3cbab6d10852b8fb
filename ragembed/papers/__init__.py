"""What the papers need that the methods come from: sentence tasks, trainings, and the tables of the papers.

**Sentence tasks.** A reader such as :func:`read_sts`, :func:`read_clustering`, :func:`read_classification` or
:func:`read_isotropy` returns a task, and :func:`ragembed.evaluation.evaluate` measures embedder configurations on it.

**Statistics.** :func:`describe` counts the texts, labels, words and tokens of a collection.

**Measures.** :func:`spearman` and :func:`pearson` for semantic textual similarity, :func:`clustering_accuracy`,
:func:`classification_accuracy`, :func:`split_accuracy`, :func:`similarity_classification` and
:func:`relatedness_regression` for classification, and :func:`iso_score`, :func:`alignment` and :func:`uniformity` for
isotropy.

:mod:`ragembed.papers.training` trains models and word vectors, and :mod:`ragembed.papers.reproduction` runs the tables
and figures. Nothing outside of this package and its commands imports it. Importing it is fast, because each name is
loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.papers.sentences.classification import (
        ClassificationScore,
        SimilarityScore,
        SplitScore,
        classification_accuracy,
        pair_features,
        relatedness_regression,
        similarity_classification,
        split_accuracy,
        split_target,
    )
    from ragembed.papers.sentences.clustering import ClusteringScore, assignment_accuracy, clustering_accuracy
    from ragembed.papers.sentences.description import Description, TextStatistics, describe
    from ragembed.papers.sentences.isotropy import alignment, iso_score, uniformity
    from ragembed.papers.sentences.sentence_collections import (
        LabelledTexts,
        SentencePairs,
        read_labelled_texts,
        read_sentence_pairs,
    )
    from ragembed.papers.sentences.sentence_tasks import read_classification, read_clustering, read_isotropy, read_sts
    from ragembed.papers.sentences.sts import cosines, pearson, spearman

__all__ = [
    "ClassificationScore",
    "ClusteringScore",
    "Description",
    "LabelledTexts",
    "SentencePairs",
    "SimilarityScore",
    "SplitScore",
    "TextStatistics",
    "alignment",
    "assignment_accuracy",
    "classification_accuracy",
    "clustering_accuracy",
    "cosines",
    "describe",
    "iso_score",
    "pair_features",
    "pearson",
    "read_classification",
    "read_clustering",
    "read_isotropy",
    "read_labelled_texts",
    "read_sentence_pairs",
    "read_sts",
    "relatedness_regression",
    "similarity_classification",
    "spearman",
    "split_accuracy",
    "split_target",
    "uniformity",
]

_NAMES = {
    "sentences.classification": (
        "ClassificationScore",
        "SimilarityScore",
        "SplitScore",
        "classification_accuracy",
        "pair_features",
        "relatedness_regression",
        "similarity_classification",
        "split_accuracy",
        "split_target",
    ),
    "sentences.clustering": ("ClusteringScore", "assignment_accuracy", "clustering_accuracy"),
    "sentences.description": ("Description", "TextStatistics", "describe"),
    "sentences.isotropy": ("alignment", "iso_score", "uniformity"),
    "sentences.sentence_collections": ("LabelledTexts", "SentencePairs", "read_labelled_texts", "read_sentence_pairs"),
    "sentences.sentence_tasks": ("read_classification", "read_clustering", "read_isotropy", "read_sts"),
    "sentences.sts": ("cosines", "pearson", "spearman"),
}
__getattr__, __dir__ = lazy_attributes(__name__, _NAMES)
