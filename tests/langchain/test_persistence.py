"""Saving, copying, reopening, rebuilding and merging stores, and hostile files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import ConfigError, IncompatibleStoreError, StoreNotFoundError
from ragembed.indexes import Budget, Fusion, IndexConfig, Store
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.verification import verify_store
from ragembed.langchain import RagEmbeddings, RagVectorStore
from ragembed.langchain.embeddings import ExternalEncoder

from .fakes import FAKE, Angles, ids

TEXTS = ["the cat sleeps", "the writer holds the lock", "supersonic flow of air", "one two three four"]
DOCUMENTS = [Document(id=f"id{n}", page_content=text, metadata={"n": n}) for n, text in enumerate(TEXTS)]


@pytest.fixture
def store() -> Iterator[RagVectorStore]:
    """A temporary store of four documents."""
    with RagVectorStore.from_documents(DOCUMENTS, FAKE) as store:
        yield store


@pytest.fixture
def light(unfitted: RagEmbeddings) -> RagEmbeddings:
    """Fitted embeddings that need no model."""
    return unfitted.fit(TEXTS)


def seen(store: RagVectorStore) -> Any:
    """Return everything that is visible of a store."""
    answers = [store.similarity_search_with_score(text, k=9) for text in (*TEXTS, "something else")]
    words = store.lexical_search_with_score("the lock", k=9)
    return store.ids(), list(store), answers, words


# Save and load


def test_saved_store_is_loaded_unchanged(store: RagVectorStore, tmp_path: Path) -> None:
    before = seen(store)
    assert before[1] == DOCUMENTS
    store.save_local(str(tmp_path / "folder"))
    assert seen(store) == before
    store.close()
    with RagVectorStore.load_local(str(tmp_path / "folder"), FAKE, allow_dangerous_deserialization=True) as loaded:
        assert seen(loaded) == before
        assert loaded.path == tmp_path / "folder" / "index"


def test_several_saved_stores_in_one_folder(store: RagVectorStore, tmp_path: Path) -> None:
    store.save_local(tmp_path)
    store.save_local(tmp_path, "größere Ablage")
    store.delete(["id0"])
    store.save_local(tmp_path, index_name="later")
    names = {"index": 4, "größere Ablage": 4, "later": 3}
    for name, count in names.items():
        with RagVectorStore.load_local(tmp_path, FAKE, name) as loaded:
            assert len(loaded) == count
    assert {entry.name for entry in tmp_path.iterdir()} == set(names)


def test_store_with_rag_embeddings_loads_without_them(light: RagEmbeddings, tmp_path: Path) -> None:
    with RagVectorStore.from_documents(DOCUMENTS, light) as store:
        store.save_local(tmp_path)
        before = seen(store)
    with RagVectorStore.load_local(tmp_path) as loaded:
        assert seen(loaded) == before
        assert isinstance(loaded.embeddings, RagEmbeddings)
        assert loaded.embeddings.fingerprint == light.fingerprint
    with RagVectorStore.from_texts(["a"], FAKE) as fake:
        fake.save_local(tmp_path, "fake")
    with pytest.raises(IncompatibleStoreError, match="no embedder was given"):
        RagVectorStore.load_local(tmp_path, index_name="fake")


def test_load_of_missing_store_is_an_error(store: RagVectorStore, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StoreNotFoundError, match=r"no store 'index' in .* written with save_local"):
            RagVectorStore.load_local(folder, FAKE)
    store.save_local(tmp_path, "here")
    with pytest.raises(StoreNotFoundError, match="no store 'index'"):
        RagVectorStore.load_local(tmp_path, FAKE)
    assert [entry.name for entry in tmp_path.iterdir()] == ["here"]


# Reopen


def test_reopening_restores_ids_order_scores_and_embeddings(light: RagEmbeddings, tmp_path: Path) -> None:
    names = ["z", "", " ", "ключ/✓", "a" * 3000, "7"]
    with RagVectorStore.from_texts([*TEXTS, "same", "same"], light, ids=names, path=tmp_path) as first:
        before = seen(first)
        assert first.ids() == names
    with RagVectorStore(path=tmp_path) as again:
        assert seen(again) == before
        assert isinstance(again.embeddings, RagEmbeddings)
        assert again.embeddings.fingerprint == light.fingerprint
        assert again.embeddings.embed_documents(TEXTS) == light.embed_documents(TEXTS)
    with RagVectorStore(light, tmp_path) as again:
        assert seen(again) == before


BUDGET = Budget(max_memory=10**9, min_recall=0.9)


def test_reopening_keeps_index_and_budget(tmp_path: Path) -> None:
    with RagVectorStore.from_texts(TEXTS, FAKE, path=tmp_path / "index", index="ivf", budget=BUDGET) as store:
        store.save_local(tmp_path, "copy")
    for name in ("index", "copy"):
        for given in ({}, {"index": "ivf", "budget": BUDGET}):
            with RagVectorStore(FAKE, tmp_path / name, **given) as again:
                again.add_texts(["one more"], ids=["more"])
        for other in ({"index": "ivf-pq"}, {"budget": Budget(min_recall=0.99)}, {"index": "flat", "budget": BUDGET}):
            with pytest.raises(ConfigError, match=r"index 'ivf'.*leave out index and budget"):
                RagVectorStore(FAKE, tmp_path / name, **other)
        with Store.open(tmp_path / name) as opened:
            assert opened.wanted_index == IndexConfig("ivf", BUDGET)


# Other embeddings


def test_rebuild_with_other_embeddings(tmp_path: Path) -> None:
    metadatas = [{"n": n} for n in range(3)]
    with RagVectorStore.from_texts(["0", "90", "180"], Angles(), metadatas, ids=["a", "b", "c"]) as store:
        store.delete(["b"])
        store.add_texts(["45"], ids=["d"])
        before = list(store)
        with store.rebuild(FAKE, tmp_path / "rebuilt") as rebuilt:
            assert list(rebuilt) == list(store) == before
            assert rebuilt.path == tmp_path / "rebuilt"
            assert ids(rebuilt.similarity_search("45", k=1)) == ["d"]
            assert len(rebuilt.similarity_search_by_vector([1.0] * 6)) == 3
        assert ids(store.similarity_search("0", k=3)) == ["a", "d", "c"]
    with RagVectorStore(FAKE, tmp_path / "rebuilt") as again:
        assert list(again) == before
    assert verify_store(tmp_path / "rebuilt", ExternalEncoder(FAKE)).problems == []


def test_rebuild_into_temporary_folder_but_not_over_a_store(store: RagVectorStore, tmp_path: Path) -> None:
    with store.rebuild(DeterministicFakeEmbedding(size=9)) as rebuilt:
        assert rebuilt.path.name.startswith("ragembed-")
        assert list(rebuilt) == DOCUMENTS
    store.save_local(tmp_path)
    for place in (tmp_path / "index", store.path):
        with pytest.raises(ConfigError, match=r"already contains a store with documents"):
            store.rebuild(FAKE, place)
    assert list(store) == DOCUMENTS


def test_rebuild_fits_embeddings(store: RagVectorStore, unfitted: RagEmbeddings, tmp_path: Path) -> None:
    embeddings, other = unfitted, deepcopy(unfitted)
    with store.rebuild(embeddings, tmp_path / "s") as rebuilt:
        assert embeddings.is_fitted
        assert rebuilt.embeddings is embeddings
        assert ids(rebuilt.similarity_search(TEXTS[2], k=1)) == ["id2"]
    with RagVectorStore(path=tmp_path / "s") as again:
        assert list(again) == DOCUMENTS
        assert embeddings.embedder.raw_fingerprint == other.fit(TEXTS).embedder.raw_fingerprint


def test_refitted_embeddings_need_a_rebuild(tiny_model: Path, tmp_path: Path) -> None:
    """Only the post-processors differ: with uniform weights, raw vectors are the same."""
    config = EmbedderConfig(
        extractor="re:dim=16", model=str(tiny_model), weighting="uniform", postprocess=("center", "normalize")
    )
    first, second = (RagEmbeddings.from_embedder(Embedder(config)) for _ in range(2))
    with RagVectorStore.from_documents(DOCUMENTS, first, path=tmp_path / "s"):
        pass
    second.fit(["other words", "of another corpus", "zebra and wing"])
    assert first.embedder.raw_fingerprint == second.embedder.raw_fingerprint
    for use in (
        lambda: RagVectorStore(second, tmp_path / "s"),
        lambda: RagVectorStore.load_local(tmp_path, second, "s"),
    ):
        with pytest.raises(IncompatibleStoreError) as raised:
            use()
        assert first.fingerprint[:12] in str(raised.value)
        assert second.fingerprint[:12] in str(raised.value)
    with RagVectorStore(path=tmp_path / "s") as store, store.rebuild(second, tmp_path / "t") as rebuilt:
        assert list(rebuilt) == DOCUMENTS
    with RagVectorStore(second, tmp_path / "t") as again:
        assert ids(again.similarity_search(TEXTS[1], k=1)) == ["id1"]


def test_rebuilt_store_keeps_files(in_folder: Path, tiny_model: Path, light: RagEmbeddings) -> None:
    config = EmbedderConfig(extractor="re:dim=16", model=str(tiny_model), postprocess=())
    (in_folder / "a.md").write_text("# Locks\n\nthe writer holds the lock\n")
    (in_folder / "b.txt").write_text("the cat sleeps\n")
    index_files(IndexingRequest(in_folder / ".ragembed", (in_folder,), embedder=config))
    with RagVectorStore(path=in_folder / ".ragembed") as store, store.rebuild(light, in_folder / "new") as rebuilt:
        assert list(rebuilt) == list(store)
        assert {document.metadata["source"] for document in rebuilt} == {"a.md", "b.txt"}
        assert [document.metadata["source"] for document in rebuilt.iter_documents(filter="ext = 'md'")] == ["a.md"]


def test_rebuilt_store_keeps_index_budget_and_records(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    with RagVectorStore.from_documents(DOCUMENTS, FAKE, index="hnsw", budget=BUDGET) as store:
        store.record_manager("pages").update(["id0", "id2"], group_ids=["x", "y"])
        with store.rebuild(
            DeterministicFakeEmbedding(size=9),
            tmp_path / "t",
            batch_size=3,
            progress=lambda done, total: calls.append((done, total)),
        ) as rebuilt:
            assert calls == [(3, 4), (4, 4)]
            assert rebuilt.record_manager("pages").list_keys(group_ids=["y"]) == ["id2"]
            assert rebuilt.record_manager("pages").exists(["id0", "id1"]) == [True, False]
        with pytest.raises(ConfigError, match="batch_size is 0"):
            store.rebuild(FAKE, tmp_path / "u", batch_size=0)
    with Store.open(tmp_path / "t") as opened:
        assert opened.wanted_index == IndexConfig("hnsw", BUDGET)
    assert not (tmp_path / "u").exists()


def test_rebuilt_store_keeps_language_and_fusion(tmp_path: Path) -> None:
    fusion = Fusion("rrf", alpha=0.3)
    with RagVectorStore(FAKE, tmp_path / "s", language="german") as store:
        store.add_texts(["die Häuser der Stadt", "der Hund schläft"], ids=["a", "b"])
        with Store.open(tmp_path / "s", ExternalEncoder(FAKE)) as opened, opened.writer() as writer:
            writer.set_meta({"fusion": fusion.to_dict()})
        with store.rebuild(DeterministicFakeEmbedding(size=9), tmp_path / "t") as rebuilt:
            assert ids(rebuilt.lexical_search("Haus", k=2)) == ids(store.lexical_search("Haus", k=2)) == ["a"]
    with Store.open(tmp_path / "t") as opened:
        assert (opened.language, opened.fusion) == ("german", fusion)


def test_language_of_existing_store(tmp_path: Path) -> None:
    with RagVectorStore(FAKE, tmp_path / "s", language="german") as store:
        store.add_texts(["die Häuser der Stadt"])
    with RagVectorStore(FAKE, tmp_path / "s", language="german") as again:
        assert len(again.lexical_search("Haus")) == 1
    with pytest.raises(ConfigError, match=r"has the language 'german', but 'english' was given"):
        RagVectorStore(FAKE, tmp_path / "s", language="english")


# Merge


def test_merge_does_not_change_the_other_store() -> None:
    one, other = Angles(), Angles()
    with (
        RagVectorStore.from_texts(["0", "90"], one, [{"of": "one"}] * 2, ids=["a", "b"]) as store,
        RagVectorStore.from_texts(["45", "180"], other, [{"of": "other"}] * 2, ids=["b", "c"]) as theirs,
    ):
        one.batches.clear()
        before = list(theirs)
        assert store.merge_from(theirs) == ["b", "c"]
        assert list(theirs) == before
        assert one.batches == []  # the vectors are copied
        assert [(found.id, found.page_content, found.metadata["of"]) for found in store] == [
            ("a", "0", "one"),
            ("b", "45", "other"),
            ("c", "180", "other"),
        ]
        assert ids(store.similarity_search("170", k=3)) == ["c", "b", "a"]
        assert store.merge_from(theirs) == ["b", "c"]
        assert len(store) == 3


def test_merge_with_other_embeddings_embeds_texts(light: RagEmbeddings, store: RagVectorStore) -> None:
    with RagVectorStore.from_texts(["zebra wing"], light, ids=["z"]) as theirs:
        assert store.merge_from(theirs) == ["z"]
        assert ids(store.similarity_search("zebra wing", k=1)) == ["z"]
        assert theirs.merge_from(store) == ["id0", "id1", "id2", "id3", "z"]
        assert ids(theirs.similarity_search(TEXTS[3], k=1)) == ["id3"]
        assert len(store) == len(theirs) == 5


# Hostile files

LOADING = """
import sys
events = []
def hook(event, args):
    if event.startswith(("pickle.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "shutil.unpack")):
        events.append(event)
sys.addaudithook(hook)
from ragembed.langchain import RagVectorStore
with RagVectorStore.load_local(sys.argv[1]) as store:
    assert store.similarity_search("the cat", k=1)[0].id == "id0"
    assert store.hybrid_search("the lock", k=1, filter={"n": {"$gte": 1}})[0].id == "id1"
    store.add_texts(["one more"])
    store.save_local(sys.argv[1], "copy")
print(events)
"""


def test_loading_unpickles_and_runs_nothing(light: RagEmbeddings, tmp_path: Path) -> None:
    with RagVectorStore.from_documents(DOCUMENTS, light) as store:
        store.save_local(tmp_path)
    done = subprocess.run([sys.executable, "-c", LOADING, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


# Paths


def test_failed_rebuild_can_be_repeated(tmp_path: Path) -> None:
    class Stumbling(Angles):
        fails = True

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            if self.fails:
                raise RuntimeError("no answer")
            return super().embed_documents(texts)

    with RagVectorStore(Angles()) as store:
        store.add_texts(["0", "90"], ids=["0", "90"])
        stumbling = Stumbling()
        with pytest.raises(RuntimeError, match="no answer"):
            store.rebuild(stumbling, tmp_path / "again")
        stumbling.fails = False
        with store.rebuild(stumbling, tmp_path / "again") as rebuilt:
            assert rebuilt.ids() == ["0", "90"]
        with pytest.raises(ConfigError, match="choose another folder"):
            store.rebuild(stumbling, tmp_path / "again")


def test_open_store_continues_with_replaced_store(tmp_path: Path) -> None:
    with RagVectorStore(Angles()) as store:
        store.add_texts(["0"], ids=["0"])
        store.save_local(tmp_path)
        with RagVectorStore.load_local(tmp_path, Angles()) as loaded:
            assert loaded.ids() == ["0"]
            store.add_texts(["90"], ids=["90"])
            store.save_local(tmp_path)
            assert [document.id for document in loaded.similarity_search("80", k=2)] == ["90", "0"]
            loaded.add_texts(["180"], ids=["180"])
            assert loaded.ids() == ["0", "90", "180"]
