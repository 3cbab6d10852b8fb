"""What a training leaves on disk while it runs, so that it goes on after an interruption with the same result.

::

    checkpoints/
      plan.json                what is trained: settings, hashes of dictionary, model and sentence pairs
      before.json              what was measured of the untrained model
      step-1/entries.safetensors   the entry vectors
      step-1/space.json        what was measured of them
      step-1/run-0.json        what was measured of a finished run
      step-1/best/             the best model of the step so far, a folder as any model's
      lock                     held by the process that trains
      running.safetensors      the run that is under way: parameters, moments, generators, losses

Files are replaced whole. Nothing in them is code.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ragembed.errors import ConfigError, TrainingError
from ragembed.files import make_folders, replace_file, sync

_RUNNING = "running.safetensors"
_LOCK = "lock"
PLAN = "plan.json"
_TEMPORARY = re.compile(r"\.(.+)\.\d+\.tmp")
_NAMES = re.compile(rf"{re.escape(PLAN)}|before\.json|{re.escape(_RUNNING)}|{_LOCK}|step-\d+")


class Checkpoints:
    """The folder of a training under way; ``seconds`` is the pause between two states of a run that are saved."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self._seconds = seconds
        self._saved = time.monotonic()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and keep other processes from it; raises :class:`TrainingError` where one has it.

        The operating system drops the lock when its holder dies. Raises :class:`ConfigError` where the folder is a
        symbolic link, or holds files that no training wrote: it is removed at the end.
        """
        if self.folder.is_symlink():
            raise ConfigError(f"{self.folder} is a symbolic link, which is not followed: give another folder")
        names = [entry.name for entry in self.folder.iterdir()] if self.folder.is_dir() else []
        foreign = [name for name in names if not _NAMES.fullmatch(_TEMPORARY.sub(r"\1", name))]
        begun = [name for name in names if _TEMPORARY.sub(r"\1", name) not in (_LOCK, PLAN)]
        if foreign or (begun and PLAN not in names):
            raise ConfigError(f"{self.folder} holds {(foreign or begun)[0]!r}, not of a training: give another folder")
        make_folders(self.folder)
        lock = FileLock(self.folder / _LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise TrainingError(
                f"another process trains in {self.folder.parent}: wait for it, or give another folder"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def begin(self, plan: Mapping[str, Any]) -> bool:
        """Take the locked folder for ``plan``, and tell whether it holds a training of it that was interrupted.

        Raises :class:`ConfigError` where it holds another one, naming what differs.
        """
        known = self.read(PLAN)
        if known is None:
            self.write(PLAN, plan)
            return False
        wanted = json.loads(json.dumps(plan))
        differ = [name for name in (*wanted, *known) if wanted.get(name) != known.get(name)]
        if differ:
            name = differ[0]
            raise ConfigError(
                f"{self.folder} is of a training with another {name}: {known.get(name)!r}, now {wanted.get(name)!r}; "
                "go on with the same settings, or give another folder"
            )
        return True

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in the file ``name``, None where there is none; raises :class:`TrainingError`."""
        file = self.folder / name
        if not file.is_file():
            return None
        try:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise TrainingError(f"{file} is damaged: {error}; delete {self.folder} to begin again") from error
        return found

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Put a JSON object in the file ``name``."""
        make_folders((self.folder / name).parent)
        replace_file(self.folder / name, json.dumps(value, indent=2).encode())

    def due(self) -> bool:
        """Tell whether it is time to save the state of a run."""
        return time.monotonic() - self._saved >= self._seconds

    def save_run(self, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
        """Save the run that is under way."""
        replace_tensors(self.folder / _RUNNING, tensors, state)
        self._saved = time.monotonic()

    def load_run(self, step: int, run: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """Return the state of the run ``run`` of ``step``, None where none of it is saved."""
        file = self.folder / _RUNNING
        if not file.is_file():
            return None
        tensors, state = read_tensors(file)
        return (tensors, state) if (state["step"], state["run"]) == (step, run) else None

    def end_run(self) -> None:
        """Forget the run that was under way."""
        (self.folder / _RUNNING).unlink(missing_ok=True)
        self._saved = time.monotonic()

    def remove(self) -> None:
        """Delete what the training wrote, and the folder if nothing else is in it."""
        for entry in self.folder.iterdir():
            if entry.name.startswith("step-") and entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif _NAMES.fullmatch(_TEMPORARY.sub(r"\1", entry.name)):
                entry.unlink()
        with contextlib.suppress(OSError):  # somebody has put a file there meanwhile
            self.folder.rmdir()


def replace_tensors(file: Path, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
    """Put tensors and a JSON object in place of ``file``, whole or not at all, and wait until it is on disk."""
    make_folders(file.parent)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    save_file(
        {name: each.contiguous().cpu() for name, each in tensors.items()}, temporary, {"state": json.dumps(state)}
    )
    sync(temporary)
    temporary.replace(file)
    sync(file.parent)


def read_tensors(file: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return what :func:`replace_tensors` has written; raises :class:`TrainingError` where the file is damaged."""
    try:
        with safe_open(str(file), framework="pt") as stored:
            state: dict[str, Any] = json.loads((stored.metadata() or {}).get("state", "{}"))
            return {name: stored.get_tensor(name) for name in stored.keys()}, state  # noqa: SIM118  no mapping
    except (OSError, ValueError, SafetensorError) as error:
        raise TrainingError(f"{file} is damaged: {error}") from error
