"""Verification: every altered byte is reported with its file, nothing is changed, and repair rebuilds what it can."""

import hashlib
import json
import random
import shutil
import sqlite3
from contextlib import closing

import faiss
import numpy as np
import pytest
import safetensors.numpy

from ragembed import Embedder
from ragembed.errors import (
    StoreDamagedError,
)
from ragembed.indexes import Store, verification
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.integrity import Part
from ragembed.indexes.storage import schema
from ragembed.indexes.storage.copying import copy_store
from ragembed.indexes.storage.schema import FORMAT_VERSION
from ragembed.indexes.verification import verify_store
from tests.conftest import WORDS, KnownEncoder, record
from tests.indexes.tampering import edit, rename_hash

NO_CONTENT = ("store.db-shm", "writer.lock", "writer.pid")
MODES = ("dense", "lexical", "hybrid")


def name_of(file, store):
    return file.relative_to(store).as_posix()


def files_of(store):
    """Return the files of a store, except SQLite's shared memory and the writer's lock, which hold no data."""
    found = [file for file in store.rglob("*") if file.is_file() and file.name not in NO_CONTENT]
    return sorted(file for file in found if file.name != "store.db-wal" or file.stat().st_size > 0)


def hashes(store):
    return {name_of(file, store): hashlib.sha256(file.read_bytes()).hexdigest() for file in files_of(store)}


def only(store, pattern):
    [file] = store.glob(pattern)
    return file


def flip(file, offset, mask=0x10):
    data = bytearray(file.read_bytes())
    data[offset] ^= mask
    file.write_bytes(data)


def damage(file):
    flip(file, file.stat().st_size // 2)


def found_parts(report):
    return {(problem.part, problem.file) for problem in report.problems}


@pytest.fixture(scope="module")
def known_template(tmp_path_factory):
    """A store of 30 chunks in three segments, with some unused rows."""
    path = tmp_path_factory.mktemp("known") / "store"
    with Store.create(path, KnownEncoder()) as store:
        for start in (0, 10, 20):
            store.add(
                [
                    record(f"id{i}", f"text number {i} of {WORDS[i]}", title="T", metadata={"i": i})
                    for i in range(start, start + 10)
                ]
            )
        store.delete(["id3", "id14", "id15"])
    return path


@pytest.fixture
def known(known_template, tmp_path):
    return shutil.copytree(known_template, tmp_path / "store")


@pytest.fixture
def killed(known, tmp_path):
    """The store as a killed process leaves it, with commits in the log."""
    with Store.open(known, KnownEncoder()) as store, store.writer() as writer:
        writer.stage(["late text"])
        writer.commit(chunks=[record("late", "late text")])
        writer.delete(["id20"])
        path = shutil.copytree(known, tmp_path / "killed")
    assert (path / "store.db-wal").stat().st_size > 0
    return path


@pytest.fixture(scope="module")
def tiny_template(tmp_path_factory, tiny_config):
    """A folder ``docs`` of eight files, and beside it the store that ``index_files`` makes from it."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "docs").mkdir()
    draw = random.Random(5)
    for i in range(8):
        paragraphs = [" ".join(draw.choices(WORDS, k=30)) for _ in range(6)]
        (folder / "docs" / f"file{i}.md").write_text(f"# File {i}\n\n" + "\n\n".join(paragraphs) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "MIN_FIT", 2)
        index_files(IndexingRequest(folder / ".ragembed", (folder / "docs",), embedder=tiny_config))
    return folder


@pytest.fixture
def tiny(tiny_template, tmp_path):
    return shutil.copytree(tiny_template, tmp_path / "tiny") / ".ragembed"


@pytest.fixture
def tiny_with_dead(tiny):
    """The same store with one file deleted, and few enough unused rows to keep."""
    with Store.open(tiny) as store:
        assert store.delete(paths=["docs/file2.md"]) > 0
        assert store.status()["unused_vectors"] > 0
    return tiny


def answers(store, embedder=None):
    """Return ids and scores of the ten best hits for some queries."""
    draw = random.Random(3)
    with Store.open(store, embedder) as opened:
        queries = [" ".join(draw.choices(WORDS, k=4)) for _ in range(6)]
        return [
            [(hit.id, round(hit.score, 6)) for hit in opened.search(query, 10, mode)]
            for query in queries
            for mode in MODES
        ]


def assert_same_answers(found, expected, tolerance=1e-3):
    assert len(found) == len(expected)
    for hits, wanted in zip(found, expected, strict=True):
        assert dict(hits).keys() == dict(wanted).keys()
        for chunk_id, score in wanted:
            assert dict(hits)[chunk_id] == pytest.approx(score, abs=tolerance)


# Undamaged stores


def test_healthy_store_has_no_problems_and_all_counts(known):
    report = verify_store(known, KnownEncoder())
    assert (report.problems, report.notes) == ([], [])
    assert (report.chunks, report.vectors, report.segments, report.canaries) == (27, 30, 3, 16)
    kept = [file for file in known.rglob("*") if file.is_file() and file.name not in NO_CONTENT]
    assert report.files >= len(kept)
    assert report.bytes >= sum(file.stat().st_size for file in kept)


def test_verify_changes_no_byte(known, killed, tiny):
    for store, embedder in ((known, KnownEncoder()), (killed, KnownEncoder()), (tiny, None)):
        before = hashes(store)
        verify_store(store, embedder)
        assert hashes(store) == before


def test_missing_external_embedder_is_noted(known):
    report = verify_store(known)
    assert report.problems == []
    assert report.notes == [
        "vectors were not compared with texts: they were made by known, which was not passed to the verification"
    ]
    assert report.canaries == 0


# Rows


ALTERED = {
    "chunks": "UPDATE chunks SET metadata = '{}' WHERE id = 'id7'",
    "sources": "UPDATE sources SET path = 'docs/file9.md' WHERE id = 1",
    "meta": "UPDATE meta SET value = '0.9' WHERE key = 'ragembed'",
    "segments": "UPDATE segments SET raw_sha256 = index_sha256",
    "skipped": "INSERT INTO skipped VALUES ('a', 'b')",
    "run_records": "UPDATE run_records SET updated_at = updated_at + 1e-6",
    "derived": "INSERT INTO derived VALUES ('a', 'postings', 'b', 1, 1, 1)",
    "stale_postings": "INSERT INTO stale_postings VALUES (1, 1)",
    "rewritten": "INSERT INTO rewritten VALUES (1, 'a', 'b', 1, 'flat', 'c', 'd')",
}


@pytest.mark.parametrize("table", schema.TABLES)
def test_altered_row_is_reported_with_its_table(tiny, table):
    with Store.open(tiny) as store:
        store.add([record("id7", "the cat", metadata={"i": 7})])
        store.run_records("notes").note(["id7"])
    edit(tiny, ALTERED[table], digests_too=False)
    problems = verify_store(tiny).problems
    assert f"the rows of {table} do not match their digest" in {problem.message for problem in problems}


def test_every_write_updates_the_digests(tiny):
    """Rows are added, replaced, deleted, deleted by a cascade, and rewritten."""
    with Store.open(tiny) as store:
        store.add([record(f"id{i}", f"the cat {i}") for i in range(4)])
        store.run_records("notes").note(["id1", "id2"], ["a", "b"])
        store.run_records("notes").note(["id1"], ["c"])
        store.add([record("id1", "the dog")])
        store.delete(["id2"], paths=["docs/file1.md"])
        with store.writer() as writer:
            writer.set_skipped({"docs/x.pdf": "no PDF"}, ["docs"])
            writer.set_skipped({"docs/x.pdf": "a broken PDF"}, ["docs"])
        store.optimize()
    (tiny.parent / "docs" / "file3.md").write_text("# Another\n\nthe bird\n")
    index_files(IndexingRequest(tiny))
    refit_store(tiny, ("normalize",), "shared")
    assert verify_store(tiny).problems == []


def test_other_programs_cannot_change_rows_with_digests(known):
    with closing(sqlite3.connect(known / "store.db")) as connection:
        for statement in ALTERED.values():
            with pytest.raises(sqlite3.OperationalError, match="no such function"):
                connection.execute(statement.partition(" WHERE ")[0])


def test_log_of_an_older_generation_is_refused_and_not_applied(killed, tmp_path):
    log = (killed / "store.db-wal").read_bytes()
    with Store.open(killed, KnownEncoder()) as store:
        store.add([record("more", "more")])
        store.delete(["id21"])
    expected = hashes(killed)
    for name in ("store.db-wal", "store.db-shm"):
        (killed / name).unlink(missing_ok=True)
    (killed / "store.db-wal").write_bytes(log)
    with pytest.raises(StoreDamagedError, match="or is an older one, which you can delete with"):
        Store.open(killed, KnownEncoder())
    [problem] = verify_store(killed, KnownEncoder()).problems
    assert problem.part == Part.LOG
    for name in ("store.db-wal", "store.db-shm"):
        (killed / name).unlink()
    assert hashes(killed) == expected
    assert verify_store(killed, KnownEncoder()).problems == []


@pytest.mark.parametrize("change", ["damaged", "removed"])
def test_lost_commits_are_reported_and_refused(killed, change, tmp_path):
    log = killed / "store.db-wal"
    flip(log, 40) if change == "damaged" else log.unlink()
    for _ in range(2):
        [problem] = verify_store(killed, KnownEncoder()).problems
        assert (problem.part, problem.file) == (Part.LOG, "store.db-wal")
        assert problem.message.startswith("commits are lost: store.db has generation 8, the last commit was 11;")
        with pytest.raises(StoreDamagedError, match="commits are lost"):
            Store.open(killed, KnownEncoder())
        with pytest.raises(StoreDamagedError, match="commits are lost"):
            copy_store(killed, tmp_path / "copy")
    report = verify_store(killed, KnownEncoder(), repair=True, trust_database=True)
    assert ([problem.part for problem in report.repaired], report.problems) == ([Part.LOG], [])
    with Store.open(killed, KnownEncoder()) as store:
        store.add([record("more", "more")])
    assert verify_store(killed, KnownEncoder()).problems == []


@pytest.mark.parametrize("pattern", ["segments/*/raw.f16", "segments/*/index.faiss", "embedders/*/*"])
def test_missing_and_truncated_files_are_reported(known, pattern):
    file = sorted(known.glob(pattern))[0]
    original = file.read_bytes()
    for size in (0, len(original) - 1):
        file.write_bytes(original[:size])
        assert name_of(file, known) in {problem.file for problem in verify_store(known, KnownEncoder()).problems}, size
    file.unlink()
    assert name_of(file, known) in {problem.file for problem in verify_store(known, KnownEncoder()).problems}


def test_missing_folders_are_reported(known):
    segment = sorted((known / "segments").iterdir())[0]
    shutil.rmtree(segment)
    files = {f"segments/{segment.name}/raw.f16", f"segments/{segment.name}/index.faiss"}
    assert {problem.file for problem in verify_store(known, KnownEncoder()).problems} == files
    shutil.rmtree(known / "segments")
    shutil.rmtree(known / "embedders")
    report = verify_store(known, KnownEncoder())
    assert len(report.problems) == 7
    assert {problem.message for problem in report.problems} == {"it is missing"}


def test_verify_empty_store_without_folders(tmp_path):
    Store.create(tmp_path / "s", KnownEncoder()).close()
    (tmp_path / "s" / "segments").rmdir()
    report = verify_store(tmp_path / "s", KnownEncoder())
    assert (report.problems, report.notes, report.canaries) == ([], [], 0)


def test_uncommitted_folder_is_noted(known):
    (known / "segments" / "0f8fad5b-d9cb-469f-a165-70867728950e").mkdir()
    report = verify_store(known, KnownEncoder())
    assert report.problems == []
    assert report.notes == ["1 entries of segments belong to no commit: the next run removes them"]


# Wrong contents with a matching hash


@pytest.mark.parametrize("size", [0, 159, 320])
def test_raw_vectors_of_another_size_are_reported(known, size):
    file = sorted(known.glob("segments/*/raw.f16"))[0]
    file.write_bytes(bytes(size))
    rename_hash(known, file, "raw_sha256")
    assert (Part.RAW, name_of(file, known)) in found_parts(verify_store(known, KnownEncoder()))


def test_non_finite_value_is_reported(known):
    file = sorted(known.glob("segments/*/raw.f16"))[0]
    raw = np.fromfile(file, "<f2")
    raw[17] = np.nan
    raw.tofile(file)
    rename_hash(known, file, "raw_sha256")
    report = verify_store(known, KnownEncoder())
    assert found_parts(report) == {(Part.RAW, name_of(file, known))}
    assert "not finite" in report.problems[0].message


def test_index_that_differs_from_raw_vectors_is_reported(known):
    first, second = sorted(known.glob("segments/*/index.faiss"))[:2]
    index = faiss.read_index(str(first))
    vectors = index.index.reconstruct_n(0, 10)
    vectors[4] = vectors[5]
    other = faiss.IndexIDMap(faiss.IndexFlatIP(8))
    other.add_with_ids(vectors, faiss.vector_to_array(index.id_map))
    faiss.write_index(other, str(first))
    rename_hash(known, first, "index_sha256")
    shutil.copyfile(known / name_of(first, known), known / name_of(second, known))
    rename_hash(known, second, "index_sha256")
    messages = {problem.file: problem.message for problem in verify_store(known, KnownEncoder()).problems}
    assert messages == {
        name_of(first, known): "the vectors in the index are not those that the embedder makes from the raw vectors",
        name_of(second, known): "the ids in the index are not the rows that the database names",
    }


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO tombstones SELECT row FROM chunks LIMIT 1",
        "DELETE FROM tombstones",
        "UPDATE vectors SET position = position + 1 WHERE row = (SELECT max(row) FROM vectors)",
        "DELETE FROM vectors WHERE row = 1",
        "UPDATE chunks SET row = 999 WHERE key = 1",
    ],
)
def test_inconsistent_rows_are_reported(known, statement):
    edit(known, f"PRAGMA foreign_keys = OFF; {statement};")
    assert (Part.DATABASE, "store.db") in found_parts(verify_store(known, KnownEncoder()))


@pytest.mark.parametrize(
    "change",
    [
        "text = 'another text'",
        "headings = '[\"H\"]'",
        "metadata = '['",
        f"metadata = '{'[' * 100_000}'",
    ],
)
def test_changed_chunk_is_found_by_its_text_hash(known, change):
    edit(known, f"UPDATE chunks SET {change} WHERE id = 'id7'")
    report = verify_store(known, KnownEncoder())
    assert (Part.DATABASE, "store.db") in found_parts(report)


UNWRITE = (
    "INSERT INTO chunks_fts (chunks_fts, rowid, title, headings, text)"
    " SELECT 'delete', key, title, headings, text FROM chunks WHERE id = 'id7'"
)


@pytest.mark.parametrize(
    "statement",
    [
        UNWRITE,
        "INSERT INTO chunks_fts (rowid, title, headings, text) VALUES (7, 'T', '[]', 'zebra')",
        "INSERT INTO chunks_fts (chunks_fts) VALUES ('delete-all')",
        "DELETE FROM chunks_fts_data WHERE id > 10",
    ],
)
def test_wrong_full_text_index_is_reported_and_rebuilt(known, statement):
    before = answers(known, KnownEncoder())
    edit(known, statement)
    assert found_parts(verify_store(known, KnownEncoder())) == {(Part.WORDS, "store.db")}
    report = verify_store(known, KnownEncoder(), repair=True)
    assert (report.problems, report.notes) == ([], [])
    assert {problem.part for problem in report.repaired} == {Part.WORDS}
    assert_same_answers(answers(known, KnownEncoder()), before, 1e-6)


class Other(KnownEncoder):
    """An encoder with the name of the known one, which encodes documents with ``made(texts)``."""

    def __init__(self, made):
        super().__init__()
        self.made = made

    def raw_documents(self, texts, progress=None):
        return self.made(super().raw_documents(texts, progress))


@pytest.mark.parametrize(
    "made", [lambda vectors: vectors[:, ::-1].copy(), lambda vectors: vectors[:, :5]], ids=["reversed", "shorter"]
)
def test_changed_model_is_reported(known, made):
    report = verify_store(known, Other(made))
    assert {problem.part for problem in report.problems} == {Part.CANARY}
    repaired = verify_store(known, Other(made), repair=True)
    assert {problem.part for problem in repaired.problems} == {Part.CANARY}
    assert verify_store(known, KnownEncoder()).problems == []


# Searching a damaged store


def test_damaged_raw_vectors_are_refused(known):
    for file in known.glob("segments/*/raw.f16"):
        damage(file)
    with Store.open(known, KnownEncoder()) as store:
        assert store.search("text", 3, "dense")
        with pytest.raises(StoreDamagedError, match=r"raw\.f16 does not match its committed hash.*doctor --repair"):
            store.vectors(["id1"])
        with pytest.raises(StoreDamagedError, match=r"raw\.f16"):
            store.optimize()
    assert verify_store(known, KnownEncoder(), repair=True).problems == []


@pytest.mark.parametrize("name", ["config.json", "state.safetensors"])
def test_damaged_embedder_is_refused_before_it_is_read(tiny, name, monkeypatch):
    damage(only(tiny, f"embedders/*/{name}"))
    monkeypatch.setattr(safetensors.numpy, "load", lambda data: pytest.fail("read"))
    monkeypatch.setattr(Embedder, "load", lambda *args, **kwargs: pytest.fail("loaded"))
    with Store.open(tiny) as store, pytest.raises(StoreDamagedError, match=rf"{name} does not match.*doctor --repair"):
        store.search("heat")
    assert found_parts(verify_store(tiny)) == {(Part.EMBEDDER, name_of(only(tiny, f"embedders/*/{name}"), tiny))}


# Repairing


def test_repair_of_a_healthy_store_changes_nothing(known):
    before = hashes(known)
    report = verify_store(known, KnownEncoder(), repair=True)
    assert (report.problems, report.repaired, report.notes) == ([], [], [])
    assert hashes(known) == before


@pytest.mark.parametrize(
    ("names", "state"),
    [
        (["segments/*/index.faiss"], "live"),
        (["segments/*/raw.f16"], "live"),
        (["segments/*/raw.f16", "segments/*/index.faiss"], "dead"),
    ],
)
def test_damaged_segments_are_rebuilt(tiny, names, state):
    if state == "dead":
        with Store.open(tiny) as store:
            store.delete(paths=["docs/file2.md"])
            assert store.status()["unused_vectors"] > 0
    before = answers(tiny)
    damaged = [only(tiny, name) for name in names]
    for file in damaged:
        damage(file)
    assert {problem.file for problem in verify_store(tiny).problems} == {name_of(file, tiny) for file in damaged}
    report = verify_store(tiny, repair=True)
    assert (report.problems, report.notes) == ([], [])
    assert {problem.file for problem in report.repaired} == {name_of(file, tiny) for file in damaged}
    assert verify_store(tiny).problems == []
    assert_same_answers(answers(tiny), before)
    with Store.open(tiny) as store:
        assert "segments/*/raw.f16" not in names or store.status()["unused_vectors"] == 0
        store.add([record("new", "the zebra sleeps")])
        assert store.search("zebra sleeps", 1, "dense")[0].id == "new"


@pytest.mark.parametrize(
    ("names", "raw"), [(["state.safetensors"], False), (["config.json", "state.safetensors"], True), ([], False)]
)
def test_damaged_embedder_is_fitted_again(tiny, names, raw):
    before = answers(tiny)
    for name in names:
        damage(only(tiny, f"embedders/*/{name}"))
    if not names:
        shutil.rmtree(only(tiny, "embedders/*"))
    if raw:
        damage(only(tiny, "segments/*/raw.f16"))
    report = verify_store(tiny, repair=True)
    assert (report.problems, report.notes) == ([], [])
    assert {problem.part for problem in report.repaired} == {Part.EMBEDDER, *([Part.RAW] if raw else [])}
    assert_same_answers(answers(tiny), before)
    assert len(list((tiny / "embedders").iterdir())) == len(list((tiny / "segments").iterdir())) == 1


def test_embedder_is_not_fitted_on_a_changed_corpus(tiny_with_dead):
    damage(only(tiny_with_dead, "embedders/*/state.safetensors"))
    before = hashes(tiny_with_dead)
    report = verify_store(tiny_with_dead, repair=True)
    assert {problem.part for problem in report.problems} == {Part.EMBEDDER}
    assert report.repaired == []
    [note] = report.notes
    assert note.startswith("cannot rebuild everything: cannot fit the token weights of the damaged embedder")
    assert hashes(tiny_with_dead) == before


def test_external_embedder_is_saved_again_if_given(known):
    damage(only(known, "embedders/*/known.json"))
    left = verify_store(known, repair=True)
    assert {problem.part for problem in left.problems} == {Part.EMBEDDER}
    assert any("open the store with it" in note for note in left.notes)
    report = verify_store(known, KnownEncoder(), repair=True)
    assert (report.problems, report.notes) == ([], [])
    assert only(known, "embedders/*/known.json").read_text() == '"known"'


def test_repair_does_not_write_through_symbolic_links(known, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (known / ".gitignore").unlink()
    (known / ".gitignore").symlink_to(victim)
    report = verify_store(known, KnownEncoder(), repair=True)
    assert report.problems == []
    assert [problem.part for problem in report.repaired] == [Part.FOLDER]
    assert victim.read_text() == "precious"
    assert not (known / ".gitignore").is_symlink()


@pytest.mark.parametrize("change", ["page", "text", "cut", "log"])
def test_damaged_database_is_not_repaired(known, killed, change):
    store = killed if change == "log" else known
    if change == "page":
        flip(store / "store.db", store.joinpath("store.db").read_bytes().index(b"text number 7"))
    elif change == "text":
        edit(store, "UPDATE chunks SET text = 'another text' WHERE id = 'id7'")
    elif change == "cut":
        (store / "store.db").write_bytes((store / "store.db").read_bytes()[:-4096])
    else:
        damage(store / "store.db-wal")
    damage(sorted(store.glob("segments/*/index.faiss"))[0])
    before = hashes(store)
    report = verify_store(store, KnownEncoder(), repair=True)
    assert report.parts() & {Part.DATABASE, Part.LOG}
    assert report.repaired == []
    [note] = report.notes
    assert note.startswith("store.db holds the texts and cannot be rebuilt: restore a copy")
    assert hashes(store) == before


def test_altered_rows_need_trust_database(known):
    edit(known, "UPDATE chunks SET metadata = '{\"edited\": 1}' WHERE id = 'id7'", digests_too=False)
    assert {problem.part for problem in verify_store(known, KnownEncoder()).problems} == {Part.ROWS}
    before = hashes(known)
    report = verify_store(known, KnownEncoder(), repair=True)
    assert ({problem.part for problem in report.problems}, report.repaired) == ({Part.ROWS}, [])
    assert any("--trust-database" in note for note in report.notes)
    assert hashes(known) == before
    report = verify_store(known, KnownEncoder(), repair=True, trust_database=True)
    assert (report.problems, report.notes) == ([], [])
    assert {problem.part for problem in report.repaired} == {Part.ROWS}
    with Store.open(known, KnownEncoder()) as store:
        assert store.get(["id7"])[0].chunk.metadata == {"edited": 1}
        store.add([record("more", "more")])
    assert verify_store(known, KnownEncoder()).problems == []


@pytest.mark.parametrize("change", ["text = 'another text'", "row = 99", "headings = '{'"])
def test_inconsistent_rows_are_never_trusted(known, change):
    edit(known, f"PRAGMA foreign_keys = OFF; UPDATE chunks SET {change} WHERE id = 'id7';", digests_too=False)
    before = hashes(known)
    report = verify_store(known, KnownEncoder(), repair=True, trust_database=True)
    assert Part.DATABASE in {problem.part for problem in report.problems}
    assert report.repaired == []
    assert hashes(known) == before


# Concurrent access and permissions


def test_full_text_index_is_not_checked_in_a_read_only_folder(known, monkeypatch):
    monkeypatch.setattr(verification.os, "access", lambda path, mode: False)
    before = hashes(known)
    report = verify_store(known, KnownEncoder())
    assert report.problems == []
    assert report.notes == ["the full-text index was not checked: the folder is not writable"]
    assert report.canaries == 16
    damage(sorted(known.glob("segments/*/raw.f16"))[0])
    assert {problem.part for problem in verify_store(known, KnownEncoder()).problems} == {Part.RAW}
    assert hashes(known).keys() == before.keys()


# Malicious stores


@pytest.mark.parametrize("data", [b"", b"IxMp" + bytes(200)])
def test_invalid_index_file_is_refused_before_faiss_reads_it(known, data, monkeypatch):
    file = sorted(known.glob("segments/*/index.faiss"))[0]
    file.write_bytes(data)
    rename_hash(known, file, "index_sha256")
    edit(known, ("DELETE FROM segments WHERE folder <> ?", (file.parent.name,)))
    monkeypatch.setattr(faiss, "read_index", lambda *args: pytest.fail("read"))
    with Store.open(known, KnownEncoder()) as store, pytest.raises(StoreDamagedError, match="expected a FAISS index"):
        store.search("text", 3, "dense")


_HIDDEN_IN_A_COMMENT = (
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, '''delete''',"
    " '''--''); DELETE FROM sources; SELECT (''' || char(10) || 'delete''') WHERE name = 'chunks_deleted'"
)
"""A trigger with another statement in what looks like a comment, but follows a text that begins with two hyphens."""


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER evil AFTER INSERT ON chunks BEGIN DELETE FROM chunks; END",
        "CREATE TABLE evil (x)",
        "DROP TRIGGER chunks_inserted",
        "CREATE TRIGGER chunks AFTER INSERT ON chunks BEGIN DELETE FROM chunks; END",
        "CREATE TRIGGER chunks_by_row AFTER INSERT ON chunks BEGIN SELECT 1; END",
        "DROP INDEX chunks_by_row; CREATE INDEX chunks_by_row ON chunks (source)",
        _HIDDEN_IN_A_COMMENT,
    ],
)
def test_another_schema_is_refused(known, statement):
    edit(known, statement)
    with pytest.raises(StoreDamagedError, match=f"does not have the tables of a store of format {FORMAT_VERSION}"):
        Store.open(known, KnownEncoder())
    assert found_parts(verify_store(known, KnownEncoder())) == {(Part.DATABASE, "store.db")}


@pytest.mark.parametrize("name", ["../../victim", "0f8fad5b-d9cb-469f-a165-70867728950e/../x"])
def test_names_outside_the_store_are_refused(known, tmp_path, name):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "raw.f16").write_bytes(b"precious")
    folder = sorted((known / "segments").iterdir())[0].name
    edit(known, ("UPDATE segments SET folder = ? WHERE folder = ?", (name, folder)))
    with Store.open(known, KnownEncoder()) as store:
        with pytest.raises(StoreDamagedError, match="names a segment"):
            store.search("text", 3, "dense")
        with pytest.raises(StoreDamagedError, match="names a segment"):
            store.add([record("x", "y")])
    report = verify_store(known, KnownEncoder(), repair=True)
    assert found_parts(report) == {(Part.DATABASE, "store.db")}
    assert (victim / "raw.f16").read_bytes() == b"precious"


@pytest.mark.parametrize("fingerprint", ["../../victim", "0" * 31])
def test_embedder_name_outside_the_store_is_refused(known, fingerprint):
    with closing(sqlite3.connect(known / "store.db")) as connection:
        about = json.loads(connection.execute("SELECT value FROM meta WHERE key = 'embedder'").fetchone()[0])
    about["fingerprint"] = fingerprint
    edit(known, ("UPDATE meta SET value = ? WHERE key = 'embedder'", (json.dumps(about),)))
    with Store.open(known, KnownEncoder()) as store, pytest.raises(StoreDamagedError, match="expected a hash"):
        store.search("text", 3, "dense")
    assert found_parts(verify_store(known, KnownEncoder())) == {(Part.DATABASE, "store.db")}


def test_truncated_index_is_refused(known):
    file = sorted(known.glob("segments/*/index.faiss"))[0]
    file.write_bytes(file.read_bytes()[:120])
    rename_hash(known, file, "index_sha256")
    with (
        Store.open(known, KnownEncoder()) as store,
        pytest.raises(StoreDamagedError, match="lies outside the file"),
    ):
        store.search("text", 3, "dense")
    assert found_parts(verify_store(known, KnownEncoder())) == {(Part.INDEX, name_of(file, known))}
