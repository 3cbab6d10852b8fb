"""The ranking of a pool is that of a store in which the answer stands without the question."""

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.documents.model import Chunk
from ragembed.evaluation.retrieval import ndcg as exact_ndcg
from ragembed.indexes import ChunkRecord, Fusion, Store
from ragembed.indexes.tuning.ranking import Ranking, ndcg
from ragembed.indexes.tuning.words import PoolTexts, match_words
from ragembed.tuning import Passage, PseudoQuery, draw_pool
from ragembed.tuning.candidates import ChainChoice, chain_choices, describe, raw_variants
from ragembed.tuning.vectors import Encoder
from tests.tuning.corpora import word

CHUNKS, WORDS_EACH, VOCABULARY = 260, 8, 60
FUSIONS = [Fusion(), Fusion(feedback=0.0), Fusion("minmax", 0.3), Fusion("rrf", 0.5, 0.3), Fusion(alpha=0.0)]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Word vectors of small whole numbers, so that the mean of eight is exact in half precision."""
    generator = np.random.default_rng(0)
    vectors = generator.integers(-8, 8, size=(VOCABULARY, 12))
    file = tmp_path_factory.mktemp("ranking") / "vectors.txt"
    file.write_text("".join(f"{word(n)} {' '.join(map(str, vectors[n]))}\n" for n in range(VOCABULARY)))
    return EmbedderConfig(
        extractor="words", model=str(file), weighting="uniform", postprocess=("normalize",), sides="one"
    )


@pytest.fixture(scope="module")
def asked():
    """A pool, and queries for which chunks are changed; the last has no word."""
    generator = np.random.default_rng(1)

    def words(count):
        return " ".join(word(n) for n in generator.integers(VOCABULARY, size=count))

    passages = [Passage(f"c{n}", f"{n}.txt", Chunk(words(WORDS_EACH))) for n in range(CHUNKS)]
    pool = draw_pool(lambda: passages, 10_000, 0)
    queries = [PseudoQuery(words(4), (at,), {at: Chunk(words(WORDS_EACH))}) for at in (0, 17, 101, 200)]
    several = PseudoQuery(words(4), (3, 4, 5), {at: Chunk(words(WORDS_EACH)) for at in (3, 4, 9)})
    return pool, [*queries, several, PseudoQuery("?!", (7,), {})]


@pytest.fixture(scope="module")
def stores(config, asked, tmp_path_factory):
    """For each query a store of the pool as changed for it."""
    pool, queries = asked
    embedder = Embedder(config).fit([passage.chunk.embedded_text for passage in pool.passages])
    made = []
    for query in queries:
        store = Store.create(tmp_path_factory.mktemp("ranking") / "store", embedder)
        chunks = [query.changed.get(at, passage.chunk) for at, passage in enumerate(pool.passages)]
        store.add(ChunkRecord(str(at), chunk) for at, chunk in enumerate(chunks))
        made.append(store)
    yield made
    for store in made:
        store.close()


@pytest.fixture(scope="module")
def ranking(asked, stores):
    pool, queries = asked
    return stores[0]._reader.read(
        lambda view: Ranking(
            queries, match_words(view.connection, pool, queries), PoolTexts.of(view.connection, pool, queries)
        )
    )


def expected(stores, queries, mode, fusion=None):
    values = []
    for store, query in zip(stores, queries, strict=True):
        found = [hit.id for hit in store.search(query.text, 10, mode, fusion=fusion)]
        values.append(exact_ndcg(found, {str(at): 1 for at in query.answers}))
    return values


@pytest.mark.parametrize("fusion", FUSIONS, ids=str)
def test_hybrid_ranks_as_a_store_does(config, asked, stores, ranking, fusion):
    pool, queries = asked
    vectors = Encoder([config], pool, queries).vectors(config)
    found = ranking.hybrid(vectors, range(len(queries)), fusion)
    np.testing.assert_allclose(found, expected(stores, queries, "hybrid", fusion))


def test_dense_ranks_as_a_store_does(config, asked, stores, ranking):
    pool, queries = asked
    vectors = Encoder([config], pool, queries).vectors(config)
    np.testing.assert_allclose(ranking.dense(vectors, range(6)), expected(stores, queries, "dense"))


def test_bm25_is_that_of_a_store_with_the_changes(asked, stores, ranking):
    _, queries = asked
    for store, query, words in zip(stores[:-1], queries[:-1], ranking._words, strict=False):
        hits = store.search(query.text, CHUNKS, "lexical")
        assert {int(hit.id): pytest.approx(hit.score) for hit in hits} == dict(
            zip(words.positions.tolist(), words.scores.tolist(), strict=True)
        )
        assert words.of(np.arange(CHUNKS)).sum() == pytest.approx(sum(hit.score for hit in hits))
    assert ranking._words[-1].wordless


@pytest.mark.parametrize(("ranked", "answers"), [([3, 1, 2], [1]), ([1, 2, 3], [9]), (range(20), [0, 5, 9, 12])])
def test_ndcg_is_that_of_the_evaluation(ranked, answers):
    found = ndcg(np.array(ranked), answers)
    assert found == pytest.approx(exact_ndcg([str(n) for n in ranked], {str(n): 1 for n in answers}))


# Candidates


def test_chains_that_mean_the_same_are_compared_once():
    chains = chain_choices(EmbedderConfig())
    assert chains[0] == ChainChoice(("normalize",), "two")
    assert ChainChoice(("center", "normalize"), "one") in chains
    assert len({(each.postprocess, each.sides) for each in chains}) == len(chains)
    plain = [
        each for each in chain_choices(EmbedderConfig(postprocess=())) if not set(each.postprocess) - {"normalize"}
    ]
    assert plain == [ChainChoice((), "two")]


def test_the_present_settings_come_first_and_are_not_repeated(tiny_config):
    variants = raw_variants(tiny_config)
    assert variants[0] == tiny_config
    assert tiny_config not in variants[1:]
    assert {variant.model for variant in variants} == {tiny_config.model}
    extractors = {variant.extractor for variant in variants}
    assert extractors == {"transformer", "bert+avg:w=0.25", "bert+avg:w=0.5"}


@pytest.mark.usefixtures("needs_minilm")
def test_a_template_is_compared_where_there_is_room_for_it():
    assert "t4" in {variant.template for variant in raw_variants(EmbedderConfig())}
    assert "t4" not in {variant.template for variant in raw_variants(EmbedderConfig(max_tokens=16))}


def test_without_a_model_only_weights_differ(config):
    assert {variant.weighting for variant in raw_variants(config)} == {"uniform", "idf", "idf:0.5"}


def test_a_label_names_what_differs():
    other = EmbedderConfig(layers="first+last", postprocess=("whiten", "normalize"), sides="one")
    assert describe(other, EmbedderConfig()) == "layers first+last; postprocess whiten,normalize; sides one"
    assert describe(EmbedderConfig(), EmbedderConfig()) == ""
