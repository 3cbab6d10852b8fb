"""Hybrid search compared with a reference implementation, deeper than its candidate lists."""

import numpy as np
import pytest

from ragembed.indexes import Store
from ragembed.indexes.search.feedback import likeness, words_of
from ragembed.indexes.search.fusion import METHODS, Fusion
from ragembed.postprocess import unit_rows
from tests.conftest import KnownEncoder, record

WORDS = ["lock", "store", "writer", "reader", "segment", "vector", "index", "query", "file", "folder"]
CHUNKS = 700


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A store that no test changes."""
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(3, 9))) + f" n{i}" for i in range(CHUNKS)]
    with Store.create(tmp_path_factory.mktemp("large") / "s", KnownEncoder()) as store:
        store.add([record(f"{i:03}", text) for i, text in enumerate(texts)])
        yield store


def reference_search(store, encoder, query, k, depth, fusion):
    """Search as documented: fuse, move the query towards the best three, fuse again, then fuse with shared words."""
    [vector] = unit_rows(encoder.encode_queries([query]))
    fused = fuse(store, query, vector, depth, fusion)
    if fusion.feedback and fusion.alpha:
        scores = np.array([score for _, score in fused])
        shares = np.exp((scores[:3] - scores[0]) / scores.std())
        best = shares / shares.sum() @ store.vectors([name for name, _ in fused[:3]])
        [vector] = unit_rows((vector + fusion.feedback * best)[None, :])
        fused = fuse(store, query, vector, depth, fusion)
    if fusion.feedback and fusion.alpha < 1:
        least = fused[:100][-1][1]
        fused = fuse(store, query, vector, depth, fusion, among=[name for name, score in fused if score >= least])
    return fused[:k]


def fuse(store, query, vector, depth, fusion, among=None):
    """Fuse the candidates of both searches, including ties; best first, then by insertion.

    ``among`` are the candidates whose words are compared, in the order of the earlier fusion.
    """
    dense = {hit.id: hit.score for hit in store.search_vector(vector, CHUNKS)}
    words = {hit.id: hit.score for hit in store.search(query, CHUNKS, "lexical")}
    least = [sorted(scores.values(), reverse=True)[:depth][-1] for scores in (dense, words)]
    candidates = sorted(name for name in dense if dense[name] >= least[0] or words.get(name, -1.0) >= least[1])
    candidates = among or candidates
    shared = None if among is None else likeness([words_of(store.get([c])[0].chunk.text) for c in candidates], 3)
    both = np.array([dense[c] for c in candidates]), np.array([words.get(c, 0.0) for c in candidates])
    scores = fusion.scores(*both, shared)
    order = sorted(range(len(candidates)), key=lambda i: (-scores[i], candidates[i]))
    return [(candidates[i], scores[i]) for i in order]


FUSIONS = [Fusion(), Fusion(feedback=0), Fusion(alpha=0.0), Fusion(alpha=1.0)]
FUSIONS += [Fusion(method, 0.3) for method in METHODS]


@pytest.mark.parametrize("fusion", FUSIONS, ids=str)
@pytest.mark.parametrize("query", ["lock store", "n17 folder"])
def test_hybrid_search_equals_the_reference(large, query, fusion):
    found = large.search(query, 20, fusion=fusion)
    expected = reference_search(large, large.embedder, query, 20, 200, fusion)
    np.testing.assert_allclose([hit.score for hit in found], [score for _, score in expected], atol=1e-4)
    tied = {name for name, score in expected if score <= expected[9][1] + 1e-4}
    assert {hit.id for hit in found[:10]} - tied == {name for name, _ in expected[:10]} - tied


def test_hybrid_hits_have_both_scores_of_the_query(large):
    dense = {hit.id: hit.score for hit in large.search("lock store", CHUNKS, "dense")}
    words = {hit.id: hit.score for hit in large.search("lock store", CHUNKS, "lexical")}
    for hit in large.search("lock store", 30):
        assert hit.dense == pytest.approx(dense[hit.id], abs=1e-5)
        assert hit.lexical == pytest.approx(words.get(hit.id, 0.0), abs=1e-5)


def test_feedback_finds_chunks_similar_to_the_best(tmp_path, make_encoder, make_record):
    """A chunk that shares no word and no direction with the query is similar to the first hits."""
    found_first = {f"asked {name}": (0.8, 0.6, 0.0) for name in "abc"}
    table = {"asked": (1.0, 0.0, 0.0), **found_first, "like them": (0.0, 1.0, 0.0), "other": (0.1, 0.0, 0.995)}
    with Store.create(tmp_path / "s", make_encoder(table)) as store:
        store.add([make_record(name, name) for name in table if name != "asked"])
        orders = [[hit.id for hit in store.search("asked", fusion=Fusion(feedback=weight))] for weight in (0.0, 0.75)]
    assert [set(order[:3]) for order in orders] == [set(found_first)] * 2
    assert [order[3:] for order in orders] == [["other", "like them"], ["like them", "other"]]
