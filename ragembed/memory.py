"""Memory of this process that nothing is in: given back to the system where the C library keeps it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


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
