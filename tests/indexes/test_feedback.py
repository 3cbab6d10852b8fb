"""Pseudo-relevance feedback from the vectors and words of the best chunks."""

from collections import Counter
from math import log
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed import Fusion, Store
from ragembed.indexes.search.feedback import is_code, moved, shares, words_of
from ragembed.indexes.search.feedback import likeness as likeness_of_numbers
from ragembed.indexes.search.hybrid import LexicalMatches, with_expected
from tests.conftest import record


def test_chunks_without_a_vector_get_a_cosine_by_their_words():
    keys = np.arange(14)
    words, cosines = np.arange(14.0) + 1.0, np.linspace(0.2, 0.8, 14)
    missing = np.isin(keys, [3, 13])
    vectors = SimpleNamespace(missing=lambda asked: missing[asked])
    matches = LexicalMatches("", keys, words, 0.0, keys, vectors)
    estimated = with_expected(cosines, matches, keys)
    np.testing.assert_array_equal(estimated[~missing], cosines[~missing])
    known, scores = cosines[~missing], words[~missing]
    expected = known.mean() + 0.75 * known.std() * (words[missing] - scores.mean()) / scores.std()
    np.testing.assert_allclose(estimated[missing], expected)
    everything = LexicalMatches("", keys, words, 0.0, keys, SimpleNamespace(missing=lambda asked: asked >= 0))
    assert with_expected(cosines, everything, keys) is cosines


TEXTS = st.lists(st.lists(st.sampled_from("abcdefg"), max_size=12).map(" ".join), max_size=8)


def likeness(texts, best):
    """Return the likeness of texts, after checking that it does not depend on the numbers of words."""
    found = likeness_of_numbers([words_of(text) for text in texts], best)
    np.testing.assert_array_equal(likeness_of_numbers([-words_of(text) for text in texts], best), found)
    return found


def reference_likeness(texts, best):
    """BM25 of each text for the words of the best texts, weighted as in those."""
    counted = [Counter(text.split()) for text in texts]
    mean = max(np.mean([sum(counts.values()) for counts in counted]), 1.0)
    rarity = {}
    for word in set().union(*counted):
        having = sum(word in counts for counts in counted)
        rarity[word] = log(1 + (len(texts) - having + 0.5) / (having + 0.5))

    def weight(counts, word):
        length = 0.25 + 0.75 * sum(counts.values()) / mean
        return rarity[word] * counts[word] * 2.2 / (counts[word] + 1.2 * length) if word in counts else 0.0

    return [
        sum(weight(counts, word) * sum(weight(other, word) for other in counted[:best]) for word in counts)
        for counts in counted
    ]


@given(TEXTS, st.integers(0, 4))
def test_likeness_equals_the_reference(texts, best):
    found = likeness(texts, best)
    assert found.shape == (len(texts),)
    if texts:
        np.testing.assert_allclose(found, reference_likeness(texts, best), atol=1e-9)


def test_moved_query_is_nearer_to_the_best():
    query, best = np.array([1.0, 0.0], dtype=np.float32), np.array([[0.0, 1.0], [0.0, 0.5]], dtype=np.float32)
    assert moved(query, best, np.array([0.75, 0.5])) == pytest.approx([0.5**0.5, 0.5**0.5])
    assert moved(query, best, np.zeros(2)) == pytest.approx([1.0, 0.0])
    assert moved(query, best[:0], np.zeros(0)) == pytest.approx([1.0, 0.0])


def test_share_in_feedback_falls_by_e_with_each_standard_deviation():
    scores = np.array([4.0, 3.0, 3.0, 1.0, 0.0])
    found = shares(scores, 3)
    assert found.sum() == pytest.approx(1.0)
    assert found / found[0] == pytest.approx(np.exp([0.0, -1 / scores.std(), -1 / scores.std()]))
    assert shares(100 * scores + 7, 3) == pytest.approx(found)
    assert shares(np.ones(5), 4).tolist() == [0.25] * 4
    assert shares(np.zeros(2), 3).tolist() == [0.5, 0.5]
    assert shares(np.zeros(0), 3).shape == (0,)


CODE = "def wing_{0}(flow):\n    total = sum(flow.parts)\n    return total / len(flow.parts)  # wing {0}\n"
PROSE = "The wing number {0} has a flow. Its parts (some of them) add to a total; see table {0}.\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (CODE, True),
        ("for (int i = 0; i < n; i++) { sum += a[i]; }", True),
        (PROSE.format(1), False),
        ("Call `store.search(query)` to search a store. It returns hits, the best first, with their scores.", False),
        ("", False),
    ],
)
def test_code_is_told_from_prose(text, code):
    assert is_code(text) is code


@pytest.mark.parametrize(
    ("text", "given_fusion", "used"),
    [
        (CODE, Fusion(), (0.8, 0.4)),
        (CODE, Fusion(alpha=0.7), (0.7, 0.4)),
        (CODE, Fusion(feedback=0.0), (0.8, 0.0)),
        (PROSE, Fusion(), (0.6, 0.75)),
    ],
)
def test_source_code_has_other_defaults(tmp_path, encoder, text, given_fusion, used):
    with Store.create(tmp_path / "store", encoder) as store:
        store.add(record(f"id{i}", text.format(i)) for i in range(12))
        [explained, *_] = store.explain("wing 3 flow", 1, fusion=given_fusion)
    assert explained.dense.weight == used[0]
    assert len(explained.towards) == (3 if used[1] else 0)
    if used[1]:
        assert explained.shared.weight / explained.lexical.weight == pytest.approx(used[1])
