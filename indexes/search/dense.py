"""Dense search of a snapshot: cosines of chunks with query vectors."""

from __future__ import annotations

import numpy as np

from ragembed.errors import DimensionError
from ragembed.indexes.faiss_index.vectors import inner_products
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage.selection import Admission, among
from ragembed.indexes.types import Keys, Rows
from ragembed.postprocess import unit_rows
from ragembed.types import Doubles, Floats


def nearest(snapshot: Snapshot, vectors: Floats, k: int, selection: Admission | None) -> list[tuple[Keys, Doubles]]:
    """Return for each query vector the keys of the chunks of its ``k`` nearest rows, ascending, and their cosines.

    ``vectors`` has shape ``(n, d)``. Raises :class:`DimensionError` if the store holds vectors of another dimension.
    """
    dim = snapshot.dim()
    if dim not in (None, vectors.shape[1]):
        raise DimensionError(
            f"the query vector has dimension {vectors.shape[1]}: expected {dim}, the dimension of the vectors in the "
            "store; search it with the embedder that it was made with"
        )
    return [_of_chunks(snapshot, *hits, selection) for hits in snapshot.nearest_rows(vectors, k, selection)]


class ChunkVectors:
    """Unit vectors of a snapshot's chunks by key. Each is read once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._keys = np.zeros(0, dtype=np.int64)
        self._vectors = np.zeros((0, 0), dtype=np.float32)

    def of(self, keys: Keys) -> Floats:
        """Return the vectors of the chunks ``keys``, shape ``(n, d)``; raise KeyError for an unknown key."""
        if not len(keys):
            return np.zeros((0, self._snapshot.dim() or 0), dtype=np.float32)
        new = np.unique(keys[~among(keys, self._keys)])
        if len(new):
            found = self._snapshot.vectors(self._snapshot.rows_of_keys(new))
            together = np.concatenate([self._keys, new])
            order = np.argsort(together)
            self._vectors = np.concatenate([self._vectors, found])[order] if len(self._keys) else found
            self._keys = together[order]
        return self._vectors[np.searchsorted(self._keys, keys)]

    def hubness(self, keys: Keys) -> Floats | None:
        """Return the hubness of the chunks ``keys``, measured if new, float32, shape ``(n,)``; None if not measured."""
        hubness = self._snapshot.hubness()
        if hubness is None:
            return None
        rows = self._snapshot.rows_of_keys(keys)
        measured, values = hubness.known(rows)
        if not measured.all():
            new = rows[~measured].tolist()
            hashes = self._snapshot.hashes_of_rows(new)
            values[~measured] = hubness.queries.hubness(self.of(keys[~measured]), [hashes[row] for row in new])
        return values

    def correction(self, keys: Keys, weight: float) -> Floats:
        """Return the part of the hubness of ``keys`` that is subtracted from their cosines, float32, shape ``(n,)``."""
        hubness = self.hubness(keys) if weight else None
        return np.zeros(len(keys), dtype=np.float32) if hubness is None else weight * hubness

    def cosines(self, vector: Floats, keys: Keys) -> Doubles:
        """Return the exact cosines of the chunks ``keys``, shape ``(n,)``, with a query vector, shape ``(d,)``."""
        if not len(keys):
            return np.zeros(0)
        found: Doubles = inner_products(unit_rows(vector[None, :]), self.of(keys))[0].astype(np.float64)
        return found


def _of_chunks(snapshot: Snapshot, rows: Rows, cosines: Floats, selection: Admission | None) -> tuple[Keys, Doubles]:
    """Return the keys of the chunks of ``rows``, ascending, and their cosines."""
    order = np.argsort(rows)
    rows, cosines = rows[order], cosines[order]
    keys, of_keys = snapshot.chunks_of_rows(rows)
    if selection is not None:
        admitted = selection.admits(keys)
        keys, of_keys = keys[admitted], of_keys[admitted]
    return keys, cosines[np.searchsorted(rows, of_keys)].astype(np.float64)
