"""The vectors in FAISS index files that other programs wrote."""

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
"""FAISS's numbers for inner product and L2 distance, and the type of a flat index that compares by each."""
_HEADER = struct.Struct("<4siqqq?iQ")
"""Type, dimension, number of vectors, two unused numbers, whether it is trained, metric; how many values follow."""


def read_vectors(file: Path) -> Floats:
    """Return the vectors of an index, float32, shape ``(n, d)``, in order of position.

    A flat index has them as they were added. Others have what they keep: rounded where they quantise, and rotated back
    or without the directions that were left out where they transform.

    Raises
    ------
    StoreDamagedError
        Where the file is broken off, or is none of FAISS.
    ConfigError
        Where the kind of index has no way back to the vectors, or does not compare by inner product or L2 distance.
    """
    with file.open("rb") as stream:
        flat = _read_flat(stream, file)
        if flat is not None:
            return flat
        stream.seek(0)
        try:
            # Through Python's own reading, as FAISS opens no path that is not ASCII on Windows; and never to be written
            # to, should there be the name of another file in it.
            index: Any = faiss.read_index(faiss.PyCallbackIOReader(stream.read), faiss.IO_FLAG_READ_ONLY)
        except (RuntimeError, MemoryError) as error:
            raise StoreDamagedError(f"{file} cannot be read as a FAISS index: {_said(error)}") from error
    if index.metric_type not in _METRICS:
        raise ConfigError(
            f"{file} compares by FAISS's metric number {index.metric_type}: expected inner product or L2 distance; "
            "make a new store of the texts"
        )
    return _reconstructed(index, file)


def _read_flat(stream: BinaryIO, file: Path) -> Floats | None:
    """Read a flat index, whose size is known before any memory is taken for it; None where it is of another kind."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    _, dim, count, _, _, _, number, values = _HEADER.unpack(header)
    if header[:4] != _METRICS.get(number):
        return None
    size = os.fstat(stream.fileno()).st_size
    if dim <= 0 or count < 0 or values != count * dim or size != _HEADER.size + 4 * values:
        raise StoreDamagedError(
            f"{file} has {size:,} bytes and says that it has {count:,} vectors of dimension {dim:,}, which do not make "
            "that: expected a whole FAISS index; save the store again"
        )
    vectors = np.fromfile(stream, dtype="<f4", count=values).reshape(count, dim)
    return vectors.astype(np.float32, copy=False)


def _reconstructed(index: Any, file: Path) -> Floats:
    try:
        vectors = np.empty((index.ntotal, index.d), dtype=np.float32)
        lists = faiss.try_extract_index_ivf(index)
        if lists is not None:
            if isinstance(faiss.downcast_InvertedLists(lists.invlists), faiss.BlockInvertedLists):
                raise RuntimeError("Error: codes packed for fast scanning (fs) are not taken apart")
            lists.make_direct_map()
        for position, vector in enumerate(vectors):
            index.reconstruct(position, vector)  # reconstruct_n ends the process where one cannot be had
    except (RuntimeError, MemoryError) as error:
        raise ConfigError(
            f"{file} is an {type(index).__name__}, of which the vectors cannot be had in order of position: "
            f"{_said(error)}; make a new store of the texts"
        ) from error
    return vectors


def _said(error: RuntimeError | MemoryError) -> str:
    return reason(error) if isinstance(error, RuntimeError) else "it says that it is larger than the memory"
