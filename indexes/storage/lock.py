"""One writer at a time: a lock file that names the process holding it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ragembed.errors import StoreError, StoreLockedError
from ragembed.files import write_file

LOCK = "writer.lock"
HOLDER = "writer.pid"
_HOLDER_TRIES, _HOLDER_PAUSE = 10, 0.05


@contextmanager
def writer_lock(store: Path, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the store's writer lock.

    The operating system drops the lock when its holder dies, so a dead holder needs no recovery. Raises
    :class:`StoreLockedError` naming the holder's process id when the lock is not free within ``wait_seconds``
    (a negative number waits for ever), :class:`StoreError` when the folder cannot be written.
    """
    file = store / LOCK
    try:
        if not file.exists():
            write_file(file, b"")
        lock = FileLock(file, mode=stat.S_IMODE(file.stat().st_mode) | 0o600)  # else it ignores the umask
        lock.acquire(timeout=wait_seconds)
    except Timeout:
        raise StoreLockedError(
            f"the store {store} is being written by another process (PID {_holder(store)}): try again when it is done, "
            "or wait for it with --wait"
        ) from None
    except OSError as error:
        raise StoreError(f"the store {store} cannot be written: {error.strerror or error}") from error
    try:
        with suppress(OSError):  # on a full disk the lock holds without its holder's name
            write_file(store / HOLDER, str(os.getpid()).encode())
        yield
    finally:
        with suppress(OSError):
            (store / HOLDER).unlink(missing_ok=True)
        lock.release()


def _holder(store: Path) -> str:
    for _ in range(_HOLDER_TRIES):  # a holder writes its id just after it takes the lock
        with suppress(OSError):
            if holder := (store / HOLDER).read_text(encoding="ascii").strip():
                return holder
        time.sleep(_HOLDER_PAUSE)
    return "unknown"
