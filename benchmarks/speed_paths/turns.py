"""Programs that stay warm and do their task by turns, each in a process and an environment of its own."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from measure import Runner

from speed_paths.setting import say

Told = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contestant:
    """A name, the Python that runs a program of :mod:`waiting`'s kind, and what the program is told."""

    name: str
    python: str | Path
    program: Path
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turns:
    """What a contestant told when it was ready, and after each measured turn."""

    ready: Told
    told: Sequence[Told]

    @property
    def seconds(self) -> list[float]:
        """Seconds of each turn."""
        return [one["seconds"] for one in self.told]


def take_turns(contestants: Sequence[Contestant], turns: int, runner: Runner) -> dict[str, Turns]:
    """Let all get ready one after the other, then do turn 0, unmeasured, and ``turns`` more, the first alternating."""
    told: dict[str, list[Told]] = {one.name: [] for one in contestants}
    with ExitStack() as stack:
        waiting = {}
        for one in contestants:
            say(f"  {one.name} gets ready")
            waiting[one.name] = stack.enter_context(_Waiting(one, runner))
        ready = {name: process.ready for name, process in waiting.items()}
        for turn in range(turns + 1):
            for name in list(waiting)[:: 1 if turn % 2 else -1]:
                answer = waiting[name].go(turn)
                if turn:
                    say(f"  turn {turn} of {turns}: {name}, {answer['seconds']:.3g} s")
                    told[name].append(answer)
    return {name: Turns(ready[name], told[name]) for name in told}


class _Waiting:
    """A started program; ``programs/waiting.py`` has the other end of the line. ``ready`` is what it said first."""

    def __init__(self, contestant: Contestant, runner: Runner) -> None:
        self._contestant = contestant
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [str(contestant.python), str(contestant.program), json.dumps(contestant.request)],
            cwd=runner.folder,
            env=dict(runner.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
        )
        self.ready = self._read()

    def go(self, turn: int) -> Told:
        """Let it do its task, and return what it says."""
        assert self._process.stdin is not None
        print(turn, file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> Told:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            shown = self._errors.read().decode(errors="replace")
            raise RuntimeError(f"{self._contestant.name} ended with {self._process.returncode}:\n{shown}")
        told: Told = json.loads(line)
        return told

    def __enter__(self) -> _Waiting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate()  # closes what it reads from, and waits for it
        self._errors.close()
