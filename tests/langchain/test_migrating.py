"""Folders of langchain-community's FAISS store, in and out of a vector store."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from langchain_core.documents import Document

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import ConfigError, StoreError, StoreNotFoundError
from ragembed.indexes import Budget, Store, Wanted
from ragembed.langchain import RagEmbeddings, RagVectorStore
from ragembed.langchain.community.documents import PickledDocument
from ragembed.langchain.community.folder import read_folder, write_folder

from .community_folders import GOLDEN, IDS, METADATA, PLAIN, TEXTS
from .fakes import Angles

DOCUMENTS = [
    Document(id=name, page_content=text, metadata=metadata)
    for name, text, metadata in zip(IDS, TEXTS, METADATA, strict=True)
]
HOSTILE = b"cos\nmkdir\n(S'executed'\ntR."
"""A pickle, of protocol 0, that makes a folder when it is loaded."""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """Folders that langchain-community saved."""
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(tmp_path / "golden")
    return tmp_path / "golden"


@pytest.fixture
def light(tiny_model: Path) -> RagEmbeddings:
    """Embeddings that run no model, to be fitted."""
    return RagEmbeddings.from_embedder(Embedder(EmbedderConfig(extractor="re:dim=16", model=str(tiny_model))))


def ids(documents: list[Document]) -> list[str | None]:
    return [document.id for document in documents]


@pytest.mark.guarantee(40)
@pytest.mark.parametrize(
    ("name", "index_name"), [("l2", "index"), ("inner", "other"), ("ivf", "index"), ("hnsw", "index")]
)
def test_a_folder_becomes_a_store_and_nothing_is_embedded(
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


@pytest.mark.guarantee(40)
def test_metadata_are_json_afterwards(golden: Path) -> None:
    with RagVectorStore.from_community_faiss(golden / "rich", Angles()) as store:
        assert [found.metadata for found in store] == [PLAIN]


@pytest.mark.guarantee(40)
@pytest.mark.parametrize(("name", "more"), [("refused", []), ("shifted", ["d"])])
def test_where_vectors_lost_their_documents_all_are_embedded_anew_with_a_warning(
    golden: Path, name: str, more: list[str]
) -> None:
    embedding = Angles()
    with pytest.warns(UserWarning, match="1 vectors or documents that lead nowhere"):
        store = RagVectorStore.from_community_faiss(golden / name, embedding)
    with store:
        assert store.ids() == [*IDS, *more]
        assert sum(embedding.batches) == 3 + len(more)
        for document in store:
            (found, score), *_ = store.similarity_search_with_score(document.page_content, k=1)
            assert found == document
            assert score == pytest.approx(1.0, abs=1e-3)


@pytest.mark.guarantee(40)
def test_a_folder_becomes_a_store_with_rag_embeddings_fitted_on_it(
    golden: Path, tmp_path: Path, light: RagEmbeddings
) -> None:
    told: list[int] = []
    with RagVectorStore.from_community_faiss(
        golden / "l2", light, path=tmp_path / "s", batch_size=2, progress=lambda done, _: told.append(done)
    ) as store:
        assert light.is_fitted
        assert told == [2, 3]
        assert list(store) == DOCUMENTS
    with RagVectorStore(path=tmp_path / "s") as again:
        assert ids(again.similarity_search("30", k=1)) == ["ü"]


@pytest.mark.guarantee(40)
def test_a_folder_is_taken_with_an_index_and_a_budget(golden: Path, tmp_path: Path) -> None:
    budget = Budget(min_recall=0.9)
    for name in ("l2", "deleted"):  # the second adds to what the first made
        with RagVectorStore.from_community_faiss(
            golden / name, Angles(), path=tmp_path / "s", index="hnsw", budget=budget
        ) as store:
            assert store.ids()[-1] == "c"
    with Store.open(tmp_path / "s") as opened:
        assert opened.wanted_index == Wanted("hnsw", budget)
        assert sorted(opened.ids()) == sorted(IDS)


@pytest.mark.guarantee(40)
def test_two_vectors_for_one_text_need_rag_embeddings(tmp_path: Path, light: RagEmbeddings) -> None:
    twins = [PickledDocument("a", "same"), PickledDocument("b", "same")]
    write_folder(tmp_path, "index", twins, np.eye(2, dtype=np.float32))
    with pytest.raises(ConfigError, match="two vectors are given for the text 'same'"):
        RagVectorStore.from_community_faiss(tmp_path, Angles())
    with RagVectorStore.from_community_faiss(tmp_path, light) as store:
        assert store.ids() == ["a", "b"]


# By load_local


@pytest.mark.guarantee(40, 41)
@pytest.mark.parametrize("allowed", [True, False])
def test_load_local_takes_an_old_folder_into_a_temporary_store(golden: Path, allowed: bool) -> None:
    folder = str(golden / "l2")
    with RagVectorStore.load_local(folder, Angles(), allow_dangerous_deserialization=allowed) as store:
        assert list(store) == DOCUMENTS
        assert store.path.name.startswith("ragembed-")
        store.save_local(folder)  # from now on there is a store of ours
        store.add_texts(["180"], ids=["new"])
        store.save_local(folder)
    with RagVectorStore.load_local(folder, Angles()) as again:
        assert again.ids() == [*IDS, "new"]
        assert again.path == golden / "l2" / "index"
    assert {"index.faiss", "index.pkl"} <= {file.name for file in (golden / "l2").iterdir()}


@pytest.mark.guarantee(41)
def test_load_local_says_what_an_old_folder_needs(golden: Path) -> None:
    with pytest.raises(ConfigError, match="give the embeddings"):
        RagVectorStore.load_local(golden / "l2")
    with pytest.raises(StoreNotFoundError, match="no store 'nothing'"):
        RagVectorStore.load_local(golden / "l2", Angles(), "nothing")
    (golden / "l2" / "index.faiss").unlink()
    with pytest.raises(StoreNotFoundError, match=r"no index\.faiss"):
        RagVectorStore.load_local(golden / "l2", Angles())


@pytest.mark.guarantee(32, 40)
def test_a_hostile_folder_is_refused_and_executes_nothing(golden: Path, in_folder: Path) -> None:
    (golden / "l2" / "index.pkl").write_bytes(HOSTILE)
    uses: list[Any] = [
        lambda: RagVectorStore.from_community_faiss(golden / "l2", Angles()),
        lambda: RagVectorStore.load_local(golden / "l2", Angles(), allow_dangerous_deserialization=True),
    ]
    for use in uses:
        with pytest.raises(StoreError, match=r"os\.mkdir.*nothing of the file was executed"):
            use()
    assert list(in_folder.iterdir()) == []


# And back


@pytest.mark.guarantee(40)
def test_what_is_written_for_langchain_community_comes_back(tmp_path: Path) -> None:
    metadatas = [{"n": 1, "nested": {"ü": [None, 1.5, True]}}, {}, {"source": "x"}]
    with RagVectorStore.from_texts(["0", "30", "90"], Angles(5.0), metadatas, ids=["a", "b", "c"]) as store:
        store.add_texts(["180"], ids=["b"])
        store.to_community_faiss(tmp_path / "Ordner", "größe")
        embedding = Angles(5.0)
        with RagVectorStore.from_community_faiss(tmp_path / "Ordner", embedding, index_name="größe") as back:
            assert list(back) == list(store)
            assert back.similarity_search_with_score("10") == store.similarity_search_with_score("10")
            assert embedding.batches == []
    assert {file.name for file in (tmp_path / "Ordner").iterdir()} == {"größe.faiss", "größe.pkl"}


@pytest.mark.guarantee(51)
def test_faiss_ranks_what_is_written_as_the_store_does(tmp_path: Path, light: RagEmbeddings) -> None:
    texts = [f"{one} {other}" for one in ("cat", "wing", "lock", "heat") for other in ("red", "three", "shock", "y")]
    with RagVectorStore.from_texts(texts, light, ids=texts) as store:
        store.to_community_faiss(tmp_path)
        index = faiss.read_index(str(tmp_path / "index.faiss"))
        names = read_folder(tmp_path).ids
        for text in [*texts, "a red cat", "wing three lock"]:
            distances, positions = index.search(light.embed_query_array(text)[None, :], len(texts))
            ranked = store.similarity_search_with_score(text, k=len(texts))
            scores = {found.id: score for found, score in ranked}
            for distance, position in zip(distances[0], positions[0], strict=True):
                assert 1 - distance / 2 == pytest.approx(scores[names[position]], abs=1e-3)
            assert names[positions[0][0]] == ranked[0][0].id


@pytest.mark.guarantee(40)
def test_an_empty_store_has_nothing_to_write(tmp_path: Path) -> None:
    with RagVectorStore(Angles()) as store, pytest.raises(ConfigError, match="at least one dimension"):
        store.to_community_faiss(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@pytest.mark.guarantee(40, 44)
async def test_asynchronously(golden: Path, tmp_path: Path) -> None:
    made = await RagVectorStore.afrom_community_faiss(golden / "inner", Angles(), index_name="other")
    with made:
        assert list(made) == DOCUMENTS
        await made.ato_community_faiss(tmp_path / "back")
    with await RagVectorStore.aload_local(tmp_path / "back", Angles()) as loaded:
        assert list(loaded) == DOCUMENTS
