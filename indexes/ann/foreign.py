"""Read the vectors of FAISS index files that other programs wrote."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np

from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.indexes.ann.building import reason
from ragembed.indexes.ann.library import faiss
from ragembed.types import Floats

_METRICS: Mapping[int, bytes] = MappingProxyType({0: b"IxFI", 1: b"IxF2"})
"""FAISS's metric numbers for inner product and L2 distance, each with the type of a flat index of that metric."""
_HEADER = struct.Struct("<4siqqq?iQ")
"""Type, dimension, number of vectors, two unused numbers, is-trained flag, metric, number of values that follow."""


def read_vectors(file: Path) -> Floats:
    """Return the vectors of an index, float32, shape ``(n, d)``, in order of position.

    A flat index returns the vectors that were added. Other kinds return an approximation: quantisers round the vectors,
    and transforms may drop directions.

    Raises
    ------
    StoreDamagedError
        If the file is truncated or is not a FAISS index.
    ConfigError
        If the index cannot reconstruct its vectors, or uses another metric than inner product or L2 distance.
    """
    with file.open("rb") as stream:
        flat = _read_flat(stream, file)
        if flat is not None:
            return flat
        stream.seek(0)
        try:
            # Python opens the file because FAISS cannot open non-ASCII paths on Windows. Read-only, because an index
            # file may name another file that FAISS would otherwise open for writing.
            index: Any = faiss.read_index(faiss.PyCallbackIOReader(stream.read), faiss.IO_FLAG_READ_ONLY)
        except (RuntimeError, MemoryError) as error:
            raise StoreDamagedError(f"{file} cannot be read as a FAISS index: {_message(error)}") from error
    if index.metric_type not in _METRICS:
        raise ConfigError(
            f"{file} uses FAISS metric number {index.metric_type}: expected inner product or L2 distance; "
            "create a new store from the texts"
        )
    return _reconstructed(index, file)


def _read_flat(stream: BinaryIO, file: Path) -> Floats | None:
    """Read a flat index, or return None for another kind; the size is checked before memory is allocated."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    _, dim, count, _, _, _, number, values = _HEADER.unpack(header)
    if header[:4] != _METRICS.get(number):
        return None
    size = os.fstat(stream.fileno()).st_size
    if dim <= 0 or count < 0 or values != count * dim or size != _HEADER.size + 4 * values:
        raise StoreDamagedError(
            f"{file} has {size:,} bytes, which does not match its header ({count:,} vectors of dimension {dim:,}): "
            "expected a complete FAISS index; save the store again"
        )
    vectors = np.fromfile(stream, dtype="<f4", count=values).reshape(count, dim)
    return vectors.astype(np.float32, copy=False)


def _reconstructed(index: Any, file: Path) -> Floats:
    try:
        vectors = np.empty((index.ntotal, index.d), dtype=np.float32)
        lists = faiss.try_extract_index_ivf(index)
        if lists is not None:
            if isinstance(faiss.downcast_InvertedLists(lists.invlists), faiss.BlockInvertedLists):
                raise RuntimeError("Error: codes packed for fast scanning (fs) cannot be unpacked")
            lists.make_direct_map()
        for position, vector in enumerate(vectors):
            index.reconstruct(position, vector)  # reconstruct_n ends the process if a vector cannot be reconstructed
    except (RuntimeError, MemoryError) as error:
        raise ConfigError(
            f"{file} is an {type(index).__name__}, which cannot return its vectors in order of position: "
            f"{_message(error)}; create a new store from the texts"
        ) from error
    return vectors


def _message(error: RuntimeError | MemoryError) -> str:
    return reason(error) if isinstance(error, RuntimeError) else "its header declares more data than fits in memory"
