"""Putting texts with given vectors into a new store, and an encoder that needs no model."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ragembed.documents.model import Chunk
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.records import VectorEncoder

_BATCH = 8192


class GivenVectors:
    """An encoder of texts whose vectors are given elsewhere; a question's is always the same."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.fingerprint = self.raw_fingerprint = hashlib.sha256(b"given %d" % dim).hexdigest()[:32]

    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> np.ndarray:  # noqa: ARG002  the protocol's signature
        """Refuse: nothing is encoded here."""
        raise RuntimeError(f"{len(texts)} texts are to be encoded, but their vectors are given")

    def postprocess_documents(self, raw: np.ndarray) -> np.ndarray:
        """Return the vectors as they are."""
        return raw

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Return vectors of ones, float32, shape ``(n, d)``."""
        return np.ones((len(texts), self.dim), dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        """Return what a store says of it."""
        return {"kind": "external", "model": f"given vectors of dimension {self.dim}"}

    def save(self, folder: str) -> None:
        """Write nothing: it is made anew."""


def fill(path: Path, encoder: VectorEncoder, texts: Path, vectors: np.ndarray, **options: Any) -> None:
    """Make a store, or make it anew, of the texts in a file, a text a line, with ``vectors``, shape ``(n, d)``."""
    if path.is_dir():
        shutil.rmtree(path)
    with (
        Store.create(path, encoder, **options) as store,
        store.writer() as writer,
        texts.open(encoding="utf-8") as lines,
    ):
        for start, batch in _batches(lines):
            writer.stage_vectors(batch, np.asarray(vectors[start : start + len(batch)], dtype=np.float32))
            writer.commit(chunks=[ChunkRecord(str(start + i), Chunk(text)) for i, text in enumerate(batch)])
            writer.merge()
        writer.settle()


def _batches(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    start = 0
    while batch := [line.rstrip("\n") for line in islice(lines, _BATCH)]:
        yield start, batch
        start += len(batch)
