"""Pseudo-queries with known answers, and what is compared by them: tuning without labels.

=====================  ==================================================================================
``passages``           the pool that is searched, a seeded sample of the corpus
``sources``            where pseudo-queries come from: sentences, headings, titles, links, code, tables
``log``                a user's own questions with their answers
``queries``            drawing queries, and their halves
``candidates``         the embedders that are compared
``vectors``            the vectors that each of them makes
``significance``       whether the mean over sources differs
=====================  ==================================================================================

:func:`ragembed.indexes.tuning.tune_store` puts these together for a store.
"""

from __future__ import annotations

from ragembed.tuning.log import Logged, read_log
from ragembed.tuning.passages import Passage, Pool, draw_pool
from ragembed.tuning.queries import PseudoQuery, QuerySet, collect
from ragembed.tuning.sources import SOURCES

__all__ = ["SOURCES", "Logged", "Passage", "Pool", "PseudoQuery", "QuerySet", "collect", "draw_pool", "read_log"]
