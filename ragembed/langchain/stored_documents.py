"""The documents of a store: read, add, replace and delete them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, overload

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from typing_extensions import Self

from ragembed.adapters.own_store import finish_write, twin
from ragembed.config.fields import one_of
from ragembed.corpus import blocks
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.filters import And, Ids, Where, parse
from ragembed.indexes.storage.writer import StoreWriter
from ragembed.langchain.documents import (
    as_list,
    chosen_ids,
    detached,
    documents_of,
    reject_unknown,
    to_document,
    to_record,
)
from ragembed.langchain.embeddings import RagEmbeddings, model_name
from ragembed.langchain.lazy_store import LazyStore, require_store
from ragembed.langchain.record_manager import RagRecordManager
from ragembed.models.vectors import checked_vectors
from ragembed.progress import in_thread
from ragembed.types import Floats

LangChainFilter: TypeAlias = "Where | Callable[[dict[str, Any]], bool]"
"""A filter: a dictionary such as ``{"year": {"$gte": 2020}}``, an expression such as ``"year >= 2020"``, or a function
of the metadata, which is called for every document."""
Progress = Callable[[int, int], None]
"""Called with the number of embedded texts and the number of all texts."""

BATCH_SIZE = 1024
"""Default number of texts to embed together."""
_INCLUDED = ("documents", "metadatas", "vectors", "embeddings")
_PAGE = 1024
"""Number of documents that an asynchronous iteration reads at once."""


class StoredDocuments:
    """The documents of a store, which may not exist yet. A method that writes changes all of its documents or none."""

    _lazy: LazyStore

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

    # Write

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Iterable[str | None] | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add documents; either all of them are added, or none.

        A document replaces an earlier one with the same id. If the process is killed, the same call embeds only the
        remaining texts. If the store has outgrown its index, a new index is selected.

        Parameters
        ----------
        documents : iterable of Document
            The documents. Their metadata must be JSON values, dates, times, UUIDs, paths, decimals or NumPy scalars.
        ids : iterable of (str or None), optional
            Id of each document; by default the id of the document, else a hash of its text and metadata, so the same
            call again adds nothing.
        batch_size : int, optional
            Number of texts to embed together; 1,024 by default.
        progress : callable, optional
            Called after each batch with the number of embedded texts and the number of all texts.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of str
            The ids, in order.

        Raises
        ------
        ConfigError
            If the numbers of documents and ids differ, or ``batch_size`` is below 1.
        BudgetError
            If no index meets the budget of the store; the documents are saved first.

        Warns
        -----
        IndexWarning
            If the index finds too little or is too slow.
        """
        reject_unknown("add_documents", kwargs)
        require_batch_size(batch_size)
        documents = list(documents)
        chosen = chosen_ids(documents, ids)
        records = list({i: to_record(document, i) for i, document in zip(chosen, documents, strict=True)}.values())
        self._write(records, lambda writer: stage_texts(writer, records, batch_size, progress))
        return chosen

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts with their metadata, one for each text; the rest as in :meth:`add_documents`."""
        reject_unknown("add_texts", kwargs)
        return self.add_documents(documents_of(texts, metadatas), ids=ids, batch_size=batch_size, progress=progress)

    def add_embeddings(
        self,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
    ) -> list[str]:
        """Add texts with vectors that the store's embeddings have already made; return the ids, in order.

        A text may occur several times with different vectors, such as contextual embeddings.

        Parameters
        ----------
        text_embeddings : iterable of (str, sequence of float)
            Texts with their vectors.
        metadatas : iterable of dict, optional
            Metadata of each text.
        ids : iterable of (str or None), optional
            Id of each text; by default a hash of the text, its metadata and its vector.

        Raises
        ------
        ConfigError
            If the embeddings are :class:`RagEmbeddings`, because their stores save raw vectors, from before
            post-processing.
        """
        if isinstance(self.embeddings, RagEmbeddings):
            raise ConfigError(
                "a store with RagEmbeddings saves raw vectors, from before post-processing, and embeddings cannot be "
                "converted back to them: add the texts with add_texts"
            )
        pairs = list(text_embeddings)
        vectors = checked_vectors([vector for _, vector in pairs], len(pairs), model_name(self.embeddings))
        documents = documents_of([text for text, _ in pairs], metadatas)
        chosen = chosen_ids(documents, ids, vectors)
        records = list({i: to_record(document, i) for i, document in zip(chosen, documents, strict=True)}.values())
        texts = [document.page_content for document in documents]
        self._write(records, partial(stage, ids=chosen, texts=texts, vectors=vectors))
        return chosen

    def update_document(self, document_id: str, document: Document) -> None:
        """Replace the text, metadata and vector of a document; see :meth:`update_documents`."""
        self.update_documents([document_id], [document])

    def update_documents(self, ids: Iterable[str], documents: Iterable[Document]) -> None:
        """Replace the texts, metadata and vectors of documents, all of them or none; ``documents`` has one for each id.

        :meth:`add_documents` does the same, and also adds documents with new ids, which are a
        :class:`ragembed.errors.ConfigError` here.
        """
        wanted = as_list("ids", ids)
        self._require_ids(wanted, {document.id or "" for document in self.get_by_ids(wanted)})
        self.add_documents(documents, ids=wanted)

    @overload
    def delete(self, ids: Iterable[str] | None = None, *, filter: None = None, **kwargs: Any) -> bool: ...

    @overload
    def delete(self, ids: Iterable[str] | None = None, *, filter: LangChainFilter, **kwargs: Any) -> int: ...

    def delete(self, ids: Iterable[str] | None = None, *, filter: LangChainFilter | None = None, **kwargs: Any) -> int:
        """Delete documents by id or filter; without either, delete all documents and all records of files.

        Unknown ids are ignored. With both, the documents that match either are deleted. The result is the number of
        deleted documents with a filter, otherwise True.
        """
        reject_unknown("delete", kwargs)
        wanted = None if ids is None else as_list("ids", ids)
        store, deleted = self._lazy.get(), 0
        if store is not None and (wanted != [] or filter is not None):
            where = self._where(store, filter)
            with self._lazy.writing() as wait_seconds:
                if wanted is not None or where is not None:
                    deleted = store.delete(wanted or (), where=where, wait_seconds=wait_seconds)
                else:
                    store.delete(paths=store.sources(), where=And(()), wait_seconds=wait_seconds)
        return True if filter is None else deleted

    def clear(self) -> None:
        """Delete all documents."""
        self.delete()

    def merge_from(self, other: StoredDocuments) -> list[str]:
        """Add the documents of another store, which does not change, and return their ids.

        Documents with the same id are replaced. If both stores have the same embeddings, other than
        :class:`RagEmbeddings`, the vectors are copied; otherwise the texts are embedded again.
        """
        require_store(other._lazy)
        theirs = other._lazy.get()
        if theirs is None:
            return []
        ours_are_fitted = isinstance(self.embeddings, RagEmbeddings)
        is_same = not ours_are_fitted and model_name(self.embeddings) == model_name(other.embeddings)
        merged: list[str] = []
        for records in blocks(theirs.chunks(), BATCH_SIZE):
            texts = [record.chunk.embedded_text for record in records]
            ids = [record.id for record in records]
            vectors = theirs.vectors(ids) if is_same else None
            self._write([detached(record) for record in records], partial(stage, ids=ids, texts=texts, vectors=vectors))
            merged += ids
        return merged

    def record_manager(self, namespace: str = "default") -> RagRecordManager:
        """Return a record manager that keeps its records in this store, for ``langchain_core.indexing.index``.

        Several programs that index into the same store need different namespaces.
        """
        require_store(self._lazy)
        manager = RagRecordManager(self._lazy, namespace)
        self._lazy.record_managers.add(manager)
        return manager

    aget_by_ids = twin(get_by_ids)
    aget = twin(get)
    avectors = twin(vectors)
    aids = twin(ids)
    aadd_documents = twin(add_documents)
    aadd_texts = twin(add_texts)
    aadd_embeddings = twin(add_embeddings)
    aupdate_document = twin(update_document)
    aupdate_documents = twin(update_documents)
    adelete = twin(delete)
    aclear = twin(clear)
    amerge_from = twin(merge_from)

    def __iter__(self) -> Iterator[Document]:
        return self.iter_documents()

    def __contains__(self, chunk_id: object) -> bool:
        return isinstance(chunk_id, str) and bool(self.get_by_ids([chunk_id]))

    def __len__(self) -> int:
        store = self._lazy.get()
        return 0 if store is None else len(store)

    def __bool__(self) -> bool:
        return True  # an empty store is also true in ``if vector_store``

    def close(self) -> None:
        """Close the files of the store; the next use opens them again. The folder is not removed."""
        self._lazy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _where(self, store: Store, filter: LangChainFilter | None) -> Where | None:
        """Convert a filter to the form that stores take; a function is called with the metadata of every document."""
        if filter is None:
            return None
        if isinstance(filter, (str, Mapping)) or not callable(filter):
            where = parse(filter)
            self._lazy.warn_of_filter(store, where, stacklevel=4)
            return where
        return Ids(tuple(record.id for record in store.chunks() if filter(to_document(record).metadata)))

    def _write(
        self, records: Sequence[ChunkRecord], stage: Callable[[StoreWriter], Mapping[str, bytes] | None]
    ) -> None:
        """Commit ``records`` after ``stage`` has saved their vectors and returned the keys of given ones, by id."""
        if not records:
            return
        store = self._lazy.get_or_create([record.chunk.embedded_text for record in records])
        ids = [record.id for record in records]
        expected = [manager.expected(ids) for manager in list(self._lazy.record_managers)]
        with self._lazy.writing() as wait_seconds, store.writer(wait_seconds) as writer:
            keys = stage(writer) or {}
            writer.commit(chunks=records, expected=expected, keys=keys)
            finish_write(store, writer, self._lazy.fit_again)


def depth(k: int, offset: int) -> int:
    """Return the number of hits to read for ``k`` documents after the first ``offset``."""
    for name, number in (("offset", offset), ("k", k)):
        if number < 0:
            raise ConfigError(f"{name} is {number}: expected 0 or more")
    return k + offset


def require_batch_size(batch_size: int | None) -> None:
    """Raise :class:`ConfigError` if ``batch_size`` is below 1."""
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}: expected 1 or more")


def stage_texts(
    writer: StoreWriter, records: Sequence[ChunkRecord], batch_size: int | None, progress: Progress | None
) -> None:
    """Embed the texts of ``records`` in batches and save their vectors; call ``progress`` after each batch."""
    texts = [record.chunk.embedded_text for record in records]
    step = batch_size or BATCH_SIZE
    for start in range(0, len(texts), step):
        writer.stage(texts[start : start + step], batch_size=step)
        if progress is not None:
            progress(min(start + step, len(texts)), len(texts))


def stage(writer: StoreWriter, ids: Sequence[str], texts: Sequence[str], vectors: Floats | None) -> dict[str, bytes]:
    """Save the vectors of chunks, or embed their texts; return the keys of given vectors by id."""
    if vectors is None:
        writer.stage(texts)
        return {}
    return dict(zip(ids, writer.stage_vectors(texts, vectors), strict=True))
