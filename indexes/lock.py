"""One writer at a time: a lock file that names the process holding it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ragembed.errors import StoreError, StoreLockedError

_LOCK, _HOLDER = "writer.lock", "writer.pid"


@contextmanager
def writer_lock(store: Path, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the store's writer lock.

    The operating system drops the lock when its holder dies, so a dead holder needs no recovery. Raises
    :class:`StoreLockedError` naming the holder's process id when the lock is not free within ``wait_seconds``
    (a negative number waits for ever), :class:`StoreError` when the folder cannot be written.
    """
    lock = FileLock(store / _LOCK)
    try:
        lock.acquire(timeout=wait_seconds)
    except Timeout:
        raise StoreLockedError(
            f"the store {store} is being written by another process (PID {_holder(store)}): try again when it is done"
        ) from None
    except OSError as error:
        raise StoreError(f"the store {store} cannot be written: {error.strerror or error}") from error
    try:
        with suppress(OSError):  # on a full disk the lock holds without its holder's name
            (store / _HOLDER).write_text(str(os.getpid()), encoding="ascii")
        yield
    finally:
        with suppress(OSError):
            (store / _HOLDER).unlink(missing_ok=True)
        lock.release()


def _holder(store: Path) -> str:
    try:
        return (store / _HOLDER).read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
