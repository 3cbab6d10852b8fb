"""Progress on stderr: one line that is redrawn in a terminal, else a new line every ten seconds."""

from __future__ import annotations

import shutil
import sys
import time

import click

from ragembed.cli.output import say

_TERMINAL_SECONDS, _LOG_SECONDS = 0.1, 10.0


class StderrProgress:
    """Show the phase, its rate and the time left, unless ``quiet``; a :class:`ragembed.indexes.types.Progress`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.kept = self.to_keep = 0
        """Number of units that are saved, and their total, in the last phase that saves."""
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._pause = _TERMINAL_SECONDS if self._terminal else _LOG_SECONDS
        self._width = 0
        self._phase = self._unit = self._detail = ""
        self._total: int | None = None
        self._done = self._kept = 0
        self._started = self._shown = 0.0

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Begin a phase; the first line comes after a pause, so short phases print nothing."""
        self._detail = ""
        self._phase, self._unit, self._total, self._done, self._kept = phase, unit, total, 0, 0
        self._started = self._shown = time.monotonic()

    def advance(self, count: int, detail: str = "") -> None:
        """Add ``count``, and print with the last ``detail`` if enough time has passed."""
        self._done += count
        self._detail = detail or self._detail
        now = time.monotonic()
        if now - self._shown >= self._pause and not self._quiet:
            self._shown = now
            self._show(now - self._started)

    def keep(self, count: int) -> None:
        """Add ``count`` to the number of saved units, which the next line shows."""
        self._kept += count
        self.kept, self.to_keep = self._kept, self._total or 0

    def finish(self) -> None:
        """End the phase; in a terminal, erase its line."""
        if self._terminal and self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)
            self._width = 0

    def note(self, text: str) -> None:
        """Print a note on its own line."""
        self.finish()
        if not self._quiet:
            say(f"note: {text}", err=True)

    def line(self, seconds: float) -> str:
        """Return the line to print ``seconds`` after the start of the phase."""
        shown = describe(self._phase, self._unit, self._done, self._total, seconds, self._kept)
        return f"{shown}, {self._detail}" if self._detail else shown

    def _show(self, seconds: float) -> None:
        line = self.line(seconds)
        if self._terminal:
            # A line that is wider than the terminal would not be redrawn but repeated.
            line = line[: max(1, shutil.get_terminal_size().columns - 1)]
            click.echo("\r" + line.ljust(self._width), nl=False, err=True)
            self._width = max(self._width, len(line))
        else:
            click.echo(line, err=True)


def describe(phase: str, unit: str, done: int, total: int | None, seconds: float, kept: int = 0) -> str:
    """Return one line such as ``embedding: 512 of 2,048 chunks (25 %), 448 kept, 85/s, 18 s left``."""
    rate = done / seconds if seconds > 0 else 0.0
    speed = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"
    if not total:
        return f"{phase}: {done:,} {unit}, {speed}"
    saved = f", {kept:,} kept" if kept else ""
    line = f"{phase}: {done:,} of {total:,} {unit} ({100 * done // total} %){saved}, {speed}"
    return f"{line}, {duration((total - done) / rate)} left" if rate > 0 else line


def duration(seconds: float) -> str:
    """Return ``18 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
