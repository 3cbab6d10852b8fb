"""FAISS indexes and the on-disk store."""

from __future__ import annotations

from ragembed.indexes.ann.choosing import Budget
from ragembed.indexes.ann.records import IndexConfig
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.ranking import RankingOptions
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, Hit, SourceRecord, VectorEncoder

__all__ = [
    "Budget",
    "ChunkRecord",
    "Fusion",
    "Hit",
    "IndexConfig",
    "RankingOptions",
    "SourceRecord",
    "Store",
    "VectorEncoder",
]
