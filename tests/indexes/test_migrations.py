"""Stores of older formats open with all that is in them, whatever happens on the way to the present format."""

import hashlib
import itertools
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ragembed.errors import IncompatibleStoreError, StoreDamagedError, StoreLockedError
from ragembed.indexes import Store, migrations, schema
from ragembed.indexes.ann.records import Wanted
from ragembed.indexes.indexing import index_files
from ragembed.indexes.lock import writer_lock
from ragembed.indexes.postings import upkeep
from ragembed.indexes.request import IndexingRequest
from ragembed.indexes.schema import FORMAT_VERSION
from ragembed.indexes.verify import Part, verify_store
from ragembed.postprocess import unit_rows
from tests.conftest import KnownEncoder, record

DATA = Path(__file__).parent / "data"
KEPT = [i for i in range(40) if i not in (7, 8)]
KINDS_2 = {"flat": Wanted(), "hnsw": Wanted("hnsw"), "ivf": Wanted("ivf")}
"""The kinds of index that a store of format 2 could have, and what is asked of the index from then on."""
KINDS_3 = ("flat", "hnsw")


def extracted(name, folder):
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def known(tmp_path):
    return extracted("format-1-known", tmp_path / "store")


@pytest.fixture(params=KINDS_2)
def second(request, tmp_path):
    """A store of format 2 with two segments, the larger one of one kind."""
    return extracted(f"format-2-{request.param}", tmp_path / "second")


@pytest.fixture(params=KINDS_3)
def third(request, tmp_path):
    """A store of format 3 with an index of one kind; the approximate one was picked and measured."""
    return extracted(f"format-3-{request.param}", tmp_path / "third")


@pytest.fixture
def fourth(tmp_path):
    """A store of format 4 with records of runs and a text without spaces."""
    return extracted("format-4-flat", tmp_path / "fourth")


@pytest.fixture
def fifth(tmp_path):
    """A store of format 5 with chunks that are searched by a part of their text, and records of runs."""
    return extracted("format-5-flat", tmp_path / "fifth")


@pytest.fixture
def minilm(tmp_path, needs_minilm):
    return extracted("format-1-minilm", tmp_path / "minilm") / ".ragembed"


def ask(store, statement):
    with closing(sqlite3.connect(store / "store.db")) as connection:
        return connection.execute(statement).fetchall()


def tell(store, script):
    with closing(sqlite3.connect(store / "store.db")) as connection:
        connection.executescript(script)


def tables_of(store):
    """Return the statements that made the tables and what belongs to them, without comments, space and quotes."""
    made = ask(store, "SELECT name, sql FROM sqlite_schema WHERE sql > ''")
    return {name: re.sub(r'--[^\n]*|[\s"]', "", sql) for name, sql in made}


def columns_of(store, table):
    """Return the names of a table's columns."""
    return ", ".join(row[1] for row in ask(store, f"PRAGMA table_info({table})"))


def digest(store):
    files = [file for file in store.rglob("*") if file.is_file() and not file.name.startswith(("store.db-", "writer."))]
    return {file.relative_to(store).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def assert_migrated(store):
    with Store.open(store, KnownEncoder()) as opened:
        assert opened.status()["format"] == FORMAT_VERSION
        assert {chunk.id for chunk in opened.chunks()} == {f"id{i}" for i in KEPT}
        [found] = opened.get(["id20"])
        assert opened.search(found.chunk.embedded_text, 1, "dense")[0].id == "id20"
    assert verify_store(store, KnownEncoder()).problems == []


def test_the_archive_holds_a_store_of_format_1(known):
    assert ask(known, "PRAGMA user_version") == [(1,)]
    assert not (known / "store.db-sums").exists()


@pytest.mark.guarantee(40)
def test_all_that_is_in_a_store_of_format_1_is_there(known):
    before = {
        row[0]: row[1:]
        for row in ask(known, "SELECT id, text, title, headings, metadata, row, key, tokens FROM chunks")
    }
    hashes = {row: bytes.fromhex(text) for row, text in ask(known, "SELECT row, text_hash FROM vectors")}
    encoder = KnownEncoder()
    with Store.open(known, encoder) as store:
        assert len(store) == len(KEPT) == 38
        chunks = {found.id: found for found in store.chunks()}
        assert list(chunks) == [row[0] for row in ask(known, "SELECT id FROM chunks ORDER BY key")]
        assert chunks["id3"].chunk.title == "Third"
        for name, (text, title, headings, metadata, *_) in before.items():
            chunk = chunks[name].chunk
            assert (chunk.text, chunk.title, chunk.metadata) == (text, title, json.loads(metadata))
            assert list(chunk.headings) == json.loads(headings)
        ids = list(before)
        raw = encoder._vectors([chunks[name].chunk.embedded_text for name in ids]).astype(np.float16).astype(np.float32)
        np.testing.assert_allclose(store.vectors(ids), raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)
        status = store.status()
        assert (status["generation"], status["vectors"], status["unused_vectors"], status["dim"]) == (6, 41, 3, 8)
        assert (status["files"], status["ragembed"]) == (0, "0.1.0")
        assert status["index"] == {"wanted": Wanted().to_dict(), "choice": None, "check": None}
        assert encoder.encoded == 0
        for i in (0, 3, 39):
            text = chunks[f"id{i}"].chunk.embedded_text
            assert store.search(text, 1, "dense")[0].id == f"id{i}"
        assert [hit.id for hit in store.search("third", 5, "lexical")] == ["id3"]
        assert {hit.id for hit in store.search("text", 99, where="even = true")} == {
            f"id{i}" for i in KEPT if i % 2 == 0
        }
    assert dict(ask(known, "SELECT row, text_hash FROM vectors")) == hashes
    report = verify_store(known, KnownEncoder())
    assert (report.problems, report.notes) == ([], [])


def test_a_migrated_database_is_as_one_made_anew(known, tmp_path):
    Store.open(known, KnownEncoder()).close()
    Store.create(tmp_path / "new", KnownEncoder()).close()
    assert tables_of(known) == tables_of(tmp_path / "new")
    assert ask(known, "PRAGMA foreign_key_check") == ask(known, "PRAGMA integrity_check(1)")[1:] == []
    assert ask(known, "PRAGMA journal_mode") == [("wal",)]
    assert {row[0] for row in ask(known, "SELECT DISTINCT typeof(text_hash) FROM vectors")} == {"blob"}


def test_a_migrated_store_goes_on(known):
    encoder = KnownEncoder()
    with Store.open(known, encoder) as store:
        store.add([record("new", "brand new text"), record("id5", "text number 5")])
        assert encoder.encoded == 1
        store.delete(["id0"])
        store.optimize()
        assert (len(store), store.status()["unused_vectors"]) == (38, 0)
        assert store.search("brand new text", 1, "dense")[0].id == "new"
    assert verify_store(known, KnownEncoder()).problems == []


def test_opening_again_writes_nothing(known):
    Store.open(known, KnownEncoder()).close()
    before = digest(known)
    Store.open(known, KnownEncoder()).close()
    assert digest(known) == before


def test_verifying_migrates_too(known):
    report = verify_store(known, KnownEncoder())
    assert (report.problems, report.chunks) == ([], 38)
    assert_migrated(known)


@pytest.mark.parametrize("emptied", [False, True], ids=["with vectors", "without vectors"])
def test_rows_are_not_used_again_after_a_migration(known, emptied):
    if emptied:
        tell(known, "DELETE FROM chunks; DELETE FROM tombstones; DELETE FROM vectors; DELETE FROM segments;")
    tell(known, "UPDATE sqlite_sequence SET seq = seq + 100")
    with Store.open(known, KnownEncoder()) as store:
        store.add([record("new", "new text")])
    assert ask(known, "SELECT max(row) FROM vectors") == [(142,)]
    assert ask(known, "SELECT max(key) FROM chunks") == [(142,)]


def test_commits_in_the_log_of_format_1_are_kept(known, tmp_path):
    connection = sqlite3.connect(known / "store.db", isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("UPDATE chunks SET metadata = '{\"late\": 1}' WHERE id = 'id1'")
    killed = shutil.copytree(known, tmp_path / "killed")
    connection.close()
    assert (killed / "store.db-wal").stat().st_size > 0
    with Store.open(killed, KnownEncoder()) as store:
        assert store.get(["id1"])[0].chunk.metadata == {"late": 1}
    assert_migrated(killed)


# From format 2


def test_the_archives_hold_stores_of_format_2(second):
    assert ask(second, "PRAGMA user_version") == [(2,)]
    [(kind,)] = ask(second, "SELECT json_extract(value, '$') FROM meta WHERE key = 'index'")
    assert ask(second, "SELECT rows, kind FROM segments") == [(40, kind), (1, "flat")]


@pytest.mark.guarantee(40)
def test_all_that_is_in_a_store_of_format_2_is_there(second):
    [(kind,)] = ask(second, "SELECT json_extract(value, '$') FROM meta WHERE key = 'index'")
    columns = {name: columns_of(second, name) for name in ("chunks", "vectors", "segments", "tombstones")}
    tables = {name: ask(second, f"SELECT {columns[name]} FROM {name}") for name in columns}
    files = {name: sha for name, sha in digest(second).items() if name.startswith(("segments", "embedders"))}
    encoder = KnownEncoder()
    with Store.open(second, encoder) as store:
        assert store.wanted_index == KINDS_2[kind]
        status = store.status()
        assert status["index"] == {"wanted": KINDS_2[kind].to_dict(), "choice": None, "check": None}
        assert (status["format"], status["generation"], status["dim"], len(store)) == (FORMAT_VERSION, 6, 8, 38)
        assert [(segment["kind"], segment["rows"]) for segment in status["segments"]] == [(kind, 40), ("flat", 1)]
        assert_searchable(store, encoder)
        assert encoder.encoded == 0
    assert {name: ask(second, f"SELECT {columns[name]} FROM {name}") for name in tables} == tables
    assert {name: sha for name, sha in digest(second).items() if name in files} == files
    report = verify_store(second, KnownEncoder())
    assert (report.problems, report.notes) == ([], [])


def assert_searchable(store, encoder):
    """Assert that dense search finds as many as there are, with the best of all first."""
    chunks = {found.id: found.chunk.embedded_text for found in store.chunks()}
    stored = unit_rows(encoder._vectors(list(chunks.values())).astype(np.float16).astype(np.float32))
    for question in ("text number 5", "Section\ntext number 21", "nothing"):
        [vector] = unit_rows(encoder.encode_queries([question]))
        scores = dict(zip(chunks, (stored @ vector).tolist(), strict=True))
        hits = store.search(question, 50, "dense")
        assert {hit.id: hit.score for hit in hits} == pytest.approx(scores, abs=1e-5)
        assert [hit.id for hit in hits] == sorted(scores, key=lambda name: -scores[name])


def test_a_store_of_format_2_goes_on(second):
    encoder = KnownEncoder()
    with Store.open(second, encoder) as store:
        store.add([record("new", "brand new text"), record("id5", "text number 5", headings=("Section", "5"))])
        store.delete(["id0"])
        store.optimize()
        assert (len(store), store.status()["unused_vectors"], encoder.encoded) == (38, 0, 1)
        assert [segment["kind"] for segment in store.status()["segments"]] == ["flat"]
        assert_searchable(store, encoder)
    assert verify_store(second, KnownEncoder()).problems == []


def test_a_migrated_database_of_format_2_is_as_one_made_anew(second, tmp_path):
    Store.open(second, KnownEncoder()).close()
    Store.create(tmp_path / "new", KnownEncoder()).close()
    values = [dict(ask(path, "SELECT key, value FROM meta")) for path in (second, tmp_path / "new")]
    assert values[1].pop("baseline") == "null"  # which is as if it were missing; the next refit writes one
    assert set(values[0]) == set(values[1]) | {"dim", "generation"}
    assert {key: values[0][key] for key in ("embedder", "ragembed")} == {
        key: values[1][key] for key in ("embedder", "ragembed")
    }
    assert tables_of(second) == tables_of(tmp_path / "new")


def test_a_store_of_format_2_is_opened_and_verified_again_without_a_change(second):
    Store.open(second, KnownEncoder()).close()
    before = digest(second)
    Store.open(second, KnownEncoder()).close()
    verify_store(second, KnownEncoder())
    assert digest(second) == before


def test_verifying_a_store_of_format_2_brings_it_up_to_date(second):
    assert verify_store(second, KnownEncoder()).problems == []
    assert ask(second, "PRAGMA user_version") == [(FORMAT_VERSION,)]


def test_a_damaged_store_of_format_2_is_verified_as_it_is(second):
    data = bytearray((second / "store.db").read_bytes())
    data[-50] ^= 1
    (second / "store.db").write_bytes(data)
    before = digest(second)
    for repair in (False, True):
        problems = verify_store(second, KnownEncoder(), repair=repair).problems
        assert Part.PAGES in {problem.part for problem in problems}
        assert digest(second) == before


@pytest.mark.parametrize("value", ['"pq"', '"Flat;"', "5", '["hnsw"]', '{"kind": "hnsw"}', "null", "{"])
def test_another_kind_than_format_2_had_is_damage(tmp_path, value):
    second = extracted("format-2-hnsw", tmp_path / "second")
    with closing(sqlite3.connect(second / "store.db")) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'index'", (value,))
        connection.commit()
    before = digest(second)
    with pytest.raises(StoreDamagedError, match="store"):
        Store.open(second, KnownEncoder())
    assert digest(second) == before


def test_a_store_of_format_2_that_asks_for_nothing_gets_what_suits_it(tmp_path):
    second = extracted("format-2-hnsw", tmp_path / "second")
    tell(second, "DELETE FROM meta WHERE key = 'index'")
    with Store.open(second, KnownEncoder()) as store:
        assert store.wanted_index == Wanted()


# From format 3


def test_the_archives_hold_stores_of_format_3(third):
    assert ask(third, "PRAGMA user_version") == [(3,)]
    assert ask(third, "SELECT name FROM sqlite_schema WHERE name LIKE 'run_records%'") == []
    [(kind,)] = ask(third, "SELECT json_extract(value, '$.kind') FROM meta WHERE key = 'index'")
    picked = ask(third, "SELECT key FROM meta WHERE key LIKE 'index_%' ORDER BY key")
    assert (kind, picked) in (("auto", []), ("hnsw", [("index_check",), ("index_choice",)]))


@pytest.mark.guarantee(40)
def test_all_that_is_in_a_store_of_format_3_is_there(third):
    names = ("chunks", "vectors", "segments", "tombstones", "sources", "meta", "sqlite_sequence")
    columns = {name: columns_of(third, name) for name in names}
    tables = {name: ask(third, f"SELECT {columns[name]} FROM {name}") for name in names}
    files = {name: sha for name, sha in digest(third).items() if name.startswith(("segments", "embedders"))}
    meta = dict(tables["meta"])
    encoder = KnownEncoder()
    with Store.open(third, encoder) as store:
        status = store.status()
        assert (status["format"], status["generation"]) == (FORMAT_VERSION, json.loads(meta["generation"]))
        choice = json.loads(meta.get("index_choice", "null"))
        assert json.loads(json.dumps(status["index"])) == {
            "wanted": {"shards": 1, **json.loads(meta["index"])},
            "choice": choice and {**choice, "wanted": {"shards": 1, **choice["wanted"]}},
            "check": json.loads(meta.get("index_check", "null")),
        }
        assert store.ids() == [row[0] for row in ask(third, "SELECT id FROM chunks ORDER BY key")]
        [changed] = store.get(["id3"])
        assert (changed.chunk.text, changed.chunk.title) == ("another third text", "Third")
        assert (changed.chunk.headings, changed.chunk.metadata) == (("A", "B"), {"i": -3})
        assert store.get(["id7", "id8"]) == []
        for name in ("id0", "id3", "id39"):
            [found] = store.get([name])
            assert store.search(found.chunk.embedded_text, 1, "dense")[0].id == name
        assert [hit.id for hit in store.search("third", 5, "lexical")] == ["id3"]
        assert store.run_records("any").keys() == []
        assert encoder.encoded == 0
    tables["meta"].append(("words", '{"language": "english", "stemmer": null}'))
    assert {name: ask(third, f"SELECT {columns[name]} FROM {name}") for name in tables} == tables
    assert {name: sha for name, sha in digest(third).items() if name in files} == files
    report = verify_store(third, KnownEncoder())
    assert (report.problems, report.notes) == ([], [])


def test_a_flat_store_of_format_3_finds_what_there_is(tmp_path):
    with Store.open(extracted("format-3-flat", tmp_path / "s"), encoder := KnownEncoder()) as store:
        assert_searchable(store, encoder)


def test_a_store_of_format_3_goes_on(third):
    encoder = KnownEncoder()
    with Store.open(third, encoder) as store:
        before, [segment, *_] = len(store), store.status()["segments"]
        store.add([record("id5", "text number 5"), *(record(f"new{i}", f"brand new text {i}") for i in range(9))])
        store.run_records("pages").note(["new1", "id5"], ["x", None])
        store.delete(["id0", "id5"])
        assert (len(store), encoder.encoded) == (before + 7, 9)
        assert store.run_records("pages").keys() == ["new1"]
        assert store.search("brand new text 4", 1, "dense")[0].id == "new4"
        store.optimize()
        assert store.status()["unused_vectors"] == 0
        assert [one["kind"] for one in store.status()["segments"]] == [segment["kind"]]
    assert verify_store(third, KnownEncoder()).problems == []


def test_a_migrated_database_of_format_3_is_as_one_made_anew(third, tmp_path):
    Store.open(third, KnownEncoder()).close()
    Store.create(tmp_path / "new", KnownEncoder()).close()
    assert tables_of(third) == tables_of(tmp_path / "new")
    assert ask(third, "PRAGMA foreign_key_check") == ask(third, "PRAGMA integrity_check(1)")[1:] == []


def test_a_store_of_format_3_is_opened_and_verified_again_without_a_change(third):
    Store.open(third, KnownEncoder()).close()
    before = digest(third)
    Store.open(third, KnownEncoder()).close()
    verify_store(third, KnownEncoder())
    assert digest(third) == before


# From format 4


def test_the_archive_holds_a_store_of_format_4(fourth):
    assert ask(fourth, "PRAGMA user_version") == [(4,)]
    assert "searched" not in columns_of(fourth, "chunks")
    assert ask(fourth, "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH '\"機械\"'") == []


@pytest.mark.guarantee(40)
def test_all_that_is_in_a_store_of_format_4_is_there(fourth):
    names = ("chunks", "vectors", "segments", "tombstones", "sources", "meta", "run_records", "sqlite_sequence")
    columns = {name: columns_of(fourth, name) for name in names}
    tables = {name: ask(fourth, f"SELECT {columns[name]} FROM {name}") for name in names}
    files = {name: sha for name, sha in digest(fourth).items() if name.startswith(("segments", "embedders"))}
    encoder = KnownEncoder()
    with Store.open(fourth, encoder) as store:
        assert store.status()["format"] == FORMAT_VERSION
        assert {each.chunk.searched for each in store.chunks()} == {None}
        assert [hit.id for hit in store.search("third", 5, "lexical")] == ["id3"]
        assert [hit.id for hit in store.search("学習", 5, "lexical")] == ["id20"]
        assert len(store.search("text", 99, "lexical")) == len(KEPT) - 1
        assert store.run_records("pages").keys() == ["id1", "id3"]
        assert encoder.encoded == 0
    tables["meta"].append(("words", '{"language": "english", "stemmer": null}'))
    assert {name: ask(fourth, f"SELECT {columns[name]} FROM {name}") for name in tables} == tables
    assert {name: sha for name, sha in digest(fourth).items() if name in files} == files
    report = verify_store(fourth, KnownEncoder())
    assert (report.problems, report.notes) == ([], [])


def test_a_store_of_format_4_goes_on(fourth):
    encoder = KnownEncoder()
    with Store.open(fourth, encoder) as store:
        store.add(
            [record("new", "brand new text, seldom read", searched="brand new text"), record("id5", "五番目の文")]
        )
        store.delete(["id0"])
        assert [hit.id for hit in store.search("brand", 5, "lexical")] == ["new"]
        assert store.search("seldom", 5, "lexical") == []
        assert [hit.id for hit in store.search("番目", 5, "lexical")] == ["id5"]
        store.optimize()
        assert (len(store), encoder.encoded) == (38, 2)
        [found] = store.get(["new"])
        assert (found.chunk.text, found.chunk.searched) == ("brand new text, seldom read", "brand new text")
    assert verify_store(fourth, KnownEncoder()).problems == []


def test_a_migrated_database_of_format_4_is_as_one_made_anew(fourth, tmp_path):
    Store.open(fourth, KnownEncoder()).close()
    Store.create(tmp_path / "new", KnownEncoder()).close()
    assert tables_of(fourth) == tables_of(tmp_path / "new")
    before = digest(fourth)
    Store.open(fourth, KnownEncoder()).close()
    verify_store(fourth, KnownEncoder())
    assert digest(fourth) == before


# From format 5


def test_the_archive_holds_a_store_of_format_5(fifth):
    assert ask(fifth, "PRAGMA user_version") == [(5,)]
    assert ask(fifth, "SELECT name FROM sqlite_schema WHERE name LIKE '%postings%'") == []
    assert ask(fifth, "SELECT id, searched FROM chunks WHERE searched IS NOT NULL") == [
        ("id21", "Kept words."),
        ("id22", ""),
    ]


@pytest.mark.guarantee(40)
def test_all_that_is_in_a_store_of_format_5_is_there(fifth):
    names = ("chunks", "vectors", "segments", "tombstones", "sources", "meta", "run_records", "sqlite_sequence")
    columns = {name: columns_of(fifth, name) for name in names}
    tables = {name: ask(fifth, f"SELECT {columns[name]} FROM {name}") for name in names}
    files = {name: sha for name, sha in digest(fifth).items() if name.startswith(("segments", "embedders"))}
    encoder = KnownEncoder()
    with Store.open(fifth, encoder) as store:
        assert store.status()["format"] == FORMAT_VERSION
        assert [hit.id for hit in store.search("third", 5, "lexical")] == ["id3"]
        assert [hit.id for hit in store.search("学習", 5, "lexical")] == ["id20"]
        assert [hit.id for hit in store.search("copyright kept", 5, "lexical")] == ["id21"]
        assert store.run_records("pages").keys() == ["id1", "id3"]
        assert encoder.encoded == 0
    assert {name: ask(fifth, f"SELECT {columns[name]} FROM {name}") for name in tables} == tables
    assert {name: sha for name, sha in digest(fifth).items() if name in files} == files
    report = verify_store(fifth, KnownEncoder())
    assert (report.problems, report.notes) == ([], [])


def test_a_store_of_format_5_goes_on(fifth, monkeypatch):
    monkeypatch.setattr(upkeep, "LEAST_CHUNKS", 10)
    with Store.open(fifth, KnownEncoder()) as store:
        before = store.search("text number", 99, "lexical")
        assert ask(fifth, "SELECT chunks FROM postings") == []
        store.delete(["id0"])
        [(chunks,)] = ask(fifth, "SELECT chunks FROM postings")
        assert chunks == len(store)
        store.delete(["id1"])
        assert ask(fifth, "SELECT count(*) FROM stale_postings") == [(1,)]
        after = store.search("text number", 99, "lexical")
        assert {hit.id for hit in before} - {hit.id for hit in after} == {"id0", "id1"}
    assert verify_store(fifth, KnownEncoder()).problems == []


def test_a_migrated_database_of_format_5_is_as_one_made_anew(fifth, tmp_path):
    Store.open(fifth, KnownEncoder()).close()
    Store.create(tmp_path / "new", KnownEncoder()).close()
    assert tables_of(fifth) == tables_of(tmp_path / "new")
    before = digest(fifth)
    Store.open(fifth, KnownEncoder()).close()
    verify_store(fifth, KnownEncoder())
    assert digest(fifth) == before


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION))
def test_a_store_that_only_says_it_is_older_stays_as_it_is(tmp_path, encoder, version):
    with Store.create(tmp_path / "s", encoder) as store:
        store.add([record("a", "b")])
    tell(tmp_path / "s", f"PRAGMA user_version = {version}")
    before = digest(tmp_path / "s")
    with pytest.raises((StoreDamagedError, IncompatibleStoreError), match=f"format {version}"):
        Store.open(tmp_path / "s", encoder)
    assert digest(tmp_path / "s") == before


# Interrupted


class Killed(BaseException):
    """Stands for the end of a process."""


CHANGES = ("INSERT", "UPDATE", "DROP", "CREATE", "ALTER", "COMMIT", "PRAGMA user_version =")


@pytest.mark.guarantee(40)
def test_a_migration_that_fails_at_any_statement_leaves_an_older_format(known, tmp_path, monkeypatch):
    left, versions = None, []

    class Failing(schema.ClosingConnection):
        def execute(self, sql, *args):
            nonlocal left
            if left is not None and sql.lstrip().startswith(CHANGES):
                left -= 1
                if left == 0:
                    raise Killed
            return super().execute(sql, *args)

    monkeypatch.setattr(schema, "ClosingConnection", Failing)
    for nth in itertools.count(1):
        store = shutil.copytree(known, tmp_path / f"store{nth}")
        left = nth
        try:
            migrations.migrate(store)
        except Killed:
            left = None
            versions += ask(store, "PRAGMA user_version")[0]
            column = "text" if versions[-1] == 1 else "integer"
            assert ask(store, "SELECT count(*), max(typeof(segment)) FROM vectors") == [(41, column)]
            assert ask(store, "SELECT value LIKE '{%' FROM meta WHERE key = 'index'") in ([(versions[-1] > 2,)], [])
            records = ask(store, "SELECT name FROM sqlite_schema WHERE name LIKE 'run_records%'")
            assert bool(records) == (versions[-1] > 3)
            assert ("searched" in columns_of(store, "chunks")) == (versions[-1] > 4)
            assert ask(store, "SELECT name FROM sqlite_schema WHERE name = 'postings'") == []
            assert_migrated(store)
        else:
            left = None
            break
    assert versions == sorted(versions)
    assert all(versions.count(version) >= least for version, least in ((1, 15), (2, 2), (3, 4), (4, 9), (5, 8)))
    assert_migrated(store)


def test_a_migration_killed_before_the_sums_are_written_is_finished_by_the_next_writer(known, monkeypatch):
    def killed(*args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("ragembed.indexes.page_sums.build", killed)
        with pytest.raises(Killed):
            Store.open(known, KnownEncoder())
    with Store.open(known, KnownEncoder()) as store:
        store.add([record("x", "y")])
    assert verify_store(known, KnownEncoder()).problems == []


SCRIPT = """
import os, sys
from pathlib import Path
from ragembed.indexes import migrations
from ragembed.indexes.schema import open_unchecked
if sys.argv[2] == "wait":
    print("ready", flush=True)
    sys.stdin.readline()
    migrations.migrate(Path(sys.argv[1]))
    print("done", flush=True)
else:
    version = int(sys.argv[2])
    original = migrations._STEPS[version]
    def step(connection, store):
        original(connection, store)
        os._exit(9)
    migrations._STEPS = {**migrations._STEPS, version: step}
    migrations.migrate(Path(sys.argv[1]))
"""


def test_a_process_that_dies_in_the_first_step_leaves_format_1(known):
    before = digest(known)
    assert subprocess.run([sys.executable, "-c", SCRIPT, str(known), "1"], check=False).returncode == 9
    assert digest(known) == before
    assert_migrated(known)


def test_a_process_that_dies_in_the_second_step_leaves_format_2(known, tmp_path):
    for store in (known, extracted("format-2-hnsw", tmp_path / "second")):
        assert subprocess.run([sys.executable, "-c", SCRIPT, str(store), "2"], check=False).returncode == 9
        assert ask(store, "PRAGMA user_version") == [(2,)]
        assert_migrated(store)


def test_a_process_that_dies_in_the_third_step_leaves_format_3(known, tmp_path):
    for store in (known, extracted("format-3-flat", tmp_path / "third")):
        assert subprocess.run([sys.executable, "-c", SCRIPT, str(store), "3"], check=False).returncode == 9
        assert ask(store, "PRAGMA user_version") == [(3,)]
        assert_migrated(store)


def test_a_process_that_dies_in_the_fourth_step_leaves_format_4(known, fourth):
    for store in (known, fourth):
        assert subprocess.run([sys.executable, "-c", SCRIPT, str(store), "4"], check=False).returncode == 9
        assert ask(store, "PRAGMA user_version") == [(4,)]
        assert_migrated(store)


def test_two_processes_may_open_it_at_once(known):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(known), "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate()[0] for process in processes] == ["done\n", "done\n"]
    assert [process.returncode for process in processes] == [0, 0]
    assert_migrated(known)


def test_a_reader_of_an_old_snapshot_is_no_obstacle(known, monkeypatch):
    monkeypatch.setattr(migrations.schema, "_BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(f"{(known / 'store.db').as_uri()}?mode=ro", uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM chunks").fetchone() == (38,)
        Store.open(known, KnownEncoder()).close()
        assert reader.execute("SELECT typeof(id) FROM segments LIMIT 1").fetchone() == ("text",)
        reader.execute("ROLLBACK")
    assert_migrated(known)


# Refused


def test_a_store_of_format_1_that_cannot_be_written_is_refused(known, monkeypatch):
    def read_only(path, data):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ragembed.indexes.lock.write_file", read_only)
    with pytest.raises(
        IncompatibleStoreError,
        match=rf"has format 1 and could not be brought to format {FORMAT_VERSION}.*can be written",
    ):
        Store.open(known, KnownEncoder())
    assert ask(known, "PRAGMA user_version") == [(1,)]


@pytest.mark.skipif(not hasattr(os, "setuid") or os.getuid() != 0, reason="needs to be another user")
def test_another_user_is_told_that_it_must_be_opened_once_where_it_can_be_written(known):
    script = (
        "import os, sys, sqlite3, filelock, faiss; from ragembed.indexes import Store\n"
        "from ragembed.errors import RagembedError\nos.setuid(65534)\n"
        "try:\n    Store.open(sys.argv[1])\nexcept RagembedError as error:\n    print(type(error).__name__, error)\n"
    )
    with tempfile.TemporaryDirectory() as folder:  # those of pytest are for one user alone
        Path(folder).chmod(0o755)
        store = shutil.copytree(known, Path(folder) / "store")
        store.chmod(0o755)
        done = subprocess.run([sys.executable, "-c", script, str(store)], capture_output=True, text=True, check=True)
        assert ask(store, "PRAGMA user_version") == [(1,)]
    assert done.stdout.startswith("IncompatibleStoreError"), done
    assert "has format 1" in done.stdout


def test_a_writer_in_the_way_is_waited_for_and_then_named(known, monkeypatch):
    monkeypatch.setattr(migrations, "_WAIT_SECONDS", 0.1)
    with writer_lock(known), pytest.raises(IncompatibleStoreError, match=rf"PID {os.getpid()}") as raised:
        Store.open(known, KnownEncoder())
    assert isinstance(raised.value.__cause__, StoreLockedError)
    assert_migrated(known)


@pytest.mark.parametrize("version", [0, -1, -(2**31)])
def test_a_format_that_there_never_was_is_refused(known, version):
    tell(known, f"PRAGMA user_version = {version}")
    with pytest.raises(StoreDamagedError, match=f"format {version}"):
        Store.open(known, KnownEncoder())


@pytest.mark.guarantee(40)
@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 2**31 - 1])
def test_a_newer_format_is_refused(known, version):
    tell(known, f"PRAGMA user_version = {version}")
    before = digest(known)
    with pytest.raises(IncompatibleStoreError, match=f"has format {version}.*upgrade"):
        Store.open(known, KnownEncoder())
    assert digest(known) == before


@pytest.mark.parametrize(
    "script",
    [
        "UPDATE vectors SET text_hash = 'no hash' WHERE row = 5",
        "UPDATE vectors SET text_hash = upper((SELECT text_hash FROM vectors WHERE row = 1)) WHERE row = 5",
        "UPDATE vectors SET segment = 'gone' WHERE row = 5",
        "DELETE FROM vectors WHERE row = 5",
        "DELETE FROM meta WHERE key = 'embedder'",
        "UPDATE meta SET value = '{' WHERE key = 'embedder'",
        "UPDATE meta SET value = '{}' WHERE key = 'embedder'",
        "UPDATE meta SET value = replace(value, '7117', '../x') WHERE key = 'embedder'",
    ],
)
def test_a_damaged_store_of_format_1_is_an_error_and_stays_as_it_is(known, script):
    tell(known, f"PRAGMA foreign_keys = OFF; {script};")
    before = digest(known)
    with pytest.raises(StoreDamagedError, match="store"):
        Store.open(known, KnownEncoder())
    assert digest(known) == before


@pytest.mark.parametrize(
    "script",
    [
        "DROP TABLE segments",
        "DROP TABLE sources; CREATE VIEW sources AS SELECT 1",
        "CREATE TABLE evil (x)",
        "CREATE TRIGGER evil AFTER INSERT ON chunks BEGIN DELETE FROM chunks; END",
        "CREATE TRIGGER evil AFTER INSERT ON meta BEGIN DELETE FROM chunks; END",
    ],
)
def test_a_store_of_format_1_with_another_schema_is_refused(known, script):
    tell(known, script)
    with pytest.raises((StoreDamagedError, IncompatibleStoreError), match="store"):
        Store.open(known, KnownEncoder())


def test_a_store_of_format_1_without_its_embedder_is_damaged(known):
    shutil.rmtree(known / "embedders")
    with pytest.raises(StoreDamagedError, match=r"format 1 is damaged.*No such file"):
        Store.open(known, KnownEncoder())
    assert ask(known, "PRAGMA user_version") == [(1,)]


# With a model


@pytest.mark.guarantee(40)
def test_a_store_of_files_of_format_1_opens_and_is_brought_up_to_date(minilm):
    docs = minilm.parent / "docs"
    sources = {
        path: (size, mtime, sha, recipe)
        for path, size, mtime, sha, recipe in ask(minilm, "SELECT path, size, mtime_ns, sha256, recipe FROM sources")
    }
    with Store.open(minilm) as store:
        found = store.sources()
        assert {path: (s.size, s.mtime_ns, s.sha256, s.recipe) for path, s in found.items()} == sources
        assert sorted(found) == ["docs/locks.md", "docs/table.csv", "docs/zebra.txt"]
        assert len(store) == 4
        assert store.search("striped animal", 1)[0].source == "docs/zebra.txt"
        assert {hit.source for hit in store.search("lock", 9, where="ext = 'md'")} == {"docs/locks.md"}
        before = [(hit.id, hit.score) for hit in store.search("striped animal", 4, "dense")]
    report = verify_store(minilm)
    assert (report.problems, report.notes, report.canaries) == ([], [], 4)
    again = index_files(IndexingRequest(minilm, (docs,)))
    assert (again.encoded, again.scan.added, again.scan.changed, again.scan.removed) == (0, [], [], [])
    (docs / "new.md").write_text("# Bread\n\nBread needs flour, water and salt.\n")
    assert index_files(IndexingRequest(minilm)).encoded == 1
    with Store.open(minilm) as store:
        assert store.search("how to bake", 1)[0].source == "docs/new.md"
        assert [(i, pytest.approx(s, abs=1e-5)) for i, s in before] == [
            (hit.id, hit.score) for hit in store.search("striped animal", 5, "dense") if hit.source != "docs/new.md"
        ]
    assert verify_store(minilm).problems == []


def test_hashes_are_those_of_the_texts_as_they_are_stored(known):
    """Format 1 hashed a text with half a surrogate pair, and stored it with a question mark."""
    other = hashlib.blake2b("text number 5\ud800".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    tell(known, f"UPDATE vectors SET text_hash = '{other}' WHERE row = (SELECT row FROM chunks WHERE id = 'id5')")
    assert_migrated(known)


def test_vectors_of_texts_that_are_stored_as_one_become_one(known):
    other = hashlib.blake2b("text number 5\ud800".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    tell(
        known,
        "PRAGMA recursive_triggers = ON; INSERT OR REPLACE INTO chunks (key, id, row, text, headings, tokens,"
        " metadata) SELECT key, id, row, 'text number 6', headings, tokens, metadata FROM chunks WHERE id = 'id5'",
    )
    tell(known, f"UPDATE vectors SET text_hash = '{other}' WHERE row = (SELECT row FROM chunks WHERE id = 'id5')")
    assert_migrated(known)
    assert ask(known, "SELECT count(DISTINCT row) FROM chunks WHERE id IN ('id5', 'id6')") == [(1,)]
