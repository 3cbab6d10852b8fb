"""Imports: which extra installs each optional package, the error for a missing one, lazy names, and large packages."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ragembed.errors import MissingExtraError

_EXTRAS: Mapping[str, tuple[str, str]] = {
    "doc2docx": ("msdoc2docx", "documents"),
    "faiss": ("faiss", "cpu"),
    "fsspec": ("fsspec", "documents"),
    "haystack": ("haystack-ai", "haystack"),
    "httpx": ("httpx", "serve"),
    "langchain_core": ("langchain-core", "langchain"),
    "llama_index": ("llama-index-core", "llamaindex"),
    "matplotlib": ("matplotlib", "papers"),
    "mcp": ("mcp", "serve"),
    "olefile": ("olefile", "documents"),
    "openvino": ("openvino", "cpu"),
    "openTSNE": ("openTSNE", "papers"),
    "peft": ("peft", "torch"),
    "ppt2pptx": ("ppt2pptx", "documents"),
    "pytesseract": ("pytesseract", "documents"),
    "ray": ("ray", "ray"),
    "scipy": ("scipy", "papers"),
    "semble_grammars": ("semble-grammars", "documents"),
    "sentence_transformers": ("sentence-transformers", "torch"),
    "sklearn": ("scikit-learn", "papers"),
    "starlette": ("starlette", "serve"),
    "torch": ("torch", "torch"),
    "transformers": ("transformers", "torch"),
    "uvicorn": ("uvicorn", "serve"),
    "watchfiles": ("watchfiles", "serve"),
    "xlrd": ("xlrd", "documents"),
}
"""The package name and the extra for each importable module."""


def is_installed(module: str) -> bool:
    """Return whether ``module`` can be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


def has_extra(extra: str) -> bool:
    """Return whether all packages of ``extra`` are installed, without importing them."""
    return all(is_installed(module) for module, (_, name) in _EXTRAS.items() if name == extra)


def extra_of(module: str) -> str:
    """Return the extra that installs ``module``."""
    return _EXTRAS[module][1]


def missing(module: str, purpose: str) -> MissingExtraError:
    """Return the error for ``purpose``, which needs the missing ``module``."""
    return MissingExtraError(*_EXTRAS[module], purpose)


def require(module: str, purpose: str, *more: str) -> None:
    """Raise :class:`ragembed.errors.MissingExtraError` if ``purpose`` needs a module that is not installed.

    The error names all of ``module`` and ``more`` that are missing; these belong to the same extra.
    """
    absent = [name for name in (module, *more) if not is_installed(name)]
    if absent:
        raise MissingExtraError(", ".join(_EXTRAS[name][0] for name in absent), extra_of(module), purpose)


@contextmanager
def needed_for(purpose: str, extra: str | None = None) -> Iterator[None]:
    """Raise :class:`ragembed.errors.MissingExtraError` if the body imports an optional package that is not installed.

    Works as a context manager and as a decorator.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in _EXTRAS:
            raise
        package, default_extra = _EXTRAS[module]
        raise MissingExtraError(package, extra or default_extra, purpose) from error


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause garbage collection while the body imports a large package, which would take a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def without_module(name: str) -> Iterator[None]:
    """Let the body import packages as if the module ``name`` were not installed."""
    former = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment]  # how Python marks a module that cannot be imported
    try:
        yield
    finally:
        del sys.modules[name]
        if former is not None:
            sys.modules[name] = former


def lazy_attributes(
    package: str, names: Mapping[str, Sequence[str]], extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for ``package``; a module is imported on first use of one of its names.

    ``names`` maps each module of the package to its public names.
    """
    modules = {name: f"{package}.{module}" for module, public in names.items() for name in public}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needed_for(f"{package}.{name}", extra):
            return getattr(import_module(modules[name]), name)

    return get, lambda: sorted(modules)
