"""Verification: every altered byte is reported with its file, nothing is changed, and repair rebuilds what it can."""

import hashlib
import json
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import faiss
import numpy as np
import pytest
import safetensors.numpy

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import (
    BudgetError,
    IncompatibleStoreError,
    RagembedError,
    StoreDamagedError,
    StoreLockedError,
    StoreNotFoundError,
)
from ragembed.indexes import Store, verification
from ragembed.indexes.faiss_index.records import (
    Budget,
    IndexConfig,
    IndexEvaluation,
    IndexSelection,
    Measurement,
    Recall,
)
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.integrity import Part
from ragembed.indexes.storage import reader, schema
from ragembed.indexes.storage.copying import copy_store
from ragembed.indexes.storage.schema import FORMAT_VERSION
from ragembed.indexes.verification import verify_store
from tests.conftest import WORDS, KnownEncoder, record
from tests.indexes.tampering import edit, rename_hash

FLIPS = 24
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


def test_healthy_indexed_store_has_no_problems(tiny, tiny_with_dead):
    report = verify_store(tiny)
    assert (report.problems, report.notes) == ([], [])
    assert report.canaries == 16


def test_verify_store_without_chunks(tmp_path):
    Store.create(tmp_path / "s", KnownEncoder()).close()
    report = verify_store(tmp_path / "s", KnownEncoder())
    assert (report.problems, report.notes, report.canaries) == ([], [], 0)


def test_store_of_a_killed_process_has_no_problems(killed):
    report = verify_store(killed, KnownEncoder())
    assert (report.problems, report.notes) == ([], [])
    assert report.chunks == 27
    assert answers(killed, KnownEncoder())


def test_store_verify_method(known):
    with Store.open(known, KnownEncoder()) as store:
        assert store.verify().problems == []


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


def test_verify_without_a_store(tmp_path):
    with pytest.raises(StoreNotFoundError, match="ragembed index PATH"):
        verify_store(tmp_path / "nothing")


# Altered bytes


@pytest.mark.parametrize("pattern", ["segments/*/raw.f16", "segments/*/index.faiss", "embedders/*/*"])
def test_altered_byte_is_reported_with_its_file(known, pattern):
    draw = random.Random(pattern)
    file = sorted(known.glob(pattern))[0]
    name, original = name_of(file, known), file.read_bytes()
    for offset in sorted(draw.sample(range(len(original)), min(FLIPS, len(original)))):
        flip(file, offset, draw.randint(1, 255))
        report = verify_store(known, KnownEncoder())
        assert name in {problem.file for problem in report.problems}, offset
        assert all(problem.message for problem in report.problems)
        file.write_bytes(original)
    assert verify_store(known, KnownEncoder()).problems == []


@pytest.mark.parametrize("pattern", ["embedders/*/config.json", "embedders/*/state.safetensors"])
def test_altered_byte_of_an_embedder_is_reported_with_its_file(tiny, pattern):
    draw = random.Random(pattern)
    file = only(tiny, pattern)
    original = file.read_bytes()
    for offset in draw.sample(range(len(original)), 8):
        flip(file, offset, draw.randint(1, 255))
        assert found_parts(verify_store(tiny)) == {(Part.EMBEDDER, name_of(file, tiny))}, offset
        file.write_bytes(original)


# Rows


ALTERED = {
    "chunks": "UPDATE chunks SET metadata = '{}' WHERE id = 'id7'",
    "sources": "UPDATE sources SET path = 'docs/file9.md' WHERE id = 1",
    "meta": "UPDATE meta SET value = '0.9' WHERE key = 'ragembed'",
    "segments": "UPDATE segments SET raw_sha256 = index_sha256",
    "skipped": "INSERT INTO skipped VALUES ('a', 'b')",
    "run_records": "UPDATE run_records SET updated_at = updated_at + 1e-6",
    "boilerplate": "INSERT INTO boilerplate VALUES ('markdown', 'a line', 3)",
    "derived": "INSERT INTO derived VALUES ('a', 'postings', 'b', 1, 1, 1)",
    "stale_postings": "INSERT INTO stale_postings VALUES (1, 1)",
    "source_lines": "UPDATE source_lines SET keys = keys || x'00'",
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


def test_lost_and_duplicated_rows_are_reported(known):
    columns = "99, 'copy', row, source, text, title, headings, 1, 2, 3, 4, '{}', NULL, NULL"
    copy = f"INSERT INTO chunks SELECT {columns} FROM chunks"
    for i, statement in enumerate(("DELETE FROM chunks WHERE id = 'id7'", f"{copy} WHERE id = 'id7'")):
        store = shutil.copytree(known, known.with_name(f"copy{i}"))
        edit(store, statement, digests_too=False)
        assert (Part.ROWS, "store.db") in found_parts(verify_store(store, KnownEncoder()))


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


def test_other_programs_can_run_a_checkpoint(killed):
    before = answers(killed, KnownEncoder())
    with closing(sqlite3.connect(killed / "store.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert not (killed / "store.db-wal").exists()
    assert verify_store(killed, KnownEncoder()).problems == []
    assert answers(killed, KnownEncoder()) == before


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
    for size in (0, 1, len(original) // 2, len(original) - 1):
        file.write_bytes(original[:size])
        assert name_of(file, known) in {problem.file for problem in verify_store(known, KnownEncoder()).problems}, size
    file.unlink()
    assert name_of(file, known) in {problem.file for problem in verify_store(known, KnownEncoder()).problems}


def test_truncated_database_is_reported(known):
    original = (known / "store.db").read_bytes()
    for size in (0, 1, 16, 100, 4096, len(original) // 2, len(original) - 4096, len(original) - 1):
        (known / "store.db").write_bytes(original[:size])
        report = verify_store(known, KnownEncoder())
        assert report.parts() & {Part.DATABASE, Part.ROWS}, size


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
    assert verify_store(tmp_path / "s", KnownEncoder()).problems == []


def test_uncommitted_folder_is_noted(known):
    (known / "segments" / "0f8fad5b-d9cb-469f-a165-70867728950e").mkdir()
    report = verify_store(known, KnownEncoder())
    assert report.problems == []
    assert report.notes == ["1 entries of segments belong to no commit: the next run removes them"]


def test_symbolic_link_instead_of_a_folder_is_reported(known, tmp_path):
    (known / "segments").rename(tmp_path / "elsewhere")
    (known / "segments").symlink_to(tmp_path / "elsewhere")
    assert (Part.DATABASE, "segments") in found_parts(verify_store(known, KnownEncoder()))


# Wrong contents with a matching hash


def test_another_dimension_is_reported(known):
    edit(known, "UPDATE meta SET value = '4' WHERE key = 'dim'")
    report = verify_store(known, KnownEncoder())
    assert {problem.part for problem in report.problems} == {Part.RAW}
    assert "160 bytes: expected 10 vectors of dimension 4" in report.problems[0].message


@pytest.mark.parametrize("size", [0, 2, 158, 159, 162, 320])
def test_raw_vectors_of_another_size_are_reported(known, size):
    file = sorted(known.glob("segments/*/raw.f16"))[0]
    file.write_bytes(bytes(size))
    rename_hash(known, file, "raw_sha256")
    assert (Part.RAW, name_of(file, known)) in found_parts(verify_store(known, KnownEncoder()))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_value_is_reported(known, value):
    file = sorted(known.glob("segments/*/raw.f16"))[0]
    raw = np.fromfile(file, "<f2")
    raw[17] = value
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
        "UPDATE vectors SET segment = (SELECT max(key) FROM segments) WHERE row = 1",
        "UPDATE segments SET rows = 11",
        "DELETE FROM vectors WHERE row = 1",
        "UPDATE chunks SET row = 999 WHERE key = 1",
        "UPDATE chunks SET source = 5 WHERE key = 1",
    ],
)
def test_inconsistent_rows_are_reported(known, statement):
    edit(known, f"PRAGMA foreign_keys = OFF; {statement};")
    assert (Part.DATABASE, "store.db") in found_parts(verify_store(known, KnownEncoder()))


@pytest.mark.parametrize(
    "change",
    [
        "text = 'another text'",
        "title = 'another title'",
        "headings = '[\"H\"]'",
        "text = x'ff00'",
        "headings = '{'",
        "headings = '7'",
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
    "made",
    [
        lambda vectors: -vectors,
        lambda vectors: vectors[:, ::-1].copy(),
        lambda vectors: np.zeros_like(vectors),
        lambda vectors: vectors[:, :5],
        lambda vectors: np.where(np.arange(8) == 2, np.nan, vectors),
    ],
    ids=["opposite", "reversed", "zero", "shorter", "nan"],
)
def test_changed_model_is_reported(known, made):
    report = verify_store(known, Other(made))
    assert {problem.part for problem in report.problems} == {Part.CANARY}
    repaired = verify_store(known, Other(made), repair=True)
    assert {problem.part for problem in repaired.problems} == {Part.CANARY}
    assert verify_store(known, KnownEncoder()).problems == []


def with_own_model(tiny, tiny_model):
    """Give the indexed store a model in its own folder, and return the model's folder."""
    model = shutil.copytree(tiny_model, tiny.parent / "model")
    shutil.rmtree(tiny)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "MIN_FIT", 2)
        config = EmbedderConfig(model=str(model), dtype="float32")
        index_files(IndexingRequest(tiny, (tiny.parent / "docs",), embedder=config))
    return model


@pytest.mark.parametrize("damaged", [False, True], ids=["embedder whole", "embedder damaged"])
@pytest.mark.parametrize("change", ["missing", "another"])
def test_store_without_its_model_is_verified_but_not_rebuilt(tiny, tiny_model, change, damaged):
    model = with_own_model(tiny, tiny_model)
    if change == "missing":
        model.rename(model.with_name("away"))
    else:
        weights = safetensors.numpy.load_file(model / "model.safetensors")
        weights = {name: array[::-1].copy() for name, array in weights.items()}
        safetensors.numpy.save_file(weights, model / "model.safetensors", {"format": "pt"})
    if damaged:
        damage(only(tiny, "embedders/*/state.safetensors"))
    part, name = (Part.EMBEDDER, "/state.safetensors") if damaged else (Part.CANARY, "")
    expected = {(part, f"embedders/{only(tiny, 'embedders/*').name}{name}")}
    assert found_parts(verify_store(tiny)) == expected
    before = hashes(tiny)
    report = verify_store(tiny, repair=True)
    assert found_parts(report) == expected
    assert (report.repaired, len(report.notes)) == ([], int(damaged))
    assert hashes(tiny) == before


# Searching a damaged store


def test_search_names_the_damaged_file(known):
    file = sorted(known.glob("segments/*/index.faiss"))[1]
    damage(file)
    with Store.open(known, KnownEncoder()) as store:
        with pytest.raises(StoreDamagedError, match=re.escape(str(file)) + r".*doctor --repair"):
            store.search("text", 3, "dense")
        assert store.search("text", 3, "lexical")
        with pytest.raises(StoreDamagedError, match=re.escape(str(file))):
            store.search("text", 3)


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


@pytest.mark.parametrize("state", ["live", "dead"])
@pytest.mark.parametrize(
    "names",
    [
        ["segments/*/index.faiss"],
        ["segments/*/raw.f16"],
        ["segments/*/raw.f16", "segments/*/index.faiss"],
    ],
    ids=" ".join,
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


def test_damaged_segment_without_used_rows_is_dropped(known):
    with Store.open(known, KnownEncoder()) as store, store.writer() as writer:
        writer.stage(["staged alone"])
    with closing(sqlite3.connect(known / "store.db")) as connection:
        [(folder,)] = connection.execute("SELECT folder FROM segments WHERE rows = 1")
    before = answers(known, KnownEncoder())
    damage(known / "segments" / folder / "raw.f16")
    report = verify_store(known, KnownEncoder(), repair=True)
    assert (report.problems, report.segments, len(report.repaired)) == ([], 3, 1)
    assert_same_answers(answers(known, KnownEncoder()), before, 1e-6)


def test_only_the_damaged_segment_is_rebuilt(known):
    encoder = KnownEncoder()
    before = answers(known, encoder)
    index, raw = sorted(known.glob("segments/*/index.faiss"))[0], sorted(known.glob("segments/*/raw.f16"))[1]
    damage(index)
    raw.unlink()
    kept = sorted(known.glob("segments/*"))[2]
    encoder.encoded = 0
    report = verify_store(known, encoder, repair=True)
    assert (report.problems, report.notes, len(report.repaired)) == ([], [], 2)
    assert kept.is_dir()
    assert not index.parent.exists()
    assert encoder.encoded < 30 + 16
    assert_same_answers(answers(known, encoder), before)


@pytest.mark.parametrize("names", [["state.safetensors"], ["config.json"], ["config.json", "state.safetensors"], []])
@pytest.mark.parametrize("raw", [False, True], ids=["raw whole", "raw damaged"])
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


def test_verify_waits_for_a_writer(known):
    script = (
        "import sys; from pathlib import Path; from ragembed.indexes.storage.lock import writer_lock\n"
        "with writer_lock(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(known)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError, match=rf"another process is writing to the store .* \(PID {holder.pid}\)"):
            verify_store(known, KnownEncoder())
        holder.stdin.close()
    assert verify_store(known, KnownEncoder()).problems == []


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


def test_another_format_is_not_reported_as_damage(known):
    edit(known, f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    for repair in (False, True):
        with pytest.raises(IncompatibleStoreError, match=rf"has format {FORMAT_VERSION + 1}.*index again"):
            verify_store(known, KnownEncoder(), repair=repair)


# Malicious stores


def _pq(vectors, ids):
    index = faiss.IndexIDMap(faiss.IndexPQ(8, 2, 2, faiss.METRIC_INNER_PRODUCT))
    index.train(np.tile(vectors, (8, 1)))
    index.add_with_ids(vectors, ids)
    return index


def _bare(vectors, ids):
    index = faiss.IndexFlatIP(8)
    index.add(vectors)
    return index


def _hnsw(vectors, ids):
    index = faiss.IndexIDMap(faiss.IndexHNSWFlat(8, 4, faiss.METRIC_INNER_PRODUCT))
    index.add_with_ids(vectors, ids)
    return index


def _ivf(vectors, ids):
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(8), 8, 1, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add_with_ids(vectors, ids)
    return index


def _fewer(vectors, ids):
    index = faiss.IndexIDMap(faiss.IndexFlatIP(8))
    index.add_with_ids(vectors[:-1], ids[:-1])
    return index


def _narrower(vectors, ids):
    index = faiss.IndexIDMap(faiss.IndexFlatIP(4))
    index.add_with_ids(np.ascontiguousarray(vectors[:, :4]), ids)
    return index


@pytest.mark.parametrize("made", [_pq, _bare, _hnsw, _ivf, _fewer, _narrower])
def test_foreign_index_is_refused_before_faiss_reads_it(known, made, monkeypatch):
    file = sorted(known.glob("segments/*/index.faiss"))[0]
    flat = faiss.read_index(str(file))
    index = made(flat.index.reconstruct_n(0, flat.ntotal), faiss.vector_to_array(flat.id_map))
    faiss.write_index(index, str(file))
    rename_hash(known, file, "index_sha256")
    original = faiss.read_index
    monkeypatch.setattr(
        faiss, "read_index", lambda name, *a: pytest.fail("read") if name == str(file) else original(name, *a)
    )
    with Store.open(known, KnownEncoder()) as store, pytest.raises(StoreDamagedError, match="expected a FAISS index"):
        store.search("text", 3, "dense")
    assert found_parts(verify_store(known, KnownEncoder())) == {(Part.INDEX, name_of(file, known))}
    monkeypatch.undo()
    assert verify_store(known, KnownEncoder(), repair=True).problems == []


@pytest.mark.parametrize("data", [b"", b"IxMp", b"IxMp" + bytes(200), b"\x80\x04" * 40])
def test_invalid_index_file_is_refused_before_faiss_reads_it(known, data, monkeypatch):
    file = sorted(known.glob("segments/*/index.faiss"))[0]
    file.write_bytes(data)
    rename_hash(known, file, "index_sha256")
    edit(known, ("DELETE FROM segments WHERE folder <> ?", (file.parent.name,)))
    monkeypatch.setattr(faiss, "read_index", lambda *args: pytest.fail("read"))
    with Store.open(known, KnownEncoder()) as store, pytest.raises(StoreDamagedError, match="expected a FAISS index"):
        store.search("text", 3, "dense")


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


_HIDDEN_IN_A_COMMENT = (
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, '''delete''',"
    " '''--''); DELETE FROM sources; SELECT (''' || char(10) || 'delete''') WHERE name = 'chunks_deleted'"
)
"""A trigger with another statement in what looks like a comment, but follows a text that begins with two hyphens."""


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER evil AFTER INSERT ON chunks BEGIN DELETE FROM chunks; END",
        "CREATE VIEW evil AS SELECT * FROM chunks",
        "CREATE TABLE evil (x)",
        "CREATE INDEX evil ON chunks (title)",
        "DROP TRIGGER chunks_inserted",
        "DROP INDEX chunks_by_row",
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


@pytest.mark.parametrize("name", ["../../victim", "/etc", "..", "0f8fad5b-d9cb-469f-a165-70867728950e/../x", ""])
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


@pytest.mark.parametrize("fingerprint", ["../../victim", "..", "0" * 31, ""])
def test_embedder_name_outside_the_store_is_refused(known, fingerprint):
    with closing(sqlite3.connect(known / "store.db")) as connection:
        about = json.loads(connection.execute("SELECT value FROM meta WHERE key = 'embedder'").fetchone()[0])
    about["fingerprint"] = fingerprint
    edit(known, ("UPDATE meta SET value = ? WHERE key = 'embedder'", (json.dumps(about),)))
    with Store.open(known, KnownEncoder()) as store, pytest.raises(StoreDamagedError, match="expected a hash"):
        store.search("text", 3, "dense")
    assert found_parts(verify_store(known, KnownEncoder())) == {(Part.DATABASE, "store.db")}


@pytest.mark.parametrize(
    "value", ["5", "[]", "{}", "{", '{"kind": "external", "model": "known"}', "null", "[" * 100_000]
)
@pytest.mark.parametrize("key", ["embedder", "dim", "generation", "index", "index_choice", "index_check"])
def test_invalid_meta_values_raise_ragembed_errors(known, key, value):
    if (key, value) == ("generation", "5") or (value == "null" and key.startswith("index")):
        pytest.skip("it is one that may be there")
    keep(known, key, value)
    try:
        report = verify_store(known, KnownEncoder())
    except RagembedError:
        return
    assert report.problems


WANTED = IndexConfig("hnsw", Budget(10**6, 5000.0, 0.9))
INDEX_VALUES = {
    "index": WANTED.to_dict(),
    "index_choice": IndexSelection(WANTED, "hnsw", 64, 27, ("hnsw was asked for",), None, "cpu").to_dict(),
    "index_check": IndexEvaluation(
        Measurement(Recall(0.9, 0.8, 1.0, 20), 0.5, 900), "2026-01-01", 27, ("a", "b")
    ).to_dict(),
}
"""What a store may keep of its index, by key of the metadata."""


def keep(store, key, text):
    edit(store, ("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, text)))


def fields_of(value, path=()):
    """Yield the paths of all values in nested JSON objects."""
    for name, inner in value.items():
        yield (*path, name)
        if isinstance(inner, dict):
            yield from fields_of(inner, (*path, name))


def with_field(value, path, field):
    name, *rest = path
    return {**value, name: with_field(value[name], rest, field) if rest else field}


def refusal_of(use):
    """Return the class of ragembed's error that ``use`` raises, or None if it succeeds."""
    try:
        use()
    except RagembedError as error:
        return type(error)
    return None


def test_valid_index_records_are_accepted(known):
    for key, value in INDEX_VALUES.items():
        keep(known, key, json.dumps(value))
    with Store.open(known, KnownEncoder()) as store:
        kept = {"wanted": store.wanted_index, "choice": store.index_choice(), "check": store.index_check()}
        assert [json.loads(json.dumps(value.to_dict())) for value in kept.values()] == [
            json.loads(json.dumps(value)) for value in INDEX_VALUES.values()
        ]
        assert store.status()["index"] == {name: value.to_dict() for name, value in kept.items()}
    assert verify_store(known, KnownEncoder()).problems == []


@pytest.mark.parametrize("wrong", ["x", [], True, -1], ids=repr)
@pytest.mark.parametrize(
    ("key", "path"),
    [(key, path) for key, value in INDEX_VALUES.items() for path in fields_of(value)],
    ids=lambda value: value if isinstance(value, str) else ".".join(value),
)
def test_fields_of_wrong_types_are_refused_or_harmless(known, key, path, wrong):
    for name, value in INDEX_VALUES.items():
        keep(known, name, json.dumps(with_field(value, path, wrong) if name == key else value))
    problems = verify_store(known, KnownEncoder()).problems
    assert {problem.part for problem in problems} <= {Part.DATABASE}
    with Store.open(known, KnownEncoder()) as store:
        uses = (
            store.status,
            lambda: [value.describe() for value in (store.wanted_index, store.index_choice(), store.index_check())],
            lambda: store.search("text", 3),
            lambda: store.add([record("x", "y")]),
            store.optimize,
        )
        refused = [refusal_of(use) for use in uses]
    assert problems or set(refused) <= {None, BudgetError if path[-1] == "max_memory" else None}  # True takes one byte.


@pytest.mark.parametrize("kind", ["pq", "flat ", "Flat;", "", "IVF16,,Flat", "../x"])
@pytest.mark.parametrize("where", ["meta", "segments"])
def test_unknown_index_kind_raises_a_ragembed_error(known, where, kind):
    value = json.dumps({**IndexConfig().to_dict(), "kind": kind})
    edit(
        known,
        ("UPDATE meta SET value = ? WHERE key = 'index'", (value,))
        if where == "meta"
        else ("UPDATE segments SET kind = ? WHERE key = 1", (kind,)),
    )
    expected = re.escape(repr(kind)) + ".*flat, fp16, sq8, hnsw"
    with Store.open(known, KnownEncoder()) as store, pytest.raises(StoreDamagedError, match=expected):
        store.add([record("x", "y")]) if where == "meta" else store.search("text", 3, "dense")
    assert found_parts(verify_store(known, KnownEncoder())) == {(Part.DATABASE, "store.db")}


@pytest.mark.parametrize("kind", ["fp16", "sq8", "hnsw", "ivf", "IVF4,Flat", "HNSW8,Flat", "SQ4", "IVF4,PQ4"])
def test_segment_of_another_kind_is_damaged(known, kind, monkeypatch):
    for limit in ("_EXACT_ROWS", "_EXACT_SHARE"):  # Otherwise, the few used rows would be compared without the index.
        monkeypatch.setattr(reader, limit, 0)
    edit(known, ("UPDATE segments SET kind = ?", (kind,)))
    with Store.open(known, KnownEncoder()) as store, pytest.raises(StoreDamagedError, match=r"index\.faiss"):
        store.search("text", 3, "dense")
    assert {part for part, _ in found_parts(verify_store(known, KnownEncoder()))} == {Part.INDEX}
