from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.extractors.weighting import (
    FREQUENT_TOKENS,
    TokenCounter,
    TokenStatistics,
    idf,
    make_weighting,
    sif,
    usif,
    without_biases,
)
from ragembed.models.token_ids import TokenIds

STATISTICS = TokenStatistics(4, np.array([4, 2, 1, 0]), np.array([10, 5, 5, 0]))
VOCABULARY = ["a", "b", "c", "d"]


def counted(texts, vocabulary, framing):
    counter = TokenCounter(SimpleNamespace(vocabulary_size=vocabulary, prefix=framing, suffix=[], ids=TokenIds.of))
    for ids in texts:
        counter.add([ids])
    return counter.statistics()


def test_document_frequency_and_occurrences():
    statistics = counted([[3, 3, 3], [3, 4], []], 6, [0])
    assert statistics.texts == 3
    assert statistics.document_frequency.tolist() == [3, 0, 0, 2, 1, 0]
    assert statistics.occurrences.tolist() == [3, 0, 0, 4, 1, 0]


def test_common_tokens_have_zero_idf():
    table = idf(STATISTICS.with_common((1, 3)))
    np.testing.assert_allclose(table, [0.0, 0.0, np.log(4), 0.0], rtol=1e-6)
    assert STATISTICS.document_frequency.tolist() == [4, 2, 1, 0]


def test_usif_with_tokens_more_probable_than_chance():
    # V = 3, n = 0.9: one of three tokens is above the threshold 1 - (2/3)^0.9 = 0.306, so alpha = 1/3.
    statistics = TokenStatistics(10, np.array([5, 2, 2]), np.array([5, 2, 2]))
    a = (1 - 1 / 3) / (1 / 3 * 3 / 2)
    expected = [a / (a / 2 + p) for p in (5 / 9, 2 / 9, 2 / 9)]
    np.testing.assert_allclose(usif(statistics), expected, rtol=1e-6)


def test_without_biases():
    vocabulary = [
        "the",
        "man",
        "wing",
        "##s",
        "##ing",
        "##",
        ".",
        "“",
        "€",
        "[CLS]",
        "[MASK]",
        "a1",
        "",
        "\u0120,",
        "\u0120the",
        "\u2581wing",
    ]
    table = without_biases(vocabulary)
    kept = {token for token, weight in zip(vocabulary, table, strict=True) if weight}
    assert kept == {"man", "wing", "[CLS]", "[MASK]", "a1", "", "\u2581wing"}
    assert set(table.tolist()) == {0.0, 1.0}


def test_custom_frequent_tokens():
    assert len(FREQUENT_TOKENS) == len(set(FREQUENT_TOKENS)) == 33
    assert without_biases(["the", "man"]).tolist() == [0.0, 1.0]
    assert made("-biases", ("man",)).table(STATISTICS).tolist() == [1.0, 1.0, 1.0, 1.0]
    assert without_biases(["the", "man"], ("man",)).tolist() == [1.0, 0.0]


def made(spec, biases=None):
    return make_weighting(spec, lambda: VOCABULARY, biases)


@pytest.mark.parametrize(
    ("spec", "share", "by_length", "expected"),
    [
        ("idf:0.25", 0.25, False, idf(STATISTICS)),
        ("-biases", 1.0, False, without_biases(VOCABULARY)),
        ("sif:0.5", 1.0, True, sif(STATISTICS, 0.5)),
        ("sif", 1.0, True, sif(STATISTICS)),
        ("usif", 1.0, True, usif(STATISTICS)),
    ],
)
def test_specs_make_weightings(spec, share, by_length, expected):
    assert made("uniform") is None
    weighting = made(spec)
    assert (weighting.share, weighting.by_length) == (share, by_length)
    np.testing.assert_array_equal(weighting.table(STATISTICS), expected)


@given(
    texts=st.lists(st.lists(st.integers(0, 9), max_size=20), min_size=1, max_size=20),
    spec=st.sampled_from(["idf", "sif", "usif", "-biases"]),
)
def test_weights_are_finite_and_not_negative(texts, spec):
    table = make_weighting(spec, lambda: [f"t{i}" for i in range(10)]).table(counted(texts, 10, []))
    assert table.dtype == np.float32
    assert np.isfinite(table).all()
    assert (table >= 0).all()
