"""Collections: the results of one store with all chunks, stores that fail, and stores that cannot be compared."""

import random
import shutil
import sqlite3
from dataclasses import replace

import pytest

from ragembed import Collection, Embedder, Fusion, RankingOptions, Store
from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError, StoreError, StoreNotFoundError
from ragembed.indexes import collection, measure_drift, refit_store, refit_together
from ragembed.indexes.search.ranking import CandidateStream, by_rank
from ragembed.indexes.search.relevance import Logistic, RelevanceModel, mean_relevance
from ragembed.indexes.storage import hubness, posting_files
from ragembed.indexes.storage.writer import StoreWriter
from ragembed.indexes.types import Hit
from tests.conftest import WORDS, KnownEncoder, record
from tests.indexes.tampering import edit

DRAWN = 60
CHUNKS = 1870
SAME = 2e-5
MODES = ("hybrid", "dense", "lexical")


def few_pseudo_queries(patched):
    patched.setattr(hubness, "PSEUDO_QUERIES", DRAWN)


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
def corpus(made_once, tiny_config):
    """One store with all chunks, and a function that divides them among a number of stores at random."""
    draw = random.Random(1)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(4, 30))) for _ in range(CHUNKS - 70)]
    texts += draw.choices(texts, k=50)  # the same text in several stores
    texts += [f"{text} zebra" for text in draw.choices(texts, k=20)]  # near-duplicates
    chunks = [record_with(f"id{i}", text, year=2000 + i % 7) for i, text in enumerate(texts)]
    embedder = Embedder(tiny_config.replace(extractor="re:dim=32")).fit(texts)

    def store(name, some, least_postings):
        def make(folder):
            with pytest.MonkeyPatch.context() as patched:
                few_pseudo_queries(patched)
                patched.setattr(posting_files, "LEAST_CHUNKS", least_postings)
                with Store.create(folder / "store", embedder, index="flat") as made:
                    made.add(some)

        return made_once(f"collection-{name}", make) / "store"

    def divided(number):
        """Every second store has postings."""
        parts = [[] for _ in range(number)]
        for i, chunk in enumerate(random.Random(number).sample(chunks, len(chunks))):
            parts[i % number].append(chunk)
        return {f"m{i}": store(f"{number}-{i}", part, 1 if i % 2 else 20_000) for i, part in enumerate(parts)}

    return store("one", chunks, 20_000), divided


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


@pytest.mark.parametrize("count", [6, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("members", [2, 5, pytest.param(17, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", MODES)
def test_results_are_those_of_one_store(corpus, members, mode, count):
    one, divided = corpus
    with Store.open(one) as store, Collection.open(divided(members)) as together:
        assert len(together) == len(store)
        for where in (None, "year > 2004"):
            expected = store.search_many(queries(count), 10, mode, where=where)
            assert_all_same(expected, together.search_many(queries(count), 10, mode, where=where))
        assert together.problems == {}


@pytest.fixture(scope="module")
def some(corpus):
    """One store, and the five among which its chunks are divided."""
    one, divided = corpus
    with Store.open(one) as store, Collection.open(divided(5)) as together:
        yield store, together


@pytest.mark.parametrize(
    "settings",
    [
        {"fusion": Fusion(feedback=0.0)},
        {"fusion": Fusion("minmax", alpha=0.3)},
        {"fusion": Fusion("rrf", hubness=0.0)},
        {"ranking": RankingOptions(dedupe=True, per_file=1)},
        {"ranking": RankingOptions(mmr=0.4)},
    ],
)
def test_settings_of_the_search_apply_to_all_stores_together(some, settings):
    for query in queries(2):
        expected, found = (each.search(query, 8, **settings) for each in some)
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=SAME)
        assert [len(hit.duplicates) for hit in found] == [len(hit.duplicates) for hit in expected]


def test_vectors_and_mmr_search_all_stores(some):
    store, together = some
    vectors = store.embedder.encode_queries(queries(4))
    assert_all_same(store.search_vectors(vectors, 12), together.search_vectors(vectors, 12))
    assert_same(store.search_mmr("lock the store", 5), together.search_mmr("lock the store", 5))


def test_explanations_have_the_terms_of_one_store(some):
    for mode in MODES:
        expected, found = (each.explain("writer of the store", 4, mode) for each in some)
        for one, other in zip(expected, found, strict=True):
            assert other.score == pytest.approx(one.score, abs=SAME)
            assert sum(term.value for term in other.terms) == pytest.approx(other.score)
            assert other.phrases == pytest.approx(one.phrases, abs=SAME)
            assert other.candidates == one.candidates


def test_relevance_is_the_mean_of_the_stores():
    small, large = (
        RelevanceModel("f", 20, 10, Logistic(x, 2 * x, 3 * x), Logistic(x, x, 0.0), Logistic(x, 0.0, x)) for x in (1, 5)
    )
    mean = mean_relevance([(small, 10), (large, 30), (None, 0)])
    assert mean.hybrid == Logistic(4.0, 8.0, 12.0)
    assert mean_relevance([(small, 10), (replace(large, dense=None), 30)]).dense is None
    assert mean_relevance([(small, 10)]) is small
    assert mean_relevance([(small, 10), (None, 1)]) is small
    assert mean_relevance([(None, 10)]) is None


@pytest.fixture
def three(tmp_path, encoder):
    """Three stores with given vectors; chunks of different stores have the same ids."""
    paths = {}
    for name, texts in {"a": ["red lock", "tea"], "b": ["blue lock", "bird"], "c": ["green lock"]}.items():
        paths[name] = tmp_path / name
        with Store.create(paths[name], encoder) as store:
            store.add(texts, ids=[str(i) for i in range(len(texts))])
    return paths


def found_in(opened, query="lock"):
    return sorted((hit.store, hit.chunk.text) for hit in opened.search(query, mode="lexical"))


def test_hits_name_their_store_where_ids_are_equal(three, encoder):
    with Collection.open(three) as together:
        assert found_in(together) == [("a", "red lock"), ("b", "blue lock"), ("c", "green lock")]
        assert [each.hit.store for each in together.explain("green", mode="lexical")] == ["c"]
        [block] = together.pack(together.search("bird", mode="lexical"), 100).blocks
        assert (block.store, block.text) == ("b", "bird")


@pytest.mark.parametrize("fault", ["missing", "damaged", "other format", "huge key"])
def test_a_store_that_fails_is_left_out_and_reported(three, fault, monkeypatch):
    monkeypatch.setattr(collection, "_RETRY_SECONDS", 0.0)
    database = three["b"] / "store.db"
    if fault == "missing":
        shutil.move(three["b"], three["b"].with_name("moved"))
    elif fault == "damaged":
        database.write_bytes(b"not a database" * 300)
    elif fault == "huge key":
        edit(three["b"], f"UPDATE chunks SET key = {1 << 41} WHERE key = 2")
    else:
        connection = sqlite3.connect(database)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
    with Collection.open(three) as together:
        assert found_in(together) == [("a", "red lock"), ("c", "green lock")]
        assert list(together.problems) == ["b"]
        if fault == "missing":
            shutil.move(three["b"].with_name("moved"), three["b"])
            assert len(found_in(together)) == 3
            assert together.problems == {}


def test_a_store_that_is_being_written_answers(three, encoder):
    with Store.open(three["b"], encoder) as store, store.writer() as writer, Collection.open(three) as together:
        assert together.being_written
        writer.commit(chunks=[])
        assert len(found_in(together)) == 3
        assert together.problems == {}


def test_commits_of_a_store_are_seen(three, encoder):
    with Collection.open(three) as together:
        before = together.generation
        assert len(found_in(together)) == 3
        with Store.open(three["b"], encoder) as store:
            store.add(["black lock"], ids=["new"])
        assert ("b", "black lock") in found_in(together)
        assert together.generation > before
        inside = together.read(lambda: (found_in(together), len(together)))
        assert (len(inside[0]), inside[1]) == (4, 6)


def test_a_store_that_fails_during_the_search_is_left_out(corpus, tmp_path):
    _, divided = corpus
    paths = {name: shutil.copytree(path, tmp_path / name) for name, path in divided(2).items()}
    [segment] = (paths["m1"] / "segments").iterdir()
    data = (segment / "index.faiss").read_bytes()
    (segment / "index.faiss").write_bytes(data[:-8] + b"damaged!")
    with Collection.open(paths) as together:
        assert {hit.store for hit in together.search("writer of the store", 30)} == {"m0"}
        assert "index.faiss" in together.problems["m1"]
        # It is not tried again for some time.
        assert {hit.store for hit in together.search("writer", 30)} == {"m0"}


def test_without_any_store_the_first_error_is_raised(three, tmp_path):
    with pytest.raises(StoreNotFoundError):
        Collection.open({"x": tmp_path / "none", "y": tmp_path / "nothing"})
    with pytest.raises(ConfigError, match="no stores"):
        Collection.open({})
    with Collection.open({"a": three["a"]}) as together:
        shutil.rmtree(three["a"])
        with pytest.raises(StoreError):
            together.search("lock")


def test_an_unsuitable_request_is_an_error_of_no_store(three):
    with Collection.open(three) as together:
        for wrong in ({"where": "year >"}, {"k": -1}, {"mode": "fuzzy"}):
            with pytest.raises(ConfigError):
                together.search("lock", **wrong)
        assert together.problems == {}
        with pytest.raises(ConfigError, match="unknown store 'z'"):
            together.why_not("lock", "docs/a.md", store="z")


def test_stores_with_different_embedders_are_fused_by_rank(three, tmp_path, make_encoder):
    other = make_encoder(name="other", dim=5)
    with Store.create(tmp_path / "d", other) as store:
        store.add(["yellow lock", "lock lock"], ids=["0", "1"])
    paths = {"a": three["a"], "b": three["b"], "d": tmp_path / "d"}
    with Collection.open(paths) as together:
        assert together.groups("lexical") == [["a", "b", "d"]]
        assert together.search("lock", mode="lexical")[0].chunk.text == "lock lock"
    embedders = {"a": KnownEncoder(), "b": KnownEncoder(), "d": other}
    with Collection.open(paths) as together:
        for name, encoder in embedders.items():
            together.stores[name].reader.given = encoder
        assert together.groups("dense") == [["a", "b"], ["d"]]
        hits = together.search("lock", 4, "dense")
        assert [hit.score for hit in hits] == pytest.approx([1 / 61, 1 / 61, 1 / 62, 1 / 62])
        assert {hit.store for hit in hits[:2]} == {hits[0].store, "d"}
        with pytest.raises(ConfigError, match="different embedders"):
            together.search_vector(KnownEncoder().encode_queries(["lock"])[0])
        with pytest.raises(ConfigError, match="mmr"):
            together.search("lock", 2, "dense", ranking=RankingOptions(mmr=0.5))


def test_weak_matches_come_after_the_others_of_stores_with_different_embedders():
    def stream(name, *relevances):
        hits = (Hit(f"{name}{i}", Chunk(name), None, 0.0, relevance=each) for i, each in enumerate(relevances, 1))
        return CandidateStream("", hits, lambda _: None)

    hits = list(by_rank([stream("a", 0.1, 0.2), stream("b", 0.9, 0.6, 0.3, 0.8), stream("c", None, None)]).candidates)
    assert [hit.id for hit in hits] == ["b1", "c1", "b2", "c2", "a1", "a2", "b3", "b4"]
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("weighting", ["idf:0.5", "uniform"])
def test_a_fit_of_all_stores_gives_the_results_of_one_store(tiny_config, tmp_path, weighting, monkeypatch):
    config = tiny_config.replace(extractor="re:dim=32", weighting=weighting, query_fit="separate")
    draw = random.Random(3)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(4, 20))) for _ in range(360)]
    parts = {"a": texts[:130], "b": texts[120:240], "c": texts[240:]}
    for name, some in {**parts, "all": [text for part in parts.values() for text in part]}.items():
        with Store.create(tmp_path / name, Embedder(config).fit(some), index="flat") as store:
            store.add(some, ids=[f"id{texts.index(text)}" for text in some])
    paths = {name: tmp_path / name for name in "abc"}
    with Collection.open(paths) as together:
        assert together.groups() == [["a"], ["b"], ["c"]]
    change, changed = ("adopt", "replace_vectors")[weighting != "uniform"], []
    original = getattr(StoreWriter, change)

    def interrupted(writer, *arguments):
        if len(changed) == 2:
            raise KeyboardInterrupt
        changed.append(original(writer, *arguments))

    with monkeypatch.context() as patched:
        patched.setattr(StoreWriter, change, interrupted)
        with pytest.raises(KeyboardInterrupt):
            refit_together(paths)
    with Collection.open(paths) as together:  # The stores that were changed are searched as one, the third by rank.
        assert together.groups() == [["a", "b"], ["c"]]
        assert {hit.store for hit in together.search("writer lock", 40)} == {"a", "b", "c"}
        assert together.problems == {}
    refit_together(paths)
    refit_store(tmp_path / "all")
    with Store.open(tmp_path / "all") as one, Collection.open(paths) as together:
        assert together.groups() == [["a", "b", "c"]]
        for query in ("writer lock", "supersonic flow"):
            one_scores = {hit.id: hit.score for hit in one.search(query, 40, "dense")}
            for hit in together.search(query, 40, "dense"):
                assert hit.score == pytest.approx(one_scores[hit.id], abs=1e-4)


def test_members_with_few_chunks_have_the_hubness_of_one_store_after_a_common_fit(tiny_config, tmp_path):
    config = tiny_config.replace(extractor="re:dim=32", weighting="uniform", query_fit="separate")
    draw = random.Random(4)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(4, 20))) for _ in range(330)]
    parts = {f"m{i}": texts[30 * i : 30 * (i + 1)] for i in range(7)} | {"large": texts[210:330]}
    for name, some in {**parts, "all": texts}.items():
        with Store.create(tmp_path / name, Embedder(config).fit(texts), index="flat") as store:
            store.add(some, ids=[f"id{texts.index(text)}" for text in some])
    paths = {name: tmp_path / name for name in parts}
    refit_together(paths)
    refit_store(tmp_path / "all")
    with Store.open(tmp_path / "all") as one, Collection.open(paths) as together:
        assert_all_same(one.search_many(queries(12), 20), together.search_many(queries(12), 20))
        expected, drift = measure_drift(one), measure_drift(together)
        assert (drift.verdict, drift.vectors, drift.added, drift.removed) == ("keep", 330, 0, 0)
        assert drift.overlap == pytest.approx(expected.overlap, abs=1e-2)
        assert drift.unseen == expected.unseen
        plain = one.search_many(queries(12), 20, fusion=Fusion(hubness=0.0))
        assert [hit.score for hit in one.search(queries(1)[0], 20)] != [hit.score for hit in plain[0]]
    with Store.open(paths["m0"]) as alone:

        def measured():
            with alone.snapshot() as snapshot:
                return snapshot.stores[0].hubness(), snapshot.hubness()

        assert [hubness is None for hubness in measured()] == [False, True]  # too few chunks
        alone.add(["a new text of the store"])
        assert measured()[0] is not None
        alone.delete(alone.ids())
        assert measured()[0] is None
