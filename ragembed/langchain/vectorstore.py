"""``RagVectorStore``: a ragembed store as a LangChain vector store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever

from ragembed.adapters.own_store import twin
from ragembed.config.fields import one_of
from ragembed.config.settings_files import chosen_stores, read_registry
from ragembed.corpus import blocks
from ragembed.errors import ConfigError, StoreError, StoreNotFoundError
from ragembed.extractors.external import SAME
from ragembed.indexes import Budget, ChunkRecord, Fusion, Store
from ragembed.indexes.search.pipeline import MODES, Mode
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.storage.upkeep import warn
from ragembed.langchain.documents import chosen_ids, documents_of, reject_unknown
from ragembed.langchain.embeddings import RagEmbeddings, model_name
from ragembed.langchain.lazy_store import LazyCollection, LazyStore, require_store
from ragembed.langchain.retrievers import RagVectorStoreRetriever
from ragembed.langchain.searching import SearchableDocuments
from ragembed.langchain.stored_documents import BATCH_SIZE, Progress, require_batch_size, stage, stage_texts

WriteMode = Literal["append", "overwrite", "error"]


class RagVectorStore(SearchableDocuments, VectorStore):
    """LangChain vector store in a folder, with dense, lexical and hybrid search.

    Every write is atomic. You can also open a folder that ``ragembed index`` has made: the metadata of its documents
    contain their place in the file (``source``, ``title``, ``headings``, ``start_line``, ``end_line``, ``page``).

    Every search takes a ``filter``, which selects the documents to search, and most take a ``ranking``, a
    :class:`ragembed.RankingOptions` with steps after the search, none by default. Scores are always those of the
    search.

    Several threads can share one object. Several processes can open the same folder; writers wait for each other. If
    an asynchronous method that writes is cancelled, either all of its documents are added, or none.

    Parameters
    ----------
    embedding : Embeddings, optional
        Any LangChain embeddings. To open an existing store, pass the embeddings that it was made with; you can leave
        them out if they were :class:`RagEmbeddings`, which are saved in the store.
    path : str or pathlib.Path, optional
        Folder of the store; it is created by the first addition. By default, a temporary folder that is removed with
        the object.
    index : str, optional
        Kind of FAISS index: ``"auto"`` (default), ``"flat"``, ``"fp16"``, ``"sq8"``, ``"hnsw"``, ``"hnsw-sq8"``,
        ``"ivf"``, ``"ivf-sq8"``, ``"ivf-pq"`` or a FAISS factory string. ``"auto"`` is exact below 50,000 vectors.
    budget : ragembed.indexes.Budget, optional
        Limits for memory, latency and recall of the index.
    language : str, optional
        Language whose word endings lexical search ignores: ``"english"`` (default), ``"none"``, or another Snowball
        language.
    retrieval_mode : {"dense", "hybrid", "lexical"}
        What ``similarity_search`` and its variants for texts compute: the cosine (default), cosine and BM25 combined,
        or BM25. It sets the search of every retriever that calls ``similarity_search``. It is not saved.

    Raises
    ------
    StoreNotFoundError
        If there is no store at ``path`` and no ``embedding`` to create one with.
    IncompatibleStoreError
        If the store at ``path`` was made with other embeddings.
    ConfigError
        If the store at ``path`` has another index, budget or language, or if a value is unknown.

    Examples
    --------
    Setup:

    .. code-block:: bash

        pip install '.[cpu,langchain]'  # in a clone of the repository

    Instantiate:

    .. code-block:: python

        from ragembed.langchain import RagEmbeddings, RagVectorStore

        embeddings = RagEmbeddings().fit(["foo", "thud"])
        vector_store = RagVectorStore(embeddings, path="my-store")
        other_store = RagVectorStore.from_texts(["foo", "thud"], RagEmbeddings(), path="other-store")  # fitted on them

    Add Documents:

    A document replaces an earlier one with the same id.

    .. code-block:: python

        from langchain_core.documents import Document

        document_1 = Document(id="1", page_content="foo", metadata={"baz": "bar"})
        document_2 = Document(id="2", page_content="thud", metadata={"bar": "baz"})
        document_3 = Document(id="3", page_content="i will be deleted :(")

        vector_store.add_documents([document_1, document_2, document_3])
        vector_store.add_documents([Document(id="1", page_content="foo, again", metadata={"baz": "bar"})])

    Inspect Documents:

    .. code-block:: python

        len(vector_store), vector_store.ids(), "1" in vector_store
        for doc in vector_store.iter_documents(filter={"bar": "baz"}):
            print(f"{doc.id}: {doc.page_content}")

    .. code-block:: text

        2: thud

    Delete Documents:

    .. code-block:: python

        vector_store.delete(ids=["3"])

    Search:

    .. code-block:: python

        results = vector_store.similarity_search(query="thud", k=1)
        for doc in results:
            print(f"* {doc.page_content} [{doc.metadata}]")

    .. code-block:: text

        * thud [{'bar': 'baz'}]

    Search with filter:

    The filter is applied before the search, so you get ``k`` results if ``k`` documents match. It can also be an
    expression such as ``"baz = 'bar'"``, or a function of the metadata, which is called for every document.

    .. code-block:: python

        results = vector_store.similarity_search(query="thud", k=1, filter={"bar": "baz"})

    Search with score:

    The score is the cosine, from -1 to 1; higher is better. The relevance score is ``(1 + cosine) / 2``, or with
    ``search_type="hybrid"`` the calibrated relevance.

    .. code-block:: python

        results = vector_store.similarity_search_with_score(query="thud", k=1)
        for doc, score in results:
            print(f"* [SIM={score:.3f}] {doc.page_content} [{doc.metadata}]")

        results = vector_store.similarity_search_with_relevance_scores(query="thud", k=1, score_threshold=0.7)

    Hybrid search, by cosine and BM25:

    .. code-block:: python

        results = vector_store.hybrid_search(query="thud", k=1)

    Async:

    .. code-block:: python

        await vector_store.aadd_documents([document_1])
        results = await vector_store.asimilarity_search(query="thud", k=1)
        await vector_store.adelete(ids=["3"])

    Use as Retriever:

    The types of search are ``similarity``, ``similarity_score_threshold``, ``mmr``, ``hybrid`` and ``lexical``.

    .. code-block:: python

        retriever = vector_store.as_retriever(
            search_type="mmr",
            search_kwargs={"k": 1, "fetch_k": 2, "lambda_mult": 0.5},
        )
        retriever.invoke("thud")

    Index:

    The records of LangChain's indexing API are kept in the store itself.

    .. code-block:: python

        from langchain_core.indexing import index

        records = vector_store.record_manager("my-documents")
        index([document_1, document_2], records, vector_store, cleanup="full", key_encoder="sha256")

    Open again with ``RagVectorStore(path="my-store")``.
    """

    def __init__(
        self,
        embedding: Embeddings | None = None,
        path: str | Path | None = None,
        *,
        index: str | None = None,
        budget: Budget | None = None,
        language: str | None = None,
        retrieval_mode: Mode = "dense",
    ) -> None:
        one_of("retrieval_mode", retrieval_mode, MODES)
        self.retrieval_mode: Mode = retrieval_mode
        self._lazy = LazyStore(embedding, path, index, budget, language)

    @classmethod
    def open_collection(
        cls, stores: str | Mapping[str, str | Path], *, retrieval_mode: Mode = "dense"
    ) -> RagVectorStore:
        """Open several stores, to search them as one. The result cannot be changed.

        The metadata of a document have the name of its store, under ``"store"``.

        Parameters
        ----------
        stores : str or mapping of str to str or pathlib.Path
            Names of your collections, separated by commas, or ``"all"``, as for ``ragembed query --in``; or the folder
            of each store by name.
        retrieval_mode : {"dense", "hybrid", "lexical"}, default "dense"
            Mode of :meth:`similarity_search` and of retrievers.

        Examples
        --------
        >>> from ragembed.langchain import RagVectorStore
        >>> documents = RagVectorStore.open_collection({"mine": "notes"}, retrieval_mode="hybrid")
        >>> [document.metadata["store"] for document in documents.similarity_search("How do I brew tea?", k=1)]
        ['mine']
        """
        one_of("retrieval_mode", retrieval_mode, MODES)
        if isinstance(stores, str):
            stores = chosen_stores([name.strip() for name in stores.split(",")], [read_registry()])
        opened = cls.__new__(cls)
        opened.retrieval_mode = retrieval_mode
        opened._lazy = LazyCollection(stores)
        return opened

    @classmethod
    def from_texts(
        cls,
        /,
        texts: Iterable[str],
        embedding: Embeddings,
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        path: str | Path | None = None,
        index: str | None = None,
        budget: Budget | None = None,
        mode: WriteMode = "append",
        retrieval_mode: Mode = "dense",
        batch_size: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> RagVectorStore:
        """Create a store from texts.

        :class:`RagEmbeddings` that are not fitted are fitted on the texts.

        Parameters
        ----------
        texts, metadatas, ids, batch_size, progress, **kwargs
            As in :meth:`add_texts`.
        embedding, path, index, budget, retrieval_mode
            As for the class.
        mode : {"append", "overwrite", "error"}
            What to do if there is a store at ``path``: add to it, replace it when the new store is complete, or raise
            :class:`ragembed.errors.StoreError`.
        """
        reject_unknown("from_texts", kwargs)
        documents = documents_of(texts, metadatas)
        chosen = chosen_ids(documents, ids)
        with cls._created(embedding, path, index, budget, mode, retrieval_mode) as store:
            store.add_documents(documents, ids=chosen, batch_size=batch_size, progress=progress)
        return store

    @classmethod
    def from_embeddings(
        cls,
        /,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        embedding: Embeddings,
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        path: str | Path | None = None,
        index: str | None = None,
        budget: Budget | None = None,
        mode: WriteMode = "append",
        retrieval_mode: Mode = "dense",
    ) -> RagVectorStore:
        """Create a store from texts and the vectors that ``embedding``, other than :class:`RagEmbeddings`, made.

        Parameters
        ----------
        text_embeddings, metadatas, ids
            As in :meth:`add_embeddings`.
        embedding, path, index, budget, mode, retrieval_mode
            As in :meth:`from_texts`.
        """
        with cls._created(embedding, path, index, budget, mode, retrieval_mode) as store:
            store.add_embeddings(text_embeddings, metadatas, ids=ids)
        return store

    @classmethod
    @contextmanager
    def _created(
        cls,
        embedding: Embeddings,
        path: str | Path | None,
        index: str | None,
        budget: Budget | None,
        mode: WriteMode,
        retrieval_mode: Mode,
    ) -> Iterator[RagVectorStore]:
        """Yield a store for the ``with`` block to fill; with ``mode="overwrite"`` it replaces another afterwards."""
        one_of("mode", mode, get_args(WriteMode))
        exists = path is not None and is_store(Path(path))
        if exists and mode == "error":
            raise StoreError(
                f"a store exists at {path}: use mode='append' to add to it, mode='overwrite' to replace it, or another "
                "path"
            )
        replaces = exists and mode == "overwrite"
        store = cls(embedding, None if replaces else path, index=index, budget=budget, retrieval_mode=retrieval_mode)
        yield store
        if not replaces or path is None:
            return
        if store._lazy.needs_texts:  # no documents were added, so there is nothing to fit the embeddings on
            with cls(embedding, path) as replaced:
                replaced.clear()
            store._lazy = replaced._lazy
        else:
            store._lazy.move(Path(path))

    def as_retriever(self, **kwargs: Any) -> VectorStoreRetriever:
        """Return a retriever for one type of search; :class:`ragembed.langchain.RagRetriever` has a field per setting.

        Parameters
        ----------
        **kwargs
            ``search_type``, as for :meth:`search`; settings of that search, such as ``k``, ``filter``,
            ``score_threshold``, ``fetch_k``, ``lambda_mult`` or ``ranking``, as arguments or together as the dict
            ``search_kwargs``; and other fields of LangChain's retrievers, such as ``tags``.
        """
        valid = (*RagVectorStoreRetriever.model_fields, *RagVectorStoreRetriever.search_settings)
        unknown = [name for name in kwargs if name not in valid]
        if unknown:
            raise TypeError(
                f"as_retriever() got an unexpected keyword argument {unknown[0]!r}: expected one of {', '.join(valid)}"
            )
        tags = [*(kwargs.pop("tags", None) or []), *self._get_retriever_tags()]
        return RagVectorStoreRetriever(vectorstore=self, tags=tags, **kwargs)

    def save_local(self, folder_path: str | Path, index_name: str = "index") -> None:
        """Copy the store to the folder ``index_name`` in ``folder_path``; a store in that place is replaced.

        A store with a ``path`` is always on disk; use this method to keep a temporary store, or to make a copy.

        Parameters
        ----------
        folder_path : str or pathlib.Path
            The folder that contains the copy.
        index_name : str
            Name of the copy.
        """
        with self._lazy.writing() as wait_seconds:
            self.store.copy(Path(folder_path, index_name), wait_seconds)

    @classmethod
    def load_local(
        cls, /, folder_path: str | Path, embeddings: Embeddings | None = None, index_name: str = "index", **kwargs: Any
    ) -> RagVectorStore:
        """Open the store ``index_name`` that :meth:`save_local` wrote in a folder; additions are saved in it.

        Parameters
        ----------
        folder_path, index_name
            As in :meth:`save_local`.
        embeddings : Embeddings, optional
            As for the class.
        **kwargs
            ``allow_dangerous_deserialization`` changes nothing, because no code in the files is ever executed. Any
            other argument raises ``TypeError``.
        """
        kwargs.pop("allow_dangerous_deserialization", None)
        reject_unknown("load_local", kwargs)
        folder = Path(folder_path, index_name)
        if not is_store(folder):
            raise StoreNotFoundError(
                f"no store {index_name!r} in {folder_path}: expected a store of ragembed, written with save_local; the "
                "guide 'Migrate from FAISS' copies a store of langchain-community"
            )
        return cls(embeddings, folder)

    def rebuild(
        self,
        embedding: Embeddings,
        path: str | Path | None = None,
        *,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> RagVectorStore:
        """Create a new store in ``path`` with the same documents and other embeddings.

        This store does not change. The new store has the same kind of index, budget, language, fusion, files and
        records of indexing runs. :class:`RagEmbeddings` that are not fitted are fitted on the documents. If their base
        made the vectors of this store, the vectors are reused. A store with documents at ``path`` is a
        :class:`ragembed.errors.ConfigError`.

        Parameters
        ----------
        embedding : Embeddings
            The embeddings of the new store.
        path : str or pathlib.Path, optional
            Folder of the new store; by default a temporary folder.
        batch_size, progress
            As in :meth:`add_documents`.
        """
        require_batch_size(batch_size)
        if path is not None and _holds_documents(Path(path)):
            raise ConfigError(f"{path} already contains a store with documents: choose another folder")
        require_store(self._lazy)
        theirs = self._lazy.get()
        if theirs is None:
            return type(self)(embedding, path)
        wanted = theirs.wanted_index
        rebuilt = type(self)(embedding, path, index=wanted.kind, budget=wanted.budget, language=theirs.language)
        if not len(theirs) and rebuilt._lazy.needs_texts:
            return rebuilt
        store = rebuilt._lazy.get_or_create(theirs.embedded_texts() if len(theirs) else ())
        with store.writer() as writer:
            records = list(theirs.chunks())
            keys: dict[str, bytes] = {}
            if records and _made_by_base(embedding, self.embeddings, records[0], theirs):
                for batch in blocks(records, BATCH_SIZE):
                    ids = [record.id for record in batch]
                    texts = [record.chunk.embedded_text for record in batch]
                    keys.update(stage(writer, ids, texts, theirs.vectors(ids)))
            stage_texts(writer, records, batch_size, progress)
            writer.commit(chunks=records, sources=list(theirs.sources().values()), keys=keys)
            writer.take_run_records(theirs.all_run_records())
            if theirs.fusion != Fusion():
                writer.set_meta({"fusion": theirs.fusion.to_dict()})
            warn(rebuilt._lazy.fit_again(store, writer))
            writer.merge()
            warn(writer.refresh_index(wanted))
        return rebuilt

    afrom_texts = classmethod(twin(from_texts))
    afrom_embeddings = classmethod(twin(from_embeddings))
    aload_local = classmethod(twin(load_local))
    asave_local = twin(save_local)
    arebuild = twin(rebuild)


def _holds_documents(path: Path) -> bool:
    if not is_store(path):
        return False
    with Store.open(path) as store:
        return len(store) > 0


def _made_by_base(embedding: Embeddings, former: Embeddings, record: ChunkRecord, theirs: Store) -> bool:
    """Return whether the base of ``embedding`` made the vectors of a store with the embeddings ``former``."""
    if isinstance(former, RagEmbeddings) or not isinstance(embedding, RagEmbeddings):
        return False
    if embedding.base is None or embedding.template is not None or model_name(embedding.base) != model_name(former):
        return False
    now, stored = embedding.embedder.raw_documents([record.chunk.embedded_text]), theirs.vectors([record.id])
    return bool(now.shape == stored.shape and float(now[0] @ stored[0]) >= SAME)
