"""Import FAISS if it is installed. Without FAISS, indexes are flat; :mod:`.flat` searches them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from ragembed.errors import MissingExtraError
from ragembed.indexes.faiss_index.specs import AUTO, FLAT
from ragembed.resources import out_of_memory, require_room

PACKAGE, EXTRA = "faiss", "cpu"


class LazyFaiss:
    """FAISS, which is imported when it is first used, because many commands do not need it.

    If it cannot be imported, ``error`` is the reason, and every use raises :class:`MissingExtraError`. If the memory
    does not suffice to import it, the use raises :class:`ragembed.errors.OutOfMemoryError`.
    """

    def __init__(self, error: ImportError | None = None) -> None:
        self.error = error
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self.is_installed():
            raise MissingExtraError(PACKAGE, EXTRA, "an index that is not flat") from self.error
        return getattr(self._module, name)

    def is_installed(self) -> bool:
        """Return whether FAISS can be imported."""
        if self._module is None and self.error is None:
            require_room("FAISS")
            try:
                self._module = import_module(PACKAGE)
            except ImportError as error:
                if (lack := out_of_memory(error)) is not None:
                    raise lack from error
                self.error = error
        return self.error is None


faiss: Any = LazyFaiss()


def has_faiss() -> bool:
    """Return whether FAISS is installed."""
    return bool(faiss.is_installed())


def require_library(*kinds: str) -> None:
    """Raise :class:`MissingExtraError` if one of the ``kinds`` of index needs FAISS and FAISS is not installed."""
    for kind in kinds:
        if kind not in (AUTO, FLAT) and not has_faiss():
            raise MissingExtraError(PACKAGE, EXTRA, f"an index of kind {kind}") from faiss.error
