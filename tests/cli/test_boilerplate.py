"""Boilerplate in the command line: ``status --boilerplate`` and ``index --boilerplate``."""

import json

import pytest

LICENCE = "# the writer of the store holds the lock\n# a reader of the store is in\n"


@pytest.fixture
def source(in_folder):
    folder = in_folder / "src"
    folder.mkdir()
    for number, word in enumerate(("cat", "dog", "bird", "fish", "zebra", "wing")):
        (folder / f"{word}.py").write_text(f"{LICENCE if number else ''}\n{word} = 'the {word} sleeps'\n")
    return folder


@pytest.fixture
def indexed(source, cli, tiny_model):
    cli("index", source, "--model", tiny_model)
    return source


@pytest.mark.usefixtures("indexed")
def test_status_counts_and_lists_boilerplate(cli):
    assert "boilerplate    2 lines, not searched in 5 chunks\n" in cli("status").stdout
    assert cli("status", "--boilerplate").stdout == (
        "      5 source    # a reader of the store is in\n      5 source    # the writer of the store holds the lock\n"
    )


@pytest.mark.usefixtures("indexed")
def test_boilerplate_status_as_json(cli):
    status = json.loads(cli("status", "--json").stdout)
    assert status["boilerplate"] == {"lines": 2, "chunks": 5, "chunks_of_nothing_else": 0}
    found = json.loads(cli("status", "--boilerplate", "--json").stdout)["boilerplate"]
    assert found[0] == {"kind": "source", "line": "# a reader of the store is in", "files": 5}
    listed = [json.loads(line) for line in cli("status", "--boilerplate", "--format", "jsonl").stdout.splitlines()]
    assert [line["line"] for line in listed] == [line["line"] for line in found]


@pytest.mark.usefixtures("indexed")
def test_boilerplate_option_is_saved(cli):
    assert json.loads(cli("index", "--boilerplate", "keep", "--json").stdout)["encoded"] == 5
    assert json.loads(cli("index", "--json").stdout)["encoded"] == 0
    shown = cli("status").stdout
    assert "boilerplate=keep" in shown
    assert "not searched" not in shown
    assert cli("status", "--boilerplate").stdout == ""
    assert json.loads(cli("index", "--boilerplate", "strip", "--json").stdout)["encoded"] == 5


@pytest.mark.usefixtures("indexed")
def test_status_without_boilerplate(cli, in_folder, tiny_model):
    (in_folder / "one.txt").write_text("the zebra sleeps\n")
    cli("index", in_folder / "one.txt", "--store", in_folder / "other", "--model", tiny_model)
    assert "boilerplate" not in cli("status", "--store", in_folder / "other").stdout
