"""Drawing the pool and the queries: seeded, independent of order, and with halves by document."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.documents.model import Chunk
from ragembed.evaluation.bootstrap import MacroBootstrap, paired_bootstrap
from ragembed.indexes import ChunkRecord
from ragembed.indexes.tuning.pool import RUN, draw_pool
from ragembed.indexes.tuning.queries import PseudoQuery, collect

BODY = "words that only fill this body"


def corpus(files, chunks=1):
    return [
        ChunkRecord(f"{file}-{number}", Chunk(f"text {number} of file {file}, {BODY}"), f"{file}.txt")
        for file in range(files)
        for number in range(chunks)
    ]


def asking(texts):
    """Return a source of the queries ``texts``; the chunk at the same position answers each."""
    return lambda pool, seed: (PseudoQuery(text, (at % len(pool),), {}) for at, text in enumerate(texts))


# The pool


@given(st.integers(0, 5), st.integers(1, 3), st.randoms(use_true_random=False))
def test_pool_does_not_depend_on_the_order_of_files(seed, chunks, shuffle):
    passages = corpus(12, chunks)
    by_file = [passages[start : start + chunks] for start in range(0, len(passages), chunks)]
    shuffle.shuffle(by_file)
    expected = draw_pool(lambda: passages, 10, seed)
    found = draw_pool(lambda: [passage for file in by_file for passage in file], 10, seed)
    assert found.passages == expected.passages
    assert [found.half(at) for at in range(len(found))] == [expected.half(at) for at in range(len(found))]


def test_pool_is_a_sample_of_whole_runs():
    pool = draw_pool(lambda: corpus(50, 4), 40, 0)
    assert len(pool) == 40
    assert pool.total == 200
    assert all(len(positions) == 4 for positions in pool.files.values())
    other = draw_pool(lambda: corpus(50, 4), 40, 1)
    assert set(other.files) != set(pool.files)


def test_long_file_counts_as_several_documents():
    pool = draw_pool(lambda: corpus(1, 10 * RUN), 10_000, 0)
    assert {place.run for place in pool.places} == set(range(10))
    assert sum(pool.half(at) for at in range(len(pool))) == 5 * RUN


def test_chunks_without_a_file_are_separate_documents():
    pool = draw_pool(lambda: [ChunkRecord(str(n), Chunk(f"{BODY} {n}")) for n in range(20)], 100, 0)
    assert len({place.run for place in pool.places}) == 20


def test_equal_chunks_occur_once():
    passages = [ChunkRecord(str(n), Chunk(f"{BODY} {n // 2}"), f"{n}.txt") for n in range(20)]
    assert len(draw_pool(lambda: passages, 100, 0)) == 10


def test_needed_files_are_drawn_first():
    pool = draw_pool(lambda: corpus(100), 10, 0, {"77.txt", "88.txt"})
    assert {"77.txt", "88.txt"} <= set(pool.files)


# Queries


def test_draw_has_the_requested_size_and_depends_on_the_seed():
    pool = draw_pool(lambda: corpus(100), 100, 0)
    texts = [f"question number {number}" for number in range(100)]
    sources = {"some": asking(texts)}
    first, counts = collect(pool, sources, 0, limit=30, changed_limit=9, least=1)
    again, _ = collect(pool, {"some": asking(texts)}, 0, limit=30, changed_limit=9, least=1)
    other, _ = collect(pool, sources, 1, limit=30, changed_limit=9, least=1)
    assert len(first.queries) == 30 == sum(counts["some"])
    assert first == again
    assert {query.text for query in first.queries} != {query.text for query in other.queries}


def test_source_with_too_few_queries_is_counted_but_not_used():
    pool = draw_pool(lambda: corpus(100), 100, 0)
    sources = {"many": asking([f"many {n}" for n in range(60)]), "few": asking([f"few {n}" for n in range(4)])}
    drawn, counts = collect(pool, sources, 0, limit=100, changed_limit=9, least=10)
    assert drawn.sources == ["many"]
    assert sum(counts["few"]) == 4


def test_ambiguous_text_is_no_query():
    pool = draw_pool(lambda: corpus(9), 100, 0)
    source = asking(["The same text", "the same *text*", "another text"])
    drawn, _ = collect(pool, {"one": source}, 0, limit=9, changed_limit=9, least=0)
    assert [query.text for query in drawn.queries] == ["another text"]


def test_query_that_leaves_too_few_words_is_skipped():
    pool = draw_pool(lambda: corpus(2), 100, 0)

    def source(_pool, _seed):
        yield PseudoQuery("leaves four words", (0,), {0: Chunk("one two three four")})
        yield PseudoQuery("leaves five words", (1,), {1: Chunk("one two three four five")})

    drawn, _ = collect(pool, {"one": source}, 0, limit=9, changed_limit=9, least=0)
    assert [query.text for query in drawn.queries] == ["leaves five words"]


def test_number_of_changed_chunks_is_bounded():
    pool = draw_pool(lambda: corpus(30), 100, 0)

    def source(of, _seed):
        for number in range(10):
            answers = tuple(range(number * 3, number * 3 + 3))
            yield PseudoQuery(f"number {number}", answers, {at: of.passages[at].chunk for at in answers})

    drawn, _ = collect(pool, {"one": source}, 0, limit=10, changed_limit=9, least=0)
    assert len(drawn.queries) == 3


# Significance


def test_macro_mean_weights_sources_equally():
    sources = ["a"] * 90 + ["b"] * 10
    better = np.array([0.0] * 90 + [1.0] * 10)
    found = MacroBootstrap(sources, range(100)).compare(better, np.zeros(100))
    assert found.difference == pytest.approx(0.5)


def test_one_source_with_one_query_per_document_equals_the_paired_bootstrap():
    generator = np.random.default_rng(0)
    a, b = generator.random(200), generator.random(200)
    found, expected = MacroBootstrap(["a"] * 200, range(200)).compare(a, b), paired_bootstrap(a, b)
    assert found.difference == pytest.approx(expected.difference)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.005)
    assert found.p_value == pytest.approx(expected.p_value, abs=0.02)


def test_queries_of_one_document_are_not_independent():
    differences = np.repeat(np.random.default_rng(1).normal(0.1, 1.0, size=20), 10)
    alone = MacroBootstrap(["a"] * 200, range(200)).compare(differences, np.zeros(200))
    together = MacroBootstrap(["a"] * 200, [n // 10 for n in range(200)]).compare(differences, np.zeros(200))
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_interval_has_the_stated_coverage():
    covered = 0
    for seed in range(100):
        generator = random.Random(seed)
        a = np.array([generator.gauss(0, 1) for _ in range(60)])
        found = MacroBootstrap(["a", "b"] * 30, [n // 2 for n in range(60)], resamples=500).compare(a, np.zeros(60))
        covered += found.low <= 0 <= found.high
    assert 85 <= covered <= 100
