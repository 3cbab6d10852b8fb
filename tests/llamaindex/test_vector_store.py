"""The LlamaIndex vector store and embedding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="LlamaIndex is not installed: pip install 'ragembed[llamaindex]'")

from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from ragembed.errors import ConfigError, NotFittedError
from ragembed.indexes import Store
from ragembed.llamaindex import RagembedEmbedding, RagembedVectorStore

PLACES = {"east": [2.0, 0.0], "north-east": [1.0, 1.0], "north": [0.0, 1.0], "west": [-1.0, 0.0]}
TEXTS = [f"the {word} number {n}" for n in range(6) for word in ("wing", "lock", "zebra")]


def node(name: str, n: int) -> TextNode:
    return TextNode(
        id_=name,
        text=f"the word {name}",
        metadata={"n": n, "tags": ["all", name], "name": name},
        embedding=PLACES[name],
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc{n % 2}")},
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RagembedVectorStore]:
    made = RagembedVectorStore(str(tmp_path / "store"))
    assert made.add([node(name, n) for n, name in enumerate(PLACES)]) == list(PLACES)
    yield made
    made.close()


def found(store: RagembedVectorStore, **settings: Any) -> list[str] | None:
    return store.query(VectorStoreQuery(**{"query_embedding": [1.0, 0.1], "similarity_top_k": 4, **settings})).ids


def test_nodes_return_as_they_were(store: RagembedVectorStore, tmp_path: Path) -> None:
    store.close()
    again = RagembedVectorStore(str(tmp_path / "store"))
    [first, *_] = again.get_nodes()
    expected = node("east", 0)
    assert first.to_dict() | {"embedding": PLACES["east"]} == expected.to_dict()
    assert [each.node_id for each in again.get_nodes(["west", "no", "east"])] == ["east", "west"]
    assert again.stores_text
    assert again.client is not None
    assert len(again.client) == 4


def test_modes_of_queries(store: RagembedVectorStore) -> None:
    assert found(store) == ["east", "north-east", "north", "west"]
    result = store.query(VectorStoreQuery(query_embedding=[3.0, 0.0], similarity_top_k=2))
    assert result.similarities == pytest.approx([1.0, 0.5**0.5], abs=1e-3)
    assert result.nodes is not None
    assert result.nodes[0].get_content() == "the word east"
    assert found(store, mode=VectorStoreQueryMode.TEXT_SEARCH, query_str="west", query_embedding=None) == ["west"]
    hybrid = {"mode": VectorStoreQueryMode.HYBRID, "query_str": "west"}
    assert found(store, **hybrid, alpha=1.0)[0] == "east"
    assert found(store, **hybrid, alpha=0.0)[0] == "west"
    assert len(found(store, **hybrid, hybrid_top_k=3)) == 3
    assert found(store, mode=VectorStoreQueryMode.MMR, mmr_threshold=0.0, similarity_top_k=2) == ["east", "west"]
    with pytest.raises(ConfigError, match="unknown mode 'svm': expected one of default, hybrid"):
        found(store, mode=VectorStoreQueryMode.SVM)
    with pytest.raises(ConfigError, match="the query has no embedding"):
        found(store, mode=VectorStoreQueryMode.MMR, query_embedding=None)
    assert found(RagembedVectorStore()) == found(RagembedVectorStore(), mode=VectorStoreQueryMode.MMR) == []


METADATA: dict[str, dict[str, Any]] = {
    "secret": {"level": "secret", "team": "a", "n": 1, "tags": ["x", "y"]},
    "draft": {"level": "public", "team": "draft", "n": 2.5, "tags": ["y"]},
    "fine": {"level": "public", "team": "a", "n": 3, "tags": []},
    "odd": {"level": "50%_Off", "team": "", "tags": ["x"]},
    "bare": {"team": None},
}
PAIR = [("level", "==", "secret"), ("team", "==", "draft")]


def both_stores(folder: Path) -> tuple[RagembedVectorStore, SimpleVectorStore]:
    stores = RagembedVectorStore(str(folder / "metadata")), SimpleVectorStore()
    for each in stores:
        each.add([TextNode(id_=name, text=name, metadata=of, embedding=[1.0, 0.0]) for name, of in METADATA.items()])
    return stores


def conditions(*parts: Any, join: str = "and") -> MetadataFilters:
    made = [
        part
        if isinstance(part, MetadataFilters)
        else MetadataFilter(key=part[0], operator=FilterOperator(part[1]), value=part[2])
        for part in parts
    ]
    return MetadataFilters(filters=made, condition=FilterCondition(join))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RagembedVectorStore, SimpleVectorStore]]:
    """Two stores that no test changes."""
    stores = both_stores(tmp_path_factory.mktemp("both"))
    yield stores
    stores[0].close()


@pytest.mark.filterwarnings("ignore:no chunk has the field|the field")
@pytest.mark.parametrize("join", ["and", "or", "not"])
@pytest.mark.parametrize(
    "parts",
    [
        PAIR,
        [("team", "!=", "a"), ("zzz", "!=", "a")],
        [("level", "==", None)],
        [("n", ">", 1), ("n", "<=", 3)],
        [("team", "in", ["a", "draft"]), ("n", "in", [1])],
        [("team", "nin", ["a", "draft"])],
        [("tags", "any", ["y", "z"])],
        [("tags", "all", ["x", "y"])],
        [("tags", "any", [])],
        [("level", "contains", "c")],
        [("level", "text_match", "ublic")],
        [("level", "text_match_insensitive", "PUB")],
        [("level", "text_match_insensitive", "%_o")],
        [("level", "text_match_insensitive", "*")],
        [("tags", "is_empty", None), ("team", "is_empty", None)],
        [("zzz", "is_empty", None)],
    ],
)
def test_filters_select_what_the_simple_store_selects(both: Any, parts: list[Any], join: str) -> None:
    store, simple = both
    filters = conditions(*parts, join=join)
    expected = set(simple.query(VectorStoreQuery([1.0, 0.0], similarity_top_k=9, filters=filters)).ids or [])
    assert set(store.query(VectorStoreQuery([1.0, 0.0], similarity_top_k=9, filters=filters)).ids or []) == expected
    assert {each.node_id for each in store.get_nodes(filters=filters)} == expected


def test_nested_not_means_none_of_them(both: Any) -> None:
    store, _ = both
    none = conditions(*PAIR, join="not")
    for filters, expected in (
        (conditions(none, ("team", "==", "a")), {"fine"}),
        (conditions(none, ("team", "==", "a"), join="not"), {"draft"}),
        (conditions(none, join="not"), {"secret", "draft"}),
    ):
        assert {each.node_id for each in store.get_nodes(filters=filters)} == expected


def test_filter_that_cannot_match_warns_once(tmp_path: Path) -> None:
    store, _ = both_stores(tmp_path)
    unknown = conditions(("levle", "==", "public"))
    with pytest.warns(UserWarning, match="no chunk has the field 'levle': did you mean 'level'") as caught:
        store.get_nodes(filters=unknown)
    assert caught[0].filename == __file__
    store.get_nodes(filters=unknown)  # warnings are errors
    for mode in (VectorStoreQueryMode.MMR, VectorStoreQueryMode.DEFAULT):
        with pytest.warns(UserWarning, match="its values are lists"):
            found(RagembedVectorStore(str(tmp_path / "metadata")), mode=mode, filters=conditions(("tags", "==", "x")))
    with pytest.warns(UserWarning, match="'n' is compared with a string, but its values are numbers"):
        store.delete_nodes(filters=conditions(("n", "==", "1")))
    store.close()


def test_documents_and_nodes_are_deleted(store: RagembedVectorStore) -> None:
    assert found(store, doc_ids=["doc1"]) == ["north-east", "west"]
    assert found(store, node_ids=["west", "north"]) == ["north", "west"]
    store.delete("doc1")
    assert found(store) == ["east", "north"]
    store.delete_nodes()
    store.delete_nodes(["east"], MetadataFilters(filters=[MetadataFilter(key="n", value=2)]))
    assert found(store) == ["east", "north"]
    store.delete_nodes(["east", "no"])
    store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="n", value=2)]))
    assert found(store) == []
    store.add([node("north", 3)])
    assert store.get_nodes()[0].metadata["n"] == 3
    store.clear()
    assert store.get_nodes() == []


async def test_invalid_nodes_and_asynchronous_methods(store: RagembedVectorStore) -> None:
    with pytest.raises(ConfigError, match="the node 'x' has no embedding"):
        store.add([TextNode(id_="x", text="x")])
    with pytest.raises(ConfigError, match="got 3: expected a list of values"):
        store.get_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="n", value=3, operator=FilterOperator.IN)]))
    assert await store.async_add([node("east", 9)]) == ["east"]
    result = await store.aquery(VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=1))
    assert result.ids == ["east"]
    assert await store.aget_nodes(["east"]) == store.get_nodes(["east"])


def test_index_with_fitted_embedding(tiny_model: Path, tmp_path: Path) -> None:
    settings = {"model": str(tiny_model), "extractor": "re:dim=16"}
    embedding = RagembedEmbedding(preset="re", settings=settings)
    with pytest.raises(NotFittedError, match=r"call fit\(texts\)"):
        embedding.get_query_embedding("zebra")
    embedding.fit(TEXTS).embedder.save(tmp_path / "embedder")
    store = RagembedVectorStore(str(tmp_path / "store"))
    nodes = [TextNode(id_=text, text=text) for text in TEXTS]
    context = StorageContext.from_defaults(vector_store=store)
    index = VectorStoreIndex(nodes, storage_context=context, embed_model=embedding)
    for mode in ("default", "hybrid", "text_search", "mmr"):
        retriever = index.as_retriever(vector_store_query_mode=mode, similarity_top_k=1)
        [hit] = retriever.retrieve("the zebra number 4")
        assert hit.node.node_id == "the zebra number 4"
    loaded = RagembedEmbedding(path=str(tmp_path / "embedder"))
    again = VectorStoreIndex.from_vector_store(store, embed_model=loaded)
    assert again.as_retriever(similarity_top_k=1).retrieve("the wing number 2")[0].node.node_id == "the wing number 2"
    index.delete_nodes(["the wing number 2"])
    with Store.open(store.folder, store.client.embedder if store.client else None) as opened:
        assert len(opened) == len(TEXTS) - 1


async def test_embedding_that_learns_nothing(tiny_model: Path) -> None:
    settings = {"model": str(tiny_model), "extractor": "re:dim=16", "weighting": "uniform"}
    embedding = RagembedEmbedding(settings=settings, embed_batch_size=2)
    vectors = embedding.get_text_embedding_batch(["wing", "lock", "zebra"])
    assert [len(vector) for vector in vectors] == [16, 16, 16]
    assert embedding.get_text_embedding("lock") == pytest.approx(vectors[1], abs=1e-6)
    assert await embedding.aget_query_embedding("lock") == pytest.approx(vectors[1], abs=1e-6)
    assert RagembedEmbedding.from_dict(embedding.to_dict()).settings == settings
