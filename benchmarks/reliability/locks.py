"""The writer's lock, held by one process and wanted by another."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from report import table

from ragembed.cli import ERROR_EXIT
from ragembed.errors import StoreLockedError
from ragembed.indexes import Store
from reliability.groups import make_store
from reliability.stores import Cli

REFUSED_WITHIN = 2.0
"""Seconds within which a second writer fails, the start of its process included."""

_COMMAND = "optimize"
_HELD = 1.0


@dataclass
class Locks:
    """The longest times, in seconds, by what was measured."""

    times: Mapping[str, float]
    broken: list[str] = field(default_factory=list)

    about = (
        f"A second writer is `ragembed {_COMMAND}` as a process, from start to exit; without waiting it has to fail "
        f"within {REFUSED_WITHIN:.0f} s and name the process that writes. In the library, the call alone. Released: "
        "from the release, after a second, to the exit of the process that waits with `--wait`. Killed: the holder "
        "gets SIGKILL, and the next writer runs."
    )

    def table(self) -> str:
        """Return the times as a table."""
        return table(["longest time, s", ""], [[name, f"{seconds:.3f}"] for name, seconds in self.times.items()])


def measure_locks(folder: Path, repeat: int) -> Locks:
    """Hold the lock of a new store below ``folder`` and want it, ``repeat`` times."""
    cli = Cli(folder / "locks")
    cli.folder.mkdir()
    make_store(cli.store)
    locks = Locks(dict.fromkeys(("refused", "refused, in the library", "released", "killed, the next writer"), 0.0))
    times = dict(locks.times)
    for _ in range(repeat):
        with _holder(cli) as holder:
            for name, seconds in _refused(cli, holder, locks.broken):
                times[name] = max(times[name], seconds)
            times["released"] = max(times["released"], _released(cli, locks.broken))
        with _holder(cli) as holder:
            times["killed, the next writer"] = max(times["killed, the next writer"], _killed(cli, holder, locks.broken))
    if times["refused"] > REFUSED_WITHIN:
        locks.broken.append(f"a second writer failed after {times['refused']:.2f} s")
    locks.times = times
    return locks


def _refused(cli: Cli, holder: BaseProcess, broken: list[str]) -> Iterator[tuple[str, float]]:
    started = time.perf_counter()
    done = cli.run(_COMMAND)
    yield "refused", time.perf_counter() - started
    if done.returncode != ERROR_EXIT or f"(PID {holder.pid})" not in done.stderr:
        broken.append(f"a second writer ended with {done.returncode}: {done.stderr.strip()}")
    with Store.open(cli.store) as store:
        started = time.perf_counter()
        try:
            store.optimize()
            broken.append("a second writer wrote")
        except StoreLockedError as error:
            if f"(PID {holder.pid})" not in str(error):
                broken.append(f"the second writer's error does not name the first: {error}")
        yield "refused, in the library", time.perf_counter() - started


def _released(cli: Cli, broken: list[str]) -> float:
    with cli.start(_COMMAND, "--wait") as process:
        time.sleep(_HELD)
        if process.poll() is not None:
            broken.append("a writer with --wait did not wait")
        started = time.perf_counter()
        (cli.folder / "release").touch()
        _, errors = process.communicate()
        seconds = time.perf_counter() - started
    if process.returncode:
        broken.append(f"a writer with --wait ended with {process.returncode}: {errors.strip()}")
    return seconds


def _killed(cli: Cli, holder: BaseProcess, broken: list[str]) -> float:
    os.kill(holder.pid or 0, signal.SIGKILL)
    holder.join()
    started = time.perf_counter()
    done = cli.run(_COMMAND)
    if done.returncode:
        broken.append(f"after the holder was killed, a writer ended with {done.returncode}: {done.stderr.strip()}")
    return time.perf_counter() - started


@contextmanager
def _holder(cli: Cli) -> Iterator[BaseProcess]:
    """Start a process that writes to the store until there is the file ``release``, and wait until it does."""
    held = cli.folder / "held"
    process = multiprocessing.get_context("spawn").Process(target=_hold, args=(cli.store,))
    process.start()
    while not held.exists():
        if process.exitcode is not None:
            raise RuntimeError(f"the process that was to hold the lock ended with {process.exitcode}")
        time.sleep(0.01)
    try:
        yield process
    finally:
        (cli.folder / "release").touch()
        process.join()
        held.unlink()
        (cli.folder / "release").unlink()


def _hold(path: Path) -> None:
    with Store.open(path) as store, store.writer():
        (path.parent / "held").touch()
        while not (path.parent / "release").exists():
            time.sleep(0.01)
