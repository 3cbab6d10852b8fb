"""LangChain's ``index`` and ``aindex``: every run leaves the expected documents, and searches find them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, RecordManager, aindex, index

from ragembed.langchain import RagRecordManager, RagVectorStore

from .fakes import Angles

CLEANUPS = ("incremental", "full", "scoped_full")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RagVectorStore]:
    with RagVectorStore(Angles(), tmp_path / "store") as store:
        yield store


def page(source: str, text: int) -> Document:
    return Document(str(text), metadata={"source": source})


def pages(**texts: Sequence[int]) -> list[Document]:
    """Return documents whose texts are angles; the keywords are sources."""
    return [page(source, text) for source, its in texts.items() for text in its]


class Run:
    """Run ``index`` or ``aindex`` with one record manager, and check the store after each run."""

    def __init__(self, store: RagVectorStore, records: RecordManager, asynchronous: bool) -> None:
        self.store, self.records, self.asynchronous = store, records, asynchronous

    async def __call__(self, documents: Sequence[Document], **options: Any) -> tuple[int, int, int, int]:
        """Return the numbers of added, updated, skipped and deleted documents."""
        settings = {"source_id_key": "source", "key_encoder": "sha256", **options}
        if self.asynchronous:
            counts = await aindex(list(documents), self.records, self.store, **settings)
        else:
            counts = index(list(documents), self.records, self.store, **settings)
        self.look()
        return counts["num_added"], counts["num_updated"], counts["num_skipped"], counts["num_deleted"]

    def look(self) -> None:
        """Search for every document in the store by its text."""
        there = list(self.store)
        for document in there:
            found = self.store.similarity_search_with_score(document.page_content, k=len(there) + 1)
            assert sorted(str(one.id) for one, _ in found) == sorted(str(one.id) for one in there)
            assert found[0][0].page_content == document.page_content
            assert found[0][1] == pytest.approx(1.0, abs=1e-3)


def held(store: RagVectorStore) -> list[tuple[str, int]]:
    return sorted((document.metadata["source"], int(document.page_content)) for document in store)


def of(documents: Sequence[Document]) -> list[tuple[str, int]]:
    return sorted({(document.metadata["source"], int(document.page_content)) for document in documents})


@pytest.fixture(params=["in the store", "in memory"])
def records(request: pytest.FixtureRequest, store: RagVectorStore) -> Callable[[str], RecordManager]:
    def make(namespace: str = "test") -> RecordManager:
        return store.record_manager(namespace) if request.param == "in the store" else InMemoryRecordManager(namespace)

    return make


@pytest.fixture(params=["index", "aindex"])
def run(request: pytest.FixtureRequest, store: RagVectorStore, records: Callable[[str], RecordManager]) -> Run:
    manager = records("test")
    manager.create_schema()
    return Run(store, manager, request.param == "aindex")


@pytest.fixture(params=["index", "aindex"])
def own_run(request: pytest.FixtureRequest, store: RagVectorStore) -> Run:
    """A run with records in the store."""
    return Run(store, store.record_manager(), request.param == "aindex")


# Every mode, with records in the store and in memory

FIRST = pages(a=[1, 2], b=[50], c=[100])


@pytest.mark.parametrize("cleanup", [None, *CLEANUPS])
@pytest.mark.parametrize("batch_size", [100, 2])
async def test_first_runs_and_reruns(run: Run, store: RagVectorStore, cleanup: Any, batch_size: int) -> None:
    settings = {"cleanup": cleanup, "batch_size": batch_size}
    assert await run(FIRST, **settings) == (4, 0, 0, 0)
    assert held(store) == of(FIRST)
    assert await run(FIRST, **settings) == (0, 0, 4, 0)
    assert held(store) == of(FIRST)
    before = list(store)
    assert await run(FIRST, **settings, force_update=True) == (0, 4, 0, 0)
    assert sorted(map(repr, store)) == sorted(map(repr, before))
    assert await run([*FIRST, *FIRST[:1]], **settings) == (0, 0, 5, 0)  # one document twice
    assert held(store) == of(FIRST)


async def test_without_cleanup_nothing_is_deleted(run: Run, store: RagVectorStore) -> None:
    await run(FIRST, cleanup=None)
    assert await run(pages(a=[3]), cleanup=None) == (1, 0, 0, 0)
    assert held(store) == of([*FIRST, page("a", 3)])


@pytest.mark.parametrize("cleanup", ["incremental", "scoped_full"])
async def test_changed_contents_of_some_sources(run: Run, store: RagVectorStore, cleanup: Any) -> None:
    await run(FIRST, cleanup=cleanup)
    assert await run(pages(a=[2, 3]), cleanup=cleanup) == (1, 0, 1, 1)
    assert held(store) == of(pages(a=[2, 3], b=[50], c=[100]))
    assert await run(pages(b=[51], c=[101, 102]), cleanup=cleanup) == (3, 0, 0, 2)
    assert held(store) == of(pages(a=[2, 3], b=[51], c=[101, 102]))
    assert await run([], cleanup=cleanup) == (0, 0, 0, 0)
    assert len(store) == 5


async def test_changed_contents_of_all_sources(run: Run, store: RagVectorStore) -> None:
    await run(FIRST, cleanup="full")
    assert await run(pages(a=[2, 3], b=[50]), cleanup="full") == (1, 0, 2, 2)
    assert held(store) == of(pages(a=[2, 3], b=[50]))
    assert await run([], cleanup="full") == (0, 0, 0, 3)
    assert len(store) == 0
    assert await run(FIRST, cleanup="full", batch_size=1) == (4, 0, 0, 0)
    assert held(store) == of(FIRST)


@pytest.mark.parametrize("cleanup", CLEANUPS)
async def test_lost_records(
    run: Run, store: RagVectorStore, records: Callable[[str], RecordManager], cleanup: Any
) -> None:
    await run(FIRST, cleanup=cleanup)
    fresh = Run(store, records("another namespace"), run.asynchronous)
    assert await fresh(FIRST, cleanup=cleanup) == (4, 0, 0, 0)
    assert held(store) == of(FIRST)
    assert await fresh(FIRST, cleanup=cleanup) == (0, 0, 4, 0)
    changed = pages(a=[2, 3], b=[50], c=[100])
    assert await fresh(changed, cleanup=cleanup) == (1, 0, 3, 1)
    assert held(store) == of(changed)


@pytest.mark.parametrize("cleanup", CLEANUPS)
async def test_cleanup_of_already_deleted_documents(run: Run, store: RagVectorStore, cleanup: Any) -> None:
    await run(FIRST, cleanup=cleanup)
    store.delete(filter={"source": "a"})
    after = pages(a=[3], b=[50], c=[100])
    added, updated, skipped, deleted = await run(after, cleanup=cleanup)
    assert (added, updated, skipped) == (1, 0, 2)
    assert deleted == (
        0 if isinstance(run.records, RagRecordManager) else 2
    )  # records are deleted with their documents
    assert held(store) == of(after)


# Guarantees of records in the store


@pytest.mark.parametrize("cleanup", [None, *CLEANUPS])
async def test_deleted_document_is_added_again(own_run: Run, store: RagVectorStore, cleanup: Any) -> None:
    await own_run(FIRST, cleanup=cleanup)
    for delete in (
        lambda: store.delete(store.ids()[:1]),
        lambda: store.delete(filter={"source": "b"}),
        store.clear,
    ):
        before = len(store)
        delete()
        gone = before - len(store)
        assert gone > 0
        assert await own_run(FIRST, cleanup=cleanup) == (gone, 0, 4 - gone, 0)
        assert held(store) == of(FIRST)


async def test_records_are_in_the_store(own_run: Run, store: RagVectorStore) -> None:
    await own_run(FIRST, cleanup="full")
    with RagVectorStore(Angles(), store.path) as opened:
        again = Run(opened, opened.record_manager(), own_run.asynchronous)
        assert await again(FIRST[1:], cleanup="full") == (0, 0, 3, 1)
    assert await own_run(FIRST[1:], cleanup="full") == (0, 0, 3, 0)


async def test_copy_of_store_has_its_records(own_run: Run, store: RagVectorStore, tmp_path: Path) -> None:
    await own_run(FIRST, cleanup="full")
    store.save_local(tmp_path / "backup")
    await own_run([], cleanup="full")
    with RagVectorStore.load_local(tmp_path / "backup", Angles()) as copy:
        again = Run(copy, copy.record_manager(), own_run.asynchronous)
        assert await again(FIRST, cleanup="full") == (0, 0, 4, 0)
    assert await own_run(FIRST, cleanup="full") == (4, 0, 0, 0)


class CutOffError(Exception):
    """Simulates the end of a process."""


def cut_off(*_: Any, **__: Any) -> None:
    raise CutOffError


async def break_off(run: Run, documents: Sequence[Document], batches: int = 0, **options: Any) -> None:
    """Run until a batch is added but not recorded; ``batches`` earlier batches are recorded."""
    manager = run.records
    update, left = manager.update, [batches]

    def fail(keys: Sequence[str], *, group_ids: Any = None, time_at_least: float | None = None) -> None:
        if group_ids is not None:  # otherwise the update is for skipped documents
            left[0] -= 1
            if left[0] < 0:
                raise CutOffError
        update(keys, group_ids=group_ids, time_at_least=time_at_least)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager, "update", fail)
        with pytest.raises(CutOffError):
            await run(documents, **options)
    run.look()
    run.records = run.store.record_manager(manager.namespace)  # the record manager of the next process


@pytest.mark.parametrize("cleanup", CLEANUPS)
@pytest.mark.parametrize(
    "after",
    [
        pages(a=[7, 8], b=[50], c=[101]),
        pages(a=[1, 9], b=[60], c=[100]),
        pages(a=[1, 2], b=[50], c=[100]),
    ],
    ids=["the same", "others", "as before"],
)
async def test_interrupted_run_is_repaired_by_the_next(
    own_run: Run, store: RagVectorStore, cleanup: Any, after: Any
) -> None:
    await own_run(FIRST, cleanup=cleanup)
    await break_off(own_run, pages(a=[7, 8], b=[50], c=[101]), cleanup=cleanup)
    assert ("a", 7) in held(store)
    assert ("a", 1) in held(store)
    await own_run(after, cleanup=cleanup)
    assert held(store) == of(after)
    assert await own_run(after, cleanup=cleanup) == (0, 0, 4, 0)


@pytest.mark.parametrize("cleanup", CLEANUPS)
async def test_first_run_is_interrupted(own_run: Run, store: RagVectorStore, cleanup: Any) -> None:
    await break_off(own_run, pages(a=[7, 8], b=[50]), cleanup=cleanup)
    assert len(store) == 3
    await own_run(FIRST, cleanup=cleanup)
    assert held(store) == of(FIRST)


@pytest.mark.parametrize("cleanup", CLEANUPS)
@pytest.mark.parametrize("batches", [0, 1, 2])
async def test_run_interrupted_in_any_batch(own_run: Run, store: RagVectorStore, cleanup: Any, batches: int) -> None:
    await own_run(FIRST, cleanup=cleanup)
    await break_off(own_run, pages(a=[7, 8], b=[51, 52], c=[101, 102]), batches, cleanup=cleanup, batch_size=2)
    after = pages(a=[7, 9], b=[52, 53], c=[103])
    await own_run(after, cleanup=cleanup, batch_size=2)
    assert held(store) == of(after)


@pytest.mark.parametrize("cleanup", ["incremental", "scoped_full"])
async def test_next_run_removes_leftovers_of_an_interrupted_run(
    own_run: Run, store: RagVectorStore, cleanup: Any
) -> None:
    await own_run(FIRST, cleanup=cleanup)
    await break_off(own_run, pages(a=[7, 8]), cleanup=cleanup)
    await own_run(pages(b=[51]), cleanup=cleanup)
    assert held(store) == of(pages(a=[1, 2], b=[51], c=[100]))


@pytest.mark.parametrize("cleanup", [None, *CLEANUPS])
async def test_interrupted_forced_run_loses_nothing(own_run: Run, store: RagVectorStore, cleanup: Any) -> None:
    await own_run(FIRST, cleanup=cleanup)
    await break_off(own_run, FIRST, cleanup=cleanup, force_update=True)
    assert held(store) == of(FIRST)
    assert await own_run(FIRST, cleanup=cleanup) == (0, 0, 4, 0)
    assert held(store) == of(FIRST)


async def test_interrupted_run_without_cleanup_continues(own_run: Run, store: RagVectorStore) -> None:
    await break_off(own_run, FIRST, 1, cleanup=None, batch_size=2)
    assert await own_run(FIRST, cleanup=None) == (2, 0, 2, 0)
    assert held(store) == of(FIRST)


@pytest.mark.parametrize("cleanup", CLEANUPS)
async def test_failed_addition_is_repaired_by_the_next_run(
    own_run: Run, store: RagVectorStore, cleanup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_run(FIRST, cleanup=cleanup)
    with monkeypatch.context() as patch:
        patch.setattr(Angles, "embed_documents", cut_off)
        with pytest.raises(CutOffError):
            await own_run(pages(a=[1, 9], b=[60], c=[100]), cleanup=cleanup)
    assert held(store) == of(FIRST)
    after = pages(a=[2, 9], b=[50], c=[101])
    await own_run(after, cleanup=cleanup)
    assert held(store) == of(after)


@pytest.mark.parametrize("cleanup", CLEANUPS)
async def test_failed_cleanup_is_repeated_by_the_next_run(
    own_run: Run, store: RagVectorStore, cleanup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_run(FIRST, cleanup=cleanup)
    after = pages(a=[2, 9], b=[50], c=[101])
    with monkeypatch.context() as patch:
        patch.setattr(store, "delete", cut_off)
        with pytest.raises(CutOffError):
            await own_run(after, cleanup=cleanup)
    assert set(of(after)) < set(held(store))
    await own_run(after, cleanup=cleanup)
    assert held(store) == of(after)


# Namespaces, and documents added without a run


@pytest.mark.parametrize("cleanup", CLEANUPS)
async def test_namespaces_are_independent(own_run: Run, store: RagVectorStore, cleanup: Any) -> None:
    other = Run(store, store.record_manager("other"), own_run.asynchronous)
    mine, theirs = pages(a=[1, 2]), pages(a=[3], b=[4])
    await own_run(mine, cleanup=cleanup)
    await other(theirs, cleanup=cleanup)
    assert held(store) == of([*mine, *theirs])
    assert await own_run(pages(a=[2]), cleanup=cleanup) == (0, 0, 1, 1)
    assert await other(theirs, cleanup=cleanup) == (0, 0, 2, 0)
    assert held(store) == of([page("a", 2), *theirs])
    await break_off(own_run, pages(a=[9]), cleanup=cleanup)
    assert await other(theirs, cleanup=cleanup) == (0, 0, 2, 0)
    assert ("a", 9) in held(store)  # its own namespace has to repair it


async def test_document_deleted_by_one_namespace_is_added_again_by_another(own_run: Run, store: RagVectorStore) -> None:
    other = Run(store, store.record_manager("other"), own_run.asynchronous)
    await own_run(pages(a=[1], b=[2]), cleanup="full")
    await other(pages(b=[2], c=[3]), cleanup="full")
    assert await own_run(pages(a=[1]), cleanup="full") == (0, 0, 1, 1)
    assert held(store) == of(pages(a=[1], c=[3]))
    assert await other(pages(b=[2], c=[3]), cleanup="full") == (1, 0, 1, 0)
    assert held(store) == of(pages(a=[1], b=[2], c=[3]))


@pytest.mark.parametrize("cleanup", CLEANUPS)
async def test_documents_added_without_index_stay(own_run: Run, store: RagVectorStore, cleanup: Any) -> None:
    store.add_documents([Document("20", id="mine", metadata={"source": "a"})])
    await own_run(pages(a=[1]), cleanup=cleanup)
    store.add_documents([Document("30", id="mine too", metadata={"source": "a"})])
    await own_run(pages(a=[2]), cleanup=cleanup)
    assert held(store) == [("a", 2), ("a", 20), ("a", 30)]


async def test_document_added_again_without_a_run_is_kept(own_run: Run, store: RagVectorStore) -> None:
    await own_run(FIRST, cleanup="full")
    kept = store.get_by_ids(store.ids()[:1])
    store.delete([str(kept[0].id)])
    store.add_documents(kept)  # with its id, but without a run
    await own_run([], cleanup="full")
    assert list(store) == kept


# The clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The current time, which tests can set."""
    now = [1_800_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


@pytest.mark.parametrize("cleanup", CLEANUPS)
@pytest.mark.parametrize("step", [0.0, -3600.0, 3600.0])
async def test_clock_stands_still_or_goes_back(
    own_run: Run, store: RagVectorStore, clock: list[float], cleanup: Any, step: float
) -> None:
    contents = [FIRST, pages(a=[2, 3], b=[50], c=[101]), pages(a=[3], b=[51], c=[101]), FIRST]
    for documents in contents:
        await own_run(documents, cleanup=cleanup, batch_size=2)
        assert held(store) == of(documents)
        assert await own_run(documents, cleanup=cleanup, batch_size=2) == (0, 0, len(documents), 0)
        clock[0] += step


@pytest.mark.parametrize("cleanup", CLEANUPS)
async def test_clock_goes_back_within_a_run(
    own_run: Run, store: RagVectorStore, clock: list[float], cleanup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_run(FIRST, cleanup=cleanup)
    embed = Angles.embed_documents

    def later(self: Angles, texts: list[str]) -> list[list[float]]:
        clock[0] -= 500.0
        return embed(self, texts)

    monkeypatch.setattr(Angles, "embed_documents", later)
    for changed in (pages(a=[2, 3], b=[50], c=[101]), pages(a=[2, 3], b=[51], c=[101])):
        clock[0] += 1000.0
        await own_run(changed, cleanup=cleanup)
        assert held(store) == of(changed)
    clock[0] += 1000.0
    all_new = pages(a=[4], b=[52], c=[102])
    with pytest.raises(ValueError, match="expected a time in the past"):  # otherwise new documents would count as old
        await own_run(all_new, cleanup=cleanup)
    assert set(of(all_new)) < set(held(store))
    await own_run(all_new, cleanup=cleanup)
    assert held(store) == of(all_new)


async def test_times_increase_if_the_clock_does_not(store: RagVectorStore, clock: list[float]) -> None:
    records = store.record_manager()
    assert records.get_time() == clock[0]
    store.add_texts(["1", "2", "3"], ids=["1", "2", "3"])
    times = [records.get_time()]
    for key in ("3", "1", "2"):
        records.update([key])
        times.append(records.get_time())
        clock[0] -= 100.0
    assert times == sorted(set(times))
    assert records.list_keys() == ["3", "1", "2"]
    assert await records.aget_time() == times[-1]


# The record manager itself


@pytest.fixture(params=["called", "awaited"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Call a method of a record manager, or await its asynchronous version."""

    async def calls(records: RecordManager, name: str, *given: Any, **named: Any) -> Any:
        if request.param == "called":
            return getattr(records, name)(*given, **named)
        return await getattr(records, f"a{name}")(*given, **named)

    return calls


async def test_records_before_the_store_exists(call: Callable[..., Any], store: RagVectorStore) -> None:
    records = store.record_manager()
    await call(records, "create_schema")
    assert await call(records, "exists", ["1"]) == [False]
    assert await call(records, "list_keys") == []
    await call(records, "update", ["1"], group_ids=["a"])
    await call(records, "delete_keys", ["1"])
    assert await call(records, "get_time") == pytest.approx(time.time(), abs=60)
    assert not store.path.exists()


@pytest.mark.usefixtures("clock")
async def test_keys_are_listed_by_time_and_group(call: Callable[..., Any], store: RagVectorStore) -> None:
    records = store.record_manager()
    store.add_texts(["1", "2", "3", "4"], ids=["1", "2", "3", "4"])
    start = await call(records, "get_time")
    await call(records, "update", ["1", "2"], group_ids=["a", "b"], time_at_least=start)
    middle = await call(records, "get_time")
    await call(records, "update", ["3", "4"], group_ids=["a", None])
    assert await call(records, "exists", ["4", "5", "1"]) == [True, False, True]
    assert await call(records, "list_keys") == ["1", "2", "3", "4"]
    assert await call(records, "list_keys", before=middle) == ["1", "2"]
    assert await call(records, "list_keys", after=middle) == []  # they were updated at this time
    assert await call(records, "list_keys", group_ids=["a"]) == ["1", "3"]
    assert await call(records, "list_keys", group_ids=["a"], limit=1) == ["1"]
    assert await call(records, "list_keys", group_ids=[]) == []
    await call(records, "update", ["1"])  # the group does not change
    assert await call(records, "list_keys", group_ids=["a"]) == ["3", "1"]
    await call(records, "update", ["1"], group_ids=["b"])
    assert await call(records, "list_keys", group_ids=["b"]) == ["2", "1"]
    await call(records, "delete_keys", ["1", "unknown"])
    assert await call(records, "list_keys") == ["2", "3", "4"]
    assert "1" in store  # deleting a record keeps the document


async def test_only_documents_in_the_store_have_records(call: Callable[..., Any], store: RagVectorStore) -> None:
    records = store.record_manager()
    store.add_texts(["1"], ids=["1"])
    await call(records, "update", ["1", "2"], group_ids=["a", "a"])
    assert await call(records, "list_keys") == ["1"]
    store.delete(["1"])
    assert await call(records, "list_keys") == []
    assert await call(records, "exists", ["1"]) == [False]
    store.add_texts(["1"], ids=["1"])
    assert await call(records, "exists", ["1"]) == [False]


async def test_replaced_document_keeps_its_record(call: Callable[..., Any], store: RagVectorStore) -> None:
    records = store.record_manager()
    store.add_texts(["1"], ids=["1"])
    await call(records, "update", ["1"], group_ids=["a"])
    store.add_texts(["2"], ids=["1"])
    assert await call(records, "exists", ["1"]) == [True]
    assert await call(records, "list_keys", group_ids=["a"]) == ["1"]


async def test_record_manager_errors(call: Callable[..., Any], store: RagVectorStore) -> None:
    records = store.record_manager()
    store.add_texts(["1", "2"], ids=["1", "2"])
    with pytest.raises(ValueError, match="1 group_ids for 2 keys"):
        await call(records, "update", ["1", "2"], group_ids=["a"])
    with pytest.raises(ValueError, match="expected a time in the past"):
        await call(records, "update", ["1"], time_at_least=time.time() + 3600)
    assert await call(records, "list_keys") == []
