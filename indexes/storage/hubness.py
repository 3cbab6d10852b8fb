"""Hubness: how near each chunk is to queries of any kind, measured with pseudo-queries and kept in a file.

Some chunks are near many queries and would be among the results of most of them. The hubness of a chunk is the mean
cosine of its nearest pseudo-queries; hybrid search subtracts a part of it from the chunk's cosine. This is the
query-side half of cross-domain similarity local scaling (Conneau et al. 2018, "Word translation without parallel data",
section 2.3).

The file is in the embedder's folder, named by its own hash. It is valid while the database names it under ``hubness``
together with the store's current embedder.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import PseudoQueries, draw_spans
from ragembed.errors import ModelError, StoreDamagedError
from ragembed.extractors.protocol import saved_array
from ragembed.files import replace_file
from ragembed.indexes.faiss_index.vectors import places_in
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.folders import require_committed
from ragembed.indexes.storage.layout import EMBEDDERS
from ragembed.indexes.storage.per_generation import PerGeneration
from ragembed.indexes.types import Rows
from ragembed.tensor_map import map_tensors
from ragembed.types import Bools, Floats

KEY = "hubness"

NEAREST = 40
"""Number of nearest pseudo-queries whose cosines are averaged."""

PSEUDO_QUERIES = 1_200
"""Maximum number of pseudo-queries of a draw."""

DRAWS = 2
"""Number of draws. The hubness of two draws differs less than that of one from the hubness of many."""

LEAST_CHUNKS = 100
"""Number of chunks from which a search uses hubness: fewer chunks give too few pseudo-queries."""

HASH_BYTES = 16
"""Size of the hash of a text."""

_BLOCK = 1024
_MOST_MEASURED = 1_000_000
"""Number of texts whose hubness is kept in memory."""
_NAME = re.compile(r"\.?hubness-[0-9a-f]{16}\.safetensors(\.[0-9]+\.tmp)?")
_FIELDS = {"fingerprint": str, "file": str, "sha256": str, "chunks": int, "last_row": int}


@dataclass(frozen=True, eq=False)
class DrawnQueries:
    """The ``m`` pseudo-queries that chunks are compared with, and their unit vectors, float32, shape ``(m, d)``.

    ``origins`` are the hashes of the texts that they were drawn from, uint8, shape ``(m, 16)``. A chunk with such a
    text is not compared with its own pseudo-queries, which would be nearer than any query.
    """

    drawn: PseudoQueries
    origins: NDArray[np.uint8]
    vectors: Floats

    def hubness(self, vectors: Floats, hashes: Sequence[bytes]) -> Floats:
        """Return the hubness of unit vectors, shape ``(n, d)``, whose texts have these hashes; float32, shape ``(n,)``.

        It is the mean of the ``NEAREST`` highest cosines with pseudo-queries from other texts. If some text has fewer
        of them, the mean is over that number for every text, and 0 if there are none.
        """
        own = self._of_text
        found = np.zeros(len(vectors), dtype=np.float32)
        nearest = min(NEAREST, len(self.vectors) - max(map(len, own.values()), default=0))
        if nearest < 1:
            return found
        for start in range(0, len(vectors), _BLOCK):
            cosines = vectors[start : start + _BLOCK] @ self.vectors.T
            for row, key in enumerate(hashes[start : start + _BLOCK]):
                cosines[row, own.get(key, [])] = -1.0
            cosines.partition(cosines.shape[1] - nearest, axis=1)
            found[start : start + _BLOCK] = cosines[:, -nearest:].mean(axis=1)
        return found

    @cached_property
    def _of_text(self) -> dict[bytes, list[int]]:
        """Positions of the pseudo-queries by the hash of the text that they were drawn from."""
        found: dict[bytes, list[int]] = {}
        for at, origin in enumerate(self.origins):
            found.setdefault(origin.tobytes(), []).append(at)
        return found


@dataclass(frozen=True, eq=False)
class MergedQueries(DrawnQueries):
    """The pseudo-queries of several stores. The hubness of each text is kept after its first measurement."""

    measured: dict[bytes, float] = field(default_factory=dict)

    @classmethod
    def of(cls, drawn: Sequence[tuple[DrawnQueries, Mapping[bytes, str]]], seed: int) -> MergedQueries | None:
        """Return the pseudo-queries that a store with the texts of all stores would have drawn, None if there are none.

        ``drawn`` has the pseudo-queries of each store, and the texts that they come from by hash. The draws take the
        texts with the smallest hashes, so the stores have drawn all of them. Pseudo-queries whose text was deleted are
        left out.
        """
        texts = {key: text for _, of_store in drawn for key, text in of_store.items()}
        hashes = {text: key for key, text in texts.items()}
        places = {
            (queries.drawn.texts[at], queries.origins[at].tobytes()): (queries, at)
            for queries, _ in drawn
            for at in range(len(queries.origins))
        }
        spans = [
            (span, hashes[text])
            for draw in range(DRAWS)
            for span, text in draw_spans(texts.values(), PSEUDO_QUERIES, seed + draw)
        ]
        chosen = [(span, origin, *places[span, origin]) for span, origin in spans if (span, origin) in places]
        if not chosen:
            return None
        return cls(
            PseudoQueries(
                tuple(span for span, *_ in chosen), np.stack([each.drawn.raw[at] for *_, each, at in chosen])
            ),
            np.frombuffer(b"".join(origin for _, origin, *_ in chosen), dtype=np.uint8).reshape(-1, HASH_BYTES),
            np.stack([each.vectors[at] for *_, each, at in chosen]),
        )

    def hubness(self, vectors: Floats, hashes: Sequence[bytes]) -> Floats:
        """Return the hubness of unit vectors; see :meth:`DrawnQueries.hubness`."""
        found = {key: self.measured[key] for key in hashes if key in self.measured}
        new = [i for i, key in enumerate(hashes) if key not in found]
        values = DrawnQueries.hubness(self, vectors[new], [hashes[i] for i in new]).tolist()
        found.update(zip((hashes[i] for i in new), values, strict=True))
        if len(self.measured) <= _MOST_MEASURED:
            self.measured.update(found)
        return np.array([found[key] for key in hashes], dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Hubness:
    """The hubness ``values`` of the vector rows ``rows``, and the pseudo-queries that it is measured with.

    Rows are ascending, int64, shape ``(n,)``, ``n >= 1``; values are float32, shape ``(n,)``. Hubness depends only on
    the row: a chunk whose searched text changes gets another row, and rows are never reused. ``chunks`` is the number
    of chunks when the pseudo-queries were drawn.
    """

    queries: DrawnQueries
    rows: Rows
    values: Floats
    chunks: int

    def if_enough(self) -> Hubness | None:
        """Return the hubness if the store has enough chunks to be searched with it, else None."""
        return self if self.chunks >= LEAST_CHUNKS else None

    def known(self, rows: Rows) -> tuple[Bools, Floats]:
        """Return which rows have been measured, and the hubness of each, 0 if it has not been; shapes ``(n,)``."""
        at = places_in(self.rows, rows)
        measured: Bools = self.rows[at] == rows
        return measured, np.where(measured, self.values[at], np.float32(0.0))


def is_hubness(name: str) -> bool:
    """Return whether a file name in an embedder's folder is that of a hubness file, or of an unfinished one."""
    return _NAME.fullmatch(name) is not None


def save_hubness(store: Path, fingerprint: str, hubness: Hubness) -> dict[str, Any]:
    """Write ``hubness`` into the folder of the embedder ``fingerprint``; return the record for the database."""
    from safetensors.numpy import save

    arrays = {
        "texts": np.frombuffer("\n".join(hubness.queries.drawn.texts).encode("utf-8", "replace"), dtype=np.uint8),
        "origins": hubness.queries.origins,
        "raw": hubness.queries.drawn.raw,
        "queries": hubness.queries.vectors,
        "rows": hubness.rows,
        "values": hubness.values,
    }
    data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"hubness-{sha256[:16]}.safetensors"
    replace_file(store / EMBEDDERS / fingerprint / name, data)
    last_row = int(hubness.rows[-1])
    return {"fingerprint": fingerprint, "file": name, "sha256": sha256, "chunks": hubness.chunks, "last_row": last_row}


def load_hubness(store: Path, record: Mapping[str, Any]) -> Hubness:
    """Return the hubness that ``record`` names, memory-mapped.

    Raises :class:`StoreDamagedError` if the file does not have its committed content, and :class:`FileNotFoundError` if
    it is missing.
    """
    file = hubness_file(store, record)
    require_committed(file, record["sha256"], "remove it with 'ragembed doctor --repair'")
    try:
        arrays = map_tensors(file)
        texts = tuple(bytes(arrays["texts"]).decode("utf-8").split("\n"))
        raw_dim, dim, count = arrays["raw"].shape[1], arrays["queries"].shape[1], arrays["rows"].size
        queries = DrawnQueries(
            PseudoQueries(texts, saved_array(arrays, "raw", np.float32, (len(texts), raw_dim))),
            saved_array(arrays, "origins", np.uint8, (len(texts), HASH_BYTES)),
            saved_array(arrays, "queries", np.float32, (len(texts), dim)),
        )
        return Hubness(
            queries,
            saved_array(arrays, "rows", np.int64, (count,)),
            saved_array(arrays, "values", np.float32, (count,)),
            record["chunks"],
        )
    except (ModelError, KeyError, ValueError, IndexError) as error:
        raise StoreDamagedError(f"{file} is damaged: {error}") from error


def hubness_record(connection: sqlite3.Connection) -> dict[str, Any] | None:
    """Return the database record of the hubness under the store's embedder, or None if there is none."""
    record = catalog.meta(connection, KEY)
    if record is None:
        return None
    if not is_hubness_record(record):
        raise StoreDamagedError(f"the store's database holds {str(record)[:60]!r} for {KEY!r}: expected a hubness file")
    kept: dict[str, Any] = record
    return kept if kept["fingerprint"] == catalog.embedder(connection)["fingerprint"] else None


def is_hubness_record(value: object) -> bool:
    """Return whether a JSON value is a record that :func:`save_hubness` returns, or null."""
    if value is None:
        return True
    if not isinstance(value, dict) or not all(isinstance(value.get(name), kind) for name, kind in _FIELDS.items()):
        return False
    return is_hubness(value["file"])


def sweep_hubness(store: Path, connection: sqlite3.Connection) -> None:
    """Remove hubness files that the database does not name."""
    record = hubness_record(connection)
    folder = store / EMBEDDERS / catalog.embedder(connection)["fingerprint"]
    for file in list(folder.iterdir()) if folder.is_dir() else []:
        if is_hubness(file.name) and (record is None or file.name != record["file"]):
            # Windows does not remove a file that a search has mapped. A later writer removes it.
            with contextlib.suppress(PermissionError):
                file.unlink(missing_ok=True)


def hubness_file(store: Path, record: Mapping[str, Any]) -> Path:
    """Return the path of the file that ``record`` names."""
    return store / EMBEDDERS / str(record["fingerprint"]) / str(record["file"])


_Opened: TypeAlias = "tuple[dict[str, Any] | None, Hubness | None]"
"""The record of the hubness, and the hubness that it names."""


class OpenHubness:
    """Opens the hubness of the store at ``path``. Threads may share an instance."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: PerGeneration[_Opened] = PerGeneration()

    def clear(self) -> None:
        """Release the mapped file."""
        self._kept.clear()

    def of(self, connection: sqlite3.Connection, generation: object) -> Hubness | None:
        """Return the hubness of ``generation``, which ``connection`` sees, or None if it was not measured."""

        def opened(before: _Opened | None) -> _Opened:
            record = hubness_record(connection)
            if before is not None and before[0] == record:
                return before
            return record, None if record is None else load_hubness(self._path, record)

        return self._kept.of(generation, opened)[1]
