"""Print results, notes and progress: JSON with a schema version, paths from the working directory, readable sizes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from ragembed.documents.places import absolute, is_url
from ragembed.documents.places import shown_path as shown_path
from ragembed.errors import IndexWarning
from ragembed.indexes.search.relevance import WEAK_MATCHES, is_weak
from ragembed.printable import counted as counted
from ragembed.printable import printable_json, printable_line
from ragembed.version import SCHEMA_VERSION

if TYPE_CHECKING:
    from ragembed.indexes.faiss_index.records import IndexEvaluation, IndexSelection


_IN_URLS = ":/?#[]@!$&'()*+,;=%"


def print_record(value: Mapping[str, Any], output: str, lines: str | None = None) -> bool:
    """Print one JSON object if ``output`` is ``json`` or ``jsonl``, else return False so that the caller prints it.

    As ``jsonl``, each object of ``value[lines]`` is printed on its own line, if ``lines`` is given.
    """
    if output not in ("json", "jsonl"):
        return False
    indent = 2 if output == "json" else None
    for one in [value] if indent or lines is None else value[lines]:
        record = {"schema_version": SCHEMA_VERSION, **one}
        click.echo(printable_json(json.dumps(record, ensure_ascii=False, indent=indent)))
    return True


def for_terminal() -> bool:
    """Return whether to print colours and links: stdout is a terminal and ``NO_COLOR`` is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def terminal_width() -> int | None:
    """Return the number of characters in a line of the terminal, or None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def link(text: str, shown: str) -> str:
    """Return ``text`` as a terminal hyperlink (OSC 8) to ``shown``, a result of :func:`shown_path`."""
    target = quote(shown, safe=_IN_URLS) if is_url(shown) else Path(absolute(Path(shown))).as_uri()
    return f"\033]8;;{target}\033\\{text}\033]8;;\033\\"


def say(text: str, *, err: bool = False) -> None:
    """Print ``text`` as one line without control characters."""
    click.echo(printable_line(text), err=err)


def say_incomplete(note: str | None) -> None:
    """Print to stderr why results may miss something, if they may."""
    if note is not None:
        say(f"note: {note}", err=True)


def say_weak(relevances: Iterable[float | None]) -> None:
    """Print to stderr that no result is likely to answer the query, if their relevance is known and low."""
    if is_weak(relevances):
        say(f"note: {WEAK_MATCHES}", err=True)


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


@contextmanager
def interruption_noted() -> Iterator[None]:
    """Print a line as soon as Ctrl-C is pressed: while native code computes, Python's own handler has to wait.

    The handler of the system writes each signal to a socket, which a thread reads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    once, told = threading.RLock(), threading.Event()

    def tell() -> None:
        with once:
            if not told.is_set():
                told.set()
                erased = "\r\033[K" if sys.stderr.isatty() else ""
                click.echo(f"{erased}stopping at the next safe point", err=True)

    def listen() -> None:
        while number := reading.recv(1):
            if number[0] == signal.SIGINT:
                tell()

    def handle(number: int, frame: FrameType | None) -> None:
        tell()
        signal.default_int_handler(number, frame)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, handle)
    before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        writing.shutdown(socket.SHUT_WR)  # also if a child process has a copy of it
        listener.join()
        writing.close()
        reading.close()
