"""Copying a store: its last commit, and the files that it names, whole or not at all."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

from ragembed.errors import StoreError
from ragembed.files import make_folders, sync, write_file
from ragembed.indexes import catalog
from ragembed.indexes.folders import temporary_folder
from ragembed.indexes.layout import DATABASE, EMBEDDERS, GITIGNORE, GITIGNORE_TEXT, POSTINGS, SEGMENTS, is_store
from ragembed.indexes.lock import writer_lock
from ragembed.indexes.postings.named import named_postings
from ragembed.indexes.schema import connect


def copy_store(store: Path, target: Path, wait_seconds: float = 0.0) -> None:
    """Write the last commit of ``store`` to the folder ``target``, in the place of a store that is there.

    Nothing is done where both are the same. Names of files in the copy are relative to the folder that holds it, as in
    every store. Raises :class:`StoreError` where there is something else at ``target``, or it cannot be written, and
    :class:`ragembed.errors.StoreLockedError` where either store is written for longer than ``wait_seconds``.
    """
    store, target = store.resolve(), target.resolve()
    if store == target:
        return
    if target.exists() and not is_store(target) and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target} is there and is no store: choose another folder for the copy")
    try:
        make_folders(target.parent)
        temporary = temporary_folder(target)
        try:
            with writer_lock(store, wait_seconds):
                _write(store, temporary)
            _take_place(temporary, target, wait_seconds)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"the store {store} could not be copied to {target}: {reason}") from error


def _write(store: Path, copy: Path) -> None:
    write_file(copy / GITIGNORE, GITIGNORE_TEXT)
    with closing(connect(store / DATABASE, writable=False)) as source:
        with closing(sqlite3.connect(copy / DATABASE)) as database:
            source.backup(database)
        source.execute("BEGIN")
        folders = [
            Path(SEGMENTS, record.files.folder) for record in (*catalog.segments(source), *catalog.rewritten(source))
        ]
        folders += [Path(POSTINGS, record.files.folder) for record in named_postings(source)]
        folders.append(Path(EMBEDDERS, catalog.embedder(source)["fingerprint"]))
    sync(copy / DATABASE)
    for folder in folders:
        make_folders((copy / folder).parent)
        shutil.copytree(store / folder, copy / folder)
        for file in (copy / folder).iterdir():
            sync(file)
        sync(copy / folder)
    sync(copy)


def _take_place(temporary: Path, target: Path, wait_seconds: float) -> None:
    former = target.with_name(f".{target.name}.former")
    there = is_store(target)
    if there:
        shutil.rmtree(former, ignore_errors=True)  # else it may be all that a copy left that was killed below
    with writer_lock(target, wait_seconds) if there else nullcontext():
        try:
            if there:
                target.rename(former)
            elif target.exists():
                target.rmdir()
            temporary.rename(target)
        except BaseException:
            if there and not target.exists():
                former.rename(target)
            raise
    sync(target.parent)
    shutil.rmtree(former, ignore_errors=True)
