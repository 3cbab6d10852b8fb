"""Optional packages: the extra that brings each, the error that names it, and public names that are loaded lazily."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ragembed.errors import MissingExtraError

_EXTRAS: Mapping[str, tuple[str, str]] = {
    "docx": ("python-docx", "office"),
    "faiss": ("faiss", "cpu"),
    "fsspec": ("fsspec", "remote"),
    "langchain_core": ("langchain-core", "langchain"),
    "matplotlib": ("matplotlib", "plot"),
    "pptx": ("python-pptx", "office"),
    "pypdf": ("pypdf", "pdf"),
    "ray": ("ray", "ray"),
    "scipy": ("scipy", "evaluation"),
    "sentence_transformers": ("sentence-transformers", "rerank"),
    "sklearn": ("scikit-learn", "evaluation"),
    "snowballstemmer": ("snowballstemmer", "languages"),
    "torch": ("torch", "torch"),
    "transformers": ("transformers", "torch"),
}
"""For each module, the name of its package and the extra that installs it."""


def is_installed(module: str) -> bool:
    """Return whether ``module`` can be imported; it is not imported for that."""
    return importlib.util.find_spec(module) is not None


def missing(module: str, purpose: str) -> MissingExtraError:
    """Return the error for ``purpose``, which needs ``module``."""
    return MissingExtraError(*_EXTRAS[module], purpose)


def require(module: str, purpose: str) -> None:
    """Raise :class:`ragembed.errors.MissingExtraError` where ``module``, which ``purpose`` needs, is not installed."""
    if not is_installed(module):
        raise missing(module, purpose)


@contextmanager
def needed_for(purpose: str, extra: str | None = None) -> Iterator[None]:
    """Raise :class:`ragembed.errors.MissingExtraError` where the body imports an optional package that is missing.

    It is also a decorator. ``extra`` is the one to name where more than the missing package is needed. Other import
    errors pass: a package that is installed but broken has its own message.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in _EXTRAS:
            raise
        package, brings_it = _EXTRAS[module]
        raise MissingExtraError(package, extra or brings_it, purpose) from error


def lazy_attributes(
    package: str, names: Mapping[str, Sequence[str]], extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of ``package``.

    ``names`` gives the public names of each of its modules. A module is imported when one of its names is first used.

    A name that needs an optional package raises :class:`ragembed.errors.MissingExtraError`; ``extra`` is as for
    :func:`ragembed.extras.needed_for`.
    """
    homes = {name: f"{package}.{module}" for module, of_module in names.items() for name in of_module}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needed_for(f"{package}.{name}", extra):
            return getattr(import_module(homes[name]), name)

    return get, lambda: sorted(homes)
