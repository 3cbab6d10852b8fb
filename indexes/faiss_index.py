"""FAISS indexes over unit vectors, with rows as ids. The only importer of faiss."""

from __future__ import annotations

import errno
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import MissingExtraError, StoreDamagedError

try:
    import faiss
except ImportError as error:
    raise MissingExtraError("faiss", "cpu", "searching and indexing") from error

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

FLAT = "flat"


def write_flat(vectors: Floats, rows: Rows, file: Path) -> None:
    """Write an exact inner-product index of ``vectors``, shape ``(n, d)``, whose ids are ``rows``, shape ``(n,)``."""
    index = faiss.IndexIDMap(faiss.IndexFlatIP(vectors.shape[1]))
    index.add_with_ids(np.ascontiguousarray(vectors, dtype=np.float32), rows)
    file.write_bytes(faiss.serialize_index(index).tobytes())


class SegmentIndex:
    """A stored index, mapped into memory; ``file``'s hash must have been checked.

    Raises :class:`StoreDamagedError` when FAISS cannot read the file or it holds another number of vectors or
    another dimension than stated.
    """

    def __init__(self, file: Path, rows: int, dim: int) -> None:
        try:
            self._index: Any = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            if not file.exists():
                raise FileNotFoundError(errno.ENOENT, "No such file", str(file)) from error
            raise StoreDamagedError(f"{file} cannot be read as a FAISS index: {error}") from error
        if (self._index.ntotal, self._index.d) != (rows, dim):
            raise StoreDamagedError(
                f"{file} holds {self._index.ntotal} vectors of dimension {self._index.d}, expected {rows} of {dim}"
            )

    def search(self, queries: Floats, k: int, dead: Collection[int]) -> tuple[Floats, Rows]:
        """Return inner products and rows of the ``k`` nearest vectors whose row is not in ``dead``.

        ``queries`` is float32, shape ``(n, d)``; both results have shape ``(n, min(k, vectors))``, best first, with
        row -1 and score -inf where there are fewer.
        """
        k = min(k, self._index.ntotal)
        parameters = None
        if dead:
            among = faiss.IDSelectorBatch(np.fromiter(dead, dtype=np.int64, count=len(dead)))
            parameters = faiss.SearchParameters(sel=faiss.IDSelectorNot(among))
        scores, rows = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), k, params=parameters)
        scores[rows < 0] = -np.inf
        return scores, rows
