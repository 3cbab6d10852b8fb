"""Dense search of a snapshot: cosines of chunks with query vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragembed.errors import DimensionError
from ragembed.indexes.ann.vectors import inner_products
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage.selection import Admission
from ragembed.postprocess import unit_rows
from ragembed.types import Floats


def nearest(snapshot: Snapshot, vectors: Floats, k: int, selection: Admission | None) -> list[dict[int, float]]:
    """Return for each query vector the cosines of the chunks of its ``k`` nearest rows, by chunk key.

    ``vectors`` has shape ``(n, d)``. Raises :class:`DimensionError` if the store holds vectors of another dimension.
    """
    dim = snapshot.dim()
    if dim not in (None, vectors.shape[1]):
        raise DimensionError(
            f"the query vector has dimension {vectors.shape[1]}: expected {dim}, the dimension of the vectors in the "
            "store; search it with the embedder that it was made with"
        )
    return [_of_chunks(snapshot, rows, selection) for rows in snapshot.nearest_rows(vectors, k, selection)]


class ChunkVectors:
    """Unit vectors of a snapshot's chunks by key. Each is read once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._rows: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self._vectors = np.zeros((0, snapshot.dim() or 0), dtype=np.float32)

    def of(self, keys: Sequence[int]) -> Floats:
        """Return the vectors of the chunks ``keys``, shape ``(n, d)``; raise KeyError for an unknown key."""
        if new := [key for key in dict.fromkeys(keys) if key not in self._places]:
            found = self._snapshot.vectors(self._rows_of(new))
            self._places.update(zip(new, range(len(self._places), len(self._places) + len(new)), strict=True))
            self._vectors = np.concatenate([self._vectors, found])
        return self._vectors[[self._places[key] for key in keys]]

    def _rows_of(self, keys: Sequence[int]) -> list[int]:
        if new := [key for key in keys if key not in self._rows]:
            self._rows.update(self._snapshot.rows_of_keys(new))
        return [self._rows[key] for key in keys]

    def hubness(self, keys: Sequence[int]) -> Floats | None:
        """Return the hubness of the chunks ``keys``, float32, shape ``(n,)``, or None if the store has not measured it.

        Chunks that were added or changed since are measured now.
        """
        hubness = self._snapshot.hubness()
        if hubness is None:
            return None
        rows = self._rows_of(keys)
        measured, values = hubness.known(np.array(rows, dtype=np.int64))
        if not measured.all():
            new = np.flatnonzero(~measured).tolist()
            hashes = self._snapshot.hashes_of_rows([rows[i] for i in new])
            vectors = self.of([keys[i] for i in new])
            values[~measured] = hubness.queries.hubness(vectors, [hashes[rows[i]] for i in new])
        return values

    def correction(self, keys: Sequence[int], weight: float) -> Floats:
        """Return the part of the hubness of ``keys`` that is subtracted from their cosines, float32, shape ``(n,)``."""
        hubness = self.hubness(keys) if weight else None
        return np.zeros(len(keys), dtype=np.float32) if hubness is None else weight * hubness

    def cosines(self, vector: Floats, keys: Sequence[int]) -> dict[int, float]:
        """Return the exact cosines of the chunks ``keys`` with a query vector, shape ``(d,)``, by key."""
        if not keys:
            return {}
        found = inner_products(unit_rows(vector[None, :]), self.of(keys))[0]
        return dict(zip(keys, found.tolist(), strict=True))


def _of_chunks(snapshot: Snapshot, by_row: dict[int, float], selection: Admission | None) -> dict[int, float]:
    keys, rows = snapshot.chunks_of_rows(list(by_row))
    admitted = slice(None) if selection is None else selection.admits(keys)
    return {key: by_row[row] for key, row in zip(keys[admitted].tolist(), rows[admitted].tolist(), strict=True)}
