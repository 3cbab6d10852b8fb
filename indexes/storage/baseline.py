"""Baselines: the state of a store when its post-processors were fitted.

A later fit uses the baseline to avoid encoding texts again, and drift is measured against it. A baseline is a file in
the embedder's folder, named by its own hash. It is valid while the database names it under ``baseline`` together with
the store's current embedder.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import PseudoQueries
from ragembed.errors import ModelError, StoreDamagedError
from ragembed.extractors.protocol import saved_array
from ragembed.files import replace_file, write_file
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.folders import require_committed
from ragembed.indexes.storage.layout import EMBEDDERS
from ragembed.indexes.types import VectorEncoder
from ragembed.postprocess.moments import Moments

KEY = "baseline"
_NAME = re.compile(r"\.?baseline-[0-9a-f]{16}\.safetensors(\.[0-9]+\.tmp)?")
_FIELDS = ("fingerprint", "file", "sha256")


@dataclass(frozen=True, slots=True)
class Baseline:
    """The state of a store when its post-processors were fitted.

    Parameters
    ----------
    last_row
        The highest vector row at that time. Vectors added later have a higher row. 0 if the embedder was fitted before
        the store existed.
    vectors
        Number of vectors that chunks used.
    moments
        Moments of the raw vectors that the post-processors were fitted on.
    pseudo_queries
        Pseudo-queries with known raw vectors: those that the query side is or was fitted on. None if it never had a fit
        of its own.
    """

    last_row: int
    vectors: int
    moments: Moments
    pseudo_queries: PseudoQueries | None = None


def is_baseline(name: str) -> bool:
    """Return whether a file name in an embedder's folder is that of a baseline, or of an unfinished one."""
    return _NAME.fullmatch(name) is not None


def save_baseline(store: Path, fingerprint: str, baseline: Baseline) -> dict[str, str]:
    """Write ``baseline`` into the folder of the embedder ``fingerprint``; return the record for the database."""
    from safetensors.numpy import save

    data = save(_arrays(baseline))
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"baseline-{sha256[:16]}.safetensors"
    replace_file(store / EMBEDDERS / fingerprint / name, data)
    return {"fingerprint": fingerprint, "file": name, "sha256": sha256}


def save_first_baseline(store: Path, embedder: VectorEncoder) -> dict[str, str] | None:
    """Write the baseline of an embedder that was fitted before the store existed; return its record, or None."""
    own = embedder.refittable
    if own is None or own.fitted_moments is None:
        return None
    baseline = Baseline(0, 0, own.fitted_moments, own.fitted_queries)
    return save_baseline(store, embedder.fingerprint, baseline)


def load_baseline(store: Path, connection: sqlite3.Connection) -> Baseline | None:
    """Return the baseline of the store's embedder, or None if there is none.

    Raises :class:`StoreDamagedError` if the file does not have its committed content, and :class:`FileNotFoundError` if
    it is missing.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if (record := baseline_record(connection)) is None:
        return None
    file = baseline_file(store, record)
    require_committed(
        file, record["sha256"], store, "remove it with 'ragembed doctor --repair'; the next refit writes it again"
    )
    try:
        return _baseline(load(file.read_bytes()))
    except (SafetensorError, ModelError, KeyError, ValueError) as error:  # KeyError: a dtype unknown to NumPy.
        raise StoreDamagedError(f"{file} is damaged: {error}") from error


def baseline_record(connection: sqlite3.Connection) -> dict[str, str] | None:
    """Return the database record of the baseline of the store's embedder, or None if there is none."""
    record = catalog.meta(connection, KEY)
    if record is None:
        return None
    if not is_baseline_record(record):
        raise StoreDamagedError(f"the store's database holds {str(record)[:60]!r} for {KEY!r}: expected a baseline")
    kept: dict[str, str] = record
    return kept if kept["fingerprint"] == catalog.embedder(connection)["fingerprint"] else None


def is_baseline_record(value: object) -> bool:
    """Return whether a JSON value is a record that :func:`save_baseline` returns, or null."""
    if value is None:
        return True
    texts = [value.get(name) for name in _FIELDS] if isinstance(value, dict) else [None]
    return all(isinstance(text, str) for text in texts) and is_baseline(str(texts[1]))


def baseline_file(store: Path, record: Mapping[str, str]) -> Path:
    """Return the path of the file that ``record`` names."""
    return store / EMBEDDERS / record["fingerprint"] / record["file"]


def copy_baseline(store: Path, connection: sqlite3.Connection, fingerprint: str, folder: Path) -> None:
    """Copy the baseline file into ``folder``, which will replace the folder of this embedder."""
    record = baseline_record(connection)
    if record is not None and record["fingerprint"] == fingerprint:
        write_file(folder / record["file"], baseline_file(store, record).read_bytes())


def sweep_baselines(store: Path, connection: sqlite3.Connection) -> None:
    """Remove baseline files that the database does not name."""
    record = baseline_record(connection)
    folder = store / EMBEDDERS / catalog.embedder(connection)["fingerprint"]
    for file in _files(folder):
        if record is None or file.name != record["file"]:
            file.unlink(missing_ok=True)


def _files(folder: Path) -> Iterator[Path]:
    entries = list(folder.iterdir()) if folder.is_dir() else []
    return (entry for entry in entries if is_baseline(entry.name) and not entry.is_dir())


def _arrays(baseline: Baseline) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {
        "counts": np.array([baseline.last_row, baseline.vectors, baseline.moments.count], dtype=np.int64),
        "mean": baseline.moments.mean,
        "spread": np.array([baseline.moments.spread], dtype=np.float64),
    }
    return arrays | query_arrays(baseline.pseudo_queries)


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


def _baseline(arrays: Mapping[str, NDArray[Any]]) -> Baseline:
    last_row, vectors, count = saved_array(arrays, "counts", np.int64, (3,)).tolist()
    mean = arrays["mean"]
    saved_array(arrays, "mean", np.float64, (mean.size,))
    spread = float(saved_array(arrays, "spread", np.float64, (1,))[0])
    queries = queries_of(arrays)
    if queries is not None:
        saved_array(arrays, "queries.raw", np.float32, (len(queries.texts), mean.size))
    return Baseline(last_row, vectors, Moments(count, mean, spread), queries)
