"""Measures of embeddings, readers of test collections, and tasks that put both together.

=================  ======================================================================================
``datasets``       sentence pairs, labelled texts and BEIR folders
``sts``            semantic textual similarity: Spearman and Pearson correlation of cosines with judgements
``clustering``     accuracy of k-means
``classification`` accuracy of logistic regression; similarity predicted by weighted classes
``isotropy``       IsoScore, alignment, uniformity
``nearest``        exact search
``retrieval``      nDCG, recall, reciprocal rank and average precision, equal to trec_eval's
``bootstrap``      whether two systems differ on the same questions
``tasks``          a collection, encoded by several configurations at once, and its measures
=================  ======================================================================================

Importing this package is cheap: each name brings its module in when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragembed.evaluation.bootstrap import PairedBootstrap, paired_bootstrap
    from ragembed.evaluation.classification import (
        ClassificationScore,
        SimilarityScore,
        classification_accuracy,
        similarity_classification,
        split_target,
    )
    from ragembed.evaluation.clustering import ClusteringScore, assignment_accuracy, clustering_accuracy
    from ragembed.evaluation.datasets import (
        LabelledTexts,
        RetrievalCollection,
        SentencePairs,
        read_beir,
        read_labelled_texts,
        read_sentence_pairs,
    )
    from ragembed.evaluation.isotropy import alignment, iso_score, uniformity
    from ragembed.evaluation.nearest import search
    from ragembed.evaluation.retrieval import (
        MEASURES,
        RetrievalScore,
        average_precision,
        ndcg,
        recall,
        reciprocal_rank,
        score_rankings,
    )
    from ragembed.evaluation.sts import cosines, pearson, spearman
    from ragembed.evaluation.tasks import (
        Measured,
        Task,
        evaluate,
        read_classification,
        read_clustering,
        read_isotropy,
        read_retrieval,
        read_sts,
    )

__all__ = [
    "MEASURES",
    "ClassificationScore",
    "ClusteringScore",
    "LabelledTexts",
    "Measured",
    "PairedBootstrap",
    "RetrievalCollection",
    "RetrievalScore",
    "SentencePairs",
    "SimilarityScore",
    "Task",
    "alignment",
    "assignment_accuracy",
    "average_precision",
    "classification_accuracy",
    "clustering_accuracy",
    "cosines",
    "evaluate",
    "iso_score",
    "ndcg",
    "paired_bootstrap",
    "pearson",
    "read_beir",
    "read_classification",
    "read_clustering",
    "read_isotropy",
    "read_labelled_texts",
    "read_retrieval",
    "read_sentence_pairs",
    "read_sts",
    "recall",
    "reciprocal_rank",
    "score_rankings",
    "search",
    "similarity_classification",
    "spearman",
    "split_target",
    "uniformity",
]

_NAMES = {
    "bootstrap": ("PairedBootstrap", "paired_bootstrap"),
    "classification": (
        "ClassificationScore",
        "SimilarityScore",
        "classification_accuracy",
        "similarity_classification",
        "split_target",
    ),
    "clustering": ("ClusteringScore", "assignment_accuracy", "clustering_accuracy"),
    "datasets": (
        "LabelledTexts",
        "RetrievalCollection",
        "SentencePairs",
        "read_beir",
        "read_labelled_texts",
        "read_sentence_pairs",
    ),
    "isotropy": ("alignment", "iso_score", "uniformity"),
    "nearest": ("search",),
    "retrieval": (
        "MEASURES",
        "RetrievalScore",
        "average_precision",
        "ndcg",
        "recall",
        "reciprocal_rank",
        "score_rankings",
    ),
    "sts": ("cosines", "pearson", "spearman"),
    "tasks": (
        "Measured",
        "Task",
        "evaluate",
        "read_classification",
        "read_clustering",
        "read_isotropy",
        "read_retrieval",
        "read_sts",
    ),
}
_HOMES = {name: f"ragembed.evaluation.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ragembed.evaluation' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
