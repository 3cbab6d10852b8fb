"""Records of indexing runs exist as long as their chunks."""

import itertools

import numpy as np
import pytest

from ragembed.errors import ConfigError, StoreLockedError
from ragembed.indexes import Store
from ragembed.indexes.storage import run_records
from ragembed.indexes.storage.run_records import Expected
from ragembed.indexes.types import SourceRecord
from tests.conftest import record

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def store(tmp_path, encoder):
    """A store of four chunks."""
    store = Store.create(tmp_path / "store", encoder)
    store.add([record(name, f"text {name}") for name in NAMES])
    return store


@pytest.fixture
def clock(monkeypatch):
    """The system time, as a list with one number that tests can change."""
    times = [1000.0]
    monkeypatch.setattr(run_records.time, "time", lambda: times[0])
    return times


def write(store, chunks, *expected):
    """Add chunks as a run does that has announced some of them."""
    with store.writer() as writer:
        writer.stage(chunk.chunk.embedded_text for chunk in chunks)
        writer.commit(chunks=chunks, expected=expected)


# Noting


@pytest.mark.parametrize("name", ["'; DROP TABLE run_records; --", ""])
def test_any_text_can_be_a_namespace_group_or_key(store, name):
    store.add([record(name, "a text")])
    store.run_records(name).note([name, "a"], [name, None])
    assert store.run_records(name).noted([name, "b"]) == {name}
    assert store.run_records(name).keys(group_ids=[name]) == [name]


def test_keys_are_ordered_by_time_and_name(store, clock):
    records = store.run_records("pages")
    for at, names in ((2000.0, "db"), (3000.0, "a"), (4000.0, "c")):
        clock[0] = at
        records.note(list(names))
    assert records.keys() == ["b", "d", "a", "c"]
    assert records.keys(limit=3) == ["b", "d", "a"]
    assert records.keys(limit=0) == []
    assert records.keys(before=3000.0) == ["b", "d"]
    assert records.keys(after=3000.0) == ["c"]
    assert records.keys(before=4000.0, after=2000.0) == ["a"]
    clock[0] = 5000.0
    records.note(["b"])
    assert records.keys() == ["d", "a", "c", "b"]


def test_now_is_later_than_every_record(store, clock):
    records, other = store.run_records("pages"), store.run_records("other")
    told = [records.now()]
    for at in (1000.0, 1000.0, 5.0, 5.0, 999.0):
        clock[0] = at
        records.note(["a"])
        told.append(records.now())
    assert told == sorted(set(told))
    assert records.keys(before=told[-1]) == ["a"]
    assert records.keys(before=told[-2]) == []  # Records that follow a call of now() are not earlier than its result.
    assert other.now() == 999.0


def test_note_waits_for_another_writer(store):
    with store.writer(), pytest.raises(StoreLockedError, match="PID"):
        store.run_records("pages").note(["a"])
    with store.writer(), pytest.raises(StoreLockedError, match="PID"):
        store.run_records("pages").forget(["a"], wait_seconds=0.05)


# With their chunks


@pytest.mark.parametrize(
    "delete",
    [
        lambda store: store.delete(["a"]),
        lambda store: store.delete(where={"gone": True}),
        lambda store: store.delete(paths=["a.md"]),
    ],
    ids=["by id", "by filter", "by file"],
)
def test_record_is_deleted_with_its_chunk(tmp_path, encoder, delete):
    store = Store.create(tmp_path / "s", encoder)
    with store.writer() as writer:
        writer.stage(["one", "two"])
        source = SourceRecord("a.md", 3, 0, "0" * 64, "text")
        writer.commit(
            chunks=[record("a", "one", "a.md", metadata={"gone": True}), record("b", "two")], sources=[source]
        )
    for name in ("pages", "others"):
        store.run_records(name).note(["a", "b"])
    delete(store)
    assert store.run_records("pages").keys() == store.run_records("others").keys() == ["b"]
    store.add([record("a", "one")])
    assert store.run_records("pages").keys() == ["b"]


def test_replaced_chunk_keeps_its_records(store, clock):
    records = store.run_records("pages")
    records.note(["a", "b"], ["x", "y"])
    clock[0] = 2000.0
    store.add([record("a", "another text"), record("a", "a third text"), record("new", "text")])
    assert records.noted([*NAMES, "new"]) == {"a", "b"}
    assert records.keys(before=2000.0, group_ids=["x"]) == ["a"]
    assert store.get(["a"])[0].chunk.text == "a third text"


def test_failed_change_keeps_the_records(store):
    records = store.run_records("pages")
    records.note(["a"], ["x"])
    with store.writer() as writer:
        writer.stage(["text a", "fine"])
        with pytest.raises(ConfigError, match="metadata of 'z'"):
            writer.commit(
                chunks=[record("a", "fine"), record("z", "text a", metadata={"x": object()})],
                expected=[Expected("pages", frozenset("az"))],
            )
    assert records.keys(group_ids=["x"]) == records.keys() == ["a"]


def test_take_run_records_copies_records_of_existing_chunks(store, tmp_path, make_encoder, clock):
    store.run_records("pages").note(["a", "b"], ["x", None])
    clock[0] = 2000.0
    write(store, [record("c", "another")], Expected("others", frozenset("c")))
    with Store.create(tmp_path / "new", make_encoder()) as new:
        with new.writer() as writer:
            chunks = [record(name, f"text {name}") for name in "abx"]
            writer.stage(chunk.chunk.embedded_text for chunk in chunks)
            writer.commit(chunks=chunks)
            writer.take_run_records(store.all_run_records())
        assert sorted(new.all_run_records(), key=str) == [
            ("pages", "a", "x", 1000.0, 1),
            ("pages", "b", None, 1000.0, 1),
        ]
        assert new.run_records("others").keys() == []
        assert new.verify().problems == []
    assert ("others", "c", None, 2000.0, 0) in store.all_run_records()


# Expected


# All together


@pytest.mark.parametrize("seed", range(2))
def test_random_runs_equal_a_dictionary(tmp_path, encoder, seed):
    """The model maps each namespace and existing chunk to its group, or to the mark that it is expected."""
    draw = np.random.default_rng(seed)
    store = Store.create(tmp_path / "s", encoder)
    there: set[str] = set()
    truth: dict[tuple[str, str], tuple[bool, str | None]] = {}
    for _ in range(60):
        names = sorted({f"i{i}" for i in draw.integers(0, 8, size=draw.integers(1, 5))})
        space = str(draw.choice(["one", "two"]))
        groups = [str(draw.choice(["x", "y"])) for _ in names]
        match draw.integers(0, 5):
            case 0:
                write(store, [record(name, f"text {draw.integers(9)}") for name in names])
                there |= set(names)
            case 1:
                chunks = [record(name, f"text {draw.integers(9)}") for name in names]
                write(store, chunks, Expected(space, frozenset(names)))
                there |= set(names)
                truth = {(space, name): (False, None) for name in names} | truth
            case 2:
                store.delete(names)
                there -= set(names)
                truth = {key: value for key, value in truth.items() if key[1] not in names}
            case 3:
                store.run_records(space).note(names, groups)
                pairs = zip(names, groups, strict=True)
                truth |= {(space, name): (True, group) for name, group in pairs if name in there}
            case 4:
                store.run_records(space).forget(names)
                truth = {key: value for key, value in truth.items() if key not in {(space, name) for name in names}}
        for space, group in itertools.product(("one", "two"), ("x", "y")):
            records = store.run_records(space)
            assert records.noted(sorted(there)) == {
                key for (of, key), (noted, _) in truth.items() if of == space and noted
            }
            expected = {key for (of, key), (noted, its) in truth.items() if of == space and (not noted or its == group)}
            assert set(records.keys(group_ids=[group])) == expected
    assert store.verify().problems == []
