"""Read documents of a store: by id, by filter, or all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from typing_extensions import Self

from ragembed.adapters.filter_warnings import FilterWarnings
from ragembed.config.fields import one_of
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.filters import And, Ids, Where, parse
from ragembed.langchain.derived import twin
from ragembed.langchain.documents import as_list, to_document
from ragembed.langchain.lazy_store import LazyStore
from ragembed.stopping import in_thread
from ragembed.types import Floats

LangChainFilter: TypeAlias = "Where | Callable[[dict[str, Any]], bool]"
"""A filter: a dictionary such as ``{"year": {"$gte": 2020}}``, an expression such as ``"year >= 2020"``, or a function
of the metadata, which is called for every document."""

_INCLUDED = ("documents", "metadatas", "vectors", "embeddings")

_PAGE = 1024
"""Number of documents that an asynchronous iteration reads at once."""


class StoredDocuments:
    """The documents of a store, which may not exist yet."""

    _lazy: LazyStore
    _filter_warnings: FilterWarnings

    @property
    def path(self) -> Path:
        """Folder of the store."""
        return self._lazy.path

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings that were given, or those saved in the store."""
        return self._lazy.embeddings

    @property
    def store(self) -> Store:
        """The :class:`ragembed.Store` with the documents, created if it does not exist yet."""
        return self._lazy.get_or_create()

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return documents by id, in the order of ``ids``, each once; unknown ids are left out."""
        store = self._lazy.get()
        return [] if store is None else [to_document(record) for record in store.get(as_list("ids", ids))]

    def get(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: LangChainFilter | None = None,
        limit: int | None = None,
        offset: int = 0,
        include: Iterable[str] = ("documents", "metadatas"),
    ) -> dict[str, list[Any]]:
        """Return documents by id, by filter, or all of them, as a dictionary of lists.

        Parameters
        ----------
        ids : iterable of str, optional
            Ids of documents; unknown ids are left out. The result has their order.
        where : str, dict or callable, optional
            Selects documents, as ``filter`` of the searches. With ``ids``, documents have to match both.
        limit : int, optional
            Maximum number of documents; by default all.
        offset : int
            Number of documents to skip.
        include : iterable of {"documents", "metadatas", "vectors"}
            What to return besides the ids. ``"embeddings"`` is another name for ``"vectors"``.

        Returns
        -------
        dict of str to list
            The lists ``"ids"``, and one for each name in ``include``: texts, metadata, or vectors as lists of floats.
            Without ``ids``, documents are in order of insertion.

        Raises
        ------
        ConfigError
            If ``include`` has an unknown name, or ``limit`` or ``offset`` is negative.
        """
        names = as_list("include", include)
        for name in names:
            one_of("include", name, _INCLUDED)
        records = self._records(None if ids is None else list(dict.fromkeys(as_list("ids", ids))), where, limit, offset)
        documents = [to_document(record) for record in records]
        columns: dict[str, list[Any]] = {"ids": [record.id for record in records]}
        for name in names:
            if name == "documents":
                columns[name] = [document.page_content for document in documents]
            elif name == "metadatas":
                columns[name] = [document.metadata for document in documents]
            else:
                columns[name] = self.vectors(columns["ids"]).tolist()
        return columns

    def _records(
        self, ids: list[str] | None, where: LangChainFilter | None, limit: int | None, offset: int
    ) -> list[ChunkRecord]:
        store = self._lazy.get()
        if store is None:
            return []
        condition = self._where(store, where)
        if ids is None:
            return list(store.chunks(where=condition, limit=limit, offset=offset))
        matched = [*(() if condition is None else (parse(condition),)), Ids(tuple(ids))]
        by_id = {record.id: record for record in store.chunks(where=And(tuple(matched)))}
        stored = [by_id[chunk_id] for chunk_id in ids if chunk_id in by_id]
        return stored[depth(0, offset) :][: None if limit is None else depth(limit, 0)]

    def vectors(self, ids: Iterable[str]) -> Floats:
        """Return the vectors of documents, which searches compare with the vector of the query.

        They have unit length, float32, shape ``(n, d)``, in the order of ``ids``. An id that is not in the store is a
        :class:`ragembed.errors.ConfigError`.
        """
        wanted, store = as_list("ids", ids), self._lazy.get()
        self._require_ids(wanted, set() if store is None else {record.id for record in store.get(wanted)})
        return np.zeros((0, 0), dtype=np.float32) if store is None else store.vectors(wanted)

    def _require_ids(self, wanted: Iterable[str], stored: Collection[str]) -> None:
        for chunk_id in wanted:
            if chunk_id not in stored:
                raise ConfigError(f"no document has the id {chunk_id!r}: expected an id of the store {self.path}")

    def ids(self) -> list[str]:
        """Return the ids of all documents, in order of insertion."""
        store = self._lazy.get()
        return [] if store is None else store.ids()

    def iter_documents(self, *, filter: LangChainFilter | None = None) -> Iterator[Document]:
        """Yield the documents that match a filter, by default all, in order of insertion and from one snapshot."""
        store = self._lazy.get()
        if store is not None:
            yield from (to_document(record) for record in store.chunks(where=self._where(store, filter)))

    async def aiter_documents(self, *, filter: LangChainFilter | None = None) -> AsyncIterator[Document]:
        """Run :meth:`iter_documents` in a thread, 1,024 documents at a time."""
        documents = self.iter_documents(filter=filter)
        while page := await in_thread(lambda: list(islice(documents, _PAGE))):
            for document in page:
                yield document

    aget_by_ids = twin(get_by_ids)
    aget = twin(get)
    avectors = twin(vectors)
    aids = twin(ids)

    def __iter__(self) -> Iterator[Document]:
        return self.iter_documents()

    def __contains__(self, chunk_id: object) -> bool:
        return isinstance(chunk_id, str) and bool(self.get_by_ids([chunk_id]))

    def __len__(self) -> int:
        store = self._lazy.get()
        return 0 if store is None else len(store)

    def __bool__(self) -> bool:
        return True  # an empty store is also true in ``if vector_store``

    def _where(self, store: Store, filter: LangChainFilter | None) -> Where | None:
        """Convert a filter to the form that stores take; a function is called with the metadata of every document."""
        if filter is None:
            return None
        if isinstance(filter, (str, Mapping)) or not callable(filter):
            where = parse(filter)
            self._filter_warnings.warn(store, where, stacklevel=4)
            return where
        return Ids(tuple(record.id for record in store.chunks() if filter(to_document(record).metadata)))

    def close(self) -> None:
        """Close the files of the store; the next use opens them again. The folder is not removed."""
        self._lazy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def depth(k: int, offset: int) -> int:
    """Return the number of hits to read for ``k`` documents after the first ``offset``."""
    for name, number in (("offset", offset), ("k", k)):
        if number < 0:
            raise ConfigError(f"{name} is {number}: expected 0 or more")
    return k + offset
