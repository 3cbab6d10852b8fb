"""Evaluate embeddings and search: readers of test collections, measures, and significance tests.

**Whole evaluations.** A reader such as :func:`read_sts`, :func:`read_clustering`, :func:`read_classification`,
:func:`read_isotropy` or :func:`read_retrieval` returns a :class:`Task`, and :func:`evaluate` measures embedder
configurations on it.

**Statistics.** :func:`describe` counts the texts, labels, words and tokens of a collection.

**Retrieval.** :func:`score_rankings` scores the rankings of a system with :data:`MEASURES` or those of
:func:`parse_measures`: :func:`ndcg`, :func:`recall`, :func:`precision`, :func:`success`, :func:`reciprocal_rank` and
:func:`average_precision`. All of them equal those of trec_eval. :func:`read_beir`, :func:`read_jsonl_collection`,
:func:`read_judged_queries` and :func:`read_qrels` read judgements. :func:`read_run` and :func:`write_run` read and
write runs. :func:`search` is an exact nearest-neighbour search.

**Significance.** :func:`compare` compares two systems, with :func:`paired_bootstrap` and :func:`paired_randomisation`.

**Other measures.** :func:`spearman` and :func:`pearson` for semantic textual similarity, :func:`clustering_accuracy`,
:func:`classification_accuracy`, :func:`split_accuracy`, :func:`similarity_classification` and
:func:`relatedness_regression` for classification, and :func:`iso_score`, :func:`alignment` and :func:`uniformity` for
isotropy.

Importing this package is fast, because each name is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.evaluation.bootstrap import PairedBootstrap, paired_bootstrap
    from ragembed.evaluation.classification import (
        ClassificationScore,
        SimilarityScore,
        SplitScore,
        classification_accuracy,
        pair_features,
        similarity_classification,
        split_accuracy,
        split_target,
    )
    from ragembed.evaluation.clustering import ClusteringScore, assignment_accuracy, clustering_accuracy
    from ragembed.evaluation.comparison import Difference, compare, paired_randomisation
    from ragembed.evaluation.datasets import (
        LabelledTexts,
        RetrievalCollection,
        SentencePairs,
        read_beir,
        read_jsonl_collection,
        read_labelled_texts,
        read_sentence_pairs,
    )
    from ragembed.evaluation.description import Description, TextStatistics, describe
    from ragembed.evaluation.isotropy import alignment, iso_score, uniformity
    from ragembed.evaluation.judgements import JudgedQueries, read_judged_queries, read_qrels
    from ragembed.evaluation.nearest import search
    from ragembed.evaluation.relatedness import relatedness_regression
    from ragembed.evaluation.retrieval import (
        MEASURES,
        RetrievalScore,
        average_precision,
        ndcg,
        parse_measures,
        precision,
        recall,
        reciprocal_rank,
        score_rankings,
        success,
    )
    from ragembed.evaluation.runs import by_score, read_run, write_run
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
    "Description",
    "Difference",
    "JudgedQueries",
    "LabelledTexts",
    "Measured",
    "PairedBootstrap",
    "RetrievalCollection",
    "RetrievalScore",
    "SentencePairs",
    "SimilarityScore",
    "SplitScore",
    "Task",
    "TextStatistics",
    "alignment",
    "assignment_accuracy",
    "average_precision",
    "by_score",
    "classification_accuracy",
    "clustering_accuracy",
    "compare",
    "cosines",
    "describe",
    "evaluate",
    "iso_score",
    "ndcg",
    "pair_features",
    "paired_bootstrap",
    "paired_randomisation",
    "parse_measures",
    "pearson",
    "precision",
    "read_beir",
    "read_classification",
    "read_clustering",
    "read_isotropy",
    "read_jsonl_collection",
    "read_judged_queries",
    "read_labelled_texts",
    "read_qrels",
    "read_retrieval",
    "read_run",
    "read_sentence_pairs",
    "read_sts",
    "recall",
    "reciprocal_rank",
    "relatedness_regression",
    "score_rankings",
    "search",
    "similarity_classification",
    "spearman",
    "split_accuracy",
    "split_target",
    "success",
    "uniformity",
    "write_run",
]

_NAMES = {
    "bootstrap": ("PairedBootstrap", "paired_bootstrap"),
    "classification": (
        "ClassificationScore",
        "SimilarityScore",
        "SplitScore",
        "classification_accuracy",
        "pair_features",
        "similarity_classification",
        "split_accuracy",
        "split_target",
    ),
    "clustering": ("ClusteringScore", "assignment_accuracy", "clustering_accuracy"),
    "comparison": ("Difference", "compare", "paired_randomisation"),
    "datasets": (
        "LabelledTexts",
        "RetrievalCollection",
        "SentencePairs",
        "read_beir",
        "read_jsonl_collection",
        "read_labelled_texts",
        "read_sentence_pairs",
    ),
    "description": ("Description", "TextStatistics", "describe"),
    "isotropy": ("alignment", "iso_score", "uniformity"),
    "judgements": ("JudgedQueries", "read_judged_queries", "read_qrels"),
    "nearest": ("search",),
    "relatedness": ("relatedness_regression",),
    "retrieval": (
        "MEASURES",
        "RetrievalScore",
        "average_precision",
        "ndcg",
        "parse_measures",
        "precision",
        "recall",
        "reciprocal_rank",
        "score_rankings",
        "success",
    ),
    "runs": ("by_score", "read_run", "write_run"),
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
__getattr__, __dir__ = lazy_attributes(__name__, _NAMES)
