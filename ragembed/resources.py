"""Processors and memory of this process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache


def processors() -> int:
    """Return how many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # absent on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def give_back() -> None:
    """Let the C library give back what was freed between parts still in use; does nothing where it is not glibc.

    Tensors of many sizes leave such gaps, which grow with the run. It takes some milliseconds.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):  # no such library (Windows), or one without it (macOS, musl)
        return None
    return trim
