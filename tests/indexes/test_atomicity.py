"""Every write is atomic: interrupted at any step by an exception, a full disk or the death of the process.

The steps are those before and after every fsync, rename, removal, transaction and checkpoint. After each, the store is
in the state before or after the write, nothing is damaged, and the write can be repeated.
"""

import errno
import functools
import gc
import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ragembed.errors import StoreDamagedError, StoreError
from ragembed.indexes import Store
from ragembed.indexes.faiss_index import choose
from ragembed.indexes.faiss_index.records import IndexConfig
from ragembed.indexes.storage import catalog, compaction, upkeep
from ragembed.indexes.storage.segments import Segment
from ragembed.indexes.storage.transactions import Database
from tests.conftest import KnownEncoder, record

SQL = ("BEGIN IMMEDIATE", "COMMIT", "PRAGMA wal_checkpoint", "VACUUM", "INSERT INTO chunks_fts (chunks_fts, rank)")
DIED, REFUSED = 7, 3


class Shifted(KnownEncoder):
    """The known encoder with another post-processor: other vectors from the same raw vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.fingerprint = "5" * 32

    def postprocess_documents(self, raw):
        return raw + np.linspace(-1, 1, self.dim, dtype=np.float32)

    def encode_queries(self, texts):
        return self.postprocess_documents(self.raw_documents(texts))


def opened(path: Path) -> Store:
    with Store.open(path) as store:
        fingerprint = store.status()["embedder"]["fingerprint"]
    return Store.open(path, Shifted() if fingerprint == "5" * 32 else KnownEncoder())


def add(path: Path) -> None:
    with opened(path) as store:
        store.add([record(f"new{i}", f"new text {i}", title="New") for i in range(3)])


def upsert(path: Path) -> None:
    with opened(path) as store:
        store.add([record("id1", "another text 1"), record("id5", "text number 6", metadata={"twice": True})])


def delete(path: Path) -> None:
    with opened(path) as store:
        store.delete(["id1", "id2", "id12"])


def delete_by_filter(path: Path) -> None:
    with opened(path) as store:
        store.delete(where="i >= 9")


def optimize(path: Path) -> None:
    with opened(path) as store:
        store.optimize()


def adopt(path: Path) -> None:
    with opened(path) as store, store.writer() as writer:
        writer.adopt(Shifted())


def another_index(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, opened(path) as store:
        patch.setattr(choose, "LEAST_ASKED", 4)
        patch.setattr(upkeep, "QUERIES_PER_CHECK", 10)
        store.optimize(index=IndexConfig("ivf-sq8"))


OPERATIONS = (add, upsert, delete, delete_by_filter, optimize, adopt, another_index)


MANY = (upsert, delete_by_filter, optimize, adopt, another_index)
"""Those with very many moments."""
STEPS = pytest.mark.parametrize("step", [31, pytest.param(1, marks=pytest.mark.slow)])
"""How many moments lie between those that are tried: all of them take minutes."""


def make(path: Path) -> Path:
    """A store of 14 chunks in three segments with unused rows and unused database pages."""
    with Store.create(path, KnownEncoder()) as store:
        store.add([record("long", "word " * 4000)])
        store.add([record(f"id{i}", f"text number {i}", metadata={"i": i}) for i in range(8)])
        store.add([record(f"id{i}", f"text number {i}", metadata={"i": i}) for i in range(8, 16)])
        store.delete(["long", "id3", "id11"])
    return path


def state(path: Path) -> object:
    """Return the visible contents of a store: its chunks, its index, and the results of some queries."""
    with opened(path) as store:
        answers = [
            [(hit.id, round(hit.score, 5)) for hit in store.search(text, 9, mode)]
            for text in ("text number 6", "new")
            for mode in ("dense", "hybrid")
        ]
        status, choice, check = store.status(), store.index_choice(), store.index_check()
        assert (choice is None) == (check is None)
        if choice is not None and check is not None:
            assert check.segments == tuple(segment["folder"] for segment in status["segments"])
            assert {segment["kind"] for segment in status["segments"]} == {choice.kind}
        return list(store.chunks()), status["embedder"]["fingerprint"], store.wanted_index, choice, answers


def assert_sound(path: Path) -> None:
    with opened(path) as store:
        assert store.verify().problems == []


# Interruptions


@contextmanager
def watched(moment: Callable[[str], None]) -> Iterator[None]:
    """Call ``moment`` with a name that contains ``before`` or ``after`` whenever something reaches the disk."""

    def around(name, original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            moment(f"before {name}")
            result = original(*args, **kwargs)
            moment(f"after {name}")
            return result

        return call

    def connect(*args, factory=sqlite3.Connection, **settings):
        class Watched(factory):
            def execute(self, sql, *args):
                return (around(sql, super().execute) if sql.startswith(SQL) else super().execute)(sql, *args)

        return original(*args, factory=Watched, **settings)

    original = sqlite3.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        for holder, name in (
            (os, "fsync"),
            (Path, "rename"),
            (Path, "replace"),
            (shutil, "rmtree"),
        ):
            patch.setattr(holder, name, around(name, getattr(holder, name)))
        yield


def moments(operation: Callable[[Path], None], path: Path) -> list[str]:
    """Return the names of all steps of an operation on the store at ``path``."""
    names: list[str] = []
    with watched(names.append):
        operation(path)
    return names


def run_until(nth: int, act: Callable[[str], None], operation: Callable[[Path], None], path: Path) -> None:
    """Run the operation, and call ``act`` at its n-th step, from 0."""
    left = nth

    def moment(name: str) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            act(name)

    with watched(moment):
        operation(path)


def check(path: Path, operation: Callable[[Path], None], states: tuple[object, object]) -> None:
    assert state(path) in states
    assert_sound(path)
    operation(path)
    assert state(path) == states[1]
    assert_sound(path)
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return make(tmp_path_factory.mktemp("atomicity") / "store")


@pytest.fixture(scope="module")
def states(template):
    """The states before and after each operation."""
    found = {}
    for operation in OPERATIONS:
        path = shutil.copytree(template, template.with_name(operation.__name__))
        operation(path)
        found[operation] = (state(template), state(path))
    return found


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


def interrupt(name: str) -> None:
    raise Interrupted


def disk_is_full(name: str) -> None:
    if any(sql in name for sql in SQL):
        raise sqlite3.OperationalError("database or disk is full")
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_change_the_store_in_many_steps(operation, template, states, tmp_path):
    before, after = states[operation]
    assert (before == after) is (operation is optimize)
    names = moments(operation, shutil.copytree(template, tmp_path / "s"))
    assert len(names) >= (6 if operation is delete else 20)
    for kind in ("COMMIT", "wal_checkpoint(TRUNCATE)", *(() if operation is delete else ("fsync",))):
        assert any(kind in name for name in names), kind
    assert operation not in (optimize, adopt, another_index) or {"before rmtree", "after replace"} <= set(names)
    assert operation is not optimize or "after VACUUM" in names


@STEPS
@pytest.mark.parametrize("operation", OPERATIONS)
def test_exception_at_any_step_is_atomic(operation, step, template, states, tmp_path):
    names = moments(operation, shutil.copytree(template, tmp_path / "count"))
    for nth, name in enumerate(names):
        if nth % step and "TRUNCATE" not in name:
            continue
        path = shutil.copytree(template, tmp_path / f"s{nth}")
        with pytest.raises(Interrupted):
            run_until(nth, interrupt, operation, path)
        check(path, operation, states[operation])


@STEPS
@pytest.mark.parametrize("operation", OPERATIONS)
def test_full_disk_at_any_step_is_atomic(operation, step, template, states, tmp_path):
    names = moments(operation, shutil.copytree(template, tmp_path / "count"))
    possible = [nth for nth, name in enumerate(names) if name.startswith("before") and "rmtree" not in name]
    for nth in possible[::step]:
        path = shutil.copytree(template, tmp_path / f"s{nth}")
        try:
            run_until(nth, disk_is_full, operation, path)
        except StoreError as error:
            assert "its last committed state is intact" in str(error)  # noqa: PT017  not every step raises
        check(path, operation, states[operation])


def die_at_moments(template: str, folder: str, step: str) -> None:
    """For each operation and step, let a child process die there, on a copy of ``template``; runs in a new process."""
    for operation in OPERATIONS:
        for nth in itertools.count(step=int(step) if operation in MANY else max(1, int(step) // 10)):
            path = Path(folder) / f"{operation.__name__}-{nth}"
            child = os.fork()
            if child == 0:
                run_until(nth, lambda name: os._exit(DIED), operation, Path(shutil.copytree(template, path)))
                os._exit(0)
            _, status = os.waitpid(child, 0)
            if os.waitstatus_to_exitcode(status) == 0:
                break
            assert os.waitstatus_to_exitcode(status) == DIED


def in_fresh_process(function: str, *args: object) -> str:
    """Run a function of this module in a process in which no library has started threads."""
    # At the end of sys.path, so that the folder ragembed/ beside tests/ does not hide the installed package.
    script = "import runpy, sys; sys.path.append(sys.argv[1]); runpy.run_path(sys.argv[2])[sys.argv[3]](*sys.argv[4:])"
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", script, str(root), __file__, function, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@STEPS
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_process_death_at_any_step_is_atomic(step, template, states, tmp_path):
    in_fresh_process("die_at_moments", template, tmp_path, step)
    for operation in OPERATIONS:
        paths = sorted(tmp_path.glob(f"{operation.__name__}-*"))
        assert len(paths) >= 2
        for path in paths:
            check(path, operation, states[operation])


def create(path: Path) -> None:
    Store.create(path, KnownEncoder()).close()


def create_with_limits(folder: str) -> None:
    """Create stores with several limits on the size of their files; print the outcomes."""
    import resource

    for limit in (0, 1, 600, 10_000, 60_000, 10_000_000):
        path = Path(folder) / str(limit)
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                create(path)
            except StoreError:
                os._exit(REFUSED)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(limit, os.waitstatus_to_exitcode(status))  # noqa: T201  read by the test


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork and limits of file sizes")
def test_failed_creation_can_be_repeated(tmp_path):
    ended = [line.split() for line in in_fresh_process("create_with_limits", tmp_path).splitlines()]
    for limit, code in ended:
        path = tmp_path / limit
        if code != "0":
            create(path)
        with opened(path) as store:
            store.add([record("a", "b")])
        assert_sound(path)
    assert {code for _, code in ended} == {str(REFUSED), "0"}


# Writes of several transactions


def test_interrupted_optimize_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(compaction, "_MERGED_ROWS", 8)
    path = tmp_path / "s"
    with Store.create(path, KnownEncoder()) as store:
        for start in range(0, 24, 4):
            store.add([record(f"id{i}", f"text {i}") for i in range(start, start + 4)])
        assert len(store.status()["segments"]) == 6
    original, groups = compaction.rewrite, []

    def cut_off(store, connection, records, *rest):
        if len(groups) == 1:
            raise Interrupted
        groups.append(records)
        return original(store, connection, records, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "rewrite", cut_off)
        with pytest.raises(Interrupted):
            optimize(path)
    with opened(path) as store:
        assert [segment["rows"] for segment in store.status()["segments"]] == [4, 4, 4, 4, 8]
    optimize(path)
    with opened(path) as store:
        assert sorted(segment["rows"] for segment in store.status()["segments"]) == [8, 8, 8]
    assert_sound(path)


@pytest.mark.parametrize("error", [Interrupted, StoreDamagedError])
def test_database_error_during_a_write_does_no_damage(error, template, tmp_path, monkeypatch):
    path = shutil.copytree(template, tmp_path / "s")

    def fail(segment: Segment) -> None:
        raise error("while rows are still to be read")

    def write() -> None:
        with opened(path) as store, store.writer() as writer:
            writer.set_meta({"note": 1})
            connection = writer._connection
            for _ in compaction.live_raw(path, connection, catalog.segments(connection)):
                pass

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "_MERGED_ROWS", 2)
        patch.setattr(Segment, "raw", fail)
        with pytest.raises(error, match="still to be read"):
            write()
    gc.collect()
    assert_sound(path)


def test_reader_closing_during_the_last_checkpoint_does_no_damage(template, tmp_path, monkeypatch):
    """A reader blocks the writer's last checkpoint, and closes before the writer's connection does."""
    path = shutil.copytree(template, tmp_path / "s")
    reader = Store.open(path, KnownEncoder())
    pinned = reader.snapshot()
    snapshot = pinned.__enter__()
    assert snapshot.connection.execute("SELECT count(*) FROM chunks").fetchone()[0] == 14
    original = Database.checkpoint
    left = []

    def leave(*args, **settings):
        result = original(*args, **settings)
        if not left:
            pinned.__exit__(None, None, None)
            reader.close()
        left.append(True)
        return result

    with opened(path) as store:
        monkeypatch.setattr(Database, "checkpoint", leave)
        with store.writer() as writer:
            store.close()
            writer.stage(["new text"])
            writer.commit(chunks=[record("new", "new text")])
            store.close()
        monkeypatch.undo()
    assert len(left) > 0
    assert_sound(path)
    add(path)
    assert_sound(path)


def test_concurrent_readers_and_writer(template, tmp_path):
    path = shutil.copytree(template, tmp_path / "s")
    errors: list[BaseException] = []
    done = threading.Event()
    answered = [0] * 4

    def read(number: int) -> None:
        draw = np.random.default_rng(number)
        try:
            with Store.open(path, KnownEncoder()) as store:
                while not done.is_set():
                    mode = ("dense", "hybrid", "lexical")[draw.integers(3)]
                    where = (None, "i >= 4", {"kind": "new"})[draw.integers(3)]
                    for hit in store.search(f"text number {draw.integers(20)}", 5, mode, where=where):
                        assert where != "i >= 4" or hit.chunk.metadata["i"] >= 4
                    found = store.get([f"pair{n}{side}" for n in range(3) for side in "ab"])
                    assert len(found) % 2 == 0  # Both chunks of a pair are added and deleted together.
                    if draw.integers(10) == 0:
                        store.close()
                    elif draw.integers(10) == 0:
                        assert store.status()["chunks"] >= 14
                    answered[number] += 1
        except BaseException as error:  # noqa: BLE001  told to the test below
            errors.append(error)

    readers = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in readers:
        thread.start()
    try:
        with Store.open(path, KnownEncoder()) as store:
            for turn in range(12):
                pair = [
                    record(f"pair{turn % 3}{side}", f"pair {turn} {side}", metadata={"kind": "new"}) for side in "ab"
                ]
                store.add(pair)
                if turn % 4 == 3:
                    store.delete(where={"kind": "new"})
                if turn % 8 == 7:
                    store.optimize()
    finally:
        done.set()
        for thread in readers:
            thread.join()
    assert errors == []
    assert min(answered) > 0
    assert_sound(path)
