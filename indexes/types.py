"""Types that every layer shares: encoders, chunk records, hits, and progress."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError
from ragembed.types import Floats, Integers

Rows = Integers
"""Numbers of vectors in a store."""
Keys = Integers
"""Numbers of chunks in a store."""


class VectorEncoder(Protocol):
    """What a store needs of an embedder; :class:`ragembed.Embedder` is one. Arrays are float32, shape ``(n, d)``."""

    @property
    def fingerprint(self) -> str:
        """Hash of everything that decides a vector."""
        ...

    @property
    def raw_fingerprint(self) -> str:
        """Hash of everything that decides a raw vector."""
        ...

    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Encode documents, before post-processing; ``progress`` is told how many more are done, now and then."""
        ...

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Map raw document vectors to vectors."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Encode queries to vectors."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return JSON values for ``status``, with at least ``kind`` and ``model``."""
        ...

    def save(self, folder: str) -> None:
        """Write what a later process needs to load it; nothing where it cannot be loaded from files."""
        ...


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A file in the store: its name there, its version, and the hash of the settings for reading and chunking it."""

    path: str
    size: int
    mtime_ns: int
    sha256: str
    pipeline_hash: str


def storable_time(nanoseconds: int) -> int:
    """Return the nearest time that a 64-bit column holds: years 1677 to 2262, while file systems go beyond."""
    return min(max(nanoseconds, -(2**63)), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """A chunk with its id and the name of the file it is from, None if it is from no file."""

    id: str
    chunk: Chunk
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found.

    ``score`` is what results are ordered by, higher first: the fused score in hybrid search (scores that are scaled
    over the candidates, so it compares hits of one query only), the cosine in dense search, BM25 in lexical search.
    ``dense`` and ``lexical`` are the cosine and BM25 where they were computed. ``rerank`` is the score of a reranker,
    which results that it read are ordered by instead. ``duplicates`` are the near-duplicates that were folded into
    this hit, best first.
    """

    id: str
    chunk: Chunk
    source: str | None
    score: float
    dense: float | None = None
    lexical: float | None = None
    rerank: float | None = None
    duplicates: tuple[ChunkRecord, ...] = ()


def as_records(
    chunks: Iterable[str | ChunkRecord],
    ids: Sequence[str] | None = None,
    metadata: Sequence[Mapping[str, Any]] | None = None,
) -> list[ChunkRecord]:
    """Return texts as chunk records; records stay as they are.

    A text without an id gets a hash of the text and its metadata. Raises :class:`ConfigError` if ``ids`` or
    ``metadata`` are not as many as ``chunks``, or are given with records.
    """
    if isinstance(chunks, str):
        raise ConfigError(f"chunks is the text {chunks[:40]!r}: expected a list of texts")
    items = list(chunks)
    texts = [item for item in items if isinstance(item, str)]
    for name, given in (("ids", ids), ("metadata", metadata)):
        if given is not None and len(texts) != len(items):
            raise ConfigError(f"{name} was given with chunk records, which have their own: give it with texts only")
        if given is not None and len(given) != len(items):
            raise ConfigError(f"{name} has {len(given)} entries for {len(items)} texts: expected one for each")
    records = []
    for i, item in enumerate(items):
        if not isinstance(item, str):
            records.append(item)
            continue
        about = {} if metadata is None else dict(metadata[i])
        records.append(ChunkRecord(_text_id(item, about) if ids is None else ids[i], Chunk(item, metadata=about)))
    return records


def _text_id(text: str, metadata: Mapping[str, Any]) -> str:
    key = f"{json.dumps(metadata, sort_keys=True, default=repr)}\0{text}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(key, digest_size=12).hexdigest()


UNUSABLE = re.compile("[\x00\ud800-\udfff]")
"""What no id has: SQLite's JSON ends a text at U+0000, and UTF-8 has no surrogates."""


def json_ids(ids: Iterable[str]) -> str:
    """Return ids as a JSON array for SQLite, without those that no chunk can have: it would take them for others."""
    return json.dumps([each for each in ids if UNUSABLE.search(each) is None])


def text_hash(text: str) -> bytes:
    """Return the key under which a text's vector is kept: BLAKE2b with 128 bits."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def chunk_ids(source: str, chunks: Sequence[Chunk]) -> list[str]:
    """Return stable ids for the chunks of one file: a hash of the file's name, the text, and its how-manieth copy."""
    seen: dict[str, int] = {}
    ids = []
    for chunk in chunks:
        copy = seen[chunk.text] = seen.get(chunk.text, -1) + 1
        key = f"{source}\0{copy}\0{chunk.text}".encode("utf-8", "surrogatepass")
        ids.append(hashlib.blake2b(key, digest_size=12).hexdigest())
    return ids


class Progress(Protocol):
    """A listener. One phase runs at a time."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Begin ``phase`` ("reading", "embedding"), of ``total`` units if that is known."""
        ...

    def advance(self, count: int) -> None:
        """Take note that ``count`` more units are done."""
        ...

    def finish(self) -> None:
        """End the phase."""
        ...


class SilentProgress:
    """Says nothing."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Ignore the phase."""

    def advance(self, count: int) -> None:
        """Ignore the count."""

    def finish(self) -> None:
        """Ignore the end."""
