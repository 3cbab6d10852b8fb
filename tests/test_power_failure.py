"""A power failure, a kill, an error of the disk or a full disk at each change that a command makes to the disk.

The slow tests try each state that a power failure can leave; the others some of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from ragembed.cli import ERROR_EXIT, main
from ragembed.indexes import Store
from ragembed.indexes.storage.layout import is_store
from tests.disk import Faults, Survives, build_library, run, states
from tests.slow.helpers import INDEX, Cli, Content, content, edited, leftovers, make_corpus, scaled, write_corpus

pytestmark = pytest.mark.usefixtures("needs_minilm")

SLOW = pytest.mark.slow
CLI = "from ragembed.cli import main; main(prog_name='ragembed')"
COPY = "from ragembed.indexes import Store; Store.open('.ragembed').copy('copy')"
CORPUS = make_corpus(0, 4, 30)


@dataclass(frozen=True)
class Command:
    """Python code that changes the store ``store``, and what that holds before and after it."""

    code: str
    arguments: Sequence[str]
    store: str
    before: Content
    after: Content


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("library"))


def first_index(cli: Cli) -> Command:
    write_corpus(cli.folder, CORPUS)
    return Command(CLI, INDEX, ".ragembed", {}, indexed(cli.folder.with_name("clean")))


def update(cli: Cli) -> Command:
    before = indexed(cli.folder)
    write_corpus(cli.folder, edited(CORPUS), CORPUS)
    return Command(CLI, INDEX, ".ragembed", before, indexed(cli.folder.with_name("clean"), edited(CORPUS)))


def copy(cli: Cli) -> Command:
    return Command(COPY, (), "copy", {}, indexed(cli.folder))


def copy_over_a_copy(cli: Cli) -> Command:
    before = indexed(cli.folder)
    with Store.open(cli.store) as store:
        store.copy(cli.folder / "copy")
    write_corpus(cli.folder, edited(CORPUS), CORPUS)
    cli.must(*INDEX)
    return Command(COPY, (), "copy", before, content(cli.store))


def indexed(folder: Path, corpus: Mapping[str, str] = CORPUS) -> Content:
    folder.mkdir(exist_ok=True)
    write_corpus(folder, corpus)
    Cli(folder).must(*INDEX)
    return content(folder / ".ragembed")


@pytest.mark.parametrize(
    ("prepare", "tried"),
    [
        (first_index, 2),
        *(pytest.param(each, None, marks=SLOW) for each in (first_index, update, copy, copy_over_a_copy)),
    ],
)
def test_after_a_power_failure_the_last_commit_is_there_and_the_next_run_finishes(
    prepare, tried, library, tmp_path, monkeypatch
):
    cli = Cli(tmp_path / "work")
    cli.folder.mkdir()
    command = prepare(cli)
    before = shutil.copytree(cli.folder, tmp_path / "before")
    done = run(library, cli.folder, tmp_path / "log", command.code, command.arguments)
    assert done.returncode == 0, done.stderr
    found = list(states(before, cli.folder, tmp_path / "log"))
    assert len(found) > (60 if prepare in (first_index, update) else 15)
    last = [state for state in found if state.survives is Survives.NOTHING][-1]
    for state in [*some(found, tried), last]:
        folder = tmp_path / "after"
        state.write(folder)
        monkeypatch.chdir(folder)
        check(command, folder, state.generation, finished=state is last)
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(folder)


@SLOW
@pytest.mark.parametrize(
    ("kind", "tried"),
    [("kill", scaled(20)), ("EIO", scaled(20)), ("ENOSPC", scaled(20))],
)
def test_a_first_index_that_fails_at_a_change_can_be_repeated(kind, tried, library, tmp_path, monkeypatch):
    cli = Cli(tmp_path / "work")
    cli.folder.mkdir()
    command = first_index(cli)
    before = shutil.copytree(cli.folder, tmp_path / "before")
    shutil.copytree(before, tmp_path / "whole")
    assert run(library, tmp_path / "whole", tmp_path / "log", command.code, command.arguments).returncode == 0
    lines = (tmp_path / "log" / "log").read_text(encoding="utf-8").splitlines()
    number = next(nth for nth, line in enumerate(lines, 1) if line.startswith("create") and "-generation" in line)
    changes = range(1, len(lines) + 1)
    for nth in sorted({*some(changes, tried), number, number + 1}):
        folder, log = tmp_path / f"run-{nth}", tmp_path / f"log-{nth}"
        shutil.copytree(before, folder)
        done = run(library, folder, log, command.code, command.arguments, Faults(kind, nth))
        assert done.returncode in ((-9,) if kind == "kill" else (0, ERROR_EXIT)), (nth, done.stderr)
        assert "Traceback" not in done.stderr
        assert (done.stderr.count("Error: ") == 1) is (done.returncode == ERROR_EXIT), (nth, done.stderr)
        monkeypatch.chdir(folder)
        check(command, folder, 0, finished=done.returncode == 0)
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(folder)
        shutil.rmtree(log)


def some(found: Sequence, tried: int | None) -> Sequence:
    """Return all if ``tried`` is None, else as many, spread evenly; the middle one of each part."""
    if tried is None or tried >= len(found):
        return found
    return [found[(2 * i + 1) * len(found) // (2 * tried)] for i in range(tried)]


def check(command: Command, folder: Path, generation: int, *, finished: bool) -> None:
    """The store in the working directory ``folder`` is in the state of its last commit, and works."""
    store = folder / command.store
    if is_store(store):
        found = content(store)
        if command.code == CLI:
            names = command.before.keys() | command.after.keys() | found.keys()
            assert all(found.get(name) in (command.before.get(name), command.after.get(name)) for name in names)
        else:
            assert found in (command.before, command.after)
        with Store.open(store) as opened:
            assert opened.status()["generation"] >= generation
            has_vectors = opened.status()["vectors"] > 0  # words alone may not match
        must("query", "ba de fi", "--store", store, exits=0 if any(found.values()) and has_vectors else 1)
        must("doctor", "--integrity", "--store", store)
    else:
        found = {}
        assert command.store == "copy" or not command.before
    assert found == command.after or not finished
    if command.code == CLI:
        must(*INDEX)
    else:
        with Store.open(".ragembed") as source:
            source.copy(store)
    assert content(store) == command.after
    must("query", "ba de fi", "--store", store)
    must("doctor", "--integrity", "--store", store)
    assert leftovers(store) == []
    assert {entry.name for entry in folder.iterdir()} <= {"docs", ".ragembed", "copy"}


def must(*arguments: object, exits: int = 0) -> None:
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == exits, (arguments, result.output, result.exception)


SAVING = """
from pathlib import Path
from ragembed import Embedder, EmbedderConfig
from ragembed.config.settings_files import confirm_model
from ragembed.files import make_folders
from ragembed.indexes.storage.folders import WorkFolder
confirm_model("models/mine")
Embedder(EmbedderConfig(extractor="re:dim=32", postprocess=())).fit(["tea"]).save("saved/embedder")
make_folders(Path("work"))
WorkFolder(Path("work")).write_plan({"shards": 1})
"""


def test_what_later_commands_need_is_on_the_disk_when_it_is_saved(library, tmp_path, monkeypatch):
    folder, before, log = tmp_path / "work", tmp_path / "before", tmp_path / "log"
    folder.mkdir()
    before.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config" / "mine"))
    done = run(library, folder, log, SAVING)
    assert done.returncode == 0, done.stderr
    last = [state for state in states(before, folder, log) if state.survives is Survives.NOTHING][-1]
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    assert last.files == {name: None if path.is_dir() else path.read_bytes() for name, path in found.items()}
    assert {"config/mine/ragembed/models", "saved/embedder/config.json", "work/plan.json"} <= found.keys()
