"""Baselines: the state of a store when its post-processors were fitted, in a derived file.

A later fit uses the baseline to avoid encoding texts again, and drift is measured against it. It is forgotten when the
embedder changes; a fit makes another.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import PseudoQueries
from ragembed.errors import ModelError, StoreDamagedError
from ragembed.extractors.protocol import saved_array
from ragembed.files import write_file
from ragembed.indexes.storage import derived
from ragembed.indexes.storage.derived import DerivedFile, DerivedRecord
from ragembed.postprocess.moments import Moments
from ragembed.tensor_map import map_tensors


@dataclass(frozen=True, slots=True)
class Baseline:
    """The state of a store when its post-processors were fitted on raw vectors with these ``moments``.

    ``last_row`` was the highest vector row, 0 if the embedder was fitted before the store existed. ``vectors`` is the
    number of vectors that chunks used. ``pseudo_queries`` have known raw vectors: those that the query side is or was
    fitted on; None if it never had a fit of its own.
    """

    last_row: int
    vectors: int
    moments: Moments
    pseudo_queries: PseudoQueries | None = None

    @classmethod
    def read(cls, file: Path) -> Baseline:
        """Read a file of :meth:`save`; raise :class:`StoreDamagedError` if it is invalid."""
        try:
            arrays = map_tensors(file)
            last_row, vectors, count = saved_array(arrays, "counts", np.int64, (3,)).tolist()
            mean = arrays["mean"]
            saved_array(arrays, "mean", np.float64, (mean.size,))
            spread = float(saved_array(arrays, "spread", np.float64, (1,))[0])
            queries = queries_of(arrays)
            if queries is not None:
                saved_array(arrays, "queries.raw", np.float32, (len(queries.texts), mean.size))
            return cls(last_row, vectors, Moments(count, mean, spread), queries)
        except (ModelError, KeyError, ValueError, IndexError) as error:
            raise StoreDamagedError(f"{file} is damaged: {error}") from error

    def save(self, file: Path) -> None:
        """Write the baseline to ``file``."""
        from safetensors.numpy import save

        arrays: dict[str, NDArray[Any]] = {
            "counts": np.array([self.last_row, self.vectors, self.moments.count], dtype=np.int64),
            "mean": self.moments.mean,
            "spread": np.array([self.moments.spread], dtype=np.float64),
        }
        write_file(file, save(arrays | query_arrays(self.pseudo_queries)))


def load_baseline(store: Path, connection: sqlite3.Connection) -> Baseline | None:
    """Return the baseline of the store's embedder, or None; raise as :func:`derived.read_derived` does."""
    for record in derived.records(connection, BASELINE.name):
        return derived.read_derived(store, BASELINE, record)
    return None


def _only(_: sqlite3.Connection, files: Sequence[tuple[DerivedRecord, Baseline]]) -> Baseline | None:
    return files[0][1] if files else None


BASELINE = DerivedFile(derived.BASELINE, Baseline.read, _only)


def query_arrays(queries: PseudoQueries | None) -> dict[str, NDArray[Any]]:
    """Return arrays from which :func:`queries_of` makes the pseudo-queries again."""
    if queries is None:
        return {}
    # Pseudo-queries consist of words from str.split(), so they contain no newline.
    text = "\n".join(queries.texts).encode("utf-8", "replace")
    return {
        "queries.texts": np.frombuffer(text, dtype=np.uint8),
        "queries.raw": np.ascontiguousarray(queries.raw),
    }


def queries_of(arrays: Mapping[str, NDArray[Any]]) -> PseudoQueries | None:
    """Return the pseudo-queries that :func:`query_arrays` has saved."""
    if "queries.texts" not in arrays:
        return None
    texts = tuple(arrays["queries.texts"].tobytes().decode("utf-8").split("\n"))
    width = arrays["queries.raw"].shape[-1]
    return PseudoQueries(texts, saved_array(arrays, "queries.raw", np.float32, (len(texts), width)))
