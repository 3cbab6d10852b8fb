"""Folders of a store and of workers: publishing and removing them, and recognising those of other programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError, StoreDamagedError, StoreError
from ragembed.files import (
    FOLDER_MODE,
    file_sha256,
    is_unwritten,
    make_folders,
    open_regular,
    read_regular,
    replace_file,
)
from ragembed.indexes.storage.layout import (
    APPLICATION_ID,
    COMMITTED_SUFFIX,
    DATABASE,
    DERIVED,
    EMBEDDERS,
    GITIGNORE,
    GITIGNORE_TEXT,
    INDEX,
    RAW,
    SEGMENTS,
    WORK,
    is_store,
)
from ragembed.indexes.storage.lock import HOLDER, LOCK, WATCH_LOCK, WATCHER, is_watcher

WORK_FORMAT = "ragembed-work-1"
"""Format in the plan of a work folder. It distinguishes ragembed's folder from others with the same file names."""
PLAN = "plan.json"
_MOST_PLAN_BYTES = 256 << 20
"""Largest plan, which names all paths of a run."""

_WORK_FOLDERS = re.compile(r"files|tasks|read|write|finish|common|read/(\d{5,}|\.\d{5,}\.[0-9a-f]{32}\.tmp)")
_WORK_FILES = re.compile(
    r"plan\.json|files/\d{5,}\.jsonl"
    r"|read/\d{5,}\.trying|read/[^/]+/(spool\.jsonl|share\.json|fit\.safetensors)"
    r"|(tasks|write|finish)/\d{5,}\.json|(read|write|finish)/\d{5,}\.count"
    r"|common/(config\.json|state\.safetensors|queries\.safetensors)"
)
# Files that are written before the plan. A run that was killed in between leaves only these.
_BEFORE_PLAN = re.compile(rf"{re.escape(LOCK)}|{re.escape(HOLDER)}|\.plan\.json\.\d+\.tmp")
_TEMPORARY_IN_WORK = re.compile(r"(.*/|)\.([^/]+)\.\d+\.tmp")
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
            plan = json.loads(read_regular(file, _MOST_PLAN_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(plan, dict) or plan.pop("format", None) != WORK_FORMAT:
            return None
        return plan

    def write_plan(self, fields: dict[str, Any]) -> None:
        """Write the plan. A plan without fields only marks the folder as ragembed's."""
        replace_file(self.path / PLAN, json.dumps({"format": WORK_FORMAT, **fields}, indent=2).encode())

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
            with os.scandir(folder) as scan:
                entries = list(scan)
        except FileNotFoundError:  # A running process has just removed the folder.
            return
        for entry in entries:
            path, name = Path(entry.path), above + entry.name
            if _WORK_FOLDERS.fullmatch(name):
                if entry.is_dir(follow_symlinks=False):
                    yield from self._ours(path, f"{name}/")
                yield path, name, True
            elif _WORK_FILES.fullmatch(_TEMPORARY_IN_WORK.sub(r"\1\2", name)) or name in (LOCK, HOLDER):
                yield path, name, False


SEGMENT_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
FINGERPRINT = re.compile(r"[0-9a-f]{32}")

DERIVED_FILE = re.compile(r"(postings|hubness|queries)-[0-9a-f]{16}\.safetensors")
_FOLDERS = {SEGMENTS: SEGMENT_NAME, DERIVED: re.compile("postings|hubness|queries"), EMBEDDERS: FINGERPRINT}
_INSIDE = {
    SEGMENTS: re.compile(rf"{re.escape(RAW)}|{re.escape(INDEX)}(\.\d+)?"),
    DERIVED: re.compile(r"made|\d+\.part"),
    EMBEDDERS: re.compile(".+"),  # Embedders of other libraries choose their own file names.
}
_TEMPORARY = re.compile(r"\.(.+)\.\d+\.tmp")
"""Name under which :func:`ragembed.files.replace_file` writes a file before it is complete."""
_DATABASES = re.compile(
    rf"({re.escape(DATABASE)}|(?P<new>\.{re.escape(DATABASE)}\.new))(?P<beside>-wal|-shm|-journal)?"
)
_NUMBERS = (HOLDER, DATABASE + COMMITTED_SUFFIX)
_MOST_BYTES = 4096
"""Size that no file of a store reaches, except for its database."""
_BLOCK_BYTES = 1 << 20
_SQLITE_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID_AT = 68
_SQLITE_STARTS = {
    "-wal": (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"),
    "-shm": ((3_007_000).to_bytes(4, sys.byteorder), bytes(4)),
    "-journal": (b"\xd9\xd5\x05\xf9", bytes(4)),
}
"""First bytes of the files beside a database (SQLite's file format, sections 3 and 4). Zeros are not filled in yet."""


def require_place(store: str | Path) -> Path:
    """Return the path at which a store can be created.

    The folder must be missing, empty, or hold a store whose creation was interrupted.
    """
    if not str(store):
        raise StoreError("the path of the store is empty: expected the name of a folder, such as .ragembed")
    path = Path(store)
    if is_store(path) and has_application_id(path / DATABASE):
        raise StoreError(f"{path} already holds a store: open it with Store.open, or choose another path")
    require_own(path, "choose a missing or empty folder for the store")
    return path


def require_own(folder: Path, remedy: str) -> None:
    """Raise :class:`StoreError` unless everything in ``folder`` is a part of a store that ragembed wrote.

    A missing or empty folder passes, and so do the leftovers of a killed process. ``remedy`` ends the message. If the
    folder holds segments, derived files or embedders, its ``.gitignore`` must be ragembed's, or unwritten.
    """
    if folder.is_symlink():
        raise StoreError(f"{folder} is a symbolic link, which ragembed does not follow: {remedy}")
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file: {remedy}")
    if (foreign := _foreign_entry(folder)) is not None:
        raise StoreError(f"{folder} holds {foreign.name!r}, which is not part of a ragembed store: {remedy}")


def _foreign_entry(folder: Path) -> Path | None:
    ignore = folder / GITIGNORE
    marked = _is_regular(ignore) and _is_own_file(ignore)
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if entry.is_symlink():
            return entry
        if entry.name in _FOLDERS:
            inside = sorted(entry.iterdir()) if entry.is_dir() else [entry]
            foreign = [child for child in inside if not (marked and _is_own_child(child, entry.name))]
            if foreign:
                return foreign[0]
        elif not _is_own_file(entry):
            return entry
    return None


def _is_own_file(entry: Path) -> bool:
    """Return whether ``entry`` is, by name and content, a store file that ragembed writes, or its work folder."""
    if entry.name == WORK:
        return WorkFolder(entry).is_ours()
    if not _is_regular(entry):
        return False
    name = _TEMPORARY.sub(r"\1", entry.name)
    match = _DATABASES.fullmatch(name)
    others = (GITIGNORE, LOCK, WATCH_LOCK, WATCHER, *_NUMBERS)
    if match is None and (name not in others or entry.stat().st_size > _MOST_BYTES):
        return False
    with entry.open("rb") as file:
        if all(is_unwritten(block) for block in iter(lambda: file.read(_BLOCK_BYTES), b"")):
            return True
    if name == GITIGNORE:
        return GITIGNORE_TEXT.startswith(entry.read_bytes())  # A killed process may have written only a part.
    if name in _NUMBERS:
        return entry.read_bytes().strip().isdigit()
    if name == WATCHER:
        return is_watcher(entry.read_bytes())
    if match is None:  # a lock file, which is always empty
        return False
    if match["beside"] is None:
        with entry.open("rb") as file:  # After a power failure, the start may be unwritten, and other parts not.
            is_headless = is_unwritten(file.read(_APPLICATION_ID_AT + 4))
        return has_application_id(entry) or (match["new"] is not None and is_headless)
    with entry.open("rb") as file:
        return file.read(4) in _SQLITE_STARTS[match["beside"]]


def is_unfinished(entry: Path) -> bool:
    """Return whether ``entry`` is a file in a store's folder whose creation was interrupted."""
    match = _DATABASES.fullmatch(entry.name)
    new = match is not None and match["new"] is not None
    return (new or _TEMPORARY.fullmatch(entry.name) is not None) and _is_own_file(entry)


def _is_own_child(entry: Path, kind: str) -> bool:
    """Return whether ragembed writes the folder or derived file ``entry`` below the folder ``kind`` of a store."""
    if kind == DERIVED and DERIVED_FILE.fullmatch(entry.name):
        return _is_regular(entry)
    named = _FOLDERS[kind].fullmatch(entry.name.removeprefix(".").removesuffix(".tmp")) is not None
    if not named or not entry.is_dir() or entry.is_symlink():
        return False
    inside = [(child, _TEMPORARY.sub(r"\1", child.name)) for child in entry.iterdir()]
    return all(_INSIDE[kind].fullmatch(name) and not child.is_symlink() for child, name in inside)


def _is_regular(entry: Path) -> bool:
    return entry.is_file() and not entry.is_symlink()


def has_application_id(database: Path) -> bool:
    """Return whether ``database`` is an SQLite database with the application id of ragembed's stores."""
    with database.open("rb") as file:
        header = file.read(_APPLICATION_ID_AT + 4)
    return header.startswith(_SQLITE_MAGIC) and header[_APPLICATION_ID_AT:] == APPLICATION_ID.to_bytes(4, "big")


def require_name(what: str, folder: str) -> None:
    """Raise :class:`StoreDamagedError` unless ``folder``, which the database names as ``what``, is a UUID."""
    if SEGMENT_NAME.fullmatch(folder) is None:
        raise StoreDamagedError(f"the store's database names {what} {folder!r}: expected a UUID")


def require_committed(file: Path, expected: str, store: Path) -> None:
    """Raise :class:`StoreDamagedError` unless ``file`` of ``store`` has the sha256 ``expected``."""
    if (difference := foreign_file(file, store) or hash_difference(file_sha256(file), expected)) is not None:
        raise StoreDamagedError(f"{file} {difference}: rebuild it with 'ragembed doctor --repair'")


def foreign_file(file: Path, store: Path) -> str | None:
    """Return why ``file`` of ``store`` is not a regular file; raises FileNotFoundError without it."""
    try:
        open_regular(file, store).close()
    except FileNotFoundError:
        raise
    except OSError as error:
        return f"cannot be read as a file of the store: {error.strerror or error}"
    return None


def hash_difference(found: str, expected: str) -> str | None:
    """Return a message if the sha256 of a file is not the one ``expected``, else None."""
    if found == expected:
        return None
    return f"does not match its committed hash (sha256 {found[:12]}…, expected {expected[:12]}…)"


def temporary_name(final: Path) -> Path:
    """Return the folder in which the files of ``final`` are written before they are published."""
    return final.with_name(f".{final.name}.tmp")


def temporary_folder(final: Path) -> Path:
    """Create an empty :func:`temporary_name` folder, and return it."""
    temporary = temporary_name(final)
    shutil.rmtree(temporary, ignore_errors=True)
    make_folders(temporary.parent)
    temporary.mkdir(FOLDER_MODE)
    return temporary


def sweep(folder: Path, keep: Collection[str]) -> None:
    """Remove the folders and files in ``folder`` that ragembed wrote and that are not in ``keep``.

    Writes that never committed leave them.
    """
    if folder.is_symlink():
        raise StoreDamagedError(f"{folder} is a symbolic link: replace it with the folder that it points to")
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name not in keep and _is_own_child(entry, folder.name):
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
                continue
            with suppress(PermissionError):  # Windows does not remove a file that a search has mapped.
                entry.unlink(missing_ok=True)
