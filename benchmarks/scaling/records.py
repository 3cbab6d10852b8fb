"""What was measured of each run, kept in a file, from which all else is computed: constants, tables, the simulation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ragembed.indexes.backend import StageReport

FILE = Path(__file__).resolve().parent.parent / "scale_constants.json"

BYTES = ("source", "work", "raw", "index", "database", "postings")
"""What bytes are told of: the documents, the work folder, and the files of the store."""


@dataclass(frozen=True, slots=True)
class Run:
    """``ragembed index`` of a corpus, from nothing, by so many workers; 0 is the single process, without stages.

    ``seconds`` are those of the whole command. ``driver`` and ``workers`` are the peaks of the memory that a process
    had for itself (``RssAnon``, sampled), in MiB, one for each worker that there was; ``resident`` is the most that one
    of all these processes had in memory with the pages of files. ``tokens`` are those of a chunk, the mean. ``answers``
    are the median milliseconds of a question by mode, where questions were asked.
    """

    workers: int
    files: int
    chunks: int
    tokens: float
    seconds: float
    driver: float
    workers_memory: Sequence[float]
    resident: float
    bytes: Mapping[str, int]
    stages: Sequence[StageReport] = ()
    answers: Mapping[str, float] = field(default_factory=dict)

    def stage(self, name: str) -> StageReport:
        """Return a stage by its name."""
        return next(stage for stage in self.stages if stage.stage == name)

    @property
    def alone(self) -> float:
        """Seconds outside of the stages of workers."""
        return self.seconds - sum(stage.seconds for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Part:
    """The runs of a corpus: what it is, the options, the day, the machine, its cores and its load before."""

    about: str
    options: Sequence[str]
    dim: int
    date: str
    machine: str
    cores: int
    load: float
    runs: Sequence[Run]

    def run(self, workers: int, chunks: int) -> Run:
        """Return a run by its workers and its chunks."""
        return next(run for run in self.runs if (run.workers, run.chunks) == (workers, chunks))

    @property
    def sizes(self) -> list[int]:
        """Numbers of chunks, ascending."""
        return sorted({run.chunks for run in self.runs})

    @property
    def staged(self) -> list[Run]:
        """The runs in stages."""
        return [run for run in self.runs if run.workers]


def read(file: Path = FILE) -> dict[str, Part]:
    """Return the parts by name, none where there is no file."""
    if not file.is_file():
        return {}
    kept = json.loads(file.read_text(encoding="utf-8"))
    return {name: _part(fields) for name, fields in kept["parts"].items()}


def write(parts: Mapping[str, Part], constants: Mapping[str, Mapping[str, Any]], file: Path = FILE) -> None:
    """Write the parts, and beside them the constants that were computed of them, for those who read the file."""
    kept = {"constants": constants, "parts": {name: asdict(part) for name, part in sorted(parts.items())}}
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _part(fields: Mapping[str, Any]) -> Part:
    return Part(**{**fields, "runs": tuple(_run(one) for one in fields["runs"])})


def _run(fields: Mapping[str, Any]) -> Run:
    return Run(**{**fields, "stages": tuple(StageReport(**stage) for stage in fields["stages"])})
