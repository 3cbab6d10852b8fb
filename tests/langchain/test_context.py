"""``RagContext``: documents to blocks, or to the text for a prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import ValidationError

from ragembed import EmbedderConfig
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.langchain import RagContext, RagEmbeddings, RagRetriever, RagVectorStore


@pytest.fixture
def store(in_folder: Path, tiny_model: Path) -> RagVectorStore:
    Path("docs").mkdir()
    sections = "\n\n".join(f"## Part {n}\n\nThe writer of part {n} holds the lock number {n}." for n in range(4))
    Path("docs/locks.md").write_text(f"# Locks\n\n{sections}\n", encoding="utf-8")
    config = EmbedderConfig(extractor="re:dim=16", model=str(tiny_model), postprocess=("normalize",))
    index_files(IndexingRequest(Path(".ragembed"), (Path("docs"),), None, config))
    return RagVectorStore(path=".ragembed")


def test_packs_retrieved_documents_in_a_chain(store: RagVectorStore) -> None:
    retriever = RagRetriever(vectorstore=store, search_type="lexical")
    chain = {"context": retriever | RagContext(vectorstore=store, budget=300), "question": RunnablePassthrough()}
    text = (RunnablePassthrough() | chain).invoke("lock 2")["context"]
    assert "docs/locks.md:1-" in text
    assert text == store._lazy.get_or_create().context("lock 2", 300, "lexical").text


def test_compresses_documents_to_blocks(store: RagVectorStore) -> None:
    context = RagContext(vectorstore=store, budget=300, format="xml", tokenizer=len)
    found = RagRetriever(vectorstore=store, search_type="lexical", reranker=context).invoke("lock 2")
    assert all(document.metadata["path"] == "docs/locks.md" for document in found)
    assert sum(len(document.page_content) for document in found) <= 300


def test_documents_without_a_file_are_headed_by_their_source(unfitted: RagEmbeddings) -> None:
    texts = ["Tea needs water.", "Birds fly south.", "Zebras are striped.", "Wings lift."]
    metadatas = [{"source": "https://a.example/tea"}, {"source": "bird.txt", "title": "B"}, {"title": "Zebras"}, {}]
    with RagVectorStore.from_texts(texts, unfitted, metadatas) as store:
        documents = sorted(store.iter_documents(), key=lambda document: texts.index(document.page_content))
        names = ["https://a.example/tea", "bird.txt", "Zebras", documents[3].id]
        context = RagContext(vectorstore=store)
        assert [block.path for block in context.pack(documents).blocks] == names
        for name in names:
            assert f"\n{name}\n```\n" in context(documents)
        found = context.compress_documents(documents, "tea")
        assert [each.metadata.get("source") for each in found] == [*names[:2], None, None]
        opened = store._lazy.get_or_create()
        assert {block.path for block in opened.context("tea", 500, "lexical").blocks} == {names[0]}
        assert opened.context("tea", 500, "lexical").to_dict()["blocks"][0]["path"] == names[0]


def test_another_vector_store_is_an_error(unfitted: RagEmbeddings) -> None:
    with pytest.raises(ValidationError, match="vectorstore is a InMemoryVectorStore: expected a RagVectorStore"):
        RagContext(vectorstore=InMemoryVectorStore(unfitted))


def test_documents_of_other_stores_are_packed_with_their_own_text(store: RagVectorStore) -> None:
    documents = [Document("Tea needs water.", metadata={"source": "tea.txt"}), Document("Birds fly.", id="bird")]
    blocks = RagContext(vectorstore=store).pack(documents).blocks
    assert [block.text for block in blocks] == ["Tea needs water.", "Birds fly."]
    assert blocks[0].source == "tea.txt"
    assert [block.path for block in blocks] == ["tea.txt", "bird"]
