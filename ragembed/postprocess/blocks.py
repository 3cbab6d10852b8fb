"""Threads that work on blocks of columns; NumPy releases the GIL while it works on a large array."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ragembed.resources import processors

_MOST_THREADS = 8


def over_columns(work: Callable[[slice], None], columns: int, width: int) -> None:
    """Call ``work`` on slices of ``width`` columns that cover ``columns``, in threads if there are several slices."""
    slices = [slice(start, min(start + width, columns)) for start in range(0, columns, width)]
    threads = min(len(slices), processors(), _MOST_THREADS)
    if threads <= 1:
        for block in slices:
            work(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work, block) for block in slices]:
            future.result()
