"""Saving, copying, reopening, rebuilding and merging stores, and hostile files."""

from __future__ import annotations

import ast
import json
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
from ragembed.errors import ConfigError, IncompatibleStoreError, StoreError, StoreNotFoundError
from ragembed.indexes import Budget, Fusion, IndexConfig, Store
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.verification import verify_store
from ragembed.langchain import RagEmbeddings, RagVectorStore
from ragembed.langchain.embeddings import ExternalEncoder

from .fakes import FAKE, Angles, Given, ids

TEXTS = ["the cat sleeps", "the writer holds the lock", "supersonic flow of air", "one two three four"]
DOCUMENTS = [Document(id=f"id{n}", page_content=text, metadata={"n": n}) for n, text in enumerate(TEXTS)]
PICKLE = b"cos\nmkdir\n(S'executed'\ntR."
"""A pickle of protocol 0 that creates a folder when it is loaded."""


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
    with RagVectorStore.load_local(str(tmp_path / "folder"), FAKE) as loaded:
        assert seen(loaded) == before
        assert loaded.path == tmp_path / "folder" / "index"


def test_copies_are_independent(store: RagVectorStore, tmp_path: Path) -> None:
    store.save_local(tmp_path)
    store.add_texts(["late"], ids=["late"])
    with RagVectorStore.load_local(tmp_path, FAKE) as loaded:
        assert "late" not in loaded
        loaded.add_texts(["later"], ids=["later"])
        loaded.delete(["id0"])
    with RagVectorStore.load_local(tmp_path, FAKE) as again:
        assert again.ids() == ["id1", "id2", "id3", "later"]
        assert again.similarity_search("later", k=1)[0].id == "later"
    assert store.ids() == ["id0", "id1", "id2", "id3", "late"]


def test_saving_again_replaces_the_copy(store: RagVectorStore, tmp_path: Path) -> None:
    store.save_local(tmp_path)
    store.delete(["id0", "id1"])
    store.add_texts(["late"], ids=["late"])
    store.save_local(tmp_path)
    with RagVectorStore.load_local(tmp_path, FAKE) as loaded:
        assert seen(loaded) == seen(store)
    assert [entry.name for entry in tmp_path.iterdir()] == ["index"]
    with RagVectorStore.from_texts(["90"], Angles(), ids=["x"]) as other:
        other.save_local(tmp_path)
    with RagVectorStore.load_local(tmp_path, Angles()) as loaded:  # made with other embeddings than before
        assert loaded.ids() == ["x"]


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


@pytest.mark.parametrize("allowed", [True, False])
def test_allow_dangerous_deserialization_is_ignored(store: RagVectorStore, tmp_path: Path, allowed: bool) -> None:
    store.save_local(tmp_path)
    with RagVectorStore.load_local(tmp_path, FAKE, allow_dangerous_deserialization=allowed) as loaded:
        assert seen(loaded) == seen(store)
    with pytest.raises(TypeError, match="unexpected keyword argument 'io_flags'"):
        RagVectorStore.load_local(tmp_path, FAKE, io_flags=2)


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


def test_saving_replaces_only_stores(store: RagVectorStore, tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="not part of a ragembed store"):
        store.save_local(tmp_path)
    assert (tmp_path / "index" / "thesis.txt").read_text() == "years of work"
    assert [entry.name for entry in tmp_path.iterdir()] == ["index"]


def test_saving_a_store_to_its_own_path_changes_nothing(tmp_path: Path) -> None:
    with RagVectorStore.from_documents(DOCUMENTS, FAKE, path=tmp_path / "index") as store:
        before = seen(store)
        store.save_local(tmp_path)
        assert seen(store) == before


# Reopen

METADATA = {
    "integer": 7,
    "large": 2**70,
    "negative": -(2**40),
    "float": 0.1,
    "whole": 2.0,
    "tiny": 5e-324,
    "true": True,
    "false": False,
    "none": None,
    "text": "ßẞ 日本語 🙂 \n\t\\ \" ' \u2028",
    "empty": "",
    "list": [1, 1.0, True, None, "x", [], {}],
    "nested": {"ключ": {"": [{"a": None}]}},
    "id": "not the id",
    "ключ": 1,
}


def types(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: types(inner) for key, inner in value.items()}
    return [types(inner) for inner in value] if isinstance(value, list) else type(value)


def test_reopening_restores_metadata_types(tmp_path: Path) -> None:
    with RagVectorStore.from_texts(["a"], FAKE, [METADATA], ids=["1"], path=tmp_path):
        pass
    with RagVectorStore(FAKE, tmp_path) as again:
        for found in (again.get_by_ids(["1"])[0], again.similarity_search("a")[0], next(iter(again))):
            assert found.metadata == METADATA
            assert types(found.metadata) == types(METADATA)


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


@pytest.mark.parametrize(
    ("index", "budget", "wanted"),
    [
        (None, None, IndexConfig()),
        ("auto", None, IndexConfig()),
        ("hnsw", None, IndexConfig("hnsw")),
        ("fp16", None, IndexConfig("fp16")),
        ("IVF64,SQ8", None, IndexConfig("IVF64,SQ8")),
        (None, BUDGET, IndexConfig(budget=BUDGET)),
        ("ivf", BUDGET, IndexConfig("ivf", BUDGET)),
    ],
)
def test_reopening_keeps_index_and_budget(
    tmp_path: Path, index: str | None, budget: Budget | None, wanted: IndexConfig
) -> None:
    with RagVectorStore.from_texts(TEXTS, FAKE, path=tmp_path / "index", index=index, budget=budget) as store:
        store.save_local(tmp_path, "copy")
    for name in ("index", "copy"):
        for given in ({}, {"index": index, "budget": budget}, {"index": wanted.kind, "budget": wanted.budget}):
            with RagVectorStore(FAKE, tmp_path / name, **given) as again:
                again.add_texts(["one more"], ids=["more"])
        with Store.open(tmp_path / name) as opened:
            assert opened.wanted_index == wanted
        for other in ({"index": "ivf-pq"}, {"budget": Budget(min_recall=0.99)}, {"index": "flat", "budget": budget}):
            with pytest.raises(ConfigError, match=rf"index '{wanted.kind}'.*leave out index and budget"):
                RagVectorStore(FAKE, tmp_path / name, **other)
        with Store.open(tmp_path / name) as opened:
            assert opened.wanted_index == wanted


def test_unknown_index_is_an_error_before_creation(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        RagVectorStore(FAKE, tmp_path / "store", index="nonsense")
    with pytest.raises(ConfigError, match="nonsense"):
        RagVectorStore.from_texts(TEXTS, FAKE, path=tmp_path / "store", index="nonsense")
    assert not (tmp_path / "store").exists()


def test_approximate_index_survives_copy_and_reopening(tmp_path: Path) -> None:
    angles = [str(n * 0.36) for n in range(1000)]
    with RagVectorStore.from_texts(angles, Angles(), ids=angles, path=tmp_path / "one", index="hnsw") as store:
        store.save_local(tmp_path, "two")
        before = store.similarity_search_with_score("90", k=9)
    for name in ("one", "two"):
        with Store.open(tmp_path / name) as opened:
            assert [segment["kind"] for segment in opened.status()["segments"]] == ["hnsw"]
            choice = opened.index_choice()
            assert choice is not None
            assert choice.kind == "hnsw"
        with RagVectorStore(Angles(), tmp_path / name) as again:
            assert again.similarity_search_with_score("90", k=9) == before


def test_vector_files_are_immutable(tmp_path: Path) -> None:
    """Memory-mapped files do not change; changes are written to new files."""

    def files() -> dict[str, tuple[int, bytes]]:
        found = (file for file in (tmp_path / "segments").rglob("*") if file.is_file())
        return {str(file): (file.stat().st_ino, file.read_bytes()) for file in found}

    with RagVectorStore.from_texts([f"text {n}" for n in range(300)], FAKE, path=tmp_path) as store:
        written = files()
        assert len(written) == 2
        for turn in range(20):
            assert store.similarity_search("text 7", k=1)
            store.add_texts([f"new {turn}", "text 7"], ids=[f"new {turn}", "same"])
            store.delete([store.ids()[0]])
            for name, content in files().items():
                assert written.setdefault(name, content) == content
        assert len(written) > 4


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


@pytest.mark.parametrize("weighting", ["idf", "uniform"])
def test_refitted_embeddings_need_a_rebuild(tiny_model: Path, tmp_path: Path, weighting: str) -> None:
    """With uniform weights only the post-processors differ, and raw vectors are the same."""
    config = EmbedderConfig(
        extractor="re:dim=16", model=str(tiny_model), weighting=weighting, postprocess=("center", "normalize")
    )
    first, second = (RagEmbeddings.from_embedder(Embedder(config)) for _ in range(2))
    with RagVectorStore.from_documents(DOCUMENTS, first, path=tmp_path / "s"):
        pass
    second.fit(["other words", "of another corpus", "zebra and wing"])
    assert (first.embedder.raw_fingerprint == second.embedder.raw_fingerprint) == (weighting == "uniform")
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
    with pytest.raises(ConfigError, match="unknown language 'klingon'"):
        RagVectorStore(FAKE, tmp_path / "t", language="klingon")
    with RagVectorStore(FAKE, tmp_path / "u", language="german") as late:
        Store.create(tmp_path / "u", ExternalEncoder(FAKE)).close()
        with pytest.raises(ConfigError, match="has the language 'english'"):
            late.add_texts(["die Häuser der Stadt"])


def test_rebuild_of_an_empty_store(tmp_path: Path) -> None:
    embeddings = RagEmbeddings()
    with RagVectorStore(FAKE, tmp_path / "s") as empty, empty.rebuild(embeddings, tmp_path / "t") as rebuilt:
        assert len(rebuilt) == 0
    assert not embeddings.is_fitted


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


def test_merge_with_empty_stores(store: RagVectorStore, tmp_path: Path) -> None:
    with RagVectorStore(FAKE, tmp_path / "s") as empty:
        assert store.merge_from(empty) == []
        assert not (tmp_path / "s").exists()
        assert empty.merge_from(store) == [f"id{n}" for n in range(4)]
        assert list(empty) == list(store) == DOCUMENTS
        assert store.merge_from(store) == [f"id{n}" for n in range(4)]
        assert list(store) == DOCUMENTS


def test_merge_keeps_places_of_chunks(in_folder: Path, tiny_model: Path) -> None:
    config = EmbedderConfig(extractor="re:dim=16", model=str(tiny_model), postprocess=())
    (in_folder / "a.md").write_text("# Locks\n\nthe writer holds the lock\n")
    index_files(IndexingRequest(in_folder / ".ragembed", (in_folder / "a.md",), embedder=config))
    with RagVectorStore(path=in_folder / ".ragembed") as files, RagVectorStore(FAKE) as store:
        store.merge_from(files)
        assert [found.metadata for found in store] == [found.metadata for found in files]
        assert next(iter(store)).metadata["source"] == "a.md"


def test_merge_keeps_different_vectors_of_a_text() -> None:
    with (
        RagVectorStore.from_texts(["same"], Given([[1.0, 0.0]], "m"), ids=["a"]) as store,
        RagVectorStore.from_texts(["same"], Given([[0.0, 1.0]], "m"), ids=["b"]) as theirs,
    ):
        store.merge_from(theirs)
        assert store.vectors(["a", "b"]).tolist() == [[1.0, 0.0], [0.0, 1.0]]


# Hostile files

LOADING = """
import sys, json
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
files = {name: module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "ragembed"}
print(json.dumps([events, files]))
"""
EXECUTING = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "runpy"}


def imported(file: Path) -> set[str]:
    """Return the top-level names of all imports of a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def called(file: Path) -> set[str]:
    """Return the functions that a module calls by their bare names."""
    calls = [node.func for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    return {call.id for call in calls if isinstance(call, ast.Name)}


def test_modules_used_by_load_do_not_unpickle(light: RagEmbeddings, tmp_path: Path) -> None:
    with RagVectorStore.from_documents(DOCUMENTS, light) as store:
        store.save_local(tmp_path)
    done = subprocess.run([sys.executable, "-c", LOADING, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    events, files = json.loads(done.stdout)
    assert events == []
    assert {"ragembed.langchain.vectorstore", "ragembed.indexes.store", "ragembed.embedder"} <= files.keys()
    for name, file in files.items():
        assert not imported(Path(file)) & EXECUTING, name
        assert not called(Path(file)) & {"exec", "eval", "compile", "__import__"}, name
        assert "allow_pickle=True" not in Path(file).read_text(encoding="utf-8"), name


def test_audit_hook_detects_unpickling(tmp_path: Path) -> None:
    """The test above can fail: it detects a pickle that names a function."""
    (tmp_path / "hostile").write_bytes(PICKLE)
    script = LOADING.partition("from ragembed")[0] + (
        "import pickle, os\nos.chdir(sys.argv[1])\npickle.load(open('hostile', 'rb'))\nprint(events)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "pickle.find_class" in done.stdout
    assert (tmp_path / "executed").is_dir()


@pytest.fixture
def saved(light: RagEmbeddings, tmp_path: Path) -> Path:
    """A folder with a saved store of post-processed vectors."""
    with RagVectorStore.from_documents(DOCUMENTS, light) as store:
        store.save_local(tmp_path)
    return tmp_path / "index"


def use(folder: Path) -> None:
    """Open a store, search it, and read its raw vectors."""
    with RagVectorStore.load_local(folder, allow_dangerous_deserialization=True) as store:
        assert len(store.similarity_search("the cat", k=2)) == 2
        assert len(store.get_by_ids(["id0"])) == 1
        with Store.open(store.path) as opened:
            assert opened.vectors(["id0"]).shape == (1, 16)


@pytest.mark.parametrize("data", [PICKLE, b"\x80\x04" + PICKLE], ids=["pickle", "4"])
@pytest.mark.parametrize(
    "pattern",
    [
        "store.db",
        "segments/*/index.faiss",
        "segments/*/raw.f16",
        "embedders/*/config.json",
        "embedders/*/state.safetensors",
    ],
)
def test_hostile_bytes_are_an_error_and_execute_nothing(
    saved: Path, in_folder: Path, pattern: str, data: bytes
) -> None:
    use(saved.parent)
    [file] = saved.glob(pattern)
    file.write_bytes(data)
    with pytest.raises(StoreError, match=r"store\.db|database|does not match its committed hash"):
        use(saved.parent)
    assert list(in_folder.iterdir()) == []


# Paths

PLACES = {
    "other scripts": ["Überzug", "журнал", "資料室", "🙂"],
    "what URIs and SQL have": ["a b%20c", "d?e#f&g=h", "i'j\"k;--", "~$HOME", "[x]*", "100%"],
    "windows": ["C:\\Users\\Иван\\My Documents", "D:store"],
    "decomposed letters": ["Cafe\u0301"],
    "long": ["deep" * 15] * 4,
    "a trailing dot and space": ["dot.", "space "],
}


@pytest.mark.parametrize("steps", PLACES.values(), ids=PLACES.keys())
def test_store_is_at_its_path(light: RagEmbeddings, tmp_path: Path, steps: list[str]) -> None:
    place = tmp_path.joinpath(*steps)
    with RagVectorStore.from_documents(DOCUMENTS, light, path=place) as store:
        store.add_texts(["one more"], ids=["more"])
        store.delete(["id0"])
        before = seen(store)
        store.save_local(tmp_path / "Kopie", steps[0])
    for again in (RagVectorStore(path=str(place)), RagVectorStore.load_local(tmp_path / "Kopie", index_name=steps[0])):
        with again:
            assert seen(again) == before
        assert verify_store(again.path).problems == []
    assert {entry.name for entry in place.iterdir()} >= {"store.db", "segments", "embedders"}


def test_too_long_path_is_an_error(tmp_path: Path) -> None:
    place = tmp_path.joinpath(*["longer" * 20] * 6)
    with pytest.raises(StoreError, match="cannot create a store at"):
        RagVectorStore.from_texts(["a"], FAKE, path=place)
    with RagVectorStore.from_texts(["a"], FAKE) as store, pytest.raises(StoreError, match="cannot copy the store"):
        store.save_local(place)


def test_store_opens_by_relative_path_and_after_move(light: RagEmbeddings, in_folder: Path) -> None:
    with RagVectorStore.from_documents(DOCUMENTS, light, path="here/store") as store:
        before = seen(store)
    (in_folder / "here").rename(in_folder / "dort")
    with RagVectorStore(path="dort/store") as again:
        assert seen(again) == before


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
