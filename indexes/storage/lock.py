"""One writer at a time: a lock file, and a file that names the process that holds the lock."""

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
def writer_lock(store: Path, wait_seconds: float = 0.0, *, work: bool = False) -> Iterator[None]:
    """Hold the writer lock of a store or, with ``work``, of a work folder.

    The operating system releases the lock when its holder dies, so a dead holder needs no recovery. Raises
    :class:`StoreLockedError` with the holder's process id if the lock is not free within ``wait_seconds`` (a negative
    number waits for ever), and :class:`StoreError` if the folder cannot be written.
    """
    file = store / LOCK
    folder = f"the work folder {store}" if work else f"the store {store}"
    wait = "wait for it with --wait" if not wait_seconds else "wait longer with --wait"
    remedy = "choose another folder with --work for another store" if work else wait
    try:
        if not file.exists():
            write_file(file, b"")
        # Without a mode, FileLock would ignore the umask.
        lock = FileLock(file, mode=stat.S_IMODE(file.stat().st_mode) | 0o600)
        lock.acquire(timeout=wait_seconds)
    except Timeout:
        raise StoreLockedError(
            f"another process is writing to {folder} (PID {_holder(store)}): try again when it is done, or {remedy}"
        ) from None
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror or error}") from error
    try:
        with suppress(OSError):  # On a full disk, the lock works without its holder's id.
            write_file(store / HOLDER, str(os.getpid()).encode())
        yield
    finally:
        with suppress(OSError):
            (store / HOLDER).unlink(missing_ok=True)
        lock.release()


def is_being_written(store: Path) -> bool:
    """Return whether a process of this machine is writing to a store. Does not touch the lock, so it disturbs nobody.

    A process that was killed leaves the file with its id.
    """
    with suppress(OSError, ValueError):
        holder = int((store / HOLDER).read_text(encoding="ascii"))
        if os.name == "nt":  # there, signal 0 would end the process
            return True
        try:
            os.kill(holder, 0)
        except PermissionError:  # a process of another user
            return True
        return True
    return False


def _holder(store: Path) -> str:
    for _ in range(_HOLDER_TRIES):  # A holder writes its id just after it takes the lock.
        with suppress(OSError):
            if holder := (store / HOLDER).read_text(encoding="ascii").strip():
                return holder
        time.sleep(_HOLDER_PAUSE)
    return "unknown"
