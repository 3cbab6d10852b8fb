import errno
import sqlite3

import numpy as np
import pytest

from ragembed import Embedder, files
from ragembed.documents.model import Chunk
from ragembed.errors import (
    ConfigError,
    IncompatibleStoreError,
    StoreDamagedError,
    StoreError,
    StoreLockedError,
    StoreNotFoundError,
)
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.storage import compaction, folders, schema
from ragembed.indexes.storage.schema import FORMAT_VERSION

PLANE = {"east": [1, 0], "north": [0, 1], "west": [-1, 0], "north east": [1, 1], "up": [0.1, 1]}


@pytest.fixture
def plane(tmp_path, make_encoder, make_record):
    """A store with four directions, by name, and the ids e, n, w and ne."""
    store = Store.create(tmp_path / "store", make_encoder(PLANE))
    ids = {"e": "east", "n": "north", "w": "west", "ne": "north east"}
    store.add([make_record(chunk_id, text) for chunk_id, text in ids.items()])
    return store


def ids(hits):
    return [hit.id for hit in hits]


def test_dense_search_ranks_by_cosine(plane):
    hits = plane.search("up", 10, "dense")
    assert ids(hits) == ["n", "ne", "e", "w"]
    assert hits[0].score == pytest.approx(1 / np.hypot(0.1, 1), abs=1e-3)
    assert hits[0].score == hits[0].dense
    assert hits[0].lexical is None
    assert all(type(hit.score) is float for hit in hits)


def test_lexical_search_ranks_by_words(plane):
    hits = plane.search("north!", 10, "lexical")
    assert ids(hits) == ["n", "ne"]
    assert hits[0].lexical == hits[0].score > 0
    assert hits[0].dense is None
    assert plane.search("nowhere", 10, "lexical") == []
    assert plane.search("?!", 10, "lexical") == []


def test_k_limits_the_results(plane):
    assert len(plane.search("up", 2)) == 2
    assert plane.search("up", 0) == []
    assert len(plane.search("up", 10**18)) == 4
    with pytest.raises(ConfigError, match="k is -1"):
        plane.search("up", -1)
    with pytest.raises(ConfigError, match=r"'fuzzy'.*hybrid, dense, lexical"):
        plane.search("up", 1, "fuzzy")


def test_chunks_are_returned_unchanged(tmp_path, encoder):
    chunk = Chunk(
        "text\nof two lines",
        ("A", "B"),
        "Title",
        3,
        4,
        None,
        7,
        {"n": 1, "f": 0.5, "b": True, "x": None, "l": [1, "é"]},
    )
    store = Store.create(tmp_path / "s", encoder)
    store.add([ChunkRecord("id", chunk)])
    store.close()
    with Store.open(tmp_path / "s", encoder) as again:
        assert again.get(["id"]) == [ChunkRecord("id", chunk)]
        assert again.search("text", 1)[0].chunk == chunk


def test_equal_texts_are_encoded_once(tmp_path, encoder, make_record):
    store = Store.create(tmp_path / "s", encoder)
    store.add([make_record("a", "same"), make_record("b", "same"), make_record("c", "other")])
    assert encoder.encoded == 2
    assert set(ids(store.search("same", 2, "dense"))) == {"a", "b"}
    store.delete(["a"])
    assert ids(store.search("same", 3, "dense")) == ["b", "c"]


def test_get_keeps_the_requested_order(plane):
    assert [found.id for found in plane.get(["w", "e", "nope", "n", "w"])] == ["w", "e", "n"]


def test_vectors_have_unit_length_and_requested_order(plane):
    np.testing.assert_allclose(plane.vectors(["ne", "w"]), [[0.7071, 0.7071], [-1, 0]], atol=1e-3)
    assert plane.vectors([]).shape == (0, 2)
    with pytest.raises(KeyError):
        plane.vectors(["nope"])


def test_read_sees_one_generation(plane, make_record):
    chunks = plane.chunks()
    first = next(chunks)
    plane.add([make_record("new", "up")])
    plane.delete(["e", "n", "w", "ne"])
    assert [first.id, *(record.id for record in chunks)] == ["e", "n", "w", "ne"]
    assert [record.id for record in plane.chunks()] == ["new"]


def test_second_writer_gets_the_process_id_of_the_first(plane):
    import os

    with (
        plane.writer(),
        pytest.raises(StoreLockedError, match=rf"another process is writing to the store .* \(PID {os.getpid()}\)"),
        plane.writer(),
    ):
        pass
    with plane.writer():
        pass


def test_failed_commit_changes_nothing(plane, make_record):
    with pytest.raises(ConfigError, match=r"metadata of 'bad' cannot be stored.*JSON"):
        plane.add([make_record("good", "up"), make_record("bad", "up", metadata={"x": object()})])
    assert len(plane) == 4
    assert plane.get(["good"]) == []
    assert len(plane.search("up", 9, "dense")) == 4


def test_another_embedder_is_refused_with_both_names(plane, make_encoder):
    with pytest.raises(IncompatibleStoreError, match=r"made by known \(\w{12}\), but other \(\w{12}\) was given"):
        Store.open(plane.path, make_encoder(PLANE, name="other")).search("up")
    with pytest.raises(IncompatibleStoreError, match=r"made by known \(\w{12}\), but no embedder was given"):
        Store.open(plane.path).search("up")
    assert ids(Store.open(plane.path).search("west", 1, "lexical")) == ["w"]


def test_create_and_open_errors(tmp_path, encoder):
    with pytest.raises(StoreNotFoundError, match="ragembed index PATH"):
        Store.open(tmp_path / "nothing")
    Store.create(tmp_path / "s", encoder)
    with pytest.raises(StoreError, match=r"already holds a store"):
        Store.create(tmp_path / "s", encoder)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot create a store"):
        Store.create(tmp_path / "file" / "s", encoder)


def test_missing_file_is_named(plane, make_encoder):
    plane.close()
    next(plane.path.glob("segments/*/index.faiss")).unlink()
    with pytest.raises(StoreDamagedError, match=r"missing: .*index\.faiss"):
        Store.open(plane.path, make_encoder(PLANE)).search("up", 1, "dense")


def test_foreign_database_is_refused(tmp_path):
    (tmp_path / "store.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreDamagedError, match=r"store\.db"):
        Store.open(tmp_path)
    (tmp_path / "store.db").unlink()
    sqlite3.connect(tmp_path / "store.db").executescript("CREATE TABLE meta (key, value)")
    with pytest.raises(StoreDamagedError, match="not a ragembed database"):
        Store.open(tmp_path)


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1])
def test_another_format_is_refused(plane, version):
    plane.close()
    connection = sqlite3.connect(plane.path / "store.db")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(IncompatibleStoreError, match=f"has format {version}: .* reads format 2; .*index again"):
        Store.open(plane.path)


def test_read_only_folder_is_readable_if_the_log_is_empty(plane, make_encoder, monkeypatch):
    plane.close()
    original = schema._checked

    def read_only(path, mode):
        if mode != "immutable=1":
            raise sqlite3.OperationalError("unable to open database file")
        return original(path, mode)

    monkeypatch.setattr(schema, "_checked", read_only)
    monkeypatch.setattr(schema.os, "access", lambda *args: False)
    reader = Store.open(plane.path, make_encoder(PLANE))
    assert ids(reader.search("up", 1, "dense")) == ["n"]
    (plane.path / "store.db-wal").write_bytes(b"x")
    with pytest.raises(StoreError, match=r"its last commits are in store\.db-wal"):
        Store.open(plane.path, make_encoder(PLANE))


def test_readers_survive_a_concurrent_merge_and_adopt(tmp_path, tiny_config, make_record):
    """A writer removes the files of a snapshot before its reader opens them."""
    texts = [f"the writer holds lock {word} of the store" for word in ("one", "two", "red", "blue")]
    plain = Embedder(tiny_config.replace(postprocess=("normalize",), query_fit="shared")).fit(texts)
    centred = plain.with_postprocess(("center", "normalize"), "shared").fit_chain(plain.raw_documents(texts), texts)
    store = Store.create(tmp_path / "s", plain)
    store.add([make_record(text, text) for text in texts])
    reader = Store.open(tmp_path / "s")
    original, swept = reader.reader.open_segments, []

    def open_segments(*given):
        if not swept:
            swept.append(True)
            with store.writer() as writer:
                writer.adopt(centred)
        return original(*given)

    reader.reader.open_segments = open_segments
    assert [hit.id for hit in reader.search(texts[2], 1, "dense")] == [texts[2]]
    assert reader.embedder.fingerprint == centred.fingerprint


def test_files_are_synced_before_the_commit(plane, make_record, monkeypatch):
    events = []
    for module, name in ((files.os, "fsync"), (folders.Path, "replace")):
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, _n=name, _o=original: (events.append(_n), _o(*a))[1])
    insert = compaction.insert_segment
    monkeypatch.setattr(compaction, "insert_segment", lambda *a: (events.append("named"), insert(*a))[1])
    plane.add([make_record("x", "south")])
    assert events[:6] == ["fsync", "fsync", "fsync", "replace", "fsync", "named"]


UNWRITTEN = pytest.mark.parametrize("content", [b"", bytes(21)])


@UNWRITTEN
def test_a_number_that_was_never_written_counts_as_missing(plane, make_record, make_encoder, content):
    plane.add([make_record("x", "south")])
    number = plane.path / "store.db-generation"
    number.write_bytes(content)
    plane.close()
    with Store.open(plane.path, make_encoder(PLANE)) as store:
        assert store.verify().problems == []
        store.add([make_record("y", "up")])
        assert int(number.read_bytes()) == store.status()["generation"]


@UNWRITTEN
@pytest.mark.parametrize("name", [".gitignore", "writer.pid", "store.db-generation", ".store.db.new", "store.db"])
def test_a_store_is_made_where_a_power_failure_interrupted_another(tmp_path, encoder, name, content):
    path = tmp_path / "s"
    with Store.create(path, encoder):
        pass
    for entry in path.glob("store.db*"):
        entry.unlink()
    (path / name).write_bytes(content)
    with Store.create(path, encoder) as store:
        assert store.verify().problems == []
    assert (path / ".gitignore").read_bytes() == b"*\n"


def test_a_file_that_cannot_be_replaced_leaves_the_former_one(tmp_path, monkeypatch):
    file = tmp_path / "plan"
    files.replace_file(file, b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.replace_file(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_chunk_of_an_unknown_file_is_refused(plane, make_record):
    with pytest.raises(StoreError, match=r"'x' names the file 'a\.md', which is not in the store"):
        plane.add([make_record("x", "up", "a.md")])


def test_empty_changes_make_no_new_generation(plane):
    before = plane.status()["generation"]
    plane.delete([])
    plane.add([])
    assert plane.status()["generation"] == before


@pytest.mark.parametrize("name", ["a b%20c/d?e#f&g=h", "i'j\"k;--/[x]*資料室 🙂"])
def test_store_is_at_its_path(tmp_path, encoder, make_encoder, make_record, name):
    with Store.create(tmp_path / name, encoder) as store:
        store.add([make_record("a", "the lock")])
        store.copy(tmp_path / f"{name}.copy")
    for path in (tmp_path / name, tmp_path / f"{name}.copy"):
        with Store.open(path, make_encoder()) as again:
            assert ids(again.search("the lock", 1)) == ["a"]
            assert again.verify().problems == []


def test_next_writer_removes_leftovers(plane, make_record):
    leftover = "0f8fad5b-d9cb-469f-a165-70867728950e"
    for name in (leftover, f".{leftover}.tmp", "not-ours"):
        (plane.path / "segments" / name).mkdir()
    (plane.path / "embedders" / ("0" * 32)).mkdir()
    plane.add([make_record("x", "up")])
    named = {segment["folder"] for segment in plane.status()["segments"]}
    assert {entry.name for entry in (plane.path / "segments").iterdir()} == named | {"not-ours"}
    assert len(list((plane.path / "embedders").iterdir())) == 1


@pytest.mark.parametrize("name", ["segments", "embedders"])
def test_sweep_does_not_follow_symbolic_links(plane, tmp_path, name, make_record):
    victim = tmp_path / "victim"
    (plane.path / name).rename(victim)
    precious = victim / ("0" * 32 if name == "embedders" else "0f8fad5b-d9cb-469f-a165-70867728950e")
    precious.mkdir()
    (plane.path / name).symlink_to(victim)
    with pytest.raises(StoreDamagedError, match=f"{name} is a symbolic link"):
        plane.add([make_record("x", "up")])
    assert precious.exists()


def test_lone_surrogates_can_be_stored(tmp_path, encoder, make_record):
    store = Store.create(tmp_path / "s", encoder)
    store.add([make_record("a", "half \ud83d pair", title="\ud800", metadata={"m": "\udfff"})])
    assert store.get(["a"])[0].chunk.text == "half ? pair"
    assert ids(store.search("half", 1)) == ["a"]


def test_invalid_ids_match_no_chunk(tmp_path, encoder, make_record):
    with Store.create(tmp_path / "s", encoder) as store:
        store.add([make_record("a", "the lock"), make_record("b", "the writer")])
        assert store.delete(["a\0b", "a\ud800"]) == 0
        assert store.get(["a\0b"]) == []
        assert store.ids() == ["a", "b"]


def test_other_object_than_an_embedder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"the embedder is a dict: expected a fitted Embedder.*VectorEncoder"):
        Store.create(tmp_path / "store", {})
    assert not (tmp_path / "store").exists()


def test_readded_text_is_not_encoded_again(plane, make_record):
    encoder = plane.embedder
    before = encoder.encoded
    plane.delete(["n"])
    plane.add([make_record("n2", "north")])
    assert encoder.encoded == before
    assert ids(plane.search("north", 1, "dense")) == ["n2"]
