"""A copy of a store is complete or absent, gives the same results, and on failure leaves the target unchanged."""

import errno
import functools
import hashlib
import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ragembed.errors import StoreError, StoreLockedError
from ragembed.indexes import Store
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.storage import copying
from ragembed.indexes.storage.lock import writer_lock
from ragembed.indexes.verification import verify_store
from tests.conftest import KnownEncoder, record

QUERIES = ("text number 5", "text number 11", "another third text", "nothing like it")


def fill(path):
    """A store of 14 chunks in three segments, with unused rows and records of a run."""
    with Store.create(path, KnownEncoder()) as store:
        for start in (0, 6, 12):
            chunks = [record(f"id{i}", f"text number {i}", metadata={"i": i}) for i in range(start, start + 6)]
            store.add(chunks)
        store.delete([f"id{i}" for i in (3, 11, 16, 17)])
        store.run_records("pages").note(["id1", "id2"], ["x", "y"])
    return path


@pytest.fixture
def store(tmp_path):
    return fill(tmp_path / "store")


@pytest.fixture
def other(tmp_path):
    """A store with other chunks, which the copy replaces."""
    with Store.create(tmp_path / "other", KnownEncoder()) as store:
        store.add([record("old", "old text")])
    return tmp_path / "other"


def copy(store, target, wait_seconds=0.0):
    with Store.open(store, KnownEncoder()) as opened:
        opened.copy(target, wait_seconds)


def seen(store, encoder=None):
    """Return the visible contents of a store."""
    with Store.open(store, encoder or KnownEncoder()) as opened:
        answers = [
            [(hit.id, hit.score) for hit in opened.search(query, 9, mode)]
            for query in QUERIES
            for mode in ("dense", "lexical", "hybrid")
        ]
        status = opened.status()
        told = {name: value for name, value in status.items() if name not in ("path", "bytes")}
        return told, list(opened.chunks()), opened.sources(), opened.run_records("pages").keys(), answers


def assert_sound(store, encoder=None):
    report = verify_store(store, encoder or KnownEncoder())
    assert (report.problems, report.notes) == ([], [])


def contents(folder):
    """Return the hashes of all files in a folder, except those of a running SQLite or a lock."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.name.endswith(("-wal", "-shm", ".lock"))]
    return {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


# Contents of a copy


def test_copy_is_sound_and_gives_the_same_results(store, tmp_path):
    before = contents(store)
    copy(store, tmp_path / "far" / "away" / "copy")
    assert_sound(tmp_path / "far" / "away" / "copy")
    assert seen(tmp_path / "far" / "away" / "copy") == seen(store)
    assert contents(store) == before


def test_copy_is_independent(store, tmp_path):
    copy(store, tmp_path / "copy")
    with Store.open(store, KnownEncoder()) as opened:
        opened.add([record("here", "here alone")])
        opened.optimize()
    with Store.open(tmp_path / "copy", KnownEncoder()) as opened:
        assert opened.get(["here"]) == []
        opened.add([record("there", "there alone")])
        opened.delete(["id1"])
        assert opened.run_records("pages").keys() == ["id2"]
    with Store.open(store, KnownEncoder()) as opened:
        assert [found.id for found in opened.get(["here", "there", "id1"])] == ["here", "id1"]
    assert_sound(store)
    assert_sound(tmp_path / "copy")


def test_copy_contains_the_embedder(in_folder, tiny_config, monkeypatch):
    monkeypatch.setattr(fitting, "MIN_FIT", 2)
    docs = in_folder / "docs"
    docs.mkdir()
    for i, words in enumerate(("zebra runs", "the cat sleeps", "supersonic flow of air", "lock of the writer")):
        (docs / f"{i}.md").write_text(f"# File {i}\n\n{words}\n")
    index_files(IndexingRequest(in_folder / ".ragembed", (docs,), embedder=tiny_config))
    with Store.open(in_folder / ".ragembed") as opened:
        opened.copy("backup")
        before = [(hit.id, hit.source, hit.score) for hit in opened.search("zebra", 9)]
        assert opened.sources()
    with Store.open(in_folder / "backup") as copied:
        assert [(hit.id, hit.source, hit.score) for hit in copied.search("zebra", 9)] == before
    assert verify_store(in_folder / "backup").problems == []
    again = index_files(IndexingRequest(in_folder / "backup", (docs,)))
    assert (again.encoded, again.scan.changed, again.scan.removed) == (0, [], [])


def test_copy_skips_unnamed_files(store, tmp_path):
    (store / "segments" / "0f8fad5b-d9cb-469f-a165-70867728950e").mkdir()
    (store / "embedders" / ("0" * 32)).mkdir()
    (store / "notes.txt").write_text("not of the store")
    copy(store, tmp_path / "copy")
    with Store.open(store, KnownEncoder()) as opened:
        named = {segment["folder"] for segment in opened.status()["segments"]}
    assert {entry.name for entry in (tmp_path / "copy" / "segments").iterdir()} == named
    assert len(list((tmp_path / "copy" / "embedders").iterdir())) == 1
    assert not (tmp_path / "copy" / "notes.txt").exists()


def test_copy_includes_commits_in_the_log(store, tmp_path):
    with closing(sqlite3.connect(f"{(store / 'store.db').as_uri()}?mode=ro", uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM chunks").fetchone()  # This reader prevents a checkpoint of the log.
        with Store.open(store, KnownEncoder()) as opened:
            opened.add([record("late", "late text")])
            assert (store / "store.db-wal").stat().st_size > 0
            opened.copy(tmp_path / "copy")
    assert not (tmp_path / "copy" / "store.db-wal").exists()
    with Store.open(tmp_path / "copy", KnownEncoder()) as copied:
        assert copied.get(["late"])[0].chunk.text == "late text"
    assert_sound(tmp_path / "copy")


# Target of a copy


def test_copy_refuses_a_foreign_folder(store, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("more work")
    for name in ("folder", "file"):
        with pytest.raises(StoreError, match="choose another folder for the copy"):
            copy(store, tmp_path / name)
    assert (tmp_path / "folder" / "thesis.txt").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "more work"
    with pytest.raises(StoreError, match="cannot copy the store"):
        copy(store, tmp_path / "file" / "below")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder", "store"]


def test_copy_to_itself_changes_nothing(store, tmp_path, monkeypatch):
    before = contents(store)
    monkeypatch.chdir(tmp_path)
    copy(store, "store")
    copy(store, tmp_path / "store" / ".." / "store")
    if os.name != "nt":
        (tmp_path / "link").symlink_to(store)
        copy(store, tmp_path / "link")
        copy(tmp_path / "link", store)
        assert (tmp_path / "link").is_symlink()
    assert contents(store) == before


# Concurrent access


def test_copy_waits_for_a_writer(store, other, tmp_path):
    for written in (store, other):
        with writer_lock(written), pytest.raises(StoreLockedError, match=rf"PID {os.getpid()}"):
            copy(store, other)
        with writer_lock(written), pytest.raises(StoreLockedError):
            copy(store, other, 0.05)
    assert seen(other)[1][0].id == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["other", "store"]
    copy(store, other)
    assert seen(other) == seen(store)


def test_copy_does_not_disturb_readers(store, other, tmp_path):
    with Store.open(store, KnownEncoder()) as reader, Store.open(other, KnownEncoder()) as former:
        chunks, old = reader.chunks(), former.chunks()
        first, last = next(chunks), next(old)
        copy(store, other)
        assert [first.id, *(found.id for found in chunks)] == [found.id for found in seen(store)[1]]
        assert (last.id, list(old)) == ("old", [])
    assert seen(other) == seen(store)


# Failures


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


@contextmanager
def watched(moment):
    """Call ``moment`` before and after every disk operation of a copy."""

    def around(original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            moment()
            result = original(*args, **kwargs)
            moment()
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for holder, name in (
            (os, "fsync"),
            (Path, "rename"),
            (Path, "rmdir"),
            (shutil, "copytree"),
        ):
            patch.setattr(holder, name, around(getattr(holder, name)))
        yield


def interrupt():
    raise Interrupted


def disk_is_full():
    raise OSError(errno.ENOSPC, "No space left on device")


ACTS = ((interrupt, Interrupted), (disk_is_full, StoreError))
PLACES = ("nothing", "empty folder", "store")


@pytest.mark.parametrize(
    ("act", "error", "place", "step"),
    [
        *((*ACTS[0], "nothing", 6), (*ACTS[1], "empty folder", 6), (*ACTS[0], "store", 6), (*ACTS[1], "store", 6)),
        *(pytest.param(*act, place, 1, marks=pytest.mark.slow) for act in ACTS for place in PLACES),
    ],
)
def test_failed_copy_leaves_the_target_unchanged(tmp_path, act, error, place, step):
    store = fill(tmp_path / "store")
    target = tmp_path / "target"
    if place == "empty folder":
        target.mkdir()
    if place == "store":
        with Store.create(target, KnownEncoder()) as opened:
            opened.add([record("old", "old text")])
    before, source = seen(target) if place == "store" else None, contents(store)
    left = 0

    def moment():
        nonlocal left
        left -= 1
        if left == 0:
            act()

    for nth in itertools.count(1, step):
        left = nth
        try:
            with Store.open(store, KnownEncoder()) as opened, watched(moment):
                opened.copy(target)
        except error:
            left = 0
        else:
            break
        assert contents(store) == source
        assert {entry.name for entry in tmp_path.iterdir()} - {".target.former"} <= {"store", "target"}
        if (target / "store.db").exists():
            assert seen(target) in (before, seen(store))
            assert_sound(target)
        else:
            assert place != "store"
            assert not target.exists() or list(target.iterdir()) == []
    assert nth > 15
    assert seen(target) == seen(store)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["store", "target"]


def test_copy_to_a_full_disk_raises_one_error(store, other, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(copying.shutil, "copyfileobj", full)
    with pytest.raises(StoreError, match=r"cannot copy the store .*store to .*other: No space left on device"):
        copy(store, other)
    assert seen(other)[1][0].id == "old"


SCRIPT = """
import os, sys
from pathlib import Path
from ragembed.indexes.storage import copying
left = int(sys.argv[3])
rename = Path.rename
def dying(self, target):
    global left
    left -= 1
    if left == 0:
        os._exit(9)
    return rename(self, target)
Path.rename = dying
copying.copy_store(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_copy_killed_between_two_renames_keeps_both_stores(store, other):
    before = seen(other)
    command = [sys.executable, "-c", SCRIPT, str(store), str(other)]
    assert subprocess.run([*command, "2"], check=False).returncode == 9
    assert not other.exists()
    assert seen(other.with_name(".other.former")) == before
    assert seen(other.with_name(".other.tmp")) == seen(store)
    assert subprocess.run([*command, "1"], check=False).returncode == 9  # Before the next copy gets its final name.
    assert seen(other.with_name(".other.former")) == before
    copy(store, other)
    assert seen(other) == seen(store)
