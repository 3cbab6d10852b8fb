"""Work that is stopped ends at its next check, and leaves what it used in order."""

from __future__ import annotations

import threading

import pytest

import ragembed
from ragembed import Collection, Embedder, EmbedderConfig, RankingOptions, Store
from ragembed.indexes.storage import reader
from ragembed.progress import StoppedError, check, is_stopped, run_until

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 2000000000) SELECT max(x) FROM n"


@pytest.fixture
def stop():
    return threading.Event()


@pytest.fixture
def store(tmp_path, tiny_model):
    """A store that is open, with twelve chunks."""
    (tmp_path / "docs").mkdir()
    for i in range(12):
        (tmp_path / "docs" / f"{i}.md").write_text(f"# Tea {i}\n\nTea number {i} is brewed.\n")
    config = EmbedderConfig(extractor="re:dim=32", model=str(tiny_model))
    ragembed.index(tmp_path / "docs", store=tmp_path / "store", embedder=config)
    with Store.open(tmp_path / "store") as opened:
        yield opened


def test_only_the_work_of_the_stopped_thread_ends(stop):
    assert run_until(stop, lambda: is_stopped()) is False
    stop.set()
    with pytest.raises(StoppedError):
        run_until(stop, lambda: 1)
    check()


def test_no_handler_of_errors_keeps_stopped_work_alive(stop):
    def work():
        for _ in range(3):
            try:
                stop.set()
                check()
            except Exception:  # noqa: BLE001, PERF203  this is what is tested
                continue

    with pytest.raises(StoppedError):
        run_until(stop, work)


@pytest.mark.parametrize("several", [False, True])
def test_a_statement_of_the_database_is_stopped(stop, store, monkeypatch, several):
    select = reader.select

    def endless(connection, where):
        threading.Timer(0.1, stop.set).start()
        return connection.execute(ENDLESS).fetchone() and select(connection, where)

    searched = Collection.open({"a": store.path, "b": store.path}) if several else store
    monkeypatch.setattr(reader, "select", endless)
    with pytest.raises(StoppedError):
        run_until(stop, lambda: searched.search("tea", where="ext = 'md'"))
    monkeypatch.undo()
    chunks = 24 if several else 12
    assert len(searched.search("tea", 30, where="ext = 'md'")) == chunks
    assert len(searched.search("tea", 30)) == chunks
    if several:
        assert searched.problems == {}
        searched.close()


def test_reranking_is_stopped(stop, store):
    class Slow:
        def __init__(self):
            self.calls = 0

        def scores(self, query, texts):
            self.calls += 1
            stop.set()
            return [float(len(query))] * len(texts)

    slow = Slow()
    ranking = RankingOptions(reranker=slow, rerank_depth=100, per_file=1)
    with pytest.raises(StoppedError):
        run_until(stop, lambda: store.search_many(["tea one", "tea two"], 3, ranking=ranking))
    assert slow.calls == 1


@pytest.mark.parametrize("extractor", ["re:dim=32", "avg"])
def test_encoding_is_stopped_after_a_batch(stop, tiny_model, extractor):
    texts = [f"tea {i} is brewed with hot water" for i in range(5000)]
    embedder = Embedder(EmbedderConfig(extractor=extractor, model=str(tiny_model))).fit(texts[:100])
    done = []

    def progress(number):
        done.append(number)
        if sum(done):
            stop.set()

    with pytest.raises(StoppedError):
        run_until(stop, lambda: embedder.raw_documents(texts, progress))
    assert 0 < sum(done) < len(texts)
