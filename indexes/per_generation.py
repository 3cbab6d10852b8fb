"""A value that is kept until a store changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class PerGeneration(Generic[Value]):
    """Keeps the value of one generation of a store. Threads may share an instance.

    The value of the generation before is never changed or closed, so a thread that still uses it may go on.
    Whoever changes a value in place holds ``lock``.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Drop what is kept, because the store may have been replaced."""
        with self.lock:
            self._kept: tuple[object, Value] | None = None

    def of(self, generation: object, make: Callable[[Value | None], Value]) -> Value:
        """Return the value of ``generation``, made once, under the lock.

        ``make`` gets the value of another generation, or None if there is none.
        """
        with self.lock:
            if self._kept is None or self._kept[0] != generation:
                self._kept = generation, make(None if self._kept is None else self._kept[1])
            return self._kept[1]
