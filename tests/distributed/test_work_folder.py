"""A work folder is used and emptied only if it is ours: other files, and the targets of links, stay as they are."""

import os

import pytest

from ragembed import EmbedderConfig
from ragembed.distributed.backend import index_with_workers
from ragembed.errors import ConfigError, StoreError
from ragembed.indexes import Store
from ragembed.indexes.indexing.request import IndexingRequest
from tests.conftest import KnownEncoder

CONFIG = EmbedderConfig(extractor="re:dim=16")


class InProcess:
    """Runs tasks in this process; is interrupted when it has to begin ``stop_at``."""

    def __init__(self, stop_at=None):
        self._stop_at = stop_at

    def run(self, worker, stage, numbers):
        if stage == self._stop_at:
            raise KeyboardInterrupt
        yield from (worker()(stage, number) for number in numbers)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


@pytest.fixture
def docs(tmp_path):
    (tmp_path / "docs").mkdir()
    for i in range(3):
        (tmp_path / "docs" / f"{i}.md").write_text(f"the lock of store {i} is free\n")
    return tmp_path / "docs"


def index(docs, stop_at=None, work=None):
    request = IndexingRequest(docs.parent / ".ragembed", (docs,), embedder=CONFIG)
    return index_with_workers(request, InProcess(stop_at), work=work)


def tree(folder):
    """Every file and link below a folder, with its content."""
    return {
        str(path.relative_to(folder)): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def notes_in(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("years of work")


def interrupted(docs, work):
    with pytest.raises(KeyboardInterrupt):
        index(docs, "embed", work)


@pytest.mark.parametrize("name", ["read/notes.txt", "read/00000/spool.jsonl", "notes.txt", "plan.json", "fitted/a"])
def test_a_folder_of_other_files_is_refused(docs, name):
    work = docs.parent / "w"
    notes_in(work, name)
    with pytest.raises(
        ConfigError, match=r"w cannot be the work folder: it holds .* no plan.json of .*another with --w"
    ):
        index(docs, work=work)
    assert tree(work) == {name: b"years of work"}
    assert not (docs.parent / ".ragembed").exists()


@pytest.mark.parametrize("name", ["writer.lock", "writer.pid"])
def test_a_lock_of_another_program_is_refused_and_left(docs, name):
    work = docs.parent / "w"
    notes_in(work, name)
    with pytest.raises(ConfigError, match=f"w cannot be the work folder: {name} in it was not written by ragembed"):
        index(docs, work=work)
    assert tree(work) == {name: b"years of work"}


def test_the_command_refuses_a_folder_of_other_files(docs, cli, monkeypatch):
    monkeypatch.chdir(docs.parent)
    notes_in(docs.parent / "w", "read/notes.txt")
    told = cli("index", "docs", "--extractor", "re:dim=16", "--workers", 2, "--work", "w", exit_code=2).stderr
    assert "w cannot be the work folder: it holds read, but no plan.json" in told
    assert tree(docs.parent / "w") == {"read/notes.txt": b"years of work"}


@pytest.mark.skipif(os.name == "nt", reason="links need privileges")
class TestLinks:
    @pytest.mark.parametrize("of_ours", [False, True])
    def test_a_link_is_no_work_folder(self, docs, of_ours):
        project = docs.parent / "project"
        if of_ours:
            interrupted(docs, project)
        notes_in(project, "read/notes.txt", "notes.txt")
        before = tree(project)
        (docs.parent / ".ragembed").mkdir(exist_ok=True)
        (docs.parent / ".ragembed" / "work").symlink_to(project)
        with pytest.raises(ConfigError, match="work cannot be the work folder: it is a symbolic link"):
            index(docs)
        with pytest.raises(StoreError, match=r"'work', which is not part of a ragembed store|already holds a store"):
            Store.create(docs.parent / ".ragembed", KnownEncoder())
        assert tree(project) == before

    @pytest.mark.parametrize(
        "name", ["read", "embed", "plan.json", "writer.lock", "known.jsonl", "fit/00000.safetensors"]
    )
    def test_a_link_in_the_work_folder_is_refused(self, docs, name):
        work, project = docs.parent / "w", docs.parent / "project"
        interrupted(docs, work)
        notes_in(project, "notes.txt")
        (work / "writer.lock").touch()
        (work / name).rename(project / "entry")
        (work / name).symlink_to(project / "entry")
        before = tree(project), tree(work)
        with pytest.raises(ConfigError, match=rf"{name} in it is a symbolic link"):
            index(docs, work=work)
        assert (tree(project), tree(work)) == before


def test_files_of_others_survive_an_interrupted_and_a_finished_run(docs):
    work = docs.parent / "w"
    interrupted(docs, work)
    names = {"notes.txt", "read/notes.txt", "read/00000.txt", "shards/00000.json", "fitted/model.bin", "embed/x/0.txt"}
    notes_in(work, *names)
    interrupted(docs, work)
    assert names < tree(work).keys()
    index(docs, work=work)
    assert tree(work) == dict.fromkeys(names, b"years of work")
    with Store.open(docs.parent / ".ragembed") as store:
        assert len(store) == 3


def test_a_file_in_the_way_of_a_new_plan_is_an_error(docs):
    work = docs.parent / "w"
    interrupted(docs, work)
    notes_in(work, "read/00000/notes.txt")
    (docs / "0.md").write_text("something else")
    with pytest.raises(ConfigError, match="00000 holds files that ragembed did not write: move them away"):
        index(docs, work=work)
    assert (work / "read/00000/notes.txt").read_text() == "years of work"


@pytest.mark.parametrize("was_there", [False, True])
def test_only_a_folder_that_was_there_before_stays(docs, was_there):
    work = docs.parent / "w"
    if was_there:
        work.mkdir()
    index(docs, work=work)
    assert work.exists() == was_there
    assert not was_there or not list(work.iterdir())


def test_a_run_that_was_killed_while_it_planned_is_no_obstacle(docs, monkeypatch):
    from ragembed.distributed import work

    def killed(path, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "replace_file", killed)
    with pytest.raises(KeyboardInterrupt):
        index(docs, work=docs.parent / "w")
    monkeypatch.undo()
    assert (docs.parent / "w" / "plan.json").exists()
    assert index(docs, work=docs.parent / "w").chunks == 3


@pytest.mark.parametrize("name", [".ragembed", ".ragembed/segments"])
def test_a_work_folder_in_the_store_is_refused(docs, name):
    with pytest.raises(ConfigError, match="lies in the store"):
        index(docs, work=docs.parent / name)
    assert not (docs.parent / ".ragembed").exists()
