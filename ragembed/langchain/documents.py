"""LangChain documents to chunks of a store, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langchain_core.documents import Document

from ragembed.documents.model import Chunk
from ragembed.indexes import ChunkRecord, Hit


def to_record(document: Document, chunk_id: str) -> ChunkRecord:
    """Return the chunk that keeps ``document`` under ``chunk_id``.

    Its metadata stays metadata, ``source`` and ``page`` in it too, so that :func:`to_document` gives back what came in.
    """
    return ChunkRecord(chunk_id, Chunk(text=document.page_content, metadata=dict(document.metadata)))


def to_document(found: ChunkRecord | Hit) -> Document:
    """Return a chunk as a new document.

    A chunk of a file has where it stands in its metadata: ``source`` (the file's name in the store), and of
    ``title``, ``headings``, ``start_line``, ``end_line`` and ``page`` those it has. They win over metadata of the
    same name.
    """
    chunk = found.chunk
    place: dict[str, Any] = {
        "source": found.source,
        "title": chunk.title,
        "headings": list(chunk.headings) or None,
        "start_line": chunk.start_line,
        "end_line": chunk.end_line,
        "page": chunk.page,
    }
    known = {name: value for name, value in place.items() if value is not None}
    return Document(id=found.id, page_content=chunk.text, metadata={**chunk.metadata, **known})


def loose(record: ChunkRecord) -> ChunkRecord:
    """Return a chunk that is from no file, with the name of the one that it was from in its metadata."""
    if record.source is None:
        return record
    chunk = replace(record.chunk, metadata={**record.chunk.metadata, "source": record.source})
    return ChunkRecord(record.id, chunk)
