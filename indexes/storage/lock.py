"""One writer and one watcher at a time: a lock file each, and a file that names the process that holds the lock."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from ragembed.errors import StoreError, StoreLockedError
from ragembed.files import open_regular, write_file

LOCK = "writer.lock"
HOLDER = "writer.pid"
WATCH_LOCK = "watcher.lock"
WATCHER = "watcher.json"
_WATCHER_FIELDS = {"pid", "host", "since"}
_MOST_BYTES = 4096
_HOLDER_TRIES, _HOLDER_PAUSE = 10, 0.05


@contextmanager
def writer_lock(store: Path, wait_seconds: float = 0.0, *, work: bool = False) -> Iterator[None]:
    """Hold the writer lock of a store or, with ``work``, of a work folder.

    The operating system releases the lock when its holder dies, so a dead holder needs no recovery. Raises
    :class:`StoreLockedError` with the holder's process id if the lock is not free within ``wait_seconds`` (a negative
    number waits for ever), and :class:`StoreError` if the folder cannot be written.
    """
    folder = f"the work folder {store}" if work else f"the store {store}"
    wait = "wait for it with --wait" if not wait_seconds else "wait longer with --wait"

    def refusal() -> str:
        holder = _written(store / HOLDER).decode("ascii", "replace") or "unknown"
        return f"another process is writing to {folder} (PID {holder}): try again when it is done, or {wait}"

    with _lock(store, LOCK, HOLDER, str(os.getpid()).encode(), wait_seconds, folder, refusal):
        yield


@contextmanager
def watcher_lock(store: Path) -> Iterator[None]:
    """Hold the lock of the process that watches the files of a store; raise as :func:`writer_lock` does.

    The message has the process id, host and start of the watcher that holds it.
    """
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}).encode()

    def refusal() -> str:
        return (
            f"another process already watches the store {store} ({_watcher(store)}): let it run, because it keeps the "
            "store up to date, or stop it first"
        )

    with _lock(store, WATCH_LOCK, WATCHER, holder, 0.0, f"the store {store}", refusal):
        yield


@contextmanager
def _lock(
    store: Path, name: str, holder_name: str, holder: bytes, wait_seconds: float, what: str, refusal: Callable[[], str]
) -> Iterator[None]:
    """Hold the lock of the file ``name``, and write ``holder`` into the file beside it."""
    file = store / name
    try:
        if file.is_symlink():  # Versions of filelock before 3.20.1 would truncate its target.
            raise OSError(errno.ELOOP, f"{file.name} is a symbolic link: remove it")
        if not file.exists():
            write_file(file, b"")
        # Without a mode, FileLock would ignore the umask.
        lock = FileLock(file, mode=stat.S_IMODE(file.stat().st_mode) | 0o600)
        lock.acquire(timeout=wait_seconds)
    except Timeout:
        raise StoreLockedError(refusal()) from None
    except OSError as error:
        raise StoreError(f"cannot write to {what}: {error.strerror or error}") from error
    try:
        with suppress(OSError):  # On a full disk, the lock works without the name of its holder.
            write_file(store / holder_name, holder)
        yield
    finally:
        with suppress(OSError):
            (store / holder_name).unlink(missing_ok=True)
        lock.release()


def is_watcher(data: bytes) -> bool:
    """Return whether ``data`` is the content of the file that names a watcher."""
    try:
        return set(json.loads(data)) == _WATCHER_FIELDS
    except (TypeError, ValueError, RecursionError):
        return False


def is_being_written(store: Path) -> bool:
    """Return whether a process of this machine is writing to a store, without touching the lock."""
    with suppress(OSError, ValueError, OverflowError):
        holder = int(_content(store / HOLDER))
        if os.name == "nt":  # there, signal 0 would end the process
            return True
        try:
            os.kill(holder, 0)
        except PermissionError:  # a process of another user
            return True
        return True
    return False


def _watcher(store: Path) -> str:
    data = _written(store / WATCHER)
    if not is_watcher(data):
        return "PID unknown"
    holder = json.loads(data)
    return f"PID {holder['pid']} on {holder['host']}, since {holder['since']}"


def _content(file: Path) -> bytes:
    with open_regular(file, file.parent) as stream:
        return stream.read(_MOST_BYTES)


def _written(file: Path) -> bytes:
    """Return the content of ``file``, which the holder of a lock writes just after it takes the lock."""
    for _ in range(_HOLDER_TRIES):
        with suppress(OSError):
            if content := _content(file).strip():
                return content
        time.sleep(_HOLDER_PAUSE)
    return b""
