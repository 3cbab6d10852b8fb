"""Ranking of candidates: folding, reranking, limits per file and diversity; k results if there are so many."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord, RankingOptions, Store
from ragembed.indexes.search.hybrid import spread_documents
from ragembed.indexes.search.pipeline import MODES
from ragembed.indexes.search.ranking import CandidateStream, rank
from ragembed.indexes.types import Hit
from tests.conftest import KnownEncoder, record

DEDUPE = RankingOptions(dedupe=True)


def ids(hits):
    return [hit.id for hit in hits]


class ByTable:
    """A reranker that looks up scores by the first word of a text, 0 for others; ``asked`` holds the texts it read."""

    def __init__(self, table=None):
        self.table = table or {}
        self.asked = []

    def scores(self, query, texts):
        self.asked.append((query, list(texts)))
        return [self.table.get(text.split()[0], 0.0) for text in texts]


# Given candidates


def hit(name, text=None, source=None, **fields):
    return Hit(name, Chunk(name if text is None else text, **fields), source, score=0.0)


def arrange(hits, k, ranking):
    """Rank hits that come in this order, with scores that fall from 1."""
    scored = [Hit(each.id, each.chunk, each.source, 1.0 - i / 1000) for i, each in enumerate(hits)]

    def geometry(some):
        raise AssertionError("only maximal marginal relevance needs vectors")

    return rank(CandidateStream("the question", iter(scored), geometry), k, ranking)


def test_near_duplicates_are_folded_into_better_hits():
    hits = [hit("a", "one two three"), hit("b", "x y z"), hit("c", "One, two, three!", source="c.md"), hit("d", "last")]
    found = arrange(hits, 3, DEDUPE)
    assert ids(found) == ["a", "b", "d"]
    assert [each.duplicates for each in found] == [(ChunkRecord("c", hits[2].chunk, "c.md"),), (), ()]
    assert [each.score for each in found] == [1.0, 0.999, 0.997]
    assert ids(arrange(hits, 4, RankingOptions())) == list("abcd")


def test_title_and_headings_distinguish_short_texts():
    hits = [hit(name, "Deprecated.", headings=(name.strip("2"),)) for name in ("open", "close", "open2")]
    assert [len(found.duplicates) for found in arrange(hits, 3, DEDUPE)] == [1, 0]


@pytest.mark.parametrize("copies", [0, 1, 3000])
def test_folding_still_fills_k(copies):
    hits = [hit(f"copy {i}", "the same words") for i in range(copies)] + [hit(f"other {i}", f"n{i}") for i in range(20)]
    found = arrange(hits, 10, DEDUPE)
    assert len(found) == 10
    assert found[0].id == ("copy 0" if copies else "other 0")
    assert len(found[0].duplicates) == max(copies - 1, 0)
    assert len(arrange(hits, 50, DEDUPE)) == 20 + min(copies, 1)


def test_per_file_limit_still_fills_k():
    hits = [hit(f"a{i}", source="a.md") for i in range(700)] + [hit("b", source="b.md"), hit("c", source="c.md")]
    assert ids(arrange(hits, 3, RankingOptions(per_file=1))) == ["a0", "b", "c"]
    assert ids(arrange(hits, 3, RankingOptions(per_file=2))) == ["a0", "a1", "b"]
    assert ids(arrange(hits, 9, RankingOptions(per_file=1))) == ["a0", "b", "c"]
    assert ids(arrange(hits[:700], 9, RankingOptions(per_file=1))) == ["a0"]


def test_per_file_uses_the_source_in_the_metadata():
    hits = [
        hit("a", metadata={"source": "x"}),
        hit("b", source="x"),
        hit("c", metadata={"source": 7}),
        hit("d"),
        hit("e"),
    ]
    assert ids(arrange(hits, 5, RankingOptions(per_file=1))) == ["a", "c", "d", "e"]


def test_one_document_does_not_take_all_of_the_first_results():
    sources = ["long.md"] * 5 + ["a.md"] + ["long.md"] * 2 + ["b.md", "long.md"] + ["c.md", "long.md"]
    hits = [Hit(str(i), Chunk("text"), name, 1.0 - i / 100) for i, name in enumerate(sources)]
    found = list(spread_documents(iter(hits)))
    assert ids(found) == ["0", "1", "2", "5", "8", "3", "4", "6", "7", "9", "10", "11"]
    assert [each.score for each in found[:4]] == [1.0, 0.99, 0.98, 0.95]
    assert [each.score for each in found[4:]] == [0.92] * 5 + [0.91, 0.90, 0.89]
    rows = [Hit(str(i), Chunk("text", metadata={"row": i}), "table.csv", -i) for i in range(8)]
    texts = [Hit(str(i), Chunk("text"), None, -i) for i in range(8)]
    assert list(spread_documents(iter(rows))) == rows
    assert list(spread_documents(iter(texts))) == texts


def test_reranker_orders_the_best_candidates():
    reranker = ByTable({"b": 1.0, "c": 5.0, "d": 9.0})
    hits = [hit(name) for name in "abcde"]
    found = arrange(hits, 5, RankingOptions(reranker=reranker, rerank_depth=3))
    assert ids(found) == ["c", "b", "a", "d", "e"]
    assert [each.rerank for each in found] == [5.0, 1.0, 0.0, None, None]
    assert found[0].score == 0.998
    assert reranker.asked == [("the question", ["a", "b", "c"])]
    assert ids(arrange(hits, 2, RankingOptions(reranker=ByTable(), rerank_depth=9))) == ["a", "b"]
    assert arrange([], 2, RankingOptions(reranker=reranker)) == []
    assert len(reranker.asked) == 1


def test_reranker_reads_each_text_once_with_headings():
    """Near-duplicates do not count for its depth, and it reads no text twice."""
    reranker = ByTable()
    hits = [hit(f"a{i}", "the same", title="T", source="a.md") for i in range(400)]
    hits += [hit(f"b{i}", f"other n{i}", source="a.md") for i in range(400)] + [hit("c", source="c.md")]
    found = arrange(hits, 2, RankingOptions(dedupe=True, reranker=reranker, rerank_depth=3, per_file=1))
    assert ids(found) == ["a0", "c"]
    assert reranker.asked == [("the question", ["T\nthe same", "other n0", "other n1"])]


@pytest.mark.parametrize("answer", [[1.0], [1.0, math.nan]])
def test_wrong_reranker_scores_are_refused(answer):
    class Wrong:
        def scores(self, query, texts):
            return answer

    with pytest.raises(
        ConfigError, match=r"the reranker returned .* for 2 texts: expected one finite number for each text"
    ):
        arrange([hit("a"), hit("b")], 2, RankingOptions(reranker=Wrong()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"per_file": 0}, "per_file is 0: expected 1 or more"),
        ({"rerank_depth": 0}, "rerank_depth is 0: expected 1 or more"),
        ({"mmr_depth": 0}, "mmr_depth is 0: expected 1 or more"),
        ({"reranker": "a model"}, r"reranker is of type str: expected an object with scores\(query, texts\)"),
        ({"mmr": 2.0}, r"mmr is 2.0: expected a number from 0 \(unlike each other\) to 1 \(by score\)"),
    ],
)
def test_invalid_options_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        RankingOptions(**settings)


def reference(hits, k, dedupe, table, depth, per_file):
    """Apply the steps one after the other to all candidates; equal texts of one letter are near-duplicates."""
    groups = []
    for each in hits:
        same = next((group for group in groups if dedupe and group[0].chunk.text == each.chunk.text), None)
        if same is None:
            groups.append([each])
        else:
            same.append(each)
    if table is not None:
        best = sorted(groups[:depth], key=lambda group: -table.get(group[0].chunk.text, 0.0))
        groups = best + groups[depth:]
    chosen = []
    for group in groups:
        room = [each for each in group if per_file is None or sum(c.source == each.source for c in chosen) < per_file]
        if room:
            chosen.append(room[0])
    return ids(chosen[:k])


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("xyz")), max_size=30),
    st.integers(1, 12),
    st.booleans(),
    st.none() | st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-3, 3)),
    st.integers(1, 6),
    st.none() | st.integers(1, 3),
)
def test_ranking_equals_the_reference(drawn, k, dedupe, table, depth, per_file):
    hits = [hit(str(i), text, source) for i, (text, source) in enumerate(drawn)]
    reranker = None if table is None else ByTable(table)
    ranking = RankingOptions(dedupe=dedupe, reranker=reranker, rerank_depth=depth, per_file=per_file)
    assert ids(arrange(hits, k, ranking)) == reference(hits, k, dedupe, table, depth, per_file)


# In a store

WORDS = ["lock", "store", "writer", "reader", "segment", "vector", "index", "query", "file", "folder"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """600 chunks of 30 files; every third chunk is a copy of the one before."""
    draw = np.random.default_rng(5)
    texts = []
    for i in range(600):
        texts.append(texts[-1].upper() if i % 3 == 2 else " ".join(draw.choice(WORDS, size=6)) + f" n{i}")
    with Store.create(tmp_path_factory.mktemp("arranged") / "s", KnownEncoder()) as store:
        store.add(
            ChunkRecord(f"{i:03}", Chunk(text, metadata={"source": f"f{i % 30}", "i": i}))
            for i, text in enumerate(texts)
        )
        yield store


@pytest.mark.parametrize("mode", MODES)
def test_ranking_applies_filters(store, mode):
    ranking = RankingOptions(dedupe=True, reranker=ByTable(), rerank_depth=7, per_file=1, mmr=0.7)
    found = store.search("lock store", 10, mode, where="i < 90", ranking=ranking)
    assert len(found) == len({hit.chunk.metadata["source"] for hit in found}) == 10
    assert all(hit.chunk.metadata["i"] < 90 for hit in found)
    assert all(duplicate.chunk.metadata["i"] < 90 for hit in found for duplicate in hit.duplicates)
    assert store.search("lock store", 10, mode, where="i > 9000", ranking=ranking) == []
    assert found == store.search("lock store", 10, mode, where="i < 90", ranking=ranking)


# Maximal marginal relevance


def at(degrees):
    return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]


@pytest.fixture
def circle(tmp_path):
    table = {f"at a{abs(n)}": at(n) for n in (12, -30, 10, 80)} | {"east": [1.0, 0.0], "at": [1.0, 0.0]}
    with Store.create(tmp_path / "s", KnownEncoder(table)) as store:
        store.add(record(str(n), f"at a{abs(n)}") for n in (12, -30, 10, 80))
        yield store


@pytest.mark.parametrize(("weight", "k"), [(0.0, 2), (0.5, 4), (0.5, 9), (1.0, 1)])
def test_mmr_option_equals_search_mmr_in_dense_mode(store, circle, weight, k):
    for searched, query in ((circle, "east"), (store, "lock store")):
        expected = searched.search_mmr(query, k, fetch_k=50, lambda_mult=weight)
        found = searched.search(query, k, "dense", ranking=RankingOptions(mmr=weight))
        assert ids(found) == ids(expected)
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=1e-6)


def test_mmr_chooses_from_mmr_depth(circle):
    assert ids(circle.search("east", 2, "dense", ranking=RankingOptions(mmr=0.5))) == ["10", "-30"]
    assert ids(circle.search("east", 2, "dense", ranking=RankingOptions(mmr=0.5, mmr_depth=2))) == ["10", "12"]
    # The others follow after those that it chose from.
    assert ids(circle.search("east", 3, "dense", ranking=RankingOptions(mmr=0.5, mmr_depth=1))) == ["10", "12", "-30"]


def by_definition(scores, cosines, between, k, weight):
    """Choose as Carbonell & Goldstein do, with scores scaled to the range of the cosines."""
    low, high = min(scores), max(scores)
    relevance = [min(cosines) + (s - low) / (high - low) * (max(cosines) - min(cosines)) for s in scores]
    chosen = []
    while len(chosen) < k:
        gains = {
            i: weight * relevance[i] - (1 - weight) * max((between[i][j] for j in chosen), default=0.0)
            for i in range(len(scores))
            if i not in chosen
        }
        chosen.append(max(gains, key=gains.get))
    return chosen


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_mmr_scales_fused_scores_and_bm25(store, mode):
    pool = store.search("lock store", 20, mode)
    vectors = store.vectors(ids(pool)).astype(float)
    cosines = {hit.id: hit.score for hit in store.search("lock store", 600, "dense")}
    chosen = by_definition(
        [hit.score for hit in pool], [cosines[hit.id] for hit in pool], (vectors @ vectors.T).tolist(), 10, 0.5
    )
    assert chosen != list(range(10))
    found = store.search("lock store", 10, mode, ranking=RankingOptions(mmr=0.5, mmr_depth=20))
    assert ids(found) == [pool[i].id for i in chosen]


def test_mmr_with_equal_scores_uses_diversity_only(circle):
    found = circle.search("at", 3, "lexical", ranking=RankingOptions(mmr=0.5))
    assert ids(found) == ["12", "80", "-30"]


def test_mmr_uses_reranker_scores(circle):
    by_table = ByTable({"at": 1.0})

    class Far:
        def scores(self, query, texts):
            return [float(text == "at a80") for text in texts]

    assert ids(circle.search("east", 1, "dense", ranking=RankingOptions(mmr=1.0, reranker=Far()))) == ["80"]
    # A hit that was not read gets the lowest score of those that were: 80 is last before and after.
    few = RankingOptions(mmr=1.0, reranker=by_table, rerank_depth=2)
    assert ids(circle.search("east", 4, "dense", ranking=few)) == ["10", "12", "-30", "80"]
