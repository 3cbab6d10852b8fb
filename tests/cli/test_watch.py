"""``ragembed index --watch`` as a process: its lines, its exit status, and the error of a second watcher."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows cannot send these signals to a process")


@pytest.fixture
def store(docs, cli, tiny_model):
    cli("index", docs, "--model", tiny_model, "--extractor", "re:dim=8", "--postprocess", "normalize")


@contextmanager
def watching(*arguments):
    """Run the command; the block begins when it has caught up."""
    command = [sys.executable, "-m", "ragembed", "index", "--watch", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr.readline() == "note: watching docs\n"
            yield process
        finally:
            process.kill()


@pytest.mark.usefixtures("store")
def test_prints_a_json_line_per_run_and_ends_on_sigterm(docs, cli):
    with watching("--json") as process:
        (docs / "new.md").write_text("A lock.\n")
        first = json.loads(process.stdout.readline())
        (docs / "new.md").unlink()
        second = json.loads(process.stdout.readline())
        refused = cli("index", "--watch", exit_code=2).stderr
        process.send_signal(signal.SIGTERM)
        assert (*process.communicate(), process.returncode) == ("", "", 0)
    assert (first["added"], first["changed"], first["removed"]) == (["docs/new.md"], [], [])
    assert (second["added"], second["changed"], second["removed"]) == ([], [], ["docs/new.md"])
    assert first["schema_version"] == 1
    assert f"another process already watches the store {docs.parent / '.ragembed'} (PID {process.pid} on " in refused


@pytest.mark.usefixtures("store")
def test_prints_a_line_per_run_and_ends_on_sigint(docs):
    with watching("docs", "--poll") as process:
        (docs / "wings.txt").write_text("Changed.\n")
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert (*process.communicate(), process.returncode) == (
            "",
            "stopping at the next safe point\ninterrupted\n",
            130,
        )
    assert re.fullmatch(r"\d{4}-\S+  0 files added, 1 changed, 0 removed; \d+ chunks; \d+\.\d s\n", line)


@pytest.mark.parametrize("option", [("--workers", "2"), ("--dry-run",), ("--collection", "big")])
def test_options_that_do_not_apply_are_refused(docs, cli, option):
    assert f"--watch does not use {option[0]}" in cli("index", docs, "--watch", *option, exit_code=2).stderr
    assert "--poll applies only with --watch" in cli("index", docs, "--poll", exit_code=2).stderr
