"""Memory-mapped safetensors: arrays are views of the file.

One query uses a few rows of the word embeddings; a mapped file reads only these from disk.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ModelError
from ragembed.files import open_regular
from ragembed.types import State

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
_MAX_HEADER = 16 << 20
"""Size above which a header is refused: a list of lists takes 30 times its size when it is read."""


def map_tensors(file: Path, *, widen: bool = False) -> Mapping[str, NDArray[Any]]:
    """Return the tensors of a safetensors file as read-only views.

    Tensors of bfloat16, which NumPy does not have, are returned as copies in float32 if ``widen`` is true, and those of
    int8 as they are. Otherwise they are left out, like those of other types.
    """
    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        header_size = int.from_bytes(stream.read(8), "little")
        header = stream.read(header_size) if header_size <= min(size - 8, _MAX_HEADER) else b""
    start = 8 + header_size
    try:
        entries: dict[str, dict[str, Any]] = json.loads(header)
        data = np.memmap(file, mode="r", offset=start) if size > start else np.empty(0, np.uint8)
        entries.pop("__metadata__", None)
        tensors = {name: _view(data, entry, file) for name, entry in entries.items() if entry["dtype"] in _DTYPES}
        for name, entry in entries.items() if widen else ():
            if entry["dtype"] == "BF16":
                tensors[name] = _widened(data, entry, file)
            elif entry["dtype"] == "I8":
                tensors[name] = _view(data, {**entry, "dtype": "U8"}, file).view(np.int8)
        return tensors
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelError(f"{file} is not a safetensors file ({error}): get it again") from error


def with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> State:
    """Return the arrays whose names begin with ``prefix``, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def release(tensor: NDArray[Any]) -> None:
    """Free the memory of the file that ``tensor`` is mapped from; the next use reads the file again.

    This affects the whole file, because the system maps neighbouring pages together. It does nothing if the array is
    not a read-only view of a mapped file, or if the system has no way to do it (Windows).
    """
    mapping: object = tensor
    while isinstance(mapping, np.ndarray):
        mapping = mapping.base
    if isinstance(mapping, mmap.mmap) and not tensor.flags.writeable and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def _widened(data: NDArray[np.uint8], entry: Mapping[str, Any], file: Path) -> NDArray[np.float32]:
    """Return a tensor of bfloat16, the upper half of float32, as float32."""
    halves = _view(data, {**entry, "dtype": "U16"}, file)
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _view(data: NDArray[np.uint8], entry: Mapping[str, Any], file: Path) -> NDArray[Any]:
    """Return the view of one tensor; raise :class:`ModelError` if it lies outside the file."""
    dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= len(data) or end - start != math.prod(shape) * dtype.itemsize:
        raise ModelError(f"{file} has a tensor outside its data: it is damaged or malicious; get it again")
    view: NDArray[Any] = np.asarray(data[start:end]).view(dtype).reshape(shape)
    return view
