"""Work that can be stopped: a server ends a search for whose answer nobody waits any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

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


def is_stopped() -> bool:
    """Return whether the work of this thread was stopped."""
    stop = _STOP.get()
    return stop is not None and stop.is_set()


def check() -> None:
    """Raise :class:`StoppedError` if the work of this thread was stopped. Long loops call it in each round."""
    if is_stopped():
        raise StoppedError("the work was stopped: nobody waits for its result")
