"""A real process, interrupted or killed during embedding: the store stays readable, and the next run continues."""

import json
import re
import signal
import subprocess
import sys

import pytest

from ragembed.indexes import Store

ROWS, PART = 600, 64
PROGRAM = """
import os, signal, sys
from ragembed.indexes.indexing import index_run
from ragembed.indexes.storage import writer

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
writer.COMMIT_SECONDS = 0
RunEncoder = index_run.RunEncoder
RunEncoder.parts = lambda self, texts, progress=None: (
    self._embedder.raw_documents(texts[start : start + %d], progress) for start in range(0, len(texts), %d)
)
writer.StoreWriter._commit_vectors = commit_until_the_signal
from ragembed.cli import main
main()
"""


def index(folder, model, sent=0):
    """Run ``ragembed index`` in a process that sends itself a signal after the third commit of vectors."""
    options = ["--extractor", "re:dim=32", "--model", str(model), "--json"]
    command = [sys.executable, "-c", PROGRAM % (PART, PART), str(int(sent)), "index", "docs", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def table(in_folder):
    rows = "\n".join(f"the zebra number {i} runs from the lock of store {i % 97} to wing {i % 89}" for i in range(ROWS))
    (in_folder / "docs").mkdir()
    (in_folder / "docs" / "zebras.csv").write_text("text\n" + rows + "\n")
    (in_folder / "docs" / "a.txt").write_text("the first file is finished first\n" * 110)
    (in_folder / "docs" / "b.txt").write_text("the second file is finished next\n" * 110)
    return in_folder


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_finished_chunks_are_kept_and_not_encoded_again(table, tiny_model, how):
    store = table / ".ragembed"
    stopped = index(table, tiny_model, how)
    assert stopped.returncode == (130 if how == signal.SIGINT else -how), stopped.stderr
    if how == signal.SIGINT:
        said, noticed = sorted(stopped.stderr.splitlines())  # two threads print them
        assert noticed == "stopping at the next safe point"
        told = re.fullmatch(
            r"interrupted: ([\d,]+) chunks, and vectors for (\d+) % of them, are kept; run .* to continue", said
        )
    with Store.open(store) as opened:
        kept = opened.status()["vectors"]
        assert kept >= 3 * PART
        assert set(opened.sources()) == {"docs/a.txt", "docs/b.txt", "docs/zebras.csv"}
        assert opened.unfinished
        assert 0 < opened.vector_share < 1
        if how == signal.SIGINT:
            assert (int(told[1].replace(",", "")), int(told[2])) == (len(opened), int(100 * opened.vector_share))
        assert opened.search("zebra number 599", 1)[0].chunk.text.startswith("the zebra number 599")
    done = index(table, tiny_model)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    with Store.open(store) as opened:
        assert report["encoded"] == opened.status()["vectors"] - kept
        assert set(opened.sources()) == {"docs/a.txt", "docs/b.txt", "docs/zebras.csv"}
        assert len(opened) == report["chunks"] >= ROWS
        assert opened.search("zebra number 599", 1, "lexical")[0].chunk.text.startswith("the zebra number 599")


LOADING = """
import signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == %r:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = ["status"]
from ragembed.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["ragembed.cli", "ragembed.cli.commands.status"])
def test_interruption_while_the_program_loads_has_no_traceback(in_folder, module):
    command = [sys.executable, "-c", LOADING % module]
    stopped = subprocess.run(command, cwd=in_folder, capture_output=True, text=True, check=False)
    assert (stopped.returncode, stopped.stderr) == (130, "interrupted\n")
