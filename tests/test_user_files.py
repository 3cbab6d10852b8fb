"""Files of the user: ragembed never removes, overwrites or uses files that it did not write."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ragembed import Embedder
from ragembed.errors import ConfigError, ModelError, StoreError
from ragembed.indexes import Store
from ragembed.indexes.storage import layout
from ragembed.langchain import RagVectorStore
from tests.conftest import KnownEncoder, record

FOREIGN_STORE = {"store.db": "x", "src/main.py": "code"}
PHOTO = "segments/0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f/photo.jpg"
NAMED_LIKE_OURS = (
    "writer.lock",
    "writer.pid",
    "watcher.lock",
    "watcher.json",
    "store.db-generation",
    "store.db-wal",
    "store.db-shm",
    "store.db-journal",
    ".store.db.new",
    ".store.db.new-wal",
    ".gitignore.1.tmp",
    "work/notes.txt",
    "work/writer.lock",
)
CHECKPOINTS = {"checkpoints/epoch-1.bin": "weights", "notes.txt": "mine"}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def make_store(folder: Path) -> Path:
    with Store.create(folder, KnownEncoder()) as store:
        store.add([record("a", "a text")])
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def copy(store: Path, target: Path) -> None:
    with Store.open(store, KnownEncoder()) as opened:
        opened.copy(target)


# Copies


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        (".target.former", FOREIGN_STORE),
        (".target.tmp", {PHOTO: "mine"}),
        *(("target", {name: "mine"}) for name in ("segments/notes.txt", "segments", ".gitignore", *NAMED_LIKE_OURS)),
    ],
)
def test_copy_keeps_foreign_folders(store: Path, tmp_path: Path, files: dict[str, str], folder: str) -> None:
    before = contents(write(tmp_path / folder, files))
    with pytest.raises(StoreError, match="not part of a ragembed store"):
        copy(store, tmp_path / "target")
    assert contents(tmp_path / folder) == before


@pytest.mark.parametrize("name", ["notes.txt", "embedders/model/config.json", PHOTO])
def test_copy_does_not_replace_a_store_with_foreign_files(store: Path, tmp_path: Path, name: str) -> None:
    target = write(make_store(tmp_path / "target"), {name: "mine"})
    before = contents(target)
    with pytest.raises(StoreError, match="not part of a ragembed store"):
        copy(store, target)
    assert contents(target) == before


def test_copy_does_not_follow_symbolic_links(store: Path, tmp_path: Path) -> None:
    other = make_store(tmp_path / "other")
    (tmp_path / "link").symlink_to(other)
    before = contents(other)
    with pytest.raises(StoreError, match="symbolic link"):
        copy(store, tmp_path / "link")
    assert contents(other) == before


def test_copy_ignores_files_behind_links_in_the_store(store: Path, tmp_path: Path) -> None:
    (tmp_path / "private.txt").write_text("mine")
    segment = next((store / "segments").iterdir())
    (segment / "link").symlink_to(tmp_path / "private.txt")
    with pytest.raises(StoreError, match="as a file of the store"):
        copy(store, tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("name", ["store/copy", "store/work", "."])
def test_copy_is_made_beside_the_store(store: Path, tmp_path: Path, name: str) -> None:
    before = contents(store)
    with pytest.raises(StoreError, match="choose another folder"):
        copy(store, tmp_path / name)
    assert contents(store).keys() == before.keys()


def test_writing_keeps_files_named_like_the_database(store: Path) -> None:
    (store / ".store.db-backup").write_text("mine")
    (store / ".store.db.mine").mkdir()
    with Store.open(store, KnownEncoder()) as opened:
        opened.add([record("b", "another text")])
        opened.optimize()
    assert (store / ".store.db-backup").read_text() == "mine"


def test_verify_keeps_a_foreign_database_and_a_changed_gitignore(cli: Any, store: Path, tmp_path: Path) -> None:
    write(tmp_path / "foreign", FOREIGN_STORE)
    before = contents(tmp_path / "foreign")
    cli("doctor", "--repair", "--store", tmp_path / "foreign", exit_code=2)
    assert contents(tmp_path / "foreign") == before
    (store / ".gitignore").write_text("build/\n")
    cli("doctor", "--repair", "--store", store)
    assert (store / ".gitignore").read_text() == "build/\n"


def test_save_local_keeps_foreign_files(store: Path, tmp_path: Path) -> None:
    write(tmp_path / "saved" / "index", FOREIGN_STORE)
    before = contents(tmp_path / "saved")
    with Store.open(store, KnownEncoder()) as opened, pytest.raises(StoreError, match="not part of a ragembed store"):
        opened.copy(tmp_path / "saved" / "index")
    embeddings: Any = pytest.importorskip("langchain_core.embeddings").DeterministicFakeEmbedding(size=8)
    with pytest.raises(StoreError, match="not part of a ragembed store"):
        RagVectorStore.from_texts(["a text"], embeddings).save_local(tmp_path / "saved")
    assert contents(tmp_path / "saved") == before


# New stores


@pytest.mark.parametrize(
    "files",
    [
        {".gitignore": "*.pyc\n"},
        FOREIGN_STORE,
        {PHOTO: "mine"},
        *({name: "mine"} for name in NAMED_LIKE_OURS[::3]),
        {".gitignore": "*\n", PHOTO.replace("photo.jpg", ".notes"): "mine"},
    ],
    ids=lambda files: next(iter(files)),
)
def test_store_is_created_only_in_a_missing_or_empty_folder(cli: Any, tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path / "docs", {"a.md": "tea is made with hot water"})
    used = write(tmp_path / "used", files)
    before = contents(used)
    with pytest.raises(StoreError, match="not part of a ragembed store"):
        Store.create(used, KnownEncoder())
    refusal = cli("index", tmp_path / "docs", "--store", used, exit_code=2).output
    assert "not part of a ragembed store" in refusal or "not a ragembed database" in refusal
    assert contents(used) == before


@pytest.mark.parametrize(
    ("left", "content"),
    [
        ("store.db-wal", b"\x37\x7f\x06\x82 pages"),
        (".store.db.new-journal", b"\xd9\xd5\x05\xf9 pages"),
        (".store.db.new", b""),
        ("..gitignore.7.tmp", b"*"),
    ],
)
def test_store_with_interrupted_creation_is_created_again(store: Path, left: str, content: bytes) -> None:
    (store / "store.db").unlink()
    (store / left).write_bytes(content)
    shutil.rmtree(store / "segments")
    make_store(store)
    with Store.open(store, KnownEncoder()) as opened:
        assert opened.ids() == ["a"]


@pytest.mark.parametrize("value", ["", "."])
def test_working_directory_does_not_count_as_a_store(cli: Any, in_folder: Path, value: str) -> None:
    write(in_folder, {"a.md": "tea is made with hot water", ".gitignore": "*.pyc\n"})
    before = contents(in_folder)
    cli("index", "a.md", "--store", value, exit_code=2)
    assert contents(in_folder) == before
    with pytest.raises(StoreError):
        Store.create(value, KnownEncoder())


# Stores of other users


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no user ids")
def test_store_of_another_user_must_be_named(
    cli: Any, store: Path, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(store, in_folder.parent / ".ragembed")
    assert layout.choose_store(None) == in_folder.parent / ".ragembed"
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    write(in_folder, {"private.md": "my private text"})
    before = contents(in_folder.parent / ".ragembed")
    for words in (("index", "private.md"), ("query", "text"), ("status",)):
        assert "belongs to another user" in cli(*words, exit_code=2).output
    assert contents(in_folder.parent / ".ragembed") == before
    named = in_folder.parent / ".ragembed"
    assert layout.choose_store(named) == named


# Embedders and trained models


def test_embedder_is_not_saved_over_a_model(tiny_config: Any, tiny_model: Path, tmp_path: Path) -> None:
    embedder = Embedder(tiny_config).fit(["the lock", "the wing of a bird"])
    embedder.save(tmp_path / "saved")
    embedder.save(tmp_path / "saved")
    model = shutil.copytree(tiny_model, tmp_path / "model")
    states = write(tmp_path / "states", {"state.safetensors": "mine"})
    for folder in (model, states):
        before = contents(folder)
        with pytest.raises(ModelError, match="choose another folder"):
            embedder.save(folder)
        assert contents(folder) == before
    with pytest.raises(ModelError, match="expected a folder"):
        embedder.save(states / "state.safetensors")


def test_training_rejects_a_folder_in_use(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from ragembed.papers.training.checkpoints import Checkpoints
    from ragembed.papers.training.outcome import require_folder

    used = write(tmp_path / "used", CHECKPOINTS)
    with pytest.raises(ConfigError):
        require_folder(used)
    with pytest.raises(ConfigError), Checkpoints(used / "checkpoints", 9.0).locked():
        pass
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "checkpoints").symlink_to(used / "checkpoints")
    with pytest.raises(ConfigError), Checkpoints(tmp_path / "out" / "checkpoints", 9.0).locked():
        pass
    assert contents(used) == {name: text.encode() for name, text in CHECKPOINTS.items()}
