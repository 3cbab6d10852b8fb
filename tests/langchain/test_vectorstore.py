from __future__ import annotations

import gc
import math
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


@pytest.fixture
def angles() -> Iterator[RagVectorStore]:
    """Documents at 0, 30, 90 and 180 degrees with their texts as ids, added in another order."""
    with RagVectorStore(Angles()) as store:
        store.add_texts(["90", "0", "180", "30"], ids=["90", "0", "180", "30"])
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


def test_same_id_in_one_call_last_wins(store: RagVectorStore) -> None:
    assert store.add_texts(["a", "b", "c"], [{"n": 0}, {"n": 1}, {"n": 2}], ids=["x", "y", "x"]) == ["x", "y", "x"]
    assert len(store) == 2
    assert store.get_by_ids(["x"]) == [Document(id="x", page_content="c", metadata={"n": 2})]


def test_same_id_replaces_the_document(angles: RagVectorStore) -> None:
    angles.add_texts(["178"], [{"new": True}], ids=["0"])
    assert len(angles) == 4
    (found, score), *rest = angles.similarity_search_with_score("178", k=4)
    assert found == Document(id="0", page_content="178", metadata={"new": True})
    assert score == pytest.approx(1.0, abs=1e-3)
    assert [document.id for document, _ in rest] == ["180", "90", "30"]


@pytest.mark.parametrize(
    ("metadatas", "ids", "message"),
    [
        ([{}], None, "1 metadatas for 2 texts"),
        ([], None, "0 metadatas for 2 texts"),
        (None, ["1", "2", "3"], "3 ids for 2 documents"),
        (None, [], "0 ids for 2 documents"),
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


# Filters


@pytest.fixture
def dated() -> Iterator[RagVectorStore]:
    """Documents at 0, 10, … 350 degrees with metadata: their ``angle``, and properties of fictional files."""
    with RagVectorStore(Angles()) as store:
        store.add_documents(
            [
                Document(
                    id=str(n),
                    page_content=str(10 * n),
                    metadata={"angle": 10 * n, "half": "upper" if n < 18 else "lower", "source": f"docs/{n % 4}.md"}
                    | ({"title": "Third", "page": n, "tags": ["a", n]} if n % 3 == 0 else {}),
                )
                for n in range(36)
            ]
        )
        yield store


FILTERS: list[tuple[Any, Any]] = [
    ({"half": "lower"}, lambda n: n >= 18),
    ("half = 'lower'", lambda n: n >= 18),
    ({"angle": {"$gte": 100, "$lt": 130}}, lambda n: 10 <= n < 13),
    ({"title": None}, lambda n: n % 3 != 0),
    ({"source": "docs/3.md"}, lambda n: n % 4 == 3),
    ({"angle": {"$lt": 0}}, lambda n: False),
    ({"no such": 1}, lambda n: False),
    ({}, lambda n: True),
    (None, lambda n: True),
]


@pytest.mark.parametrize(("condition", "holds"), FILTERS)
@pytest.mark.filterwarnings("ignore:no chunk has the field|the field .* is compared")
def test_every_search_applies_the_filter(dated: RagVectorStore, condition: Any, holds: Any) -> None:
    wanted = {str(n) for n in range(36) if holds(n)}
    vector = Angles().embed_query("95")
    for found in (
        dated.similarity_search("95", k=40, filter=condition),
        [document for document, _ in dated.similarity_search_with_score("95", k=40, filter=condition)],
        dated.similarity_search_by_vector(vector, k=40, filter=condition),
        [d for d, _ in dated.similarity_search_with_relevance_scores("95", k=40, filter=condition)],
        dated.max_marginal_relevance_search("95", k=40, fetch_k=40, filter=condition),
        dated.max_marginal_relevance_search_by_vector(vector, k=40, fetch_k=40, filter=condition),
    ):
        assert {document.id for document in found} == wanted
        assert len(found) == len(wanted)
    for k in (1, 3):
        found = dated.similarity_search("94", k=k, filter=condition)
        assert len(found) == min(k, len(wanted))
        if wanted:
            assert found[0].id == min(wanted, key=lambda name: (_apart(94, 10 * int(name)), int(name)))


def _apart(one: float, other: float) -> float:
    between = abs(one - other) % 360
    return min(between, 360 - between)


# Delete and inspect


# Search


def test_rounding_takes_no_score_above_1() -> None:
    with RagVectorStore(Angles()) as store:
        store.add_texts(map(str, range(40)))
        best = [store.similarity_search_with_score(str(angle), k=1)[0][1] for angle in range(40)]
    assert max(best) == 1.0  # FAISS gives 1.0000001 for some of these angles


# Maximal marginal relevance


def reference_mmr(query: float, angles: list[float], lambda_mult: float, k: int) -> list[float]:
    """Maximal marginal relevance of Carbonell and Goldstein 1998, for angles in degrees."""

    def cosine(a: float, b: float) -> float:
        return math.cos(math.radians(a - b))

    chosen: list[float] = []
    while len(chosen) < min(k, len(angles)):
        rest = [angle for angle in angles if angle not in chosen]
        chosen.append(
            max(
                rest,
                key=lambda angle: (
                    lambda_mult * cosine(angle, query)
                    - (1 - lambda_mult) * max((cosine(angle, other) for other in chosen), default=0.0)
                ),
            )
            if chosen
            else max(rest, key=lambda angle: cosine(angle, query))
        )
    return chosen


@pytest.mark.parametrize("lambda_mult", [0.0, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_mmr_equals_reference(lambda_mult: float, k: int) -> None:
    places = [0.0, 3.0, 11.0, 40.0, 95.0, 171.0, 228.0]
    with RagVectorStore(Angles()) as store:
        store.add_texts(map(str, places))
        found = texts(store.max_marginal_relevance_search("17", k=k, fetch_k=20, lambda_mult=lambda_mult))
    assert [float(text) for text in found] == reference_mmr(17.0, places, lambda_mult, k)


def test_mmr_of_zero_vectors_is_defined() -> None:
    with RagVectorStore(Given([[0.0, 0.0]])) as store:
        store.add_texts(["a"])
        assert texts(store.max_marginal_relevance_search("a")) == ["a"]


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


def test_embeddings_of_another_store_are_an_error(fitted: RagEmbeddings, tmp_path: Path) -> None:
    with RagVectorStore(fitted, tmp_path) as store:
        store.add_texts(["a"])
    other = RagEmbeddings(device="cpu").fit(["another corpus", "of two texts"])
    with pytest.raises(IncompatibleStoreError) as raised:
        RagVectorStore(other, tmp_path)
    assert fitted.fingerprint[:12] in str(raised.value)
    assert other.fingerprint[:12] in str(raised.value)
    with pytest.raises(IncompatibleStoreError, match=r"MiniLM.*fakes\.Angles"):
        RagVectorStore(Angles(), tmp_path)


def test_refit_does_not_mix_vectors(fitted: RagEmbeddings, tmp_path: Path) -> None:
    embeddings = RagEmbeddings.from_embedder(fitted.embedder)
    store = RagVectorStore(embeddings, tmp_path)
    store.add_texts(["a cat", "a bank"])
    before = fitted.fingerprint
    embeddings.fit(["another corpus", "of two texts"])
    assert fitted.fingerprint == before != embeddings.fingerprint
    for use in (store.similarity_search, lambda text: store.add_texts([text])):
        with pytest.raises(IncompatibleStoreError, match="fitted again"):
            use("a cat")
    assert texts(RagVectorStore(path=tmp_path).similarity_search("a cat", k=1)) == ["a cat"]
