import pytest

from ragembed.cli import output
from ragembed.cli.output import StderrProgress, describe, duration


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")])
def test_duration(seconds, shown):
    assert duration(seconds) == shown


def test_describe_with_rate_and_time_left():
    line = describe("embedding", "chunks", 512, 2048, 6.0)
    assert line == "embedding: 512 of 2,048 chunks (25 %), 85/s, 18 s left"
    line = describe("embedding", "chunks", 512, 2048, 6.0, 448)
    assert line == "embedding: 512 of 2,048 chunks (25 %), 448 kept, 85/s, 18 s left"
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
    monkeypatch.setattr(output, "time", clock)
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


def test_kept_units_are_counted_even_if_nothing_is_shown(clock, capsys):
    shown = StderrProgress(quiet=True)
    shown.start("embedding", "chunks", 100)
    for _ in range(3):
        clock.now += 20
        shown.advance(20)
        shown.keep(10)
    shown.start("merging", "vectors", 7)
    shown.advance(7)
    assert (shown.kept, shown.to_keep) == (30, 100)
    assert capsys.readouterr().err == ""
