"""Print results, notes and progress: JSON with a schema version, paths from the working directory, readable sizes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from ragembed.documents.places import is_url
from ragembed.documents.places import shown_path as shown_path
from ragembed.errors import IndexWarning
from ragembed.indexes.search.relevance import is_weak
from ragembed.printable import printable_json, printable_line
from ragembed.version import SCHEMA_VERSION

if TYPE_CHECKING:
    from ragembed.indexes.faiss_index.records import IndexEvaluation, IndexSelection


_IN_URLS = ":/?#[]@!$&'()*+,;=%"


def print_record(value: Mapping[str, Any], output: str) -> bool:
    """Print one JSON object if ``output`` is ``json`` or ``jsonl``, else return False so that the caller prints it."""
    return _print_json(value, [value], output)


def print_records(value: Mapping[str, Any], name: str, output: str) -> bool:
    """Do the same as :func:`print_record`, but for ``jsonl`` print each object of ``value[name]`` on its own line."""
    return _print_json(value, value[name], output)


def _print_json(value: Mapping[str, Any], lines: Iterable[Mapping[str, Any]], output: str) -> bool:
    if output == "json":
        click.echo(_as_json(value, indent=2))
    elif output == "jsonl":
        for line in lines:
            click.echo(_as_json(line))
    else:
        return False
    return True


def _as_json(value: Mapping[str, Any], indent: int | None = None) -> str:
    return printable_json(json.dumps({"schema_version": SCHEMA_VERSION, **value}, ensure_ascii=False, indent=indent))


def for_terminal() -> bool:
    """Return whether to print colours and links: stdout is a terminal and ``NO_COLOR`` is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def terminal_width() -> int | None:
    """Return the number of characters in a line of the terminal, or None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def link(text: str, shown: str) -> str:
    """Return ``text`` as a terminal hyperlink (OSC 8) to ``shown``, a result of :func:`shown_path`."""
    absolute = os.path.abspath(shown)  # noqa: PTH100  as above
    target = quote(shown, safe=_IN_URLS) if is_url(shown) else Path(absolute).as_uri()
    return f"\033]8;;{target}\033\\{text}\033]8;;\033\\"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural, such as ``1 file`` or ``2,048 chunks``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def lines_of(start: int, end: int) -> str:
    """Return ``line 3`` or ``lines 3-7``."""
    return f"line {start}" if start == end else f"lines {start}-{end}"


def say(text: str, *, err: bool = False) -> None:
    """Print ``text`` as one line without control characters."""
    click.echo(printable_line(text), err=err)


def say_unfinished(*, being_written: bool) -> None:
    """Print to stderr that a store is not complete: an indexing run is under way, or was interrupted."""
    if being_written:
        say("note: the store is being indexed: files that are still missing follow", err=True)
    else:
        say("note: the last indexing run was interrupted: run ragembed index to continue it", err=True)


def say_weak(relevances: Iterable[float | None]) -> None:
    """Print to stderr that no result is likely to answer the query, if their relevance is known and low."""
    known = list(relevances)
    if is_weak(known):
        best = max(each for each in known if each is not None)
        say(f"note: weak matches: the best has relevance {best:.2f}; the documents may not answer this query", err=True)


def say_choice(choice: IndexSelection, check: IndexEvaluation) -> None:
    """Print to stderr which index was chosen, and why."""
    say(f"index: {choice.kind}, {check.describe()}, built {choice.built_on}", err=True)
    for name, text in choice.describe():
        say(f"  {name}: {text}", err=True)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print each :class:`IndexWarning` raised in the block to stderr, one line each; pass other warnings on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IndexWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, IndexWarning):
            say(f"note: {warning.message}", err=True)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


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
