"""Progress of long operations, shown or ignored, and how another thread stops them."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from ragembed.printable import printable_line

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


class StoppedError(BaseException):
    """The work was stopped. Like ``KeyboardInterrupt``, it passes the handlers of errors."""


def run_until(stop: threading.Event, function: Callable[..., Result], *arguments: object) -> Result:
    """Return ``function(*arguments)``; after ``stop`` is set, it ends at its next check with :class:`StoppedError`."""
    before = _STOP.set(stop)
    try:
        check()
        return function(*arguments)
    finally:
        _STOP.reset(before)


async def in_thread(call: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
    """Run ``call`` in a thread; if the coroutine is cancelled, it ends at its next check."""
    import asyncio  # takes tens of milliseconds, which a command need not wait

    stop = threading.Event()
    try:
        return await asyncio.to_thread(run_until, stop, partial(call, *args, **kwargs))
    except asyncio.CancelledError:
        stop.set()
        raise


def is_stopped() -> bool:
    """Return whether the work of this thread was stopped."""
    stop = _STOP.get()
    return stop is not None and stop.is_set()


def check() -> None:
    """Raise :class:`StoppedError` if the work of this thread was stopped. Long loops call it in each round."""
    if is_stopped():
        raise StoppedError("the work was stopped: nobody waits for its result")


_TERMINAL_SECONDS, _LOG_SECONDS = 0.1, 10.0


class Progress(Protocol):
    """A listener that receives the progress of a long operation, one phase at a time."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Begin a phase such as ``"reading"``; ``total`` is the number of its units, or None if it is not known."""
        ...

    def advance(self, count: int) -> None:
        """Report that ``count`` more units are done."""
        ...

    def finish(self) -> None:
        """End the phase."""
        ...


class TrainingProgress(Progress, Protocol):
    """A listener for a training, which also has details and notes."""

    def advance(self, count: int, detail: str = "") -> None:
        """Report that ``count`` more units are done; ``detail`` is more information, such as "loss 4.21"."""
        ...

    def note(self, text: str) -> None:
        """Report a single message, such as a resumed training or truncated definitions."""
        ...


class SilentProgress:
    """A progress listener that does nothing."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Do nothing."""

    def advance(self, count: int, detail: str = "") -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""


class StderrProgress:
    """Print the phase, its rate and the time left, unless ``quiet``.

    A terminal or notebook gets one line that is redrawn, other outputs a new line every ten seconds.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._redraws = _redraws()
        self._pause = _TERMINAL_SECONDS if self._redraws else _LOG_SECONDS
        self._width = 0
        self.phase = self._unit = self._detail = ""
        self.done = 0
        self.total: int | None = None
        self._started = self._shown = 0.0

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Begin a phase; the first line comes after a pause, so short phases print nothing.

        Only large files are counted in bytes: their first line comes at once.
        """
        self.phase, self._unit, self._detail, self.total, self.done = phase, unit, "", total, 0
        self._started = self._shown = time.monotonic()
        self._shown -= self._pause if unit == "bytes" else 0.0

    def advance(self, count: int, detail: str = "") -> None:
        """Add ``count``, and print with the last ``detail`` if enough time has passed."""
        self.done += count
        self._detail = detail or self._detail
        now = time.monotonic()
        if now - self._shown >= self._pause and not self._quiet:
            self._shown = now
            self._show(now - self._started)

    def finish(self) -> None:
        """End the phase; in a terminal, erase its line."""
        if self._width:
            _write("\r" + " " * self._width + "\r")
            self._width = 0

    def note(self, text: str) -> None:
        """Print a note on its own line."""
        self.finish()
        if not self._quiet:
            _write(f"note: {printable_line(text)}\n")

    def line(self, seconds: float) -> str:
        """Return the line to print ``seconds`` after the start of the phase."""
        shown = describe(self.phase, self._unit, self.done, self.total, seconds)
        return f"{shown}, {self._detail}" if self._detail else shown

    def _show(self, seconds: float) -> None:
        line = self.line(seconds)
        if not self._redraws:
            _write(f"{line}\n")
            return
        # A line that is wider than the terminal would not be redrawn but repeated.
        line = line[: max(1, shutil.get_terminal_size().columns - 1)]
        _write("\r" + line.ljust(self._width))
        self._width = max(self._width, len(line))


@contextmanager
def phase(progress: Progress, name: str, unit: str, total: int | None) -> Iterator[None]:
    """Start a phase, and end it after the body."""
    progress.start(name, unit, total)
    try:
        yield
    finally:
        progress.finish()


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def progress_for(listener: Progress | bool | None) -> Progress:
    """Return a listener; without one, progress is printed in a terminal or notebook, unless it is ``False``."""
    if listener is None or listener is True:
        return StderrProgress() if _redraws() else SilentProgress()
    return SilentProgress() if listener is False else listener


def _redraws() -> bool:
    """Return whether stderr is a terminal or belongs to a notebook, whose kernel alone imports ``ipykernel``."""
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


def describe(phase: str, unit: str, done: int, total: int | None, seconds: float) -> str:
    """Return one line such as ``embedding: 512 of 2,048 chunks (25 %), 85/s, 18 s left``."""
    rate = done / seconds if seconds > 0 else 0.0
    speed = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"
    if not total:
        return f"{phase}: {done:,} {unit}, {speed}"
    line = f"{phase}: {done:,} of {total:,} {unit} ({100 * done // total} %), {speed}"
    return f"{line}, {duration((total - done) / rate)} left" if rate > 0 else line


def duration(seconds: float) -> str:
    """Return ``18 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, remainder = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {remainder} s"
    return f"{minutes // 60} h {minutes % 60} min"
