"""Short runs of benchmarks/reliability, and proof that each of them can find what it looks for."""

import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from ragembed.documents.model import Chunk
from ragembed.indexes import ChunkRecord, Store, kinds, segment_search
from ragembed.indexes.ann import index
from ragembed.indexes.ann.specs import NAMES

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SCRIPTS = ("kills", "flips", "soak", "full_disk", "operations", "filters", "growth")

pytestmark = pytest.mark.usefixtures("needs_minilm")


@pytest.fixture(scope="module")
def scripts():
    """The modules by name."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield lambda name: import_module(f"reliability.{name}")
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in [name for name in sys.modules if name.split(".")[0] in ("reliability", "report", "collection")]:
            del sys.modules[name]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_says_what_it_does_and_how_long_it_takes(name):
    command = [sys.executable, "-m", f"reliability.{name}", "--help"]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    assert "--trial" in done.stdout
    assert "--seed" in done.stdout
    assert "Takes " in done.stdout


# What they share


def test_a_trial_prints_and_writes_nothing_and_a_broken_promise_is_exit_status_1(scripts, monkeypatch, capsys):
    common, written = scripts("common"), []
    monkeypatch.setattr(common, "write_section", lambda name, body: written.append((name, body)))
    common.finish("x", "title", ["a part"], [], trial=True)
    assert "## Reliability: title" in capsys.readouterr().out
    assert written == []
    with pytest.raises(SystemExit) as ended:
        common.finish("x", "title", ["a part"], ["one thing is wrong"], trial=False)
    assert ended.value.code == 1
    assert "one thing is wrong" in capsys.readouterr().err
    [(name, body)] = written
    assert name == "reliability:x"
    assert body.endswith("1 promises were broken.")


def test_a_seed_decides_a_corpus_and_edits_change_add_and_remove_files(scripts, tmp_path):
    corpus = scripts("corpus")
    first = corpus.make_corpus(3, 12, 40)
    assert first == corpus.make_corpus(3, 12, 40) != corpus.make_corpus(4, 12, 40)
    after = corpus.edited(first)
    assert first.keys() - after.keys()
    assert after.keys() - first.keys()
    assert any(first[name] != after[name] for name in first.keys() & after.keys())
    corpus.write_corpus(tmp_path, first)
    corpus.write_corpus(tmp_path, after, first)
    files = {file.relative_to(tmp_path).as_posix(): file.read_text() for file in tmp_path.rglob("*") if file.is_file()}
    assert files == after


def test_the_same_byte_turned_twice_is_as_before_and_the_time_can_be_kept(scripts, tmp_path):
    flip = scripts("damage").flip
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    time = file.stat().st_mtime_ns
    flip(file, 1, 3, keep_time=True)
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (b"aac", time)
    flip(file, 1, 3)
    assert file.read_bytes() == b"abc"
    assert file.stat().st_mtime_ns != time


@pytest.mark.parametrize(
    ("found", "same"),
    [
        ([("a", 3.0), ("b", 2.0), ("c", 1.0)], True),
        ([("a", 3.0), ("b", 2.0), ("d", 1.0)], True),  # a tie at the end
        ([("a", 3.0), ("c", 2.0), ("b", 1.0)], False),
        ([("d", 3.0), ("b", 2.0), ("c", 1.0)], False),
        ([("a", 3.0), ("b", 2.0), ("c", 1.1)], False),
        ([("a", 3.0), ("b", 2.0)], False),
    ],
)
def test_answers_are_the_same_but_for_ties(scripts, found, same):
    assert scripts("stores").same_answers([found], [[("a", 3.0), ("b", 2.0), ("c", 1.0)]]) == same


def test_what_no_commit_names_is_left_over(scripts, tmp_path):
    groups, stores = scripts("groups"), scripts("stores")
    groups.make_store(tmp_path / "s")
    assert stores.leftovers(tmp_path / "s") == []
    (tmp_path / "s" / "segments" / ".x.tmp").mkdir()
    (tmp_path / "s" / ".store.db-sums.7.tmp").touch()
    assert stores.leftovers(tmp_path / "s") == [".store.db-sums.7.tmp", "segments/.x.tmp"]


# Kills


@pytest.mark.guarantee(36)
@pytest.mark.parametrize("command", ["index after edits", "delete PATH"])
def test_a_killed_command_leaves_a_committed_state_and_is_carried_on(scripts, tmp_path, command):
    tally = scripts("kills").measure(tmp_path, 1, 1, 4, 60, [command])[command]
    assert tally.broken == []
    counts = (tally.kills, tally.stores, tally.opened, tally.committed, tally.clean, tally.finished)
    assert counts == (1, 1, 1, 1, 1, 1)
    assert sum(tally.moments.values()) == 1


def test_chunks_that_are_lost_or_mixed_are_no_committed_state(scripts, tmp_path):
    kills, commands = scripts("kills"), scripts("commands")
    before, after = {"a": (("1", "old"),), "b": ()}, {"a": (("2", "new"), ("3", "new"))}
    for at_once in (True, False):
        trials = kills.Trials("x", commands.Case((), before, after, at_once=at_once), tmp_path, [])
        assert trials._is_committed(before)
        assert trials._is_committed(after)
        assert trials._is_committed({**before, **after}) != at_once
        assert not trials._is_committed({"a": (("2", "new"),)})
        assert not trials._is_committed({"b": ()})


def test_texts_that_are_encoded_are_counted(scripts, tmp_path):
    corpus, stores = scripts("corpus"), scripts("stores")
    corpus.write_corpus(tmp_path, corpus.make_corpus(0, 2, 30))
    cli = stores.Cli(tmp_path, tmp_path / "encoded")
    cli.must(*stores.INDEX)
    assert cli.texts_encoded() == sum(map(len, stores.content(cli.store).values()))
    cli.must(*stores.INDEX)
    assert cli.texts_encoded() == 0


# Altered bytes


def test_an_altered_byte_that_verify_does_not_name_is_told(scripts, tmp_path):
    flips, stores = scripts("flips"), scripts("stores")
    cli = stores.Cli(tmp_path)
    scripts("corpus").write_corpus(tmp_path, scripts("corpus").make_corpus(0, 2, 10))
    cli.must(*stores.INDEX)
    (cli.store / "note.txt").write_text("no file of a store's, so that nobody misses it")
    tally = flips.measure_kind(flips.Kind("note", "note.txt", 1), cli, 1, np.random.default_rng(0))
    assert (tally.found, tally.named) == (0, 0)
    assert tally.broken


# Readers and a writer


@pytest.mark.guarantee(43)
@pytest.mark.parametrize("processes", [False, True])
def test_readers_beside_a_writer_see_whole_generations(scripts, tmp_path, processes):
    total, counts = scripts("soak").soak(tmp_path, 1.0, 3, processes=processes)
    assert total.errors == []
    assert total.torn == []
    assert total.times
    assert counts["writes"]


def test_all_changes_of_the_writer_keep_groups_whole(scripts, tmp_path):
    groups, soak = scripts("groups"), scripts("soak")
    groups.make_store(tmp_path / "store")
    watch = groups.Watch()
    with Store.open(tmp_path / "store") as store:
        writer = soak.Writer(tmp_path / "store", store, 1)
        for number in (7, 8, 25, 40, 1, 2, 50):
            writer.turn(number)
            found = [record for record in store.chunks() if "group" in record.chunk.metadata]
            assert len(found) == groups.GROUPS * groups.PARTS
            assert list(watch.torn(found)) == []
        assert not store.verify().problems
    assert writer.counts == {"writes": 7, "merged": 1, "refitted": 2}


def test_torn_and_wrong_answers_are_told(scripts):
    groups = scripts("groups")

    def chunk(part, version, text=None):
        text = groups.text_of(2, part, version) if text is None else text
        return ChunkRecord(f"2-{part}", Chunk(text, metadata={"group": 2, "version": version}))

    assert list(groups.Watch().torn([chunk(0, 4), chunk(1, 4)])) == []
    [mixed] = groups.Watch().torn([chunk(0, 4), chunk(1, 5)])
    assert mixed == "group 2 is found in versions [4, 5] at once"
    [other] = groups.Watch().torn([chunk(0, 4, "another text")])
    assert "has the text 'another text'" in other
    watch = groups.Watch()
    assert list(watch.torn([chunk(0, 5)])) == []
    assert list(watch.torn([chunk(1, 4)])) == ["group 2 is found in version 4 after 5"]


def test_scores_that_are_not_those_of_the_texts_are_told(scripts, tmp_path):
    from dataclasses import replace

    groups = scripts("groups")
    groups.make_store(tmp_path / "s")
    with Store.open(tmp_path / "s") as store:
        hits = store.search("group3x part1", 5)
    watch = groups.Watch()
    assert list(watch.wrong_scores("group3x part1", hits)) == []
    assert len(list(watch.wrong_scores("group3x part1", hits[::-1]))) == 1
    shifted = [replace(hits[0], dense=hits[0].dense - 0.01), *hits[1:]]
    assert len(list(watch.wrong_scores("group3x part1", shifted))) == 1


@pytest.mark.guarantee(43)
def test_a_second_writer_is_refused_waits_or_takes_over_from_a_dead_one(scripts, tmp_path):
    locks = scripts("locks").measure_locks(tmp_path, 1)
    assert [sentence for sentence in locks.broken if "failed after" not in sentence] == []
    assert all(seconds > 0 for seconds in locks.times.values())


# Full and read-only disks


@pytest.fixture
def disk(scripts, tmp_path):
    """A folder in which disks can be mounted."""
    with suppress(SystemExit), scripts("full_disk").small_disk(tmp_path / "probe"):
        return tmp_path
    pytest.skip("disks are mounted by root alone")


@pytest.mark.guarantee(10)
def test_on_a_full_disk_the_former_state_stays(scripts, disk, monkeypatch):
    full_disk = scripts("full_disk")
    monkeypatch.setattr(full_disk.Disk, "_needs", lambda self: 400_000)
    tally = full_disk.measure(disk, 2, 1, 3, 300, ["index after edits"])["index after edits"]
    assert tally.broken == []
    assert (tally.runs, tally.clear, tally.intact, tally.clean, tally.finished) == (
        2,
        tally.full,
        tally.full,
        tally.full,
        2,
    )
    assert tally.full >= 1


def test_a_store_on_a_read_only_disk_is_read(scripts, disk):
    rows, broken = scripts("full_disk").read_only(disk, 1, 3, 30)
    assert broken == []
    assert [status for _, status, _ in rows] == ["0", "0", "2", "2", "2"]


# Filters


@pytest.fixture(scope="module")
def vectors(scripts):
    rng = np.random.default_rng(0)
    base = rng.standard_normal((300, 8)).astype(np.float32)
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    return scripts("filters").arrange(base, base[:20], 1000, 10, rng)


@pytest.mark.guarantee(25)
@pytest.mark.parametrize("kind", NAMES)
def test_filtered_search_is_compared_with_exact_search(scripts, tmp_path, vectors, kind, monkeypatch):
    monkeypatch.setattr(kinds, "LEAST_APPROXIMATE", len(vectors.documents))
    monkeypatch.setattr(segment_search, "_EXACT_ROWS", 16)
    monkeypatch.setattr(index, "EFFORTS", {"graph": 256, "lists": 0.8})  # drawn vectors lie in no clusters
    found = scripts("filters").measure(tmp_path, vectors, [kind])
    assert [sentence for one in found for sentence in one.broken] == []
    assert {one.selection for one in found} == {"at random", "by topic"}
    assert all(one.overlap() >= 0.99 for one in found)
    assert len(found[-1].overlaps) == 5 * len(vectors.queries)


def test_filtered_search_that_misses_or_finds_others_is_told(scripts, tmp_path, vectors, monkeypatch):
    filters = scripts("filters")
    filters.make_store(tmp_path / "s", vectors, "flat")
    right = Store.search_vector
    monkeypatch.setattr(Store, "search_vector", lambda store, query, k, where: right(store, query, k))
    [found, _] = filters.search(tmp_path / "s", vectors, "flat", [0.1])
    assert any("a result is not selected" in sentence for sentence in found.broken)
    monkeypatch.setattr(Store, "search_vector", lambda store, query, k, where: right(store, query, k, where=where)[1:])
    [found, _] = filters.search(tmp_path / "s", vectors, "flat", [0.1])
    assert any("9 results, expected 10" in sentence for sentence in found.broken)
    assert any("overlap 0.9" in sentence for sentence in found.broken)


# Growth


@pytest.mark.guarantee(35, 39)
def test_a_growing_store_is_measured_at_each_size(scripts, tmp_path):
    grown = list(scripts("growth").grow(tmp_path / "s", (150, 300), 8, 3, 0))
    assert [one.chunks for one in grown] == [150, 300]
    assert all(len(one.adds.steps) == 3 for one in grown)
    assert all(min(one.reader.own) > 0 for one in grown)
    with Store.open(tmp_path / "s", scripts("corpus").HashedEncoder(8)) as store:
        assert len(store) == 303


def test_growth_that_is_not_promised_is_told(scripts):
    growth = scripts("growth")

    def grown(chunks, opened, own, written):
        reader = growth.Reader(opened, [0.1, 0.1], [20.0, 20.0, own], [1.0, 1.0, 1.0])
        adds = growth.Adds(100.0, [{"commit": written}])
        return growth.Grown(chunks, 1.0, 100 << 20, 1, reader, reader, adds)

    assert growth.kept([grown(10, 0.1, 21.0, 5000), grown(1000, 0.1, 22.0, 6000)]) == []
    broken = growth.kept([grown(10, 0.1, 21.0, 5000), grown(1000, 1.5, 90.0, 50000)])
    for told in ("1.50 s to open", "90 MiB of its own", "median of what an add writes grew", "mean of what"):
        assert any(told in sentence for sentence in broken), told
