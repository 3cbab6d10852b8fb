"""The tables of static extractors: one vector per token id, or per word, independent of context."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ModelError
from ragembed.tensor_map import map_tensors
from ragembed.types import Floats, Integers

if TYPE_CHECKING:
    from ragembed.extractors.word_vectors import WordVectors

_NAMES = ("embedding.weight", "embeddings")
_DRAWN_AT_ONCE = 64
"""Number of vectors drawn at a time, so that intermediate arrays stay in the cache."""


class TokenTable(ABC):
    """Vectors of token ids, of dimension ``dim``."""

    dim: int

    @property
    @abstractmethod
    def config(self) -> Mapping[str, Any]:
        """The settings that determine the vectors besides the fit, as JSON values."""

    @abstractmethod
    def rows(self, ids: Integers) -> Floats:
        """Return the vectors of ``ids``, shape ``(n,)``, as float32, shape ``(n, d)``."""

    def present(self, ids: Integers) -> NDArray[np.bool_]:
        """Return which of ``ids`` have a vector; the others are left out of the mean."""
        return np.ones(ids.shape, dtype=bool)


class EmbeddingTable(TokenTable):
    """The vectors of a static model: ``StaticEmbedding`` of sentence-transformers (Aarsen 2025), or model2vec.

    They are the table in ``folder``, whose files have the hash ``sha256``; the ids ``left_out`` have no vector. The
    vector of an id is ``embeddings[mapping[id]] * weights[id]``. The mapping and the weights, which model2vec adds,
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


class RandomTable(TokenTable):
    """The extractor ``re``, random embeddings without meaning (Stankevičius & Lukoševičius 2024, section 3.2.5).

    One vector of ``dim`` independent ``N(0, sigma²)`` values per id; ``sigma`` is a standard deviation.

    The vector of an id depends only on the seed and the id. It is drawn on first use, from a counter-based generator
    with a fixed stream (Salmon et al. 2011) by the transform of Box & Muller 1958.
    """

    def __init__(self, seed: int, dim: int, sigma: float) -> None:
        self.dim = dim
        self._seed = seed
        self._sigma = sigma
        self._ids = np.zeros(0, dtype=np.int64)  # ids with a vector, ascending
        self._place = np.zeros(0, dtype=np.int64)  # row of each id's vector in _drawn
        self._drawn = np.empty((0, dim), dtype=np.float32)  # may have spare rows at the end
        self._count = 0
        self._drawing = threading.Lock()

    def __reduce__(self) -> tuple[type[RandomTable], tuple[int, int, float]]:
        """Start a copy with no vectors drawn."""
        return RandomTable, (self._seed, self.dim, self._sigma)

    @property
    def config(self) -> Mapping[str, Any]:
        """Seed, dimension and standard deviation."""
        return {"random": {"seed": self._seed, "dim": self.dim, "sigma": self._sigma}}

    def rows(self, ids: Integers) -> Floats:
        """Return the vectors of ``ids``, float32, shape ``(n, d)``."""
        with self._drawing:
            at = np.searchsorted(self._ids, ids)
            fresh = ids[at == np.searchsorted(self._ids, ids, side="right")]
            if len(fresh):
                self._append(np.unique(fresh))
                at = np.searchsorted(self._ids, ids)
            return self._drawn[self._place[at]]

    def _append(self, ids: Integers) -> None:
        """Draw the vectors of new ``ids``, given in ascending order."""
        count = self._count + len(ids)
        if count > len(self._drawn):
            larger = np.empty((max(count, 2 * len(self._drawn)), self.dim), dtype=np.float32)
            larger[: self._count] = self._drawn[: self._count]
            self._drawn = larger
        for start in range(0, len(ids), _DRAWN_AT_ONCE):
            some = ids[start : start + _DRAWN_AT_ONCE]
            first = self._count + start
            self._drawn[first : first + len(some)] = self._draw(some)
        at = np.searchsorted(self._ids, ids)
        self._ids = np.insert(self._ids, at, ids)
        self._place = np.insert(self._place, at, np.arange(self._count, count))
        self._count = count

    def _draw(self, ids: Integers) -> Floats:
        """Return the vectors of ``ids``, float32, shape ``(n, d)``."""
        pairs = (self.dim + 1) // 2
        bits = np.empty((len(ids), 2 * pairs), dtype=np.uint64)
        generator = np.random.Philox(key=[0, self._seed])
        start_state = generator.state  # changing its key per id is three times as fast as a new generator
        for row, number in zip(bits, ids.tolist(), strict=True):
            start_state["state"]["key"][0] = number
            generator.state = start_state
            row[:] = generator.random_raw(2 * pairs)
        # Uniform in (0, 1], because the logarithm of 0 is not finite.
        uniform = ((bits >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
        radius, angle = np.sqrt(-2.0 * np.log(uniform[:, 0::2])), 2.0 * np.pi * uniform[:, 1::2]
        normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        drawn: Floats = (self._sigma * normal[:, : self.dim]).astype(np.float32)
        return drawn


class WordTable(TokenTable):
    """Word vectors: B2S, GloVe, word2vec (Stankevičius & Lukoševičius 2024, section 3.2.4).

    They are those of a file without the ``drop`` most frequent words, which come first in the file.
    """

    def __init__(self, vectors: WordVectors, drop: int) -> None:
        self.dim = vectors.dim
        self._vectors = vectors
        self._drop = drop

    @property
    def config(self) -> Mapping[str, Any]:
        """The hash of the file, and the number of words left out."""
        return {"words": self._vectors.sha256, "drop": self._drop}

    def rows(self, ids: Integers) -> Floats:
        """Return the vectors of ``ids``, float32, shape ``(n, d)``."""
        return np.asarray(self._vectors.vectors[ids], dtype=np.float32)

    def present(self, ids: Integers) -> NDArray[np.bool_]:
        """Return which of ``ids`` are not left out."""
        return np.asarray(ids >= self._drop)
