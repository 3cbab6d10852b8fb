"""Hits and chunks as JSON values, as ``ragembed query --json`` prints them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ragembed.documents.readers.registry import member_of
from ragembed.indexes.search.snippet import QueryWords
from ragembed.indexes.storage.file_states import FileState
from ragembed.indexes.types import ChunkRecord, Hit


def place_json(record: Hit | ChunkRecord, name_file: Callable[[str, str | None], str] | None = None) -> dict[str, Any]:
    """Return the id and the position of a chunk; ``name_file`` returns the path to show, by default the source."""
    member = member_of(record.source, record.chunk.metadata)
    return {
        "id": record.id,
        "path": record.source if record.source is None or name_file is None else name_file(record.source, record.store),
        **({} if record.store is None else {"store": record.store}),
        **({} if member is None else {"member": member}),
        "start_line": record.chunk.start_line,
        "end_line": record.chunk.end_line,
        "page": record.chunk.page,
    }


def hit_json(
    rank: int, hit: Hit, words: QueryWords, name_file: Callable[[str, str | None], str] | None, state: FileState | None
) -> dict[str, Any]:
    """Return a hit with its rank, from 1, its scores, its text, a snippet of it, and whether its file is stale."""
    chunk = hit.chunk
    return {
        "rank": rank,
        **place_json(hit, name_file),
        "title": chunk.title,
        "headings": list(chunk.headings),
        "score": hit.score,
        "dense": hit.dense,
        "lexical": hit.lexical,
        "rerank": hit.rerank,
        "relevance": hit.relevance,
        "snippet": words.snippet(chunk.text),
        "text": chunk.text,
        "metadata": dict(chunk.metadata),
        "stale": state is not None,
        "duplicates": [place_json(duplicate, name_file) for duplicate in hit.duplicates],
    }
