"""Calls in threads that stop if the coroutine that waits for them is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_CANCELLED: ContextVar[threading.Event | None] = ContextVar("cancelled", default=None)


async def in_thread(call: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
    """Run ``call`` in a thread; if the coroutine is cancelled, ``call`` ends at its next :func:`stop_if_cancelled`."""
    cancelled = threading.Event()
    token = _CANCELLED.set(cancelled)
    try:
        return await asyncio.to_thread(call, *args, **kwargs)
    except asyncio.CancelledError:
        cancelled.set()
        raise
    finally:
        _CANCELLED.reset(token)


def stop_if_cancelled() -> None:
    """Raise ``concurrent.futures.CancelledError`` if the coroutine that waits for this call was cancelled."""
    cancelled = _CANCELLED.get()
    if cancelled is not None and cancelled.is_set():
        raise CancelledError("the coroutine that waits for this call was cancelled")
