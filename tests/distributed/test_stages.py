"""The stages of a run with workers: tasks are repeated, continued and reported. test_members.py compares results."""

import sys
from collections import Counter

import pytest
from sabotage import DiesInBlock, DiesInFile, Sabotaged

from ragembed import Embedder, EmbedderConfig
from ragembed.distributed import tasks
from ragembed.distributed.members import create_members, stores_in, update_members
from ragembed.distributed.tasks import Worker
from ragembed.distributed.workers import MOST_LOSSES
from ragembed.errors import ConfigError, StoreLockedError
from ragembed.indexes import Store
from ragembed.indexes.storage.lock import writer_lock
from ragembed.progress import SilentProgress
from tests.distributed.documents import Here, config, contents, docs, request

__all__ = ["docs"]


def made(docs, name, pool=None, stores=3, **changes):
    return create_members(request(name, docs, **changes), stores, pool or Here())


class Phases(SilentProgress):
    """Counts what was done in each phase."""

    def __init__(self):
        self.done = Counter()

    def start(self, phase, unit, total):
        self._phase = phase

    def advance(self, count, detail=""):
        self.done[self._phase] += count


def test_stages_are_reported(docs):
    phases = Phases()
    report = create_members(request("c", docs), 3, Here(), phases)
    assert [(stage.stage, stage.tasks) for stage in report.stages] == [
        ("read", 3),
        ("write", 3),
        ("finish", 3),
    ]
    read, write, finish = report.stages
    assert (read.items, write.items, finish.items) == (27, *[report.chunks] * 2)
    counted = [phases.done[phase] for phase in ("reading", "embedding", "finishing")]
    assert counted == [27, report.chunks, report.chunks]


@pytest.mark.parametrize("extractor", ["re:dim=32", pytest.param("transformer", marks=pytest.mark.slow)])
def test_any_pool_makes_the_same_stores(docs, tiny_model, extractor):
    settings = EmbedderConfig(
        model=str(tiny_model),
        extractor=extractor,
        weighting="idf",
        dtype="float32",
        postprocess=("center", "normalize"),
    )
    for file in sorted(docs.iterdir())[:14]:
        file.unlink()
    made(docs, "here", embedder=settings)
    with Sabotaged(2, DiesInBlock, "write", 1, docs.parent / "died") as pool:
        made(docs, "processes", pool, embedder=settings)
    assert (docs.parent / "died").exists()
    assert contents(docs.parent / "here") == contents(docs.parent / "processes")


@pytest.mark.parametrize("stop_after", [5, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 3, 8))])
def test_an_interrupted_run_continues_from_finished_tasks(docs, stop_after):
    first, second = Here(stop_after), Here()
    with pytest.raises(KeyboardInterrupt):
        made(docs, "c", first)
    made(docs, "c", second)
    assert len(first.tasks) == stop_after
    assert sorted(first.tasks + second.tasks) == sorted(
        (stage, number) for stage in ("read", "write", "finish") for number in range(3)
    )
    made(docs, "other")
    assert contents(docs.parent / "c") == contents(docs.parent / "other")


def test_a_half_written_store_is_continued_without_encoding_again(docs, monkeypatch):
    from ragembed.indexes.storage.writer import StoreWriter

    encode = StoreWriter.encode_waiting

    def interrupted(self, *what):
        encode(self, *what)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(StoreWriter, "encode_waiting", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made(docs, "c", stores=1)
    assert made(docs, "c", stores=1).encoded == 0
    made(docs, "other", stores=1)
    assert contents(docs.parent / "c") == contents(docs.parent / "other")


def test_an_update_interrupted_before_the_last_store_gives_all_stores_one_fit(docs):
    """Otherwise the scores of the stores could not be compared."""
    made(docs, "c", embedder=config(postprocess=("center", "normalize")))
    for file in sorted(docs.glob("*.md")):
        for i in range(2):
            (docs / f"{i}-{file.name}").write_text(file.read_text().replace("word", f"v{i}word"))

    def update(pool):
        stores = list(stores_in(docs.parent / "c").values())
        return update_members(request("c", docs, embedder=None), stores, pool)

    full = Here()
    with pytest.raises(KeyboardInterrupt):
        update(Here(stop_after=3 + 3 + 1))  # one store has the new fit
    embedders = {Store.open(path).embedder.fingerprint for path in stores_in(docs.parent / "c").values()}
    assert len(embedders) == 2
    update(full)
    [embedder] = {Store.open(path).embedder.fingerprint for path in stores_in(docs.parent / "c").values()}
    assert embedder


def test_an_empty_folder_leaves_nothing(tmp_path):
    (tmp_path / "docs").mkdir()
    with pytest.raises(ConfigError, match="nothing to index"):
        made(tmp_path / "docs", "c")
    assert [path.name for path in tmp_path.iterdir()] == ["docs"]


def test_only_one_run_at_a_time(docs):
    work = docs.parent / ".c.unfinished" / "work"
    work.mkdir(parents=True)
    with (
        writer_lock(work),
        pytest.raises(StoreLockedError, match=r"another process is writing to the work folder .*work.*--wait"),
    ):
        made(docs, "c")


@pytest.mark.skipif(sys.platform == "win32", reason="the tests kill processes with POSIX signals")
def test_a_file_that_kills_its_readers_is_skipped(docs):
    assert MOST_LOSSES > tasks.MOST_DEATHS
    with Sabotaged(1, DiesInFile, "05.md") as pool:
        report = made(docs, "c", pool)
    [name] = [name for name in report.scan.skipped if "05.md" in name]
    assert report.scan.skipped[name] == "3 processes died while they read it"
    (docs / "05.md").unlink()
    made(docs, "other")
    one, other = (
        {record.id: record.chunk for store in contents(docs.parent / each).values() for record in store[0]}
        for each in ("c", "other")
    )
    assert one == other


def test_a_slower_reader_of_the_same_share_gives_way(docs, monkeypatch):
    """An unreachable worker may still perform a task that another worker has taken over."""
    with pytest.raises(KeyboardInterrupt):
        made(docs, "c", Here(stop_after=1))
    work = docs.parent / ".c.unfinished" / "work"
    publish = tasks.publish

    def late(temporary, final):
        monkeypatch.setattr(tasks, "publish", publish)
        Worker(work)("read", 0)
        publish(temporary, final)

    monkeypatch.setattr(tasks, "publish", late)
    assert Worker(work)("read", 0).items > 0
    assert len([path for path in (work / "read").iterdir() if path.is_dir()]) == 2


def test_partial_fits_add_up_to_the_fit(tiny_model, docs):
    settings = EmbedderConfig(model=str(tiny_model), extractor="avg", weighting="idf", dtype="float32")
    texts = [line for file in sorted(docs.glob("*.md")) for line in file.read_text().split("\n\n")]
    assert len(texts) > 120
    whole = Embedder(settings).fit_extractor(texts)
    parted = Embedder(settings)
    parts = [parted.part_of_fit(texts[:100]), parted.part_of_fit(texts[100:])]
    parted.fit_parts(parts, len(texts))
    assert parted.extractor.weights.require_fitted().texts == len(texts)
    one, other = (embedder.extractor.weights.require_fitted() for embedder in (whole, parted))
    assert (one.document_frequency == other.document_frequency).all()
    assert (one.occurrences == other.occurrences).all()
    assert abs(whole.extractor.state()["avg.vectors"] - parted.extractor.state()["avg.vectors"]).max() < 1e-5
