"""Processors and memory of this process."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController

from ragembed.errors import OutOfMemoryError

_KERNELS_KEPT = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables with the number of compiled kernels that oneDNN and PyTorch keep."""

_WAITING, _CHECKS = "GOMP_SPINCOUNT", "10000"
"""Environment variable with the number of times that a thread of PyTorch checks for work before it sleeps."""


_MEGABYTE = 1 << 20
_ROOM: Mapping[str, tuple[int, int]] = {
    "NumPy": (128, 48),
    "OpenBLAS": (64, 64),  # when threads make their first products
    "FAISS": (256, 128),
    "OpenVINO": (512, 64),
    "PyTorch": (768, 128),
}
"""Address space in MB that a library takes, with some room to work in: once, and for each of its threads."""
_LACKS_MEMORY = re.compile(
    r"out of memory|bad_alloc|(can't|cannot|unable to|could not|failed to) (allocate|map|mmap)|start new thread"
    r"|could not create a primitive|(not enough|insufficient) memory",
    re.IGNORECASE,
)
"""What native libraries say if an allocation, a mapping or a new thread fails."""


def processors() -> int:
    """Return the number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # absent on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def cores() -> int:
    """Return the number of physical cores that this process may use; ``OMP_NUM_THREADS`` sets a lower number."""
    affinity = getattr(os, "sched_getaffinity", None)
    siblings = {_siblings(number) for number in affinity(0)} if affinity else set(range(processors()))
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(len(siblings), int(limit)) if limit.isdecimal() and int(limit) else len(siblings)


def _siblings(processor: int) -> str:
    """Return the processors of the same core, as Linux writes them."""
    with suppress(OSError):
        return Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list").read_text("ascii").strip()
    return str(processor)


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


def require_room(library: str) -> None:
    """Raise :class:`OutOfMemoryError` if the limit of the address space leaves too little to load ``library``.

    ``library`` is one of ``_ROOM``. Without enough address space, their own code ends the process, by a
    segmentation fault for example, before Python can raise an error.
    """
    limit = _limit()
    once, per_processor = _ROOM[library]
    need = once + per_processor * processors()
    if limit is None or (left := limit - _used()) >= need:
        return
    raise OutOfMemoryError(
        f"not enough memory to load {library}: expected {need:,} MB of address space, but only {max(left, 0):,} of "
        f"{limit:,} MB are left; {_remedy(limit)}"
    )


def out_of_memory(error: BaseException) -> OutOfMemoryError | None:
    """Return the error to report if ``error`` was caused by a lack of memory, else None."""
    for cause in _causes(error):
        is_memory = isinstance(cause, MemoryError) or getattr(cause, "errno", None) == errno.ENOMEM
        if is_memory or (isinstance(cause, (RuntimeError, ImportError)) and _LACKS_MEMORY.search(str(cause))):
            reason = str(cause).partition("\n")[0].strip() or "an allocation failed"
            return OutOfMemoryError(f"the memory ran out ({reason}); {_remedy(_limit())}")
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def _remedy(limit: int | None) -> str:
    assurance = "a store stays in its last committed state"
    if limit is None:
        return f"free memory, or use a smaller model; {assurance}"
    return f"raise the limit of {limit:,} MB, for example with 'ulimit -v unlimited'; {assurance}"


def _limit() -> int | None:
    """Return the limit of the address space of this process in MB, or None if there is none."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit // _MEGABYTE


def _used() -> int:
    """Return the used address space of this process in MB; 0 if the system does not tell."""
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE") // _MEGABYTE
    return 0


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
