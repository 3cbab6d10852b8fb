"""The vectors of a static model, one per token id: the module ``StaticEmbedding`` of sentence-transformers, model2vec.

Sources: Aarsen 2025 (static embeddings in sentence-transformers); Tulkens & van Dongen 2024 (model2vec).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ModelError
from ragembed.tensor_map import map_tensors
from ragembed.types import Floats, Integers

_NAMES = ("embedding.weight", "embeddings")


class EmbeddingTable:
    """The table in ``folder``, whose files have the hash ``sha256``; the ids ``left_out`` have no vector.

    The vector of an id is ``embeddings[mapping[id]] * weights[id]``. The mapping and the weights, which model2vec adds,
    are optional. Raises :class:`ModelError` if there is no table.
    """

    def __init__(self, folder: Path, sha256: str, left_out: frozenset[int] = frozenset()) -> None:
        file = folder / "model.safetensors"
        tensors = map_tensors(file, widen=True)
        name = next((name for name in _NAMES if name in tensors), None)
        if name is None or tensors[name].ndim != 2:
            raise ModelError(f"{file} has no table of static vectors: expected one of {', '.join(_NAMES)}")
        self._table = tensors[name]
        self._mapping = tensors.get("mapping")
        self._weights = tensors.get("weights")
        self._left_out = left_out
        self._sha256 = sha256
        self.dim = int(self._table.shape[1])

    @property
    def config(self) -> Mapping[str, Any]:
        """The hash of the files, and the ids that are left out."""
        return {"static": self._sha256, "left_out": sorted(self._left_out)}

    def rows(self, ids: Integers) -> Floats:
        """Return the vectors of ``ids``, float32, shape ``(n, d)``."""
        rows = self._table[ids if self._mapping is None else self._mapping[ids]].astype(np.float32)
        return rows if self._weights is None else rows * self._weights[ids, None].astype(np.float32)

    def present(self, ids: Integers) -> NDArray[np.bool_]:
        """Return which of ``ids`` have a vector."""
        return ~np.isin(ids, list(self._left_out))
