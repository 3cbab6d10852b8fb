"""FAISS, or what to install to have it."""

from __future__ import annotations

from ragembed.errors import MissingExtraError

try:
    import faiss
except ImportError as error:
    raise MissingExtraError("faiss", "cpu", "searching and indexing") from error

__all__ = ["faiss"]
