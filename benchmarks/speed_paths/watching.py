"""The memory of a program's own while it runs: pages of mapped files are the system's to take back."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Runner

_EVERY_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Watched:
    """Seconds that a program ran, and the peak of its own memory (``RssAnon``, sampled) in MiB."""

    seconds: float
    own_memory: float


def watch(command: Sequence[str | Path], runner: Runner) -> Watched:
    """Run ``command`` to its end; raises RuntimeError with its standard error where it fails."""
    with tempfile.TemporaryFile() as errors:
        started, peak = time.perf_counter(), 0.0
        with subprocess.Popen(
            [str(part) for part in command],
            cwd=runner.folder,
            env=dict(runner.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        ) as process:
            while process.poll() is None:
                peak = max(peak, _own_memory(process.pid))
                time.sleep(_EVERY_SECONDS)
        seconds = time.perf_counter() - started
        if process.returncode:
            errors.seek(0)
            shown = errors.read().decode(errors="replace")
            raise RuntimeError(f"exit status {process.returncode} of {shlex.join(map(str, command))}:\n{shown}")
    return Watched(seconds, peak)


def _own_memory(process: int) -> float:
    """Return ``RssAnon`` in MiB, 0 where the process has ended."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0
