"""Many processes make the same store as one process (same chunks, fit and search results), even after failures."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sabotage import DiesInBlock, DiesInFile, Sabotaged

from ragembed import Embedder, EmbedderConfig
from ragembed.distributed import stages
from ragembed.distributed.backend import index_with_workers
from ragembed.distributed.stages import Worker
from ragembed.documents.places import place_of
from ragembed.errors import ConfigError, StoreLockedError
from ragembed.indexes import Store
from ragembed.indexes.indexing import backend
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import index_files
from ragembed.indexes.storage.lock import writer_lock

WORDS = [f"word{i}" for i in range(400)]
LICENCE = "this text is distributed under the terms of a licence that all files repeat"


class Here:
    """Runs tasks in this process, which is faster. ``tasks`` are the finished tasks."""

    def __init__(self, stop_after=None):
        self.tasks = []
        self._stop_after = stop_after

    def run(self, worker, stage, numbers):
        perform = worker()
        for number in reversed(numbers):  # a pool may run tasks in any order
            if len(self.tasks) == self._stop_after:
                raise KeyboardInterrupt
            self.tasks.append((stage, number))
            yield perform(stage, number)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


@pytest.fixture
def docs(tmp_path):
    """Files with many and few chunks, a copy, a repeated licence, and a file that cannot be read."""
    folder = tmp_path / "docs"
    folder.mkdir()
    rng = random.Random(3)
    for i in range(24):
        paragraphs = [" ".join(rng.choices(WORDS, k=40)) for _ in range(rng.choice([1, 5, 20]))]
        (folder / f"{i:02}.md").write_text("\n\n".join([LICENCE, *paragraphs]))
    (folder / "copy.md").write_bytes((folder / "07.md").read_bytes())
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing of the kind")
    (folder / "latin.txt").write_bytes("naïve café au lait, déjà vu".encode("latin-1"))
    return folder


def config(**changes):
    return EmbedderConfig(extractor="re:dim=32", **changes)


def request(name, docs, **changes):
    paths = changes.pop("paths", (docs,))
    return IndexingRequest(docs.parent / name, paths, embedder=changes.pop("embedder", config()), **changes)


def rows(path):
    with Store.open(path) as store:
        return list(store.chunks()), store.embedder.fingerprint, list(store.sources().values()), store.boilerplate()


def hits(path, number):
    rng = random.Random(5)
    queries = [" ".join(rng.choices(WORDS, k=4)) for _ in range(number)]
    with Store.open(path) as store:
        return {
            mode: [
                [(hit.id, hit.score) for hit in found] for found in (store.search(each, 10, mode) for each in queries)
            ]
            for mode in ("dense", "lexical", "hybrid")
        }


def assert_same(one, other, queries=6):
    assert rows(one) == rows(other)
    assert hits(one, queries) == hits(other, queries)
    with Store.open(other) as store:
        assert not store.unfinished
        assert store._resume_token is None
    assert not (other / "work").exists()


def test_store_equals_that_of_one_process(docs):
    alone = index_files(request("alone", docs))
    engine = Here()
    report = index_with_workers(request("staged", docs), engine)
    assert_same(docs.parent / "alone", docs.parent / "staged", queries=40)
    assert (report.chunks, report.encoded, report.scan.added) == (alone.chunks, alone.encoded, alone.scan.added)
    assert report.scan.skipped == alone.scan.skipped
    assert len(report.scan.skipped) == 1
    assert [stage.stage for stage in report.stages] == ["read", "fit", "embed"]
    assert report.stages[2].items == report.encoded == alone.encoded
    assert report.stages[1].items == report.chunks
    assert len(rows(docs.parent / "staged")[3]) == 1  # the licence is boilerplate


def test_documents_from_a_url(docs):
    pytest.importorskip("fsspec")
    url = place_of(f"file://{docs}")
    index_files(request("one", docs, paths=(url,)))
    index_with_workers(request("many", docs, paths=(url,)), Here())
    assert_same(docs.parent / "one", docs.parent / "many")
    with Store.open(docs.parent / "many") as store:
        assert f"file://{docs}/00.md" in store.sources()


@pytest.mark.parametrize("shards", [1, 26])
def test_number_of_shards_does_not_change_the_store(docs, shards):
    index_files(request("alone", docs))
    engine = Here()
    index_with_workers(request("staged", docs), engine, shards=shards)
    assert sum(stage == "read" for stage, _ in engine.tasks) == shards
    assert_same(docs.parent / "alone", docs.parent / "staged")


@pytest.mark.parametrize("extractor", ["transformer", "bert+avg:w=0.5"])
def test_models_give_the_same_fit_and_vectors(docs, tiny_model, extractor):
    settings = EmbedderConfig(
        model=str(tiny_model),
        extractor=extractor,
        weighting="idf",
        dtype="float32",
        postprocess=("center", "normalize"),
    )
    for file in sorted(docs.iterdir())[:18]:
        file.unlink()
    index_files(request("alone", docs, embedder=settings))
    index_with_workers(request("staged", docs, embedder=settings), Here())
    assert_same(docs.parent / "alone", docs.parent / "staged")


def test_only_changed_files_are_read(docs):
    for name in ("alone", "staged"):
        index_files(request(name, docs))
    (docs / "03.md").write_text("word1 word2 written again")
    (docs / "04.md").unlink()
    (docs / "new.md").write_bytes((docs / "05.md").read_bytes())
    alone = index_files(IndexingRequest(docs.parent / "alone"))
    engine = Here()
    report = index_with_workers(IndexingRequest(docs.parent / "staged"), engine)
    assert_same(docs.parent / "alone", docs.parent / "staged")
    assert (report.scan.changed, report.scan.removed) == (["docs/03.md"], ["docs/04.md"])
    assert (report.scan.unchanged, report.encoded) == (alone.scan.unchanged, alone.encoded)
    assert report.encoded == 1
    assert [stage for stage, _ in engine.tasks].count("read") == 3  # unreadable files are tried again in each run


def test_unchanged_files_need_no_tasks(docs):
    index_files(request("staged", docs))
    (docs / "broken.pdf").unlink()
    engine = Here()
    assert index_with_workers(IndexingRequest(docs.parent / "staged"), engine).encoded == 0
    assert engine.tasks == []


def test_empty_folder_leaves_no_store(tmp_path):
    (tmp_path / "docs").mkdir()
    with pytest.raises(ConfigError, match="nothing to index"):
        index_with_workers(request("staged", tmp_path / "docs"), Here())
    assert not (tmp_path / "staged").exists()


@pytest.mark.parametrize("stop_after", [3, 9])
def test_interrupted_run_continues_from_finished_tasks(docs, stop_after):
    index_files(request("alone", docs))
    first, second = Here(stop_after), Here()
    with pytest.raises(KeyboardInterrupt):
        index_with_workers(request("staged", docs), first)
    index_with_workers(request("staged", docs), second)
    assert len(first.tasks) == stop_after
    assert len(second.tasks) == 10 - stop_after
    assert not set(first.tasks) & set(second.tasks)
    assert_same(docs.parent / "alone", docs.parent / "staged")


def test_run_interrupted_in_a_block_keeps_its_finished_parts(docs, tiny_model, monkeypatch):
    settings = EmbedderConfig(model=str(tiny_model), extractor="transformer", dtype="float32")
    monkeypatch.setattr(backend, "PART", 10_000)
    index_files(request("alone", docs, embedder=settings))
    encode, parts = Embedder.raw_documents, []

    def recorded(self, texts, *progress):
        parts.append(texts)
        return encode(self, texts, *progress)

    def interrupted(self, texts, *progress):
        if len(parts) == 1:
            raise KeyboardInterrupt
        return recorded(self, texts, *progress)

    monkeypatch.setattr(Embedder, "raw_documents", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index_with_workers(request("staged", docs, embedder=settings), Here())
    assert len(parts[-1]) > 1
    monkeypatch.setattr(Embedder, "raw_documents", recorded)
    index_with_workers(request("staged", docs, embedder=settings), Here())
    encoded = [text for part in parts for text in part]
    assert sum(map(len, encoded)) == sum(map(len, set(encoded))) > 5 * 10_000
    assert_same(docs.parent / "alone", docs.parent / "staged")


def test_run_interrupted_while_writing_encodes_nothing_again(docs, monkeypatch):
    from ragembed.indexes.writing.writer import StoreWriter

    index_files(request("alone", docs))
    commit, commits = StoreWriter.commit, []

    def interrupted(self, **what):
        commits.append(what)
        if len(commits) == 2:
            raise KeyboardInterrupt
        return commit(self, **what)

    monkeypatch.setattr(StoreWriter, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index_with_workers(request("staged", docs), Here())
    monkeypatch.undo()
    engine = Here()
    index_with_workers(request("staged", docs), engine)
    assert engine.tasks == []
    assert_same(docs.parent / "alone", docs.parent / "staged")


def test_files_changed_after_an_interruption_give_a_new_plan(docs):
    with pytest.raises(KeyboardInterrupt):
        index_with_workers(request("staged", docs), Here(stop_after=5))
    (docs / "00.md").write_text("word5 word6 and something else")
    index_files(request("alone", docs))
    engine = Here()
    index_with_workers(request("staged", docs), engine)
    assert ("read", 0) in engine.tasks
    assert_same(docs.parent / "alone", docs.parent / "staged")


@pytest.mark.parametrize("stop_after", [3, 9])
def test_run_without_workers_removes_the_work_folder(docs, stop_after):
    with pytest.raises(KeyboardInterrupt):
        index_with_workers(request("staged", docs), Here(stop_after))
    assert (docs.parent / "staged" / "work").is_dir()
    index_files(request("staged", docs))
    index_files(request("alone", docs))
    assert_same(docs.parent / "alone", docs.parent / "staged")


def test_concurrent_runs_are_rejected(docs):
    work = docs.parent / "staged" / "work"
    work.mkdir(parents=True)
    with (
        writer_lock(work),
        pytest.raises(StoreLockedError, match=r"another process is writing to the work folder .*work"),
    ):
        index_with_workers(request("staged", docs), Here())


@pytest.mark.skipif(sys.platform == "win32", reason="the tests kill processes with POSIX signals")
class TestProcesses:
    @pytest.mark.parametrize("task", [("read", 1), ("embed", 0)])
    def test_killed_worker_repeats_only_its_task(self, docs, tmp_path, task):
        index_files(request("alone", docs))
        engine = Sabotaged(2, DiesInBlock, *task, tmp_path / "killed")
        report = index_with_workers(request("staged", docs), engine)
        assert (tmp_path / "killed").exists()
        assert report.stages[0].memory > 10
        assert_same(docs.parent / "alone", docs.parent / "staged")

    def test_file_that_kills_its_readers_is_skipped(self, docs):
        report = index_with_workers(request("staged", docs), Sabotaged(1, DiesInFile, "05.md"), shards=2)
        assert report.scan.skipped["docs/05.md"] == "3 processes died while they read it"
        (docs / "05.md").unlink()
        index_files(request("alone", docs))
        with Store.open(docs.parent / "staged") as store, Store.open(docs.parent / "alone") as alone:
            assert store.ids() == alone.ids()
            assert list(store.status()["skipped"]).count("docs/05.md") == 1

    def test_run_continues_after_a_killed_driver(self, docs, tmp_path):
        index_files(request("alone", docs))
        start = "from ragembed.cli import main; main()"
        command = [sys.executable, "-c", start, "index", "docs", "--store", "staged", "--extractor", "re:dim=32"]
        command += ["--workers", "2", "--json"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 600
        while not list(tmp_path.glob("staged/work/read/0000?")) and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        finished = {file: file.stat().st_mtime_ns for file in tmp_path.glob("staged/work/read/0000?/scan.json")}
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        read = json.loads(done.stdout)["stages"][0]
        assert finished
        assert read["stage"] != "read" or read["tasks"] <= 8 - len(finished)
        assert_same(docs.parent / "alone", docs.parent / "staged")


def test_slower_reader_of_the_same_shard_gives_way(docs, monkeypatch):
    """An unreachable worker may still perform a task that another worker has taken over."""
    with pytest.raises(KeyboardInterrupt):
        index_with_workers(request("staged", docs), Here(stop_after=0), shards=1)
    work = docs.parent / "staged" / "work"
    publish = stages.publish

    def late(temporary, final):
        monkeypatch.setattr(stages, "publish", publish)
        assert Worker(work)("read", 0).items == 27
        publish(temporary, final)

    monkeypatch.setattr(stages, "publish", late)
    assert Worker(work)("read", 0).items == 27
    assert sorted(path.name for path in (work / "read").iterdir()) == ["00000"]


def test_partial_fits_add_up_to_the_fit(tiny_model, docs):
    settings = EmbedderConfig(model=str(tiny_model), extractor="avg", weighting="idf", dtype="float32")
    texts = [line for file in sorted(docs.glob("*.md")) for line in file.read_text().split("\n\n")]
    assert len(texts) > 120
    whole = Embedder(settings).fit_extractor(texts)
    parted = Embedder(settings)
    parts = [parted._part_of_fit(texts[:100]), parted._part_of_fit(texts[100:])]
    parted._fit_parts(parts, len(texts))
    assert parted.extractor.weights.require_fitted().texts == len(texts)
    one, other = (embedder.extractor.weights.require_fitted() for embedder in (whole, parted))
    assert (one.document_frequency == other.document_frequency).all()
    assert (one.occurrences == other.occurrences).all()
    assert abs(whole.extractor.state()["avg.vectors"] - parted.extractor.state()["avg.vectors"]).max() < 1e-5


def test_ray_is_imported_only_on_demand():
    modules = "import sys, ragembed, ragembed.cli, ragembed.distributed.backend; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", modules], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_work_folder_paths_are_absolute(docs, monkeypatch):
    monkeypatch.chdir(docs.parent)
    index_with_workers(IndexingRequest(Path("staged"), (Path("docs"),), embedder=config()), Here())
    index_files(request("alone", docs))
    assert_same(docs.parent / "alone", docs.parent / "staged")
