from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from ragembed import Store
from ragembed.errors import (
    ConfigError,
    DimensionError,
    IncompatibleStoreError,
    StoreNotFoundError,
)
from ragembed.langchain import RagEmbeddings, RagVectorStore
from tests.conftest import KnownEncoder

from .fakes import FAKE, Angles, Given


@pytest.fixture
def store() -> Iterator[RagVectorStore]:
    with RagVectorStore(FAKE) as store:
        yield store


def texts(documents: list[Document]) -> list[str]:
    return [document.page_content for document in documents]


# Add


def test_order_of_id_sources(store: RagVectorStore, tmp_path: Path) -> None:
    documents = [Document(id="own", page_content=text) for text in ("a", "b")] + [Document(page_content="c")]
    assert store.add_documents(documents[:1], ids=["given"]) == ["given"]
    ids = store.add_documents(documents, ids=["first", None, None])
    assert ids[:2] == ["first", "own"]
    assert ids[2] == Store.create(tmp_path / "other", KnownEncoder()).add(["c"])[0]
    assert texts(store.get_by_ids(ids)) == ["a", "b", "c"]


def test_documents_without_ids_get_the_same_ids_in_each_call(store: RagVectorStore) -> None:
    ids = store.add_texts(["same", "same", "same", "other"])
    assert len(set(ids)) == len(store) == 4
    assert texts(store.similarity_search("same", k=3)) == ["same"] * 3
    assert store.add_texts(["other", "same", "same"]) == [ids[3], ids[0], ids[1]]
    assert len(store) == 4
    dated = [store.add_texts(["same"], [{"day": day}])[0] for day in (date(2024, 1, 1), date(2024, 1, 2), "2024-01-01")]
    assert len({*ids, *dated}) == len(store) == 7
    assert store.add_documents([Document(page_content="same", metadata={"day": date(2024, 1, 2)})]) == [dated[1]]


def test_texts_with_other_vectors_have_other_ids() -> None:
    with RagVectorStore(FAKE) as store:
        dim = len(FAKE.embed_query("same"))
        pairs = [("same", np.eye(dim)[i].tolist()) for i in (0, 1)]
        ids = store.add_embeddings(pairs)
        assert store.add_embeddings(pairs) == ids
        assert len(store) == len(set(ids)) == 2


@pytest.mark.parametrize(
    ("metadatas", "ids", "message"),
    [
        ([{}], None, "1 metadatas for 2 texts"),
        (None, ["1", "2", "3"], "3 ids for 2 documents"),
    ],
)
def test_different_lengths_are_errors(store: RagVectorStore, metadatas: Any, ids: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        store.add_texts(["a", "b"], metadatas, ids=ids)
    with pytest.raises(ValueError, match=message):
        RagVectorStore.from_texts(["a", "b"], FAKE, metadatas, ids=ids)
    assert len(store) == 0


def test_generators_are_accepted(store: RagVectorStore) -> None:
    names = ["a", "b"]
    assert store.add_texts((t for t in names), ({"n": t} for t in names), ids=(t for t in names)) == names
    assert store.add_documents(Document(id=t, page_content=t) for t in ["c", "d"]) == ["c", "d"]
    assert [(d.id, d.metadata) for d in store.get_by_ids(["a", "d"])] == [("a", {"n": "a"}), ("d", {})]


def test_single_str_is_an_error(store: RagVectorStore) -> None:
    store.add_texts(["a", "b"], ids=["a", "b"])
    with pytest.raises(ConfigError, match="texts is a str"):
        store.add_texts("ab")
    with pytest.raises(ConfigError, match="ids is a str"):
        store.delete("ab")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ids is a str"):
        store.get_by_ids("ab")
    assert len(store) == 2


def test_batch_size_limits_texts_per_call() -> None:
    embedding = Angles()
    with RagVectorStore(embedding) as store:
        store.add_texts(map(str, range(7)), batch_size=3)
        assert embedding.batches == [3, 3, 1]
        store.add_documents([Document(page_content=str(n)) for n in range(5, 9)], batch_size=100)
        assert embedding.batches[3:] == [2]  # 5 and 6 already have vectors
        assert len(store) == 9
        with pytest.raises(ConfigError, match="batch_size is 0"):
            store.add_texts(["1"], batch_size=0)


# Search


def test_rounding_takes_no_score_above_1() -> None:
    with RagVectorStore(Angles()) as store:
        store.add_texts(map(str, range(40)))
        best = [store.similarity_search_with_score(str(angle), k=1)[0][1] for angle in range(40)]
    assert max(best) == 1.0  # FAISS gives 1.0000001 for some of these angles


# Open


def test_reopening_with_another_embedding(tmp_path: Path) -> None:
    with RagVectorStore(FAKE, tmp_path) as store:
        store.add_texts(["foo"])
    with pytest.raises(IncompatibleStoreError, match=r"DeterministicFakeEmbedding.*Given\(other\)"):
        RagVectorStore(Given([[1.0] * 6], "other"), tmp_path)
    with pytest.raises(IncompatibleStoreError, match=r"DeterministicFakeEmbedding.*no embedder was given"):
        RagVectorStore(path=tmp_path)


def test_embeddings_of_another_dimension(tmp_path: Path) -> None:
    with RagVectorStore(FAKE, tmp_path) as store:
        store.add_texts(["foo"])
    with RagVectorStore(DeterministicFakeEmbedding(size=8), tmp_path) as store:
        for use in (store.similarity_search, store.max_marginal_relevance_search, lambda text: store.add_texts([text])):
            with pytest.raises(DimensionError, match=r"8.*6|6.*8"):
                use("bar")
        assert len(store) == 1


def test_open_of_missing_store_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="nowhere"):
        RagVectorStore(path=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="give an embedding"):
        RagVectorStore()
    with pytest.raises(ConfigError, match="from_embedder"):
        RagVectorStore(object(), tmp_path)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_store_created_by_another_object_is_seen(tmp_path: Path) -> None:
    with RagVectorStore(FAKE, tmp_path) as early, RagVectorStore(FAKE, tmp_path) as late:
        assert early.similarity_search("a") == []
        late.add_texts(["a"])
        assert texts(early.similarity_search("a")) == ["a"]
        early.add_texts(["b"])
        assert texts(late.similarity_search("b", k=1)) == ["b"]


def test_temporary_store_is_removed_with_the_object() -> None:
    store = RagVectorStore.from_texts(["a"], FAKE)
    folder = store.path
    store.close()
    assert texts(store.similarity_search("a")) == ["a"]
    assert folder.is_dir()
    del store
    gc.collect()
    assert not folder.exists()


TEMPORARY = """
import os, sys
from langchain_core.embeddings import DeterministicFakeEmbedding
from ragembed.langchain import RagVectorStore
store = RagVectorStore.from_texts(["a"], DeterministicFakeEmbedding(size=6))
child = os.fork() if hasattr(os, "fork") else None
if child == 0:
    sys.exit()
if child is not None:
    os.waitpid(child, 0)
assert store.path.is_dir()
print(store.path)
"""


def test_temporary_store_is_removed_at_exit_but_not_by_a_fork() -> None:
    done = subprocess.run([sys.executable, "-c", TEMPORARY], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).name.startswith("ragembed-")
    assert not Path(done.stdout.strip()).exists()
    assert done.stderr == ""


# With RagEmbeddings


def test_creation_fits_and_reopening_needs_no_embedding(saved_embeddings: Path, tmp_path: Path) -> None:
    assert saved_embeddings.is_dir()  # the model exists
    embeddings = RagEmbeddings(device="cpu")
    documents = [Document(id=t, page_content=t) for t in ("a cat on the sofa", "the bank raised interest rates")]
    with RagVectorStore.from_documents(documents, embeddings, path=tmp_path) as store:
        assert embeddings.is_fitted
        assert store.embeddings is embeddings
        assert store.similarity_search("feline", k=1) == documents[:1]
    with RagVectorStore(path=tmp_path) as again:
        assert again.similarity_search("feline", k=1) == documents[:1]
        assert isinstance(again.embeddings, RagEmbeddings)
        assert again.embeddings.fingerprint == embeddings.fingerprint
        again.add_texts(["bread needs flour"])
        assert texts(again.similarity_search("how to bake", k=1)) == ["bread needs flour"]
    with RagVectorStore.from_texts(["more"], RagEmbeddings(), path=tmp_path) as opened:
        assert len(opened) == 4
