"""Uniform samples of streams, and pseudo-queries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.corpus import ItemReservoir, PseudoQueries, Reservoir, draw_pseudo_queries
from ragembed.errors import ConfigError

CORPUS = [f"text number {i} holds some words about subject {i % 7} and nothing else at all of note" for i in range(300)]


def numbered(n):
    """Return rows that contain their own number."""
    return np.arange(n, dtype=np.float32)[:, None] * [1, -1]


def sample(blocks, limit, seed=0):
    reservoir = Reservoir(limit, seed)
    for block in blocks:
        reservoir.add(block)
    return reservoir.rows()


def test_short_stream_is_kept_in_order():
    reservoir = Reservoir(10, seed=0)
    reservoir.add(numbered(4))
    np.testing.assert_array_equal(reservoir.rows(), numbered(4))
    assert reservoir.rows().dtype == np.float32
    assert reservoir.seen == 4


def test_sample_of_a_long_stream_has_distinct_rows():
    out = sample([numbered(1000)], limit=50)
    assert out.shape == (50, 2)
    assert len(set(out[:, 0])) == 50
    np.testing.assert_array_equal(out[:, 0], -out[:, 1])


@given(cuts=st.lists(st.integers(0, 120), max_size=8), limit=st.integers(1, 130), seed=st.integers(0, 99))
def test_block_sizes_do_not_matter(cuts, limit, seed):
    rows = numbered(120)
    blocks = np.split(rows, sorted(cuts))
    np.testing.assert_array_equal(sample(blocks, limit, seed), sample([rows], limit, seed))


def test_every_row_has_the_same_chance():
    n, limit, draws = 40, 10, 4000
    counts = np.zeros(n)
    for seed in range(draws):
        counts[sample([numbered(n)], limit, seed)[:, 0].astype(int)] += 1
    expected = draws * limit / n
    # 40 binomial counts with deviation 27; one of 3,700 such tables exceeds 4.5 deviations by chance.
    deviation = np.sqrt(expected * (1 - limit / n))
    assert np.abs(counts - expected).max() < 4.5 * deviation


def test_rows_are_copied():
    rows = numbered(3)
    reservoir = Reservoir(5, seed=0)
    reservoir.add(rows)
    rows[:] = 99
    np.testing.assert_array_equal(reservoir.rows(), numbered(3))


def test_invalid_use_is_rejected():
    with pytest.raises(ConfigError, match="at least 1"):
        Reservoir(0, seed=0)
    reservoir = Reservoir(5, seed=0)
    with pytest.raises(ConfigError, match="empty"):
        reservoir.rows()
    reservoir.add(numbered(2))
    with pytest.raises(ConfigError, match="3 dimensions: expected 2"):
        reservoir.add(np.zeros((1, 3), dtype=np.float32))


@given(count=st.integers(0, 60), limit=st.integers(1, 20), seed=st.integers(0, 99))
def test_items_are_drawn_like_rows(count, limit, seed):
    rows, items = Reservoir(limit, seed), ItemReservoir(limit, seed)
    assert list(items.watch(range(count))) == list(range(count))
    rows.add(np.arange(count, dtype=np.float32)[:, None])
    assert items.items == rows.rows()[:, 0].astype(int).tolist()
    assert items.seen == rows.seen == count


def test_spans_are_short_parts_of_the_corpus():
    drawn = draw_pseudo_queries(CORPUS, 100, seed=0)
    assert len(drawn) == 100
    assert all(4 <= len(span.split()) <= 14 for span in drawn)
    assert all(any(span in text for text in CORPUS) for span in drawn)
    assert len({len(span.split()) for span in drawn}) > 3


def test_draw_depends_on_the_seed_and_not_on_the_order():
    assert draw_pseudo_queries(CORPUS, 50, 0) == draw_pseudo_queries(CORPUS[::-1], 50, 0)
    assert draw_pseudo_queries(CORPUS, 50, 0) != draw_pseudo_queries(CORPUS, 50, 1)


def test_short_and_empty_texts():
    assert sorted(draw_pseudo_queries(["one two", "", "  \n", "solo"], 10, 0)) == ["one two", "solo"]


@given(st.lists(st.text(), max_size=20), st.integers(1, 30))
def test_no_pseudo_query_is_blank(texts, count):
    drawn = draw_pseudo_queries(texts, count, 0)
    assert len(drawn) <= min(count, len(texts))
    assert all(span.strip() for span in drawn)


def test_equal_texts_count_once():
    drawn = draw_pseudo_queries(["the same licence text above every file " * 3] * 5000 + CORPUS, 200, 0)
    assert len(drawn) == 200
    assert sum("licence" in span or "above" in span for span in drawn) <= 1


@given(st.lists(st.sampled_from("abcdef"), max_size=8), st.lists(st.sampled_from("abcdef"), unique=True))
def test_known_pseudo_queries_are_not_encoded_again(texts, known):
    encoded = []

    def encode(batch):
        encoded.extend(batch)
        return np.array([[ord(text)] for text in batch], dtype=np.float32).reshape(-1, 1)

    before = PseudoQueries(tuple(known), np.array([[-ord(text)] for text in known], dtype=np.float32).reshape(-1, 1))
    found = PseudoQueries.of(texts, encode, before)
    assert found.texts == tuple(texts)
    assert encoded == [text for text in texts if text not in known]
    assert found.raw.tolist() == [[-ord(text) if text in known else ord(text)] for text in texts]
    encoded.clear()
    assert PseudoQueries.of(texts, encode).raw[:, 0].tolist() == [ord(text) for text in texts]
    assert encoded == texts
