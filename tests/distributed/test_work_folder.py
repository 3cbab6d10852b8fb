"""A run uses and empties only its own work folder. Other files and the targets of links are not changed."""

import os

import pytest

from ragembed.distributed.members import create_members, stores_in, update_members
from ragembed.errors import ConfigError, StoreError
from ragembed.indexes import Store
from tests.conftest import KnownEncoder
from tests.distributed.documents import Here, request


@pytest.fixture
def docs(tmp_path):
    (tmp_path / "docs").mkdir()
    for i in range(3):
        (tmp_path / "docs" / f"{i}.md").write_text(f"the lock of store {i} is free\n")
    return tmp_path / "docs"


@pytest.fixture
def work(docs):
    return docs.parent / ".stores.unfinished" / "work"


FOREIGN = (
    "which is not part of a ragembed store: choose another folder for the collection with --store|holds 'work', which"
)


def index(docs, stop_at=None):
    return create_members(request("stores", docs), 2, Here(stop_at=stop_at))


def tree(folder):
    """Return the content of each file and link below a folder."""
    return {
        str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def notes_in(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("years of work")


def interrupted(docs):
    with pytest.raises(KeyboardInterrupt):
        index(docs, "write")


@pytest.mark.parametrize("name", ["read/notes.txt", "read/00000/spool.jsonl", "notes.txt", "plan.json", "common/a"])
def test_folder_with_other_files_is_rejected(docs, work, name):
    notes_in(work, name)
    with pytest.raises(StoreError, match=FOREIGN):
        index(docs)
    assert tree(work) == {name: b"years of work"}
    assert not (docs.parent / "stores").exists()


@pytest.mark.parametrize("name", ["writer.lock", "writer.pid"])
def test_lock_file_of_another_program_is_rejected(docs, work, name):
    notes_in(work, name)
    with pytest.raises(StoreError, match=FOREIGN):
        index(docs)
    assert tree(work) == {name: b"years of work"}


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need privileges on Windows")
class TestLinks:
    def test_symbolic_link_is_rejected_as_work_folder(self, docs, work):
        project = docs.parent / "project"
        notes_in(project, "read/notes.txt", "notes.txt")
        before = tree(project)
        for store in (work.parent, docs.parent / ".ragembed"):
            store.mkdir()
            (store / "work").symlink_to(project)
        with pytest.raises(StoreError, match=FOREIGN):
            index(docs)
        with pytest.raises(StoreError, match=r"'work', which is not part of a ragembed store|already holds a store"):
            Store.create(docs.parent / ".ragembed", KnownEncoder())
        assert tree(project) == before

    @pytest.mark.parametrize("name", ["read", "write", "plan.json", "writer.lock", "read/00000/fit.safetensors"])
    def test_symbolic_link_in_the_work_folder_is_rejected(self, docs, work, name):
        project = docs.parent / "project"
        interrupted(docs)
        notes_in(project, "notes.txt")
        (work / "writer.lock").touch()
        (work / name).rename(project / "entry")
        (work / name).symlink_to(project / "entry")
        before = tree(project), tree(work)
        with pytest.raises(StoreError, match=FOREIGN):
            index(docs)
        assert (tree(project), tree(work)) == before


def test_conflicting_file_is_an_error(docs, work):
    interrupted(docs)
    notes_in(work, "read/00000/notes.txt")
    (docs / "0.md").write_text("something else")
    with pytest.raises(ConfigError, match="00000 holds files that ragembed did not write: move them away"):
        index(docs)
    assert (work / "read/00000/notes.txt").read_text() == "years of work"


def test_other_files_survive_a_run(docs):
    index(docs)
    first = docs.parent / "stores" / "1"
    notes_in(first, "work/notes.txt")
    with pytest.raises(ConfigError, match=r"work cannot be the work folder: it holds notes.txt, but no plan.json"):
        update_members(request("stores", docs), list(stores_in(docs.parent / "stores").values()), Here())
    assert (first / "work" / "notes.txt").read_text() == "years of work"


def test_run_continues_after_a_kill_during_planning(docs, monkeypatch):
    from ragembed.distributed import tasks

    def killed(path, data):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tasks, "replace_file", killed)
        with pytest.raises(KeyboardInterrupt):
            index(docs)
    assert index(docs).chunks == 3
