"""Work that can be stopped, because nobody waits for its result any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import ParamSpec, TypeVar

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
