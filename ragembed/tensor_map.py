"""Reading safetensors without loading it: arrays that are views of the mapped file.

One query touches a few rows of a model's word table; mapping the file reads those and no more.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ModelError

_DTYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
}
_MAX_HEADER = 100_000_000


def map_tensors(file: Path) -> Mapping[str, NDArray[Any]]:
    """Return the tensors of a safetensors file as read-only views of it.

    A tensor of a type NumPy does not have (bfloat16) is left out. Raises :class:`ModelError` when the file is
    not safetensors or states a tensor outside itself.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        header_size = int.from_bytes(stream.read(8), "little")
        header = stream.read(header_size) if header_size <= min(size - 8, _MAX_HEADER) else b""
    start = 8 + header_size
    try:
        entries: dict[str, dict[str, Any]] = json.loads(header)
        data = np.memmap(file, mode="r", offset=start) if size > start else np.empty(0, np.uint8)
        return {
            name: _view(data, entry, file)
            for name, entry in entries.items()
            if name != "__metadata__" and entry["dtype"] in _DTYPES
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{file} is not a safetensors file: {error}") from error


def release(tensor: NDArray[Any]) -> None:
    """Give back the memory that holds the file which ``tensor`` is mapped from; where used again, it is read again.

    All of the file is meant, since the system maps what it has as one piece as a whole, neighbours included. An array
    that is not a read-only view of a mapped file is left as it is, as are all where the system has no way to do so
    (Windows).
    """
    mapping: object = tensor
    while isinstance(mapping, np.ndarray):
        mapping = mapping.base
    if isinstance(mapping, mmap.mmap) and not tensor.flags.writeable and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def _view(data: NDArray[np.uint8], entry: Mapping[str, Any], file: Path) -> NDArray[Any]:
    dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= len(data) or end - start != int(np.prod(shape)) * dtype.itemsize:
        raise ModelError(f"{file} states a tensor outside itself: it is damaged or hostile")
    view: NDArray[Any] = np.asarray(data[start:end]).view(dtype).reshape(shape)
    return view
