"""Typed read access to the store's database."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragembed.config.fields import read_value
from ragembed.config.settings import QueryFit
from ragembed.documents.model import Chunk, embedded_text
from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.indexes.faiss_index.records import AUTO, FLAT, IndexConfig, IndexEvaluation, IndexSelection, IndexSpec
from ragembed.indexes.filters import MOST_SECONDS, Filter, limited_time, to_sql
from ragembed.indexes.lexical.analyzer import AnalyzerConfig
from ragembed.indexes.storage.folders import FINGERPRINT, require_name
from ragembed.indexes.storage.layout import is_below
from ragembed.indexes.storage.segments import SegmentFiles, SegmentRecord, stored_spec
from ragembed.indexes.types import ChunkRecord, Keys, Rows, SourceRecord, json_ids

Value = TypeVar("Value")

PART = "part"
"""Key of the record of a store that holds only a part of the files of its paths."""

_EMBEDDER_TEXTS = ("kind", "model", "fingerprint", "raw_fingerprint")
_MOST_JSON = 64 << 20
"""Length above which a JSON value of a row is not one that ragembed wrote."""
_MOST_DIMENSIONS = 1 << 20
_SPARSEST, _LEAST_ROWS = 1000, 1 << 28
"""Highest row per vector, and a highest row that any number of vectors may have. Masks have a byte for each row."""
_PARAMETERS = 500  # Per statement. Every version of SQLite accepts up to 999.
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_CHUNK_COLUMNS = (
    "c.key, c.id, c.row, c.text, c.title, c.headings, c.start_line, c.end_line, c.page, c.tokens, c.metadata,"
    " c.searched, c.later_pages, s.path"
)
_EMBEDDED = "coalesce(nullif(searched, ''), text), headings, title FROM chunks"
_CHUNKS = f"SELECT {_CHUNK_COLUMNS} FROM chunks c LEFT JOIN sources s ON s.id = c.source"  # noqa: S608  constants


def meta(connection: sqlite3.Connection, key: str, default: Any = None) -> Any:
    """Return the JSON value stored under ``key``, or ``default``."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return default if row is None else _json(row[0], key)


def _json(text: Any, what: str) -> Any:
    """Return the value of a JSON text; raise :class:`StoreDamagedError` if it is none."""
    try:
        if len(text) > _MOST_JSON:
            raise ValueError
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise _holds(text, repr(what), "valid JSON") from error


def generation(connection: sqlite3.Connection) -> int:
    """Return the number of changes that have been committed."""
    number = meta(connection, "generation", 0)
    if not isinstance(number, int):
        raise _holds(number, "'generation'", "a number")
    return number


def _holds(value: object, what: str, expected: str) -> StoreDamagedError:
    return StoreDamagedError(f"the store's database holds {str(value)[:60]!r} for {what}: expected {expected}")


def embedder(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the record of the current embedder; raise :class:`StoreDamagedError` if it is not well formed."""
    record = meta(connection, "embedder")
    if not isinstance(record, dict) or not all(isinstance(record.get(name), str) for name in _EMBEDDER_TEXTS):
        raise StoreDamagedError("the store's database is damaged: it does not name the embedder of its vectors")
    if FINGERPRINT.fullmatch(record["fingerprint"]) is None:
        raise StoreDamagedError(f"the store's database names the embedder {record['fingerprint']!r}: expected a hash")
    files = record.setdefault("files", {})
    if not isinstance(files, dict) or not all(
        _FILE_NAME.fullmatch(name) and isinstance(sha256, str) for name, sha256 in files.items()
    ):
        raise StoreDamagedError(
            f"the store's database names the embedder files {str(files)[:200]}: expected an object with file names as "
            "keys and hashes as values"
        )
    return record


def set_meta(connection: sqlite3.Connection, key: str, value: Any) -> None:
    """Store a JSON value under ``key``."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, json.dumps(value)))


class RunRecord(TypedDict):
    """The paths and options of a run of ``ragembed index``."""

    paths: list[str]
    options: dict[str, bool | int | float | str | list[str] | None]


class ChainRecord(TypedDict, total=False):
    """The post-processors and the query fit of the next fit."""

    postprocess: tuple[str, ...]
    query_fit: QueryFit


class _MainLanguage(TypedDict):
    chunks: int
    language: str | None
    is_read: bool


class LanguageRecord(_MainLanguage, total=False):
    """The recognised language of the texts of a number of chunks, None for none, and whether the model reads it.

    ``unread`` are all languages that the model does not read.
    """

    unread: list[str]


@dataclass(frozen=True, slots=True)
class PartRecord:
    """A store of the collection with this id: ``stores`` stores each hold a part of the files of the same paths.

    ``indexing`` are the paths and options of the last run, or None before the first one.
    """

    collection: str
    stores: int
    indexing: RunRecord | None

    def __post_init__(self) -> None:
        if self.stores < 1:
            raise ConfigError(f"stores is {self.stores}: expected 1 or more")


def last_request(connection: sqlite3.Connection) -> RunRecord | None:
    """Return the paths and options of the last run of ``ragembed index``, or None if there was none."""
    return parsed_meta(connection, "indexing", RunRecord)


def part(connection: sqlite3.Connection) -> PartRecord | None:
    """Return the record of a store that holds only a part of the files of its paths, or None."""
    return parsed_meta(connection, PART, PartRecord)


def wanted_chain(connection: sqlite3.Connection) -> ChainRecord:
    """Return the post-processors and the query fit of the next fit, if they were set."""
    return parsed_meta(connection, "wanted", ChainRecord) or {}


def detected_language(connection: sqlite3.Connection) -> LanguageRecord | None:
    """Return the language of the texts that was recognised, or None if none was."""
    return parsed_meta(connection, "detected_language", LanguageRecord)


def index_config(connection: sqlite3.Connection) -> IndexConfig:
    """Return the index settings of the store; raise :class:`StoreDamagedError` if they are not well formed."""
    return parsed_meta(connection, "index", IndexConfig) or IndexConfig()


def index_choice(connection: sqlite3.Connection) -> IndexSelection | None:
    """Return the index that was chosen, or None if none was; raise as :func:`index_config` does."""
    return parsed_meta(connection, "index_choice", IndexSelection)


def index_check(connection: sqlite3.Connection) -> IndexEvaluation | None:
    """Return the last measurement of the index, or None if there was none; raise as :func:`index_config` does."""
    return parsed_meta(connection, "index_check", IndexEvaluation)


def analyzer_config(connection: sqlite3.Connection) -> AnalyzerConfig:
    """Return the settings that produced the terms of the full-text index; raise as :func:`index_config` does."""
    return parsed_meta(connection, "words", AnalyzerConfig) or AnalyzerConfig()


def index_spec(connection: sqlite3.Connection) -> IndexSpec:
    """Return the index kind for new segments: the chosen kind, else the configured one."""
    choice, wanted = index_choice(connection), index_config(connection)
    if choice is not None and choice.wanted == wanted:
        return stored_spec(choice.kind)
    return stored_spec(FLAT if wanted.kind == AUTO else wanted.kind)


def parsed_meta(connection: sqlite3.Connection, key: str, kind: type[Value]) -> Value | None:
    """Return the value of ``key``, or None; raise :class:`StoreDamagedError` if it is not of this kind."""
    value = meta(connection, key)
    try:
        return None if value is None else read_value(kind, value, key)
    except ConfigError as error:
        raise StoreDamagedError(f"the store's database holds {str(value)[:60]!r} for {key!r}: {error}") from error


def segments(connection: sqlite3.Connection) -> list[SegmentRecord]:
    """Return the segments by key; raise :class:`StoreDamagedError` for an invalid folder name."""
    return _segment_records(
        connection.execute("SELECT key, folder, rows, dim, kind, raw_sha256, index_sha256 FROM segments ORDER BY key")
    )


def rewritten(connection: sqlite3.Connection, fingerprint: str | None = None) -> list[SegmentRecord]:
    """Return the rewritten segments that will replace those with the same keys, for all embedders or for one."""
    return _segment_records(
        connection.execute(
            "SELECT r.segment, r.folder, s.rows, r.dim, r.kind, r.raw_sha256, r.index_sha256 FROM rewritten r"
            " JOIN segments s ON s.key = r.segment WHERE r.fingerprint = ?1 OR ?1 IS NULL ORDER BY r.segment",
            (fingerprint,),
        )
    )


def _segment_records(rows: Iterable[Sequence[Any]]) -> list[SegmentRecord]:
    records = []
    for key, folder, count, dim, *texts in rows:
        require_types("a segment", (count, dim), (folder, *texts))
        require_name("a segment", folder)
        if count < 1 or not 1 <= dim <= _MOST_DIMENSIONS:
            raise StoreDamagedError(
                f"the store's database names a segment of {count:,} vectors of dimension {dim:,}: expected one or more "
                f"of dimension 1 to {_MOST_DIMENSIONS:,}"
            )
        records.append(SegmentRecord(key, SegmentFiles(folder, count, dim, *texts)))
    return records


def rows_of_segment(connection: sqlite3.Connection, key: int) -> Rows:
    """Return the row of each vector of a segment by position, int64, shape ``(rows,)``."""
    return integers(connection.execute("SELECT row FROM vectors WHERE segment = ? ORDER BY position", (key,)))


def dead_rows(connection: sqlite3.Connection) -> Rows:
    """Return the rows that no chunk uses, int64, shape ``(n,)``."""
    return integers(connection.execute("SELECT row FROM tombstones"))


def live_rows(connection: sqlite3.Connection) -> Rows:
    """Return the rows of the vectors that chunks use, ascending, int64, shape ``(n,)``."""
    return integers(
        connection.execute(
            "SELECT row FROM vectors WHERE segment IS NOT NULL AND row NOT IN (SELECT row FROM tombstones) ORDER BY row"
        )
    )


def last_row(connection: sqlite3.Connection) -> int:
    """Return the highest vector row, or 0; raise StoreDamagedError if a mask of all rows would need far more memory."""
    last = int(connection.execute("SELECT coalesce(max(row), 0) FROM vectors").fetchone()[0])
    if last > _LEAST_ROWS and last > _SPARSEST * count(connection, "vectors"):
        raise StoreDamagedError(
            f"the store's database has a vector with the row {last:,}, but only {count(connection, 'vectors'):,} "
            "vectors: delete the store and index again"
        )
    return last


def highest_key(connection: sqlite3.Connection) -> int:
    """Return the highest chunk key, or 0 if there are no chunks."""
    return int(connection.execute("SELECT coalesce(max(key), 0) FROM chunks").fetchone()[0])


def chunks_after_row(connection: sqlite3.Connection, row: int) -> int:
    """Return the number of chunks with a higher vector row than ``row``."""
    return int(connection.execute("SELECT count(*) FROM chunks WHERE row > ?", (row,)).fetchone()[0])


def matching(connection: sqlite3.Connection, where: Filter) -> tuple[Keys, Rows]:
    """Return the keys of the chunks that match ``where``, ascending, and the vector row of each; shapes ``(n,)``."""
    condition, values = to_sql(where)
    statement = f"SELECT c.key, c.row FROM chunks c LEFT JOIN sources s ON s.id = c.source WHERE {condition}"  # noqa: S608  values are parameters
    with limited_time(MOST_SECONDS):
        return _pairs(connection, f"{statement} ORDER BY c.key", values)


def sources_below(connection: sqlite3.Connection, paths: Iterable[str]) -> list[str]:
    """Return the names of the files that are in ``paths`` or below one of them."""
    roots = set(paths)
    names = sources(connection) if roots else {}
    return [name for name in names if name in roots or any(is_below(name, root) for root in roots)]


def selected_keys(
    connection: sqlite3.Connection, ids: Iterable[str], names: Iterable[str], where: Filter | None
) -> list[int]:
    """Return the keys of the chunks with one of ``ids``, from one of the files ``names``, or that match ``where``."""
    rows = connection.execute(
        "SELECT key FROM chunks WHERE id IN (SELECT value FROM json_each(?)) OR source IN"
        " (SELECT s.id FROM sources s WHERE s.path IN (SELECT value FROM json_each(?)))",
        (json_ids(ids), json.dumps(list(names))),
    )
    keys = {row[0] for row in rows}
    if where is not None:
        keys.update(matching(connection, where)[0].tolist())
    return sorted(keys)


def integers(rows: Iterable[Sequence[int]]) -> NDArray[np.int64]:
    """Return the first column of rows, int64, shape ``(n,)``."""
    try:
        return np.fromiter((row[0] for row in rows), dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise _not_a_number(error) from error


def _not_a_number(error: Exception) -> StoreDamagedError:
    return StoreDamagedError(f"the store's database holds a value that is not a number where one belongs: {error}")


def sources(connection: sqlite3.Connection, names: Iterable[str] | None = None) -> dict[str, SourceRecord]:
    """Return the files in the store by name: all of them, or those with one of ``names``."""
    statement = "SELECT path, size, mtime_ns, sha256, pipeline_hash FROM sources"
    if names is None:
        rows = connection.execute(statement)
    else:
        statement += " WHERE path IN (SELECT value FROM json_each(?))"
        rows = connection.execute(statement, (json_ids(names),))
    return {row[0]: SourceRecord(*row) for row in rows}


def skipped(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the reason for each file that the last runs skipped, by name."""
    return dict(connection.execute("SELECT path, reason FROM skipped ORDER BY path").fetchall())


def count(connection: sqlite3.Connection, table: str) -> int:
    """Return the number of rows of ``table``; texts that wait for their vector do not count as vectors."""
    if table not in ("chunks", "sources", "segments", "tombstones", "skipped", "vectors"):
        raise ValueError(f"unknown table {table!r}")
    what = "count(segment)" if table == "vectors" else "count(*)"
    return int(connection.execute(f"SELECT {what} FROM {table}").fetchone()[0])  # noqa: S608  checked above


def count_waiting(connection: sqlite3.Connection) -> int:
    """Return the number of chunks whose text waits for its vector."""
    waiting = "SELECT count(*) FROM vectors v JOIN chunks c ON c.row = v.row WHERE v.segment IS NULL"
    return int(connection.execute(waiting).fetchone()[0])


def waiting_texts(connection: sqlite3.Connection, limit: int = -1) -> dict[bytes, str]:
    """Return the first ``limit`` embedded texts that wait for their vector, in order of their rows, by their hash."""
    rows = integers(
        connection.execute("SELECT row FROM vectors WHERE segment IS NULL ORDER BY row LIMIT ?", (limit,))
    ).tolist()
    hashes = hashes_of_rows(connection, rows)
    texts = texts_of_rows(connection, rows)
    return {hashes[row]: texts[row] for row in rows}


def chunks_of_rows(connection: sqlite3.Connection, rows: Sequence[int]) -> tuple[Keys, Rows]:
    """Return the keys of the chunks that use any of ``rows``, ascending, and the row of each; shapes ``(n,)``."""
    statement = "SELECT key, row FROM chunks WHERE row IN (SELECT value FROM json_each(?)) ORDER BY key"
    return _pairs(connection, statement, (json.dumps(list(rows)),))


def chunk_rows(connection: sqlite3.Connection) -> tuple[Keys, Rows]:
    """Return the keys of all chunks, ascending, and the vector row of each; shapes ``(n,)``."""
    keys, rows = connection.execute(
        "SELECT group_concat(key), group_concat(row) FROM (SELECT key, row FROM chunks ORDER BY row)"
    ).fetchone()
    try:  # Two long texts are read in a third of the time of many numbers.
        by_row = [np.array(text.split(",") if text else (), dtype=np.int64) for text in (keys, rows)]
        pairs = np.stack(by_row)
    except (AttributeError, ValueError, OverflowError) as error:
        raise _not_a_number(error) from error
    order = np.argsort(pairs[0])
    return pairs[0][order], pairs[1][order]


def chunk_sources(connection: sqlite3.Connection) -> tuple[Keys, Rows]:
    """Return the keys of all chunks, ascending, and the id of each one's file, 0 for no file; shapes ``(n,)``."""
    return _pairs(connection, "SELECT key, coalesce(source, 0) FROM chunks ORDER BY key", ())


def source_kinds(connection: sqlite3.Connection) -> list[tuple[int, str, str, int, int]]:
    """Return id, name, extension, size in bytes and modification time in nanoseconds of each file, by name."""
    rows = connection.execute("SELECT id, path, ext, size, mtime_ns FROM sources ORDER BY path")
    return [tuple(row) for row in rows]


def _pairs(connection: sqlite3.Connection, statement: str, values: Sequence[object]) -> tuple[Keys, Rows]:
    """Return the two integer columns of a statement, shapes ``(n,)``."""
    cursor = connection.cursor()
    cursor.row_factory = None  # NumPy reads plain tuples ten times as fast as named rows.
    try:
        pairs = np.array(cursor.execute(statement, values).fetchall(), dtype=np.int64).reshape(-1, 2)
    except (TypeError, ValueError) as error:
        raise _not_a_number(error) from error
    return pairs[:, 0], pairs[:, 1]


def _found(connection: sqlite3.Connection, what: str, column: str, values: str) -> dict[Any, Any]:
    """Return ``column`` with another column of the rows in which it is one of ``values``, a JSON array."""
    statement = f"SELECT {column}, {what} WHERE {column} IN (SELECT value FROM json_each(?))"  # noqa: S608  constants
    return dict(connection.execute(statement, (values,)).fetchall())


def rows_of_keys(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, int]:
    """Return the vector row of each chunk key."""
    return _found(connection, "row FROM chunks", "key", json.dumps(list(keys)))


def rows_of_ids(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return the vector row of each chunk id; unknown ids are left out."""
    return _found(connection, "row FROM chunks", "id", json_ids(ids))


def keys_of_ids(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return the key of each chunk id; unknown ids are left out."""
    return _found(connection, "key FROM chunks", "id", json_ids(ids))


def hashes_of_rows(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, bytes]:
    """Return the hash of the text of each vector row."""
    return _found(connection, "text_hash FROM vectors", "row", json.dumps(list(rows)))


def rows_of_hashes(
    connection: sqlite3.Connection, hashes: Iterable[bytes], *, with_vector: bool = False
) -> dict[bytes, int]:
    """Return the vector rows of texts by the hashes of the texts; other texts are left out.

    So are those that wait for their vector, if they must be ``with_vector``.
    """
    condition = " AND segment IS NOT NULL" if with_vector else ""
    keys = list(dict.fromkeys(hashes))
    rows: dict[bytes, int] = {}
    for start in range(0, len(keys), _PARAMETERS):
        some = keys[start : start + _PARAMETERS]
        marks = ", ".join("?" * len(some))
        statement = f"SELECT text_hash, row FROM vectors WHERE text_hash IN ({marks}){condition}"  # noqa: S608  constants
        rows.update(connection.execute(statement, some))
    return rows


def vector_place(connection: sqlite3.Connection, key: bytes) -> tuple[int, int, int, bool] | None:
    """Return row, segment key and position of the vector of a text by its hash, and whether a chunk uses it."""
    place = connection.execute(
        "SELECT v.row, v.segment, v.position, t.row IS NULL FROM vectors v LEFT JOIN tombstones t ON t.row = v.row"
        " WHERE v.text_hash = ?",
        (key,),
    ).fetchone()
    return None if place is None else (place[0], place[1], place[2], bool(place[3]))


def places_of_rows(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return the segment key and the position in the segment of each vector; rows that wait for one are left out."""
    places = connection.execute(
        "SELECT row, segment, position FROM vectors"
        " WHERE row IN (SELECT value FROM json_each(?)) AND segment IS NOT NULL",
        (json.dumps(list(rows)),),
    )
    return {row: (segment, position) for row, segment, position in places}


def embedded_by_key(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, str]:
    """Return the embedded text of each chunk by key: title, headings and searched text."""
    statement = f"SELECT key, {_EMBEDDED} WHERE key IN (SELECT value FROM json_each(?))"  # noqa: S608  constants
    return dict(_embedded(connection, statement, (json.dumps(list(keys)),)))


def chunks_by_key(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, ChunkRecord]:
    """Return the chunks with these keys."""
    wanted = json.dumps(list(keys))
    rows = connection.execute(_CHUNKS + " WHERE c.key IN (SELECT value FROM json_each(?))", (wanted,))  # noqa: S608  constants
    return {row["key"]: _chunk_record(row) for row in rows}


def neighbour(connection: sqlite3.Connection, key: int, step: int) -> int | None:
    """Return the key of the chunk after the chunk ``key`` in the same file, or before it if ``step`` is negative."""
    beyond, order = (">", "ASC") if step > 0 else ("<", "DESC")
    row = connection.execute(
        f"SELECT key FROM chunks WHERE source = (SELECT source FROM chunks WHERE key = ?1) AND key {beyond} ?1"  # noqa: S608  constants
        f" ORDER BY key {order} LIMIT 1",
        (key,),
    ).fetchone()
    return None if row is None else int(row[0])


def texts_of_rows(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, str]:
    """Return the embedded text of each of ``rows`` that a chunk uses."""
    keys, used = chunks_of_rows(connection, rows)
    key_of = dict(zip(used.tolist(), keys.tolist(), strict=True))
    texts = embedded_by_key(connection, list(key_of.values()))
    return {row: texts[key] for row, key in key_of.items()}


def texts_of_hashes(connection: sqlite3.Connection, hashes: Iterable[bytes]) -> dict[bytes, str]:
    """Return the embedded text of each hash; hashes of texts that no chunk has are left out."""
    rows = rows_of_hashes(connection, hashes)
    texts = texts_of_rows(connection, list(rows.values()))
    return {key: texts[row] for key, row in rows.items() if row in texts}


def chunks_by_id(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, ChunkRecord]:
    """Return the chunks with these ids; unknown ids are left out."""
    rows = connection.execute(_CHUNKS + " WHERE c.id IN (SELECT value FROM json_each(?))", (json_ids(ids),))  # noqa: S608  constants
    return {row["id"]: _chunk_record(row) for row in rows}


def iterate_chunks(
    connection: sqlite3.Connection,
    source: str | None = None,
    where: Filter | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> Iterator[ChunkRecord]:
    """Yield chunks in order of insertion, at most ``limit`` after ``offset``, of one file, or that match ``where``."""
    condition, values = ("1", []) if where is None else to_sql(where)
    if source is not None:
        condition, values = f"({condition}) AND s.path = ?", [*values, source]
    page = [-1 if limit is None else limit, offset]
    with limited_time():
        rows = connection.execute(f"{_CHUNKS} WHERE {condition} ORDER BY c.key LIMIT ? OFFSET ?", [*values, *page])
        yield from map(_chunk_record, rows)


def texts_of_files(connection: sqlite3.Connection, step: int) -> Iterator[tuple[str, str]]:
    """Yield the name of its file and the text of each chunk that has a file, or of one in about ``step`` of them."""
    tables = "chunks c JOIN sources s ON s.id = c.source"
    rows = connection.execute(f"SELECT s.path, c.text FROM {tables} WHERE c.key % ? = 0 ORDER BY c.key", (step,))  # noqa: S608  constants
    return ((path, text) for path, text in rows)


def embedded_texts(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the embedded text of each chunk in order of insertion; a fifth of the cost of reading whole chunks."""
    return (text for _, text in _embedded(connection, f"SELECT key, {_EMBEDDED} ORDER BY key"))


def embedded_texts_by_row(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Yield each vector row that a chunk uses, ascending, with the embedded text of its first chunk."""
    first = "SELECT min(key) FROM chunks GROUP BY row"
    return _embedded(connection, f"SELECT row, {_EMBEDDED} WHERE key IN ({first}) ORDER BY row")


def _embedded(connection: sqlite3.Connection, statement: str, values: Sequence[str] = ()) -> Iterator[tuple[int, str]]:
    cursor = connection.cursor()
    cursor.row_factory = None
    for key_or_row, text, headings, title in cursor.execute(statement, values):
        require_types("a chunk", (), (text, title or ""))
        yield key_or_row, embedded_text(text, _headings(headings), title)


def _headings(text: Any) -> tuple[str, ...]:
    headings = () if text == "[]" else _json(text, "headings")
    if not isinstance(headings, (tuple, list)) or not all(isinstance(heading, str) for heading in headings):
        raise _holds(text, "headings", "a list of texts")
    return tuple(headings)


def _later_pages(text: Any) -> tuple[tuple[int, int], ...]:
    try:
        pages = [(line, page) for line, page in _json(text, "later_pages")]
    except (TypeError, ValueError):
        raise _holds(text, "later_pages", "a list of pairs of numbers") from None
    require_types("later_pages", (number for pair in pages for number in pair), ())
    return tuple(pages)


def require_types(what: str, numbers: Iterable[object], texts: Iterable[object]) -> None:
    """Raise :class:`StoreDamagedError` unless ``numbers`` are integers and ``texts`` are strings."""
    for expected, values in ((int, numbers), (str, texts)):
        for value in values:
            if not isinstance(value, expected):
                raise _holds(value, what, f"a value of type {expected.__name__}")


def chunk_ids(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of the chunks in order of insertion."""
    return [row[0] for row in connection.execute("SELECT id FROM chunks ORDER BY key")]


def _chunk_record(row: sqlite3.Row) -> ChunkRecord:
    require_types(
        "a chunk",
        [row["tokens"], *(row[name] for name in ("start_line", "end_line", "page") if row[name] is not None)],
        [row["id"], row["text"], *(row[name] for name in ("title", "searched", "path") if row[name] is not None)],
    )
    metadata = {} if row["metadata"] == "{}" else _json(row["metadata"], "metadata")
    if not isinstance(metadata, dict):
        raise _holds(metadata, "metadata", "a JSON object")
    chunk = Chunk(
        text=row["text"],
        headings=_headings(row["headings"]),
        title=row["title"],
        start_line=row["start_line"],
        end_line=row["end_line"],
        page=row["page"],
        tokens=row["tokens"],
        metadata=metadata,
        searched=row["searched"],
        later_pages=() if row["later_pages"] is None else _later_pages(row["later_pages"]),
    )
    return ChunkRecord(row["id"], chunk, row["path"])
