"""Texts, names and settings of strangers: no command prints control characters, bidi controls or forged lines."""

import json
import os
import re
import subprocess
import sys

import pytest

from ragembed.cli.commands import query as query_command
from ragembed.printable import printable_json

BAD = "\x1b[31mred\x1b]0;title\x07 \x9b2J \x9dx \x7f \u202eevil\u2066"
NAME = "a\x1b[2Jb\u202e\x9b\ndocs:1-2  (9.999, relevance 1.00)\n\x9d.md"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
OWN = re.compile(r"\x1b\[[\d;]*m|\x1b\]8;;[^\x1b]*\x1b\\")
"""Colours and links that the commands print themselves."""

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such file names")


@pytest.fixture(scope="module")
def project(tmp_path_factory, tiny_config):
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "docs").mkdir()
    (folder / "docs" / NAME).write_text(
        f"# lock {BAD}\n\nthe writer {BAD} holds the lock\n\n## wing {BAD}\n\nflow {BAD}\n"
    )
    (folder / "docs" / f"broken{NAME}.pdf").write_bytes(b"%PDF" + BAD.encode())
    for i in range(12):
        (folder / "docs" / f"{i}.md").write_text(f"the wing {i} flow of air {BAD}\n")
    config = tiny_config.replace(postprocess=())
    (folder / "c.json").write_text(config.to_json())
    (folder / "judged.jsonl").write_text(
        "\n".join(json.dumps({"query": f"wing {i} {BAD}", "relevant": [f"docs/{i}.md"]}) for i in range(3))
    )
    return folder


def commands(folder):
    name = f"docs/{NAME}"
    return [
        ("index", "docs", "--config", "c.json"),
        ("index", "docs"),
        ("index", "docs", "--dry-run", "--json"),
        ("status",),
        ("status", "--skipped"),
        ("doctor",),
        ("files", "docs"),
        ("files", "docs", "--skipped"),
        ("files", "docs", "--summary"),
        ("files", "docs", "--why", name),
        ("chunks", name),
        ("query", f"lock {BAD}"),
        ("query", f"lock {BAD}", "--explain", "-k", "3"),
        ("query", "lock", "--why", name, "-k", "1"),
        ("eval", "retrieval", "judged.jsonl"),
        ("eval", "retrieval", "judged.jsonl", "--compare", "dense", "lexical"),
        ("doctor", "--integrity"),
        ("doctor", "--repair"),
        ("delete", name, "--dry-run"),
        ("query", BAD, "--where", f"path = '{BAD}'"),
        ("chunks", f"missing{NAME}"),
        ("status", "--store", f"missing{NAME}"),
    ]


@pytest.mark.parametrize("output", ["text", "terminal", "json", pytest.param("jsonl", marks=pytest.mark.slow)])
def test_no_command_prints_control_characters(project, cli_any, output, monkeypatch):
    monkeypatch.chdir(project)
    if output == "terminal":
        monkeypatch.setattr(query_command, "for_terminal", lambda: True)
    for arguments in commands(project):
        if output == "terminal" and arguments[0] != "query":
            continue  # the others print the same in a terminal
        formats = ("--format", output) if output in ("json", "jsonl") and "--json" not in arguments else ()
        result = cli_any(*arguments, *formats)
        for text in (result.stdout, result.stderr):
            shown = (OWN.sub("", text) if output == "terminal" else text).replace("\r", "")
            assert not CONTROL.search(shown), (arguments, CONTROL.search(shown), shown)
            assert not any(line.startswith("docs:1-2  (9.999") for line in shown.splitlines()), arguments


def test_a_real_terminal_gets_none(project, cli, monkeypatch):
    pty = pytest.importorskip("pty")
    environment = {**os.environ, "COLUMNS": "80"}
    monkeypatch.chdir(project)
    cli("index", "docs", "--config", "c.json")
    main, child = pty.openpty()
    run = [sys.executable, "-m", "ragembed", "query", "lock"]
    with subprocess.Popen(run, cwd=project, stdout=child, stderr=child, stdin=subprocess.DEVNULL, env=environment) as p:
        os.close(child)
        data = b""
        while block := _read(main):
            data += block
    os.close(main)
    assert p.returncode == 0
    shown = OWN.sub("", data.decode()).replace("\r", "")
    assert "lock" in shown
    assert not CONTROL.search(shown), shown


def _read(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux raises it when the other end is closed.
        return b""


@pytest.fixture
def cli_any():
    from click.testing import CliRunner

    from ragembed.cli import main

    return lambda *args: CliRunner().invoke(main, [str(arg) for arg in args])


def test_json_keeps_the_text(project, cli, monkeypatch):
    monkeypatch.chdir(project)
    cli("index", "docs", "--config", "c.json")
    [first, *_] = json.loads(cli("query", "writer holds the lock", "-k", "1", "--json").stdout)["results"]
    assert first["path"] == f"docs/{NAME}"
    assert json.loads(printable_json(json.dumps({"a": BAD + "\u2028\ud800"}, ensure_ascii=False))) == {
        "a": BAD + "\u2028\ud800"
    }
