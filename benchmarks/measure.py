"""What a whole process costs.

The measuring process has to stay small: Linux counts the memory that a child shares with its parent between fork and
exec in the child's peak. So nothing here, nor in what starts programs before it is done, imports torch or faiss.
"""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall-clock and processor seconds (user + system, children included) and peak resident memory in MiB.

    The memory is that of the largest single process, and counts the pages of files that it mapped.
    """

    wall: float
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs programs in one folder and one environment, and measures them."""

    folder: Path
    environment: Mapping[str, str]

    def run(self, command: Sequence[str | Path]) -> tuple[Cost, str]:
        """Run ``command`` to its end; return what it cost and what it printed.

        Raises RuntimeError with its standard error where it fails.
        """
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            start = time.perf_counter()
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                process.kill()
                process.wait()
                raise
            wall = time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)  # reaped above: Popen must not wait for it again
            output.seek(0)
            errors.seek(0)
            if process.returncode:
                shown = errors.read().decode(errors="replace")
                raise RuntimeError(f"exit status {process.returncode} of {shlex.join(map(str, command))}:\n{shown}")
            printed = output.read().decode()
        return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _MAXRSS_UNIT / 2**20), printed


def own_peak() -> float:
    """Return the peak resident memory of this process in MiB: a child's that is no larger says nothing."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT / 2**20
