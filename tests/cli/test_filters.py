"""Filters on the command line: notes on those that cannot match, and paths as a shell completes them."""

from __future__ import annotations

import json

import pytest

NOTE = "no chunk has the field 'topik': did you mean 'topic'?"


def write_rows(docs):
    (docs / "rows.jsonl").write_text('{"text": "A writer holds the lock.", "topic": "locks"}\n')


@pytest.fixture
def rows(indexed_with):
    """A folder ``docs`` with rows that have metadata, and its store beside it."""
    return indexed_with(write_rows)


@pytest.mark.usefixtures("rows")
def test_notes_are_printed_and_part_of_json(cli):
    unknown = ("--where", "topik = 'locks'")
    for command in (("query", "lock"), ("context", "lock"), ("delete",)):
        shown = cli(*command, *unknown, exit_code=1)
        assert f"note: {NOTE}\n" in shown.stderr
        assert json.loads(cli(*command, *unknown, "--json", exit_code=1).stdout)["notes"] == [NOTE]
        known = cli(*command, "--where", "topic = 'locks'", "--json")
        assert "notes" not in json.loads(known.stdout)
        assert "note: no chunk" not in known.stderr


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("{here}/docs/rows.jsonl", {"docs/rows.jsonl"}),
        ("docs", {"docs/rows.jsonl", "docs/locks.md", "docs/wings.txt"}),
        (".", {"docs/rows.jsonl", "docs/locks.md", "docs/wings.txt"}),
    ],
)
@pytest.mark.usefixtures("rows")
def test_paths_as_a_shell_completes_them(cli, in_folder, path, found):
    result = cli("query", "lock", "--path", path.format(here=in_folder), "--json")
    assert {each["path"] for each in json.loads(result.stdout)["results"]} == found
    assert "note: no indexed file" not in result.stderr


def test_dots_refer_to_the_working_directory(rows, cli, monkeypatch):
    monkeypatch.chdir(rows)
    for path in ("./locks.md", "../docs/locks.md", "docs/locks.md"):
        results = json.loads(cli("query", "lock", "--path", path, "--json").stdout)["results"]
        assert {each["path"] for each in results} == {"locks.md"}


@pytest.mark.usefixtures("rows")
def test_errors_name_the_option_that_the_user_wrote(cli):
    for command in (("query", "lock"), ("context", "lock"), ("delete",)):
        error = cli(*command, "--where", "path IS", exit_code=2).stderr
        assert error.startswith("Error: --where: expected NULL after IS at character 8")
