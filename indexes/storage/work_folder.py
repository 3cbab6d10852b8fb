"""The work folder, in which workers leave files for each other: which files ragembed wrote, and removing them."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError
from ragembed.files import read_regular, replace_file
from ragembed.indexes.storage.lock import HOLDER, LOCK

FORMAT = "ragembed-work-1"
"""Format in the plan of a work folder. It distinguishes ragembed's folder from others with the same file names."""
PLAN = "plan.json"
_MOST_BYTES = 256 << 20
"""Largest plan, which names all paths of a run."""

_FOLDERS = re.compile(r"parts|shares|read|fit|write|finish|common|read/(\d{5,}|\.\d{5,}\.[0-9a-f]{32}\.tmp)")
_FILES = re.compile(
    r"plan\.json|boilerplate\.json|parts/\d{5,}\.jsonl"
    r"|read/\d{5,}\.trying|read/[^/]+/(spool\.jsonl|part\.json)"
    r"|fit/\d{5,}\.safetensors|(shares|write|finish)/\d{5,}\.json|write/\d{5,}\.count"
    r"|common/(config\.json|state\.safetensors|queries\.safetensors)"
)
# Files that are written before the plan. A run that was killed in between leaves only these.
_BEFORE_PLAN = re.compile(rf"{re.escape(LOCK)}|{re.escape(HOLDER)}|\.plan\.json\.\d+\.tmp")
_TEMPORARY = re.compile(r"(.*/|)\.([^/]+)\.\d+\.tmp")
"""Name under which :func:`replace_file` writes a file before it is complete."""


class WorkFolder:
    """A work folder at ``path``, which may not exist yet. Symbolic links are never followed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def require_ours(self) -> None:
        """Raise :class:`ConfigError` unless the folder is missing, empty, or left by an interrupted run."""
        problem = self._problem()
        if problem is not None:
            raise ConfigError(
                f"{self.path} cannot be the work folder: {problem}; expected a missing or empty folder, or one that an "
                "interrupted run left: move this one away"
            )

    def is_ours(self) -> bool:
        """Return whether the folder exists and can be used."""
        return self.path.is_dir() and self._problem() is None

    def read_plan(self) -> dict[str, Any] | None:
        """Return the fields of ragembed's plan, none while it is being made, or None if there is no such plan."""
        file = self.path / PLAN
        if file.is_symlink():
            return None
        try:
            found = json.loads(read_regular(file, _MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            return None
        return found

    def write_plan(self, fields: dict[str, Any]) -> None:
        """Write the plan. A plan without fields only marks the folder as ragembed's."""
        replace_file(self.path / PLAN, json.dumps({"format": FORMAT, **fields}, indent=2).encode())

    def restart(self) -> None:
        """Remove ragembed's files and leave a plan without fields; raises :class:`ConfigError` if others are there."""
        for folder in self._remove():
            if folder.parent != self.path:
                raise ConfigError(f"{folder} holds files that ragembed did not write: move them away")

    def clear(self) -> None:
        """Remove all files of ragembed, the plan last, and then its folders if they are empty."""
        self._remove()
        (self.path / PLAN).unlink()

    def _remove(self) -> list[Path]:
        """Clear the plan and remove all files of ragembed but the lock; return folders that also hold other files."""
        self.write_plan({})
        left = []
        for entry, name, is_folder in self._ours(self.path):
            if is_folder:
                try:
                    entry.rmdir()
                except OSError:  # The folder holds other files.
                    left.append(entry)
            elif name not in (PLAN, LOCK, HOLDER):
                entry.unlink(missing_ok=True)
        return left

    def leave(self) -> None:
        """Remove the lock file if there is no plan, and the folder if it is empty."""
        if not (self.path / PLAN).exists():
            (self.path / LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # The folder holds other files.
                self.path.rmdir()

    def _problem(self) -> str | None:
        if self.path.is_symlink():
            return "it is a symbolic link"
        if not self.path.exists():
            return None
        if not self.path.is_dir():
            return "it is a file"
        for entry, name, is_folder in self._ours(self.path):
            try:
                mode = entry.lstat().st_mode
            except FileNotFoundError:  # A running process has just removed the file.
                continue
            if stat.S_ISLNK(mode):
                return f"{name} in it is a symbolic link"
            if not (stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode)):
                return f"{name} in it is not a {'folder' if is_folder else 'file'}"
            if (name == LOCK and entry.stat().st_size) or (
                name == HOLDER and entry.read_bytes().strip(b"\x000123456789")
            ):
                return f"{name} in it was not written by ragembed"
        names = sorted(entry.name for entry in self.path.iterdir() if not _BEFORE_PLAN.fullmatch(entry.name))
        if names and self.read_plan() is None:
            shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            return f"it holds {shown}, but no {PLAN} of this version of ragembed"
        return None

    def _ours(self, folder: Path, above: str = "") -> Iterator[tuple[Path, str, bool]]:
        """Yield path and name of each entry that ragembed wrote, and whether it is a folder; children come first."""
        try:
            with os.scandir(folder) as found:
                entries = list(found)
        except FileNotFoundError:  # A running process has just removed the folder.
            return
        for entry in entries:
            path, name = Path(entry.path), above + entry.name
            if _FOLDERS.fullmatch(name):
                if entry.is_dir(follow_symlinks=False):
                    yield from self._ours(path, f"{name}/")
                yield path, name, True
            elif _FILES.fullmatch(_TEMPORARY.sub(r"\1\2", name)) or name in (LOCK, HOLDER):
                yield path, name, False
