import pytest

from ragembed import Embedder
from ragembed.errors import IncompatibleStoreError
from ragembed.indexes import Store
from ragembed.indexes.storage import compaction, writer
from ragembed.progress import SilentProgress

TEXTS = [
    f"the writer holds lock {w} of the store and the reader is in the {w} folder" for w in ("one", "two", "red", "x")
]


def test_staged_vectors_are_invisible_until_a_chunk_uses_them(tmp_path, encoder, make_record):
    store = Store.create(tmp_path / "s", encoder)
    with store.writer() as open_writer:
        assert open_writer.stage(["a", "b", "a"]) == 2
        assert store.search("a", 5, "dense") == []
        assert open_writer.stage(["b", "c"]) == 1
        open_writer.commit(chunks=[make_record("1", "b")])
        assert [hit.id for hit in store.search("a", 5, "dense")] == ["1"]
    assert store.status()["unused_vectors"] == 2


def test_a_chunk_is_found_by_its_words_before_it_has_a_vector(tmp_path, encoder, make_record):
    store = Store.create(tmp_path / "s", encoder)
    with store.writer() as open_writer:
        open_writer.commit(
            chunks=[make_record("1", "red lock"), make_record("2", "blue lock"), make_record("3", "red lock")]
        )
        assert [hit.id for hit in store.search("red", 5)] == ["1", "3"]
        assert store.search("red", 5, "dense") == []
        assert (store.unfinished, store.vector_share, store.status()["vectors"]) == (True, 0.0, 0)
        open_writer.delete(["2"])
        assert open_writer.encode_waiting(lambda texts, _: [encoder.raw_documents(texts)], SilentProgress()) == 1
        assert {hit.id for hit in store.search("red", 5, "dense")} == {"1", "3"}
    assert (store.vector_share, store.status()["unused_vectors"]) == (1.0, 0)
    assert store.verify().problems == []


def test_a_text_that_waits_gets_its_vector_from_another_chunk(tmp_path, encoder, make_record):
    store = Store.create(tmp_path / "s", encoder)
    with store.writer() as open_writer:
        open_writer.commit(chunks=[make_record("1", "red lock"), make_record("2", "blue lock")])
    store.add([make_record("3", "new"), make_record("4", "blue lock")])
    assert {hit.id for hit in store.search("blue lock", 5, "dense")} == {"2", "3", "4"}
    assert store.vector_share == 0.75
    assert store.verify().problems == []


def test_finished_parts_are_committed_after_a_while_and_when_encoding_fails(
    tmp_path, encoder, make_record, monkeypatch
):
    now = [0.0]
    monkeypatch.setattr(writer, "clock", lambda: now[0])
    store = Store.create(tmp_path / "s", encoder)
    kept = []

    def encode(texts, progress):
        for start, seconds in ((0, 0.2), (2, 0.9), (4, 0.3), (6, 5.0), (8, 0.1)):
            kept.append([store.status()["vectors"], len(store.search("text", 99, "lexical"))])
            now[0] += seconds
            yield encoder.raw_documents(texts[start : start + 2])
        raise MemoryError

    texts = ["text 0", *(f"text {i}" for i in range(10)), "text 9", "text without vector"]
    with store.writer() as open_writer:
        open_writer.commit(chunks=[make_record(str(i), text) for i, text in enumerate(texts)])
        with pytest.raises(MemoryError):
            open_writer.encode_waiting(encode, SilentProgress())
    assert kept == [[0, 13], [0, 13], [4, 13], [4, 13], [8, 13]]
    assert store.status()["vectors"] == 10
    assert store.vector_share == 12 / 13
    assert encoder.encoded == 10


def test_merge_joins_segments_and_drops_dead_rows(tmp_path, encoder, make_record):
    store = Store.create(tmp_path / "s", encoder)
    for i in range(6):
        store.add([make_record(f"a{i}", f"text {i}"), make_record(f"b{i}", f"other {i}")])
    store.delete([f"b{i}" for i in range(6)])
    before = {hit.id: hit.score for hit in store.search("text 3", 9, "dense")}
    for i in range(6, 8):
        store.add([make_record(f"a{i}", f"text {i}")])
    status = store.status()
    assert len(status["segments"]) == 1
    assert (status["vectors"], status["unused_vectors"]) == (8, 0)
    after = {hit.id: hit.score for hit in store.search("text 3", 9, "dense")}
    assert {name: after[name] for name in before} == pytest.approx(before)
    assert len(list((store.path / "segments").iterdir())) == 1


def test_adding_a_chunk_writes_a_constant_amount(tmp_path, encoder, make_record, monkeypatch):
    written = []
    original = compaction.write_segment

    def write_segment(*args):
        files, rows = original(*args)
        written.append(files.rows)
        return files, rows

    monkeypatch.setattr(compaction, "write_segment", write_segment)
    store = Store.create(tmp_path / "s", encoder)
    store.add([make_record(f"first{i}", f"first {i}") for i in range(600)])
    assert written == []
    for i in range(64):
        store.add([make_record(f"i{i}", f"text {i}")])
    assert sum(written) == 8 * 8 + 64
    assert len(store.status()["segments"]) == 2


def test_rows_are_never_reused(tmp_path, encoder, make_record):
    import sqlite3

    store = Store.create(tmp_path / "s", encoder)
    for i in range(12):
        store.add([make_record("only", f"text {i}")])
    rows = sqlite3.connect(store.path / "store.db").execute("SELECT max(row) FROM vectors").fetchone()[0]
    assert rows == 12


def test_adopt_refuses_other_token_weights(tmp_path, tiny_config):
    store = Store.create(tmp_path / "s", Embedder(tiny_config).fit(TEXTS))
    with store.writer() as open_writer, pytest.raises(IncompatibleStoreError, match="index again"):
        open_writer.adopt(Embedder(tiny_config).fit(TEXTS[:2]))


def test_writer_refuses_another_embedder(tmp_path, encoder, make_encoder, make_record):
    from ragembed.indexes.storage.transactions import open_for_writing

    store = Store.create(tmp_path / "s", encoder)
    with (
        open_for_writing(store.path / "store.db") as database,
        pytest.raises(IncompatibleStoreError, match=r"made with the embedder known .* not with other"),
    ):
        writer.StoreWriter(store.path, database, make_encoder(name="other"))
