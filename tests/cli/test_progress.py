import sys

import pytest

from ragembed import progress
from ragembed.indexes.indexing import scan
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.progress import SilentProgress, StderrProgress, describe, duration, progress_for


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")])
def test_duration(seconds, shown):
    assert duration(seconds) == shown


def test_describe_with_rate_and_time_left():
    line = describe("embedding", "chunks", 512, 2048, 6.0)
    assert line == "embedding: 512 of 2,048 chunks (25 %), 85/s, 18 s left"
    assert describe("reading", "files", 30, None, 10.0) == "reading: 30 files, 3.0/s"
    assert describe("embedding", "chunks", 0, 10, 0.0) == "embedding: 0 of 10 chunks (0 %), 0.0/s"


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def run(clock, seconds, steps):
    shown = StderrProgress()
    shown.start("embedding", "chunks", steps)
    for _ in range(steps):
        clock.now += seconds / steps
        shown.advance(1)
    shown.finish()


def test_without_terminal_prints_a_line_every_ten_seconds(clock, capsys):
    run(clock, 35, 350)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("embedding: ") and line.endswith(" left") for line in lines)
    run(clock, 9, 90)
    assert capsys.readouterr().err == ""


def test_in_a_terminal_one_line_is_redrawn_and_erased(clock, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    run(clock, 5, 100)
    shown = capsys.readouterr().err
    assert "\n" not in shown
    assert shown.count("\r") > 20
    assert shown.rstrip("\r").endswith(" " * 20)
    assert "s left" in shown


def test_a_quiet_listener_counts(clock, capsys):
    shown = StderrProgress(quiet=True)
    shown.start("embedding", "chunks", 100)
    clock.now += 20
    shown.advance(20)
    assert (shown.phase, shown.done, shown.total) == ("embedding", 20, 100)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("place", ["file", "terminal", "notebook"])
def test_python_shows_progress_where_a_line_can_be_redrawn(place, monkeypatch):
    if place == "terminal":
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    if place == "notebook":
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    kind = SilentProgress if place == "file" else StderrProgress
    assert type(progress_for(None)) is type(progress_for(True)) is kind
    assert type(progress_for(False)) is SilentProgress
    own = StderrProgress()
    assert progress_for(own) is own


class Phases(SilentProgress):
    """Keep what each phase counts."""

    def __init__(self):
        self.found = []

    def start(self, phase, unit, total):
        self.found.append([phase, unit, total, 0])

    def advance(self, count, detail=""):
        self.found[-1][-1] += count


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_large_file_counts_its_bytes(dry_run, tmp_path, tiny_config, monkeypatch):
    monkeypatch.setattr(scan, "_LARGE", 2000)
    (tmp_path / "docs").mkdir()
    text = "".join(f"Zebra {number} runs.\n\n" for number in range(300))
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / "docs" / name).write_text(text if name == "b.txt" else "Tea.\n")
    request = IndexingRequest(tmp_path / "store", (tmp_path / "docs",), embedder=tiny_config)
    phases = Phases()
    index_files(request, phases, dry_run=dry_run)
    [large] = [phase for phase in phases.found if phase[1] == "bytes"]
    assert large[:3] == ["reading docs/b.txt", "bytes", len(text)]
    assert 0.8 * len(text) < large[3] <= len(text)


def test_a_large_file_is_named_at_once(clock, capsys):
    shown = StderrProgress()
    shown.start("reading a.log", "bytes", 2000)
    shown.advance(0)
    assert capsys.readouterr().err == "reading a.log: 0 of 2,000 bytes (0 %), 0.0/s\n"
