"""One ranking for each query: the results do not depend on how many are asked for, so pages neither repeat nor lose."""

import itertools

import numpy as np
import pytest

from ragembed import Collection, Embedder, RankingOptions, Store
from ragembed.documents.model import Chunk
from ragembed.indexes import ChunkRecord
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.search.pipeline import MODES
from ragembed.indexes.storage import hubness
from tests.conftest import WORDS, KnownEncoder

QUERIES = ("segment vector file", WORDS[9])
CHUNKS = 1100
"""More chunks than the first two searches of a query find."""


class ByLength:
    """A reranker that prefers short texts."""

    def scores(self, query, texts):
        return [-float(len(text)) for text in texts]


def chunks(start=0):
    draw = np.random.default_rng(start)
    for i in range(CHUNKS):
        text = " ".join(draw.choice(WORDS, size=12)) + f" number {i - i % 4}"
        # The texts of every fourth chunk are equal.
        chunk = Chunk("the same words " * 4 if i % 4 == 3 else text, metadata={"source": f"f{i % 90}", "i": i})
        yield ChunkRecord(f"{start}-{i:04}", chunk)


def make(path, config, index):
    texts, config = [each.chunk.text for each in chunks()], config.replace(extractor="re:dim=32")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hubness, "PSEUDO_QUERIES", 60)
        with Store.create(path, Embedder(config).fit(texts), index=index) as store:
            store.add(chunks())
        refit_store(path)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory, tiny_config):
    with Store.open(make(tmp_path_factory.mktemp("paging") / "store", tiny_config, "flat")) as store:
        assert store.search("segment", 1)[0].relevance is not None
        yield store


def assert_one_ranking(search, size):
    """Check that each page and each shorter result is a part of the whole, which has no result twice."""
    whole = search(10 * size)
    names = [(hit.store, hit.id) for hit in whole]
    assert len(set(names)) == len(names) > 0
    if whole[0].rerank is None:
        assert all(later.score <= earlier.score for earlier, later in itertools.pairwise(whole))
    for k in (1, 10, 230):
        found = search(k)
        assert [(hit.store, hit.id, hit.score, hit.relevance) for hit in found] == [
            (hit.store, hit.id, hit.score, hit.relevance) for hit in whole[:k]
        ]
    return whole


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        *((mode, {}) for mode in MODES),
        ("dense", {"where": "i >= 300"}),
        ("lexical", {"min_relevance": 0.3}),
        ("dense", {"ranking": RankingOptions(dedupe=True)}),
        *(
            (mode, {"ranking": RankingOptions(dedupe=True, per_file=1), "min_relevance": 0.2, "where": "i < 700"})
            for mode in MODES
        ),
        ("hybrid", {"ranking": RankingOptions(reranker=ByLength(), dedupe=True, per_file=3)}),
    ],
)
def test_fewer_results_are_the_first_of_more(store, mode, settings):
    for query in QUERIES:
        whole = assert_one_ranking(lambda k, query=query: store.search(query, k, mode, **settings), CHUNKS)
        if not settings and mode != "lexical":
            assert len(whole) == CHUNKS
        if "min_relevance" in settings:
            assert all(hit.relevance >= settings["min_relevance"] for hit in whole)
    assert [[hit.id for hit in hits] for hits in store.search_many(QUERIES, 70, mode, **settings)] == [
        [hit.id for hit in store.search(query, 70, mode, **settings)] for query in QUERIES
    ]


def test_an_approximate_index_gives_one_ranking(tmp_path, tiny_config):
    with Store.open(make(tmp_path / "store", tiny_config, "ivf-sq8")) as store:
        for mode, query in itertools.product(("hybrid", "dense"), QUERIES):
            whole = store.search(query, CHUNKS, mode)
            assert len({hit.id for hit in whole}) == CHUNKS
            assert all(store.search(query, k, mode) == whole[:k] for k in (1, 10, 60, 230))


@pytest.mark.parametrize("mode", ["hybrid", "dense"])
def test_diverse_results_come_first_and_the_others_follow(store, mode):
    for query in QUERIES:
        ranking = RankingOptions(mmr=0.5, mmr_depth=20)
        found = store.search(query, CHUNKS, mode, ranking=ranking)
        assert [hit.id for hit in found[20:]] == [hit.id for hit in store.search(query, CHUNKS, mode)[20:]]
        for k in (5, 20):
            assert store.search(query, k, mode, ranking=ranking) == found[:k]


@pytest.mark.parametrize("mode", MODES)
def test_the_results_of_a_collection_are_one_ranking(store, mode, tmp_path):
    with Store.create(tmp_path / "other", KnownEncoder()) as other:
        other.add(chunks(1))
    stores = {"one": store.path, "two": tmp_path / "other"}
    with Collection.open(stores, KnownEncoder()) as both:
        for query in QUERIES:
            assert_one_ranking(lambda k, query=query: both.search(query, k, mode), 2 * CHUNKS)


def test_every_result_can_be_explained(store):
    hits = store.search(QUERIES[0], 400)
    explained = store.explain(QUERIES[0], 400)
    assert [each.hit.id for each in explained] == [hit.id for hit in hits]
    for each, hit in zip(explained, hits, strict=True):
        assert sum(term.value for term in each.terms) == pytest.approx(each.score, abs=1e-9)
        assert each.score == pytest.approx(hit.score, abs=1e-4) or "a later step set the score" in each.note
