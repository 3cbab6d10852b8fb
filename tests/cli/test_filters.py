"""Filters on the command line: notes on those that cannot match, and paths as a shell completes them."""

from __future__ import annotations

import json

import pytest

NOTE = "no chunk has the field 'topik': did you mean 'topic'?"


@pytest.fixture
def rows(docs, cli, tiny_model):
    """A folder ``docs`` with rows that have metadata, and its store beside it."""
    (docs / "rows.jsonl").write_text('{"text": "A writer holds the lock.", "topic": "locks", "tags": ["x"]}\n')
    cli("index", docs, "--model", tiny_model)
    return docs


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


@pytest.mark.usefixtures("rows")
def test_notes_on_lists_and_paths(cli):
    shown = cli("query", "lock", "--where", "tags = 'x' OR topic = 'locks'")
    assert "use CONTAINS" in shown.stderr
    missing = cli("query", "lock", "--path", "none", exit_code=1)
    assert missing.stderr.startswith("note: no indexed file has a path like 'none': expected a path relative to")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("./docs/rows.jsonl", {"docs/rows.jsonl"}),
        ("{here}/docs/rows.jsonl", {"docs/rows.jsonl"}),
        ("docs", {"docs/rows.jsonl", "docs/locks.md", "docs/wings.txt"}),
        ("docs/", {"docs/rows.jsonl", "docs/locks.md", "docs/wings.txt"}),
        ("./docs/", {"docs/rows.jsonl", "docs/locks.md", "docs/wings.txt"}),
        (".", {"docs/rows.jsonl", "docs/locks.md", "docs/wings.txt"}),
        ("./docs/*.md", {"docs/locks.md"}),
        ("*.md", {"docs/locks.md"}),
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
