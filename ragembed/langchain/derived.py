"""Derive a method from another one: its asynchronous version, or the version of a search without scores."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

from langchain_core.documents import Document

from ragembed.stopping import in_thread

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Derived = TypeVar("Derived", bound=Callable[..., Any])
Scored: TypeAlias = "list[tuple[Document, float]]"


def twin(method: Callable[Parameters, Result]) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """Return the asynchronous version of a method. It runs the method, or that of a subclass, in a thread.

    If it is cancelled, a method that writes stops before its next batch or its commit.
    """
    name = method.__name__

    @wraps(method)
    async def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        owner, *rest = args
        result: Result = await in_thread(getattr(owner, name), *rest, **kwargs)
        return result

    return _named(run, f"a{name}", f"Run :meth:`{name}` in a thread.\n\n{inspect.getdoc(method)}")


def without_scores(method: Callable[Parameters, Scored]) -> Callable[Parameters, list[Document]]:
    """Return the version of a search that returns only the documents; its name is the same without ``_with_score``."""
    name = method.__name__

    @wraps(method)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> list[Document]:
        owner, *rest = args
        scored: Scored = getattr(owner, name)(*rest, **kwargs)
        return [document for document, _ in scored]

    signature = inspect.signature(method).replace(return_annotation="list[Document]")
    run.__signature__ = signature  # type: ignore[attr-defined]
    return _named(
        run, name.replace("_with_score", ""), f"Do the same as :meth:`{name}`, and return only the documents."
    )


def _named(function: Derived, name: str, description: str) -> Derived:
    function.__qualname__ = f"{function.__qualname__.rpartition('.')[0]}.{name}"
    function.__name__, function.__doc__ = name, description
    return function
