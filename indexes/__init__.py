"""Options and reports of indexing, requirements for the index of a store, drift and refitting.

- :class:`IndexingOptions` selects files and divides them into chunks, and :class:`IndexingReport` is the result of
  indexing.
- :class:`IndexConfig` and :class:`Budget` choose the index of a store.
- :func:`measure_drift` compares the fit of a store with its present corpus. :func:`refit_store` fits the
  post-processors again, and :func:`apply_settings` changes the settings of the embedder and of hybrid search.
- :func:`diagnose` runs every check of a store and returns its findings, each with the command that fixes it.
- :class:`Collection` searches several stores as one, and :func:`refit_together` gives them one embedder.
- :class:`ChunkRecord` and :class:`SourceRecord` are the chunks and the files in a store.
- :class:`Context` is the text that :meth:`Store.context` packs for the prompt of a model.
- :class:`VectorEncoder` is the base class of embedders, for embedders of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.indexes.collection import Collection
    from ragembed.indexes.doctor import Diagnosis, Finding, SkippedCheck, diagnose
    from ragembed.indexes.doctor.drift import DriftReport, measure_drift
    from ragembed.indexes.faiss_index.records import Budget, IndexConfig
    from ragembed.indexes.indexing.index_run import IndexingReport
    from ragembed.indexes.indexing.refit import apply_settings, refit_store, refit_together
    from ragembed.indexes.indexing.request import IndexingOptions
    from ragembed.indexes.search.context import Context, ContextBlock, LeftOut
    from ragembed.indexes.search.fusion import Fusion
    from ragembed.indexes.search.ranking import RankingOptions
    from ragembed.indexes.store import Store
    from ragembed.indexes.types import ChunkRecord, Hit, SourceRecord, VectorEncoder

__all__ = [
    "Budget",
    "ChunkRecord",
    "Collection",
    "Context",
    "ContextBlock",
    "Diagnosis",
    "DriftReport",
    "Finding",
    "Fusion",
    "Hit",
    "IndexConfig",
    "IndexingOptions",
    "IndexingReport",
    "LeftOut",
    "RankingOptions",
    "SkippedCheck",
    "SourceRecord",
    "Store",
    "VectorEncoder",
    "apply_settings",
    "diagnose",
    "measure_drift",
    "refit_store",
    "refit_together",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "faiss_index.records": ("Budget", "IndexConfig"),
        "collection": ("Collection",),
        "doctor": ("Diagnosis", "Finding", "SkippedCheck", "diagnose"),
        "doctor.drift": ("DriftReport", "measure_drift"),
        "indexing.refit": ("apply_settings", "refit_store", "refit_together"),
        "indexing.index_run": ("IndexingReport",),
        "indexing.request": ("IndexingOptions",),
        "search.context": ("Context", "ContextBlock", "LeftOut"),
        "search.fusion": ("Fusion",),
        "search.ranking": ("RankingOptions",),
        "store": ("Store",),
        "types": ("ChunkRecord", "Hit", "SourceRecord", "VectorEncoder"),
    },
)
