"""A collection's stores that are written in parallel give the results of one store, even after failures."""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed import Collection, Fusion
from ragembed.distributed import tasks
from ragembed.distributed.members import create_members, divide, stores_in, update_members
from ragembed.distributed.workers import WorkerPool
from ragembed.documents.discovery import FileCandidate
from ragembed.errors import ConfigError, StoreError
from ragembed.indexes import Store, refit_together
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from tests.distributed.documents import WORDS, config, docs, request, write_docs

__all__ = ["docs"]

# Stores keep the pseudo-queries that measure hubs when they are updated, and different ones have lost their chunk.
UPDATED = Fusion(hubness=0.0)


def collection(docs, count=3, pool=None, dry_run=False, **changes):
    """Create or update the collection."""
    asked, stores = request("together", docs, **changes), list(stores_in(docs.parent / "together").values())
    if stores:
        return update_members(asked, stores, pool or WorkerPool(), dry_run=dry_run)
    return create_members(asked, count, pool or WorkerPool(), dry_run=dry_run)


def one_store(docs, **changes):
    """Update one store with the same files, in a folder at the same depth as the stores of the collection."""
    made = index_files(request("alone/store", docs, **changes))
    return docs.parent / "alone" / "store", made


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder with documents, the collection of three stores that is made of them, and one store of the same files."""
    folder = tmp_path_factory.mktemp("members")
    write_docs(folder / "docs")
    collection(folder / "docs")
    one_store(folder / "docs")
    return folder


@pytest.fixture
def indexed(template, tmp_path):
    """The documents of a copy of ``template``."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return tmp_path / "docs"


def assert_same(docs, queries=2, fusion=None):
    """The collection has the chunks, the fit and the results of one store, and each of its stores is undamaged."""
    path, rng = docs.parent / "alone" / "store", random.Random(5)
    together = stores_in(docs.parent / "together")
    with Store.open(path) as store, Collection.open(together) as found:
        assert found.problems == {}
        assert len(found) == len(store)
        parts = [Store.open(each) for each in together.values()]
        assert sorted(chunk.id for part in parts for chunk in part.chunks()) == sorted(
            chunk.id for chunk in store.chunks()
        )
        assert {part.embedder.fingerprint for part in parts} == {store.embedder.fingerprint}
        assert [part.unfinished for part in parts] == [False] * len(parts)
        for mode in ("dense", "lexical", "hybrid"):
            for query in [" ".join(rng.choices(WORDS, k=4)) for _ in range(queries)]:
                for where in (None, "path like '%2%'"):
                    expected, hits = (
                        each.search(query, 10, mode, where=where, fusion=fusion) for each in (store, found)
                    )
                    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=2e-5)
                    assert {hit.id for hit in hits[:5]} <= {hit.id for hit in expected}
        for part in parts:
            assert part.verify().problems == []
            part.close()
    assert not (docs.parent / "together" / "work").exists()
    assert not list(docs.parent.glob(".*.unfinished"))


@pytest.mark.parametrize("count", [5, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 2, 17))])
def test_results_are_those_of_one_store(docs, count):
    report = collection(docs, count)
    _, alone = one_store(docs)
    assert (report.chunks, sorted(report.scan.added)) == (alone.chunks, sorted(alone.scan.added))
    assert report.scan.skipped == alone.scan.skipped
    assert len(stores_in(docs.parent / "together")) == count
    assert_same(docs)


def test_there_are_no_more_stores_than_files(docs):
    for file in sorted(docs.iterdir())[2:]:
        file.unlink()
    collection(docs, 5)
    assert [len(Store.open(path)) > 0 for path in stores_in(docs.parent / "together").values()] == [True, True]


def edit(docs):
    (docs / "03.md").write_text("word1 word2 and a new text")
    (docs / "04.md").unlink()
    for i in range(4):
        (docs / f"new{i}.md").write_text(f"word{i} came later\n\n" + " ".join(WORDS[i : i + 30]))
    for i in range(8, 16):
        (docs / f"{i:02}.md").write_text(f"word{i} only")


def test_an_update_changes_the_stores_that_have_the_files(indexed):
    docs = indexed
    before = {name: set(Store.open(path).sources()) for name, path in stores_in(docs.parent / "together").items()}
    edit(docs)
    report = collection(docs, paths=(), embedder=None)
    _, alone = one_store(docs, paths=(), embedder=None)
    assert (report.chunks, report.scan.removed) == (alone.chunks, alone.scan.removed)
    assert sorted(report.scan.changed) == sorted(alone.scan.changed)
    assert_same(docs, fusion=UPDATED)
    for name, path in stores_in(docs.parent / "together").items():
        kept = {source for source in Store.open(path).sources() if "new" not in source}
        assert kept <= before[name]
    again = collection(docs, paths=(), embedder=None)
    assert (again.encoded, again.scan.added, again.scan.changed, again.scan.removed) == (0, [], [], [])


def test_post_processors_are_fitted_again_when_the_collection_has_doubled(docs):
    postprocess = config(postprocess=("center", "normalize"))
    late = docs.parent / "late"
    late.mkdir()
    for file in sorted(docs.glob("1*.md")):
        shutil.move(file, late)
    collection(docs, embedder=postprocess)
    for file in late.iterdir():
        for i in range(4):
            (docs / f"{i}{file.name}").write_text(file.read_text().replace("word", f"v{i}word"))
    collection(docs, paths=(), embedder=None)
    with Store.open(stores_in(docs.parent / "together")["1"]) as store:
        fitted = store.embedder.describe()["fitted_on"]["documents"]
    texts = set()
    for path in stores_in(docs.parent / "together").values():
        with Store.open(path) as store:
            texts.update(store.embedded_texts())
    assert fitted == len(texts) > 150


class Stopped(BaseException):
    """Stands for the death of the process."""


def stopped(*_, **__):
    raise Stopped


def stops(function, call):
    """Return ``function`` that stops the process at its call number ``call``."""
    calls = []

    def counted(*args, **kwargs):
        calls.append(args)
        return stopped() if len(calls) == call + 1 else function(*args, **kwargs)

    return counted


@pytest.mark.parametrize(
    ("place", "call", "updates"),
    [
        pytest.param((Store, "create"), 1, False, id="create", marks=pytest.mark.slow),
        pytest.param((tasks, "write_share"), 0, True, id="first share, update", marks=pytest.mark.slow),
        pytest.param((fitting, "fit_if_needed"), 0, False, id="fit", marks=pytest.mark.slow),
        pytest.param((tasks, "finish_share"), 1, True, id="second member, update"),
        pytest.param((tasks, "finish_store"), 1, False, id="second store", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_is_continued(request, monkeypatch, place, call, updates):
    docs, changes = request.getfixturevalue("indexed" if updates else "docs"), {}
    if updates:
        edit(docs)
        changes = {"paths": (), "embedder": None}
    with monkeypatch.context() as patched:
        patched.setattr(*place, stops(getattr(*place), call))
        with pytest.raises(Stopped):
            collection(docs, **changes)
    assert updates == (docs.parent / "together").exists()
    collection(docs, **changes)
    one_store(docs, **changes)
    assert_same(docs, 1, UPDATED)


@pytest.mark.slow
def test_a_killed_run_is_continued(docs, monkeypatch):
    """The process is killed at several times; what it leaves is never visible and is used by the next run."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(docs.parent / "config"))
    command = [sys.executable, "-m", "ragembed", "index", str(docs), "--extractor", "re:dim=32", "--collection", "c"]
    folder = docs.parent / "together"
    for seconds in (0.8, 1.1, 1.4):
        running = subprocess.Popen([*command, "--store", str(folder), "--workers", "3", "-q"])
        time.sleep(seconds)
        running.kill()
        running.wait()
        assert not folder.exists() or len(stores_in(folder)) == 3
    collection(docs)
    one_store(docs)
    assert_same(docs, 1)


@pytest.mark.parametrize("changes", ["files", pytest.param("number of stores", marks=pytest.mark.slow)])
def test_another_request_replaces_an_interrupted_one(docs, monkeypatch, changes):
    with monkeypatch.context() as patched:
        patched.setattr(tasks, "finish_share", stopped)
        with pytest.raises(Stopped):
            collection(docs, 4)
    if changes == "files":
        (docs / "00.md").write_text("word9 is another text")
    collection(docs, 2)
    one_store(docs)
    assert_same(docs, 1)


def test_other_files_are_never_touched(docs):
    folder = docs.parent / "together"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"holds 'thesis.txt': expected a missing or empty folder"):
        collection(docs)
    (folder / "thesis.txt").unlink()
    unfinished = docs.parent / ".together.unfinished"
    (unfinished / "1").mkdir(parents=True)
    (unfinished / "1" / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"holds 'thesis.txt'"):
        collection(docs)
    assert (unfinished / "1" / "thesis.txt").read_text() == "mine"
    shutil.rmtree(unfinished)
    folder.rmdir()
    folder.symlink_to(docs)
    with pytest.raises(StoreError, match="is not a folder"):
        collection(docs)


def test_stores_that_were_indexed_alone_are_not_updated_together(indexed):
    together = indexed.parent / "together"
    shutil.rmtree(together / "2")
    with pytest.raises(ConfigError, match="are not in the collection: add them"):
        collection(indexed, paths=())
    shutil.rmtree(together)
    shutil.copytree(indexed.parent / "alone" / "store", together / "1")
    with pytest.raises(ConfigError, match="was not made together with other stores"):
        collection(indexed)


def test_a_store_of_a_collection_is_not_indexed_alone(indexed):
    for paths in ((), (indexed,)):
        with pytest.raises(ConfigError, match="update them together with 'ragembed index --collection NAME'"):
            index_files(IndexingRequest(indexed.parent / "together" / "1", paths))


def test_stores_that_differ_are_reported(indexed):
    first, second, _ = stores_in(indexed.parent / "together").values()
    with Store.open(first) as one, Store.open(second) as other:
        double = next(iter(one.sources()))
        chunks = [chunk for chunk in one.chunks() if chunk.source == double]
        with other.writer() as writer:
            writer.stage([each.chunk.embedded_text for each in chunks])
            writer.commit(chunks=chunks, sources=[one.sources()[double]])
    with pytest.raises(ConfigError, match=f"have the file {double}"):
        collection(indexed)


def test_a_dry_run_reports_the_changes(indexed):
    docs = indexed

    def chunks():
        return sum(len(Store.open(path)) for path in stores_in(docs.parent / "together").values())

    made = chunks()
    edit(docs)
    dry = collection(docs, dry_run=True, paths=(), embedder=None)
    assert (len(dry.scan.added), len(dry.scan.removed)) == (4, 1)
    assert chunks() == made
    shutil.rmtree(docs.parent / "together")
    dry = collection(docs, dry_run=True)
    assert not (docs.parent / "together").exists()
    assert len(dry.scan.added) == 29


def test_a_refit_of_the_collection_is_kept(indexed):
    refit_together(stores_in(indexed.parent / "together"), ["center", "normalize"], "shared")
    (indexed / "03.md").write_text("word1 word2 and a new text")
    collection(indexed, paths=(), embedder=None)
    for path in stores_in(indexed.parent / "together").values():
        with Store.open(path) as store:
            assert store.embedder.config.postprocess == ("center", "normalize")


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.lists(st.integers(0, 3000), min_size=1, max_size=5))
def test_new_files_are_divided_evenly(sizes, loads):
    files = [FileCandidate(Path(str(i)), Path(), size, 0) for i, size in enumerate(sizes)]
    owners = [0 if i % 5 == 4 else None for i in range(len(files))]
    shares = divide(files, owners, loads)
    assert sorted(file.path for share in shares for file in share) == sorted(file.path for file in files)
    assert all([file for file in files if file in share] == share for share in shares)  # in order
    assert {file.path for file, owner in zip(files, owners, strict=True) if owner == 0} <= {f.path for f in shares[0]}
    new = [[file.size + 1 for file in share if owners[int(str(file.path))] is None] for share in shares]
    heavy = [load + sum(added) for load, added in zip(loads, new, strict=True)]
    assert all(total - max(added) <= min(heavy) for total, added in zip(heavy, new, strict=True) if added)
    if not any(loads) and owners.count(None) >= len(loads):
        assert all(new)
