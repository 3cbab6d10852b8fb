"""Sums of pages: every altered byte is found, and what a kill leaves is not taken for damage."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import zlib

import pytest

from ragembed.errors import StoreDamagedError
from ragembed.indexes import page_sums, wal

NAMES = ("store.db", "store.db-wal", "store.db-sums")


@pytest.fixture
def connect():
    connections = []

    def open_one(path, *, page_size=4096):
        connection = sqlite3.connect(path, isolation_level=None)
        connections.append(connection)
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY, b BLOB)")
        return connection

    yield open_one
    for connection in connections:
        connection.close()


@pytest.fixture
def database(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    return folder / "store.db"


@pytest.fixture
def filled(connect, database):
    """A database with rows, overflow pages and free pages, all in the one file, and its sums."""
    connection = connect(database)
    for seed in range(3):
        write(connection, seed)
    write(connection, 3, rows=3, size=30_000)
    connection.execute("DELETE FROM t WHERE a BETWEEN 20 AND 60")
    assert connection.execute("PRAGMA freelist_count").fetchone()[0] > 3
    connection.close()
    assert not wal_of(database).exists()
    page_sums.build(database)
    return database


def write(connection, seed, rows=30, size=700):
    numbers = random.Random(seed)
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO t (b) VALUES (?)", [(numbers.randbytes(size),) for _ in range(rows)])
    connection.execute("COMMIT")


def wal_of(database):
    return database.with_name(database.name + "-wal")


def sums_of(database):
    return database.with_name(database.name + page_sums.SUMS_SUFFIX)


def passive(connection):
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def checkpoint(connection, database):
    passive(connection)
    page_sums.update(database, wal.pages(wal_of(database)))
    connection.execute("PRAGMA busy_timeout = 0")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def killed(database, folder):
    """Copy what a process killed now would leave."""
    folder.mkdir()
    for name in NAMES:
        if (database.parent / name).exists():
            shutil.copy(database.parent / name, folder / name)
    return folder / database.name


def change(path, position, mask=0x10):
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def test_the_layout_is_the_documented_one(filled):
    data, sums = filled.read_bytes(), sums_of(filled).read_bytes()
    assert sums[:12] == b"RGESUMS1" + (4096).to_bytes(4, "little")
    assert sums[12:16] == zlib.crc32(sums[:12]).to_bytes(4, "little")
    assert len(sums) == 16 + 8 * (len(data) // 4096)
    for number in range(1, len(data) // 4096 + 1):
        entry = sums[8 + 8 * number : 16 + 8 * number]
        assert entry[:4] == zlib.crc32(data[4096 * (number - 1) : 4096 * number]).to_bytes(4, "little")
        assert entry[4:] == zlib.crc32(entry[:4] + number.to_bytes(4, "little")).to_bytes(4, "little")


def test_a_database_as_it_was_summed_has_no_damage(filled):
    assert page_sums.damaged(filled) == []


@pytest.mark.guarantee(37)
def test_any_altered_byte_of_the_database_is_found_with_its_page(filled):
    whole = filled.read_bytes()
    numbers = random.Random(0)
    positions = [numbers.randrange(len(whole)) for _ in range(150)]
    positions += [0, 15, 16, 17, 18, 24, 28, 31, 92, 99, 100, 4095, 4096, len(whole) - 1]
    for position in positions:
        mask = numbers.randrange(1, 256)
        change(filled, position, mask)
        found = page_sums.damaged(filled)
        assert f"page {position // 4096 + 1} of {filled} " in found[-1]
        assert all(str(filled) in sentence for sentence in found)
        change(filled, position, mask)
    assert filled.read_bytes() == whole


def test_any_altered_byte_of_a_small_database_is_found(connect, database):
    connect(database, page_size=512).close()
    page_sums.build(database)
    whole = database.read_bytes()
    for position in range(len(whole)):
        change(database, position)
        assert f"page {position // 512 + 1} of {database} is not what was committed" in page_sums.damaged(database)
        database.write_bytes(whole)


def test_any_altered_byte_of_the_sums_is_found_and_not_taken_for_the_database(filled):
    sums = sums_of(filled)
    for position in range(sums.stat().st_size):
        change(sums, position)
        [found] = page_sums.damaged(filled)
        assert str(sums) in found
        assert f" of {filled} " not in found
        if position >= 16:
            assert f"the sum of page {(position - 16) // 8 + 1} in" in found
        change(sums, position)
    assert page_sums.damaged(filled) == []


def test_of_much_damage_twenty_sentences_are_said(filled):
    filled.write_bytes(bytes(x ^ 1 for x in filled.read_bytes()))
    pages = filled.stat().st_size // 4096
    found = page_sums.damaged(filled)
    assert len(found) == 21
    assert found[-1] == f"and {pages + 1 - 20} more"


def test_missing_sums_are_found(filled):
    sums_of(filled).unlink()
    [found] = page_sums.damaged(filled)
    assert f"{sums_of(filled)} is missing" in found


@pytest.mark.parametrize("page_size", [0, 1, 511, 513, 6000, 131072, 2**32 - 1])
def test_a_page_size_that_no_database_has_is_found(filled, page_size):
    header = b"RGESUMS1" + page_size.to_bytes(4, "little")
    entries = sums_of(filled).read_bytes()[16:]
    sums_of(filled).write_bytes(header + zlib.crc32(header).to_bytes(4, "little") + entries)
    [found] = page_sums.damaged(filled)
    assert str(sums_of(filled)) in found


@pytest.mark.parametrize("page_size", [512, 65536])
def test_sums_of_pages_of_another_size_are_found(filled, page_size):
    header = b"RGESUMS1" + page_size.to_bytes(4, "little")
    entries = sums_of(filled).read_bytes()[16:]
    sums_of(filled).write_bytes(header + zlib.crc32(header).to_bytes(4, "little") + entries)
    assert f"{sums_of(filled)} has the sums of pages of {page_size}" in page_sums.damaged(filled)[0]


@pytest.mark.parametrize("length", [0, 1, 11, 16, 20, 24, -8, -3])
def test_sums_that_were_cut_are_found(filled, length):
    data = sums_of(filled).read_bytes()
    sums_of(filled).write_bytes(data[:length])
    assert all(str(sums_of(filled)) in sentence for sentence in page_sums.damaged(filled))
    assert page_sums.damaged(filled)


@pytest.mark.parametrize("extra", [bytes(8), b"12345678", b"\0"])
def test_sums_that_are_too_long_are_found(filled, extra):
    with sums_of(filled).open("ab") as file:
        file.write(extra)
    [found] = page_sums.damaged(filled)
    assert str(sums_of(filled)) in found


@pytest.mark.parametrize("length", [0, 10, 4096, 6000, -4096, -1])
def test_a_database_that_was_cut_is_found(filled, length):
    filled.write_bytes(filled.read_bytes()[:length])
    found = page_sums.damaged(filled)
    assert found
    assert all(str(filled) in sentence for sentence in found)


@pytest.mark.parametrize("extra", [b"\0", b"abc", bytes(4096), bytes(range(256)) * 16])
def test_a_database_that_is_too_long_is_found(filled, extra):
    with filled.open("ab") as file:
        file.write(extra)
    found = page_sums.damaged(filled)
    assert found
    assert all(str(filled) in sentence for sentence in found)


def test_a_page_never_written_is_all_zeros(filled):
    pages = filled.stat().st_size // 4096
    with filled.open("ab") as file:
        file.write(bytes(2 * 4096))
    page_sums.update(filled, [pages + 2])
    assert sums_of(filled).read_bytes()[-16:-8] == bytes(8)
    assert page_sums.damaged(filled) == []
    change(filled, pages * 4096 + 5)
    assert page_sums.damaged(filled) == [
        f"page {pages + 1} of {filled} is not empty, and {sums_of(filled)} has no sum of it"
    ]


def test_the_page_of_the_locks_has_no_sum(filled, monkeypatch):
    monkeypatch.setattr(page_sums, "_LOCKS_AT", 3 * 4096)
    data = bytearray(filled.read_bytes())
    data[3 * 4096 : 4 * 4096] = bytes(4096)
    filled.write_bytes(data)
    page_sums.build(filled)
    page_sums.update(filled, [4])
    assert sums_of(filled).read_bytes()[40:48] == bytes(8)
    assert page_sums.damaged(filled) == []
    change(filled, 4 * 4096 - 1)
    assert f"page 4 of {filled} is not empty" in page_sums.damaged(filled)[0]


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_nothing_is_reported_after_a_checkpoint(connect, database, page_size):
    connection = connect(database, page_size=page_size)
    checkpoint(connection, database)
    for seed in range(4):
        write(connection, seed)
        connection.execute("DELETE FROM t WHERE a % 5 = 0")
        assert page_sums.damaged(database) == []
        checkpoint(connection, database)
        assert page_sums.damaged(database) == []
        assert wal_of(database).stat().st_size == 0
    connection.close()
    assert page_sums.damaged(database) == []


def test_updated_sums_are_those_built_anew(connect, filled):
    connection = connect(filled)
    write(connection, 9)
    connection.execute("DELETE FROM t WHERE a < 10")
    checkpoint(connection, filled)
    updated = sums_of(filled).read_bytes()
    page_sums.build(filled)
    assert sums_of(filled).read_bytes() == updated


def test_an_update_writes_only_the_entries_of_its_pages(filled):
    pages = filled.stat().st_size // 4096
    blank = sums_of(filled).read_bytes()[:16] + b"\xee" * (8 * pages)
    whole = sums_of(filled).read_bytes()
    sums_of(filled).write_bytes(blank)
    inode = sums_of(filled).stat().st_ino
    page_sums.update(filled, [7, 3, 3, 4, pages, pages + 1, 0, 2**31])
    expected = bytearray(blank)
    for number in (3, 4, 7, pages):
        expected[8 + 8 * number : 16 + 8 * number] = whole[8 + 8 * number : 16 + 8 * number]
    assert sums_of(filled).read_bytes() == expected
    assert sums_of(filled).stat().st_ino == inode


def test_an_update_does_not_hide_damage_to_other_pages(filled):
    change(filled, 2 * 4096 + 50)
    page_sums.update(filled, [1, 2, 4])
    assert page_sums.damaged(filled) == [f"page 3 of {filled} is not what was committed"]


def test_an_update_without_sums_builds_them(filled):
    whole = sums_of(filled).read_bytes()
    sums_of(filled).unlink()
    page_sums.update(filled, [1])
    assert sums_of(filled).read_bytes() == whole


def test_sums_are_built_for_a_database_that_gets_its_name_later(filled):
    whole = sums_of(filled).read_bytes()
    sums_of(filled).unlink()
    other = filled.with_name(".store.db.new")
    filled.rename(other)
    page_sums.build(other, filled)
    assert sums_of(filled).read_bytes() == whole
    assert not sums_of(other).exists()


@pytest.mark.parametrize("make", [page_sums.build, lambda path: page_sums.update(path, [1])])
def test_what_is_no_database_gets_no_sums(filled, make):
    filled.write_bytes(b"no database")
    with pytest.raises(StoreDamagedError, match="is not a SQLite database"):
        make(filled)


def test_a_missing_database_is_an_error_of_the_system(database):
    with pytest.raises(FileNotFoundError):
        page_sums.build(database)


def test_a_kill_between_copying_pages_and_their_sums_is_no_damage(connect, filled, tmp_path):
    connection = connect(filled)
    write(connection, 7, rows=200)
    connection.execute("UPDATE t SET b = zeroblob(50) WHERE a < 15")
    before = filled.read_bytes()
    passive(connection)
    copy = killed(filled, tmp_path / "killed")
    data = copy.read_bytes()
    assert len(data) > len(before)
    assert page_sums.damaged(copy) == []
    numbers = random.Random(1)
    for position in [len(before), len(data) - 1] + [numbers.randrange(len(data)) for _ in range(30)]:
        change(copy, position)
        how = (
            "is not what was committed"
            if position < len(before)
            else f"is not empty, and {sums_of(copy)} has no sum of it"
        )
        assert page_sums.damaged(copy) == [f"page {position // 4096 + 1} of {copy} {how}"]
        change(copy, position)
    page_sums.update(copy, wal.pages(wal_of(copy)))
    wal_of(copy).unlink()
    assert page_sums.damaged(copy) == []


def test_a_kill_within_copying_pages_is_no_damage(connect, filled, tmp_path):
    connection = connect(filled)
    write(connection, 7, rows=200)
    before = filled.read_bytes()
    passive(connection)
    after = filled.read_bytes()
    assert len(after) > len(before)
    copy = killed(filled, tmp_path / "killed")
    for pages in range(len(after) // 4096 + 1):
        size = pages * 4096
        copy.write_bytes(after[:size] + before[size:])
        assert page_sums.damaged(copy) == []
    for size in (len(before) + 100, len(after) - 1):
        copy.write_bytes(after[:size])
        assert page_sums.damaged(copy) == []
        copy.write_bytes(after[: size - 1] + b"\x55")
        assert f"of {copy} is cut off" in page_sums.damaged(copy)[0]


def test_a_kill_within_writing_the_sums_is_no_damage(connect, filled, tmp_path):
    connection = connect(filled)
    write(connection, 7, rows=100)
    earlier = sums_of(filled).read_bytes()
    passive(connection)
    copy = killed(filled, tmp_path / "killed")
    page_sums.update(filled, wal.pages(wal_of(filled)))
    later = sums_of(filled).read_bytes()
    extended = earlier + bytes(len(later) - len(earlier))
    assert len(later) > len(earlier)
    for length in range(16, len(later)):
        sums_of(copy).write_bytes(later[:length] + extended[length:])
        assert page_sums.damaged(copy) == []


def test_a_page_that_only_an_unfinished_transaction_has_is_damage(connect, filled, tmp_path):
    connection = connect(filled)
    connection.execute("UPDATE t SET b = zeroblob(50) WHERE a = 1")
    passive(connection)
    copy = killed(filled, tmp_path / "killed")
    last = list(wal.frames(wal_of(copy)))[-1]
    assert last.commit
    assert page_sums.damaged(copy) == []
    wal_of(copy).write_bytes(wal_of(copy).read_bytes()[: last.offset])
    assert page_sums.damaged(copy)


def test_a_checkpoint_that_a_reader_cuts_short_is_no_damage(connect, filled, tmp_path):
    connection, reader = connect(filled), connect(filled)
    write(connection, 7)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM t").fetchone()
    write(connection, 8)
    passive(connection)
    assert page_sums.damaged(killed(filled, tmp_path / "first")) == []
    checkpoint(connection, filled)
    assert wal_of(filled).stat().st_size > 0
    assert page_sums.damaged(filled) == []
    connection.execute("UPDATE t SET b = zeroblob(9) WHERE a > 100")
    passive(connection)
    assert page_sums.damaged(killed(filled, tmp_path / "second")) == []
    reader.execute("COMMIT")
    write(connection, 9)
    checkpoint(connection, filled)
    assert wal_of(filled).stat().st_size == 0
    assert page_sums.damaged(filled) == []


def test_a_database_that_vacuum_makes_smaller_is_no_damage(connect, filled, tmp_path):
    connection = connect(filled)
    connection.execute("DELETE FROM t WHERE a > 20")
    connection.execute("VACUUM")
    size = filled.stat().st_size
    passive(connection)
    assert filled.stat().st_size < size
    copy = killed(filled, tmp_path / "killed")
    assert page_sums.damaged(copy) == []
    wal_of(copy).unlink()
    assert any(str(copy) in sentence for sentence in page_sums.damaged(copy))
    checkpoint(connection, filled)
    assert sums_of(filled).stat().st_size == 16 + 8 * (filled.stat().st_size // 4096)
    assert page_sums.damaged(filled) == []


@pytest.mark.skipif(os.name == "nt", reason="only POSIX drops locks when a file is closed")
def test_sqlite_keeps_its_locks_while_pages_are_read(connect, filled):
    connection = connect(filled)
    write(connection, 7)
    page_sums.update(filled, [1])
    page_sums.damaged(filled)
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM t').fetchall(); c.close()"
    )
    subprocess.run([sys.executable, "-c", program, filled], check=True)
    assert wal_of(filled).exists()


@pytest.mark.skipif(os.name == "nt", reason="files are kept open only where closing them drops locks")
def test_few_files_are_kept_open_and_none_that_was_removed(filled, tmp_path):
    for i in range(page_sums._KEPT + 5):
        page_sums.build(filled, tmp_path / "a.db")
        page_sums.build(shutil.copy(filled, tmp_path / f"{i}.db"), tmp_path / "b.db")
    assert len(page_sums._kept) == page_sums._KEPT
    for i in range(page_sums._KEPT + 5):
        (tmp_path / f"{i}.db").unlink()
    page_sums.build(filled)
    inodes = {inode for _, inode in page_sums._kept}
    assert filled.stat().st_ino in inodes
    assert all(descriptor.status().st_nlink for descriptor in page_sums._kept.values())
