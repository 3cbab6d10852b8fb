import itertools
import os
import zipfile

import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.documents.chunking import Chunker
from ragembed.documents.readers.registry import unread_reason
from ragembed.errors import ConfigError, IncompatibleStoreError
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.indexes import Store
from ragembed.indexes.indexing import fitting, scan
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingOptions, IndexingRequest
from ragembed.indexes.storage import writer
from tests.indexes.conftest import counts


@pytest.fixture
def docs(in_folder):
    folder = in_folder / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / "locks.md").write_text(
        "# Locks\n\nthe writer holds the lock of the store\n\n## Readers\n\na reader is in\n"
    )
    (folder / "deep" / "wing.txt").write_text("shock wave and boundary layer\n\nsupersonic air flow on a wing\n")
    (folder / "cat.txt").write_text("the cat sleeps\n")
    return folder


TO_REMOVE = ", because its disk may not be mounted; to remove them, run 'ragembed index {} --allow-empty'"


@pytest.fixture
def encoded(monkeypatch):
    """The document texts that the model encodes, without queries and pseudo-queries."""
    texts = []
    original = writer.StoreWriter._commit_vectors
    monkeypatch.setattr(
        writer.StoreWriter,
        "_commit_vectors",
        lambda self, keys, vectors: (texts.extend(keys), original(self, keys, vectors)),
    )
    return texts


def content(folder):
    """Return the contents of a store that do not differ between runs."""
    with Store.open(folder / ".ragembed") as store:
        return sorted(
            (record.source, record.chunk.start_line, record.chunk.text, record.id) for record in store.chunks()
        )


def test_a_folder_becomes_searchable(docs, run, in_folder):
    report = run(docs)
    assert counts(report) == (3, 0, 0, 0, 0)
    assert sorted(report.scan.added) == ["docs/cat.txt", "docs/deep/wing.txt", "docs/locks.md"]
    with Store.open(in_folder / ".ragembed") as store:
        assert len(store) == report.chunks == report.encoded
        hit = store.search("lock of the store", 1)[0]
        assert (hit.source, hit.chunk.headings[0]) == ("docs/locks.md", "Locks")
        lines = docs.joinpath("locks.md").read_text().split("\n")[hit.chunk.start_line - 1 : hit.chunk.end_line]
        assert hit.chunk.text in "\n".join(lines)
        config = store.status()["embedder"]["config"]
        assert (config["postprocess"], config["query_fit"], config["weighting"]) == (
            ["center", "normalize"],
            "separate",
            "idf:0.5",
        )
        assert store.embedder.fitted_on.documents == report.chunks
        assert store.embedder.fitted_on.pseudo_queries > 0


def test_words_of_all_files_are_found_before_the_first_vector(docs, run, in_folder, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer.StoreWriter, "_commit_vectors", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(docs)
    with Store.open(in_folder / ".ragembed") as store:
        assert [hit.source for hit in store.search("supersonic flow on a wing", 1)] == ["docs/deep/wing.txt"]
        assert store.search("supersonic flow", 1)[0].dense is None
        assert store.search("supersonic flow", 1, "dense") == store.search_many(["wing"], 3, "dense")[0] == []
        assert store.context("where does the cat sleep?", 200).blocks[0].text.endswith("the cat sleeps")
        assert store.incomplete == (
            "vectors for 0 % of the chunks; words find the others: run 'ragembed index' again to encode them"
        )
        assert store.verify().problems == []
    assert run(docs, dry_run=True).tokens > 0
    report = run(docs)
    assert report.encoded == report.chunks
    with Store.open(in_folder / ".ragembed") as store:
        assert (store.incomplete, store.vector_share) == (None, 1.0)


def test_second_run_reads_and_encodes_nothing(docs, run, encoded, monkeypatch):
    run(docs)
    encoded.clear()
    monkeypatch.setattr("ragembed.indexes.indexing.scan.read", None)
    report = run(docs)
    assert counts(report) == (0, 0, 0, 3, 0)
    assert report.encoded == 0
    assert encoded == []


def test_only_changed_chunks_are_encoded(docs, run, encoded, in_folder):
    run(docs)
    encoded.clear()
    locks = docs / "locks.md"
    locks.write_text(locks.read_text().replace("a reader is in", "ten readers are in"))
    (docs / "new.txt").write_text("a zebra\n")
    (docs / "cat.txt").unlink()
    report = run(docs)
    assert counts(report) == (1, 1, 1, 1, 0)
    assert 1 <= report.encoded == len(encoded) <= 2
    texts = " ".join(text for _, _, text, _ in content(in_folder))
    assert "ten readers" in texts
    assert "zebra" in texts
    assert "cat sleeps" not in texts
    assert "a reader is in" not in texts


def test_rename_encodes_nothing(docs, run, in_folder):
    run(docs)
    (docs / "cat.txt").rename(docs / "deep" / "kitten.txt")
    report = run(docs)
    assert counts(report) == (1, 0, 1, 2, 0)
    assert report.encoded == 0
    with Store.open(in_folder / ".ragembed") as store:
        assert [hit.source for hit in store.search("the cat sleeps", 1)] == ["docs/deep/kitten.txt"]
        assert "docs/cat.txt" not in store.sources()


@pytest.mark.parametrize(("window", "longest"), [(254, 254), (512, 512), (32_768, 512)])
def test_default_chunks_have_at_most_512_tokens(window, longest):
    assert IndexingOptions().chunking(window).max_tokens == longest
    assert IndexingOptions(chunk_tokens=200).chunking(window).max_tokens == 200


def test_options_and_paths_of_the_last_run_are_kept(docs, run, in_folder):
    run(docs, options=IndexingOptions(exclude=("deep/",)))
    (docs / "deep" / "two.txt").write_text("two")
    report = run()
    assert counts(report) == (0, 0, 0, 2, 0)
    report = run(docs, options=IndexingOptions())
    assert counts(report) == (2, 0, 0, 2, 0)


def test_members_of_archives_are_found_filtered_and_read_again_when_the_rules_change(docs, run, in_folder):
    with zipfile.ZipFile(docs / "a.zip", "w") as archive:
        archive.writestr("x/dog.md", "a dog runs\n\nin the air")
        archive.writestr("bird.csv", "text,member\na bird flies,other\n")
        archive.writestr("broken.csv", "")
        archive.writestr("picture.png", b"\0\0")
    report = run(docs)
    assert counts(report) == (4, 0, 0, 0, 0)
    assert f"docs/a.zip: picture.png is not read: {unread_reason('picture.png')}" in report.scan.warnings
    with Store.open(in_folder / ".ragembed") as store:
        [hit] = store.search("dog", where="member = 'x/dog.md'")
        assert (hit.source, hit.chunk.start_line, hit.chunk.end_line) == ("docs/a.zip", 1, 3)
        assert len(store.search("dog", where="member = 'bird.csv' AND ext = 'zip'")) == 1
    report = run(docs, options=IndexingOptions(exclude=("x/",)))
    assert counts(report) == (0, 1, 0, 3, 0)
    with Store.open(in_folder / ".ragembed") as store:
        assert store.search("dog", where="member = 'x/dog.md'") == []


def test_second_folder_is_added(docs, run, in_folder):
    run(docs)
    other = in_folder.parent / "outside"
    other.mkdir()
    (other / "a.txt").write_text("a fish swims")
    report = run(other)
    assert counts(report) == (1, 0, 0, 0, 0)
    assert "../outside/a.txt" in {source for source, *_ in content(in_folder)}
    (other / "a.txt").unlink()
    (docs / "cat.txt").unlink()
    assert sorted(run(allow_empty=True).scan.removed) == ["../outside/a.txt", "docs/cat.txt"]


def test_broken_files_are_skipped_and_listed(docs, run, in_folder):
    (docs / "broken.pdf").write_bytes(b"%PDF-1.7 nonsense")
    (docs / "binary.dat").write_bytes(bytes(range(256)) * 5)
    (docs / "empty.txt").write_text("")
    (docs / "big.log").write_text("x" * 3000)
    report = run(docs, options=IndexingOptions(max_bytes=2000))
    assert counts(report) == (3, 0, 0, 0, 4)
    reasons = report.scan.skipped
    assert "PDF" in reasons["docs/broken.pdf"]
    assert reasons["docs/binary.dat"].startswith("dat: neither text nor a known format; convert it to text")
    assert reasons["docs/empty.txt"] == "contains no text"
    assert "over the limit of 2,000 bytes" in reasons["docs/big.log"]
    with Store.open(in_folder / ".ragembed") as store:
        assert store.status()["skipped"] == reasons
    (docs / "empty.txt").write_text("no more empty")
    (docs / "broken.pdf").unlink()
    run(docs)
    with Store.open(in_folder / ".ragembed") as store:
        assert set(store.status()["skipped"]) == {"docs/binary.dat", "docs/big.log"}


@pytest.mark.parametrize(
    ("error", "reason", "place"),
    [
        (TypeError("no such thing"), "its reader failed with TypeError: no such thing", "reader"),
        (RecursionError(), "nested too deeply", "chunker"),
        (MemoryError(), "cannot be read: not enough memory to read it", "record"),
    ],
)
def test_error_in_one_file_does_not_stop_a_run(docs, run, monkeypatch, error, reason, place):
    def failing(function):
        def call(*args):
            if any("locks.md" in str(arg) or "writer holds" in str(arg) for arg in args):
                raise error
            return function(*args)

        return call

    if place == "reader":
        monkeypatch.setattr(scan, "read", failing(scan.read))
    elif place == "chunker":
        monkeypatch.setattr(Chunker, "split", failing(Chunker.split))
    else:
        monkeypatch.setattr(scan, "spool_line", failing(scan.spool_line))
    report = run(docs)
    assert sorted(report.scan.added) == ["docs/cat.txt", "docs/deep/wing.txt"]
    assert report.scan.skipped == {"docs/locks.md": reason}


def test_interruption_is_not_an_error_of_a_file(docs, run, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(scan, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(docs)


def test_file_dates_are_clamped_to_the_range_of_the_store(docs, run, in_folder):
    for name, seconds in (("cat.txt", 15_000_000_000), ("locks.md", -1_000_000_000)):  # 2445 and 1938
        os.utime(docs / name, (seconds, seconds))
        if (docs / name).stat().st_mtime != seconds:
            pytest.skip("this file system does not keep such dates")
    assert counts(run(docs)) == (3, 0, 0, 0, 0)
    report = run(docs)
    assert (counts(report), report.scan.touched) == ((0, 0, 0, 3, 0), [])
    with Store.open(in_folder / ".ragembed") as store:
        assert store.sources()["docs/cat.txt"].mtime_ns == 2**63 - 1
        found = {
            where: {hit.source for hit in store.search("the", 9, where=where)}
            for where in ("mtime < 0", "mtime > '2262-01-01'")
        }
    assert found == {"mtime < 0": {"docs/locks.md"}, "mtime > '2262-01-01'": {"docs/cat.txt"}}


def test_files_of_an_unreadable_folder_are_kept(docs, run, in_folder, refuse_to_open, monkeypatch):
    run(docs)
    refuse_to_open("deep")
    report = run(docs)
    assert counts(report) == (0, 0, 0, 2, 1)
    monkeypatch.undo()
    assert "docs/deep/wing.txt" in {source for source, *_ in content(in_folder)}


def test_nothing_to_index_raises_and_writes_nothing(in_folder, run):
    (in_folder / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"no file to read in .*empty"):
        run(in_folder / "empty")
    (in_folder / "empty" / "a.bin").write_bytes(b"\0\1\2")
    with pytest.raises(ConfigError, match=r"a\.bin is the only file found, and it was skipped: bin: a program"):
        run(in_folder / "empty")
    with pytest.raises(ConfigError, match="give a file or folder"):
        run()
    with pytest.raises(ConfigError, match="does not exist"):
        run(in_folder / "missing")
    assert not (in_folder / ".ragembed").exists()


def test_dry_run_writes_nothing(docs, run, in_folder, encoded):
    report = run(docs, dry_run=True)
    assert counts(report) == (3, 0, 0, 0, 0)
    assert report.chunks >= 3
    assert not (in_folder / ".ragembed").exists()
    assert encoded == []


def test_other_model_for_the_same_store_raises(docs, run, in_folder):
    run(docs)
    request = IndexingRequest(in_folder / ".ragembed", (docs,), None, EmbedderConfig(model="some/other"))
    with pytest.raises(IncompatibleStoreError, match=r"was made with the model .*tiny-bert.*, not some/other.*--store"):
        index_files(request)


def test_other_settings_for_the_same_store_raise(docs, run, in_folder, tiny_config):
    run(docs)
    for changes in ({"layers": "1"}, {"weighting": "uniform"}, {"postprocess": ("zscore",)}, {"query_fit": "shared"}):
        request = IndexingRequest(in_folder / ".ragembed", (docs,), None, tiny_config.replace(**changes))
        with pytest.raises(IncompatibleStoreError, match=f"was made with the {next(iter(changes))} "):
            index_files(request)


def test_model_at_a_relative_path_is_found_from_any_folder(docs, in_folder, tiny_model, monkeypatch):
    (in_folder / "model").symlink_to(tiny_model)
    index_files(IndexingRequest(in_folder / ".ragembed", (docs,), None, EmbedderConfig(model="model", dtype="float32")))
    monkeypatch.chdir(docs)
    with Store.open(in_folder / ".ragembed") as store:
        assert store.search("lock", 1)


def test_indexed_folder_above_the_store(docs, run, in_folder, tiny_config):
    store = docs / ".ragembed"
    request = IndexingRequest(store, (in_folder,), None, tiny_config)
    (docs / "bad.bin").write_bytes(b"\0")
    assert counts(index_files(request)) == (3, 0, 0, 0, 1)
    (docs / "cat.txt").unlink()
    assert counts(index_files(request)) == (0, 0, 1, 2, 1)


def test_names_that_are_not_unicode_are_listed(docs, run, in_folder):
    (docs / os.fsdecode(b"\xff.txt")).write_text("the cat")
    report = run(docs)
    assert counts(report) == (3, 0, 0, 0, 1)
    assert report.scan.skipped == {"docs/\\udcff.txt": "its name is not valid Unicode"}
    with Store.open(in_folder / ".ragembed") as store:
        assert store.status()["skipped"] == report.scan.skipped


def test_missing_path(docs, run, in_folder):
    other = in_folder / "other"
    other.mkdir()
    (other / "a.txt").write_text("a fish swims")
    run(docs, other)
    (other / "a.txt").unlink()
    other.rmdir()
    report = run()
    assert counts(report) == (0, 0, 0, 3, 0)
    stay = f"its files stay in the store{TO_REMOVE.format(other)}"
    assert report.scan.warnings == [f"{other} is missing: {stay}"]
    assert run(other).scan.warnings == [f"{other} is missing: {stay}"]
    assert counts(run(other, allow_empty=True)) == (0, 0, 1, 0, 0)
    assert run().scan.warnings == []
    with pytest.raises(ConfigError, match="does not exist"):
        run(other)


def test_files_of_an_empty_mount_point_stay_until_it_may_be_empty(docs, run, in_folder):
    run(docs)
    before = content(in_folder)
    away = docs.rename(in_folder / "away")
    docs.mkdir()
    for paths in ((), (docs,)):
        report = run(*paths)
        assert counts(report) == (0, 0, 0, 0, 0)
        stay = f"they stay in the store{TO_REMOVE.format(docs)}"
        assert report.scan.warnings == [f"{docs} has none of its 3 files: {stay}"]
    docs.rmdir()
    away.rename(docs)
    assert counts(run()) == (0, 0, 0, 3, 0)
    assert content(in_folder) == before
    *rest, last = sorted(file for file in docs.rglob("*") if file.is_file())
    for file in rest:
        file.unlink()
    assert counts(run()) == (0, 0, 2, 1, 0)
    last.unlink()
    assert counts(run(allow_empty=True)) == (0, 0, 1, 0, 0)
    assert not content(in_folder)


def test_chunks_of_a_temporarily_unreadable_file_are_kept(docs, run, in_folder, refuse_to_open, monkeypatch):
    run(docs)
    (docs / "cat.txt").write_text("the cat runs")
    refuse_to_open("cat.txt")
    report = run(docs)
    monkeypatch.undo()
    assert counts(report) == (0, 0, 0, 2, 1)
    assert "docs/cat.txt" in {source for source, *_ in content(in_folder)}


def test_chunks_of_a_file_that_becomes_a_link_are_kept(docs, run, in_folder, monkeypatch):
    run(docs)
    (in_folder / "secret.txt").write_text("a zebra")
    (docs / "cat.txt").write_text("the cat runs")
    discover = scan.discover

    def swapping(*args):
        for candidate in discover(*args):
            if candidate.path.name == "cat.txt":
                candidate.path.unlink()
                candidate.path.symlink_to(in_folder / "secret.txt")
            yield candidate

    monkeypatch.setattr(scan, "discover", swapping)
    report = run(docs)
    assert report.scan.skipped == {
        "docs/cat.txt": "cannot be read: it is a symbolic link or below one, and links are not followed"
    }
    texts = {source: text for source, _, text, _ in content(in_folder)}
    assert (len(texts), texts["docs/cat.txt"]) == (3, "the cat sleeps")


def test_moved_file_is_always_searchable(docs, run, in_folder, monkeypatch):
    monkeypatch.setattr("ragembed.indexes.indexing.index_run.BATCH", 1)
    run(docs)
    (docs / "cat.txt").rename(docs / "z.txt")
    (docs / "new.txt").write_text("a zebra")
    seen = []
    original = writer.StoreWriter.commit

    def commit(self, **change):
        original(self, **change)
        with Store.open(in_folder / ".ragembed") as store:
            seen.append({hit.source for hit in store.search("the cat sleeps", 9, "lexical")})

    monkeypatch.setattr(writer.StoreWriter, "commit", commit)
    run(docs)
    assert len(seen) == 3
    assert all(found & {"docs/cat.txt", "docs/z.txt"} for found in seen)
    assert seen[-1] & {"docs/cat.txt", "docs/z.txt"} == {"docs/z.txt"}


def test_files_can_be_indexed_into_a_store_created_in_python(docs, tiny_config, in_folder, make_record):
    embedder = Embedder(tiny_config).fit(["the cat sleeps", "the dog runs"])
    with Store.create(in_folder / ".ragembed", embedder) as store:
        store.add([make_record("mine", "a zebra of a program")])
    report = index_files(IndexingRequest(in_folder / ".ragembed", (docs,)))
    assert counts(report) == (3, 0, 0, 0, 0)
    with Store.open(in_folder / ".ragembed") as store:
        assert [record.id for record in store.get(["mine"])] == ["mine"]
        assert store.embedder.config == embedder.config


def test_chain_is_fitted_again_when_the_corpus_has_doubled(docs, run, in_folder):
    first = run(docs)
    for i in range(first.chunks):
        (docs / f"more{i}.txt").write_text(f"the dog number {i} runs")
    run(docs)
    with Store.open(in_folder / ".ragembed") as store:
        assert store.embedder.fitted_on.documents == len(store)
    (docs / "one.txt").write_text("one more file")
    run(docs)
    with Store.open(in_folder / ".ragembed") as store:
        assert store.embedder.fitted_on.documents == len(store) - 1


def test_token_weights_of_a_much_smaller_corpus_give_a_warning(in_folder, docs, run):
    (unfitted,) = run(docs / "cat.txt").scan.warnings
    assert unfitted == "center, normalize cannot be fitted on 1 chunk yet: fitting needs 2 chunks or more"
    (docs / "many.csv").write_text("text\n" + "\n".join(f"zebra {i} runs" for i in range(10)))
    (note,) = run(docs / "many.csv").scan.warnings
    assert note.startswith("the token weights were fitted on 1 chunk, and the store has grown to 11; for a new store")
    assert "run: ragembed index docs/cat.txt docs/many.csv --store .ragembed-new --model " in note


def test_a_large_corpus_is_fitted_on_a_sample(docs, run, in_folder, monkeypatch):
    monkeypatch.setattr(fitting, "FIT_LIMIT", 2)
    assert run(docs).chunks > 2
    with Store.open(in_folder / ".ragembed") as store:
        assert store.embedder.fitted_on.documents == 2


def test_post_processors_wait_for_enough_chunks_with_a_warning(docs, in_folder, tiny_config, monkeypatch):
    monkeypatch.setattr(fitting, "MIN_FIT", 2)
    config = tiny_config.replace(postprocess=("abtt:4", "normalize"))
    request = IndexingRequest(in_folder / ".ragembed", (docs,), None, config)
    (note,) = index_files(request).scan.warnings
    assert note == "abtt:4, normalize cannot be fitted on 3 chunks yet: fitting needs 5 chunks or more"
    (docs / "more.csv").write_text("text\n" + "\n".join(f"zebra {i} runs" for i in range(2)))
    assert index_files(request).scan.warnings == []
    with Store.open(in_folder / ".ragembed") as store:
        assert store.embedder.config.postprocess == ("abtt:4", "normalize")


def test_low_rank_vectors_give_a_warning_and_a_searchable_store(in_folder, tiny_config, monkeypatch):
    monkeypatch.setattr(fitting, "MIN_FIT", 2)
    folder = in_folder / "docs"
    folder.mkdir()
    for i, words in enumerate(itertools.permutations(["cat", "dog", "bird"])):
        (folder / f"{i}.txt").write_text(" ".join(words))
    config = tiny_config.replace(extractor="re:dim=32", weighting="uniform", postprocess=("abtt:3",))
    request = IndexingRequest(in_folder / ".ragembed", (folder,), None, config)
    (note,) = index_files(request).scan.warnings
    assert "the post-processors were not fitted: abtt:3 needs more directions" in note
    with Store.open(in_folder / ".ragembed") as store:
        assert not store.unfinished
        assert store.search("cat", 1, "dense")


def test_a_corpus_for_post_processors_is_encoded_once_and_needs_no_chunks(docs, in_folder, tiny_config, monkeypatch):
    corpus = in_folder / "corpus.txt"
    corpus.write_text("\n".join(f"zebra {word} alpha" for word in ("cat", "dog", "bird", "fish", "wing")))
    calls = []
    original = TransformerExtractor.encode

    def spy(self, texts, side, progress=None):
        calls.append((len(texts), side))
        return original(self, texts, side, progress)

    monkeypatch.setattr(TransformerExtractor, "encode", spy)
    config = tiny_config.replace(postprocess_corpus=str(corpus), query_fit="shared")
    index_files(IndexingRequest(in_folder / ".ragembed", (docs,), None, config))
    assert calls.count((5, "documents")) == 1
    with Store.open(in_folder / ".ragembed") as store:
        assert store.embedder.fitted_on.documents == 5
        assert store.embedder.config.postprocess == config.postprocess


def test_equivalent_settings_are_accepted(docs, in_folder, tiny_config):
    config = tiny_config.replace(weighting="idf", postprocess=("abtt",))
    index_files(IndexingRequest(in_folder / ".ragembed", (docs,), None, config))
    same = config.replace(weighting="idf:1", postprocess=("abtt:2",))
    assert index_files(IndexingRequest(in_folder / ".ragembed", (docs,), None, same)).encoded == 0
