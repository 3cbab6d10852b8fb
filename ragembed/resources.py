"""Processors and memory of this process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache

_KERNELS_KEPT = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables with the number of compiled kernels that oneDNN and PyTorch keep."""


def processors() -> int:
    """Return the number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # absent on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def keep_few_kernels() -> None:
    """Let PyTorch keep fewer compiled kernels on the CPU, unless the environment sets their number.

    oneDNN compiles a kernel for each size of a batch. It keeps 1,024 of them, and so does PyTorch's layer above it, in
    100 MB or more with texts of many lengths. To compile one again takes a millisecond. The call has an effect only
    before PyTorch runs a model.
    """
    for variable in _KERNELS_KEPT:
        os.environ.setdefault(variable, "64")


def give_back() -> None:
    """Return freed memory between live allocations to the system; has an effect with glibc only.

    Tensors of many sizes leave such gaps, and they grow during a run. The call takes a few milliseconds.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """Return glibc's ``malloc_trim``, or None with another C library."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):  # Windows has no such library; macOS and musl have no malloc_trim
        return None
    return trim
