"""``RagembedDocumentStore``: a ragembed store as a Haystack document store."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from haystack import Document, default_from_dict, default_to_dict
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError

from ragembed.adapters.encoders import LazyEmbedder
from ragembed.adapters.own_store import DocumentFolder, twin
from ragembed.config.fields import one_of
from ragembed.documents.model import Chunk
from ragembed.documents.normalisation import normalised
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord, Hit
from ragembed.indexes.filters import And, Comparison, Field, Filter, Ids, Not, Or
from ragembed.indexes.filters.nodes import TEXT, any_of, equals, moment_key
from ragembed.indexes.search.pipeline import Mode
from ragembed.metadata_values import from_json, to_json
from ragembed.models.vectors import checked_vectors

_LOGIC: Mapping[str, Callable[[tuple[Filter, ...]], Filter]] = {
    "AND": And,
    "OR": Or,
    "NOT": lambda parts: Not(And(parts)),
}
_ORDERS = (">", ">=", "<", "<=")
_OPERATORS = ("==", "!=", *_ORDERS, "in", "not in")


def parse_filters(filters: Mapping[str, Any] | None) -> Filter | None:
    """Convert a filter of Haystack; an empty one selects everything."""
    if not filters:
        return None
    try:
        return _filter(filters)
    except ConfigError as error:
        raise FilterError(str(error)) from error


def _filter(given: Any) -> Filter:
    if not isinstance(given, Mapping):
        raise FilterError(f"a filter is {given!r}: expected a dictionary with 'field', 'operator' and 'value'")
    if "field" in given:
        return _comparison(given)
    for name in ("operator", "conditions"):
        if name not in given:
            raise FilterError(f"the filter {dict(given)!r} has no {name!r}: expected 'operator' and 'conditions'")
    if given["operator"] not in _LOGIC:
        raise FilterError(f"unknown operator {given['operator']!r}: expected one of {', '.join(_LOGIC)}")
    return _LOGIC[given["operator"]](tuple(_filter(part) for part in given["conditions"]))


def _comparison(given: Mapping[str, Any]) -> Filter:
    for name in ("operator", "value"):
        if name not in given:
            raise FilterError(
                f"the condition {dict(given)!r} has no {name!r}: expected 'field', 'operator' and 'value'"
            )
    name, operator, value = str(given["field"]), given["operator"], given["value"]
    if operator not in _OPERATORS:
        raise FilterError(f"unknown operator {operator!r} for {name}: expected one of {', '.join(_OPERATORS)}")
    if operator in ("in", "not in"):
        if not isinstance(value, list):
            raise FilterError(f"{operator} for {name} got {value!r}: expected a list")
        found = _is_any(name, value)
        return Not(found) if operator == "not in" else found
    if operator in _ORDERS:
        return _order(name, operator, value)
    found = _is_any(name, [value])
    return Not(found) if operator == "!=" else found


def _is_any(name: str, values: list[Any]) -> Filter:
    if name == "id":
        return Ids(tuple(str(value) for value in values))
    return equals(_field(name), values[0]) if len(values) == 1 else any_of(_field(name), tuple(values))


def _order(name: str, operator: str, value: Any) -> Filter:
    if value is None:
        return Or(())  # nothing is more or less than None
    if isinstance(value, str) and moment_key(value) is None:
        raise FilterError(
            f"{name} {operator} {value!r}: expected a number or an ISO 8601 date, such as 2026-01-31T10:00:00Z"
        )
    return Comparison(_field(name), operator, value)


def _field(name: str) -> Field:
    if name == "content":
        return TEXT
    first, *nested = name.removeprefix("meta.").split(".")
    return Field(first, metadata=True, nested=tuple(nested))


_REST = "$haystack"
"""The metadata key of the parts of a document that are neither text nor metadata."""
_TYPES: Mapping[type, str] = {bool: "boolean", int: "int", float: "float"}
_ASYNC = "{}_async"


class RagembedDocumentStore:
    """Haystack document store in a folder, with dense, lexical and hybrid search.

    By default, the store embeds its documents itself: the first ones fit the embedder, and it is fitted again when the
    store has outgrown the fit. Use :class:`RagembedRetriever`; no embedder is needed in the pipelines. With
    ``embedding="documents"``, the store searches the embeddings that come with the documents.

    Parameters
    ----------
    path : str, optional
        Folder of the store; it is created by the first documents. By default, a temporary folder that is removed with
        the object.
    embedding : {"store", "documents"}
        Whether the store or other components make the embeddings.
    preset : str
        Name of an embedder configuration, for ``embedding="store"``.
    settings : dict, optional
        Fields of :class:`ragembed.EmbedderConfig` that replace those of the preset.
    device : str, optional
        Device that embeds documents, as for :class:`ragembed.Embedder`.
    index : str
        Kind of FAISS index, as for :meth:`ragembed.Store.create`.
    language : str
        Language whose word endings lexical search ignores.

    Raises
    ------
    IncompatibleStoreError
        If the store at ``path`` was made with other settings.

    Examples
    --------
    .. code-block:: python

        from haystack import Document
        from ragembed.haystack import RagembedDocumentStore, RagembedRetriever
        store = RagembedDocumentStore("my-store")
        store.write_documents([Document(content="Tea is brewed with hot water.")])
        RagembedRetriever(store, top_k=1).run("How do I brew tea?")["documents"][0].content
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        embedding: Literal["store", "documents"] = "store",
        preset: str = "minilm",
        settings: Mapping[str, Any] | None = None,
        device: str | None = None,
        index: str = "auto",
        language: str = "english",
    ) -> None:
        one_of("embedding", embedding, ("store", "documents"))
        self._settings: dict[str, Any] = {
            "path": path,
            "embedding": embedding,
            "preset": preset,
            "settings": None if settings is None else dict(settings),
            "device": device,
            "index": index,
            "language": language,
        }
        self._embeds = embedding == "store"
        embedder = LazyEmbedder(None, preset, settings, device).embedder if self._embeds else None
        self._folder = DocumentFolder(path, embedder, index=index, language=language)

    @property
    def path(self) -> Path:
        """Folder of the store."""
        return self._folder.path

    def to_dict(self) -> dict[str, Any]:
        """Return the settings of the store as a dictionary."""
        return default_to_dict(self, **self._settings)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RagembedDocumentStore:
        """Return the store whose settings :meth:`to_dict` returned."""
        store: RagembedDocumentStore = default_from_dict(cls, data)
        return store

    def count_documents(self) -> int:
        """Return the number of documents."""
        return len(self._folder)

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """Return the number of documents that match a filter."""
        return self._folder.count(parse_filters(filters))

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return the documents that match a filter, or all, in order of insertion, with their embeddings."""
        return [_document(record) for record in self._folder.records(parse_filters(filters))]

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Write documents, all of them or none, and return their number.

        ``policy`` says what to do with a document whose id is in the store: replace it (``OVERWRITE``), keep the stored
        one (``SKIP``), or raise ``DuplicateDocumentError`` (``FAIL``, the default).
        """
        if not isinstance(documents, list) or not all(isinstance(each, Document) for each in documents):
            raise ValueError("documents is not a list of Haystack documents: expected [Document(…), …]")
        latest = {document.id: document for document in documents}
        if policy is not DuplicatePolicy.OVERWRITE:
            known = {record.id for record in self._folder.records(Ids(tuple(latest)))}
            if known and policy is not DuplicatePolicy.SKIP:
                raise DuplicateDocumentError(
                    f"the store has a document with the id {min(known)!r}: expected new ids, or another policy"
                )

            latest = {name: document for name, document in latest.items() if name not in known}
        wanted = list(latest.values())
        self._folder.add([_record(document) for document in wanted], None if self._embeds else _vectors(wanted))
        return len(wanted)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by id; unknown ids are ignored."""
        self._folder.delete(Ids(tuple(document_ids)))

    def delete_all_documents(self) -> None:
        """Delete all documents."""
        self._folder.clear()

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that match a filter; return their number."""
        where = parse_filters(filters)
        return self._folder.clear() if where is None else self._folder.delete(where)

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Add metadata to the documents that match a filter; return their number."""
        found = [replace(each, meta={**each.meta, **meta}) for each in self.filter_documents(filters)]
        return self.write_documents(found, DuplicatePolicy.OVERWRITE)

    def search(
        self,
        query: str,
        top_k: int = 10,
        mode: Mode = "hybrid",
        filters: dict[str, Any] | None = None,
        query_embedding: Sequence[float] | None = None,
    ) -> list[Document]:
        """Return the best documents for a query with their scores, without embeddings; retrievers call this method.

        A store with ``embedding="documents"`` needs ``query_embedding`` for the modes ``hybrid`` and ``dense``.
        """
        hits = self._folder.search(query, top_k, mode, parse_filters(filters), query_embedding)
        return [replace(_document(hit), embedding=None, score=float(hit.score)) for hit in hits]

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Return the type of each metadata field: ``keyword``, ``int``, ``float`` or ``boolean``."""
        return {
            name: {"type": _TYPES.get(type(value), "keyword")}
            for meta in self._metas()
            for name, value in meta.items()
            if value is not None
        }

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Return the lowest and the highest value of a metadata field as ``min`` and ``max``, or None without any."""
        values: list[Any] = [each for each in self._values(metadata_field) if isinstance(each, (int, float, str))]
        try:
            return {"min": min(values, default=None), "max": max(values, default=None)}
        except TypeError:  # texts and numbers
            return {"min": None, "max": None}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: dict[str, Any] | None = None,
    ) -> tuple[list[Any], int]:
        """Return ``size`` different values of a metadata field from the ``from_``-th on, and the number of all.

        ``search_term`` selects values that contain it, and ``filters`` documents. Values are ordered by their text.
        """
        different = {(type(value).__name__, _key(value)): value for value in self._values(metadata_field, filters)}
        wanted = (search_term or "").lower()
        found = [(str(value), kind, value) for (kind, _), value in different.items() if wanted in str(value).lower()]
        found.sort(key=lambda each: each[:2])
        return [value for _, _, value in found[from_ : from_ + size]], len(found)

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """Return the number of different values of metadata fields among the documents that match a filter."""
        metas = self._metas(filters)
        names = [name.removeprefix("meta.") for name in metadata_fields]
        return {name: len({_key(meta[name]) for meta in metas if meta.get(name) is not None}) for name in names}

    def _metas(self, filters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        return [_meta(record) for record in self._folder.records(parse_filters(filters))]

    def _values(self, field: str, filters: dict[str, Any] | None = None) -> list[Any]:
        name = field.removeprefix("meta.")
        return [meta[name] for meta in self._metas(filters) if meta.get(name) is not None]

    count_documents_async = twin(count_documents, _ASYNC)
    count_documents_by_filter_async = twin(count_documents_by_filter, _ASYNC)
    filter_documents_async = twin(filter_documents, _ASYNC)
    write_documents_async = twin(write_documents, _ASYNC)
    delete_documents_async = twin(delete_documents, _ASYNC)
    delete_all_documents_async = twin(delete_all_documents, _ASYNC)
    delete_by_filter_async = twin(delete_by_filter, _ASYNC)
    update_by_filter_async = twin(update_by_filter, _ASYNC)
    get_metadata_fields_info_async = twin(get_metadata_fields_info, _ASYNC)
    get_metadata_field_min_max_async = twin(get_metadata_field_min_max, _ASYNC)
    get_metadata_field_unique_values_async = twin(get_metadata_field_unique_values, _ASYNC)
    count_unique_metadata_by_filter_async = twin(count_unique_metadata_by_filter, _ASYNC)
    search_async = twin(search, _ASYNC)

    def close(self) -> None:
        """Close the files of the store; the next use opens them again."""
        self._folder.close()


def _record(document: Document) -> ChunkRecord:
    rest: dict[str, Any] = {} if document.content is not None else {"content": None}
    if document.embedding is not None:
        rest["embedding"] = _packed(document.embedding)
    for name in ("blob", "sparse_embedding"):
        if (part := getattr(document, name)) is not None:
            rest[name] = part.to_dict()
    metadata = {**to_json(document.meta), **({_REST: rest} if rest else {})}
    return ChunkRecord(document.id, normalised(Chunk(document.content or "", metadata=metadata)))


def _meta(found: ChunkRecord | Hit) -> dict[str, Any]:
    """Return the metadata of a document; a chunk of an indexed file has its place there."""
    place = {"file_path": found.source, "page_number": found.chunk.page, "start_line": found.chunk.start_line}
    own = {name: value for name, value in from_json(found.chunk.metadata).items() if name != _REST}
    return {**own, **{name: value for name, value in place.items() if value is not None and found.source is not None}}


def _key(value: Any) -> str:
    """Return a text that is the same for equal values, which may be lists and dictionaries."""
    return json.dumps(to_json({"value": value}), sort_keys=True)


def _document(found: ChunkRecord | Hit) -> Document:
    rest: Any = found.chunk.metadata.get(_REST, {})
    embedding, blob, sparse = (rest.get(name) for name in ("embedding", "blob", "sparse_embedding"))
    return Document(
        id=found.id,
        content=None if "content" in rest else found.chunk.text,
        meta=_meta(found),
        embedding=None if embedding is None else _unpacked(*embedding),
        blob=None if blob is None else ByteStream.from_dict(blob),
        sparse_embedding=None if sparse is None else SparseEmbedding.from_dict(sparse),
    )


def _packed(embedding: Sequence[float]) -> tuple[str, str]:
    """Return the type and the bytes, in Base64, of an embedding: float32 if that is exact, otherwise float64."""
    wide = np.asarray(embedding, dtype="<f8")
    narrow = wide.astype("<f4")
    exact = narrow if (narrow == wide).all() else wide
    return exact.dtype.str, base64.b64encode(exact.tobytes()).decode()


def _unpacked(kind: str, packed: str) -> list[float]:
    values: list[float] = np.frombuffer(base64.b64decode(packed), dtype=kind).tolist()
    return values


def _vectors(documents: Sequence[Document]) -> Any:
    """Return the embeddings of documents, shape ``(n, d)``."""
    for document in documents:
        if document.embedding is None:
            raise ConfigError(
                f"the document {document.id!r} has no embedding: run an embedder before, or make the store with "
                "embedding='store'"
            )
    return checked_vectors([document.embedding or [] for document in documents], len(documents), "the embedder")
