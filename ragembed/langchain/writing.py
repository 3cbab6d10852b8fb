"""Add, replace and delete documents of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, overload
from weakref import WeakSet

from langchain_core.documents import Document

from ragembed.adapters.own_store import finish_write
from ragembed.corpus import blocks
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord
from ragembed.indexes.filters import And
from ragembed.indexes.writing.writer import StoreWriter
from ragembed.langchain.derived import twin
from ragembed.langchain.documents import as_list, chosen_ids, detached, documents_of, reject_unknown, to_record
from ragembed.langchain.embeddings import RagEmbeddings
from ragembed.langchain.external import model_name
from ragembed.langchain.lazy_store import require_store
from ragembed.langchain.reading import LangChainFilter, StoredDocuments
from ragembed.langchain.record_manager import RagRecordManager
from ragembed.models.vectors import checked_vectors
from ragembed.types import Floats

Progress = Callable[[int, int], None]
"""Called with the number of embedded texts and the number of all texts."""

BATCH_SIZE = 1024
"""Default number of texts to embed together."""


class WritableDocuments(StoredDocuments):
    """The documents of a store, to add, replace and delete; each method changes all of its documents or none."""

    _record_managers: WeakSet[RagRecordManager]

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

        A document replaces an earlier one with the same id. The vectors of finished batches are saved: if the process
        is killed, the same call embeds only the remaining texts. If the store has outgrown its index, a new index is
        selected.

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
        records = _last_of_each(to_record(document, i) for document, i in zip(documents, chosen, strict=True))
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
        records = _last_of_each(to_record(document, i) for document, i in zip(documents, chosen, strict=True))
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

    def merge_from(self, other: WritableDocuments) -> list[str]:
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
        self._record_managers.add(manager)
        return manager

    aadd_documents = twin(add_documents)
    aadd_texts = twin(add_texts)
    aadd_embeddings = twin(add_embeddings)
    aupdate_document = twin(update_document)
    aupdate_documents = twin(update_documents)
    adelete = twin(delete)
    aclear = twin(clear)
    amerge_from = twin(merge_from)

    def _write(
        self, records: Sequence[ChunkRecord], stage: Callable[[StoreWriter], Mapping[str, bytes] | None]
    ) -> None:
        """Commit ``records`` after ``stage`` has saved their vectors and returned the keys of given ones, by id."""
        if not records:
            return
        require_store(self._lazy)
        store = self._lazy.get_or_create([record.chunk.embedded_text for record in records])
        ids = [record.id for record in records]
        expected = [manager.expected(ids) for manager in list(self._record_managers)]
        with self._lazy.writing() as wait_seconds, store.writer(wait_seconds) as writer:
            keys = stage(writer) or {}
            writer.commit(chunks=records, expected=expected, keys=keys)
            finish_write(store, writer, self._lazy.fit_again)


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


def _last_of_each(records: Iterable[ChunkRecord]) -> list[ChunkRecord]:
    return list({record.id: record for record in records}.values())
