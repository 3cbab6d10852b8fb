"""LangChain's ``index`` and ``aindex``: every run leaves the expected documents, and searches find them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.indexing import RecordManager, aindex, index

from ragembed.langchain import RagVectorStore

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
    """Run ``index`` with one record manager, and check the store after each run."""

    def __init__(self, store: RagVectorStore, records: RecordManager) -> None:
        self.store, self.records = store, records

    def __call__(self, documents: Sequence[Document], **options: Any) -> tuple[int, int, int, int]:
        """Return the numbers of added, updated, skipped and deleted documents."""
        settings = {"source_id_key": "source", "key_encoder": "sha256", **options}
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


@pytest.fixture
def run(store: RagVectorStore) -> Run:
    """A run with records in the store."""
    return Run(store, store.record_manager())


# Every mode

FIRST = pages(a=[1, 2], b=[50], c=[100])


@pytest.mark.parametrize(("cleanup", "batch_size"), [(None, 2), ("incremental", 100), ("full", 2), ("scoped_full", 2)])
def test_first_runs_and_reruns(run: Run, store: RagVectorStore, cleanup: Any, batch_size: int) -> None:
    settings = {"cleanup": cleanup, "batch_size": batch_size}
    assert run(FIRST, **settings) == (4, 0, 0, 0)
    assert held(store) == of(FIRST)
    assert run(FIRST, **settings) == (0, 0, 4, 0)
    assert held(store) == of(FIRST)
    before = list(store)
    assert run(FIRST, **settings, force_update=True) == (0, 4, 0, 0)
    assert sorted(map(repr, store)) == sorted(map(repr, before))
    assert run([*FIRST, *FIRST[:1]], **settings) == (0, 0, 5, 0)  # one document twice
    assert held(store) == of(FIRST)


async def test_asynchronous_runs_count_alike(store: RagVectorStore) -> None:
    settings: Any = {"source_id_key": "source", "key_encoder": "sha256", "cleanup": "full"}
    for documents, counts in ((FIRST, (4, 0, 0)), (FIRST[1:], (0, 3, 1))):
        done = await aindex(documents, store.record_manager(), store, **settings)
        assert (done["num_added"], done["num_skipped"], done["num_deleted"]) == counts
        assert held(store) == of(documents)


@pytest.mark.parametrize("cleanup", ["incremental", "scoped_full"])
def test_changed_contents_of_some_sources(run: Run, store: RagVectorStore, cleanup: Any) -> None:
    run(FIRST, cleanup=cleanup)
    assert run(pages(a=[2, 3]), cleanup=cleanup) == (1, 0, 1, 1)
    assert held(store) == of(pages(a=[2, 3], b=[50], c=[100]))
    assert run(pages(b=[51], c=[101, 102]), cleanup=cleanup) == (3, 0, 0, 2)
    assert held(store) == of(pages(a=[2, 3], b=[51], c=[101, 102]))
    assert run([], cleanup=cleanup) == (0, 0, 0, 0)
    assert len(store) == 5


def test_changed_contents_of_all_sources(run: Run, store: RagVectorStore) -> None:
    run(FIRST, cleanup="full")
    assert run(pages(a=[2, 3], b=[50]), cleanup="full") == (1, 0, 2, 2)
    assert held(store) == of(pages(a=[2, 3], b=[50]))
    assert run([], cleanup="full") == (0, 0, 0, 3)
    assert len(store) == 0
    assert run(FIRST, cleanup="full", batch_size=1) == (4, 0, 0, 0)
    assert held(store) == of(FIRST)


# Guarantees of records in the store


@pytest.mark.parametrize("cleanup", [None, "full"])
def test_deleted_document_is_added_again(run: Run, store: RagVectorStore, cleanup: Any) -> None:
    run(FIRST, cleanup=cleanup)
    for delete in (
        lambda: store.delete(store.ids()[:1]),
        lambda: store.delete(filter={"source": "b"}),
        store.clear,
    ):
        before = len(store)
        delete()
        gone = before - len(store)
        assert gone > 0
        assert run(FIRST, cleanup=cleanup) == (gone, 0, 4 - gone, 0)
        assert held(store) == of(FIRST)


def test_records_are_in_the_store(run: Run, store: RagVectorStore) -> None:
    run(FIRST, cleanup="full")
    with RagVectorStore(Angles(), store.path) as opened:
        again = Run(opened, opened.record_manager())
        assert again(FIRST[1:], cleanup="full") == (0, 0, 3, 1)
    assert run(FIRST[1:], cleanup="full") == (0, 0, 3, 0)


class CutOffError(Exception):
    """Simulates the end of a process."""


def break_off(run: Run, documents: Sequence[Document], batches: int = 0, **options: Any) -> None:
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
            run(documents, **options)
    run.look()
    run.records = run.store.record_manager(manager.namespace)  # the record manager of the next process


@pytest.mark.parametrize(
    ("after", "cleanup"),
    [
        (pages(a=[7, 8], b=[50], c=[101]), "incremental"),
        (pages(a=[1, 9], b=[60], c=[100]), "full"),
        (pages(a=[1, 2], b=[50], c=[100]), "scoped_full"),
    ],
    ids=["the same", "others", "as before"],
)
def test_interrupted_run_is_repaired_by_the_next(run: Run, store: RagVectorStore, cleanup: Any, after: Any) -> None:
    run(FIRST, cleanup=cleanup)
    break_off(run, pages(a=[7, 8], b=[50], c=[101]), cleanup=cleanup)
    assert ("a", 7) in held(store)
    assert ("a", 1) in held(store)
    run(after, cleanup=cleanup)
    assert held(store) == of(after)
    assert run(after, cleanup=cleanup) == (0, 0, 4, 0)


@pytest.mark.parametrize(("cleanup", "batches"), [("incremental", 0), ("full", 1), ("scoped_full", 2)])
def test_run_interrupted_in_any_batch(run: Run, store: RagVectorStore, cleanup: Any, batches: int) -> None:
    run(FIRST, cleanup=cleanup)
    break_off(run, pages(a=[7, 8], b=[51, 52], c=[101, 102]), batches, cleanup=cleanup, batch_size=2)
    after = pages(a=[7, 9], b=[52, 53], c=[103])
    run(after, cleanup=cleanup, batch_size=2)
    assert held(store) == of(after)


# Namespaces, and documents added without a run


@pytest.mark.parametrize("cleanup", ["incremental", "full"])
def test_namespaces_are_independent(run: Run, store: RagVectorStore, cleanup: Any) -> None:
    other = Run(store, store.record_manager("other"))
    mine, theirs = pages(a=[1, 2]), pages(a=[3], b=[4])
    run(mine, cleanup=cleanup)
    other(theirs, cleanup=cleanup)
    assert held(store) == of([*mine, *theirs])
    assert run(pages(a=[2]), cleanup=cleanup) == (0, 0, 1, 1)
    assert other(theirs, cleanup=cleanup) == (0, 0, 2, 0)
    assert held(store) == of([page("a", 2), *theirs])
    break_off(run, pages(a=[9]), cleanup=cleanup)
    assert other(theirs, cleanup=cleanup) == (0, 0, 2, 0)
    assert ("a", 9) in held(store)  # its own namespace has to repair it


@pytest.mark.parametrize("cleanup", ["incremental", "full"])
def test_documents_added_without_index_stay(run: Run, store: RagVectorStore, cleanup: Any) -> None:
    store.add_documents([Document("20", id="mine", metadata={"source": "a"})])
    run(pages(a=[1]), cleanup=cleanup)
    store.add_documents([Document("30", id="mine too", metadata={"source": "a"})])
    run(pages(a=[2]), cleanup=cleanup)
    assert held(store) == [("a", 2), ("a", 20), ("a", 30)]


# The clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The current time, which tests can set."""
    now = [1_800_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


@pytest.mark.parametrize(("cleanup", "step"), [("incremental", 0.0), ("full", -3600.0), ("scoped_full", -3600.0)])
def test_clock_stands_still_or_goes_back(
    run: Run, store: RagVectorStore, clock: list[float], cleanup: Any, step: float
) -> None:
    contents = [FIRST, pages(a=[2, 3], b=[50], c=[101]), pages(a=[3], b=[51], c=[101]), FIRST]
    for documents in contents:
        run(documents, cleanup=cleanup, batch_size=2)
        assert held(store) == of(documents)
        assert run(documents, cleanup=cleanup, batch_size=2) == (0, 0, len(documents), 0)
        clock[0] += step


@pytest.mark.parametrize("cleanup", CLEANUPS)
def test_clock_goes_back_within_a_run(
    run: Run, store: RagVectorStore, clock: list[float], cleanup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(FIRST, cleanup=cleanup)
    embed = Angles.embed_documents

    def later(self: Angles, texts: list[str]) -> list[list[float]]:
        clock[0] -= 500.0
        return embed(self, texts)

    monkeypatch.setattr(Angles, "embed_documents", later)
    for changed in (pages(a=[2, 3], b=[50], c=[101]), pages(a=[2, 3], b=[51], c=[101])):
        clock[0] += 1000.0
        run(changed, cleanup=cleanup)
        assert held(store) == of(changed)
    clock[0] += 1000.0
    all_new = pages(a=[4], b=[52], c=[102])
    with pytest.raises(ValueError, match="expected a time in the past"):  # otherwise new documents would count as old
        run(all_new, cleanup=cleanup)
    assert set(of(all_new)) < set(held(store))
    run(all_new, cleanup=cleanup)
    assert held(store) == of(all_new)


# The record manager itself


def test_records_before_the_store_exists(store: RagVectorStore) -> None:
    records = store.record_manager()
    records.create_schema()
    assert records.exists(["1"]) == [False]
    assert records.list_keys() == []
    records.update(["1"], group_ids=["a"])
    records.delete_keys(["1"])
    assert records.get_time() == pytest.approx(time.time(), abs=60)
    assert not store.path.exists()


def test_record_manager_errors(store: RagVectorStore) -> None:
    records = store.record_manager()
    store.add_texts(["1", "2"], ids=["1", "2"])
    with pytest.raises(ValueError, match="1 group_ids for 2 keys"):
        records.update(["1", "2"], group_ids=["a"])
    with pytest.raises(ValueError, match="expected a time in the past"):
        records.update(["1"], time_at_least=time.time() + 3600)
    assert records.list_keys() == []
