"""The commands doctor --integrity and --repair, delete and refit, filters, and waiting for a writer."""

import json
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from ragembed.cli.options import with_number
from ragembed.indexes.indexing import fitting
from ragembed.indexes.storage import schema
from tests.cli.conftest import flip

HOLD = (
    "import sys; from pathlib import Path; from ragembed.indexes.storage.lock import writer_lock\n"
    "with writer_lock(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
)


@pytest.fixture
def store(indexed, in_folder):
    return in_folder / ".ragembed"


@pytest.fixture
def held(store):
    """A process that holds the lock of the store."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        yield holder
        holder.stdin.close()


def as_json(result):
    value = json.loads(result.stdout)
    assert value.pop("schema_version") == 1
    return value


# doctor --integrity and --repair


def test_verify_names_damaged_file_and_repair_command(store, cli):
    name = flip(next(store.glob("segments/*/index.faiss"))).relative_to(store).as_posix()
    result = cli("doctor", "--integrity", exit_code=2)
    assert result.stdout.startswith(f"{name}: it does not match its committed hash (sha256 ")
    assert result.stdout.count("\n") == 1
    [line] = result.stderr.strip().split("\n")[-1:]
    assert line.startswith("1 problem in ")
    assert line.endswith("; run ragembed doctor --repair to rebuild the damaged parts")
    report = as_json(cli("doctor", "--integrity", "--json", exit_code=2))
    assert report["ok"] is False
    assert [(problem["part"], problem["file"]) for problem in report["problems"]] == [("index", name)]


def test_verify_repairs(store, cli):
    before = as_json(cli("query", "the lock of the store", "--mode", "dense", "--json"))
    name = flip(next(store.glob("segments/*/index.faiss"))).relative_to(store).as_posix()
    refused = cli("query", "the lock of the store", exit_code=2)
    assert name in refused.stderr
    assert "ragembed doctor --repair" in refused.stderr
    result = cli("doctor", "--repair")
    first, second, third = result.stdout.splitlines()
    assert first.startswith(f"rebuilt {name}, because it does not match its committed hash")
    assert second.endswith("no damage found")
    assert third.startswith("segments: 1 to 1; unused vectors: 0 to 0; size: ")
    assert as_json(cli("query", "the lock of the store", "--mode", "dense", "--json")) == before
    flip(next(store.glob("segments/*/raw.f16")))
    report = as_json(cli("doctor", "--repair", "--json"))
    assert (report["ok"], [problem["part"] for problem in report["repaired"]]) == (True, ["raw"])


def test_verify_trust_database_accepts_changed_rows(store, cli):
    database = store / "store.db"
    with closing(sqlite3.connect(database)) as connection:
        schema.register(connection)
        connection.execute("INSERT INTO skipped VALUES ('docs/x', 'no text')")
        connection.commit()
    database.write_bytes(database.read_bytes().replace(b"docs/xno text", b"docs/xno taxt"))
    left = cli("doctor", "--repair", exit_code=2)
    assert "ragembed doctor --repair --trust-database" in left.stderr
    assert cli("doctor", "--repair", "--trust-database").stdout.startswith(
        "rebuilt store.db, because the rows of skipped do not match"
    )
    cli("doctor", "--integrity")
    alone = cli("doctor", "--integrity", "--trust-database", exit_code=2)
    assert "--repair" in alone.stderr
    assert "Traceback" not in alone.output


def test_repair_compacts_and_reports_its_changes(store, indexed, cli):
    for name in ("cat", "dog"):
        (indexed / f"{name}.txt").write_text(f"The {name} sleeps.\n")
    cli("index", "-q")
    cli("delete", indexed / "cat.txt")
    before = as_json(cli("query", "the lock of the store", "--json"))
    result = as_json(cli("doctor", "--repair", "--json"))["compaction"]
    assert result["segments"] == {"before": 2, "after": 1}
    assert result["unused_vectors"] == {"before": 1, "after": 0}
    assert result["bytes"]["after"] > 0
    assert result["index"] == as_json(cli("status", "--json"))["index"]
    again = cli("doctor", "--repair")
    assert again.stdout.splitlines()[1].startswith("segments: 1 to 1; unused vectors: 0 to 0; size: ")
    assert as_json(cli("doctor", "--repair", "--format", "jsonl"))["compaction"]["segments"] == {
        "before": 1,
        "after": 1,
    }
    assert as_json(cli("query", "the lock of the store", "--json")) == before
    cli("doctor", "--integrity")


# delete


def test_delete_file(store, indexed, cli):
    result = cli("delete", indexed / "locks.md")
    assert result.stdout.startswith("deleted 2 chunks and 1 file\n")
    assert result.stderr == (
        "note: if a file still exists, the next run of ragembed index adds it again, unless you exclude it with "
        "--exclude\n"
    )
    assert cli("query", "reader", "--mode", "lexical", exit_code=1).stderr == "no results\n"
    gone = cli("delete", indexed / "locks.md", exit_code=1)
    assert (gone.stdout, gone.stderr) == ("deleted 0 chunks and 0 files\n", "")
    assert as_json(cli("index", "--json"))["added"] == ["docs/locks.md"]


def test_delete_folder_from_inside_it(store, indexed, cli, monkeypatch):
    monkeypatch.chdir(indexed)
    result = as_json(cli("delete", ".", "--json"))
    assert (sorted(result["files"]), result["dry_run"]) == (["docs/locks.md", "docs/wings.txt"], False)
    assert result["chunks"] >= 3
    assert as_json(cli("status", "--json"))["chunks"] == 0


def test_delete_by_id_and_by_filter(store, indexed, cli):
    ids = [hit["id"] for hit in as_json(cli("query", "lock", "--json"))["results"] if hit["path"] == "docs/locks.md"]
    assert cli("delete", "--id", ids[0], "--id", "unknown").stdout == "deleted 1 chunk and 0 files\n"
    assert as_json(cli("delete", "--where", "ext = 'md'", "--format", "jsonl"))["chunks"] == len(ids) - 1
    assert cli("delete", "--path", "**/*.md", exit_code=1).stdout == "deleted 0 chunks and 0 files\n"
    assert as_json(cli("index", "--json"))["unchanged"] == 2  # the file did not change
    assert cli("delete", "--path", "*.txt").stdout.startswith("deleted ")
    assert as_json(cli("status", "--json"))["chunks"] == 0


def test_delete_dry_run_deletes_nothing(store, indexed, cli):
    before = as_json(cli("status", "--json"))
    result = cli("delete", indexed, "--dry-run")
    assert result.stdout == f"would delete {before['chunks']} chunks and 2 files\n"
    assert result.stderr == ""
    found = as_json(cli("delete", "--where", "ext = 'md'", "--dry-run", "--json"))
    assert (found["chunks"], found["files"], found["dry_run"]) == (2, [], True)
    cli("delete", "--where", "ext = 'pdf'", "--dry-run", exit_code=1)
    assert as_json(cli("status", "--json")) == before


# refit


def test_refit(store, cli, monkeypatch):
    monkeypatch.setattr(fitting, "MIN_FIT", 2)
    result = cli("refit", "--postprocess", "center,normalize", "--query-fit", "shared")
    assert result.stdout.startswith("postprocess: center, normalize, query fit: shared, fitted on ")
    about = as_json(cli("refit", "--postprocess", "none", "--query-fit", "separate", "--json"))
    assert (about["postprocess"], about["query_fit"]) == ([], "separate")
    assert about["fingerprint"] == as_json(cli("status", "--json"))["embedder"]["fingerprint"]
    assert cli("refit").stdout.startswith("postprocess: none, query fit: separate, nothing to fit")
    assert as_json(cli("refit", "--postprocess", "normalize", "--format", "jsonl"))["fitted_on"]["texts"] > 0
    cli("doctor", "--integrity")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--postprocess", "abtt:5"], "abtt:5 cannot be fitted on"),
        (["--query-fit", "three"], "'three' is not one of"),
    ],
)
def test_refit_errors(store, cli, args, message):
    result = cli("refit", *args, exit_code=2)
    assert message in result.stderr
    assert "Traceback" not in result.output


# Waiting


@pytest.mark.parametrize(
    ("args", "joined"),
    [
        (["--wait"], ["--wait=-1"]),
        (["--wait", "0.5", "docs"], ["--wait=0.5", "docs"]),
        (["--wait", "docs"], ["--wait=-1", "docs"]),
        (["--", "--wait"], ["--", "--wait"]),
        (["--wait", "--", "3"], ["--wait=-1", "--", "3"]),
        (["--wait", "nan"], ["--wait=-1", "nan"]),
        ([], []),
    ],
)
def test_wait_with_and_without_number(args, joined):
    assert with_number(args, "--wait", -1) == joined


def test_second_writer_fails_at_once_or_after_its_time_limit_and_names_the_first(store, held, cli):
    for command in (
        ("index",),
        ("doctor", "--integrity"),
        ("doctor", "--repair"),
        ("delete", "--id", "x"),
        ("refit",),
        ("doctor", "--repair", "--wait", "0.1"),
    ):
        started = time.monotonic()
        result = cli(*command, exit_code=2)
        assert time.monotonic() - started < 60  # it did not wait for the other writer
        assert "another process is writing to the store" in result.stderr
        assert f"(PID {held.pid})" in result.stderr
        assert result.stderr.strip().count("\n") == 0
        assert "--wait" in result.stderr
    assert cli("query", "lock", "-k", "1").stdout
    assert as_json(cli("status", "--json"))["files"] == 2
    assert cli("delete", "--id", "x", "--dry-run", exit_code=1).stdout == "would delete 0 chunks and 0 files\n"


def test_second_writer_waits_for_the_first(store, held, cli):
    begun = threading.Timer(0.3, held.stdin.close)
    begun.start()
    cli("index", "--wait", "docs")
    begun.join()
    assert held.wait() == 0


@pytest.mark.parametrize("wait", ["--wait=soon", "--wait=nan"])
def test_invalid_wait_is_an_error(store, cli, wait):
    result = cli("doctor", "--repair", wait, exit_code=2)
    assert "--wait" in result.stderr
