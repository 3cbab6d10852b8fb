"""BM25 of a pool, with the full-text index that its store has."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragembed.documents.model import Chunk
from ragembed.indexes import catalog, changes, digests, lexical
from ragembed.indexes.feedback import Integers, Numbers
from ragembed.indexes.hybrid import DEPTH, LEXICAL_DEPTH
from ragembed.indexes.records import ChunkRecord, json_ids, text_hash
from ragembed.indexes.terms import Terms, of_language, register
from ragembed.tuning.passages import Pool
from ragembed.tuning.queries import PseudoQuery

_KEYS = "SELECT key, id FROM chunks WHERE id IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class Matches:
    """What lexical search says of a query: BM25 of ``positions``, ascending, ``floor`` for all others.

    ``likely`` are the positions that are good enough by words alone; ``wordless`` tells that the query has no word.
    """

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]
    floor: float
    likely: NDArray[np.int64]
    wordless: bool = False

    def of(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the BM25 of ``positions``, float64, shape ``(n,)``."""
        scores = np.full(len(positions), self.floor)
        if len(self.positions):
            places = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
            found = self.positions[places] == positions
            scores[found] = self.scores[places[found]]
        return scores


@dataclass(frozen=True, slots=True)
class PoolTexts:
    """The numbers of the words of each chunk of a pool, and of those that a query changes, by position."""

    texts: Sequence[Integers]
    changed: Sequence[Mapping[int, Integers]]

    @classmethod
    def of(cls, store: sqlite3.Connection, pool: Pool, queries: Sequence[PseudoQuery]) -> PoolTexts:
        """Read the texts of a pool, as the model is given them; ``store`` tells the language."""
        terms, numbers = of_language(catalog.words(store).language), Numbers()

        def numbered(chunk: Chunk) -> Integers:
            return numbers.of(terms.of_text(chunk.embedded_text))

        changed = [{at: numbered(chunk) for at, chunk in query.changed.items()} for query in queries]
        return cls([numbered(passage.chunk) for passage in pool.passages], changed)

    def at(self, row: int, positions: NDArray[np.int64]) -> list[Integers]:
        """Return the texts at ``positions`` of the pool for the query at ``row``."""
        changed = self.changed[row]
        return [changed.get(at, self.texts[at]) for at in positions.tolist()]


def match_words(
    store: sqlite3.Connection, pool: Pool, queries: Sequence[PseudoQuery], done: Callable[[int], None] = lambda _: None
) -> list[Matches]:
    """Search a pool for each query, with what the query changes in the place of what is there.

    Statistics are those of the pool with the changes. Tables and full-text index are defined as in ``store``, whose
    settings are taken along; nothing is written to it. ``done`` is told how many queries are done since the last call.
    """
    language = catalog.words(store).language
    connection = sqlite3.connect(":memory:", isolation_level=None)
    register(connection, language)
    digests.register(connection)
    connection.row_factory = sqlite3.Row
    try:
        _define_as(store, connection)
        ids = [str(position) for position in range(len(pool))]
        _insert(connection, ids, [passage.chunk for passage in pool.passages])
        positions = {key: int(chunk_id) for key, chunk_id in connection.execute("SELECT key, id FROM chunks")}
        matches = []
        for query in queries:
            matches.append(_matches(connection, positions, query, of_language(language)))
            done(1)
        return matches
    finally:
        connection.close()


def _matches(connection: sqlite3.Connection, positions: dict[int, int], query: PseudoQuery, terms: Terms) -> Matches:
    expression = lexical.match_expression(query.text, terms)
    nothing = np.zeros(0, dtype=np.int64)
    if expression is None:
        return Matches(nothing, np.zeros(0), 0.0, nothing, wordless=True)
    connection.execute("BEGIN")
    try:
        changed = {str(at): chunk for at, chunk in sorted(query.changed.items())}
        changes.delete_chunks(connection, list(changed))
        _insert(connection, list(changed), list(changed.values()))
        found = lexical.search(connection, expression, max(LEXICAL_DEPTH, DEPTH))
        own = dict(positions)
        own.update({row["key"]: int(row["id"]) for row in connection.execute(_KEYS, (json_ids(changed),))})
    finally:
        connection.execute("ROLLBACK")
    ranked = np.array([own[key] for key, _ in found], dtype=np.int64)
    scores = np.array([score for _, score in found])
    order = np.argsort(ranked)
    floor = float(scores[-1]) if len(found) >= LEXICAL_DEPTH else 0.0
    likely = np.sort(ranked[: len(lexical.with_ties(found, DEPTH))])
    return Matches(ranked[order], scores[order], floor, likely)


def _define_as(store: sqlite3.Connection, connection: sqlite3.Connection) -> None:
    """Define the tables that hold chunks and their words as those of ``store`` are, and take its settings along."""
    rows = store.execute("SELECT name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
    defined = [(row["name"], row["tbl_name"], row["sql"]) for row in rows]
    virtual = {name for name, _, sql in defined if sql.upper().startswith("CREATE VIRTUAL")}
    for name, table, sql in defined:
        inside = any(name != of and name.startswith(f"{of}_") and table == name for of in virtual)
        if name != "sqlite_sequence" and not inside:
            connection.execute(sql)
    values = store.execute("SELECT key, value FROM meta WHERE key <> 'embedder'").fetchall()
    connection.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", [tuple(row) for row in values])


def _insert(connection: sqlite3.Connection, ids: Sequence[str], chunks: Sequence[Chunk]) -> None:
    hashes = list(dict.fromkeys(text_hash(chunk.embedded_text) for chunk in chunks))
    known = catalog.rows_of_hashes(connection, hashes)
    connection.executemany(
        "INSERT INTO vectors (text_hash, segment, position) VALUES (?, 1, 0)",
        [(key,) for key in hashes if key not in known],
    )
    changes.insert_chunks(
        connection, [ChunkRecord(chunk_id, chunk) for chunk_id, chunk in zip(ids, chunks, strict=True)]
    )
