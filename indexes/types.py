"""Types that all modules of :mod:`ragembed.indexes` share: encoders, chunk records, hits, values of a generation."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ragembed.documents.model import Chunk
from ragembed.documents.normalisation import normalised
from ragembed.documents.readers.registry import location_of, sheet_of
from ragembed.encoder import VectorEncoder as VectorEncoder
from ragembed.errors import ConfigError
from ragembed.types import Floats, Integers

Rows = Integers
"""Row numbers of vectors in a store."""
Keys = Integers
"""Keys of chunks in a store."""

_SHOWN = 200
"""Characters of a text in the table of a notebook."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A file in a store.

    Attributes
    ----------
    path : str
        Name of the file in the store: its path relative to the folder that holds the store, or a URL.
    size : int
        Size in bytes.
    mtime_ns : int
        Modification time in nanoseconds since 1970.
    sha256 : str
        Hash of the content, hexadecimal.
    pipeline_hash : str
        Hash of the settings that the file was read and divided into chunks with.

    Examples
    --------
    >>> from ragembed.indexes import SourceRecord
    >>> SourceRecord("docs/tea.md", 30, 1767225600000000000, "9f2c…", "51ab…").path
    'docs/tea.md'
    """

    path: str
    size: int
    mtime_ns: int
    sha256: str
    pipeline_hash: str


def storable_time(nanoseconds: int) -> int:
    """Return a time clamped to the range of a 64-bit integer column, years 1677 to 2262."""
    return min(max(nanoseconds, -(2**63)), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """A chunk in a store.

    Attributes
    ----------
    id : str
        Id of the chunk, unique in the store.
    chunk : ragembed.Chunk
        Text of the chunk with its title, headings, position and metadata.
    source : str or None
        Name of the file that the chunk comes from, or None if it comes from no file.
    store : str or None
        Name of the store in the collection that was searched, or None if a single store was.

    Examples
    --------
    >>> from ragembed import Chunk
    >>> from ragembed.indexes import ChunkRecord
    >>> ChunkRecord("tea", Chunk("Tea is brewed with hot water.", metadata={"year": 2023})).source is None
    True
    """

    id: str
    chunk: Chunk
    source: str | None = None
    store: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a search.

    Attributes
    ----------
    id : str
        Id of the chunk.
    chunk : ragembed.Chunk
        Text of the chunk with its title, headings, position and metadata.
    source : str or None
        Name of the file that the chunk comes from, or None if it comes from no file.
    score : float
        Score that hits are ordered by; higher is better. It is the fused score in hybrid search, the cosine in dense
        search and BM25 in lexical search. Fused scores are scaled over the candidates of one query, so compare them
        only among the hits of that query.
    dense : float or None
        Cosine of the query and the chunk, or None if it was not computed.
    lexical : float or None
        BM25 of the chunk for the query, or None if it was not computed.
    rerank : float or None
        Score of the reranker, or None if it did not read the chunk. Hits with this score come first, ordered by it.
    duplicates : tuple of ChunkRecord
        Near-duplicates that were folded into this hit, best first.
    relevance : float or None
        Estimated probability that the chunk is about the query, from 0 to 1. You can compare it between queries. None
        if the store has no fit of it: ``ragembed refit`` makes one.
    store : str or None
        Name of the store in the collection that was searched, or None if a single store was.

    Examples
    --------
    >>> from ragembed import Chunk, Hit
    >>> Hit("tea", Chunk("Tea is brewed with hot water."), "docs/tea.md", score=1.2, dense=0.8).lexical is None
    True
    """

    id: str
    chunk: Chunk
    source: str | None
    score: float
    dense: float | None = None
    lexical: float | None = None
    rerank: float | None = None
    duplicates: tuple[ChunkRecord, ...] = ()
    relevance: float | None = None
    store: str | None = None

    def _repr_html_(self) -> str:
        return Hits([self])._repr_html_()


class Hits(list[Hit]):
    """The hits of a query, best first: a list that notebooks show as a table."""

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        rows = [
            (
                str(rank),
                _place(hit),
                f"{hit.score:.3f}",
                "–" if hit.relevance is None else f"{hit.relevance:.2f}",
                " ".join(hit.chunk.text.split())[:_SHOWN],
            )
            for rank, hit in enumerate(self, 1)
        ]
        return notebook_table(f"{len(self):,} hits", ("", "Place", "Score", "Relevance", "Text"), rows)


def _place(hit: Hit) -> str:
    chunk = hit.chunk
    store = "" if hit.store is None else f"{hit.store}: "
    path = store + (source_of(hit) or hit.id)
    sheet = sheet_of(hit.source, chunk.headings)
    return location_of(path, chunk.start_line, chunk.end_line, chunk.page, chunk.end_page, sheet)


def source_of(record: ChunkRecord | Hit) -> str | None:
    """Return the name of the file of a chunk, or the ``source`` in its metadata if it comes from no file."""
    named = record.chunk.metadata.get("source") if record.source is None else record.source
    return named if isinstance(named, str) and named else None


def as_records(
    chunks: Iterable[str | ChunkRecord],
    ids: Sequence[str] | None = None,
    metadata: Sequence[Mapping[str, Any]] | None = None,
) -> list[ChunkRecord]:
    """Return texts as chunk records.

    Records are returned unchanged, except that their searched text is normalised.
    """
    if isinstance(chunks, str):
        raise ConfigError(f"chunks is the text {chunks[:40]!r}: expected a list of texts or chunk records")
    items = list(chunks)
    texts = [item for item in items if isinstance(item, str)]
    for name, values in (("ids", ids), ("metadata", metadata)):
        if values is not None and len(texts) != len(items):
            raise ConfigError(f"{name} was given with chunk records, which have their own: pass it with texts only")
        if values is not None and len(values) != len(items):
            raise ConfigError(f"{name} has {len(values)} entries for {len(items)} texts: expected one for each text")
    records = []
    for i, item in enumerate(items):
        if not isinstance(item, str):
            records.append(replace(item, chunk=normalised(item.chunk)))
            continue
        about = {} if metadata is None else dict(metadata[i])
        chunk = normalised(Chunk(item, metadata=about))
        records.append(ChunkRecord(text_id(item, about) if ids is None else ids[i], chunk))
    return records


def text_id(text: str, metadata: Mapping[str, Any]) -> str:
    """Return the id of a text that was added without one: a hash of the text and its metadata, JSON values."""
    key = f"{json.dumps(metadata, sort_keys=True, default=repr)}\0{text}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(key, digest_size=12).hexdigest()


UNUSABLE = re.compile("[\x00\ud800-\udfff]")
"""Characters that no id may contain: SQLite's JSON functions end a text at U+0000, and UTF-8 has no surrogates."""


def json_ids(ids: Iterable[str]) -> str:
    """Return ids as a JSON array for SQLite, without invalid ids, which SQLite could confuse with other ids."""
    return json.dumps([chunk_id for chunk_id in ids if UNUSABLE.search(chunk_id) is None])


def text_hash(text: str) -> bytes:
    """Return the key of a text's vector in the database: its BLAKE2b hash with 128 bits."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


_KEY_OF_TEXT = 8
"""Number of bytes that the keys of all vectors of a text have in common."""


def variant_key(key: bytes, vector: Floats) -> bytes:
    """Return the key of another vector, shape ``(d,)``, of the text whose first vector has the key ``key``."""
    halves = vector.astype(np.float16).tobytes()
    return key[:_KEY_OF_TEXT] + hashlib.blake2b(halves, digest_size=len(key) - _KEY_OF_TEXT).digest()


def is_key_of(key: bytes, text: str) -> bool:
    """Return whether ``key`` can be the key of a vector of ``text``."""
    return key[:_KEY_OF_TEXT] == text_hash(text)[:_KEY_OF_TEXT]


def chunk_ids(source: str, chunks: Sequence[Chunk]) -> list[str]:
    """Return stable ids for the chunks of a file: hashes of its name, the text, and how many equal texts precede it."""
    seen: dict[str, int] = {}
    ids = []
    for chunk in chunks:
        copy = seen[chunk.text] = seen.get(chunk.text, -1) + 1
        key = f"{source}\0{copy}\0{chunk.text}".encode("utf-8", "surrogatepass")
        ids.append(hashlib.blake2b(key, digest_size=12).hexdigest())
    return ids
