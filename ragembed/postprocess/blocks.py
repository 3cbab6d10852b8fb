"""Work on blocks of columns in threads: NumPy lets others run while it works on a large array."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ragembed.resources import processors

_MOST_THREADS = 8


def over_columns(work: Callable[[slice], None], columns: int, width: int) -> None:
    """Call ``work`` with slices of ``width`` columns that cover ``columns``, in threads where there are several."""
    slices = [slice(start, min(start + width, columns)) for start in range(0, columns, width)]
    threads = min(len(slices), processors(), _MOST_THREADS)
    if threads <= 1:
        for each in slices:
            work(each)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, each) for each in slices]:
            done.result()
