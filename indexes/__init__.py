"""FAISS indexes and the on-disk store."""

from __future__ import annotations

from ragembed.indexes.ann.choosing import Budget
from ragembed.indexes.ann.records import Wanted
from ragembed.indexes.arranging import Arrangement
from ragembed.indexes.fusion import Fusion
from ragembed.indexes.records import ChunkRecord, Hit, SourceRecord, VectorEncoder
from ragembed.indexes.store import Store

__all__ = ["Arrangement", "Budget", "ChunkRecord", "Fusion", "Hit", "SourceRecord", "Store", "VectorEncoder", "Wanted"]
