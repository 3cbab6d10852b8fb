"""A real process, interrupted and killed in the middle of embedding: the store answers, the next run carries on."""

import json
import signal
import subprocess
import sys
import time

import pytest

from ragembed.indexes import Store
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.writing.writer import BATCH

ROWS = 6000
# A process that is started in the background may inherit that it ignores SIGINT; this one does not.
START = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from ragembed.cli import main; main()"
COMMAND = [sys.executable, "-c", START]


@pytest.fixture
def table(in_folder):
    rows = "\n".join(f"the zebra number {i} runs from the lock of store {i % 97} to wing {i % 89}" for i in range(ROWS))
    (in_folder / "docs").mkdir()
    (in_folder / "docs" / "zebras.csv").write_text("text\n" + rows + "\n")
    (in_folder / "docs" / "a.txt").write_text("the first file is finished first\n" * 1100)
    return in_folder


def segments(store):
    if not is_store(store):
        return 0
    with Store.open(store) as opened:
        return len(opened.status()["segments"])


@pytest.mark.guarantee(14, 36)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_finished_batches_are_kept_and_not_repeated(table, tiny_model, how):
    store = table / ".ragembed"
    index = [*COMMAND, "index", "docs", "--model", str(tiny_model), "--json"]
    process = subprocess.Popen(index, cwd=table, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while segments(store) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(how)
    _, told = process.communicate(timeout=60)
    if how == signal.SIGINT:
        assert process.returncode == 130, told
        assert told.rstrip().endswith("interrupted: finished batches are kept; run the same command to carry on")
    with Store.open(store) as opened:
        kept = opened.status()["vectors"]
        assert 2 * BATCH <= kept < ROWS
        assert opened.search("zebra", 5, "dense") is not None
    done = subprocess.run(index, cwd=table, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["encoded"] <= ROWS + 2 - kept + BATCH
    with Store.open(store) as opened:
        assert set(opened.sources()) == {"docs/a.txt", "docs/zebras.csv"}
        assert len(opened) == report["chunks"] >= ROWS
        assert opened.search("zebra number 5999", 1, "lexical")[0].chunk.text.startswith("the zebra number 5999")
