"""Processors and memory of this process."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_KERNELS_KEPT = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables with the number of compiled kernels that oneDNN and PyTorch keep."""

_WAITING, _CHECKS = "GOMP_SPINCOUNT", "10000"
"""Environment variable with the number of times that a thread of PyTorch checks for work before it sleeps."""


def processors() -> int:
    """Return the number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # absent on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class _OneBlasThread:
    """A context in which NumPy's matrix products run in the threads that compute them.

    The limit is that of the process. The first of several threads in the context sets it, and the last one removes it:
    if each restored what it found, a limit could stay forever. The last one may be another thread than the first. From
    version 3.8 on, threadpoolctl ignores other threads until the control of the first one is cleared.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start with no thread inside, as in a child process."""
        self._lock = threading.Lock()
        self._inside = 0
        self._controller: ThreadpoolController | None = None
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._controller = self._controller or ThreadpoolController()
                self._limit = self._controller.limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._controller is not None:
                self._release(self._controller)
                self._limit.restore_original_limits()
                self._release(self._controller)

    def _release(self, controller: ThreadpoolController) -> None:
        for library in controller.lib_controllers:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)


ONE_BLAS_THREAD = _OneBlasThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ONE_BLAS_THREAD.renew)


def configure_torch() -> None:
    """Let PyTorch keep fewer compiled kernels on the CPU and wait less actively, unless the environment sets this.

    oneDNN compiles a kernel for each size of a batch. It keeps 1,024 of them, and so does PyTorch's layer above it, in
    100 MB or more with texts of many lengths. To compile one again takes a millisecond.

    The threads of a product wait for one another. By default, they check for milliseconds before they sleep. On a busy
    machine, where one of them may have no processor, this takes a third of the processor time. With 10,000 checks, a
    tenth of a millisecond, they still do not sleep between two products.

    The call has an effect only before PyTorch is imported.
    """
    for variable in _KERNELS_KEPT:
        os.environ.setdefault(variable, "64")
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(_WAITING, _CHECKS)


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
