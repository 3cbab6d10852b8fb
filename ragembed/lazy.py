"""Public names that bring their module in when they are first used, so that importing a package is cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ragembed.extras import needed_for


def lazy_attributes(package: str, names: Mapping[str, Sequence[str]], extra: str | None = None) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of ``package``; ``names`` gives the public names of each of its modules.

    A name that needs an optional package raises :class:`ragembed.errors.MissingExtraError`; ``extra`` is as for
    :func:`ragembed.extras.needed_for`.
    """
    homes = {name: f"{package}.{module}" for module, of_module in names.items() for name in of_module}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needed_for(f"{package}.{name}", extra):
            return getattr(import_module(homes[name]), name)

    return get
