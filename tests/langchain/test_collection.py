"""``RagVectorStore.open_collection``: several stores are searched as one, and not changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.documents import Document

from ragembed import Embedder, EmbedderConfig, Store
from ragembed.config.settings_files import add_stores, remove_stores
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord
from ragembed.langchain import RagContext, RagVectorStore
from tests.conftest import record

TEXTS = {"mine": ["tea with milk", "red lock"], "theirs": ["green tea", "birds fly"]}


@pytest.fixture
def folders(tmp_path: Path, tiny_model: Path) -> dict[str, Path]:
    """Two stores with the same embedder; both have chunks with the ids 0 and 1."""
    config = EmbedderConfig(extractor="re:dim=16", model=str(tiny_model), postprocess=("normalize",))
    embedder = Embedder(config).fit([text for some in TEXTS.values() for text in some])
    for name, texts in TEXTS.items():
        with Store.create(tmp_path / name, embedder) as store:
            chunks: list[ChunkRecord] = [record(str(i), text, metadata={"year": i}) for i, text in enumerate(texts)]
            store.add(chunks)
    return {name: tmp_path / name for name in TEXTS}


def texts(documents: list[Document]) -> set[tuple[str, str]]:
    return {(document.metadata["store"], document.page_content) for document in documents}


def test_searches_and_retrievers_find_documents_of_all_stores(folders: dict[str, Path]) -> None:
    together = RagVectorStore.open_collection(folders, retrieval_mode="lexical")
    tea = {("mine", "tea with milk"), ("theirs", "green tea")}
    assert texts(together.similarity_search("tea")) == tea
    assert texts(together.as_retriever(search_type="hybrid", search_kwargs={"k": 2}).invoke("tea")) == tea
    assert texts(together.similarity_search("tea", filter={"year": 0})) == tea
    assert texts(together.similarity_search("tea", filter=lambda metadata: metadata["year"] == 1)) == set()
    assert texts(together.max_marginal_relevance_search("tea", k=4)) == texts(list(together))
    assert (len(together), together.ids()) == (4, ["0", "1", "0", "1"])
    assert texts(together.get_by_ids(["1"])) == {("mine", "red lock"), ("theirs", "birds fly")}
    vector = together.embeddings.embed_query("tea")
    assert len(together.similarity_search_by_vector(vector, k=3)) == 3


def test_context_packs_documents_of_all_stores(folders: dict[str, Path]) -> None:
    together = RagVectorStore.open_collection(folders)
    found = RagContext(vectorstore=together, budget=200).pack(together.lexical_search("tea"))
    assert {(block.store, block.text) for block in found.blocks} == {("mine", "tea with milk"), ("theirs", "green tea")}
    unknown = RagContext(vectorstore=together).pack([Document("rain", metadata={"source": "rain.txt"})])
    assert [block.text for block in unknown.blocks] == ["rain"]


def test_collections_are_opened_by_name(folders: dict[str, Path]) -> None:
    add_stores("langchain-tests", folders)
    try:
        assert len(RagVectorStore.open_collection("langchain-tests")) == 4
    finally:
        remove_stores("langchain-tests")
    with pytest.raises(ConfigError, match="no collection is called 'langchain-tests'"):
        RagVectorStore.open_collection("langchain-tests")


def test_a_collection_is_not_changed(folders: dict[str, Path], tmp_path: Path) -> None:
    together = RagVectorStore.open_collection(folders)
    for change in (
        lambda: together.add_texts(["more"]),
        lambda: together.delete(["0"]),
        lambda: together.record_manager(),
        lambda: together.save_local(tmp_path / "copy"),
        lambda: together.rebuild(together.embeddings),
        lambda: RagVectorStore(path=folders["mine"]).merge_from(together),
    ):
        with pytest.raises(ConfigError, match="a collection is only searched"):
            change()
    assert len(together) == 4
