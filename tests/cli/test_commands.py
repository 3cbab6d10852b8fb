"""The commands: streams, formats, exit statuses and messages."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest

from ragembed.cli import COMMANDS, main
from ragembed.cli.output import shown_path
from ragembed.documents.chunking import Chunker
from ragembed.indexes import Store
from ragembed.version import __version__, install_command

SUMMARY = (
    r"files: (\d+) added, (\d+) changed, (\d+) removed, (\d+) unchanged, (\d+) skipped; ([\d,]+) chunks, "
    r"([\d,]+) embedded(?: on [^;]+)?; \d+\.\d s"
)


def summary(result):
    match = re.fullmatch(SUMMARY, result.stderr.strip().split("\n")[-1])
    assert match, result.stderr
    return [int(number) for number in match.groups()]


def test_index_prints_summary_on_stderr(docs, cli, tiny_model):
    first = cli("index", docs, "--model", tiny_model)
    assert first.stdout == ""
    assert summary(first)[:5] == [2, 0, 0, 0, 0]
    again = cli("index", docs)
    assert summary(again)[:5] == [0, 0, 0, 2, 0]
    assert summary(again)[6] == 0
    assert cli("index", docs, "-q").output == ""


def test_index_lists_skipped_files_with_reasons(docs, cli, tiny_model):
    (docs / "a.bin").write_bytes(b"\0\1\2")
    (docs / "b.pdf").write_bytes(b"%PDF-1.4 broken")
    first = cli("index", docs, "--model", tiny_model)
    counts = "skipped 1 broken pdf file, 1 program (-v, or ragembed status --skipped, names them)"
    assert [line for line in first.stderr.split("\n") if line.startswith("skipped")] == [counts]
    result = cli("index", docs, "-v")
    assert "skipped docs/a.bin: bin: a program or compiled code" in result.stderr
    assert re.search(r"skipped docs/b\.pdf: .*PDF", result.stderr)
    assert summary(result)[4] == 2
    assert "docs/a.bin: bin: a program or compiled code" in cli("status", "--skipped").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["index"], "nothing to index: give a file or folder"),
        (["index", "missing"], "missing does not exist"),
        (["index", "docs", "--preset", "nope"], "unknown preset 'nope': expected one of minilm"),
        (["index", "docs", "--model", "no/such"], "the model 'no/such' is not on this machine"),
        (["index", "docs", "--chunk-tokens", "100000", "--model", "MODEL"], "do not fit the model, which takes 62"),
        (["query", "anything"], "no store at"),
        (["query", "  "], "the query is empty"),
        (["index", ""], "the path is empty"),
        (["query", "x", "--mode", "fuzzy"], "'fuzzy' is not one of"),
        (["status"], "ragembed index PATH"),
        (["delete"], "nothing to delete: give a file or folder, or --id, --path, --match or --where"),
        (["chunks", "missing"], "does not exist"),
        (["nonsense"], "unknown command 'nonsense': expected one of index, query"),
        (["qeury", "x"], "unknown command 'qeury': did you mean 'query'?"),
        (["why-not", "x", "a.md"], "'why-not' is no command: run 'ragembed query QUERY --why FILE'"),
        (["papers", "evl"], "unknown command 'evl': did you mean 'eval'?"),
    ],
)
@pytest.mark.usefixtures("docs")
def test_errors_print_one_message_and_exit_with_2(args, message, cli, tiny_model):
    result = cli(*[str(tiny_model) if arg == "MODEL" else arg for arg in args], exit_code=2)
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("indexed")
def test_query_prints_place_heading_score_and_snippet(cli):
    lines = cli("query", "which lock does the writer hold", "-k", "1", "--mode", "lexical").stdout.split("\n")
    assert re.fullmatch(r"docs/locks\.md:1-\d+  Locks  \(-?\d+\.\d{3}\)", lines[0]), lines[0]
    assert any("The writer holds the lock of the store." in line for line in lines[1:])
    assert "\033" not in "".join(lines)


@pytest.mark.usefixtures("indexed")
def test_a_query_needs_no_quotes(cli):
    expected = cli("query", "writer holds lock", "-k", "1").stdout
    for name in ("query", "search", "find"):
        assert cli(name, "writer", "holds", "lock", "-k", "1").stdout == expected
    assert cli("context", "writer", "lock").stdout == cli("context", "writer lock").stdout


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (("help",), ("--help",)),
        (("help", "query"), ("query", "--help")),
        (("version",), ("--version",)),
        (("ls", "docs"), ("files", "docs")),
        (("info",), ("status",)),
        (("get", "docs/locks.md"), ("chunks", "docs/locks.md")),
        (("rm", "docs/locks.md", "--dry-run"), ("delete", "docs/locks.md", "--dry-run")),
        (("collection", "ls"), ("collection", "list")),
    ],
)
@pytest.mark.usefixtures("indexed")
def test_other_names_lead_to_the_command(cli, words, same):
    assert cli(*words).stdout == cli(*same).stdout


@pytest.mark.usefixtures("indexed")
def test_query_can_print_only_the_paths_of_files(cli):
    wanted = ["docs/locks.md", "docs/wings.txt"]
    assert sorted(cli("query", "writer", "wing", "--files").stdout.splitlines()) == wanted
    best = ("query", "writer", "--files", "-k", "1", "--mode", "lexical")
    assert cli(*best).stdout == "docs/locks.md\n"
    found = json.loads(cli("query", "writer", "wing", "--files", "--json").stdout)
    assert sorted(each["path"] for each in found["files"]) == wanted
    Path("docs/locks.md").unlink()
    gone = cli(*best)
    assert (gone.stdout, gone.stderr) == ("docs/locks.md\n", "note: docs/locks.md: deleted since it was indexed\n")
    assert "--files does not use --per-file" in cli("query", "a", "--files", "--per-file", "2", exit_code=2).stderr


@pytest.mark.usefixtures("indexed")
def test_match_keeps_chunks_with_a_regular_expression(cli):
    for pattern, files in ((r"Supers[a-z]+ air", ["docs/wings.txt"]), (r"(?i)LOCK", ["docs/locks.md"]), ("zebra", [])):
        shown = cli("query", "writer", "wing", "--match", pattern, "--files", exit_code=0 if files else 1).stdout
        assert shown.splitlines() == files
    assert "'(' is invalid: missing )" in cli("query", "a", "--match", "(", exit_code=2).stderr
    Path("docs/long.txt").write_text("abcd " * 60 + "!")
    cli("index", "docs", "-q")
    assert "takes more than 0.5 s" in cli("query", "a", "--match", r"(\w|\w\w| )+$", exit_code=2).stderr


def test_indexed_text_is_printed_by_position_and_id(indexed, cli):
    hits = json.loads(cli("query", "reader", "waits", "--json").stdout)["results"]
    hit = next(hit for hit in hits if hit["path"] == "docs/locks.md")
    (indexed / "locks.md").unlink()
    shown = [cli("get", what).stdout for what in (hit["id"], f"{hit['path']}:{hit['end_line']}", "docs/locks.md")]
    assert all(hit["text"] in text for text in shown)
    whole = json.loads(cli("chunks", f"{hit['path']}:1-99", "--json").stdout)
    assert whole["path"] == "docs/locks.md"
    assert hit["id"] in [chunk["id"] for chunk in whole["chunks"]]
    assert "no indexed chunk of docs/wings.txt is at 77" in cli("get", "docs/wings.txt:77", exit_code=2).stderr
    assert "Indexed text does not use --chunk-tokens" in cli("get", hit["id"], "--chunk-tokens", 99, exit_code=2).stderr


@pytest.mark.usefixtures("indexed")
def test_query_without_results_exits_with_1(cli):
    result = cli("query", "xylophone", "--mode", "lexical", exit_code=1)
    assert result.stdout == ""
    assert result.stderr == "no results\n"
    assert json.loads(cli("query", "xylophone", "--mode", "lexical", "--json", exit_code=1).stdout)["results"] == []


def test_query_in_a_terminal_highlights_and_links(indexed, cli, monkeypatch):
    monkeypatch.setattr("ragembed.cli.commands.query.for_terminal", lambda: True)
    shown = cli("query", "writer locks", "-k", "1", "--mode", "lexical").stdout
    plain = click.unstyle(shown)
    assert "\033[33m\033[1mwriter\033[0m" in shown
    assert "\033[33m\033[1mlock\033[0m" in shown
    assert f"\033]8;;{(indexed / 'locks.md').as_uri()}\033\\" in shown
    assert "The writer holds the lock" in plain


@pytest.mark.usefixtures("indexed")
def test_status_shows_contents_and_settings(cli, tiny_model):
    shown = cli("status").stdout
    for part in (str(tiny_model), "files          2", "normalize; nothing to fit", "idf:0.25", "flat in 1 segment"):
        assert part in shown
    status = json.loads(cli("status", "--json").stdout)
    assert (status["files"], status["embedder"]["model"], status["dim"]) == (2, str(tiny_model), 32)
    index = status["index"]
    assert (index["wanted"]["kind"], index["choice"], index["check"]) == ("auto", None, None)


def test_files_lists_files_and_reasons(docs, cli):
    (docs / ".gitignore").write_text("*.tmp\n")
    (docs / "scratch.tmp").write_text("x")
    assert cli("files", "docs").stdout.splitlines() == ["docs/locks.md", "docs/wings.txt"]
    assert cli("files", "docs", "--include", "*.txt").stdout.splitlines() == ["docs/wings.txt"]
    assert cli("files", "docs", "--exclude", "wings*").stdout.splitlines() == ["docs/locks.md"]
    assert "docs/.gitignore:1: *.tmp" in cli("files", "docs", "--why", "docs/scratch.tmp").stdout
    assert "docs/scratch.tmp: ignored by docs/.gitignore:1: *.tmp" in cli("files", "docs", "--skipped").stdout
    assert cli("files", "docs", "--why", "docs/wings.txt").stdout == "docs/wings.txt is read\n"
    assert (
        json.loads(cli("files", "docs", "--why", "docs/wings.txt", "--json").stdout)["why"] == "docs/wings.txt is read"
    )
    listed = json.loads(cli("files", "docs", "--json").stdout)["files"]
    assert listed[1] == {"path": "docs/wings.txt", "size": 63, "reason": None}


def test_chunks_shows_boundaries(indexed, cli):
    shown = cli("chunks", indexed / "locks.md", "--chunk-tokens", "16").stdout
    assert re.search(r"^--- 1: lines 1-3, \d+ tokens, Locks$", shown, re.MULTILINE)
    entries = json.loads(cli("chunks", indexed / "locks.md", "--json").stdout)["chunks"]
    assert entries[0]["start_line"] == 1
    assert entries[-1]["end_line"] == 8
    assert all(entry["tokens"] <= 62 for entry in entries)


def test_options_are_saved_for_the_next_run(docs, cli, tiny_model):
    cli("index", docs, "--model", tiny_model, "--exclude", "wings.txt", "--chunk-tokens", "16")
    status = json.loads(cli("status", "--json").stdout)
    assert status["indexing"]["options"]["exclude"] == ["wings.txt"]
    assert summary(cli("index"))[:5] == [0, 0, 0, 1, 0]
    assert "exclude=wings.txt, chunk_tokens=16" in cli("status").stdout
    assert summary(cli("index", "--reset-options"))[0] == 1


def test_every_command_and_option_has_help(cli):
    shown = cli("--help").stdout
    for name, line in COMMANDS.items():
        assert re.search(rf"^  {name}\s+{re.escape(line)}$", shown, re.MULTILINE)
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for one in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
            assert one.help
            for parameter in one.params:
                if isinstance(parameter, click.Option):
                    assert parameter.help, f"{name} {one.name} {parameter.name}"


def test_interrupt_message_without_store(docs, cli, tiny_model, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("ragembed.cli.commands.index.index_files", interrupted)
    result = cli("index", docs, "--model", tiny_model, exit_code=130)
    assert result.stderr == "interrupted: nothing was saved\n"


@pytest.mark.usefixtures("indexed")
def test_note_while_a_store_is_being_indexed_or_after_an_interruption(cli):
    with Store.open(".ragembed") as store, store.writer() as writer:
        writer.set_meta({"unfinished": True})
        for args in (("query", "lock", "--mode", "lexical"), ("status",)):
            assert cli(*args).stderr == "note: the store is being indexed: files that are still missing follow\n"
    Path(".ragembed/writer.pid").write_text("999999999")  # left by a process that was killed
    for args in (("query", "lock", "--mode", "lexical"), ("status",)):
        assert "was interrupted: run 'ragembed index' to continue it" in cli(*args).stderr


def test_include_without_matches_does_not_empty_the_store(indexed, cli):
    for more in ((), ("--dry-run",)):
        refused = cli("index", indexed, "--include", "*.none", *more, exit_code=2)
        assert "no file matches --include *.none: this would remove 2 files" in refused.stderr
    assert summary(cli("index", indexed, "--include", "*.md"))[:4] == [0, 0, 1, 1]


def test_files_summary_names_files_of_the_store_without_words(docs, cli, tiny_model):
    (docs / "track.txt").write_text("".join(f"{number % 97}.{number % 89}\n" for number in range(900)))
    (docs / "few.txt").write_text("1.5 2.5")
    assert "hardly any words" not in cli("files", docs, "--summary").stdout
    cli("index", docs, "--model", tiny_model)
    lines = cli("files", docs, "--summary").stdout.strip().split("\n")
    assert lines[-1] == "docs/track.txt: 100% of its chunks have hardly any words; leave it out with --exclude"
    assert json.loads(cli("files", "--summary", "--json").stdout)["without_words"] == [
        {"path": "docs/track.txt", "share": 1.0}
    ]


def test_files_summary_counts_by_format_outcome_and_reason(docs, cli):
    (docs / "photo.png").write_bytes(b"\x89PNG\0\0\0\0")
    (docs / "old.png").write_bytes(b"\x89PNG\0\0\0\0\0")
    (docs / ".hidden").mkdir()
    for name in ("page.1.gz", "more.tar.gz", "old.tgz"):
        (docs / name).write_bytes(b"")
    for name, size in (("a.log", 3000), ("b.log", 4000)):
        (docs / name).write_text("x" * size)
    (docs / ".gitignore").write_text("*.tmp\n")
    (docs / "one.tmp").write_text("1")
    args = ("files", docs, "--summary", "--max-size", "2K")
    rows = json.loads(cli(*args, "--json").stdout)["summary"]
    found = {(row["format"], row["outcome"]): (row["files"], row["bytes"], row["reason"]) for row in rows}
    assert len(found) == len(rows)
    sizes = {name: (docs / name).stat().st_size for name in ("locks.md", "wings.txt")}
    assert found["markdown", "read"] == (1, sizes["locks.md"], "")
    assert {key[0]: value[0] for key, value in found.items() if key[0] in ("gz", "tar")} == {"gz": 1, "tar": 2}
    assert found["text", "read"] == (1, sizes["wings.txt"], "")
    assert found["log", "skipped"] == (2, 7000, "over the limit of 2,048 bytes (--max-size)")
    assert found["png", "skipped"][:2] == (2, 17)
    assert found["png", "skipped"][2].startswith("png: an image; ")
    assert found["tmp", "ignored"][:2] == (1, 1)
    assert found["tmp", "ignored"][2].endswith("docs/.gitignore:1: *.tmp")
    assert found["folder", "ignored"][0] == 1
    lines = cli(*args).stdout.splitlines()
    assert lines[0].split() == ["format", "files", "size", "outcome", "reason"]
    assert len(lines) == 1 + len(rows)
    assert "give one of them" in cli("files", docs, "--summary", "--skipped", exit_code=2).stderr


def test_files_summary_names_missing_packages(docs, cli, monkeypatch):
    (docs / "table.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    monkeypatch.setattr("ragembed.cli.commands.files.is_installed", lambda module: module != "xlrd")
    assert f"skipped  {install_command('documents')}" in cli("files", docs, "--summary").stdout


def test_files_summary_names_missing_converters(docs, cli, monkeypatch):
    (docs / "letter.ppt").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("ragembed.documents.readers.converted.is_installed", lambda module: False)
    [line] = [line for line in cli("files", docs, "--summary").stdout.splitlines() if line.startswith("ppt ")]
    assert "skipped  no converter for ppt files: install the extra documents, LibreOffice, catppt" in line


def test_chunks_of_unreadable_file_is_an_error(docs, cli, tiny_model):
    (docs / "a.pdf").write_bytes(b"%PDF-1.4 broken")
    for path, message in ((docs / "a.pdf", "PDF"), ("/dev/null", "not a file")):
        assert message in cli("chunks", path, "--model", tiny_model, exit_code=2).stderr


def test_chunks_with_failing_reader_is_an_error(docs, cli, tiny_model, monkeypatch):
    monkeypatch.setattr(Chunker, "split", lambda chunker, document: 1 / 0)
    error = cli("chunks", docs / "locks.md", "--model", tiny_model, exit_code=2).stderr
    assert error == f"Error: {docs / 'locks.md'}: its reader failed with ZeroDivisionError: division by zero\n"


@pytest.mark.usefixtures("indexed")
def test_query_with_invalid_unicode_or_nul(cli):
    for query in ("caf\udce9 writer", "writer\0lock", '"unbalanced', "AND OR NOT (*) : ^"):
        assert cli("query", query).stdout


@pytest.mark.usefixtures("indexed")
def test_closed_pipe_is_not_an_error(tmp_path):
    code = "from ragembed.cli import main; main()"
    command = [sys.executable, "-c", code, "query", "writer"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_query_fusion_options(indexed, cli):
    def scores(*options):
        found = json.loads(cli("query", "the lock of the store", "--json", *options).stdout)["results"]
        return [(result["score"], result["dense"], result["lexical"]) for result in found]

    assert scores("--alpha", "0.6", "--fusion", "zscore", "--feedback", "0.75") == scores()
    words = scores("--alpha", "0", "--feedback", "0")
    assert [score for *_, score in words] == sorted((score for *_, score in words), reverse=True)
    meaning = scores("--alpha", "1", "--feedback", "0")
    assert [dense for _, dense, _ in meaning] == sorted((dense for _, dense, _ in meaning), reverse=True)
    assert all(0 < score <= 1.01 / 61 for score, *_ in scores("--fusion", "rrf"))
    assert "alpha" in cli("query", "lock", "--alpha", "1.5", exit_code=2).stderr


def test_verbose_version_names_everything_that_a_bug_report_needs(cli, monkeypatch):
    assert cli("--version").stdout == f"ragembed, version {__version__}\n"
    monkeypatch.setenv("RAGEMBED_API_KEY", "secret")
    for arguments in (("--version", "--verbose"), ("-v", "-V")):
        lines = dict(line.split(None, 1) for line in cli(*arguments).stdout.splitlines())
        assert lines["ragembed"].startswith(__version__)
        assert lines["python"].startswith(platform.python_version())
        assert (lines["numpy"], lines["RAGEMBED_API_KEY"]) == (np.__version__, "set")
        assert {"system", "sqlite", "torch", "cache"} <= lines.keys()


def test_debug_prints_tracebacks_without_control_characters(in_folder, cli, tiny_config):
    (in_folder / "c.json").write_text(tiny_config.to_json())
    (in_folder / "bad\x1b.ipynb").write_text("{")
    (in_folder / "good.txt").write_text("the lock")
    plain = cli("index", "bad\x1b.ipynb", "good.txt", "--config", "c.json", "--store", "a").stderr
    assert "Traceback" not in plain
    shown = cli("--debug", "index", "bad\x1b.ipynb", "good.txt", "--config", "c.json", "--store", "b").stderr
    assert "bad.ipynb is skipped: invalid notebook JSON" in shown
    assert "JSONDecodeError" in shown
    assert "\x1b" not in shown
    assert "StoreNotFoundError" in cli("--debug", "status", "--store", "none", exit_code=2).stderr


@pytest.mark.parametrize(
    ("shell", "environment", "expected"),
    [
        ("bash", {"COMP_WORDS": "ragembed que", "COMP_CWORD": "1"}, "plain,query"),
        pytest.param(
            *("zsh", {"COMP_WORDS": "ragembed que", "COMP_CWORD": "1"}, "plain\nquery\n"), marks=pytest.mark.slow
        ),
        ("fish", {"COMP_WORDS": "ragembed query", "COMP_CWORD": "--mod"}, "plain,--mode"),
    ],
)
def test_shells_complete_commands_and_options(shell, environment, expected):
    script = "from ragembed.cli import main; main(prog_name='ragembed')"
    variables = {**os.environ, "_RAGEMBED_COMPLETE": f"{shell}_complete", **environment}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=variables, check=False)
    assert expected in done.stdout, done.stderr


def test_index_names_a_store_of_a_folder_above(cli, in_folder, monkeypatch):
    below = in_folder / "a"
    below.mkdir()
    (below / "lock.md").write_text("Only one process writes.\n")
    assert "note" not in cli("index", "a", "--preset", "re").stderr
    monkeypatch.chdir(below)
    note = "note: the store is ../.ragembed; for one in this folder, add --store .ragembed\n"
    assert cli("index", "lock.md").stderr.startswith(note)
    assert "note" not in cli("index").stderr
    assert "note" not in cli("index", "lock.md", "--store", ".ragembed", "--preset", "re").stderr


def test_paths_are_relative_where_that_is_shorter(docs, cli, tiny_model, monkeypatch):
    cli("index", docs, "--model", tiny_model)
    (docs / "sub").mkdir()
    monkeypatch.chdir(docs / "sub")
    assert cli("query", "lock", "--files").stdout.splitlines()[0] == "../locks.md"
    assert shown_path(Path("/x.md")) == "/x.md"
