"""The folder in which workers leave files for each other: which of its entries are ours, and how they are removed."""

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
from ragembed.files import replace_file
from ragembed.indexes.storage.lock import HOLDER, LOCK

FORMAT = "ragembed-work-1"
"""What the plan of a work folder says of itself: a folder of other files with the same names has no such plan."""
PLAN = "plan.json"

_FOLDERS = re.compile(r"shards|read|fit|embed|fitted|read/(\d{5,}|\.\d{5,}\.[0-9a-f]{32}\.tmp)")
_FILES = re.compile(
    r"plan\.json|known\.jsonl|boilerplate\.json|blocks\.safetensors|shards/\d{5,}\.jsonl"
    r"|read/\d{5,}\.trying|read/[^/]+/(spool\.jsonl|index\.safetensors|scan\.json)"
    r"|(fit|embed)/\d{5,}\.safetensors|fitted/(config\.json|state\.safetensors)"
)
# Files that are made before the plan: a run that was killed in between leaves them alone.
_BEFORE_PLAN = re.compile(rf"{re.escape(LOCK)}|{re.escape(HOLDER)}|\.plan\.json\.\d+\.tmp")
_TEMPORARY = re.compile(r"(.*/|)\.([^/]+)\.\d+\.tmp")
"""Name under which :func:`replace_file` writes a file before it is complete."""


class WorkFolder:
    """A work folder at ``path``, which may not exist yet; it never follows a symbolic link."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def require_ours(self) -> None:
        """Raise :class:`ConfigError` unless the folder is missing, empty, or one that an interrupted run has left."""
        problem = self._problem()
        if problem is not None:
            raise ConfigError(
                f"{self.path} cannot be the work folder: {problem}. Expected a folder that does not exist, is empty, "
                "or was left by an interrupted run: choose another with --work, or move this one away"
            )

    def is_ours(self) -> bool:
        """Tell whether the folder exists and could be used."""
        return self.path.is_dir() and self._problem() is None

    def read_plan(self) -> dict[str, Any] | None:
        """Return the fields of our plan, none while it is being made; None if there is no plan of ours."""
        file = self.path / PLAN
        if file.is_symlink():
            return None
        try:
            found = json.loads(file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            return None
        return found

    def write_plan(self, fields: dict[str, Any]) -> None:
        """Write the plan; one without fields only says that the folder is ours."""
        replace_file(self.path / PLAN, json.dumps({"format": FORMAT, **fields}, indent=2).encode())

    def restart(self) -> None:
        """Remove all that is ours, and leave a plan without fields.

        Raises :class:`ConfigError` if other files are in the way of new ones.
        """
        for folder in self._remove():
            if folder.parent != self.path:
                raise ConfigError(f"{folder} holds files that are not ours: move them away, or choose another --work")

    def clear(self) -> None:
        """Remove all that is ours, the plan last, and folders if nothing else is in them."""
        self._remove()
        (self.path / PLAN).unlink()

    def _remove(self) -> list[Path]:
        """Remove all that is ours but the lock, invalidating the plan first; returns folders that others use too."""
        self.write_plan({})
        left = []
        for entry, name, is_folder in self._ours(self.path):
            if is_folder:
                try:
                    entry.rmdir()
                except OSError:  # files of others are in it
                    left.append(entry)
            elif name not in (PLAN, LOCK, HOLDER):
                entry.unlink(missing_ok=True)
        return left

    def leave(self, *, remove: bool) -> None:
        """Remove the lock file if there is no plan; and then the folder if it is empty and ``remove`` says so."""
        if not (self.path / PLAN).exists():
            (self.path / LOCK).unlink(missing_ok=True)
            if remove:
                with suppress(OSError):  # files of others are in it
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
            except FileNotFoundError:  # a run that is under way has finished with it
                continue
            if stat.S_ISLNK(mode):
                return f"{name} in it is a symbolic link"
            if not (stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode)):
                return f"{name} in it is not a {'folder' if is_folder else 'file'}"
            if (name == LOCK and entry.stat().st_size) or (name == HOLDER and entry.read_bytes().strip(b"0123456789")):
                return f"{name} in it was not written by ragembed"
        names = sorted(entry.name for entry in self.path.iterdir() if not _BEFORE_PLAN.fullmatch(entry.name))
        if names and self.read_plan() is None:
            shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            return f"it holds {shown}, but no {PLAN} of this version of ragembed"
        return None

    def _ours(self, folder: Path, above: str = "") -> Iterator[tuple[Path, str, bool]]:
        """Yield what has a name of ours, that name, and whether it is a folder's; a folder's entries come before it."""
        try:
            with os.scandir(folder) as found:
                entries = list(found)
        except FileNotFoundError:  # a run that is under way has finished with it
            return
        for entry in entries:
            path, name = Path(entry.path), above + entry.name
            if _FOLDERS.fullmatch(name):
                if entry.is_dir(follow_symlinks=False):
                    yield from self._ours(path, f"{name}/")
                yield path, name, True
            elif _FILES.fullmatch(_TEMPORARY.sub(r"\1\2", name)) or name in (LOCK, HOLDER):
                yield path, name, False
