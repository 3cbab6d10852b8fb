import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ragembed.extractors.pooling import WeightedMean, last_token, pooled_tokens
from ragembed.models.tokenizer import TokenKind as K

KINDS = np.array(
    [
        [K.SPECIAL, K.TEMPLATE, K.TEXT, K.TEXT, K.MASK, K.TEMPLATE, K.SPECIAL],
        [K.SPECIAL, K.TEMPLATE, K.TEXT, K.MASK, K.SPECIAL, K.PADDING, K.PADDING],
    ],
    dtype=np.int8,
)


@pytest.mark.parametrize(
    ("pooling", "special", "expected"),
    [
        ("mean", True, ["1111111", "1111100"]),
        ("mean", False, ["0111110", "0111000"]),
        ("masks", True, ["0000100", "0001000"]),
        ("no-mask", True, ["1111011", "1110100"]),
        ("no-mask", False, ["0111010", "0110000"]),
        ("text", True, ["0011000", "0010000"]),
        ("cls", True, ["1000000", "1000000"]),
        ("last", True, ["0000001", "0000100"]),
        ("last", False, ["0000010", "0001000"]),
    ],
)
def test_which_tokens_take_part(pooling, special, expected):
    assert ["".join(str(int(x)) for x in row) for row in pooled_tokens(KINDS, pooling, special)] == expected


def test_row_without_tokens_has_no_last_token():
    assert not pooled_tokens(np.array([[K.SPECIAL, K.PADDING]], dtype=np.int8), "last", special_tokens=False).any()


def test_last_token_with_padding_on_either_side():
    mask = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 0, 0]], dtype=bool)
    assert last_token(mask).tolist() == [1, 3, 3, 1]


def mean_of(hidden, base, weights, share, pieces=1):
    mean = WeightedMean(1, hidden.shape[-1], share)
    for part in np.array_split(np.arange(len(hidden)), pieces):
        mean.add(np.array([0]), hidden[None, part], base[None, part], weights[None, part])
    return mean.result()[0]


def test_shares_of_a_small_example():
    hidden = np.eye(3, dtype=np.float32)
    base, weights = np.ones(3, dtype=np.float32), np.array([0, 1, 3], dtype=np.float32)
    np.testing.assert_allclose(mean_of(hidden, base, weights, 1.0), [0, 1 / 4, 3 / 4], rtol=1e-6)
    np.testing.assert_allclose(mean_of(hidden, base, weights, 0.5), [1 / 6, 1 / 8 + 1 / 6, 3 / 8 + 1 / 6], rtol=1e-6)
    np.testing.assert_allclose(mean_of(hidden, base, weights, 0.0), [1 / 3] * 3, rtol=1e-6)


def test_zero_weights_give_the_plain_mean_and_no_tokens_give_zero():
    hidden = np.array([[2.0], [4.0]], dtype=np.float32)
    none = np.zeros(2, dtype=np.float32)
    assert mean_of(hidden, none + 1, none, 1.0) == [3.0]
    assert mean_of(hidden, none, none, 1.0) == [0.0]
    assert mean_of(hidden, none, none, 0.0) == [0.0]


@given(
    weights=npst.arrays(np.float32, 12, elements=st.floats(0, 12, width=32)),
    base=npst.arrays(np.float32, 12, elements=st.sampled_from([0.0, 1.0])),
    share=st.floats(0, 1),
    pieces=st.integers(1, 5),
)
@example(
    weights=np.full(12, 1.99595e-40, dtype=np.float32), base=np.eye(1, 12, dtype=np.float32)[0], share=1.0, pieces=1
)
def test_weights_sum_to_one_for_any_split(weights, base, share, pieces):
    """The mean of equal vectors is that vector for any weights, unless no token takes part."""
    mean = mean_of(np.ones((12, 1), dtype=np.float32), base, weights * base, share, pieces)
    assert mean == pytest.approx([1.0 if base.any() else 0.0], abs=1e-5)
