"""``ragembed index`` with workers."""

import json
import sys

import pytest


@pytest.fixture
def five(in_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))  # the file of collections
    (in_folder / "docs").mkdir()
    for i in range(5):
        (in_folder / "docs" / f"{i}.md").write_text(f"the lock of store {i} is free\n")
    return in_folder


@pytest.mark.skipif(sys.platform == "win32", reason="slow to begin processes")
def test_workers_write_the_stores_of_a_collection(five, cli):
    """The collection has the name of the working directory, and later runs know its paths and options."""
    done = cli("index", "docs", "--extractor", "re:dim=16", "--workers", 2, "--json")
    name = five.name
    stages = json.loads(done.stdout)["stages"]
    found = [(stage["stage"], stage["tasks"], stage["items"]) for stage in stages]
    assert found == [("read", 2, 5), ("write", 2, 5), ("finish", 2, 5)]
    assert f"{name}: 2 stores in .ragembed-{name}; search them with 'ragembed query --in {name} QUERY'" in done.stderr
    assert sorted(path.name for path in (five / f".ragembed-{name}").iterdir()) == ["1", "2"]
    assert len(json.loads(cli("query", "lock of store", "--in", name, "--json").stdout)["results"]) == 5
    (five / "docs" / "5.md").write_text("the lock of store 5 is free\n")
    one = cli("index", "--store", f".ragembed-{name}/1", exit_code=2).stderr
    assert "update them together with 'ragembed index --collection NAME'" in one
    for options in (["--workers", 2], ["--collection", name]):
        report = json.loads(cli("index", *options, "--json").stdout)
        assert (report["chunks"], report["unchanged"] + len(report["added"])) == (6, 6)


def test_a_store_of_one_process_is_not_made_twice(five, cli):
    cli("index", "docs", "--extractor", "re:dim=16")
    for options in ([], ["--store", ".ragembed"]):
        message = cli("index", "docs", *options, "--workers", 2, exit_code=2).stderr
        assert ".ragembed is a store that one process writes: update it without --workers" in message
    assert json.loads(cli("index", "--json").stdout)["unchanged"] == 5


def test_collections_in_two_folders_with_one_name_are_kept_apart(five, cli, monkeypatch):
    cli("index", "docs", "--extractor", "re:dim=16", "--workers", 1)
    other = five / "other" / five.name
    other.mkdir(parents=True)
    monkeypatch.chdir(other)
    assert "choose another name with --collection" in cli("index", "../../docs", "--workers", 1, exit_code=2).stderr
    monkeypatch.chdir(five)
    (five / "a b").mkdir()
    monkeypatch.chdir(five / "a b")
    message = cli("index", "../docs", "--workers", 1, exit_code=2).stderr
    assert "choose the name of the collection with --collection: 'a b' is not a name" in message


def test_dry_run_needs_no_workers(five, cli):
    assert "5 chunks to process" in cli("index", "docs", "--extractor", "re:dim=16", "--workers", 2, "--dry-run").stderr
    assert [path.name for path in five.iterdir() if path.name.startswith(".ragembed")] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--address", "auto"), "--address and --num-gpus apply only to Ray: add --engine ray"),
        (("--engine", "processes"), "--engine processes applies only to worker processes: add --workers N"),
        (("--workers", "0"), "0 is not in the range x>=1"),
        (("--collection", "big"), "needs --workers N"),
    ],
)
def test_conflicting_worker_options_are_errors(five, cli, options, message):
    assert message in cli("index", "docs", *options, exit_code=2).stderr
    assert not (five / ".ragembed").exists()
