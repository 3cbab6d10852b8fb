"""Boilerplate in stores of small corpora: out of the way of questions, never gone, the same in any order."""

import random
import shutil

import numpy as np
import pytest

from ragembed.errors import StoreDamagedError
from ragembed.indexes import RankingOptions, Store
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingOptions, IndexingRequest
from ragembed.indexes.storage import writer
from ragembed.indexes.storage.transactions import Database
from tests.conftest import WORDS

LICENCE = ["the writer of the store holds the lock of the store", "a reader of the store is in the folder of the store"]
HEADER = "".join(f"# {line}\n" for line in LICENCE)
QUERY = "the writer holds the lock of the store"
KEEP, STRIP = IndexingOptions(boilerplate="keep"), IndexingOptions(boilerplate="strip")
FILES = 14


def sentence(draw, count):
    return " ".join(draw.choices(WORDS[12:], k=count))


def module(number, header=HEADER):
    """A file whose header is a chunk of its own, for its functions are as long as a chunk may be."""
    draw = random.Random(number)
    functions = "".join(f"\n\ndef {WORDS[number]}{i}(x):\n    {sentence(draw, 30)}\n" for i in range(2))
    return f"{header}{functions}"


@pytest.fixture
def source(in_folder, monkeypatch):
    monkeypatch.setattr(fitting, "MIN_FIT", 2)
    folder = in_folder / "src"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"file{number}.go").write_text(module(number))
    return folder


@pytest.fixture
def run(in_folder, tiny_config):
    config = tiny_config.replace(extractor="re:dim=32")

    def index(*paths, options=None, store=None):
        return index_files(IndexingRequest(store or in_folder / ".ragembed", paths, options, config))

    return index


def chunks(folder):
    with Store.open(folder / ".ragembed") as store:
        return {record.id: (record.source, record.chunk) for record in store.chunks()}


def searched(folder):
    return {(source, chunk.text): chunk.searched for source, chunk in chunks(folder).values()}


def lines(folder):
    with Store.open(folder / ".ragembed") as store:
        return {line.line: line.files for line in store.boilerplate()}


def vectors(folder):
    """The raw vector of each chunk, by its id."""
    with Store.open(folder / ".ragembed") as store, store.snapshot() as view:
        found = view.connection.execute("SELECT id, row FROM chunks").fetchall()
        places = view.connection.execute("SELECT row, segment, position FROM vectors").fetchall()
        place = {row: (segment, position) for row, segment, position in places}
        segments = view.stores[0].segments()
        return {chunk: segments[place[row][0]].raw()[place[row][1]].tolist() for chunk, row in found}


def status(folder):
    with Store.open(folder / ".ragembed") as store:
        return store.status()["boilerplate"]


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_licence_headers_are_never_found(source, run, in_folder, mode):
    run(source)
    with Store.open(in_folder / ".ragembed") as store:
        others = [record.id for record in store.chunks() if record.chunk.searched != ""]
        assert len(others) == len(store) - FILES
        for where in (None, "path != 'nothing'"):
            found = [hit.id for hit in store.search(QUERY, len(store), mode, where=where)]
            assert set(found) <= set(others)
            assert mode == "lexical" or len(found) == len(others)


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_keep_finds_licence_headers(source, run, in_folder, mode):
    run(source, options=KEEP)
    with Store.open(in_folder / ".ragembed") as store:
        found = store.search(QUERY, 10, mode)
    assert sum("holds the lock" in hit.chunk.text for hit in found) > 5
    assert set(searched(in_folder).values()) == {None}
    assert lines(in_folder) == {}


def test_shown_text_is_complete(source, run, in_folder):
    run(source, options=KEEP)
    before = {chunk: (found[0], found[1].text, found[1].start_line) for chunk, found in chunks(in_folder).items()}
    run(options=STRIP)
    after = {chunk: (found[0], found[1].text, found[1].start_line) for chunk, found in chunks(in_folder).items()}
    assert after == before


def test_status_reports_lines_and_chunks(source, run, in_folder):
    run(source)
    assert lines(in_folder) == {f"# {line}": FILES for line in LICENCE}
    assert status(in_folder) == {"lines": 2, "chunks": FILES, "chunks_of_nothing_else": FILES}


def test_other_text_beside_a_header_is_searched(source, run, in_folder):
    for number in range(FILES):
        (source / f"file{number}.go").write_text(f"{HEADER}\nfunc {WORDS[number]}() {{}}\n")
    run(source)
    assert set(searched(in_folder).values()) == {f"func {WORDS[number]}() {{}}" for number in range(FILES)}
    assert status(in_folder) == {"lines": 2, "chunks": FILES, "chunks_of_nothing_else": 0}


def test_licence_file_keeps_its_text(source, run, in_folder):
    (source / "LICENSE").write_text("".join(f"{line}\n" for line in LICENCE))
    run(source)
    with Store.open(in_folder / ".ragembed") as store:
        assert store.search(QUERY, 1)[0].source == "src/LICENSE"


# One step after another


def made_at_once(in_folder, folder):
    """What a store of the files as they are now holds, with the embedder of the store that is there."""
    clean = in_folder / "clean"
    shutil.rmtree(clean, ignore_errors=True)
    clean.mkdir()
    with Store.open(in_folder / ".ragembed") as store:
        Store.create(clean / ".ragembed", store.embedder).close()
    shutil.copytree(folder, clean / folder.name)
    index_files(IndexingRequest(clean / ".ragembed", (clean / folder.name,)))
    return clean


def assert_as_made_at_once(in_folder, folder):
    clean = made_at_once(in_folder, folder)
    assert chunks(in_folder) == chunks(clean)
    assert lines(in_folder) == lines(clean)
    assert status(in_folder) == status(clean)
    stored, expected = vectors(in_folder), vectors(clean)
    assert stored.keys() == expected.keys()
    for chunk, vector in expected.items():
        np.testing.assert_allclose(stored[chunk], vector, atol=2e-3)
    with Store.open(in_folder / ".ragembed") as store:
        assert store.verify().problems == []


def test_random_edits_give_the_result_of_a_new_store(source, run, in_folder):
    run(source)
    draw = random.Random(2)
    other = "# red zebra and green zebra and blue zebra are one\n"
    for step in range(3):
        for file in draw.sample(sorted(source.iterdir()), 3):
            number = draw.randrange(20)
            file.write_text(module(number, draw.choice([HEADER, other, HEADER + other, ""])))
        for file in draw.sample(sorted(source.iterdir()), 2):
            file.unlink()
        (source / f"new{step}.go").write_text(module(step + 20, HEADER + other))
        (source / f"more{step}.go").write_text(module(step + 30, other))
        run()
        assert_as_made_at_once(in_folder, source)
    assert len(lines(in_folder)) == 3


def test_removed_files_lower_the_counts(source, run, in_folder):
    run(source)
    for number in range(FILES - 5):
        (source / f"file{number}.go").unlink()
    run()
    assert set(lines(in_folder).values()) == {5}
    (source / "file13.go").unlink()
    report = run()
    assert lines(in_folder) == {}
    assert report.encoded == 0  # a chunk of a header alone has the vector of its whole text all along
    assert set(searched(in_folder).values()) == {None}
    assert_as_made_at_once(in_folder, source)


def test_unchanged_corpus_changes_nothing(source, run, in_folder, monkeypatch):
    run(source)
    before = lines(in_folder), searched(in_folder)
    monkeypatch.setattr("ragembed.indexes.storage.boilerplate_store._kept", None)
    assert run().encoded == 0
    assert (lines(in_folder), searched(in_folder)) == before


def test_edit_does_not_read_other_chunks(source, run, monkeypatch):
    run(source)
    file = source / "file3.go"
    file.write_text(file.read_text() + "\n\ndef zebra():\n    zebra zebra zebra\n")
    monkeypatch.setattr("ragembed.indexes.indexing.index_run.restripped", None)
    assert 1 <= run().encoded <= 2


def test_changing_the_mode_reads_no_file(source, run, in_folder, monkeypatch):
    for number in range(FILES):
        (source / f"file{number}.go").write_text(f"{HEADER}\nfunc {WORDS[number]}() {{}}\n")
    run(source)
    stripped = chunks(in_folder)
    monkeypatch.setattr("ragembed.indexes.indexing.scan.read", None)
    assert run(options=KEEP).encoded == FILES
    assert set(searched(in_folder).values()) == {None}
    assert run().encoded == 0  # the option is kept
    assert run(options=STRIP).encoded == FILES
    assert chunks(in_folder) == stripped


# Interruption


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", [1, 5, 11])
def test_killed_run_is_continued(source, run, in_folder, monkeypatch, at):
    """Files come that make lines boilerplate; the run ends before one of its commits, and some of them go again."""
    monkeypatch.setattr(writer, "BATCH", 4)
    monkeypatch.setattr("ragembed.indexes.indexing.index_run.BATCH", 4)
    some = sorted(source.iterdir())[4:]
    texts = {file: file.read_text() for file in some}
    for file in some:
        file.unlink()
    run(source)
    for file in some:
        file.write_text(texts[file])
    original, commits = Database.transaction, []

    def killed(self):
        commits.append(1)
        if len(commits) == at:
            raise Killed
        return original(self)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "transaction", killed)
        with pytest.raises(Killed):
            run()
    with Store.open(in_folder / ".ragembed") as store:
        assert store.verify().problems == []
        assert store.search(QUERY, 3)
    for file in some[at % 3 :]:
        file.unlink()
    run()
    assert_as_made_at_once(in_folder, source)
    assert not Store.open(in_folder / ".ragembed").unfinished


# Stores of before, and damaged ones


def test_files_without_stored_lines_are_counted(source, run, in_folder):
    run(source, options=KEEP)
    with Store.open(in_folder / ".ragembed") as store, store.writer() as opened, opened._database.transaction():
        opened._connection.execute("DELETE FROM source_lines")
        opened._connection.execute("DELETE FROM meta WHERE key = 'boilerplate'")
    run(options=STRIP)
    assert lines(in_folder) == {f"# {line}": FILES for line in LICENCE}
    assert_as_made_at_once(in_folder, source)


def test_lines_of_a_wrong_size_are_damage(source, run, in_folder):
    run(source)
    with Store.open(in_folder / ".ragembed") as store, store.writer() as opened, opened._database.transaction():
        opened._connection.execute("UPDATE source_lines SET keys = x'010203'")
    (source / "file0.go").unlink()
    with pytest.raises(StoreDamagedError, match="3 bytes for the lines"):
        run()


# Searching


@pytest.mark.parametrize("mode", ["dense", "hybrid", "lexical"])
def test_text_of_a_second_chunk_is_found_there(tmp_path, encoder, make_record, mode):
    """A chunk of boilerplate alone shares its vector with the file that the text belongs to."""
    text = "the lock of the store"
    with Store.create(tmp_path / "store", encoder) as store:
        store.add([make_record("header", text, searched=""), make_record("licence", text), make_record("o", "a zebra")])
        found = [hit.id for hit in store.search(text, 3, mode)]
        assert found == (["licence"] if mode == "lexical" else ["licence", "o"])
        assert store.search("lock", 3, mode, where={"id": 1}) == []


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
@pytest.mark.parametrize(
    "ranking", [None, RankingOptions(dedupe=True), RankingOptions(mmr=0.9), RankingOptions(per_file=1)], ids=str
)
def test_boilerplate_chunks_do_not_displace_results(tmp_path, encoder, make_record, mode, ranking):
    headers = [make_record(f"h{i}", f"the lock {i} of the store", searched="", title="lock") for i in range(500)]
    others = [make_record("one", "a zebra locks"), make_record("two", "two zebras, one lock")]
    with Store.create(tmp_path / "store", encoder) as store:
        store.add([*headers, *others])
        found = store.search("the lock 7 of the store", 4, mode, ranking=ranking)
        assert {hit.id for hit in found} == {"one", "two"}
        assert {hit.id for hit in store.search_mmr("the lock 7 of the store", 4)} == {"one", "two"}
