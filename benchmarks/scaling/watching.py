"""The memory of a program and of the processes that it starts, each for itself, while they run."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Runner

_EVERY_SECONDS, _FILES_EVERY = 0.25, 8
_NO_WORKERS = ("resource_tracker", "forkserver")
"""In the command lines of processes that Python's multiprocessing starts for itself."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Seconds of a program, what it printed, and peaks in MiB.

    ``driver`` and ``workers`` are the peaks of the memory of their own (``RssAnon``, sampled), ``resident`` is the most
    that one process had with the pages of files. ``files`` are the most bytes that the watched folder had.
    """

    seconds: float
    printed: str
    driver: float
    workers: Sequence[float]
    resident: float
    files: int


def watch(command: Sequence[str | Path], runner: Runner, folder: Path) -> Watched:
    """Run ``command`` to its end, and look at its processes and at ``folder``.

    Raises RuntimeError with its standard error where it fails.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        own: dict[int, float] = {}
        resident, files, looked, started = 0.0, 0, 0, time.perf_counter()
        with subprocess.Popen(
            [str(part) for part in command],
            cwd=runner.folder,
            env=dict(runner.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        ) as process:
            while process.poll() is None:
                for number in [process.pid, *_below(process.pid)]:
                    anonymous, peak = _memory(number)
                    own[number] = max(own.get(number, 0.0), anonymous)
                    resident = max(resident, peak)
                if looked % _FILES_EVERY == 0:
                    files = max(files, folder_bytes(folder))
                looked += 1
                time.sleep(_EVERY_SECONDS)
        seconds = time.perf_counter() - started
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            shown = errors.read().decode(errors="replace")
            raise RuntimeError(f"exit status {process.returncode} of {' '.join(map(str, command))}:\n{shown}")
        printed = output.read().decode()
    files = max(files, folder_bytes(folder))
    driver = own.pop(process.pid)
    return Watched(seconds, printed, driver, sorted(own.values(), reverse=True), resident, files)


def folder_bytes(folder: Path, ending: str = "") -> int:
    """Return the bytes of the files below ``folder`` whose names have that ending, 0 where there is none.

    Files that are removed meanwhile are left out.
    """
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            if name.endswith(ending):
                try:
                    size += (Path(root) / name).stat().st_size
                except FileNotFoundError:
                    continue
    return size


def _below(process: int) -> list[int]:
    """Return the processes that ``process`` started, and that these did, but for those of multiprocessing itself."""
    children: dict[int, list[int]] = {}
    for number, text in _read_all("stat"):
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(number)
    found: list[int] = []
    asked = [process]
    while asked:
        own = children.get(asked.pop(), [])
        asked += own
        found += own
    return [number for number in found if not any(name in _read(number, "cmdline") for name in _NO_WORKERS)]


def _read_all(name: str) -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (text := _read(int(entry.name), name)):
            yield int(entry.name), text


def _read(process: int, name: str) -> str:
    """Return a file of a process below /proc, nothing where the process has ended."""
    try:
        return Path(f"/proc/{process}/{name}").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _memory(process: int) -> tuple[float, float]:
    """Return what a process has for itself, and the most that it ever had in memory, in MiB; 0 where it has ended."""
    told = dict(line.split(":", 1) for line in _read(process, "status").splitlines() if ":" in line)
    return tuple(int(told.get(name, "0 kB").split()[0]) / 1024 for name in ("RssAnon", "VmHWM"))  # type: ignore[return-value]
