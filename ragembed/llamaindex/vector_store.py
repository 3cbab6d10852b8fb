"""``RagembedVectorStore``: a ragembed store as a LlamaIndex vector store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
from typing_extensions import override

from ragembed.adapters.own_store import DocumentFolder, twin
from ragembed.documents.model import Chunk
from ragembed.documents.normalisation import normalised
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord, Fusion, Hit, Store
from ragembed.indexes.filters import And, Comparison, Contains, Exists, Field, Filter, Glob, Ids, Not, Or
from ragembed.indexes.filters.nodes import TEXT, any_of
from ragembed.indexes.search.pipeline import Mode
from ragembed.metadata_values import from_json, to_json
from ragembed.models.vectors import checked_vectors

_Build = Callable[[Field, Any], Filter]

_NOTHING = Or(())


def _equal(field: Field, value: Any) -> Filter:
    """Return the condition that the field equals a value; for LlamaIndex, nothing equals None."""
    return _NOTHING if value is None else Comparison(field, "=", value)


def _in_any_case(field: Field, value: Any) -> Filter:
    if not isinstance(value, str):
        raise ConfigError(f"the filter on {field} got {value!r}: expected a text")
    return Glob(field, f"*{''.join(_either_case(character) for character in value)}*")


def _either_case(character: str) -> str:
    cases = {case for case in (character, character.lower(), character.upper()) if len(case) == 1}
    return f"[{''.join(sorted(cases))}]" if len(cases) > 1 or character in "*?[" else character


_OPERATORS: Mapping[FilterOperator, _Build] = {
    FilterOperator.EQ: _equal,
    FilterOperator.NE: lambda field, value: Not(_equal(field, value)),
    FilterOperator.GT: lambda field, value: Comparison(field, ">", value),
    FilterOperator.GTE: lambda field, value: Comparison(field, ">=", value),
    FilterOperator.LT: lambda field, value: Comparison(field, "<", value),
    FilterOperator.LTE: lambda field, value: Comparison(field, "<=", value),
    FilterOperator.IN: lambda field, value: any_of(field, _listed(field, value)),
    FilterOperator.NIN: lambda field, value: Not(any_of(field, _listed(field, value))),
    FilterOperator.ANY: lambda field, value: Or(tuple(Contains(field, each) for each in _listed(field, value))),
    FilterOperator.ALL: lambda field, value: And(
        (Exists(field), *(Contains(field, each) for each in _listed(field, value)))
    ),
    FilterOperator.CONTAINS: Contains,
    FilterOperator.TEXT_MATCH: Contains,
    FilterOperator.TEXT_MATCH_INSENSITIVE: _in_any_case,
    FilterOperator.IS_EMPTY: lambda field, _: Not(Exists(field, filled=True)),
}


def parse_filters(filters: MetadataFilters | None) -> Filter | None:
    """Convert metadata filters; None and filters without conditions select everything.

    The key ``text`` with a text match tests the text of the node.
    """
    if filters is None or not filters.filters:
        return None
    parts = tuple(_part(part) for part in filters.filters)
    if filters.condition is FilterCondition.OR:
        return Or(parts)
    return Not(Or(parts)) if filters.condition is FilterCondition.NOT else And(parts)  # NOT: none of them


def _part(part: MetadataFilter | MetadataFilters) -> Filter:
    if isinstance(part, MetadataFilters):
        return parse_filters(part) or And(())
    is_match = part.operator in (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE)
    field = TEXT if is_match and part.key == "text" else Field(part.key, metadata=True)
    return _OPERATORS[part.operator](field, part.value)


def _listed(field: Field, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"the filter on {field} got {value!r}: expected a list of values")
    return tuple(value)


_MODES: dict[VectorStoreQueryMode, Mode] = {
    VectorStoreQueryMode.DEFAULT: "dense",
    VectorStoreQueryMode.HYBRID: "hybrid",
    VectorStoreQueryMode.SEMANTIC_HYBRID: "hybrid",
    VectorStoreQueryMode.SPARSE: "lexical",
    VectorStoreQueryMode.TEXT_SEARCH: "lexical",
}
_SOURCE = Field("ref_doc_id", metadata=True)


class RagembedVectorStore(BasePydanticVectorStore):
    """LlamaIndex vector store in a folder, with dense, lexical and hybrid search and MMR.

    The embedding of the index makes the vectors, such as :class:`RagembedEmbedding`. Writes are atomic, and persistent
    when a method returns.

    Parameters
    ----------
    path : str, optional
        Folder of the store; it is created by the first nodes. By default, a temporary folder that is removed with the
        object.
    index : str
        Kind of FAISS index, as for :meth:`ragembed.Store.create`.
    language : str
        Language whose word endings lexical search ignores.

    Examples
    --------
    .. code-block:: python

        from llama_index.core import StorageContext, VectorStoreIndex
        from ragembed.llamaindex import RagembedVectorStore
        store = RagembedVectorStore(path="my-store")
        context = StorageContext.from_defaults(vector_store=store)
        index = VectorStoreIndex(nodes, storage_context=context, embed_model=embedding)
        retriever = index.as_retriever(vector_store_query_mode="hybrid", similarity_top_k=3)
    """

    path: str | None = None
    index: str = "auto"
    language: str = "english"

    _folder: DocumentFolder = PrivateAttr()

    def __init__(self, path: str | None = None, **fields: Any) -> None:
        super().__init__(**{"path": path, "stores_text": True, **fields})
        self._folder = DocumentFolder(path, None, index=self.index, language=self.language)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return "RagembedVectorStore"

    @property
    def client(self) -> Store | None:
        """The :class:`ragembed.Store`, or None before the first nodes."""
        return self._folder.get()

    @property
    def folder(self) -> Path:
        """Folder of the store."""
        return self._folder.path

    @override
    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes with their embeddings, all of them or none; a node replaces an earlier one with the same id."""
        latest = {node.node_id: node for node in nodes}
        for name, node in latest.items():
            if node.embedding is None:
                raise ConfigError(f"the node {name!r} has no embedding: add nodes through a VectorStoreIndex")
        wanted = list(latest.values())
        vectors = checked_vectors([node.get_embedding() for node in wanted], len(wanted), "the embedding")
        self._folder.add([_record(node) for node in wanted], vectors)
        return [node.node_id for node in nodes]

    async_add = twin(add, "async_{}")

    @override
    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        self._folder.delete(Comparison(_SOURCE, "=", ref_doc_id))

    @override
    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete the nodes that have one of the ids and match the filters; without both, delete nothing."""
        if node_ids is not None or filters is not None:
            self._folder.delete(_where(node_ids, None, filters) or And(()))

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return the nodes that have one of the ids and match the filters, in order of insertion."""
        return [_node(record) for record in self._folder.records(_where(node_ids, None, filters))]

    def clear(self) -> None:
        """Delete all nodes."""
        self._folder.clear()

    @override
    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the best nodes for a query.

        The modes are ``default`` (cosine), ``hybrid``, ``text_search`` and ``sparse`` (BM25) and ``mmr``. With
        ``alpha``, hybrid search weights the cosine by ``alpha`` and BM25 by ``1 - alpha``.
        """
        where = _where(query.node_ids or None, query.doc_ids or None, query.filters)  # an index passes empty lists
        hits = self._mmr(query, where) if query.mode is VectorStoreQueryMode.MMR else self._search(query, where)
        return VectorStoreQueryResult(
            nodes=[_node(hit) for hit in hits],
            similarities=[float(hit.score) for hit in hits],
            ids=[hit.id for hit in hits],
        )

    aquery = twin(query)

    def _search(self, query: VectorStoreQuery, where: Filter | None) -> list[Hit]:
        if query.mode not in _MODES:
            known = ", ".join(mode.value for mode in (*_MODES, VectorStoreQueryMode.MMR))
            raise ConfigError(f"unknown mode {query.mode.value!r}: expected one of {known}")
        mode = _MODES[query.mode]
        k = query.similarity_top_k if mode != "hybrid" else query.hybrid_top_k or query.similarity_top_k
        fusion = None if query.alpha is None or mode != "hybrid" else Fusion(alpha=query.alpha)
        text = query.query_str or ""
        return self._folder.search(text, k, mode, where, query.query_embedding, fusion)

    def _mmr(self, query: VectorStoreQuery, where: Filter | None) -> list[Hit]:
        store = self._folder.get_for(where)
        if store is None:
            return []
        vector, balance = _vector(query), 0.5 if query.mmr_threshold is None else query.mmr_threshold
        k = query.similarity_top_k
        return store.search_mmr_vector(vector, k, fetch_k=4 * k, lambda_mult=balance, where=where)

    def close(self) -> None:
        """Close the files of the store; the next use opens them again."""
        self._folder.close()


def _vector(query: VectorStoreQuery) -> Any:
    if query.query_embedding is None:
        raise ConfigError("the query has no embedding: give query_embedding, or use the mode text_search")
    return np.asarray(query.query_embedding, dtype=np.float32)


def _record(node: BaseNode) -> ChunkRecord:
    metadata = node_to_metadata_dict(node, remove_text=True, flat_metadata=False)
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    return ChunkRecord(node.node_id, normalised(Chunk(text, metadata=to_json(metadata))))


def _node(found: ChunkRecord | Hit) -> BaseNode:
    return metadata_dict_to_node(from_json(found.chunk.metadata), text=found.chunk.text)


def _where(
    node_ids: Sequence[str] | None, doc_ids: Sequence[str] | None, filters: MetadataFilters | None
) -> Filter | None:
    parts: list[Filter] = [] if node_ids is None else [Ids(tuple(node_ids))]
    if doc_ids is not None:
        parts.append(any_of(_SOURCE, tuple(doc_ids)))
    if (condition := parse_filters(filters)) is not None:
        parts.append(condition)
    return And(tuple(parts)) if parts else None
