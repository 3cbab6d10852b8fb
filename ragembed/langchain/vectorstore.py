"""``RagVectorStore``: ragembed's store as a LangChain vector store."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import run_in_executor
from numpy.typing import NDArray

from ragembed.errors import ConfigError, StoreNotFoundError
from ragembed.indexes import Budget, Fusion, Store
from ragembed.indexes.index_choice import tell
from ragembed.indexes.layout import is_store
from ragembed.indexes.writer import StoreWriter
from ragembed.langchain.arguments import chosen_ids, documents_of, refuse
from ragembed.langchain.documents import loose
from ragembed.langchain.embeddings import RagEmbeddings
from ragembed.langchain.external import model_name
from ragembed.langchain.managing import BATCH, Managing, Progress, require_batch_size, stage_texts

Floats = NDArray[np.float32]
Item = TypeVar("Item")


class RagVectorStore(Managing):
    """Vector store in a folder: cosine, BM25 and hybrid search with FAISS and SQLite, every write whole or not at all.

    It is the store of ragembed's command line: a folder made by ``ragembed index`` opens here, and documents found
    in it tell where they stand in their file in ``metadata`` (``source``, ``title``, ``headings``, ``start_line``,
    ``end_line``, ``page``). Documents added here come back with their own metadata, which has to be JSON.

    Threads may share one; several processes may open one folder, and writes wait for one another. The asynchronous
    methods run the others in a thread.

    Setup:
        Install ``ragembed`` with LangChain, FAISS and the default model.

        ```bash
        pip install -U "ragembed[langchain,cpu,embedded]"
        ```

    Key init args:
        * embedding: any LangChain embeddings. May be left out for a store that exists and was made with ragembed's own
          embedder, which it brings along; otherwise it must be the one the store was made with.
        * path: folder of the store, made at the first addition if need be. Left out, a temporary folder that goes
          with the object.
        * index: kind of FAISS index, by a name of docs/index-choice.md or a factory string; ``"auto"``, exact below
          50,000 vectors, if left out.
        * budget: a :class:`ragembed.indexes.Budget` of memory, latency and recall that the index is to keep to.
        * language: what decides on the stems that words are found by, as docs/search.md lists them; English for a new
          store if left out.

    Instantiate:
        ```python
        from ragembed.langchain import RagEmbeddings, RagVectorStore

        embeddings = RagEmbeddings().fit(["foo", "thud"])
        vector_store = RagVectorStore(embeddings, path="my-store")
        ```

        or, fitting the embeddings and adding at once:

        ```python
        other_store = RagVectorStore.from_texts(["foo", "thud"], RagEmbeddings(), path="other-store")
        ```

    Add Documents:
        A document whose id is there already replaces that one.

        ```python
        from langchain_core.documents import Document

        document_1 = Document(id="1", page_content="foo", metadata={"baz": "bar"})
        document_2 = Document(id="2", page_content="thud", metadata={"bar": "baz"})
        document_3 = Document(id="3", page_content="i will be deleted :(")

        vector_store.add_documents([document_1, document_2, document_3])
        ```

    Update Documents:
        ```python
        vector_store.add_documents([Document(id="1", page_content="foo, again", metadata={"baz": "bar"})])
        ```

    Inspect Documents:
        ```python
        len(vector_store), vector_store.ids(), "1" in vector_store
        for doc in vector_store.iter_documents(filter={"bar": "baz"}):
            print(f"{doc.id}: {doc.page_content}")
        ```

        ```txt
        2: thud
        ```

    Delete Documents:
        ```python
        vector_store.delete(ids=["3"])
        ```

    Search:
        ```python
        results = vector_store.similarity_search(query="thud", k=1)
        for doc in results:
            print(f"* {doc.page_content} [{doc.metadata}]")
        ```

        ```txt
        * thud [{'bar': 'baz'}]
        ```

    Search with filter:
        Documents that do not match are left out before the search, so that ``k`` are found where ``k`` match. The
        operators are ``$eq $ne $gt $gte $lt $lte $in $nin $exists $contains $like $and $or $not``; a function of the
        metadata works, too, and is called for every document.

        ```python
        results = vector_store.similarity_search(query="thud", k=1, filter={"bar": "baz"})
        ```

    Search with score:
        The score is the cosine, from -1 to 1, higher is better. The relevance score is ``(1 + cosine) / 2``.

        ```python
        results = vector_store.similarity_search_with_score(query="thud", k=1)
        for doc, score in results:
            print(f"* [SIM={score:.3f}] {doc.page_content} [{doc.metadata}]")
        ```

    Hybrid search:
        Cosine and BM25 together find names, numbers and rare words that vectors miss.

        ```python
        results = vector_store.hybrid_search(query="thud", k=1)
        ```

    Async:
        ```python
        await vector_store.aadd_documents([document_1])
        results = await vector_store.asimilarity_search(query="thud", k=1)
        await vector_store.adelete(ids=["3"])
        ```

    Use as Retriever:
        The types of search are ``similarity``, ``similarity_score_threshold``, ``mmr``, ``hybrid`` and ``lexical``.

        ```python
        retriever = vector_store.as_retriever(
            search_type="mmr",
            search_kwargs={"k": 1, "fetch_k": 2, "lambda_mult": 0.5},
        )
        retriever.invoke("thud")
        ```

    Index:
        Records of LangChain's indexing API live in the store itself.

        ```python
        from langchain_core.indexing import index

        records = vector_store.record_manager("my-documents")
        index([document_1, document_2], records, vector_store, cleanup="full", key_encoder="sha256")
        ```

    Open again:
        The same goes for a store made by ``ragembed index``.

        ```python
        vector_store = RagVectorStore(path="my-store")
        ```
    """

    # Making

    def __init__(
        self,
        embedding: Embeddings | None = None,
        path: str | Path | None = None,
        *,
        index: str | None = None,
        budget: Budget | None = None,
        language: str | None = None,
    ) -> None:
        super().__init__(embedding, path, index=index, budget=budget)
        if language is not None:
            self._opened.use_language(language)

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings,
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        path: str | Path | None = None,
        index: str | None = None,
        budget: Budget | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> RagVectorStore:
        """Return a store with these texts, at ``path`` or in a temporary folder; see :meth:`add_texts`.

        :class:`RagEmbeddings` that are not fitted are fitted on the texts. Texts are added to a store that is at
        ``path`` already; that one needs fitted embeddings.
        """
        refuse("from_texts", kwargs)
        documents = documents_of(texts, metadatas)
        chosen = chosen_ids(documents, ids)
        store = cls(embedding, path, index=index, budget=budget)
        if documents:
            _fit(embedding, (document.page_content for document in documents))
        store.add_documents(documents, ids=chosen, batch_size=batch_size, progress=progress)
        return store

    @classmethod
    def from_embeddings(
        cls,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        embedding: Embeddings,
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        path: str | Path | None = None,
        index: str | None = None,
        budget: Budget | None = None,
    ) -> RagVectorStore:
        """Return a store with these texts and their vectors; see :meth:`add_embeddings`."""
        store = cls(embedding, path, index=index, budget=budget)
        store.add_embeddings(text_embeddings, metadatas, ids=ids)
        return store

    def merge_from(self, other: RagVectorStore) -> list[str]:
        """Add the documents of another store, which stays as it is, and return their ids.

        Ids that are in both are replaced. Vectors are taken over where both stores have the same embeddings that are
        not ragembed's own; else the texts are embedded.
        """
        theirs = other._opened.store()
        if theirs is None:
            return []
        taken = not isinstance(self.embeddings, RagEmbeddings) and model_name(self.embeddings) == model_name(
            other.embeddings
        )
        merged: list[str] = []
        for records in _batches(theirs.chunks()):
            texts = [record.chunk.embedded_text for record in records]
            ids = [record.id for record in records]
            stage: Callable[[StoreWriter], object]
            if taken:
                stage = partial(StoreWriter.stage_vectors, texts=texts, vectors=theirs.vectors(ids))
            else:
                stage = partial(StoreWriter.stage, texts=texts)
            self._write([loose(record) for record in records], stage)
            merged += ids
        return merged

    def rebuild(
        self,
        embedding: Embeddings,
        path: str | Path | None = None,
        *,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> RagVectorStore:
        """Return another store with the same documents, embedded anew, at ``path`` or in a temporary folder.

        This one stays as it is; the new one has the same index and budget, language, fusion, files, and records of
        indexing runs.
        :class:`RagEmbeddings` that are not fitted are fitted on the documents. ``batch_size`` and ``progress`` are
        those of :meth:`add_documents`. Raises :class:`ConfigError` where a store at ``path`` holds documents.
        """
        require_batch_size(batch_size)
        if path is not None and _holds_documents(Path(path)):
            raise ConfigError(f"there is a store at {path} already: choose another folder for the one that is rebuilt")
        theirs = self._opened.store()
        if theirs is None:
            return type(self)(embedding, path)
        if len(theirs):
            _fit(embedding, (record.chunk.embedded_text for record in theirs.chunks()))
        wanted = theirs.wanted_index
        rebuilt = type(self)(embedding, path, index=wanted.kind, budget=wanted.budget, language=theirs.language)
        with rebuilt._opened.made().writer() as writer:
            records = list(theirs.chunks())
            stage_texts(writer, records, batch_size, progress)
            writer.commit(chunks=records, sources=list(theirs.sources().values()))
            writer.take_run_records(theirs.all_run_records())
            if theirs.fusion != Fusion():
                writer.set_meta({"fusion": theirs.fusion.to_dict()})
            writer.merge()
            tell(writer.settle(wanted))
        return rebuilt

    # Files

    def save_local(self, folder_path: str | Path, index_name: str = "index") -> None:
        """Write a copy of the store to the folder ``index_name`` in ``folder_path``, in the place of a store there.

        A store at a path is on the disk already; a temporary one is kept by this.
        """
        with self._opened.writing() as wait_seconds:
            self._opened.made().copy(Path(folder_path, index_name), wait_seconds)

    @classmethod
    def load_local(
        cls,
        folder_path: str | Path,
        embeddings: Embeddings | None = None,
        index_name: str = "index",
        *,
        allow_dangerous_deserialization: bool = False,  # noqa: ARG003  nothing here is
        **kwargs: Any,
    ) -> RagVectorStore:
        """Open what :meth:`save_local` wrote; what is added to it afterwards is kept at once.

        A folder of langchain-community's FAISS store is read by :meth:`from_community_faiss` into a temporary store.
        ``allow_dangerous_deserialization`` changes nothing, as neither executes what files hold.
        """
        refuse("load_local", kwargs)
        folder = Path(folder_path, index_name)
        if is_store(folder):
            return cls(embeddings, folder)
        from ragembed.langchain.community.folder import is_folder

        if not is_folder(Path(folder_path), index_name):
            raise StoreNotFoundError(
                f"there is no store {index_name!r} in {folder_path}, neither ragembed's nor langchain-community's: "
                "make one with save_local"
            )
        if embeddings is None:
            raise ConfigError(f"{folder_path} is a folder of langchain-community's FAISS: give the embeddings it has")
        return cls.from_community_faiss(folder_path, embeddings, index_name=index_name)

    @classmethod
    def from_community_faiss(
        cls,
        folder_path: str | Path,
        embeddings: Embeddings,
        *,
        index_name: str = "index",
        path: str | Path | None = None,
        index: str | None = None,
        budget: Budget | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> RagVectorStore:
        """Return a store with the documents of a folder that langchain-community's FAISS store saved.

        Nothing in the folder is executed. Vectors are taken over; with :class:`RagEmbeddings`, fitted on the documents
        if they are not fitted yet, the texts are embedded anew. Similarity is the cosine, whatever the folder's index
        compared by. Times, paths and the like in metadata become text. Raises :class:`ragembed.errors.StoreError` for
        a folder that holds anything but documents. Where vectors have lost their documents it warns, and embeds anew.
        """
        from ragembed.langchain.community.folder import read_folder

        found = read_folder(Path(folder_path), index_name)
        if found.dropped:
            warnings.warn(
                f"{folder_path} has {found.dropped} vectors or documents that lead nowhere, as a refused addition "
                "leaves behind: they are left out, and the others are embedded anew, as their vectors may be mixed up",
                stacklevel=2,
            )
        texts = [document.text for document in found.documents]
        metadatas = [document.metadata for document in found.documents]
        if found.dropped or isinstance(embeddings, RagEmbeddings):
            return cls.from_texts(
                texts,
                embeddings,
                metadatas,
                ids=found.ids,
                path=path,
                index=index,
                budget=budget,
                batch_size=batch_size,
                progress=progress,
            )
        pairs = zip(texts, found.vectors, strict=True)
        return cls.from_embeddings(pairs, embeddings, metadatas, ids=found.ids, path=path, index=index, budget=budget)

    def to_community_faiss(self, folder_path: str | Path, index_name: str = "index") -> None:
        """Write the documents and their vectors as langchain-community's ``FAISS.load_local`` reads them.

        The vectors have unit length and are compared by Euclidean distance there, which ranks as the cosine does.
        """
        from ragembed.langchain.community.documents import PickledDocument
        from ragembed.langchain.community.folder import write_folder

        store = self._opened.made()
        documents = [PickledDocument(str(document.id), document.page_content, document.metadata) for document in self]
        vectors = store.vectors([document.id for document in documents])
        write_folder(Path(folder_path), index_name, documents, vectors)

    # Asynchronous, beside those that LangChain has for the others

    @classmethod
    async def afrom_embeddings(
        cls,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        embedding: Embeddings,
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> RagVectorStore:
        """Run :meth:`from_embeddings` in a thread."""
        return await run_in_executor(None, cls.from_embeddings, text_embeddings, embedding, metadatas, **kwargs)

    async def amerge_from(self, other: RagVectorStore) -> list[str]:
        """Run :meth:`merge_from` in a thread."""
        return await run_in_executor(None, self.merge_from, other)

    async def arebuild(self, embedding: Embeddings, path: str | Path | None = None, **kwargs: Any) -> RagVectorStore:
        """Run :meth:`rebuild` in a thread."""
        return await run_in_executor(None, self.rebuild, embedding, path, **kwargs)

    async def asave_local(self, folder_path: str | Path, index_name: str = "index") -> None:
        """Run :meth:`save_local` in a thread."""
        await run_in_executor(None, self.save_local, folder_path, index_name)

    @classmethod
    async def aload_local(
        cls, folder_path: str | Path, embeddings: Embeddings | None = None, index_name: str = "index", **kwargs: Any
    ) -> RagVectorStore:
        """Run :meth:`load_local` in a thread."""
        return await run_in_executor(None, cls.load_local, folder_path, embeddings, index_name, **kwargs)

    @classmethod
    async def afrom_community_faiss(
        cls, folder_path: str | Path, embeddings: Embeddings, **kwargs: Any
    ) -> RagVectorStore:
        """Run :meth:`from_community_faiss` in a thread."""
        return await run_in_executor(None, cls.from_community_faiss, folder_path, embeddings, **kwargs)

    async def ato_community_faiss(self, folder_path: str | Path, index_name: str = "index") -> None:
        """Run :meth:`to_community_faiss` in a thread."""
        await run_in_executor(None, self.to_community_faiss, folder_path, index_name)


def _holds_documents(path: Path) -> bool:
    if not is_store(path):
        return False
    with Store.open(path) as store:
        return len(store) > 0


def _fit(embedding: Embeddings, texts: Iterable[str]) -> None:
    if isinstance(embedding, RagEmbeddings) and not embedding.is_fitted:
        embedding.fit(texts)


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    stream = iter(items)
    while batch := list(islice(stream, BATCH)):
        yield batch
