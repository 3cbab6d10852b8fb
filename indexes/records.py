"""What goes into a store and what comes out of it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragembed.documents.model import Chunk

Floats = NDArray[np.float32]


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
    """A file in the store: its name there, its version, and the recipe by which it was read and chunked."""

    path: str
    size: int
    mtime_ns: int
    sha256: str
    recipe: str


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
