"""``RagRecordManager``: LangChain's record of what indexing wrote, kept in the store that it wrote to."""

from __future__ import annotations

import time
from collections.abc import Sequence

from langchain_core.indexing import RecordManager
from langchain_core.runnables import run_in_executor

from ragembed.errors import ConfigError
from ragembed.indexes.storage.run_records import Expected
from ragembed.langchain.lazy_store import LazyStore


class RagRecordManager(RecordManager):
    """Record manager for ``langchain_core.indexing.index`` and ``aindex`` into a ``RagVectorStore``.

    The records are rows of the store's own database, so the two cannot drift apart. A record is deleted with its
    document, and only documents in the store have one. If a run is killed after it added documents and before it
    recorded them, the next run repairs that: it writes them again or, if they are gone from the source, removes them in
    its cleanup.

    ``RagVectorStore.record_manager`` makes one; pass the same vector store to ``index``. ``namespace`` separates the
    programs that index into one store.
    """

    def __init__(self, lazy_store: LazyStore, namespace: str = "default") -> None:
        super().__init__(namespace)
        self._lazy = lazy_store
        self._announced: frozenset[str] = frozenset()

    def create_schema(self) -> None:
        """Do nothing: every store has the tables."""

    def get_time(self) -> float:
        """Return the time, in seconds since 1970, later than that of every record, even where the clock went back."""
        store = self._lazy.get()
        return time.time() if store is None else store.run_records(self.namespace).now()

    def update(
        self,
        keys: Sequence[str],
        *,
        group_ids: Sequence[str | None] | None = None,
        time_at_least: float | None = None,
    ) -> None:
        """Record documents, by id, as of now; ids that are not in the store are skipped.

        Without ``group_ids``, one for each key, groups stay as they are. Raises :class:`ConfigError`, a ValueError, if
        there are more or fewer groups than keys, or if ``time_at_least`` is in the future.
        """
        if group_ids is not None and len(group_ids) != len(keys):
            raise ConfigError(f"got {len(group_ids)} group_ids for {len(keys)} keys: expected one for each")
        if time_at_least is not None and time_at_least > (now := self.get_time()):
            raise ConfigError(f"time_at_least is {time_at_least}, and it is {now}: expected a time in the past")
        store = self._lazy.get()
        if store is not None:
            with self._lazy.writing() as wait_seconds:
                store.run_records(self.namespace).note(keys, group_ids, wait_seconds)
            self._announced -= frozenset(keys)  # a later document with one of these ids is not of this run

    def exists(self, keys: Sequence[str]) -> list[bool]:
        """Return for each key whether a run has recorded it; its document is then in the store."""
        store = self._lazy.get()
        noted = set() if store is None else store.run_records(self.namespace).noted(keys)
        self._announced = frozenset(keys) - noted  # a run adds next what it asked about and did not find
        return [key in noted for key in keys]

    def list_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Return keys, oldest first: updated before and after these times, of any of these groups."""
        store = self._lazy.get()
        return [] if store is None else store.run_records(self.namespace).keys(before, after, group_ids, limit)

    def delete_keys(self, keys: Sequence[str]) -> None:
        """Delete the records of ``keys``; unknown ones are no error."""
        store = self._lazy.get()
        if store is not None:
            with self._lazy.writing() as wait_seconds:
                store.run_records(self.namespace).forget(keys, wait_seconds)

    def expected(self, ids: Sequence[str]) -> Expected:
        """Return which of ``ids`` a run of this record manager is about to add."""
        return Expected(self.namespace, self._announced.intersection(ids))

    # Asynchronous

    async def acreate_schema(self) -> None:
        """Do nothing: every store has the tables."""

    async def aget_time(self) -> float:
        """Run :meth:`get_time` in a thread."""
        return await run_in_executor(None, self.get_time)

    async def aupdate(
        self,
        keys: Sequence[str],
        *,
        group_ids: Sequence[str | None] | None = None,
        time_at_least: float | None = None,
    ) -> None:
        """Run :meth:`update` in a thread."""
        await run_in_executor(None, self.update, keys, group_ids=group_ids, time_at_least=time_at_least)

    async def aexists(self, keys: Sequence[str]) -> list[bool]:
        """Run :meth:`exists` in a thread."""
        return await run_in_executor(None, self.exists, keys)

    async def alist_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Run :meth:`list_keys` in a thread."""
        return await run_in_executor(None, self.list_keys, before=before, after=after, group_ids=group_ids, limit=limit)

    async def adelete_keys(self, keys: Sequence[str]) -> None:
        """Run :meth:`delete_keys` in a thread."""
        await run_in_executor(None, self.delete_keys, keys)
