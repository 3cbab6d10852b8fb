"""LangChain documents: made of texts, given ids, and converted to chunks of a store and back."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from langchain_core.documents import Document

from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord, Hit

Item = TypeVar("Item")


def documents_of(texts: Iterable[str], metadatas: Iterable[Mapping[str, Any]] | None) -> list[Document]:
    """Return a document for each text; raises :class:`ConfigError` if there are more or fewer metadatas."""
    listed_texts = as_list("texts", texts)
    if metadatas is None:
        return [Document(page_content=text) for text in listed_texts]
    rows = list(metadatas)
    if len(rows) != len(listed_texts):
        raise ConfigError(f"got {len(rows)} metadatas for {len(listed_texts)} texts: expected one for each")
    return [Document(page_content=text, metadata=dict(row)) for text, row in zip(listed_texts, rows, strict=True)]


def chosen_ids(documents: Sequence[Document], ids: Iterable[str | None] | None) -> list[str]:
    """Return an id for each document: the one given, else its own, else a new UUID."""
    own = [document.id for document in documents]
    given = own if ids is None else as_list("ids", ids)
    if len(given) != len(own):
        raise ConfigError(f"got {len(given)} ids for {len(own)} documents: expected one for each")
    first = [theirs if theirs is not None else its for theirs, its in zip(given, own, strict=True)]
    return [str(uuid.uuid4()) if chunk_id is None else str(chunk_id) for chunk_id in first]


def as_list(name: str, values: Iterable[Item]) -> list[Item]:
    """Return ``values`` as a list; raises :class:`ConfigError` for a str, which would be split into letters."""
    if isinstance(values, str):
        raise ConfigError(f"{name} is one str: put it in a list")
    return list(values)


def to_record(document: Document, chunk_id: str) -> ChunkRecord:
    """Return the chunk that keeps ``document`` under ``chunk_id``.

    All metadata stays metadata, ``source`` and ``page`` too, so that :func:`to_document` returns the same document.
    """
    return ChunkRecord(chunk_id, Chunk(text=document.page_content, metadata=dict(document.metadata)))


def to_document(found: ChunkRecord | Hit) -> Document:
    """Return a chunk as a new document.

    The metadata of a chunk of a file hold its place: ``source`` (the file's name in the store), and ``title``,
    ``headings``, ``start_line``, ``end_line`` and ``page`` if it has them. They replace metadata of the same name.
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
    """Return the chunk without its file, whose name goes into the metadata."""
    if record.source is None:
        return record
    chunk = replace(record.chunk, metadata={**record.chunk.metadata, "source": record.source})
    return ChunkRecord(record.id, chunk)
