"""The asynchronous version of a method of an adapter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ragembed.stopping import in_thread

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def twin(method: Callable[Parameters, Result], named: str = "a{}") -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """Return the asynchronous version of a method. It runs the method, or that of a subclass, in a thread.

    If it is cancelled, a method that writes stops before its next batch or its commit.
    """
    name = method.__name__

    @wraps(method)
    async def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        owner, *rest = args
        result: Result = await in_thread(getattr(owner, name), *rest, **kwargs)
        return result

    run.__name__ = named.format(name)
    run.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.{run.__name__}"
    run.__doc__ = f"Run :meth:`{name}` in a thread.\n\n{inspect.getdoc(method)}"
    return run
