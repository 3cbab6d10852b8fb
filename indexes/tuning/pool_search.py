"""Search a pool for its pseudo-queries: encode it with several configurations and search a temporary store."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from ragembed.config.settings import EmbedderConfig
from ragembed.documents.normalisation import normalise
from ragembed.evaluation.encoding import RawVectors, raw_part
from ragembed.evaluation.retrieval import ndcg
from ragembed.extractors.protocol import Side
from ragembed.indexes.ann.specs import FLAT
from ragembed.indexes.search.dense import nearest
from ragembed.indexes.search.fanout import LocalSegments
from ragembed.indexes.search.feedback import likeness, words_of
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.hybrid import DEPTH, LexicalMatches, candidates
from ragembed.indexes.search.search import Mode, query_expression
from ragembed.indexes.search.snapshot import Snapshot, StoreSnapshot, StoreState
from ragembed.indexes.storage import catalog, changes
from ragembed.indexes.storage.layout import DATABASE
from ragembed.indexes.storage.schema import connect
from ragembed.indexes.storage.selection import Selection, select
from ragembed.indexes.store import Store
from ragembed.indexes.text.analyzer import of_language
from ragembed.indexes.tuning.pool import Pool
from ragembed.indexes.tuning.queries import PseudoQuery
from ragembed.indexes.tuning.store_evaluation import NoEncoder
from ragembed.indexes.types import ChunkRecord, Keys, Rows, text_hash
from ragembed.postprocess import unit_rows
from ragembed.types import Doubles, Floats

CUT = 10
"""Number of results that count towards nDCG."""

_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class PoolVectors:
    """Unit vectors, float32, of one configuration.

    ``documents`` has shape ``(pool, d)`` and ``queries`` has shape ``(queries, d)``. ``changed`` has a row for each
    chunk that a query changes, ordered by query and then by position.
    """

    documents: Floats
    queries: Floats
    changed: Floats


class Encoder:
    """Encodes a pool and its queries with several configurations, which share the forward passes of the model.

    Parameters
    ----------
    configs
        All configurations whose raw vectors are needed later.
    pool, queries
        The chunks and queries to encode.
    device
        The device, as for :class:`ragembed.Embedder`.
    done
        Called with the number of texts encoded since the last call; the total is :func:`texts_to_encode`.
    """

    def __init__(
        self,
        configs: Sequence[EmbedderConfig],
        pool: Pool,
        queries: Sequence[PseudoQuery],
        device: str | None = None,
        done: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._texts = [passage.chunk.embedded_text for passage in pool.passages]
        self._raw = RawVectors(configs, self._texts, device)
        changed = [query.changed[at].embedded_text for query in queries for at in sorted(query.changed)]
        self._documents = self._encoded(self._texts, "documents", done)
        self._changed = self._encoded(changed, "documents", done)
        self._queries = self._encoded([query.text for query in queries], "pseudo-queries", done)

    def vectors(self, config: EmbedderConfig) -> PoolVectors:
        """Return the embeddings of ``config``, with post-processors fitted on the pool.

        Raises :class:`ragembed.errors.RankError` if a post-processor has more directions than the vectors.
        """
        key = raw_part(config)
        chain = self._raw.chain(config, self._texts, self._documents[key])
        return PoolVectors(
            unit_rows(chain.documents.transform(self._documents[key])),
            unit_rows(chain.queries.transform(self._queries[key])),
            unit_rows(chain.documents.transform(self._changed[key])),
        )

    def _encoded(self, texts: Sequence[str], side: Side, done: Callable[[int], None]) -> dict[EmbedderConfig, Floats]:
        parts: list[dict[EmbedderConfig, Floats]] = []
        for start in range(0, len(texts), _AT_ONCE):
            part = texts[start : start + _AT_ONCE]
            parts.append(self._raw.of(part, side))
            done(len(part))
        if not parts:
            parts.append(self._raw.of([], side))
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def texts_to_encode(pool: Pool, queries: Sequence[PseudoQuery]) -> int:
    """Return the number of texts that :class:`Encoder` encodes."""
    return len(pool) + len(queries) + sum(len(query.changed) for query in queries)


class PoolSearch:
    """Searches a pool for its queries as a store does, with given vectors.

    The pool is in a temporary store. For each query, a transaction replaces the chunks that the query changes, searches
    the store, and is rolled back. Results that do not depend on vectors are cached between searches for the same query.

    Parameters
    ----------
    folder
        An empty folder for the store.
    pool, queries
        The chunks to search, and the queries to search for.
    language
        The language for stemming words.
    unread_share
        Returns the share of a query that the model cannot read, as :meth:`ragembed.Embedder.unread_share`.
    """

    def __init__(
        self,
        folder: Path,
        pool: Pool,
        queries: Sequence[PseudoQuery],
        language: str,
        unread_share: Callable[[str], float] = lambda _: 0.0,
    ) -> None:
        self._queries = queries
        self._unread = [unread_share(normalise(query.text)) for query in queries]
        changed = [(at, query.changed[at]) for query in queries for at in sorted(query.changed)]
        chunks = [*(passage.chunk for passage in pool.passages), *(chunk for _, chunk in changed)]
        texts = [chunk.embedded_text for chunk in chunks]
        self._positions = [*range(len(pool)), *(at for at, _ in changed)]
        self._firsts = [len(pool) + n for n in accumulate((len(query.changed) for query in queries), initial=0)]
        terms = of_language(language)
        self._words = [words_of(terms.of_text(text)) for text in texts]
        records = [ChunkRecord(str(at), passage.chunk) for at, passage in enumerate(pool.passages)]
        with Store.create(folder, NoEncoder(), index=FLAT, language=language) as store, store.writer() as writer:
            writer.stage_vectors(texts, np.ones((len(texts), 1), np.float32))
            writer.commit(chunks=records)
        self._connection = connect(folder / DATABASE, writable=True)
        row_of = catalog.rows_of_hashes(self._connection, [text_hash(text) for text in texts])
        rows = np.array([row_of[text_hash(text)] for text in texts], dtype=np.int64)
        self._rows, self._changed_rows = rows[: len(pool)], rows[len(pool) :]
        self._searcher = LocalSegments()
        keys = catalog.keys_of_ids(self._connection, [record.id for record in records])
        self._places = {key: int(at) for at, key in keys.items()}
        self._prepared: dict[int, _PreparedQuery] = {}

    def close(self) -> None:
        """Close the store."""
        self._searcher.close()
        self._connection.close()

    def dense(self, vectors: PoolVectors, rows: Sequence[int]) -> Doubles:
        """Return nDCG@10 of dense search for the queries at ``rows``, float64, shape ``(n,)``."""
        return self._values(rows, self.find(vectors, rows, "dense"))

    def hybrid(self, vectors: PoolVectors, rows: Sequence[int], fusion: Fusion) -> Doubles:
        """Return nDCG@10 of hybrid search for the queries at ``rows``, float64, shape ``(n,)``."""
        return self._values(rows, self.find(vectors, rows, "hybrid", fusion))

    def find(
        self, vectors: PoolVectors, rows: Sequence[int], mode: Mode, fusion: Fusion | None = None, count: int = CUT
    ) -> list[list[int]]:
        """Return the positions of the best ``count`` chunks for each of the queries at ``rows``, best first."""
        by_row = np.zeros((catalog.last_row(self._connection) + 1, vectors.documents.shape[1]), np.float32)
        by_row[self._changed_rows], by_row[self._rows] = vectors.changed, vectors.documents
        fusion = fusion or Fusion()
        return [self._find(by_row, vectors.queries[row], row, mode, fusion, count) for row in rows]

    def _find(self, by_row: Floats, vector: Floats, row: int, mode: Mode, fusion: Fusion, count: int) -> list[int]:
        query = self._queries[row]
        with self._changed(query):
            snapshot = _PoolSnapshot(
                self._connection,
                0,
                dict,
                NoEncoder,
                lambda _: select(self._connection, None),
                lambda: None,
                lambda: None,
                lambda: None,
                StoreState(),
                self._searcher,
                by_row,
            )
            prepared = self._prepared.get(row)
            if prepared is None:
                prepared = self._prepared[row] = _PreparedQuery.of(snapshot, query, self._firsts[row])
            places = ChainMap(prepared.changed, self._places)
            vectors = unit_rows(vector[None, :])
            if mode == "lexical":
                matches = prepared.matches
                best = [] if matches is None else matches.keys[np.argsort(-matches.scores, kind="stable")].tolist()
            elif mode == "dense" or prepared.matches is None:
                [(keys, cosines)] = nearest(snapshot, vectors, count, prepared.selection)
                best = keys[np.argsort(-cosines, kind="stable")].tolist()
            else:

                def shared(_: Snapshot, keys: Keys, best: int) -> Doubles:
                    return likeness([self._words[places[key]] for key in keys.tolist()], best)

                fusion = fusion.for_unread(self._unread[row])
                [found] = candidates(
                    snapshot, vectors, [prepared.matches], DEPTH, count, prepared.selection, fusion, shared
                )
                best = found.keys.tolist()
            return [self._positions[places[key]] for key in best[:count]]

    def _values(self, rows: Sequence[int], found: Sequence[list[int]]) -> Doubles:
        relevance = ({str(at): 1 for at in self._queries[row].answers} for row in rows)
        return np.array(
            [ndcg([str(at) for at in best], of_one, CUT) for best, of_one in zip(found, relevance, strict=True)]
        )

    @contextmanager
    def _changed(self, query: PseudoQuery) -> Iterator[None]:
        """Replace the chunks that a query changes, within the block."""
        records = [ChunkRecord(str(at), chunk) for at, chunk in sorted(query.changed.items())]
        self._connection.execute("BEGIN")
        try:
            rows = changes.delete_chunks(self._connection, [record.id for record in records])
            rows |= changes.insert_chunks(self._connection, records)
            changes.mark_unused(self._connection, rows)
            yield
        finally:
            self._connection.execute("ROLLBACK")


@dataclass(frozen=True, slots=True)
class _PreparedQuery:
    """The parts of a search for a query that do not depend on vectors.

    ``changed`` maps the key of each chunk that the query changes to its number among all texts.
    """

    selection: Selection | None
    matches: LexicalMatches | None
    changed: dict[int, int]

    @classmethod
    def of(cls, snapshot: StoreSnapshot, query: PseudoQuery, first: int) -> _PreparedQuery:
        """Search for the words of ``query``; ``first`` is the number of the first text that it changes."""
        selection = snapshot.select(None)
        expression = query_expression(snapshot, query.text)
        matches = None if expression is None else LexicalMatches.of(snapshot, expression, DEPTH, selection)
        ids = [str(at) for at in sorted(query.changed)]
        keys = catalog.keys_of_ids(snapshot.connection, ids)
        return cls(selection, matches, {keys[each]: first + i for i, each in enumerate(ids)})


@dataclass(frozen=True)
class _PoolSnapshot(StoreSnapshot):
    """A snapshot that holds the vectors of all rows in memory, float32, shape ``(rows + 1, d)``."""

    by_row: Floats

    def dim(self) -> int:
        return int(self.by_row.shape[1])

    def nearest_rows(self, queries: Floats, k: int, selection: Selection | None) -> list[tuple[Rows, Floats]]:
        mask = np.arange(len(self.by_row)) > 0 if selection is None else selection.mask
        admitted = np.flatnonzero(mask)
        cosines = unit_rows(queries) @ self.by_row.T
        return [_nearest(row[admitted], admitted, k) for row in cosines]

    def vectors(self, rows: Rows) -> Floats:
        return self.by_row[rows]


def _nearest(cosines: Floats, rows: Rows, k: int) -> tuple[Rows, Floats]:
    """Return the rows with the ``k`` highest cosines, best first, including ties with the last one."""
    if len(cosines) > k:
        near = np.flatnonzero(cosines >= np.partition(cosines, len(cosines) - k)[len(cosines) - k])
        cosines, rows = cosines[near], rows[near]
    order = np.argsort(-cosines, kind="stable")
    return rows[order], cosines[order]
