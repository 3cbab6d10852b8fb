"""What is kept in a vector store: adding, deleting, and looking at documents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any
from weakref import WeakSet

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import run_in_executor
from typing_extensions import Self

from ragembed.errors import ConfigError
from ragembed.indexes import Budget, ChunkRecord
from ragembed.indexes.filters import And
from ragembed.indexes.index_choice import tell
from ragembed.indexes.writer import StoreWriter
from ragembed.langchain.arguments import chosen_ids, documents_of, listed, refuse
from ragembed.langchain.documents import to_document, to_record
from ragembed.langchain.embeddings import RagEmbeddings
from ragembed.langchain.external import checked_vectors, model_name
from ragembed.langchain.lazy_store import LazyStore
from ragembed.langchain.querying import LangChainFilter, Querying, resolved
from ragembed.langchain.record_manager import RagRecordManager

Progress = Callable[[int, int], None]
"""Is told how many texts are embedded, and how many there are."""

BATCH = 1024
"""Texts that are embedded together."""


class Managing(Querying):
    """The part of the vector store that changes and lists documents."""

    def __init__(
        self,
        embedding: Embeddings | None = None,
        path: str | Path | None = None,
        *,
        index: str | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._opened = LazyStore(embedding, path, index, budget)
        self._managers: WeakSet[RagRecordManager] = WeakSet()

    @property
    def path(self) -> Path:
        """Folder of the store."""
        return self._opened.path

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings that were given, or those that the store brings along."""
        return self._opened.embeddings

    # Adding and removing

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Iterable[str | None] | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add documents and return their ids, in order; all of them are added, or none.

        The id is that of ``ids``, else the document's, else a new UUID. A document whose id is in the store already,
        or comes earlier in ``documents``, replaces that one. ``batch_size`` is the number of texts that are embedded
        together, 1,024 if left out; ``progress`` is called after each batch with the number of texts that are done and
        of all. Batches are kept: repeated after it was killed, the call embeds only what is missing.

        Where the store has outgrown its index, that is picked anew; what is to be said of it is a
        :class:`ragembed.errors.IndexWarning`. Raises :class:`ragembed.errors.BudgetError`, once the documents are in
        the store, where no index meets the budget that the store was made with.
        """
        refuse("add_documents", kwargs)
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
        """Add texts with their metadata and return their ids; see :meth:`add_documents`."""
        refuse("add_texts", kwargs)
        return self.add_documents(documents_of(texts, metadatas), ids=ids, batch_size=batch_size, progress=progress)

    def add_embeddings(
        self,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
    ) -> list[str]:
        """Add texts with the vectors that the store's embeddings made of them, and return their ids.

        Nothing is embedded; in all else as :meth:`add_documents`. A text has one vector: raises :class:`ConfigError`
        where another is given than that of a document with the same text, and for :class:`RagEmbeddings`, whose store
        keeps vectors from before post-processing.
        """
        if isinstance(self.embeddings, RagEmbeddings):
            raise ConfigError(
                "the store keeps vectors from before the post-processing of its RagEmbeddings, which finished ones do "
                "not tell: add the texts with add_texts"
            )
        pairs = list(text_embeddings)
        vectors = checked_vectors([vector for _, vector in pairs], len(pairs), model_name(self.embeddings))
        documents = documents_of([text for text, _ in pairs], metadatas)
        chosen = chosen_ids(documents, ids)
        records = _last_of_each(to_record(document, i) for document, i in zip(documents, chosen, strict=True))
        texts = [document.page_content for document in documents]
        self._write(records, lambda writer: writer.stage_vectors(texts, vectors))
        return chosen

    def _write(self, records: Sequence[ChunkRecord], stage: Callable[[StoreWriter], object]) -> None:
        """Commit ``records``, whose vectors ``stage`` commits before."""
        if not records:
            return
        store = self._opened.made()
        ids = [record.id for record in records]
        expected = [manager.expected(ids) for manager in list(self._managers)]
        with self._opened.writing() as wait_seconds, store.writer(wait_seconds) as writer:
            stage(writer)
            writer.commit(chunks=records, expected=expected)
            writer.merge()
            tell(writer.settle())

    def delete(
        self,
        ids: Iterable[str] | None = None,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> bool:
        """Delete documents and return True: those with these ids and those that ``filter`` selects.

        Without either, all documents, and what is known of files. Unknown ids are no error.
        """
        refuse("delete", kwargs)
        wanted = None if ids is None else listed("ids", ids)
        store = self._opened.store()
        if store is None or (wanted == [] and filter is None):
            return True
        where = resolved(store, filter)
        with self._opened.writing() as wait_seconds:
            if wanted is not None or where is not None:
                store.delete(wanted or (), where=where, wait_seconds=wait_seconds)
            else:
                store.delete(paths=store.sources(), where=And(()), wait_seconds=wait_seconds)
        return True

    def clear(self) -> None:
        """Delete all documents."""
        self.delete()

    # Looking in

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids, each once and in the order asked; unknown ids are left out."""
        store = self._opened.store()
        return [] if store is None else [to_document(record) for record in store.get(listed("ids", ids))]

    def ids(self) -> list[str]:
        """Return the ids of all documents, in order of insertion."""
        store = self._opened.store()
        return [] if store is None else store.ids()

    def iter_documents(
        self,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
    ) -> Iterator[Document]:
        """Yield the documents that ``filter`` selects, in order of insertion, as they are when iteration begins."""
        store = self._opened.store()
        if store is not None:
            yield from (to_document(record) for record in store.chunks(where=resolved(store, filter)))

    def __iter__(self) -> Iterator[Document]:
        return self.iter_documents()

    def __contains__(self, chunk_id: object) -> bool:
        return isinstance(chunk_id, str) and bool(self.get_by_ids([chunk_id]))

    def __len__(self) -> int:
        store = self._opened.store()
        return 0 if store is None else len(store)

    def __bool__(self) -> bool:
        return True  # ``if vector_store`` asks whether there is one, not whether it holds documents

    # Indexing

    def record_manager(self, namespace: str = "default") -> RagRecordManager:
        """Return a record manager for ``langchain_core.indexing.index``, whose records are kept in the store itself.

        ``namespace`` keeps apart what several programs index into one store.
        """
        return RagRecordManager(self, namespace)

    # Closing

    def close(self) -> None:
        """Let go of the store's files; the next use opens them again. A temporary folder goes with the object."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Asynchronous, beside those that LangChain has for the others

    async def aadd_embeddings(
        self,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
    ) -> list[str]:
        """Run :meth:`add_embeddings` in a thread."""
        return await run_in_executor(None, self.add_embeddings, text_embeddings, metadatas, ids=ids)

    async def aclear(self) -> None:
        """Run :meth:`clear` in a thread."""
        await run_in_executor(None, self.clear)

    async def aids(self) -> list[str]:
        """Run :meth:`ids` in a thread."""
        return await run_in_executor(None, self.ids)

    async def aiter_documents(
        self,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
    ) -> AsyncIterator[Document]:
        """Yield what :meth:`iter_documents` does, read in a thread, a thousand at a time."""
        found = self.iter_documents(filter=filter)
        while batch := await run_in_executor(None, list, islice(found, BATCH)):
            for document in batch:
                yield document


def require_batch_size(batch_size: int | None) -> None:
    """Raise :class:`ConfigError` for a number of texts that cannot be embedded together."""
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}: expected 1 or more texts")


def stage_texts(
    writer: StoreWriter, records: Sequence[ChunkRecord], batch_size: int | None, progress: Progress | None
) -> None:
    """Embed and stage the texts of ``records``, ``batch_size`` at a time; ``progress`` is told after each batch."""
    texts = [record.chunk.embedded_text for record in records]
    step = batch_size or BATCH
    for start in range(0, len(texts), step):
        writer.stage(texts[start : start + step], batch_size=step)
        if progress is not None:
            progress(min(start + step, len(texts)), len(texts))


def _last_of_each(records: Iterable[ChunkRecord]) -> list[ChunkRecord]:
    return list({record.id: record for record in records}.values())
