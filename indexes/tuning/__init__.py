"""Tuning a store on its own documents, without labels, and evaluating a store by judged questions.

=====================  ==================================================================================
``pool``               the pool that is searched, a seeded sample of the corpus
``prose``              sentences, and taking one out of a chunk
``queries``            drawing pseudo-queries, and their halves; a user's own queries with their answers
``sources``            where pseudo-queries come from: sentences, headings, titles, links, code, tables
``candidates``         the embedders that are compared
``pool_search``        searching the pool with the vectors of each of them
``choosing``           the search for the best settings
``run``, ``report``    tuning a store, and what it reports
``store_evaluation``   rankings of judged questions by the search of a store
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
