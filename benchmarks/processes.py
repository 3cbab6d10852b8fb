"""Run programs as processes: environments of the peers, the cost of a process, and taking turns.

The measuring process must stay small: between fork and exec, a child shares the memory of its parent, and Linux counts
it in the peak of the child. This module therefore imports neither torch nor faiss.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(__file__).resolve().parent / "peers"
RAGEMBED: tuple[str | Path, ...] = (sys.executable, "-c", "from ragembed.cli import main; main()")
OWN = PEERS / "ragembed_side.py"
EMPTY: tuple[str | Path, ...] = (sys.executable, "-c", "import numpy")
"""A minimal Python process that imports NumPy, as a lower bound."""

_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
_PACKAGES = """
import json, re
from importlib.metadata import distributions
print(json.dumps({re.sub("[-_.]+", "-", each.name).lower(): each.version for each in distributions()}))
"""

Command = Sequence[str | Path]
Report = dict[str, Any]


def say(message: str) -> None:
    """Report progress on stderr."""
    print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment for peers, created from a requirements file.

    ``without`` lists the packages of ``constraints.txt`` that the peers need in another version; None pins nothing.
    """

    name: str
    without: Sequence[str] | None = ()

    @property
    def python(self) -> Path:
        """The interpreter. Creates the environment if it is missing or its requirements have changed."""
        folder, requirements = ROOT / "benchmarks" / f".venv-{self.name}", PEERS / f"{self.name}.txt"
        pins: list[str] = []
        if self.without is not None:
            lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
            pins = [line for line in lines if line.partition("==")[0] not in self.without]
        recipe = "\n".join([sys.version, requirements.read_text(encoding="utf-8"), *pins])
        digest, stamp = hashlib.sha256(recipe.encode()).hexdigest(), folder / "recipe.sha256"
        python = folder / "bin" / "python"
        if not stamp.is_file() or stamp.read_text(encoding="ascii") != digest:
            say(f"creating {folder}: this takes some minutes")
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            (folder / ".gitignore").write_text("*\n", encoding="ascii")
            (folder / "constraints.txt").write_text("\n".join(pins), encoding="utf-8")
            install = [python, "-m", "pip", "install", "--quiet", "--constraint", folder / "constraints.txt"]
            subprocess.run([*map(str, install), "--requirement", str(requirements)], check=True)
            stamp.write_text(digest, encoding="ascii")
        return python


LANGCHAIN = Environment("langchain", without=("huggingface_hub",))  # langchain-huggingface needs huggingface_hub < 2
SPEED = Environment("speed")
ONNX = Environment("onnx", without=("huggingface_hub",))  # FastEmbed needs huggingface_hub < 2
INDEXES = Environment("indexes", without=None)
MULTILINGUAL = Environment("multilingual")
SEMBLE = Environment("semble", without=None)


def versions(python: str | Path, *names: str) -> str:
    """Return the versions of packages installed for the interpreter ``python``."""
    listed = subprocess.run([str(python), "-I", "-c", _PACKAGES], check=True, stdout=subprocess.PIPE, encoding="utf-8")
    found: dict[str, str] = json.loads(listed.stdout)
    return ", ".join(f"{name} {found.get(name, '(absent)')}" for name in names)


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall-clock seconds, peak resident memory in MiB with pages of mapped files, and seconds of processor time."""

    wall: float
    memory: float
    processor: float


@dataclass(slots=True)
class Watched:
    """Seconds and output of a command, and its peak unshared memory in MiB (``RssAnon``, sampled).

    ``driver`` is the peak of the process, and ``workers`` are the peaks of the processes that it started.
    """

    seconds: float = 0.0
    printed: str = ""
    driver: float = 0.0
    workers: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs programs in a folder, without network access and without the user's settings."""

    folder: Path
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of all programs."""
        # OpenBLAS chooses its kernels itself and Python keeps its bytecode, as they do for users.
        dropped = ("RAGEMBED_", "LANGCHAIN_", "LANGSMITH_", "OPENBLAS_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        folders = {f"XDG_{kind.upper()}_HOME": str(self.folder / kind) for kind in ("cache", "config")}
        return {**kept, "HF_HUB_OFFLINE": "1", **folders, **self.extra}

    def run(self, command: Command) -> tuple[Cost, str]:
        """Run ``command``; return its cost and its output. Raises RuntimeError if it fails."""
        with self._started(command) as (process, output):
            started = time.perf_counter()
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - started
            process.returncode = os.waitstatus_to_exitcode(status)  # already reaped: Popen must not wait again
            return Cost(wall, usage.ru_maxrss * _MAXRSS_UNIT / 2**20, usage.ru_utime + usage.ru_stime), output()

    def run_task(self, python: str | Path, program: Path, task: str, request: Mapping[str, Any]) -> Report:
        """Run a task of a program in ``peers/``; return the JSON of its last line, with its memory and wall time."""
        cost, printed = self.run([python, program, task, json.dumps(request)])
        report: Report = json.loads(printed.splitlines()[-1])
        return {**report, "memory": cost.memory, "wall": cost.wall}

    def watch(self, command: Command) -> Watched:
        """Run ``command``; sample the memory of its processes."""
        seen = Watched()
        with self._started(command) as (process, output):
            started = time.perf_counter()
            while process.poll() is None:
                seen.driver = max(seen.driver, _own_memory(process.pid))
                for child in _below(process.pid):
                    seen.workers[child] = max(seen.workers.get(child, 0.0), _own_memory(child))
                time.sleep(0.05)
            seen.seconds = time.perf_counter() - started
            seen.printed = output()
        return seen

    @contextmanager
    def _started(self, command: Command) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )

            def finished() -> str:
                output.seek(0)
                errors.seek(0)
                if process.returncode:
                    shown = errors.read().decode(errors="replace")
                    raise RuntimeError(f"exit status {process.returncode} of {shlex.join(map(str, command))}:\n{shown}")
                return output.read().decode()

            try:
                yield process, finished
            except BaseException:
                if process.returncode is None:
                    process.kill()
                    process.wait()
                raise


def in_turns(commands: Mapping[str, Callable[[int], Command]], turns: int, runner: Runner) -> dict[str, list[Cost]]:
    """Run each command once per turn as a whole process; the order alternates."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for turn in range(turns):
        for name in list(commands)[:: -1 if turn % 2 else 1]:
            cost, _ = runner.run(commands[name](turn))
            say(f"  turn {turn + 1} of {turns}: {name}, {cost.wall:.3g} s, {cost.memory:.0f} MiB")
            costs[name].append(cost)
    return costs


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process. Modules that it loads here would hide the memory of programs started later."""
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        return fresh.submit(function, *arguments).result()


def check_memory(peaks: Sequence[float]) -> None:
    """Raise RuntimeError if this process is larger than its children: their peak memory is unknown then."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT / 2**20
    if min(peaks) <= own:
        raise RuntimeError(
            f"cannot measure peak memory: the lowest peak is {min(peaks):.0f} MiB, the benchmark itself uses {own:.0f}"
        )


@dataclass(frozen=True, slots=True)
class Side:
    """A program in ``peers/`` that keeps running: its interpreter, its task, and its request."""

    python: str | Path
    program: Path
    task: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turns:
    """The reports of a side: when it was ready, and after each measured turn."""

    ready: Report
    reports: Sequence[Report]

    @property
    def seconds(self) -> list[float]:
        """The seconds of each turn."""
        return [one["seconds"] for one in self.reports]


def warm_turns(sides: Mapping[str, Side], turns: int, runner: Runner) -> dict[str, Turns]:
    """Start the sides in order, run turn 0 unmeasured and then ``turns`` turns; the order alternates."""
    reports: dict[str, list[Report]] = {name: [] for name in sides}
    with ExitStack() as stack:
        processes, ready = {}, {}
        for name, side in sides.items():  # in order: a side may read files that another side wrote
            processes[name] = stack.enter_context(_waiting(side, runner))
            ready[name] = _line(processes[name], None)
        for turn in range(turns + 1):
            for name in list(sides)[:: 1 if turn % 2 else -1]:
                answer = _line(processes[name], turn)
                if turn:
                    say(f"  turn {turn} of {turns}: {name}, {answer['seconds']:.3g} s")
                    reports[name].append(answer)
    return {name: Turns(ready[name], reports[name]) for name in reports}


@contextmanager
def _waiting(side: Side, runner: Runner) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [str(side.python), str(side.program), side.task, json.dumps(side.request)],
        cwd=runner.folder,
        env=runner.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        yield process
    except BaseException:
        process.kill()
        raise
    finally:
        process.communicate()


def _line(process: subprocess.Popen[str], turn: int | None) -> Report:
    """Request a turn, or read the first report if ``turn`` is None; return the report."""
    if turn is not None:
        print(turn, file=process.stdin, flush=True)
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        raise RuntimeError(f"{shlex.join(process.args)} ended: see its error above")  # type: ignore[arg-type]
    report: Report = json.loads(line)
    return report


def folder_bytes(folder: Path, ending: str = "") -> int:
    """Return the total bytes of files below ``folder`` whose names end with ``ending``; vanished files do not count."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root) / name
            size += path.stat().st_size if name.endswith(ending) and path.exists() else 0
    return size


def _own_memory(process: int) -> float:
    """Return ``RssAnon`` in MiB, 0 if the process has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _below(process: int) -> Iterator[int]:
    """Yield the child processes of ``process`` and their descendants."""
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        found = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in found:
        yield child
        yield from _below(child)
