"""Evaluate search: readers of test collections, measures, and significance tests.

**Whole evaluations.** :func:`read_retrieval` returns a :class:`Task`, and :func:`evaluate` measures embedder
configurations on it.

**Measures.** :func:`score_rankings` scores the rankings of a system with :data:`MEASURES` or those of
:func:`parse_measures`: :func:`ndcg`, :func:`recall`, :func:`precision`, :func:`success`, :func:`reciprocal_rank` and
:func:`average_precision`. All of them equal those of trec_eval. :func:`read_beir`, :func:`read_jsonl_collection`,
:func:`read_judged_queries` and :func:`read_qrels` read judgements. :func:`read_run` and :func:`write_run` read and
write runs. :func:`search` is an exact nearest-neighbour search.

**Significance.** :func:`compare` compares two systems, with :func:`paired_bootstrap` and :func:`paired_randomisation`.

Importing this package is fast, because each name is loaded on first use. :mod:`ragembed.papers` evaluates embeddings on
sentence tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.evaluation.judgements import (
        JudgedQueries,
        RetrievalCollection,
        read_beir,
        read_jsonl_collection,
        read_judged_queries,
        read_qrels,
    )
    from ragembed.evaluation.retrieval import (
        MEASURES,
        Difference,
        PairedBootstrap,
        RetrievalScore,
        average_precision,
        compare,
        ndcg,
        paired_bootstrap,
        paired_randomisation,
        parse_measures,
        precision,
        recall,
        reciprocal_rank,
        score_rankings,
        success,
    )
    from ragembed.evaluation.runs import by_score, read_run, write_run
    from ragembed.evaluation.tasks import Measured, Task, evaluate, read_retrieval, search

__all__ = [
    "MEASURES",
    "Difference",
    "JudgedQueries",
    "Measured",
    "PairedBootstrap",
    "RetrievalCollection",
    "RetrievalScore",
    "Task",
    "average_precision",
    "by_score",
    "compare",
    "evaluate",
    "ndcg",
    "paired_bootstrap",
    "paired_randomisation",
    "parse_measures",
    "precision",
    "read_beir",
    "read_jsonl_collection",
    "read_judged_queries",
    "read_qrels",
    "read_retrieval",
    "read_run",
    "recall",
    "reciprocal_rank",
    "score_rankings",
    "search",
    "success",
    "write_run",
]

_NAMES = {
    "judgements": (
        *("JudgedQueries", "RetrievalCollection", "read_beir", "read_jsonl_collection"),
        *("read_judged_queries", "read_qrels"),
    ),
    "retrieval": (
        *("MEASURES", "Difference", "PairedBootstrap", "RetrievalScore", "average_precision", "compare", "ndcg"),
        *("paired_bootstrap", "paired_randomisation", "parse_measures", "precision", "recall", "reciprocal_rank"),
        *("score_rankings", "success"),
    ),
    "runs": ("by_score", "read_run", "write_run"),
    "tasks": ("Measured", "Task", "evaluate", "read_retrieval", "search"),
}
__getattr__, __dir__ = lazy_attributes(__name__, _NAMES)
