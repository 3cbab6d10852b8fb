"""FAISS indexes and the on-disk store."""

from __future__ import annotations

from ragembed.indexes.records import ChunkRecord, Hit, SourceRecord, VectorEncoder
from ragembed.indexes.store import Store

__all__ = ["ChunkRecord", "Hit", "SourceRecord", "Store", "VectorEncoder"]
