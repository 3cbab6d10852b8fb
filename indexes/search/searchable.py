"""How a store, or several at once, are searched, and the contents that every reader may ask for."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import numpy as np
from typing_extensions import Self

from ragembed.documents.normalisation import normalise
from ragembed.errors import ConfigError, DimensionError, StoreDamagedError
from ragembed.indexes.filters import Where, parse
from ragembed.indexes.filters.notes import notes_on
from ragembed.indexes.search import packing
from ragembed.indexes.search.context import Context, ContextFormat, renderer_of
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.pipeline import Mode, diverse, nearest_to, run_query
from ragembed.indexes.search.ranking import RankingOptions
from ragembed.indexes.search.relevance import awaits_relevance
from ragembed.indexes.search.snapshot import FileState, SearchStates, Snapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.reader import StoreView
from ragembed.indexes.types import ChunkRecord, Hit, Hits, VectorEncoder
from ragembed.models.token_counting import token_counter
from ragembed.types import Floats

if TYPE_CHECKING:
    from ragembed.indexes.search.explain import Explanation, WhyNot

Answer = TypeVar("Answer")
Parameters = ParamSpec("Parameters")
_Any = TypeVar("_Any", bound="Searchable")

_MOST_KEPT = 16
"""Number of combinations of stores whose search states are kept."""
TRIES = 5
"""Number of snapshots that are tried if a writer removes files of them."""


def retried(method: Callable[Concatenate[_Any, Parameters], Answer]) -> Callable[Concatenate[_Any, Parameters], Answer]:
    """Return a method that reads one snapshot, and runs again if that fails; see :meth:`Searchable.read`."""

    @wraps(method)
    def run(self: _Any, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
        return self.read(partial(method, self, *args, **kwargs))

    return run


class Searchable(ABC):
    """How :class:`ragembed.Store` and :class:`ragembed.Collection` are searched.

    ``views`` opens views of the stores, as :meth:`ragembed.indexes.storage.reader.StoreReader.views` does. ``fusion``
    replaces the default settings of hybrid search.
    """

    def __init__(
        self, views: Callable[[], AbstractContextManager[Sequence[StoreView]]], fusion: Fusion | None = None
    ) -> None:
        self._views = views
        self._chosen_fusion = fusion
        self._states: SearchStates = {}
        self._held = threading.local()

    @contextmanager
    def snapshot(self, views: AbstractContextManager[Sequence[StoreView]] | None = None) -> Iterator[Snapshot]:
        """Hold a snapshot during the ``with`` block, which all reads of this thread use.

        Within another such block or :meth:`read`, it is the snapshot of that, else one of ``views``, or of all stores.
        """
        held: Snapshot | None = getattr(self._held, "snapshot", None)
        if held is not None:
            yield held
            return
        if len(self._states) > _MOST_KEPT:
            self._states.clear()
        with views or self._views() as stores:
            self._held.snapshot = snapshot = Snapshot(stores, self._states, self._chosen_fusion)
            try:
                yield snapshot
            finally:
                self._held.snapshot = None

    def read(self, answer: Callable[[], Answer]) -> Answer:
        """Return the result of a function whose reads all see the same snapshot.

        Raise :class:`StoreDamagedError` if a file of the store is missing, and :class:`StoreError` if it cannot be
        read.

        Parameters
        ----------
        answer : callable
            Function without arguments and without side effects. It is called again if a writer removes files that the
            snapshot needs. Reads in other threads do not share the snapshot.

        Examples
        --------
        >>> store.read(lambda: (len(store), len(store.ids())))
        (3, 3)
        """
        if getattr(self._held, "snapshot", None) is not None:
            return answer()
        for _ in range(TRIES - 1):
            # A writer merged segments after the snapshot and before a file was opened: read a newer snapshot.
            with suppress(FileNotFoundError), self.snapshot():
                return answer()
        try:
            with self.snapshot():
                return answer()
        except FileNotFoundError as error:
            raise StoreDamagedError(
                f"a file of the store is missing: {error.filename}; rebuild it with 'ragembed doctor --repair'"
            ) from error

    def search(
        self,
        query: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        min_relevance: float | None = None,
    ) -> list[Hit]:
        """Return up to ``k`` of the best chunks for a query, best first. :class:`Hit` explains the scores.

        Parameters
        ----------
        query : str
            Text of the query.
        k : int, default 10
            Maximum number of hits, 0 or more.
        mode : {"hybrid", "dense", "lexical"}, default "hybrid"
            ``"dense"`` ranks by cosine, ``"lexical"`` by BM25, and ``"hybrid"`` by both scores, fused.
        where : str or mapping, optional
            Filter that selects the chunks to search: an expression such as ``"ext = 'md'"``, or a dictionary as
            LangChain uses it; see the page "Filters". None searches every chunk.
        fusion : ragembed.Fusion, optional
            How hybrid search fuses the scores. None uses :attr:`fusion` of the store.
        ranking : ragembed.RankingOptions, optional
            Further steps after scoring, such as folding near-duplicates or reranking.
        min_relevance : float, optional
            Leave out hits with a lower :attr:`Hit.relevance`, from 0 to 1. None returns the best hits, however weak.
            Hits whose relevance is unknown, as in stores of less than 20 chunks, are not left out.

        Raises
        ------
        ConfigError
            If ``mode`` is unknown, ``k`` is negative, the filter is invalid, or ``min_relevance`` is out of range.
        IncompatibleStoreError
            If the embedder of the store cannot be loaded, or is not the one that was passed to :meth:`open`.
        StoreDamagedError
            If the search needs a file that is missing or damaged.

        Warns
        -----
        UserWarning
            If the relevance of hits is unknown, so that ``min_relevance`` is not applied to them.

        Examples
        --------
        >>> [hit.id for hit in store.search("How do I brew tea?", k=1)]
        ['tea']
        >>> [hit.id for hit in store.search("birds in autumn", where="year > 2024")]
        ['bird']
        """
        return self.search_many(
            [query], k, mode, where=where, fusion=fusion, ranking=ranking, min_relevance=min_relevance
        )[0]

    @retried
    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        min_relevance: float | None = None,
        vectors: Floats | None = None,
    ) -> list[list[Hit]]:
        """Return for each of several queries the hits of :meth:`search`. All queries read the same snapshot.

        Raise the errors of :meth:`search`, :class:`ConfigError` if ``queries`` is a single text, and
        :class:`DimensionError` if ``vectors`` do not have the dimension of the store, or not one row for each query.

        Parameters
        ----------
        queries : sequence of str
            Texts of the queries.
        k, mode, where, fusion, ranking, min_relevance : optional
            As in :meth:`search`.
        vectors : numpy.ndarray, optional
            Vectors of the queries, float32, shape ``(n, d)``. None encodes the queries with the store's embedder.

        Examples
        --------
        >>> results = store.search_many(["How do I brew tea?", "birds in autumn"], k=1)
        >>> [hits[0].id for hits in results]
        ['tea', 'bird']
        """
        if isinstance(queries, str):
            raise ConfigError(f"queries is the text {queries[:40]!r}: expected a list of texts; use search for one")
        condition = None if where is None else parse(where)
        texts = list(queries)
        query_vectors = None if vectors is None else np.asarray(vectors, dtype=np.float32)
        if query_vectors is not None and (query_vectors.ndim != 2 or len(query_vectors) != len(texts)):
            raise DimensionError(f"the query vectors have shape {query_vectors.shape}: expected ({len(texts)}, d)")

        with self.snapshot() as snapshot:
            results = run_query(
                snapshot, texts, k, mode, condition, fusion, ranking, None, min_relevance, query_vectors
            )
        return [Hits(hits) for hits in results]

    @property
    @retried
    def fusion(self) -> Fusion:
        """Default settings of hybrid search: those that the store saved, else those of :class:`ragembed.Fusion`."""
        with self.snapshot() as snapshot:
            return snapshot.comparable("hybrid").fusion()

    @retried
    def context(
        self,
        query: str,
        budget: int = 4000,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        format: ContextFormat = "text",  # noqa: A002  the name of the command's option
        tokenizer: str | Path | Callable[[str], int] | None = None,
        name_file: Callable[[str], str] | None = None,
        min_relevance: float | None = None,
    ) -> Context:
        """Pack the most useful text for a query into a budget of tokens, for the prompt of a model.

        The best hits come first. Near-duplicates are folded, each hit is widened to its section and to its neighbours
        while the budget lasts, and overlapping pieces are merged. The text of a file that is unchanged on disk is that
        of its lines.

        Parameters
        ----------
        query : str
            Text of the query.
        budget : int, default 4000
            Maximum number of tokens of the whole output, 1 or more.
        mode, where, fusion : optional
            As in :meth:`search`.
        ranking : ragembed.RankingOptions, optional
            As in :meth:`search`. None folds near-duplicates.
        format : {"text", "markdown", "json", "xml"}, default "text"
            Format of the output. The budget counts its delimiters too.
        tokenizer : str, pathlib.Path or callable, optional
            Tokenizer of the model that reads the output: a file ``tokenizer.json``, a folder with this file, or a
            function that returns the number of tokens of a text. None uses an estimate.
        name_file : callable, optional
            Function that returns the name to show for a file, from its name in the store. If several stores are
            searched, the name of the store precedes it. None shows the path of the file, relative to the working
            directory if the file is below it.
        min_relevance : float, optional
            As in :meth:`search`.

        Raises
        ------
        ConfigError
            If ``budget`` is less than 1, the format is unknown, the tokenizer cannot be found, or as :meth:`search`
            does.
        ModelError
            If the tokenizer cannot be read.

        Examples
        --------
        >>> context = store.context("How do I brew tea?", budget=100)
        >>> context.blocks[0].text
        'Tea is brewed with hot water.'
        >>> context.tokens <= 100
        True
        """
        counter, renderer = token_counter(tokenizer), renderer_of(format)
        request = packing.PackingRequest(query, budget, format, renderer, counter, name_file)
        ranked = ranking or RankingOptions(dedupe=True)

        condition = None if where is None else parse(where)
        with self.snapshot() as snapshot:
            [hits] = run_query(
                snapshot, [query], request.candidates, mode, condition, fusion, ranked, None, min_relevance
            )
            return packing.pack(snapshot, hits, request)

    @retried
    def pack(
        self,
        hits: Sequence[Hit],
        budget: int = 4000,
        query: str = "",
        *,
        format: ContextFormat = "text",  # noqa: A002  the name of the command's option
        tokenizer: str | Path | Callable[[str], int] | None = None,
        name_file: Callable[[str], str] | None = None,
    ) -> Context:
        """Pack hits, such as those of another search or a reranker, as :meth:`context` does, with the same errors.

        Parameters
        ----------
        hits : sequence of Hit
            Hits, best first. A hit whose id is not in the store is packed with its own text.
        budget : int, default 4000
            As in :meth:`context`.
        query : str, default ""
            Text of the query. If a hit does not fit, its lines with most of the query's words are kept.
        format, tokenizer, name_file : optional
            As in :meth:`context`.

        Examples
        --------
        >>> hits = store.search("How do I brew tea?", mode="dense")
        >>> [block.path for block in store.pack(hits, budget=200).blocks][0]
        'tea'
        """
        request = packing.PackingRequest(
            query, budget, format, renderer_of(format), token_counter(tokenizer), name_file
        )
        with self.snapshot() as snapshot:
            return packing.pack(snapshot, list(hits), request)

    @retried
    def file_states(self, records: Sequence[Hit | ChunkRecord]) -> list[FileState | None]:
        """Return whether the file of each hit or chunk changed or was deleted since it was indexed.

        The value is ``"changed"``, ``"deleted"``, or None if the file is unchanged or not known. A file with the size
        and modification time of the last run is unchanged; if only the time differs, its content decides. Symbolic
        links below an indexed path are not followed. Files behind URLs are not checked.

        Parameters
        ----------
        records : sequence of Hit or ChunkRecord
            Hits or chunks of this store.
        """
        with self.snapshot() as snapshot:
            return snapshot.file_states(records)

    @retried
    def explain(
        self,
        query: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        min_relevance: float | None = None,
        ids: Collection[str] | None = None,
    ) -> list[Explanation]:
        """Search as :meth:`search` does, and explain the score of each hit.

        The values of ``explanation.terms`` add up to ``explanation.score``. The page "Explain results" describes the
        parts of an explanation.

        Parameters
        ----------
        query, k, mode, where, fusion, ranking, min_relevance
            As in :meth:`search`.
        ids : collection of str, optional
            Explain only the hits with these ids. None explains every hit.

        Examples
        --------
        >>> explanation = store.explain("How do I brew tea?", k=1, mode="lexical")[0]
        >>> sorted(explanation.phrases)
        ['brew', 'tea']
        """
        from ragembed.indexes.search.explain import explain

        condition = None if where is None else parse(where)
        with self.snapshot() as snapshot:
            return explain(snapshot, query, k, mode, condition, fusion, ranking, min_relevance, ids)

    @retried
    def why_not(
        self,
        query: str,
        source: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        fusion: Fusion | None = None,
        store: str | None = None,
    ) -> WhyNot:
        """Explain why a file is not among the best chunks for a query.

        The answer has the rank of the file's best chunk in each mode of search, and the words and phrases by which the
        best ``k`` chunks score higher. Raise :class:`ConfigError` if the file is not in the store; the message says
        whether the last run skipped it, and why.

        Parameters
        ----------
        query : str
            Text of the query.
        source : str
            Name of the file in the store, as in :meth:`sources`.
        k : int, default 10
            Number of results to compare the file with.
        mode, fusion : optional
            As in :meth:`search`.
        store : str, optional
            Name of the store that has the file, if several stores are searched.

        Examples
        --------
        >>> from pathlib import Path
        >>> import ragembed
        >>> Path("docs").mkdir()
        >>> for name, text in {"tea.md": "Tea is brewed with hot water.", "bird.md": "Birds fly south."}.items():
        ...     _ = Path("docs", name).write_text(text, encoding="utf-8")
        >>> report = ragembed.index("docs", store="docs-store")
        >>> with ragembed.Store.open("docs-store") as docs:
        ...     docs.why_not("Where do birds fly?", "docs/tea.md").rank_in_mode.rank
        2
        """
        from ragembed.indexes.search.explain import why_not

        with self.snapshot() as snapshot:
            group = snapshot.group_of(store)
            return why_not(group, query, source, k, mode, fusion or group.fusion(), store)

    def search_vector(self, vector: Floats, k: int = 10, *, where: Where | None = None) -> list[Hit]:
        """Return up to ``k`` chunks whose vectors are nearest to a query vector by cosine, best first.

        Raise :class:`DimensionError` if ``vector`` does not have the dimension of the store, and :class:`ConfigError`
        if ``k`` is negative or the filter is invalid.

        Parameters
        ----------
        vector : numpy.ndarray
            Query vector, shape ``(d,)``. It need not have unit length.
        k, where : optional
            As in :meth:`search`.

        Examples
        --------
        >>> vector = store.embedder.encode_queries(["How do I brew tea?"])[0]
        >>> [hit.id for hit in store.search_vector(vector, k=1)]
        ['tea']
        """
        return self.search_vectors(_one_vector(vector)[None, :], k, where=where)[0]

    @retried
    def search_vectors(self, vectors: Floats, k: int = 10, *, where: Where | None = None) -> list[list[Hit]]:
        """Return for each of several query vectors the hits of :meth:`search_vector`, with the same errors.

        Parameters
        ----------
        vectors : numpy.ndarray
            Query vectors, shape ``(n, d)``, one per row.
        k, where : optional
            As in :meth:`search_vector`.

        Examples
        --------
        >>> vectors = store.embedder.encode_queries(["How do I brew tea?", "birds in autumn"])
        >>> [hits[0].id for hits in store.search_vectors(vectors, k=1)]
        ['tea', 'bird']
        """
        vectors = np.asarray(vectors, dtype=np.float32)
        condition = None if where is None else parse(where)
        if not vectors.size and vectors.shape[:1] == (0,):
            return []
        if vectors.ndim != 2:
            raise DimensionError(f"the query vectors have shape {vectors.shape}: expected (n, d), one vector per row")

        with self.snapshot() as snapshot:
            return [Hits(hits) for hits in nearest_to(snapshot.comparable("dense"), vectors, k, condition)]

    @retried
    def search_mmr(
        self, query: str, k: int = 10, *, fetch_k: int = 50, lambda_mult: float = 0.5, where: Where | None = None
    ) -> list[Hit]:
        """Return chunks that are near a query but unlike each other, by maximal marginal relevance (MMR).

        The hits are in the order in which MMR chose them, and their scores are cosines. Raise :class:`ConfigError` if
        ``lambda_mult`` is out of range, ``k`` is negative or the filter is invalid.

        Parameters
        ----------
        query, k, where
            As in :meth:`search`.
        fetch_k : int, default 50
            Number of nearest chunks, by cosine, to choose the hits from.
        lambda_mult : float, default 0.5
            Balance from 0 (hits unlike each other) to 1 (hits near the query).

        Examples
        --------
        >>> len(store.search_mmr("How do I brew tea?", k=2, lambda_mult=0.3))
        2
        """
        condition = None if where is None else parse(where)

        with self.snapshot() as snapshot:
            group = snapshot.comparable("dense")
            vector = group.embedder().encode_queries([normalise(query)])[0]
            return Hits(diverse(group, vector, k, fetch_k, lambda_mult, condition))

    @retried
    def search_mmr_vector(
        self, vector: Floats, k: int = 10, *, fetch_k: int = 50, lambda_mult: float = 0.5, where: Where | None = None
    ) -> list[Hit]:
        """Return the hits of :meth:`search_mmr` for a query vector.

        Raise :class:`DimensionError` if the vector does not have the dimension of the store, and the errors of
        :meth:`search_mmr`.

        Parameters
        ----------
        vector : numpy.ndarray
            Query vector, shape ``(d,)``.
        k, fetch_k, lambda_mult, where : optional
            As in :meth:`search_mmr`.
        """
        vector = _one_vector(vector)
        condition = None if where is None else parse(where)

        with self.snapshot() as snapshot:
            return Hits(diverse(snapshot.comparable("dense"), vector, k, fetch_k, lambda_mult, condition))

    # Contents

    @retried
    def get(self, ids: Sequence[str]) -> list[ChunkRecord]:
        """Return the chunks with these ids, in the order of ``ids``. Unknown ids are left out.

        Several stores of a collection may have a chunk with the same id.

        Parameters
        ----------
        ids : sequence of str
            Ids of the chunks.

        Examples
        --------
        >>> [record.chunk.text for record in store.get(["bird", "unknown"])]
        ['Many birds fly south in autumn.']
        """
        with self.snapshot() as snapshot:
            by_store = [(store.name, catalog.chunks_by_id(store.connection, ids)) for store in snapshot.stores]
        wanted = dict.fromkeys(ids)
        return [
            records[chunk_id] if name is None else replace(records[chunk_id], store=name)
            for chunk_id in wanted
            for name, records in by_store
            if chunk_id in records
        ]

    @retried
    def ids(self) -> list[str]:
        """Return the ids of all chunks, in order of insertion, store by store.

        Examples
        --------
        >>> store.ids()
        ['tea', 'lock', 'bird']
        """
        with self.snapshot() as snapshot:
            return [chunk_id for store in snapshot.stores for chunk_id in catalog.chunk_ids(store.connection)]

    @retried
    def vectors(self, ids: Sequence[str]) -> Floats:
        """Return the unit vectors of chunks, float32, shape ``(n, d)``, in the order of ``ids``.

        Raise KeyError if an id is in no store, and :class:`ConfigError` if stores have different embedders. If several
        stores have an id, the first of them counts.

        Parameters
        ----------
        ids : sequence of str
            Ids of the chunks.

        Examples
        --------
        >>> vectors = store.vectors(["tea", "bird"])
        >>> vectors.shape[0], vectors.dtype.name
        (2, 'float32')
        """
        with self.snapshot() as snapshot:
            group = snapshot.comparable("dense")
            return group.vectors(group.rows_of_keys(np.array(group.keys_of_ids(ids), dtype=np.int64)))

    @retried
    def filter_notes(self, where: Where) -> list[str]:
        """Return notes on the parts of a filter that cannot match: unknown fields, other types, and paths of no file.

        An empty store gets none, and a collection those that hold in each of its stores. Raise :class:`ConfigError` if
        the filter is invalid.

        Parameters
        ----------
        where : str or mapping
            Filter, as in :meth:`search`.

        Examples
        --------
        >>> store.filter_notes({"yeer": 2024})
        ["no chunk has the field 'yeer': did you mean 'year'?"]
        >>> store.filter_notes("year = '2024'")
        ["the field 'year' is compared with a string, but its values are numbers: the comparison is never true"]
        """
        condition = parse(where)
        with self.snapshot() as snapshot:
            first, *others = [notes_on(store.connection, condition) for store in snapshot.stores if store.count()] or [
                {}
            ]
        everywhere = (note for leaf, note in first.items() if all(leaf in notes for notes in others))
        return list(dict.fromkeys(everywhere))

    @retried
    def __len__(self) -> int:
        """Return the number of chunks."""
        with self.snapshot() as snapshot:
            return snapshot.count()

    @property
    @retried
    def generation(self) -> int:
        """Number of changes that have been committed."""
        with self.snapshot() as snapshot:
            return snapshot.generation()

    @property
    @retried
    def language(self) -> str:
        """Language whose stemmer lexical search uses, that of the first store."""
        with self.snapshot() as snapshot:
            return snapshot.language()

    @property
    @retried
    def unfinished(self) -> bool:
        """Whether the last indexing run was interrupted, or is not finished yet; see :attr:`being_written`."""
        with self.snapshot() as snapshot:
            return any(catalog.meta(store.connection, "unfinished", False) for store in snapshot.stores)

    @property
    @retried
    def vector_share(self) -> float:
        """Share of the chunks that have a vector, less than 1 until a run has encoded all of them.

        Words find the others meanwhile.
        """
        with self.snapshot() as snapshot:
            return 1.0 - snapshot.waiting() / max(snapshot.count(), 1)

    @property
    @retried
    def awaits_relevance(self) -> bool:
        """Whether the run that is under way, or the next one, fits the relevance of results."""
        with self.snapshot() as snapshot:
            return any(awaits_relevance(store.connection) for store in snapshot.stores)

    @property
    @abstractmethod
    def being_written(self) -> bool:
        """Whether a process of this machine writes now."""

    @property
    def incomplete(self) -> str | None:
        """A note if results may miss something, because a run is under way or was interrupted, else None."""
        if not self.unfinished:
            return None
        share, is_running = self.vector_share, self.being_written
        if share < 1:
            then = "wait for the run that encodes them" if is_running else "run 'ragembed index' again to encode them"
            return f"vectors for {int(100 * share)} % of the chunks; words find the others: {then}"
        if is_running:
            return "the store is being indexed: files that are still missing follow"
        return "the last indexing run was interrupted: run 'ragembed index' to continue it"

    @property
    @retried
    def embedder(self) -> VectorEncoder:
        """Embedder of the current generation.

        Raise :class:`IncompatibleStoreError` if it cannot be loaded, or is not the one that was passed to :meth:`open`,
        :class:`ModelError` if its model cannot be found, and :class:`ConfigError` if stores have different ones.

        Examples
        --------
        >>> store.embedder.encode_documents(["Tea is brewed with hot water."]).dtype.name
        'float32'
        """
        with self.snapshot() as snapshot:
            return snapshot.comparable("dense").embedder()

    # Closing

    @abstractmethod
    def close(self) -> None:
        """Close the database and the files. The next use opens them again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _one_vector(vector: Floats) -> Floats:
    vector = np.asarray(vector, dtype=np.float32)
    if vector.ndim != 1:
        raise DimensionError(f"the query vector has shape {vector.shape}: expected (d,)")
    return vector
