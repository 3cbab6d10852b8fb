"""The records of indexing runs of one namespace, as a store gives them to programs that synchronise documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from ragembed.indexes import run_records
from ragembed.indexes.reader import Reader
from ragembed.indexes.writer import StoreWriter


class RunRecords:
    """The records of one namespace in a store; see :meth:`ragembed.indexes.Store.run_records`."""

    def __init__(
        self, namespace: str, reader: Reader, writer: Callable[[float], AbstractContextManager[StoreWriter]]
    ) -> None:
        self.namespace = namespace
        self._reader = reader
        self._writer = writer

    def now(self) -> float:
        """Return the time, in seconds since 1970; it is later than that of every record."""
        return self._reader.read(lambda view: run_records.now(view.connection, self.namespace))

    def noted(self, keys: Sequence[str]) -> set[str]:
        """Return those of ``keys`` that a run has taken note of."""
        return self._reader.read(lambda view: run_records.noted(view.connection, self.namespace, keys))

    def keys(
        self,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str | None] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Return keys by time, at most ``limit``: updated before and after these times, of any of these groups.

        The group of a chunk that a killed run wrote is not known, so it counts to each.
        """
        wanted = before, after, group_ids, limit
        return self._reader.read(lambda view: run_records.listed(view.connection, self.namespace, *wanted))

    def note(
        self, keys: Sequence[str], group_ids: Sequence[str | None] | None = None, wait_seconds: float = 0.0
    ) -> None:
        """Take note of ``keys`` as of now; those that are no chunk's are left out.

        Without ``group_ids``, one for each key, groups stay as they are.
        """
        with self._writer(wait_seconds) as writer:
            writer.note_run(self.namespace, keys, group_ids)

    def forget(self, keys: Sequence[str], wait_seconds: float = 0.0) -> None:
        """Delete the records of ``keys``."""
        with self._writer(wait_seconds) as writer:
            writer.forget_run(self.namespace, keys)
