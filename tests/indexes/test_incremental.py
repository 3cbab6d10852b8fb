"""A store that is updated after edits equals a new store with the same fit."""

import os
import random
import shutil
from dataclasses import replace

import pytest

from ragembed.indexes import Store
from ragembed.indexes.indexing import fitting, scan
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingOptions, IndexingRequest
from ragembed.indexes.storage import catalog, writer
from ragembed.indexes.storage.upkeep import UNUSED_ABOVE, unused_share
from tests.conftest import WORDS

FILES, QUERIES, ROUNDING = 16, 4, 5e-4


def sentences(draw, count):
    return "\n\n".join(" ".join(draw.choices(WORDS, k=draw.randint(4, 9))) + "." for _ in range(count))


@pytest.fixture
def corpus(in_folder, monkeypatch):
    monkeypatch.setattr(fitting, "MIN_FIT", 2)
    draw = random.Random(4)
    for i in range(FILES):
        folder = in_folder / "docs" / f"part{i % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{i}.{'md' if i % 2 else 'txt'}").write_text(f"# File {i}\n\n{sentences(draw, 6)}\n")
    return in_folder / "docs"


@pytest.fixture
def config(tiny_config):
    return tiny_config.replace(extractor="re:dim=32")


@pytest.fixture
def indexed(corpus, config):
    store = corpus.parent / ".ragembed"
    index_files(IndexingRequest(store, (corpus,), embedder=config))
    return store


def clean_build(store, corpus, options=None):
    """Create a store of the current files with the current fit of the embedder."""
    clean = store.with_name("clean")
    if clean.exists():
        shutil.rmtree(clean)
    with Store.open(store) as opened:
        Store.create(clean, opened.embedder).close()
    index_files(IndexingRequest(clean, (corpus,), options))
    return clean


def contents(store):
    with Store.open(store) as opened:
        return {record.id: (record.source, record.chunk) for record in opened.chunks()}


def answers(store, mode):
    draw = random.Random(9)
    with Store.open(store) as opened:
        found = [opened.search(" ".join(draw.choices(WORDS, k=4)), 10, mode) for _ in range(QUERIES)]
    return [{hit.id: hit.score for hit in hits} for hits in found]


def assert_same_answers(found, expected):
    """Compare results up to rounding, which depends on the batch size, and up to ties with the last result."""
    for mine, others in zip(found, expected, strict=True):
        assert len(mine) == len(others)
        for these, those in ((mine, others), (others, mine)):
            clear = {key: score for key, score in these.items() if score > min(those.values(), default=0) + ROUNDING}
            assert clear == pytest.approx({key: those.get(key) for key in clear}, abs=ROUNDING)


def assert_equals_clean_build(store, corpus, options=None):
    clean = clean_build(store, corpus, options)
    assert contents(store) == contents(clean)
    for mode in ("dense", "lexical", "hybrid"):
        assert_same_answers(answers(store, mode), answers(clean, mode))


def test_store_after_edits_equals_a_clean_build(indexed, corpus):
    draw = random.Random(17)
    for _ in range(2):
        files = sorted(file for file in corpus.rglob("*") if file.is_file())
        for file in draw.sample(files, 3):
            file.write_text(file.read_text() + "\n\n" + sentences(draw, 2) + "\n")
        for file in draw.sample(files, 2):
            file.unlink(missing_ok=True)
        for number in range(2):
            (corpus / f"new{draw.random()}{number}.md").write_text(sentences(draw, 5))
        index_files(IndexingRequest(indexed))
        assert_equals_clean_build(indexed, corpus)


def test_touched_file_keeps_its_chunks_without_encoding(indexed, corpus):
    before = contents(indexed)
    for file in corpus.rglob("*.md"):
        os.utime(file, ns=(1, 10**18))
    report = index_files(IndexingRequest(indexed))
    assert (report.scan.unchanged, report.encoded) == (FILES, 0)
    assert contents(indexed) == before
    with Store.open(indexed) as opened:
        assert {name.endswith(".md") for name, file in opened.sources().items() if file.mtime_ns == 10**18} == {True}


def test_other_chunk_size_splits_all_files_again(indexed, corpus):
    options = IndexingOptions(chunk_tokens=20)
    report = index_files(IndexingRequest(indexed, options=options))
    assert len(report.scan.changed) == FILES
    assert_equals_clean_build(indexed, corpus, options)


def test_new_version_of_a_reader_reads_only_its_files(indexed, corpus, monkeypatch):
    original = scan.named_reader

    def newer(name):
        reader = original(name)
        return replace(reader, version=reader.version + 1) if name.endswith(".md") else reader

    monkeypatch.setattr(scan, "named_reader", newer)
    report = index_files(IndexingRequest(indexed))
    assert {name.rpartition(".")[2] for name in report.scan.changed} == {"md"}
    assert report.encoded == 0


def test_files_with_the_same_text_are_removed_separately(indexed, corpus):
    twin = corpus / "twin.md"
    shutil.copy(corpus / "part1" / "file1.md", twin)
    report = index_files(IndexingRequest(indexed))
    assert report.encoded == 0
    copies = [chunk for source, chunk in contents(indexed).values() if source == "docs/twin.md"]
    assert copies == [chunk for source, chunk in contents(indexed).values() if source == "docs/part1/file1.md"]
    (corpus / "part1" / "file1.md").unlink()
    index_files(IndexingRequest(indexed))
    assert [chunk for source, chunk in contents(indexed).values() if source == "docs/twin.md"] == copies
    assert_equals_clean_build(indexed, corpus)


def test_old_chunks_are_replaced_in_one_transaction(indexed, corpus, monkeypatch):
    from ragembed.indexes.storage import transactions

    name, file = "docs/part0/file0.txt", corpus / "part0" / "file0.txt"
    before = [record.chunk.text for record in chunks_of(indexed, name)]
    file.write_text("zebra zebra zebra\n")
    seen = []
    original = transactions.Database.transaction

    def watched(self):
        seen.append([record.chunk.text for record in chunks_of(indexed, name)])
        return original(self)

    monkeypatch.setattr(transactions.Database, "transaction", watched)
    index_files(IndexingRequest(indexed))
    seen.append([record.chunk.text for record in chunks_of(indexed, name)])
    assert seen[0] == before
    assert seen[-1] == ["zebra zebra zebra"]
    assert all(texts in (before, ["zebra zebra zebra"]) for texts in seen)


def chunks_of(store, name):
    with Store.open(store) as opened:
        return list(opened.chunks(name))


@pytest.mark.parametrize("between", ["optimize", "delete", "more files"])
def test_vectors_of_an_interrupted_run_are_reused(corpus, config, monkeypatch, between):
    """A file of many batches is interrupted: its words are in the store, and some of its vectors."""
    monkeypatch.setattr(writer, "BATCH", 8)
    store = corpus.parent / ".ragembed"
    index_files(IndexingRequest(store, (corpus,), embedder=config))
    rows = "\n".join(f"the zebra number {i} runs from lock {i % 7} to wing {i % 5}" for i in range(100))
    (corpus / "zebras.csv").write_text(f"text\n{rows}\n")
    original = writer.StoreWriter._commit_vectors

    def interrupted(self, keys, vectors):
        original(self, keys, vectors)
        if catalog.count_waiting(self._connection) <= 50:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer.StoreWriter, "_commit_vectors", interrupted)
        with pytest.raises(KeyboardInterrupt):
            index_files(IndexingRequest(store))
    with Store.open(store) as opened:
        finished = round(100 - len(opened) * (1 - opened.vector_share))
        assert 40 <= finished < 100
        assert len(opened.search("zebra", 200, "lexical")) >= 100
        if between == "optimize":
            opened.optimize()
        elif between == "delete":
            opened.delete(["no such chunk"])
    if between == "more files":
        (corpus / "aardvark.md").write_text("alpha beta\n")
    report = index_files(IndexingRequest(store))
    assert report.encoded == 100 - finished + (between == "more files")
    with Store.open(store) as opened:
        assert opened.status()["unused_vectors"] == 0
    assert_equals_clean_build(store, corpus)


def test_a_run_compacts_a_store_of_which_a_good_part_is_unused(indexed, corpus):
    kept, removed = [sorted(corpus.rglob(f"*.{suffix}")) for suffix in ("md", "txt")]
    for file in removed[:-3]:
        file.unlink()
    index_files(IndexingRequest(indexed))
    with Store.open(indexed) as opened:
        status = opened.status()
        assert (status["files"], status["unused_vectors"], len(status["segments"])) == (len(kept) + 3, 0, 1)
        assert opened.read_database(unused_share) < UNUSED_ABOVE
        assert opened.verify().problems == []
