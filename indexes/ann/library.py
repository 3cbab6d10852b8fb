"""Import FAISS if it is installed. Without FAISS, indexes are flat; :mod:`ragembed.indexes.ann.flat` searches them."""

from __future__ import annotations

from typing import Any

from ragembed.errors import MissingExtraError
from ragembed.indexes.ann.specs import AUTO, FLAT

PACKAGE, EXTRA = "faiss", "cpu"


class MissingFaiss:
    """Placeholder for FAISS if it is not installed. Every use raises :class:`MissingExtraError`."""

    def __init__(self, error: ImportError) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingExtraError(PACKAGE, EXTRA, "an index that is not flat") from self.error


def _load() -> Any:
    try:
        import faiss
    except ImportError as error:
        return MissingFaiss(error)
    return faiss


faiss: Any = _load()


def has_faiss() -> bool:
    """Return whether FAISS is installed."""
    return not isinstance(faiss, MissingFaiss)


def require_library(*kinds: str) -> None:
    """Raise :class:`MissingExtraError` if one of the ``kinds`` of index needs FAISS and FAISS is not installed."""
    if isinstance(faiss, MissingFaiss):
        for kind in kinds:
            if kind not in (AUTO, FLAT):
                raise MissingExtraError(PACKAGE, EXTRA, f"an index of kind {kind}") from faiss.error
