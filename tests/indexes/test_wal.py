"""SQLite's log: the frames are those that SQLite copies, and only what a kill cannot leave is damage."""

import random
import shutil
import sqlite3
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.indexes import wal

HEADER, FRAME_HEADER = 32, 24
WORD = st.integers(0, 2**32 - 1)


def naive_checksum(sums, words):
    s0, s1 = sums
    for first, second in zip(words[::2], words[1::2], strict=True):
        s0 = (s0 + first + s1) % 2**32
        s1 = (s1 + second + s0) % 2**32
    return s0, s1


@pytest.fixture
def connect(tmp_path):
    connections = []

    def open_one(name="store.db", *, page_size=512, cache_pages=2000):
        connection = sqlite3.connect(tmp_path / name, isolation_level=None)
        connections.append(connection)
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA cache_size = {cache_pages}")
        return connection

    yield open_one
    for connection in connections:
        connection.close()


@pytest.fixture
def log(tmp_path):
    return tmp_path / "store.db-wal"


def write(connection, seed, rows=5, size=300):
    numbers = random.Random(seed)
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY, b BLOB)")
    connection.executemany("INSERT INTO t (b) VALUES (?)", [(numbers.randbytes(size),) for _ in range(rows)])
    connection.execute("COMMIT")


def spill(connection, rows):
    """Begin a transaction that does not fit into the page cache, so that pages are written more than once."""
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE IF NOT EXISTS s (a INTEGER PRIMARY KEY, b TEXT)")
    connection.execute("CREATE INDEX IF NOT EXISTS s_by_b ON s (b)")
    numbers = random.Random(rows)
    connection.executemany("INSERT INTO s (b) VALUES (?)", [(numbers.randbytes(30).hex(),) for _ in range(rows)])


def page_size(data):
    return int.from_bytes(data[8:12], "big")


def frame_starts(data):
    step = FRAME_HEADER + page_size(data)
    return range(HEADER, len(data) - step + 1, step)


def put(path, data):
    path.write_bytes(data)
    return path


def changed(data, position, mask):
    return data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


def rewritten(data, order):
    """Return the log with checksums over words of another byte order."""
    magic = {"<": 0x377F0682, ">": 0x377F0683}[order]
    start = struct.pack(">I", magic) + data[4:24]
    sums = naive_checksum((0, 0), struct.unpack(f"{order}6I", start))
    parts = [start, struct.pack(">2I", *sums)]
    for at in frame_starts(data):
        head, page = data[at : at + 16], data[at + FRAME_HEADER : at + FRAME_HEADER + page_size(data)]
        sums = naive_checksum(sums, struct.unpack(f"{order}{2 + len(page) // 4}I", head[:8] + page))
        parts += [head, struct.pack(">2I", *sums), page]
    return b"".join(parts)


@given(st.tuples(WORD, WORD), st.lists(st.tuples(WORD, WORD), min_size=1, max_size=70))
def test_the_checksum_is_that_of_the_plain_loop(sums, pairs):
    words = [word for pair in pairs for word in pair]
    assert wal._checksum(sums, np.array(words, np.uint32)) == naive_checksum(sums, words)


def test_the_checksum_of_the_largest_page_is_that_of_the_plain_loop():
    words = np.random.default_rng(1).integers(0, 2**32, 65536 // 4 + 2, dtype=np.uint32)
    assert wal._checksum((2**32 - 1, 7), words) == naive_checksum((2**32 - 1, 7), words.tolist())


@pytest.mark.parametrize("size", [512, 4096, 65536])
def test_the_frames_of_commits_are_what_sqlite_copies_into_the_database(connect, log, tmp_path, size):
    connection = connect(page_size=size)
    for seed in range(4):
        write(connection, seed, rows=20, size=1500)
    connection.execute("DELETE FROM t WHERE a % 3 = 0")
    database = bytearray((tmp_path / "store.db").read_bytes())
    data = log.read_bytes()
    for frame in wal.frames(log):
        place = (frame.page - 1) * size
        database.extend(bytes(max(0, place + size - len(database))))
        database[place : place + size] = data[frame.offset : frame.offset + size]
        if frame.commit:
            del database[frame.commit * size :]
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    assert (tmp_path / "store.db").read_bytes() == database
    assert log.read_bytes() == data


def test_the_last_frame_of_each_transaction_has_the_size_of_the_database(connect, log):
    connection = connect()
    sizes = []
    for seed in range(3):
        write(connection, seed)
        sizes.append(connection.execute("PRAGMA page_count").fetchone()[0])
    found = list(wal.frames(log))
    assert [frame.commit for frame in found if frame.commit] == sizes
    assert found[-1].commit
    assert len(found) == len(frame_starts(log.read_bytes())) > 3


def test_pages_are_those_of_the_frames(connect, log):
    connection = connect()
    for seed in range(3):
        write(connection, seed)
    assert wal.pages(log) == {frame.page for frame in wal.frames(log)} != set()


@pytest.mark.parametrize("data", [None, b"", b"\x37\x7f\x06\x82", bytes(31)])
def test_no_log_and_one_without_a_header_hold_nothing(log, data):
    if data is not None:
        log.write_bytes(data)
    assert list(wal.frames(log)) == []
    assert wal.pages(log) == set()
    assert wal.damage(log) is None


@pytest.mark.parametrize(
    "data", [bytes(32), b"SQLite format 3\0" * 4, struct.pack(">8I", 0x377F0682, 3007000, 0, 0, 0, 0, 0, 0)]
)
def test_another_header_is_damage_and_holds_nothing(log, data):
    log.write_bytes(data)
    assert list(wal.frames(log)) == []
    assert wal.pages(log) == set()
    assert str(log) in wal.damage(log)


@pytest.mark.parametrize("order", ["<", ">"])
def test_checksums_of_both_byte_orders_are_read(connect, log, tmp_path, order):
    connection = connect()
    for seed in range(2):
        write(connection, seed)
    shutil.copy(tmp_path / "store.db", tmp_path / "other.db")
    other = put(tmp_path / "other.db-wal", rewritten(log.read_bytes(), order))
    assert list(wal.frames(other)) == list(wal.frames(log)) != []
    assert wal.damage(other) is None
    assert connect("other.db").execute("SELECT count(*) FROM t").fetchone() == (10,)


@pytest.mark.guarantee(37)
@pytest.mark.parametrize("earlier_rows", [0, 30])
def test_any_altered_byte_is_damage(connect, log, tmp_path, earlier_rows):
    connection = connect()
    if earlier_rows:
        write(connection, 5, rows=earlier_rows)
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    for seed in range(2):
        write(connection, seed, rows=3)
    data = log.read_bytes()
    end = list(wal.frames(log))[-1].offset + 512
    assert (end < len(data)) is (earlier_rows > 0)
    numbers = random.Random(2)
    found = [wal.damage(put(tmp_path / "altered", changed(data, i, numbers.randrange(1, 256)))) for i in range(end)]
    assert all(sentence and str(tmp_path / "altered") in sentence for sentence in found)


@pytest.mark.parametrize("cache_pages", [10, 5000])
def test_any_altered_byte_of_a_large_transaction_is_damage(connect, log, tmp_path, cache_pages):
    connection = connect(cache_pages=cache_pages, page_size=4096)
    spill(connection, 8000)
    connection.execute("COMMIT")
    data = log.read_bytes()
    numbers = random.Random(3)
    step = FRAME_HEADER + 4096
    positions = [numbers.randrange(len(data)) for _ in range(10)]
    positions += [HEADER, HEADER + 4, len(data) - 1, len(data) - step + 4, len(data) - step + 16, len(data) - step + 23]
    for position in positions:
        altered = put(tmp_path / "altered", changed(data, position, numbers.randrange(1, 256)))
        assert str(altered) in wal.damage(altered), position


def test_a_commit_made_to_look_like_none_is_damage(connect, log, tmp_path):
    connection = connect()
    write(connection, 0)
    data = log.read_bytes()
    at = frame_starts(data)[-1]
    assert int.from_bytes(data[at + 4 : at + 8], "big") < 256
    assert wal.damage(put(tmp_path / "altered", changed(data, at + 7, data[at + 7]))) is not None


@pytest.mark.parametrize("cache_pages", [10, 5000])
def test_damage_to_a_stretch_of_bytes_is_found(connect, log, tmp_path, cache_pages):
    connection = connect(cache_pages=cache_pages)
    spill(connection, 200)
    connection.execute("COMMIT")
    data = log.read_bytes()
    for number, at in enumerate(frame_starts(data), 1):
        altered = put(tmp_path / "altered", data[: at + 100] + b"\xaa" * 200 + data[at + 300 :])
        assert f"frame {number} " in wal.damage(altered)


@pytest.mark.parametrize(("start", "stop"), [(8, 12), (12, 16), (8, 16)])
def test_other_salts_before_the_last_frame_are_damage(connect, log, tmp_path, start, stop):
    connection = connect()
    write(connection, 0)
    data = log.read_bytes()
    for at in frame_starts(data)[:-1]:
        altered = data[: at + start] + bytes(x ^ 0xFF for x in data[at + start : at + stop]) + data[at + stop :]
        assert wal.damage(put(tmp_path / "altered", altered)) is not None


def test_a_log_cut_at_any_place_is_no_damage_and_has_the_frames_up_to_there(connect, log, tmp_path):
    connection = connect()
    for seed in range(2):
        write(connection, seed, rows=3)
    data, whole = log.read_bytes(), list(wal.frames(log))
    for length in range(0, len(data), 7):
        cut = put(tmp_path / "cut", data[:length])
        assert wal.damage(cut) is None
        assert list(wal.frames(cut)) == [frame for frame in whole if frame.offset + 512 <= length]


def test_frames_of_an_earlier_generation_are_neither_damage_nor_frames(connect, log):
    connection = connect()
    write(connection, 0, rows=50)
    earlier = log.stat().st_size
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    write(connection, 1, rows=2)
    assert log.stat().st_size == earlier
    assert wal.damage(log) is None
    found = list(wal.frames(log))
    assert found[-1].commit
    assert 0 < len(found) < len(frame_starts(log.read_bytes()))
    assert wal.pages(log) == {frame.page for frame in found}


def test_the_rest_of_a_transaction_rolled_back_is_no_damage(connect, log):
    connection = connect(cache_pages=10)
    write(connection, 0)
    spill(connection, 2000)
    connection.execute("ROLLBACK")
    write(connection, 1, rows=2)
    found = list(wal.frames(log))
    assert found[-1].commit
    assert len(found) + 10 < len(frame_starts(log.read_bytes()))
    assert wal.damage(log) is None


def test_a_transaction_in_the_making_is_no_damage(connect, log):
    connection = connect(cache_pages=10)
    write(connection, 0)
    committed = len(list(wal.frames(log)))
    spill(connection, 2000)
    assert committed <= len(list(wal.frames(log))) < len(frame_starts(log.read_bytes()))
    assert wal.damage(log) is None
    connection.execute("COMMIT")
    assert len(list(wal.frames(log))) == len(frame_starts(log.read_bytes()))
    assert wal.damage(log) is None


def test_a_large_transaction_killed_while_its_checksums_are_written_is_no_damage(connect, log, tmp_path):
    connection = connect(cache_pages=10)
    write(connection, 0)
    committed = log.stat().st_size
    spill(connection, 1000)
    before = log.read_bytes()
    connection.execute("COMMIT")
    data = log.read_bytes()
    starts = [at for at in frame_starts(data) if at >= committed]
    unfinished = bytearray(data)
    for at in starts:
        left = before[at + 8 : at + FRAME_HEADER] if at < len(before) else bytes(16)
        unfinished[at + 8 : at + FRAME_HEADER] = left
    rewritten_first = next(at for at in starts if unfinished[at : at + FRAME_HEADER] != data[at : at + FRAME_HEADER])
    assert rewritten_first < starts[-1]
    for at in starts[1::7]:
        killed = put(tmp_path / "killed", data[:at] + bytes(unfinished[at:]))
        assert wal.damage(killed) is None
        assert [frame.commit for frame in wal.frames(killed)][-1] == 0 or at <= rewritten_first
    assert len(list(wal.frames(put(tmp_path / "killed", data)))) == len(frame_starts(data))


def test_a_large_transaction_in_place_of_one_rolled_back_is_no_damage(connect, log):
    connection = connect(cache_pages=10)
    write(connection, 0)
    numbers = random.Random(4)
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO t (b) VALUES (?)", [(numbers.randbytes(2000),) for _ in range(200)])
    connection.execute("ROLLBACK")
    spill(connection, 100)
    data = log.read_bytes()
    salted = [data[at + 8 : at + 16] == data[16:24] for at in frame_starts(data)]
    assert False in salted[: len(salted) - salted[::-1].index(True)]
    assert wal.damage(log) is None


def test_a_frame_killed_between_its_header_and_its_page_is_no_damage(connect, log, tmp_path):
    connection = connect()
    write(connection, 0, rows=50)
    earlier = log.read_bytes()
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    write(connection, 1)
    data = log.read_bytes()
    for number, frame in enumerate(wal.frames(log)):
        killed = put(tmp_path / "killed", data[: frame.offset] + earlier[frame.offset :])
        assert len(list(wal.frames(killed))) == number
        assert wal.damage(killed) is None
