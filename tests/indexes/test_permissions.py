"""Permissions and location of a store: its folder is private, other modes follow the umask, and it can be moved."""

import os
import shutil
import sqlite3
import stat
import tempfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from ragembed import EmbedderConfig, files, index
from ragembed.documents.discovery import discover
from ragembed.errors import ModelError, StoreError
from ragembed.indexes import Store
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.verification import verify_store
from tests.conftest import KnownEncoder, record

pytestmark = pytest.mark.skipif(os.name == "nt", reason="modes and masks are those of POSIX")

MASKS = [0o022, 0o077, 0o000]


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def wrong_modes(folder, mask):
    """Return the files and folders with an unexpected mode, and that mode."""
    found = {}
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode != (0o775 if path.is_dir() else 0o664) & ~mask:
            found[path.relative_to(folder).as_posix()] = oct(mode)
    return found


def fill(path, embedder):
    """Use every function that writes to a store, and return the modes of its files during the writes."""
    with Store.create(path, embedder) as store:
        for i in range(10):
            store.add([record(f"id{i}", f"the writer holds lock {i} of the store", metadata={"i": i})])
        with store.writer() as writer:
            writer.set_meta({"note": "x" * 100_000})
            written = {entry.name: oct(stat.S_IMODE(entry.stat().st_mode)) for entry in path.iterdir()}
        store.delete(["id1"])
        store.optimize()
    (path / ".gitignore").unlink()
    index = next(path.glob("segments/*/index.faiss"))
    index.write_bytes(b"damaged")
    assert verify_store(path, embedder, repair=True).problems == []
    return written


class Plain(KnownEncoder):
    """An encoder that saves no file, because the mode of such a file is its own responsibility."""

    def save(self, folder):
        pass


@pytest.mark.parametrize("mask", MASKS, ids=oct)
def test_modes_follow_the_umask(tmp_path, mask):
    with umask(mask):
        written = fill(tmp_path / "store", Plain())
    assert {"store.db-wal", "store.db-shm", "writer.lock", "writer.pid", "store.db-generation"} <= written.keys()
    folders = {"segments", "embedders"}
    assert {name: mode for name, mode in written.items() if name not in folders} == dict.fromkeys(
        written.keys() - folders, oct(0o664 & ~mask)
    )
    assert wrong_modes(tmp_path / "store", mask) == {}
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700 & ~mask
    assert len(list((tmp_path / "store").iterdir())) >= 6


def test_only_the_user_can_enter_a_new_store_and_others_if_its_folder_allows_it(tmp_path):
    shared = tmp_path / "shared"
    with umask(0o002):
        shared.mkdir(0o775)
        for path in (tmp_path / "own", shared):
            with Store.create(path, Plain()) as store:
                store.add([record("a", "b")])
                store.copy(tmp_path / f"copy of {path.name}")
                shutil.copytree(path, tmp_path / f"replaced {path.name}")
                store.copy(tmp_path / f"replaced {path.name}")
    modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.iterdir()}
    assert modes == {
        "own": "0o700",
        "copy of own": "0o700",
        "replaced own": "0o700",
        "shared": "0o775",
        "copy of shared": "0o700",
        "replaced shared": "0o775",
    }


def test_the_cache_of_hashes_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    large = tmp_path / "large"
    large.write_bytes(bytes(files._REMEMBERED_BYTES))
    with umask(0):
        files.file_sha256(large)
    assert stat.S_IMODE(files.cache_folder().stat().st_mode) == 0o700


def test_parent_folders_are_not_world_writable(tmp_path):
    with umask(0):
        Store.create(tmp_path / "a" / "b" / "store", Plain()).close()
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o775


@contextmanager
def without_rights():
    """An empty folder of a user that is not root, because root may enter any folder."""
    with tempfile.TemporaryDirectory() as folder:
        user = os.geteuid() or 65534
        os.chown(folder, user, -1)
        before = os.geteuid()
        os.seteuid(user)
        try:
            yield Path(folder)
        finally:
            os.seteuid(before)


def test_folders_without_permission_are_named():
    with without_rights() as folder:
        for name in ("docs", "store"):
            (folder / name).mkdir()
            (folder / name).chmod(0)
        [found] = discover([folder / "docs"])
        assert (found.path, found.skipped, found.unseen) == (
            folder / "docs",
            "cannot be listed: Permission denied",
            True,
        )
        with pytest.raises(StoreError, match=r"cannot open the store .*: you have no permission to enter the folder"):
            Store.open(folder / "store")
        with pytest.raises(StoreError, match="you have no permission to enter the folder"):
            index(store=folder / "store")


@pytest.mark.parametrize("name", ["writer.pid", "store.db-generation"])
def test_symbolic_links_are_not_written_through(tmp_path, name):
    path, victim = tmp_path / "store", tmp_path / "victim"
    victim.write_bytes(b"precious " * 100)
    with Store.create(path, Plain()) as store:
        store.add([record("a", "b")])
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(victim)
    with suppress(StoreError), Store.open(path, Plain()) as store:
        store.add([record("c", "d")])
    assert victim.read_bytes() == b"precious " * 100


# Moving


@pytest.fixture
def beside(in_folder, tiny_model, monkeypatch):
    """A folder with documents, the model and the store."""
    monkeypatch.setattr(fitting, "MIN_FIT", 2)
    folder = in_folder / "project"
    (folder / "docs").mkdir(parents=True)
    for name in ("cat", "dog", "zebra"):
        (folder / "docs" / f"{name}.txt").write_text(f"the {name} sleeps in the store\n")
    model = shutil.copytree(tiny_model, folder / "model")
    config = EmbedderConfig(model=str(model), dtype="float32")
    index_files(IndexingRequest(folder / ".ragembed", (folder / "docs",), embedder=config))
    return folder


def best(store):
    with Store.open(store) as opened:
        return [(hit.source, round(hit.score, 5)) for hit in opened.search("the zebra sleeps", 3)]


def test_store_can_be_moved_with_its_model_and_documents(beside, tmp_path, monkeypatch):
    before = best(beside / ".ragembed")
    moved = beside.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=f"set RAGEMBED_MODEL={moved / 'model'} once if you trust it"):
        best(moved / ".ragembed")
    monkeypatch.setenv("RAGEMBED_MODEL", str(moved / "model"))
    best(moved / ".ragembed")
    monkeypatch.delenv("RAGEMBED_MODEL")
    assert best(moved / ".ragembed") == before
    (moved / "docs" / "bird.txt").write_text("the bird flies\n")
    report = index_files(IndexingRequest(moved / ".ragembed"))
    assert (report.scan.added, report.encoded, report.scan.unchanged) == (["docs/bird.txt"], 1, 3)
    refit_store(moved / ".ragembed", ("normalize",), "shared")
    assert len(best(moved / ".ragembed")) == 3
    assert verify_store(moved / ".ragembed").problems == []
    again = moved.rename(tmp_path / "once more")
    monkeypatch.setenv("RAGEMBED_MODEL", str(again / "model"))
    assert len(best(again / ".ragembed")) == 3


def test_moved_store_uses_the_model_variable(beside, tmp_path, monkeypatch):
    before = best(beside / ".ragembed")
    away = (beside / "model").rename(tmp_path / "the model")
    with pytest.raises(ModelError, match=r"project/model of the store .* does not exist.*set RAGEMBED_MODEL"):
        best(beside / ".ragembed")
    with Store.open(beside / ".ragembed") as store:
        assert store.search("zebra", 1, "lexical")[0].source == "docs/zebra.txt"
        assert store.status()["chunks"] == 3
    monkeypatch.setenv("RAGEMBED_MODEL", str(away))
    assert best(beside / ".ragembed") == before
    assert verify_store(beside / ".ragembed").problems == []


def test_existing_model_takes_precedence_over_the_variable(beside, monkeypatch):
    monkeypatch.setenv("RAGEMBED_MODEL", "/nowhere")
    assert best(beside / ".ragembed")[0][0] == "docs/zebra.txt"


def test_database_has_no_absolute_path_but_the_model(beside):
    index_files(IndexingRequest(beside / ".ragembed"))
    with closing(sqlite3.connect(beside / ".ragembed" / "store.db")) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        values = [
            str(value)
            for table in tables
            if not table.startswith("chunks_fts")
            for row in connection.execute(f"SELECT * FROM {table}")
            for value in row
        ]
    assert len(values) > 40
    place = str(beside)
    found = [value for value in values if place in value.replace(str(beside / "model"), "")]
    assert found == []
    assert any(str(beside / "model") in value for value in values)
    for file in (beside / ".ragembed").glob("embedders/*/*"):
        assert place not in file.read_bytes().decode("latin-1").replace(str(beside / "model"), "")
