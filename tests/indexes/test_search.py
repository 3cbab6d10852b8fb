"""Hybrid search against a plain loop, deeper than its candidate lists."""

import numpy as np
import pytest

from ragembed.indexes import Store
from ragembed.indexes.fusion import DENSE_SHARE

WORDS = ["lock", "store", "writer", "reader", "segment", "vector", "index", "query", "file", "folder"]
CHUNKS = 700


@pytest.fixture
def large(tmp_path, encoder, make_record):
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(3, 9))) + f" n{i}" for i in range(CHUNKS)]
    store = Store.create(tmp_path / "s", encoder)
    store.add([make_record(f"{i:03}", text) for i, text in enumerate(texts)])
    return store


def plain_loop(store, query, k, depth):
    """Fuse as documented: candidates of both searches and their ties, both scores of each, standardised and added."""
    dense = {hit.id: hit.score for hit in store.search(query, CHUNKS, "dense")}
    words = {hit.id: hit.score for hit in store.search(query, CHUNKS, "lexical")}
    least = [sorted(scores.values(), reverse=True)[:depth][-1] for scores in (dense, words)]
    candidates = sorted(name for name in dense if dense[name] >= least[0] or words.get(name, -1.0) >= least[1])
    scores = [np.array([dense[c] for c in candidates]), np.array([words.get(c, 0.0) for c in candidates])]
    z = [(s - s.mean()) / s.std() for s in scores]
    fused = DENSE_SHARE * z[0] + (1 - DENSE_SHARE) * z[1]
    order = sorted(range(len(candidates)), key=lambda i: (-fused[i], candidates[i]))[:k]
    return [(candidates[i], fused[i]) for i in order]


@pytest.mark.parametrize("query", ["lock store", "writer", "segment vector index query", "n17 folder"])
def test_hybrid_equals_the_plain_loop(large, query):
    found = large.search(query, 20)
    expected = plain_loop(large, query, 20, depth=200)
    np.testing.assert_allclose([hit.score for hit in found], [score for _, score in expected], atol=1e-4)
    assert {hit.id for hit in found[:10]} == {chunk_id for chunk_id, _ in expected[:10]}
