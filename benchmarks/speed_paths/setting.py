"""What every part of the comparison is told."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import Runner

PROGRAMS = Path(__file__).resolve().parent / "programs"


@dataclass(frozen=True, slots=True)
class Setting:
    """Where things are, and how much is measured.

    ``runner`` runs programs in a folder that is removed at the end; what is made in ``cache`` stays for the next run,
    where the caller asked for that. ``trial`` is a size that takes seconds; ``quick`` leaves out what takes long.
    """

    runner: Runner
    cache: Path
    data: Path
    python_docs: Path | None
    turns: int
    seed: int
    trial: bool
    quick: bool

    @property
    def folder(self) -> Path:
        """The folder that is removed at the end."""
        return self.runner.folder

    def choose(self, whole: int, trial: int) -> int:
        """Return the size for this run."""
        return trial if self.trial else whole

    def tell(self, program: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run a program of ``programs/`` in ragembed's environment, and return the JSON of its last line."""
        _, printed = self.runner.run([sys.executable, PROGRAMS / program, json.dumps(request)])
        told: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return told

    def bandwidth(self) -> float:
        """Return the bytes that this machine's memory reads and writes in a second."""
        return float(self.tell("bandwidth.py", {})["bytes_per_second"])


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of all programs: no network, no settings of the user's, a cache folder of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAGEMBED_", "PYTHON"))}
    return {**kept, "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(folder / "cache")}


def say(message: str) -> None:
    """Say on stderr how far a long run is."""
    print(message, file=sys.stderr, flush=True)
