"""The pseudo-queries that the post-processors of a store were fitted on, with their raw vectors, in a derived file.

A later fit encodes only those that are new. Its record says for how many vectors it was made, and the highest row of
them then; both are 0 if the embedder was fitted before the store existed. It is forgotten when the embedder changes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
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
from ragembed.tensor_map import map_tensors


def query_arrays(queries: PseudoQueries) -> dict[str, NDArray[Any]]:
    """Return arrays from which :func:`queries_of` makes the pseudo-queries again."""
    # Pseudo-queries consist of words from str.split(), so they contain no newline.
    text = "\n".join(queries.texts).encode("utf-8", "replace")
    return {"texts": np.frombuffer(text, dtype=np.uint8), "raw": np.ascontiguousarray(queries.raw)}


def queries_of(arrays: Mapping[str, NDArray[Any]]) -> PseudoQueries:
    """Return the pseudo-queries that :func:`query_arrays` has saved."""
    texts = tuple(arrays["texts"].tobytes().decode("utf-8").split("\n"))
    return PseudoQueries(texts, saved_array(arrays, "raw", np.float32, (len(texts), arrays["raw"].shape[-1])))


def read_queries(file: Path) -> PseudoQueries:
    """Read a file of :func:`save_queries`; raise :class:`StoreDamagedError` if it is invalid."""
    try:
        return queries_of(map_tensors(file))
    except (ModelError, KeyError, ValueError, IndexError) as error:
        raise StoreDamagedError(f"{file} is damaged: {error}") from error


def save_queries(file: Path, queries: PseudoQueries) -> None:
    """Write the pseudo-queries to ``file``."""
    from safetensors.numpy import save

    write_file(file, save(query_arrays(queries)))


def joined(queries: Iterable[PseudoQueries | None]) -> PseudoQueries | None:
    """Return the pseudo-queries of several stores, or None if no store has any."""
    some = [each for each in queries if each is not None]
    if not some:
        return None
    return PseudoQueries(
        tuple(text for each in some for text in each.texts), np.concatenate([each.raw for each in some])
    )


def load_queries(store: Path, connection: sqlite3.Connection) -> PseudoQueries | None:
    """Return the pseudo-queries of the store's fit, or None; raise as :func:`derived.read_derived` does."""
    for record in derived.records(connection, QUERIES.name):
        return derived.read_derived(store, QUERIES, record)
    return None


def _only(_: sqlite3.Connection, files: Sequence[tuple[DerivedRecord, PseudoQueries]]) -> PseudoQueries | None:
    return files[0][1] if files else None


QUERIES = DerivedFile(derived.QUERIES, read_queries, _only)
