"""A real process, interrupted or killed during embedding: the store stays readable, and the next run continues."""

import json
import signal
import subprocess
import sys

import pytest

from ragembed.indexes import Store

ROWS, BATCH = 600, 64
PROGRAM = """
import os, signal, sys
from ragembed.indexes.writing import writer

number, left = int(sys.argv.pop(1)), 3
commit = writer.StoreWriter._commit_vectors

def commit_until_the_signal(*args):
    global left
    commit(*args)
    left -= 1
    if left == 0 and number:
        os.kill(os.getpid(), number)

# A background process may inherit an ignored SIGINT; restore the default handler.
signal.signal(signal.SIGINT, signal.default_int_handler)
writer.BATCH = %d
writer.StoreWriter._commit_vectors = commit_until_the_signal
from ragembed.cli import main
main()
"""


def index(folder, model, sent=0):
    """Run ``ragembed index`` in a process that sends itself a signal after the third batch."""
    options = ["--extractor", "re:dim=32", "--model", str(model), "--json"]
    command = [sys.executable, "-c", PROGRAM % BATCH, str(int(sent)), "index", "docs", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def table(in_folder):
    rows = "\n".join(f"the zebra number {i} runs from the lock of store {i % 97} to wing {i % 89}" for i in range(ROWS))
    (in_folder / "docs").mkdir()
    (in_folder / "docs" / "zebras.csv").write_text("text\n" + rows + "\n")
    (in_folder / "docs" / "a.txt").write_text("the first file is finished first\n" * 110)
    return in_folder


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_finished_batches_are_kept_and_not_repeated(table, tiny_model, how):
    store = table / ".ragembed"
    stopped = index(table, tiny_model, how)
    assert stopped.returncode == (130 if how == signal.SIGINT else -how), stopped.stderr
    if how == signal.SIGINT:
        told = stopped.stderr.rstrip()
        assert told.endswith("interrupted: finished batches are saved; run the same command to continue")
    with Store.open(store) as opened:
        kept = opened.status()["vectors"]
        assert 2 * BATCH <= kept < ROWS
        assert opened.search("zebra", 5, "dense") is not None
    done = index(table, tiny_model)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["encoded"] <= ROWS + 2 - kept + BATCH
    with Store.open(store) as opened:
        assert set(opened.sources()) == {"docs/a.txt", "docs/zebras.csv"}
        assert len(opened) == report["chunks"] >= ROWS
        assert opened.search("zebra number 599", 1, "lexical")[0].chunk.text.startswith("the zebra number 599")
