"""The postings of the generation that a reader sees, kept open between questions."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from ragembed.indexes import catalog
from ragembed.indexes.postings.block import Block
from ragembed.indexes.postings.files import open_postings
from ragembed.indexes.postings.live import LiveBlock
from ragembed.indexes.postings.named import named_postings, stale_chunks
from ragembed.indexes.postings.ranking import Postings
from ragembed.indexes.postings.terms import IndexedTerms


class OpenPostings:
    """Opens the postings of the store at ``path``; threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._blocks: dict[str, Block] = {}
        self._generation = -1
        self._postings: Postings | None = None
        self._terms: IndexedTerms | None = None

    def clear(self) -> None:
        """Let go of the mapped files."""
        with self._lock:
            self._blocks, self._generation, self._postings, self._terms = {}, -1, None, None

    def of(self, connection: sqlite3.Connection) -> Postings | None:
        """Return the postings of the generation that ``connection`` sees; None unless every chunk has its own."""
        generation = catalog.meta(connection, "generation", 0)
        with self._lock:
            if generation != self._generation:
                self._postings = self._open(connection)
                self._generation = generation
            return self._postings

    def _open(self, connection: sqlite3.Connection) -> Postings | None:
        records = named_postings(connection)
        if not records:
            return None
        former, self._blocks = self._blocks, {}
        blocks = []
        for record in records:
            name = record.files.folder
            block = self._blocks[name] = former.get(name) or open_postings(self._path, record.files)
            blocks.append(LiveBlock.without(block, stale_chunks(connection, record.key)))
        if sum(map(len, blocks)) != catalog.count(connection, "chunks"):
            return None
        self._terms = self._terms or IndexedTerms(catalog.words(connection).language)
        return Postings(blocks, self._terms)
