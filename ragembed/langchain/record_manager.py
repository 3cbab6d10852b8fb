"""``RagRecordManager``: LangChain's record of what indexing wrote, kept in the store that it wrote to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from langchain_core.indexing import RecordManager
from langchain_core.runnables import run_in_executor

from ragembed.errors import ConfigError
from ragembed.indexes.run_records import Expected

if TYPE_CHECKING:
    from ragembed.langchain.managing import Managing


class RagRecordManager(RecordManager):
    """Record manager for ``langchain_core.indexing.index`` and ``aindex`` into a ``RagVectorStore``.

    Its records are rows of the store's own database, so the two cannot drift apart: a record goes with its document,
    whoever deletes that, and only documents that are in the store have one. A run that is killed after it added
    documents and before it took note of them is put right by the next, which writes them again or, where they are not
    wanted any more, removes them in its cleanup.

    ``RagVectorStore.record_manager`` makes one.

    Parameters
    ----------
    vector_store
        The store that is written to; pass the same object to ``index``.
    namespace
        Keeps apart what several programs index into one store.
    """

    def __init__(self, vector_store: Managing, namespace: str = "default") -> None:
        super().__init__(namespace)
        self._opened = vector_store._opened
        self._announced: frozenset[str] = frozenset()
        vector_store._managers.add(self)

    def create_schema(self) -> None:
        """Do nothing: every store has the tables."""

    def get_time(self) -> float:
        """Return the time, in seconds since 1970, later than that of every record, even where the clock went back."""
        store = self._opened.store()
        return time.time() if store is None else store.run_records(self.namespace).now()

    def update(
        self,
        keys: Sequence[str],
        *,
        group_ids: Sequence[str | None] | None = None,
        time_at_least: float | None = None,
    ) -> None:
        """Take note of documents, by id, as of now; ids that are not in the store are left out.

        Without ``group_ids``, one for each key, groups stay as they are. Raises :class:`ConfigError`, a ValueError,
        where there are more or fewer groups than keys, or ``time_at_least`` is in the future.
        """
        if group_ids is not None and len(group_ids) != len(keys):
            raise ConfigError(f"got {len(group_ids)} group_ids for {len(keys)} keys: expected one for each")
        if time_at_least is not None and time_at_least > (now := self.get_time()):
            raise ConfigError(f"time_at_least is {time_at_least}, and it is {now}: expected a time in the past")
        store = self._opened.store()
        if store is not None:
            with self._opened.writing() as wait_seconds:
                store.run_records(self.namespace).note(keys, group_ids, wait_seconds)
            self._announced -= frozenset(keys)  # what has one of these ids later on is not of this run

    def exists(self, keys: Sequence[str]) -> list[bool]:
        """Tell of each key whether a run has taken note of it; the document is in the store then."""
        store = self._opened.store()
        noted = set() if store is None else store.run_records(self.namespace).noted(keys)
        self._announced = frozenset(keys) - noted  # those that a run asks about and does not find, it adds next
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
        store = self._opened.store()
        return [] if store is None else store.run_records(self.namespace).keys(before, after, group_ids, limit)

    def delete_keys(self, keys: Sequence[str]) -> None:
        """Delete the records of ``keys``; unknown ones are no error."""
        store = self._opened.store()
        if store is not None:
            with self._opened.writing() as wait_seconds:
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
