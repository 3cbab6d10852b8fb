import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ragembed.corpus import PseudoQueries, draw_pseudo_queries

CORPUS = [f"text number {i} holds some words about subject {i % 7} and nothing else at all of note" for i in range(300)]


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
