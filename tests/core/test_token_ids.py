import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ragembed.models.token_ids import TokenIds

TEXTS = st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6)


@given(TEXTS)
def test_ids_of_each_text(texts):
    ids = TokenIds.of(texts)
    assert len(ids) == len(texts)
    assert ids.tolist() == texts
    assert ids.texts.tolist() == [number for number, text in enumerate(texts) for _ in text]
    assert ids.flat.dtype == ids.lengths.dtype == np.int64


@given(TEXTS, st.lists(st.integers(10, 19), max_size=2), st.lists(st.integers(20, 29), max_size=2))
def test_framed(texts, prefix, suffix):
    framed = TokenIds.of(texts).framed(prefix, suffix)
    assert framed.tolist() == [[*prefix, *text, *suffix] for text in texts]


@given(TEXTS)
def test_distinct(texts):
    ids = TokenIds.of(texts)
    distinct, place = ids.distinct()
    assert distinct.tolist() == sorted({number for text in texts for number in text})
    assert distinct[place].tolist() == ids.flat.tolist()
