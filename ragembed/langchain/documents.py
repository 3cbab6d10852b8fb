"""Create LangChain documents from texts, choose their ids, and convert them to chunks of a store and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from langchain_core.documents import Document

from ragembed.documents.model import Chunk
from ragembed.documents.normalisation import normalised
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord, ContextBlock, Hit
from ragembed.indexes.types import text_id
from ragembed.metadata_values import from_json, to_json
from ragembed.types import Floats

Item = TypeVar("Item")


def documents_of(texts: Iterable[str], metadatas: Iterable[Mapping[str, Any]] | None) -> list[Document]:
    """Return one document per text; raise :class:`ConfigError` if the number of metadatas differs."""
    listed_texts = as_list("texts", texts)
    if metadatas is None:
        return [Document(page_content=text) for text in listed_texts]
    rows = list(metadatas)
    if len(rows) != len(listed_texts):
        raise ConfigError(f"got {len(rows)} metadatas for {len(listed_texts)} texts: expected one per text")
    return [Document(page_content=text, metadata=dict(row)) for text, row in zip(listed_texts, rows, strict=True)]


def chosen_ids(
    documents: Sequence[Document], ids: Iterable[str | None] | None, vectors: Floats | None = None
) -> list[str]:
    """Return the id of each document: the given one, else its own, else a hash of text, metadata and given vector.

    The second of equal documents gets another hash than the first, and so on, so each call has the same ids again.
    """
    own = [document.id for document in documents]
    wanted = own if ids is None else as_list("ids", ids)
    if len(wanted) != len(own):
        raise ConfigError(f"got {len(wanted)} ids for {len(own)} documents: expected one per document")
    chosen = [own_id if wanted_id is None else wanted_id for wanted_id, own_id in zip(wanted, own, strict=True)]
    seen: Counter[str] = Counter()
    final = []
    for i, (document, chunk_id) in enumerate(zip(documents, chosen, strict=True)):
        if chunk_id is None:
            vector = {} if vectors is None else {"vector": vectors[i].tolist()}
            first = text_id(document.page_content, {**to_json(document.metadata), **vector})
            chunk_id = text_id(first, {"copy": seen[first]}) if seen[first] else first
            seen[first] += 1
        final.append(str(chunk_id))
    return final


def as_list(name: str, values: Iterable[Item]) -> list[Item]:
    """Return ``values`` as a list; raise :class:`ConfigError` for a str, which would be split into letters."""
    if isinstance(values, str):
        raise ConfigError(f"{name} is a str: expected a list of str")
    return list(values)


def reject_unknown(method: str, kwargs: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for keyword arguments that a method accepts only to match LangChain's signature."""
    for name in kwargs:
        raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")


def to_record(document: Document, chunk_id: str) -> ChunkRecord:
    """Convert a document to a chunk. All metadata stays metadata, so :func:`to_document` returns the same document."""
    return ChunkRecord(chunk_id, normalised(Chunk(text=document.page_content, metadata=to_json(document.metadata))))


def to_document(record: ChunkRecord | Hit) -> Document:
    """Convert a chunk to a document. Its place in a file replaces metadata of the same names."""
    metadata = {**from_json(record.chunk.metadata), **place_of(record.store, record.source, record.chunk)}
    return Document(id=record.id, page_content=record.chunk.text, metadata=metadata)


def place_of(store: str | None, source: str | None, part: Chunk | ContextBlock) -> dict[str, Any]:
    """Return the place of a part of a file as metadata: ``store``, ``source``, ``start_line`` and so on, if known."""
    place: dict[str, Any] = {
        "store": store,
        "source": source,
        "title": part.title,
        "headings": list(part.headings) or None,
        "start_line": part.start_line,
        "end_line": part.end_line,
        "page": part.page,
        "end_page": None if part.end_page == part.page else part.end_page,
    }
    return {name: value for name, value in place.items() if value is not None}


def detached(record: ChunkRecord) -> ChunkRecord:
    """Detach a chunk from its file; the name of the file moves to the metadata."""
    if record.source is None:
        return record
    chunk = replace(record.chunk, metadata={**record.chunk.metadata, "source": record.source})
    return ChunkRecord(record.id, chunk)
