"""Collections: the results of one store with all chunks, stores that fail, and stores that cannot be compared."""

import random

import pytest

from ragembed import Collection, Embedder, Store
from ragembed.indexes.storage import hubness
from ragembed.indexes.writing import hubness_updates, posting_updates
from tests.conftest import WORDS, record

DRAWN = 60
CHUNKS = 1870
MEMBERS = (1, 2, 5, 17)
SAME = 2e-5
MODES = ("hybrid", "dense", "lexical")


def few_pseudo_queries(patched):
    for module in (hubness, hubness_updates):
        patched.setattr(module, "PSEUDO_QUERIES", DRAWN)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    few_pseudo_queries(monkeypatch)


def record_with(chunk_id, text, **metadata):
    return record(chunk_id, text, metadata=metadata)


def queries(count):
    draw = random.Random(2)
    found = [" ".join(draw.sample(WORDS, draw.randint(1, 5))) for _ in range(count)]
    return [*found, '"supersonic flow" wing', "sto*", "writer.lock", "zebra zebra", "unheard word", "…"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tiny_config):
    """One store with all chunks, and the folders of random divisions of them among several stores, by their number."""
    folder = tmp_path_factory.mktemp("collection")
    draw = random.Random(1)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(4, 30))) for _ in range(CHUNKS - 70)]
    texts += draw.choices(texts, k=50)  # the same text in several stores
    texts += [f"{text} zebra" for text in draw.choices(texts, k=20)]  # near-duplicates
    chunks = [record_with(f"id{i}", text, year=2000 + i % 7) for i, text in enumerate(texts)]
    embedder = Embedder(tiny_config).fit(texts)
    with pytest.MonkeyPatch.context() as patched:
        few_pseudo_queries(patched)

        def store(name, some):
            with Store.create(folder / name, embedder, index="flat") as made:
                made.add(some)
            return folder / name

        one = store("one", chunks)
        divided = {}
        for number in MEMBERS:
            parts = [[] for _ in range(number)]
            for i, chunk in enumerate(draw.sample(chunks, len(chunks))):
                parts[i % number].append(chunk)
            with_postings = pytest.MonkeyPatch()
            divided[number] = {}
            for i, part in enumerate(parts):
                with_postings.setattr(posting_updates, "LEAST_CHUNKS", 1 if i % 2 else 20_000)
                divided[number][f"m{i}"] = store(f"{number}-{i}", part)
            with_postings.undo()
    return one, divided


def assert_same(expected, found):
    """Both lists have the same scores, and the same hits, except among those that tie with the last."""
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=SAME)
    last = expected[-1].score + SAME if expected else 0.0
    assert {hit.id for hit in expected if hit.score > last} == {hit.id for hit in found if hit.score > last}
    both = {hit.id: hit for hit in expected}
    for hit in found:
        if hit.id in both:
            assert hit.score == pytest.approx(both[hit.id].score, abs=SAME)
            assert hit.dense == pytest.approx(both[hit.id].dense, abs=SAME)
            assert hit.lexical == pytest.approx(both[hit.id].lexical, abs=SAME)


def assert_all_same(expected, found):
    assert len(expected) == len(found)
    for each, other in zip(expected, found, strict=True):
        assert_same(each, other)


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("mode", MODES)
def test_results_are_those_of_one_store(corpus, members, mode, count):
    one, divided = corpus
    with Store.open(one) as store, Collection.open(divided[members]) as together:
        assert len(together) == len(store)
        for where in (None, "year > 2004"):
            expected = store.search_many(queries(count), 10, mode, where=where)
            assert_all_same(expected, together.search_many(queries(count), 10, mode, where=where))
        assert together.problems == {}
