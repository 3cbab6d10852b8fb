"""Checkpoint files. After an interruption, a training continues from them and gives the same result.

Files are replaced atomically. They contain no code.

::

    checkpoints/
      plan.json                settings, and hashes of dictionary, model and sentence pairs
      before.json              measurements of the untrained model
      step-1/entries.safetensors   the entry vectors
      step-1/space.json        measurements of the entry vectors
      step-1/run-0.json        measurements of a finished run
      step-1/best/             the best model of the step so far, an ordinary model folder
      lock                     locked by the process that trains
      running.safetensors      the current run: parameters, moments, generator states, losses
      contexts.f32             B2S: the vectors of the texts of the corpus
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
from ragembed.files import make_folders, publish, replace_file

_RUNNING = "running.safetensors"
_LOCK = "lock"
PLAN = "plan.json"
CONTEXTS = "contexts.f32"
_TEMPORARY = re.compile(r"\.(.+)\.\d+\.tmp")
_NAMES = re.compile(rf"{re.escape(PLAN)}|before\.json|{re.escape(_RUNNING)}|{re.escape(CONTEXTS)}|{_LOCK}|step-\d+")


class Checkpoints:
    """The checkpoint folder of a training. ``seconds`` is the interval between two saved states of a run."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self._seconds = seconds
        self._saved = time.monotonic()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder, which must have no other files because it is deleted at the end, and lock it."""
        if self.folder.is_symlink():
            raise ConfigError(f"{self.folder} is a symbolic link, which is not followed: choose another folder")
        names = [entry.name for entry in self.folder.iterdir()] if self.folder.is_dir() else []
        foreign = [name for name in names if not _NAMES.fullmatch(_TEMPORARY.sub(r"\1", name))]
        begun = [name for name in names if _TEMPORARY.sub(r"\1", name) not in (_LOCK, PLAN)]
        if foreign or (begun and PLAN not in names):
            raise ConfigError(
                f"{self.folder} contains {(foreign or begun)[0]!r}, which is not from a training: choose another folder"
            )
        make_folders(self.folder)
        lock = FileLock(self.folder / _LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise TrainingError(
                f"another process is training in {self.folder.parent}: wait until it ends, or choose another folder"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def begin(self, plan: Mapping[str, Any]) -> bool:
        """Start or resume the training with this ``plan``; return whether it is resumed, or raise for another plan."""
        known = self.read(PLAN)
        if known is None:
            self.write(PLAN, plan)
            return False
        wanted = json.loads(json.dumps(plan))
        differ = [name for name in (*wanted, *known) if wanted.get(name) != known.get(name)]
        if differ:
            name = differ[0]
            raise ConfigError(
                f"{self.folder} contains a training with different {name!r}: it has {known.get(name)!r}, you gave "
                f"{wanted.get(name)!r}; use the same values, or choose another folder"
            )
        return True

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in the file ``name``, or None if there is no file. Raises :class:`TrainingError`."""
        file = self.folder / name
        if not file.is_file():
            return None
        try:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise TrainingError(f"{file} is damaged: {error}; delete {self.folder} to start again") from error
        return found

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON object to the file ``name``."""
        make_folders((self.folder / name).parent)
        replace_file(self.folder / name, json.dumps(value, indent=2).encode())

    def due(self) -> bool:
        """Return whether enough time has passed to save the state of the run."""
        return time.monotonic() - self._saved >= self._seconds

    def save_run(self, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
        """Save the state of the current run."""
        replace_tensors(self.folder / _RUNNING, tensors, state)
        self._saved = time.monotonic()

    def load_run(self, step: int, run: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """Return the saved state of the run ``run`` of ``step``, or None if there is none."""
        file = self.folder / _RUNNING
        if not file.is_file():
            return None
        tensors, state = read_tensors(file)
        return (tensors, state) if (state["step"], state["run"]) == (step, run) else None

    def end_run(self) -> None:
        """Delete the state of the current run."""
        (self.folder / _RUNNING).unlink(missing_ok=True)
        self._saved = time.monotonic()

    def remove(self) -> None:
        """Delete the files of the training, and the folder if it is then empty."""
        for entry in self.folder.iterdir():
            if entry.name.startswith("step-") and entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif _NAMES.fullmatch(_TEMPORARY.sub(r"\1", entry.name)):
                entry.unlink()
        with contextlib.suppress(OSError):  # another program added a file in the meantime
            self.folder.rmdir()


def replace_tensors(file: Path, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
    """Replace ``file`` atomically by tensors and a JSON object, and wait until they are on disk."""
    make_folders(file.parent)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    save_file(
        {name: each.contiguous().cpu() for name, each in tensors.items()}, temporary, {"state": json.dumps(state)}
    )
    publish(temporary, file)


def read_tensors(file: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the data that :func:`replace_tensors` wrote. Raises :class:`TrainingError` if the file is damaged."""
    try:
        with safe_open(str(file), framework="pt") as stored:
            state: dict[str, Any] = json.loads((stored.metadata() or {}).get("state", "{}"))
            return {name: stored.get_tensor(name) for name in stored.keys()}, state  # noqa: SIM118  not a mapping
    except (OSError, ValueError, SafetensorError) as error:
        raise TrainingError(f"{file} is damaged: {error}") from error
