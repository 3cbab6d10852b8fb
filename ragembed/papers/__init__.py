"""What the papers need that the methods come from: sentence tasks, trainings, and the tables of the papers.

**Sentence tasks.** A reader such as :func:`read_sts`, :func:`read_clustering`, :func:`read_classification` or
:func:`read_isotropy` returns a task, and :func:`ragembed.evaluation.evaluate` measures embedder configurations on it.

:func:`describe` counts the texts, labels, words and tokens of a collection.

**Measures.** :func:`spearman` and :func:`pearson` for semantic textual similarity, :func:`clustering_accuracy`,
:func:`classification_accuracy`, :func:`split_accuracy`, :func:`similarity_classification` and
:func:`relatedness_regression` for classification, and :func:`iso_score`, :func:`alignment` and :func:`uniformity` for
isotropy.

:mod:`ragembed.papers.training` trains models and word vectors, :mod:`ragembed.papers.reproduction` runs the tables and
figures. Only this package and its commands import it. A name is loaded on first use, so that importing it is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.papers.sentences.classification import classification_accuracy as classification_accuracy
    from ragembed.papers.sentences.classification import pair_features as pair_features
    from ragembed.papers.sentences.classification import relatedness_regression as relatedness_regression
    from ragembed.papers.sentences.classification import similarity_classification as similarity_classification
    from ragembed.papers.sentences.classification import split_accuracy as split_accuracy
    from ragembed.papers.sentences.classification import split_target as split_target
    from ragembed.papers.sentences.clustering import assignment_accuracy as assignment_accuracy
    from ragembed.papers.sentences.clustering import clustering_accuracy as clustering_accuracy
    from ragembed.papers.sentences.description import Description as Description
    from ragembed.papers.sentences.description import TextStatistics as TextStatistics
    from ragembed.papers.sentences.description import describe as describe
    from ragembed.papers.sentences.isotropy import alignment as alignment
    from ragembed.papers.sentences.isotropy import iso_score as iso_score
    from ragembed.papers.sentences.isotropy import uniformity as uniformity
    from ragembed.papers.sentences.sentence_collections import LabelledTexts as LabelledTexts
    from ragembed.papers.sentences.sentence_collections import SentencePairs as SentencePairs
    from ragembed.papers.sentences.sentence_collections import read_labelled_texts as read_labelled_texts
    from ragembed.papers.sentences.sentence_collections import read_sentence_pairs as read_sentence_pairs
    from ragembed.papers.sentences.sentence_tasks import read_classification as read_classification
    from ragembed.papers.sentences.sentence_tasks import read_clustering as read_clustering
    from ragembed.papers.sentences.sentence_tasks import read_isotropy as read_isotropy
    from ragembed.papers.sentences.sentence_tasks import read_sts as read_sts
    from ragembed.papers.sentences.sts import cosines as cosines
    from ragembed.papers.sentences.sts import pearson as pearson
    from ragembed.papers.sentences.sts import spearman as spearman

_NAMES = {
    "sentences.classification": (
        *("classification_accuracy", "pair_features", "relatedness_regression", "similarity_classification"),
        *("split_accuracy", "split_target"),
    ),
    "sentences.clustering": ("assignment_accuracy", "clustering_accuracy"),
    "sentences.description": ("Description", "TextStatistics", "describe"),
    "sentences.isotropy": ("alignment", "iso_score", "uniformity"),
    "sentences.sentence_collections": ("LabelledTexts", "SentencePairs", "read_labelled_texts", "read_sentence_pairs"),
    "sentences.sentence_tasks": ("read_classification", "read_clustering", "read_isotropy", "read_sts"),
    "sentences.sts": ("cosines", "pearson", "spearman"),
}
__getattr__, __dir__ = lazy_attributes(__name__, _NAMES)
__all__ = __dir__()
