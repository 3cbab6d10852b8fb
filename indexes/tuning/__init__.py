"""Tune a store on its own documents, without labels, and evaluate a store with judged queries.

=====================  ==================================================================================
``pool``               the pool of chunks that tuning searches: a seeded sample of the corpus
``prose``              splitting text into sentences, and removing a sentence from a chunk
``queries``            drawing pseudo-queries and splitting them in halves; reading a user's query log
``sources``            sources of pseudo-queries: sentences, headings, titles, links, code, tables
``candidates``         the embedder configurations to compare
``pool_search``        searching the pool with the vectors of each configuration
``choosing``           the search for the best settings
``run``, ``report``    tuning a store, and the report
``store_evaluation``   ranking documents for judged queries with the search of a store
=====================  ==================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.indexes.tuning.report import Candidate, Compared, TuningReport
    from ragembed.indexes.tuning.run import tune_store

__all__ = ["Candidate", "Compared", "TuningReport", "tune_store"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "report": ("Candidate", "Compared", "TuningReport"),
        "run": ("tune_store",),
    },
)
