"""``RagRecordManager``: the records of LangChain's indexing API, kept in the store itself."""

from __future__ import annotations

import time
from collections.abc import Sequence

from langchain_core.indexing import RecordManager

from ragembed.adapters.own_store import twin
from ragembed.errors import ConfigError
from ragembed.indexes.storage.run_records import Expected
from ragembed.langchain.lazy_store import LazyStore


class StoreRecords:
    """The records of one namespace in a store, as LangChain's indexing API reads and writes them."""

    namespace: str
    _lazy: LazyStore
    _announced: frozenset[str]

    def create_schema(self) -> None:
        """Do nothing: every store already has the tables."""

    def get_time(self) -> float:
        """Return the present time in seconds since 1970, later than every record even if the clock was set back."""
        store = self._lazy.get()
        return time.time() if store is None else store.run_records(self.namespace).now()

    def update(
        self, keys: Sequence[str], *, group_ids: Sequence[str | None] | None = None, time_at_least: float | None = None
    ) -> None:
        """Record documents as updated now; ids that are not in the store are skipped.

        Without ``group_ids``, groups do not change. A :class:`ragembed.errors.ConfigError` is raised if the numbers of
        keys and groups differ, or ``time_at_least`` is in the future.
        """
        if group_ids is not None and len(group_ids) != len(keys):
            raise ConfigError(f"got {len(group_ids)} group_ids for {len(keys)} keys: expected one per key")
        if time_at_least is not None and time_at_least > (now := self.get_time()):
            raise ConfigError(
                f"time_at_least is {time_at_least}, later than the present {now}: expected a time in the past"
            )
        store = self._lazy.get()
        if store is not None:
            with self._lazy.writing() as wait_seconds:
                store.run_records(self.namespace).note(keys, group_ids, wait_seconds)
            self._announced -= frozenset(keys)  # a later document with one of these ids belongs to another run

    def exists(self, keys: Sequence[str]) -> list[bool]:
        """Return for each key whether the document is recorded; recorded documents are in the store."""
        store = self._lazy.get()
        noted = set() if store is None else store.run_records(self.namespace).noted(keys)
        self._announced = frozenset(keys) - noted  # a run adds these documents next
        return [key in noted for key in keys]

    def list_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Return up to ``limit`` keys, oldest first, of these groups and updated between ``after`` and ``before``."""
        store = self._lazy.get()
        return [] if store is None else store.run_records(self.namespace).keys(before, after, group_ids, limit)

    def delete_keys(self, keys: Sequence[str]) -> None:
        """Delete the records of documents; unknown keys are ignored."""
        store = self._lazy.get()
        if store is not None:
            with self._lazy.writing() as wait_seconds:
                store.run_records(self.namespace).forget(keys, wait_seconds)

    def expected(self, ids: Sequence[str]) -> Expected:
        """Return the documents among ``ids`` that a run of this record manager is about to add."""
        return Expected(self.namespace, self._announced.intersection(ids))

    acreate_schema = twin(create_schema)
    aget_time = twin(get_time)
    aupdate = twin(update)
    aexists = twin(exists)
    alist_keys = twin(list_keys)
    adelete_keys = twin(delete_keys)


class RagRecordManager(StoreRecords, RecordManager):
    """Record manager for LangChain's indexing API, ``langchain_core.indexing.index`` and ``aindex``.

    Create it with :meth:`RagVectorStore.record_manager`, and pass the same vector store to ``index``.

    The records are rows in the database of the store, so they always match its documents. A record is deleted together
    with its document. If a run is killed after it added documents and before it recorded them, the next run writes the
    documents again, or removes them in its cleanup if they are no longer in the source.

    Parameters
    ----------
    lazy_store : LazyStore
        The store of a :class:`RagVectorStore`.
    namespace : str
        Name that separates several programs that index into the same store.

    Examples
    --------
    .. code-block:: python

        from langchain_core.documents import Document
        from langchain_core.indexing import index

        from ragembed.langchain import RagEmbeddings, RagVectorStore

        documents = [Document("Tea is brewed with hot water.", metadata={"source": "tea.md"})]
        vector_store = RagVectorStore(RagEmbeddings().fit([documents[0].page_content]))
        records = vector_store.record_manager("my-documents")
        found = index(documents, records, vector_store, cleanup="full", key_encoder="sha256")
        print(found["num_added"])

    .. code-block:: text

        1
    """

    def __init__(self, lazy_store: LazyStore, namespace: str = "default") -> None:
        super().__init__(namespace)
        self._lazy = lazy_store
        self._announced = frozenset()
