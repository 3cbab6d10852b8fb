"""Converting folders of langchain-community's FAISS store to vector stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from langchain_core.documents import Document

from ragembed.errors import ConfigError, StoreError, StoreNotFoundError
from ragembed.indexes import Budget, IndexConfig, Store
from ragembed.langchain import RagEmbeddings, RagVectorStore

from .community_folders import IDS, METADATA, PLAIN, TEXTS, docstore
from .fakes import Angles, ids

DOCUMENTS = [
    Document(id=name, page_content=text, metadata=metadata)
    for name, text, metadata in zip(IDS, TEXTS, METADATA, strict=True)
]
HOSTILE = b"\x80\x03cos\nmkdir\nX\x08\0\0\0executed\x85R."
"""A pickle that creates a folder when it is loaded."""


@pytest.mark.parametrize(("name", "index_name"), [("l2", "index"), ("inner", "other")])
def test_community_folder_is_converted_without_embedding(
    golden: Path, tmp_path: Path, name: str, index_name: str
) -> None:
    embedding, place = Angles(), tmp_path / "store"
    before = {file.name: file.read_bytes() for file in (golden / name).iterdir()}
    with RagVectorStore.from_community_faiss(golden / name, embedding, index_name=index_name, path=place) as store:
        assert list(store) == DOCUMENTS
        assert embedding.batches == []
        assert [(found.id, round(score, 3)) for found, score in store.similarity_search_with_score("0")] == [
            ("a", 1.0),
            ("ü", 0.866),
            ("c", 0.0),
        ]
    with RagVectorStore(Angles(), place) as again:
        assert ids(again.similarity_search("80", k=2)) == ["c", "ü"]
    assert {file.name: file.read_bytes() for file in (golden / name).iterdir()} == before


def test_converted_metadata_are_json(golden: Path) -> None:
    with RagVectorStore.from_community_faiss(golden / "rich", Angles()) as store:
        assert [found.metadata for found in store] == [PLAIN]


@pytest.mark.parametrize(("name", "more"), [("refused", []), ("shifted", ["d"])])
def test_mismatched_vectors_and_documents_warn_and_embed_again(golden: Path, name: str, more: list[str]) -> None:
    embedding = Angles()
    with pytest.warns(UserWarning, match="1 vectors without a document or documents without a vector"):
        store = RagVectorStore.from_community_faiss(golden / name, embedding)
    with store:
        assert store.ids() == [*IDS, *more]
        assert sum(embedding.batches) == 3 + len(more)
        for document in store:
            (found, score), *_ = store.similarity_search_with_score(document.page_content, k=1)
            assert found == document
            assert score == pytest.approx(1.0, abs=1e-3)


def test_community_folder_fits_rag_embeddings(golden: Path, tmp_path: Path, unfitted: RagEmbeddings) -> None:
    calls: list[int] = []
    with RagVectorStore.from_community_faiss(
        golden / "l2", unfitted, path=tmp_path / "s", batch_size=2, progress=lambda done, _: calls.append(done)
    ) as store:
        assert unfitted.is_fitted
        assert calls == [2, 3]
        assert list(store) == DOCUMENTS
    with RagVectorStore(path=tmp_path / "s") as again:
        assert ids(again.similarity_search("30", k=1)) == ["ü"]


def test_community_folder_with_index_and_budget(golden: Path, tmp_path: Path) -> None:
    budget = Budget(min_recall=0.9)
    for name in ("l2", "deleted"):  # the second adds to the store of the first
        with RagVectorStore.from_community_faiss(
            golden / name, Angles(), path=tmp_path / "s", index="hnsw", budget=budget
        ) as store:
            assert store.ids()[-1] == "c"
    with Store.open(tmp_path / "s") as opened:
        assert opened.wanted_index == IndexConfig("hnsw", budget)
        assert sorted(opened.ids()) == sorted(IDS)


def test_folder_with_two_vectors_for_a_text(tmp_path: Path, unfitted: RagEmbeddings) -> None:
    (tmp_path / "index.pkl").write_bytes(docstore({"a": Document("same"), "b": Document("same")}))
    index = faiss.IndexFlatL2(2)
    index.add(np.eye(2, dtype=np.float32))
    faiss.write_index(index, str(tmp_path / "index.faiss"))
    with RagVectorStore.from_community_faiss(tmp_path, Angles()) as store:
        assert store.vectors(["a", "b"]).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    with RagVectorStore.from_community_faiss(tmp_path, unfitted) as store:
        assert store.ids() == ["a", "b"]


# load_local


@pytest.mark.parametrize("allowed", [True, False])
def test_load_local_of_community_folder_is_temporary(golden: Path, allowed: bool) -> None:
    folder = str(golden / "l2")
    with RagVectorStore.load_local(folder, Angles(), allow_dangerous_deserialization=allowed) as store:
        assert list(store) == DOCUMENTS
        assert store.path.name.startswith("ragembed-")
        store.save_local(folder)  # from now on the folder contains a ragembed store
        store.add_texts(["180"], ids=["new"])
        store.save_local(folder)
    with RagVectorStore.load_local(folder, Angles()) as again:
        assert again.ids() == [*IDS, "new"]
        assert again.path == golden / "l2" / "index"
    assert {"index.faiss", "index.pkl"} <= {file.name for file in (golden / "l2").iterdir()}


def test_load_local_of_community_folder_needs_embeddings(golden: Path) -> None:
    with pytest.raises(ConfigError, match="give the embeddings"):
        RagVectorStore.load_local(golden / "l2")
    with pytest.raises(StoreNotFoundError, match="no store 'nothing'"):
        RagVectorStore.load_local(golden / "l2", Angles(), "nothing")
    (golden / "l2" / "index.faiss").unlink()
    with pytest.raises(StoreNotFoundError, match=r"no index\.faiss"):
        RagVectorStore.load_local(golden / "l2", Angles())


def test_hostile_folder_is_an_error_and_executes_nothing(golden: Path, in_folder: Path) -> None:
    (golden / "l2" / "index.pkl").write_bytes(HOSTILE)
    uses: list[Any] = [
        lambda: RagVectorStore.from_community_faiss(golden / "l2", Angles()),
        lambda: RagVectorStore.load_local(golden / "l2", Angles(), allow_dangerous_deserialization=True),
    ]
    for use in uses:
        with pytest.raises(StoreError, match=r"os\.mkdir.*nothing in the file was executed"):
            use()
    assert list(in_folder.iterdir()) == []


async def test_asynchronous_embedding(golden: Path) -> None:
    with await RagVectorStore.afrom_community_faiss(golden / "inner", Angles(), index_name="other") as made:
        assert list(made) == DOCUMENTS
    with await RagVectorStore.aload_local(golden / "l2", Angles()) as loaded:
        assert list(loaded) == DOCUMENTS
