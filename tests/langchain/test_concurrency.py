"""Threads, processes and event loops that share a store."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from ragembed.errors import StoreLockedError
from ragembed.indexes.storage.lock import writer_lock
from ragembed.indexes.verification import verify_store
from ragembed.langchain import RagRecordManager, RagVectorStore, lazy_store
from ragembed.langchain.embeddings import ExternalEncoder

from .fakes import FAKE, Angles

PATIENCE = 300.0
"""Time limit, in seconds, for things that should happen immediately."""


def texts(documents: list[Document]) -> list[str]:
    return [document.page_content for document in documents]


def assert_sound(path: Path) -> None:
    assert verify_store(path, ExternalEncoder(FAKE)).problems == []


# Threads


def test_threads_add_search_and_delete(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def work(store: RagVectorStore, thread: int) -> set[str]:
        kept: set[str] = set()
        start.wait(PATIENCE)
        for turn in range(5):
            names = [f"{thread}/{turn}/{n}" for n in range(3)]
            assert store.add_texts(names, [{"name": name} for name in names], ids=names) == names
            kept |= set(names)
            assert store.similarity_search(names[1], k=1)[0].id == names[1]
            for found in store.similarity_search("anything", k=40):
                assert found.id == found.page_content == found.metadata["name"]
            if turn % 2:
                gone = f"{thread}/{turn - 1}/0"
                store.delete([gone])
                kept.remove(gone)
                assert store.get_by_ids([gone]) == []
        return kept

    with RagVectorStore(FAKE, tmp_path / "s") as store:
        with ThreadPoolExecutor(8) as pool:
            kept = set().union(*pool.map(lambda thread: work(store, thread), range(8)))
        assert set(store.ids()) == kept
        assert len(store) == len(kept) == 8 * (15 - 2)
        for name in kept:
            assert store.similarity_search(name, k=1)[0].id == name
    assert_sound(tmp_path / "s")


def test_threads_create_one_store(tmp_path: Path) -> None:
    start = threading.Barrier(6)

    def add(thread: int, store: RagVectorStore) -> None:
        start.wait(PATIENCE)
        store.add_texts([str(thread)], ids=[str(thread)])

    with RagVectorStore(FAKE, tmp_path / "s") as one, RagVectorStore(FAKE, tmp_path / "t") as other:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(add, range(6), [one, other] * 3))
        assert (set(one.ids()), set(other.ids())) == (set("024"), set("135"))


# Writers


def test_a_writer_waits_for_another(tmp_path: Path) -> None:
    with (
        RagVectorStore.from_texts(["a"], FAKE, ids=["a"], path=tmp_path) as store,
        RagVectorStore(FAKE, tmp_path) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        with writer_lock(tmp_path):
            late = pool.submit(other.add_texts, ["late"], ids=["late"])
            assert store.ids() == ["a"]
            assert not late.done()
        assert late.result(PATIENCE) == ["late"]
        assert store.ids() == ["a", "late"]


def test_stuck_writer_is_named_and_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_store, "WAIT_SECONDS", 0.05)
    with RagVectorStore.from_texts(["a"], FAKE, ids=["a"], path=tmp_path / "s") as store:
        manager = store.record_manager()
        writes: list[Callable[[], object]] = [
            lambda: store.add_texts(["b"]),
            lambda: store.add_embeddings([("b", [1.0] * 6)]),
            lambda: store.delete(["a"]),
            store.clear,
            lambda: store.save_local(tmp_path / "copy"),
            lambda: manager.update(["a"]),
            lambda: manager.delete_keys(["a"]),
        ]
        with writer_lock(tmp_path / "s"):
            for write in writes:
                with pytest.raises(
                    StoreLockedError, match=rf"another process is writing to the store .* \(PID {os.getpid()}\)"
                ):
                    write()
            assert texts(store.similarity_search("a")) == ["a"]
        assert store.ids() == ["a"]
        assert manager.list_keys() == []
        assert not (tmp_path / "copy" / "index").exists()


# Async

NEED_NO_TWIN = {
    RagVectorStore: {
        "as_retriever",
        "open_collection",
        "record_manager",
        "close",
    },  # they do not read or write documents
    RagRecordManager: {"expected"},
}
SYNCHRONOUS = [
    (kind, name)
    for kind in (RagVectorStore, RagRecordManager)
    for name, value in inspect.getmembers(kind, callable)
    if not name.startswith("_") and not inspect.iscoroutinefunction(value) and not inspect.isasyncgenfunction(value)
]


@pytest.mark.parametrize(("kind", "name"), SYNCHRONOUS, ids=lambda part: getattr(part, "__name__", part))
def test_every_method_has_an_asynchronous_version(kind: type, name: str) -> None:
    if name in NEED_NO_TWIN[kind]:
        return
    twin = getattr(kind, f"a{name}", None)
    assert inspect.iscoroutinefunction(twin) or inspect.isasyncgenfunction(twin), f"{kind.__name__}.a{name}"


@pytest.fixture
def angles() -> Iterator[RagVectorStore]:
    names = ["90", "0", "180", "30"]
    with RagVectorStore.from_texts(names, Angles(), [{"n": n} for n in range(4)], ids=names) as store:
        yield store


async def test_asynchronous_write_methods(angles: RagVectorStore, tmp_path: Path) -> None:
    assert await angles.aadd_texts(["60"], [{"n": 4}], ids=["60"], batch_size=1) == ["60"]
    assert await angles.aadd_documents([Document(id="70", page_content="70")]) == ["70"]
    assert await angles.aadd_embeddings([("80", [0.8, 0.6])], ids=["80"]) == ["80"]
    assert await angles.adelete(["0"], filter={"n": 2}) == 2
    assert angles.ids() == ["90", "30", "60", "70", "80"]
    await angles.asave_local(tmp_path)
    rebuilt = await angles.arebuild(FAKE, tmp_path / "rebuilt")
    made = await RagVectorStore.afrom_embeddings([("10", [0.8, 0.6])], Angles(), [{"n": 1}], ids=["10"])
    with rebuilt, made, await RagVectorStore.aload_local(tmp_path, Angles()) as loaded:
        assert list(rebuilt) == list(loaded) == list(angles)
        assert [document async for document in loaded.aiter_documents()] == list(angles)
        assert [document.id async for document in loaded.aiter_documents(filter="n > 3")] == ["60"]
        assert await loaded.aids() == angles.ids()
        assert await made.amerge_from(loaded) == angles.ids()
        assert len(made) == 6
    await angles.aclear()
    assert len(angles) == 0
    with pytest.raises(ValueError, match="2 ids for 1 documents"):
        await angles.aadd_texts(["1"], ids=["a", "b"])


class Held(Angles):
    """Embeddings that block while :attr:`hold` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.hold, self.begun, self.go_on = threading.Event(), threading.Event(), threading.Event()

    def embed_query(self, text: str) -> list[float]:
        if self.hold.is_set():
            self.begun.set()
            assert self.go_on.wait(PATIENCE), "the event loop stood still"
        return super().embed_query(text)


async def until(event: threading.Event) -> None:
    async def set_by_a_thread() -> None:
        while not event.is_set():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(set_by_a_thread(), PATIENCE)


@pytest.fixture
def held() -> Iterator[Held]:
    embedding = Held()
    yield embedding
    embedding.go_on.set()


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.aadd_texts(["20"]),
        lambda store: store.as_retriever(search_type="mmr").ainvoke("20"),
        lambda store: RagVectorStore.afrom_documents([Document(page_content="20")], store.embeddings),
    ],
)
async def test_event_loop_runs_during_embedding(held: Held, use: Any) -> None:
    with RagVectorStore.from_texts(["0", "90"], held) as store:
        held.hold.set()
        waiting = asyncio.create_task(use(store))
        await until(held.begun)
        assert not waiting.done()
        held.go_on.set()
        assert await asyncio.wait_for(waiting, PATIENCE)


async def test_searches_run_during_additions(held: Held) -> None:
    with RagVectorStore.from_texts(["0", "90"], held, ids=["0", "90"]) as store:
        held.hold.set()
        adding = asyncio.create_task(store.aadd_texts(["20", "30"], ids=["20", "30"]))
        await until(held.begun)
        found = await asyncio.wait_for(store.asimilarity_search_by_vector([1.0, 0.1]), PATIENCE)
        assert texts(found) == ["0", "90"]
        held.go_on.set()
        assert await adding == ["20", "30"]
        assert len(store) == 4


# Pickling and forking


FORKED = """
import os, sys, traceback
from langchain_core.embeddings import DeterministicFakeEmbedding
from ragembed.langchain import RagVectorStore
store = RagVectorStore(DeterministicFakeEmbedding(size=6), sys.argv[1])
store.add_texts([f"text {n}" for n in range(50)], ids=[f"text {n}" for n in range(50)])
assert store.similarity_search("text 7", k=1)[0].id == "text 7"
child = os.fork()
if child == 0:
    status = 1
    try:
        assert store.similarity_search("text 8", k=1)[0].id == "text 8"
        store.add_texts(["from the child"], ids=["child"])
        store.delete(["text 0"])
        assert store.similarity_search("from the child", k=1)[0].id == "child"
        assert "text 0" not in store and len(store.ids()) >= 50
        store.close()
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)
assert store.similarity_search("text 9", k=1)[0].id == "text 9"
store.add_texts(["from the parent"], ids=["parent"])
assert os.waitpid(child, 0)[1] == 0
assert len(store) == 51
assert store.similarity_search("from the child", k=1)[0].id == "child"
store.delete(["text 1"])
store.close()
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_store_works_in_parent_and_child_after_fork(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * PATIENCE)
    assert done.stdout == "done\n", done.stderr
    with RagVectorStore(FAKE, tmp_path / "s") as store:
        assert set(store.ids()) == {f"text {n}" for n in range(2, 50)} | {"child", "parent"}
    assert_sound(tmp_path / "s")


def test_closed_store_reopens_at_newest_state(tmp_path: Path) -> None:
    with RagVectorStore.from_texts(["a"], FAKE, ids=["a"], path=tmp_path) as store:
        assert store.similarity_search("a")[0].id == "a"
    with RagVectorStore(FAKE, tmp_path) as other:
        other.add_texts(["b"], ids=["b"])
    store.close()
    assert store.ids() == ["a", "b"]
    store.close()
    store.close()


def test_with_block_closes_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), RagVectorStore.from_texts(["a"], FAKE, path=tmp_path / "s") as store:
        _ = 1 / (len(store) - 1)
    assert not mapped_or_open(tmp_path / "s")
    shutil.move(tmp_path / "s", tmp_path / "t")
    assert texts(RagVectorStore(FAKE, tmp_path / "t").similarity_search("a")) == ["a"]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_closed_store_has_no_open_vector_files(tmp_path: Path) -> None:
    store = RagVectorStore.from_texts([str(n) for n in range(500)], Angles(), path=tmp_path / "s")
    assert store.similarity_search("7", k=1)
    assert mapped_or_open(tmp_path / "s")
    store.close()
    assert not mapped_or_open(tmp_path / "s")


def mapped_or_open(folder: Path) -> list[str]:
    """Return the files of vectors and indexes in ``folder`` that this process has open or mapped, if known."""
    gc.collect()
    if not Path("/proc/self/maps").exists():
        return []
    names = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    for descriptor in Path("/proc/self/fd").iterdir():
        if descriptor.exists():
            names.append(str(descriptor.readlink()))
    return [name for name in names if f"{folder}/segments" in name]


# Cancelled calls


class Paused(Angles):
    """Embeddings that wait in their second batch until they may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.may_go_on = threading.Event(), threading.Event()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.batches:
            self.waits.set()
            assert self.may_go_on.wait(PATIENCE)
        return super().embed_documents(texts)


NUMBERS = [str(number) for number in range(6)]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.aadd_texts(NUMBERS, batch_size=2),
        lambda store: type(store).afrom_texts(NUMBERS, store.embeddings, path=store._lazy.path, batch_size=3),
    ],
)
async def test_a_cancelled_call_stops_before_its_next_batch_or_commit(
    tmp_path: Path, call: Callable[[RagVectorStore], Any]
) -> None:
    embedding = Paused()
    with RagVectorStore(embedding, path=tmp_path / "store") as store:
        store.add_texts(["90"])
        task = asyncio.ensure_future(call(store))
        assert await asyncio.to_thread(embedding.waits.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        embedding.may_go_on.set()
        with writer_lock(tmp_path / "store", PATIENCE):  # the call ends and gives the lock back
            pass
        assert texts(list(store.iter_documents())) == ["90"]
        assert len(embedding.batches) == 2
        assert len(await store.aadd_texts(NUMBERS)) == len(NUMBERS)
        assert len(store) == 7
        assert verify_store(tmp_path / "store", ExternalEncoder(embedding)).problems == []
