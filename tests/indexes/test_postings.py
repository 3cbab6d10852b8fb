"""Postings give the scores of FTS5, with another idf, after any changes, and are used only if all chunks have them."""

import shutil
import sqlite3
import tempfile
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import fields
from itertools import product
from math import log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import StoreDamagedError
from ragembed.indexes import Store
from ragembed.indexes.filters import parse
from ragembed.indexes.integrity import Part
from ragembed.indexes.lexical import bm25, fulltext, postings
from ragembed.indexes.lexical.fulltext import IndexedTerms
from ragembed.indexes.lexical.postings import LiveBlock, PostingsBlock
from ragembed.indexes.search.pipeline import query_expression
from ragembed.indexes.search.snippet import QueryWords
from ragembed.indexes.storage import posting_files
from ragembed.indexes.storage.schema import connect
from ragembed.indexes.types import SourceRecord
from ragembed.indexes.verification import verify_store
from tests.conftest import KnownEncoder, record

WORDS = ["lock", "locks", "writer", "zebra", "wing", "flow", "x9", "naïve", "the", "東京都の地図", "写真", "C++", "a_b"]
WORDS += ["\u0301", "wing \u0323\u0301"]  # FTS5 indexes a combining mark without a letter as an empty term
QUERIES = [
    "zebra",
    "the lock of a writer",
    "the the locks lock",
    '"writer lock" flow',
    "naive x9 C++",
    "東京 写真 図",
    "a_b wing.flow",
    "\u0301",
    "wing \u0323",
    "nothing that is there",
    " ".join(WORDS),
]

texts = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
chunks = st.fixed_dictionaries(
    {"text": texts, "title": st.none() | texts, "searched": st.none() | texts, "headings": st.lists(texts, max_size=2)}
)
names = st.sampled_from([f"id{i}" for i in range(8)])
changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.tuples(names, chunks), min_size=1, max_size=6)),
        st.tuples(st.just("delete"), st.lists(names, min_size=1, max_size=3)),
        st.tuples(st.just("optimize"), st.none()),
    ),
    min_size=1,
    max_size=10,
)


@pytest.fixture
def small(monkeypatch):
    """Stores have postings even with a single chunk."""
    monkeypatch.setattr(posting_files, "LEAST_CHUNKS", 1)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store of 300 chunks in three blocks of postings, with some chunks deleted."""
    rng, path = np.random.default_rng(4), tmp_path_factory.mktemp("postings") / "many"
    with pytest.MonkeyPatch.context() as patch, Store.create(path, KnownEncoder()) as store:
        patch.setattr(posting_files, "LEAST_CHUNKS", 1)
        for start, stop in ((0, 220), (220, 280), (280, 300)):
            store.add(
                record(f"id{i}", f"number {i} " + " ".join(rng.choice(WORDS, rng.integers(1, 40))), metadata={"n": i})
                for i in range(start, stop)
            )
        store.delete([f"id{i}" for i in range(0, 300, 7)])
    return path


@pytest.fixture
def many(small, template, tmp_path):
    """A copy of ``template``."""
    with Store.open(shutil.copytree(template, tmp_path / "many"), KnownEncoder()) as store:
        yield store


def filled(records):
    return [record(name, **{**given, "headings": tuple(given["headings"])}) for name, given in records]


def by_fts5(view, expression, limit, admits):
    """Return the best chunks with their scores: those of FTS5 for each phrase, with the idf of Lucene."""
    chunks, scores = view.count(), {}
    for phrase in fulltext.phrases(expression):
        rows = view.connection.execute(
            "SELECT rowid, -bm25(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ?", (phrase,)
        ).fetchall()
        odds = (chunks - len(rows) + 0.5) / (len(rows) + 0.5)
        for key, score in rows:
            scores[key] = scores.get(key, 0.0) + score / (log(odds) if odds > 1 else 1e-6) * log(1 + odds)
    ranked = sorted((-score, key) for key, score in scores.items() if admits is None or admits(np.array([key]))[0])
    last = ranked[min(limit, len(ranked)) - 1][0] if ranked else 0.0
    return {key: -score for score, key in ranked if score <= last * (1 - 1e-12)}


def assert_as_fts5(store, query, limit, where=None):
    """Check the results of postings."""
    with Store.open(store.path, KnownEncoder()) as reader, reader.snapshot() as view:
        expression, selection = query_expression(view, query), view.select(where)
        assert view.stores[0].postings() is not None
        keys, scores = view.matches(expression, limit, selection)
        admits = None if selection is None else selection.admits
        expected = by_fts5(view, expression, limit, admits)
    assert dict(zip(keys.tolist(), scores.tolist(), strict=True)) == pytest.approx(expected, rel=1e-12)
    assert (np.diff(scores) <= 0).all()


def blocks_of(store):
    with closing(sqlite3.connect(store.path / "store.db")) as connection:
        return connection.execute(
            "SELECT file, chunks FROM derived WHERE name = 'postings' ORDER BY made_at_generation"
        ).fetchall()


def stale_in(store):
    with closing(sqlite3.connect(store.path / "store.db")) as connection:
        return connection.execute("SELECT count(*) FROM stale_postings").fetchone()[0]


def has_postings(store):
    with Store.open(store.path, KnownEncoder()) as reader, reader.snapshot() as view:
        return view.stores[0].postings() is not None


@given(done=changes, language=st.sampled_from(["english", "none"]), limit=st.integers(1, 9))
def test_scores_are_those_of_fts5_after_any_changes(done, language, limit):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(posting_files, "LEAST_CHUNKS", 1)
        with Store.create(Path(folder, "store"), KnownEncoder(), language=language) as store:
            for what, value in done:
                if what == "add":
                    store.add(filled(value))
                elif what == "delete":
                    store.delete(value)
                else:
                    store.optimize()
            assert bool(blocks_of(store)) == bool(len(store))
            if len(store):
                for query in QUERIES:
                    assert_as_fts5(store, query, limit)
            assert store.verify().problems == []


def joined(characters, size):
    return [" ".join(characters[start : start + size]) for start in range(0, len(characters), size)]


@pytest.mark.parametrize(
    ("language", "every"),
    [("english", 12), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("english", "german"))],
)
def test_no_character_ends_a_search_or_the_indexing(small, tmp_path, language, every):
    groups = {False: [], True: []}
    for character in map(chr, range(0, 0x110000, every)):
        category = unicodedata.category(character)
        if category[0] in "MCZ":
            groups[category in {"Cn", "Co"}].append(character)
    characters = groups[False] + groups[True][::997]
    many, few = joined(characters, 100), [*characters[::200], "\0", "\ud800", "\u0301", "\ufdfa"]
    queries = [
        *many,
        *few,
        *(form.format(each) for each in few for form in ("wing {}", "wing{}", '"wing {}"', "{0}{0}")),
    ]
    # Unassigned and private characters are a million: the terms of all, the search for some.
    assert len(IndexedTerms(language).of_each(joined(groups[True], 10_000))) > 90 // every
    with Store.create(tmp_path / "store", KnownEncoder(), language=language) as store:
        with store.writer() as writer:
            wing = [record("wing", "wing flow", "wing.md")]
            writer.stage(each.chunk.embedded_text for each in wing)
            writer.commit(chunks=wing, sources=[SourceRecord("wing.md", 3, 0, "0" * 64, "text")])
        store.add(record(f"id{i}", f"wing {text}", metadata={"text": text}) for i, text in enumerate(many))
        assert has_postings(store)
        for mode in ("hybrid", "lexical", "dense"):
            assert len(list(store.search_many(queries, k=2, mode=mode))) == len(queries)
            assert all(mode == "lexical" or len(found) == 2 for found in store.search_many(few, k=2, mode=mode))
        for query in [*queries[:: max(1, len(queries) // 8)], "wing \u0301", "wing \ud800", "\0"]:
            store.explain(query, k=2)
            store.context(query)
            assert store.why_not(query, "wing.md")
            texts = [hit.chunk.text for hit in store.search(query, k=2)]
            assert all(QueryWords(query, texts, language).snippet(text) for text in texts)
        assert store.verify().problems == []


@pytest.mark.parametrize("where", [None, "n IN (1, 2, 120, 270, 290)", "n != 1"])
def test_scores_with_filters_are_those_of_fts5(many, where):
    for query, limit in product(QUERIES, (1, 20, 1000)):
        assert_as_fts5(many, query, limit, None if where is None else parse(where))


def test_every_search_uses_existing_postings(many, monkeypatch):
    expected = {mode: many.search("the zebra lock", 9, mode) for mode in ("lexical", "hybrid")}
    monkeypatch.setattr(fulltext, "scores", None)
    assert {mode: many.search("the zebra lock", 9, mode) for mode in ("lexical", "hybrid")} == expected
    assert many.search("the zebra lock", 0, "lexical") == []


def test_store_without_postings_gives_the_same_scores(many, monkeypatch):
    with many.writer() as writer:
        writer.stage(["zebra alone"])
        writer.commit(chunks=[record("alone", "zebra alone")])
    without = {query: many.search(query, 40, "lexical") for query in QUERIES}
    many.add([record("next", "x")])
    many.delete(["next"])
    assert has_postings(many)
    for query, hits in without.items():
        found = many.search(query, 40, "lexical")
        assert [(hit.id, hit.score) for hit in found] == [(hit.id, pytest.approx(hit.score, rel=1e-12)) for hit in hits]


def test_threads_get_the_same_results(many):
    expected = [many.search(query, 20, "lexical") for query in QUERIES]
    many.close()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda query: many.search(query, 20, "lexical"), QUERIES * 8))
    assert found == expected * 8


def test_small_store_has_no_postings(tmp_path):
    with Store.create(tmp_path / "s", KnownEncoder()) as store:
        store.add([record("a", "zebra")])
        assert (blocks_of(store), (store.path / "derived").exists()) == ([], False)


def test_store_that_becomes_small_drops_its_postings(many, monkeypatch):
    monkeypatch.setattr(posting_files, "LEAST_CHUNKS", 250)
    many.delete(["id1"])
    assert blocks_of(many) != []
    many.delete([f"id{i}" for i in range(20)])
    assert (blocks_of(many), stale_in(many), list((many.path / "derived").iterdir())) == ([], 0, [])
    assert len(many.search("zebra", 999, "lexical")) > 100


def test_number_of_blocks_grows_logarithmically(small, tmp_path):
    with Store.create(tmp_path / "s", KnownEncoder()) as store:
        for i in range(80):
            store.add([record(f"id{i}", f"zebra {i}")])
            assert len(blocks_of(store)) <= 6
            assert sum(chunks for _, chunks in blocks_of(store)) == i + 1
        files = {file for file, _ in blocks_of(store)}
        assert {entry.name for entry in (store.path / "derived").iterdir()} == files
        assert {block["file"] for block in store.status()["postings"]} == files
        assert_as_fts5(store, "zebra 7 70", 99)


def test_records_of_deleted_chunks_are_removed_with_their_blocks(many):
    many.delete([f"id{i}" for i in range(200)])
    many.add([record("new", "zebra")])
    many.delete(["new"])
    many.add([record(f"more{i}", "zebra flow") for i in range(200)])
    assert (len(blocks_of(many)), stale_in(many)) == (1, 0)


def test_chunks_committed_without_postings_are_found(many):
    """A process that is killed before it writes postings leaves such chunks."""
    with many.writer() as writer:
        writer.stage(["zebra alone"])
        writer.commit(chunks=[record("alone", "zebra alone")])
    assert not has_postings(many)
    assert many.search("alone", 1, "lexical")[0].id == "alone"
    many.add([record("next", "zebra next")])
    assert has_postings(many)
    assert_as_fts5(many, "zebra alone next", 99)


def test_files_of_a_killed_write_are_removed(many):
    stray = many.path / "derived" / "postings-0123456789abcdef.safetensors"
    shutil.copy(next((many.path / "derived").iterdir()), stray)
    temporary = many.path / "derived" / ".postings.tmp"
    temporary.mkdir()
    shutil.copy(stray, temporary / "0.part")
    report = many.verify()
    assert (report.problems, report.leftovers) == ([], 2)
    many.add([record("x", "y")])
    assert not stray.exists()
    assert not temporary.exists()


def damaged_by_a_byte(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [damaged_by_a_byte, Path.unlink])
def test_damage_is_reported_and_repaired(many, damage):
    expected = many.search("the zebra lock", 20, "lexical")
    many.close()
    file, _ = blocks_of(many)[0]
    damage(many.path / "derived" / file)
    with pytest.raises(StoreDamagedError, match=f"{file}.*doctor --repair"):
        many.search("the zebra lock", 20, "lexical")
    [problem] = verify_store(many.path, KnownEncoder()).problems
    assert (problem.part, problem.file) == (Part.POSTINGS, f"derived/{file}")
    report = many.verify(repair=True)
    assert (report.problems, report.repaired) == ([], [problem])
    assert has_postings(many)
    assert many.search("the zebra lock", 20, "lexical") == expected


@pytest.mark.parametrize("damage", [damaged_by_a_byte, Path.unlink])
def test_the_next_run_makes_damaged_files_again(many, damage):
    expected = many.search("the zebra lock", 20, "lexical")
    damage(many.path / "derived" / blocks_of(many)[0][0])
    many.delete(["id1"])
    many.add([record("last", "nothing")])
    assert (many.verify().problems, has_postings(many)) == ([], True)
    assert {hit.id for hit in many.search("the zebra lock", 20, "lexical")} >= {hit.id for hit in expected} - {"id1"}


def test_postings_of_missing_chunks_are_reported(many):
    with closing(connect(many.path / "store.db", writable=True)) as connection:
        connection.execute("DELETE FROM stale_postings WHERE chunk = (SELECT min(chunk) FROM stale_postings)")
    problems = {problem.part: problem for problem in many.verify().problems}
    assert "postings of 1 chunks that are not in the store" in problems[Part.POSTINGS].message


def test_rebuilt_full_text_index_gets_new_postings(many):
    before = blocks_of(many)
    expected = many.search("the zebra lock", 20, "lexical")
    with closing(connect(many.path / "store.db", writable=True)) as connection:
        connection.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('delete-all')")
    assert Part.WORDS in many.verify().parts()
    many.verify(repair=True)
    assert len(before) == 3 > len(blocks_of(many)) == 1
    assert many.search("the zebra lock", 20, "lexical") == expected


# Blocks

columns = st.tuples(st.none() | texts, st.none() | texts, st.none() | texts)


def arrays(block):
    return {field.name: getattr(block, field.name) for field in fields(PostingsBlock)}


def postings_of(block, term):
    inside = block.of(term)
    return list(zip(block.positions[inside].tolist(), block.counts[inside].tolist(), strict=True))


def assert_same(block, other):
    for name, array in arrays(block).items():
        np.testing.assert_array_equal(array, getattr(other, name), err_msg=name)


@given(
    given=st.lists(st.lists(st.tuples(columns, st.booleans()), min_size=1, max_size=5), min_size=1, max_size=4),
    together=st.integers(1, 5),
)
def test_merged_block_equals_the_block_of_remaining_chunks(given, together):
    terms = IndexedTerms("english")
    parts, left, first = [], [], 0
    for chunks_of_part in given:
        keys = list(range(first, first + len(chunks_of_part)))
        gone = np.array(keys)[~np.array([stays for _, stays in chunks_of_part])]
        parts.append(LiveBlock.without(terms.postings(keys, [texts for texts, _ in chunks_of_part]), gone))
        left += [(key, texts) for key, (texts, stays) in zip(keys, chunks_of_part, strict=True) if stays]
        first += len(keys)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "_TERMS", together)
        postings.merge(parts, Path(folder, "merged"))
        merged = PostingsBlock.read(Path(folder, "merged"))
        assert_same(merged, terms.postings([key for key, _ in left], [texts for _, texts in left]))


def test_block_has_the_counts_of_a_term(tmp_path):
    terms = IndexedTerms("english")
    made = terms.postings([5, 9, 12], [("zebra", "[]", "zebras run"), (None, "[]", "runs"), (None, None, "")])
    made.save(tmp_path / "block")
    block = PostingsBlock.read(tmp_path / "block")
    assert_same(block, made)
    assert [block.term(i) for i in range(len(block.ends))] == [b"run", b"zebra"]
    assert postings_of(block, b"zebra") == [(0, 2)]
    assert postings_of(block, b"run") == [(0, 1), (1, 1)]
    assert postings_of(block, b"runs") == postings_of(block, b"zz") == []
    assert LiveBlock.without(block, np.array([5, 12])).count(block.of(b"run")) == 1
    assert (block.chunks.tolist(), block.lengths.tolist()) == ([5, 9, 12], [3, 1, 0])


def test_counts_above_255_are_kept(tmp_path):
    block = IndexedTerms("none").postings([1], [(None, None, "wing " * 70_000)])
    block.save(tmp_path / "block")
    assert postings_of(PostingsBlock.read(tmp_path / "block"), b"wing") == [(0, 70_000)]


@pytest.mark.parametrize("sampled", [1, 7])
def test_best_results_do_not_depend_on_the_sample(many, monkeypatch, sampled):
    monkeypatch.setattr(bm25, "_SAMPLED", sampled)
    monkeypatch.setattr(bm25, "_MORE", 1)
    for query, limit in product(QUERIES, (1, 5, 40)):
        for where in (None, parse("n < 30")):
            assert_as_fts5(many, query, limit, where)


@pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"\x02\x00\x00\x00\x00\x00\x00\x00{}"])
def test_file_that_is_not_a_block_raises(tmp_path, content):
    (tmp_path / "block").write_bytes(content)
    with pytest.raises(StoreDamagedError, match="block"):
        PostingsBlock.read(tmp_path / "block")


def test_mismatched_arrays_raise(tmp_path):
    block = IndexedTerms("none").postings([1, 2], [(None, None, "a b"), (None, None, "b")])
    shorter = PostingsBlock(**{**arrays(block), "positions": block.positions[:-1]})
    shorter.save(tmp_path / "block")
    with pytest.raises(StoreDamagedError, match=r"the arrays of .* do not match"):
        PostingsBlock.read(tmp_path / "block")
