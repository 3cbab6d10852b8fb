"""Documents that clients push: they are divided into chunks, encoded and committed in one transaction.

A pushed document is a file of the store with the name ``documents://ID``. Runs of ``ragembed index`` leave it alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragembed.documents import chunking
from ragembed.documents.chunking import Chunker
from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import only_document_errors, read
from ragembed.errors import ConfigError, DocumentError
from ragembed.indexes.indexing.request import IndexingOptions, stored_request
from ragembed.indexes.storage.upkeep import warn
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, SourceRecord, as_records, chunk_ids
from ragembed.progress import check
from ragembed.serving.stores import ServedStore, UnknownNameError, in_document_order, joined
from ragembed.serving.tool_schemas import (
    INTEGER,
    OBJECT,
    TEXT,
    Schema,
    array_of,
    check_characters,
    checked,
    object_schema,
    shown,
    whole_object,
)
from ragembed.version import SCHEMA_VERSION

SCHEME = "documents://"
MOST_DOCUMENTS = 1000
_ID = re.compile(r"(?!(?:.*/)?\.{1,2}(?:/|$))[^\x00-\x1f\x7f\s](?:[^\x00-\x1f\x7f]{0,498}[^\x00-\x1f\x7f\s])?")
"""A text without control characters, and without ``.`` and ``..`` between slashes, which clients take out of URLs."""
_SUFFIXES = {"text": ".txt", "markdown": ".md"}

_FIELDS: Schema = {
    "text": {**TEXT, "minLength": 1, "pattern": r"\S"},
    "title": TEXT,
    "format": {**TEXT, "enum": list(_SUFFIXES), "default": "text"},
    "metadata": {**OBJECT, "description": "Values that filters can select by"},
}
ID: Schema = {
    **TEXT,
    "minLength": 1,
    "maxLength": 500,
    "description": "1 to 500 characters without control characters, such as a name, a path or a URL",
}
DOCUMENT: Schema = object_schema(_FIELDS, ["text"])
BATCH: Schema = object_schema(
    {
        "documents": {**array_of(object_schema({"id": ID, **_FIELDS}, ["id", "text"])), "maxItems": MOST_DOCUMENTS},
        "delete": {**array_of(ID), "maxItems": MOST_DOCUMENTS},
    }
)
_STATUS: Schema = {**TEXT, "enum": ["added", "changed", "unchanged", "deleted"]}
_WRITTEN = object_schema({"id": TEXT, "path": TEXT, "status": _STATUS, "chunks": INTEGER}, ["id", "path", "status"])
ANSWER: Schema = whole_object(
    {"schema_version": INTEGER, "store": TEXT, "generation": INTEGER, "documents": array_of(_WRITTEN)}
)


@dataclass(frozen=True, slots=True)
class PushedDocument:
    """A document of a client."""

    id: str
    text: str
    format: str
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The name in the store."""
        return f"{SCHEME}{self.id}"

    @property
    def data(self) -> bytes:
        """Everything that the chunks depend on."""
        return json.dumps([self.text, self.title, self.format, dict(self.metadata)], sort_keys=True).encode()


def checked_id(value: str) -> str:
    """Return the id of a document; raise :class:`ConfigError` if it is none."""
    if _ID.fullmatch(value) is None:
        raise ConfigError(
            f"the id of a document is {shown(value)}: expected 1 to 500 characters without control characters and "
            "spaces at the ends, and without . or .. between slashes"
        )
    check_characters(value, "the id of a document")
    return value


def get_document(store: Store, document_id: str) -> dict[str, Any]:
    """Return the indexed text of a document with its metadata; raise :class:`UnknownNameError` if there is none."""
    path = f"{SCHEME}{checked_id(document_id)}"
    records = in_document_order(store.chunks(path))
    if not records:
        raise UnknownNameError(f"no document has the id {document_id}: expected that of a document that was added")
    document = {
        "id": document_id,
        "path": path,
        "title": records[0].chunk.title,
        "metadata": dict(records[0].chunk.metadata),
        "text": joined((record.chunk.start_line, record.chunk.end_line, record.chunk.text) for record in records),
        "chunks": [record.id for record in records],
    }
    return {"generation": store.generation, "document": document}


def put_document(served: ServedStore, document_id: str, body: Mapping[str, Any], wait: float) -> dict[str, Any]:
    """Add or replace one document."""
    name = checked_id(document_id)
    return _write(served, [PushedDocument(name, **checked(dict(body), DOCUMENT, f"the document {name}"))], [], wait)


def delete_document(served: ServedStore, document_id: str, wait: float) -> dict[str, Any]:
    """Delete one document; raise :class:`UnknownNameError` if there is none with this id."""
    name = checked_id(document_id)
    if not served.open().sources([f"{SCHEME}{name}"]):
        raise UnknownNameError(f"no document has the id {name}: nothing was deleted")
    return _write(served, [], [name], wait)


def write_documents(served: ServedStore, body: Mapping[str, Any], wait: float) -> dict[str, Any]:
    """Add, replace and delete documents in one transaction. Ids to delete that are unknown are ignored."""
    batch = checked(dict(body), BATCH, "the batch")
    documents = [PushedDocument(checked_id(fields.pop("id")), **fields) for fields in batch.get("documents", ())]
    deleted = [checked_id(value) for value in batch.get("delete", ())]
    ids = [document.id for document in documents] + deleted
    if again := [document_id for document_id, count in Counter(ids).items() if count > 1]:
        raise ConfigError(f"the document {again[0]} occurs twice in the batch: give each id once")
    if not ids:
        raise ConfigError("the batch is empty: expected documents, or ids to delete")
    return _write(served, documents, deleted, wait)


def _write(
    served: ServedStore, documents: Sequence[PushedDocument], deleted: Sequence[str], wait: float
) -> dict[str, Any]:
    store = served.open()
    splitter = _Splitter(store)
    stored = store.sources([f"{SCHEME}{name}" for name in (*(document.id for document in documents), *deleted)])
    entries: list[dict[str, Any]] = []
    sources: list[SourceRecord] = []
    records: list[ChunkRecord] = []
    for document in documents:
        check()
        source = splitter.source_of(document)
        before = stored.get(source.path)
        entry = {"id": document.id, "path": source.path}
        if before is not None and (before.sha256, before.pipeline_hash) == (source.sha256, source.pipeline_hash):
            entries.append({**entry, "status": "unchanged"})
            continue
        chunks = splitter.chunks_of(document)
        sources.append(source)
        records += chunks
        entries.append({**entry, "status": "added" if before is None else "changed", "chunks": len(chunks)})
    gone = [name for name in deleted if f"{SCHEME}{name}" in stored]
    entries += [{"id": name, "path": f"{SCHEME}{name}", "status": "deleted"} for name in gone]
    if sources or gone:
        with store.writer(wait) as writer:
            writer.stage(record.chunk.embedded_text for record in records)
            writer.commit(chunks=records, sources=sources, removed_sources=[f"{SCHEME}{name}" for name in gone])
            writer.merge()
            warn(writer.refresh_index())
    about = {"store": served.name, "generation": store.generation, "documents": entries}
    return {"schema_version": SCHEMA_VERSION, **about}


class _Splitter:
    """Divides documents into chunks with the settings of the store's last indexing run."""

    def __init__(self, store: Store) -> None:
        embedder = store.embedder.refittable
        if embedder is None:
            raise ConfigError("the vectors of this store were made elsewhere: documents cannot be added here")
        stored = stored_request(store)
        self._options = stored[1] if stored else IndexingOptions()
        limits = self._options.chunking(embedder.text_tokens)
        self._chunker = Chunker(limits, embedder.tokenizer.offsets)
        self._pipeline = hashlib.sha256(f"{chunking.VERSION}:{limits}".encode()).hexdigest()[:16]

    def source_of(self, document: PushedDocument) -> SourceRecord:
        size, digest = len(document.text.encode("utf-8", "replace")), hashlib.sha256(document.data).hexdigest()
        return SourceRecord(document.path, size, time.time_ns(), digest, self._pipeline)

    def chunks_of(self, document: PushedDocument) -> list[ChunkRecord]:
        name = f"document{_SUFFIXES[document.format]}"
        try:
            with only_document_errors():
                parsed = [
                    self._with_metadata(part, document)
                    for part in read(name, document.text.encode("utf-8", "replace"), self._options.reading())
                ]
                chunks = list(self._chunker.split_all(parsed))
        except DocumentError as error:
            raise ConfigError(f"the document {document.id} cannot be read: {error}") from None
        if not chunks:
            raise ConfigError(f"the document {document.id} has no text: expected a text with at least one word")
        ids = chunk_ids(document.path, chunks)
        return as_records(
            ChunkRecord(chunk_id, chunk, document.path) for chunk_id, chunk in zip(ids, chunks, strict=True)
        )

    def _with_metadata(self, parsed: ParsedDocument, document: PushedDocument) -> ParsedDocument:
        title = parsed.title if document.title is None else document.title
        return replace(parsed, title=title, metadata={**parsed.metadata, **document.metadata})
