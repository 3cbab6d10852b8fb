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
    from ragembed.evaluation.judgements import JudgedQueries as JudgedQueries
    from ragembed.evaluation.judgements import RetrievalCollection as RetrievalCollection
    from ragembed.evaluation.judgements import read_beir as read_beir
    from ragembed.evaluation.judgements import read_jsonl_collection as read_jsonl_collection
    from ragembed.evaluation.judgements import read_judged_queries as read_judged_queries
    from ragembed.evaluation.judgements import read_qrels as read_qrels
    from ragembed.evaluation.retrieval import MEASURES as MEASURES
    from ragembed.evaluation.retrieval import Difference as Difference
    from ragembed.evaluation.retrieval import PairedBootstrap as PairedBootstrap
    from ragembed.evaluation.retrieval import RetrievalScore as RetrievalScore
    from ragembed.evaluation.retrieval import average_precision as average_precision
    from ragembed.evaluation.retrieval import compare as compare
    from ragembed.evaluation.retrieval import ndcg as ndcg
    from ragembed.evaluation.retrieval import paired_bootstrap as paired_bootstrap
    from ragembed.evaluation.retrieval import paired_randomisation as paired_randomisation
    from ragembed.evaluation.retrieval import parse_measures as parse_measures
    from ragembed.evaluation.retrieval import precision as precision
    from ragembed.evaluation.retrieval import recall as recall
    from ragembed.evaluation.retrieval import reciprocal_rank as reciprocal_rank
    from ragembed.evaluation.retrieval import score_rankings as score_rankings
    from ragembed.evaluation.retrieval import success as success
    from ragembed.evaluation.runs import by_score as by_score
    from ragembed.evaluation.runs import read_run as read_run
    from ragembed.evaluation.runs import write_run as write_run
    from ragembed.evaluation.tasks import Measured as Measured
    from ragembed.evaluation.tasks import Task as Task
    from ragembed.evaluation.tasks import evaluate as evaluate
    from ragembed.evaluation.tasks import read_retrieval as read_retrieval
    from ragembed.evaluation.tasks import search as search

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
__all__ = __dir__()
