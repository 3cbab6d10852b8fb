"""Copying a store: its last commit and the files that this names, completely or not at all."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

from ragembed.errors import StoreDamagedError, StoreError
from ragembed.files import create_file, list_folder, make_folders, open_regular, sync, sync_tree, write_file
from ragembed.indexes.storage import catalog, derived
from ragembed.indexes.storage.folders import foreign_file, require_own, temporary_folder, temporary_name
from ragembed.indexes.storage.layout import (
    DATABASE,
    DERIVED,
    EMBEDDERS,
    GITIGNORE,
    GITIGNORE_TEXT,
    PRIVATE,
    SEGMENTS,
    WORK,
    is_store,
)
from ragembed.indexes.storage.lock import writer_lock
from ragembed.indexes.storage.transactions import open_for_reading

_BLOCK_BYTES = 1 << 20


def copy_store(store: Path, target: Path, wait_seconds: float = 0.0) -> None:
    """Copy the last commit of ``store`` to the folder ``target``, replacing a store there, unless both are the same.

    Names of files in the copy are relative to the folder that holds it.
    """
    store = store.resolve()
    if store == target.resolve():
        return
    target = target.parent.resolve() / target.name if target.is_symlink() else target.resolve()
    if store in target.parents or target in store.parents:
        raise StoreError(
            f"one of {target} and the store {store} contains the other: choose another folder for the copy"
        )
    former = target.with_name(f".{target.name}.former")
    temporary = temporary_name(target)
    for folder in (target, former, temporary):
        _require_replaceable(folder)
    try:
        make_folders(target.parent)
        try:
            temporary_folder(target).chmod(target.stat().st_mode & 0o7777 if target.is_dir() else PRIVATE)
            with writer_lock(store, wait_seconds):
                _write(store, temporary)
            sync_tree(temporary)
            _take_place(temporary, target, former, wait_seconds)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"cannot copy the store {store} to {target}: {reason}") from error


def _require_replaceable(folder: Path) -> None:
    remedy = "choose another folder for the copy"
    require_own(folder, remedy)
    if (folder / WORK).exists():
        raise StoreError(f"{folder} holds an unfinished indexing run in {folder / WORK}: {remedy}")


def _write(store: Path, copy: Path) -> None:
    write_file(copy / GITIGNORE, GITIGNORE_TEXT)
    with closing(open_for_reading(store / DATABASE)) as source:
        with closing(sqlite3.connect(copy / DATABASE)) as database:
            source.backup(database)
        source.execute("BEGIN")
        folders = [
            Path(SEGMENTS, record.files.folder) for record in (*catalog.segments(source), *catalog.rewritten(source))
        ]
        folders.append(Path(EMBEDDERS, catalog.embedder(source)["fingerprint"]))
        files = [Path(DERIVED, record.file) for record in derived.records(source)]
    files += [folder / name for folder in folders for name in list_folder(store / folder, store)]
    for folder in {*folders, *(file.parent for file in files)}:
        make_folders(copy / folder)
    for file in files:
        if (difference := foreign_file(store / file, store)) is not None:
            raise StoreDamagedError(f"{store / file} {difference}")
        with open_regular(store / file, store) as original, create_file(copy / file) as target:
            shutil.copyfileobj(original, target, _BLOCK_BYTES)


def _take_place(temporary: Path, target: Path, former: Path, wait_seconds: float) -> None:
    if target.exists():
        # Keep it if there is no target: then a copy that was killed below left it as the only store.
        shutil.rmtree(former, ignore_errors=True)
    with writer_lock(target, wait_seconds) if is_store(target) else nullcontext():
        _require_replaceable(target)  # Check again: another process may have written there meanwhile.
        try:
            if target.exists():
                target.rename(former)
            temporary.rename(target)
        except BaseException:
            if former.exists() and not target.exists():
                former.rename(target)
            raise
    sync(target.parent)
    shutil.rmtree(former, ignore_errors=True)
