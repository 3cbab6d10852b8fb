"""Searching a pool gives the results of a store whose answers do not contain the query."""

import contextlib

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.documents.model import Chunk
from ragembed.evaluation.retrieval import ndcg
from ragembed.indexes import ChunkRecord, Fusion, Store
from ragembed.indexes.tuning.candidates import ChainChoice, chain_choices, describe, raw_variants
from ragembed.indexes.tuning.pool import draw_pool
from ragembed.indexes.tuning.pool_search import Encoder, PoolSearch
from ragembed.indexes.tuning.queries import PseudoQuery
from tests.tuning.corpora import word

CHUNKS, WORDS_EACH, VOCABULARY = 260, 8, 60
FUSIONS = [Fusion(), Fusion(feedback=0.0), Fusion("minmax", 0.3), Fusion("rrf", 0.5, 0.3), Fusion(alpha=0.0)]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Word vectors of small whole numbers: the mean of eight is exact in half precision."""
    generator = np.random.default_rng(0)
    vectors = generator.integers(-8, 8, size=(VOCABULARY, 12))
    file = tmp_path_factory.mktemp("ranking") / "vectors.txt"
    file.write_text("".join(f"{word(n)} {' '.join(map(str, vectors[n]))}\n" for n in range(VOCABULARY)))
    return EmbedderConfig(
        extractor="words", model=str(file), weighting="uniform", postprocess=("normalize",), query_fit="shared"
    )


@pytest.fixture(scope="module")
def asked():
    """A pool, and queries that change chunks; the last query has no word."""
    generator = np.random.default_rng(1)

    def words(count):
        return " ".join(word(n) for n in generator.integers(VOCABULARY, size=count))

    passages = [ChunkRecord(f"c{n}", Chunk(words(WORDS_EACH)), f"{n}.txt") for n in range(CHUNKS)]
    pool = draw_pool(lambda: passages, 10_000, 0)
    queries = [PseudoQuery(words(4), (at,), {at: Chunk(words(WORDS_EACH))}) for at in (0, 17, 101, 200)]
    several = PseudoQuery(words(4), (3, 4, 5), {at: Chunk(words(WORDS_EACH)) for at in (3, 4, 9)})
    return pool, [*queries, several, PseudoQuery("?!", (7,), {})]


@pytest.fixture(scope="module")
def stores(config, asked, tmp_path_factory):
    """For each query, a store of the pool with the changes of the query."""
    pool, queries = asked
    embedder = Embedder(config).fit([passage.chunk.embedded_text for passage in pool.passages])
    with contextlib.ExitStack() as stack:
        made = []
        for query in queries:
            store = stack.enter_context(Store.create(tmp_path_factory.mktemp("pool") / "store", embedder))
            store.add(ChunkRecord(str(at), passage.chunk) for at, passage in enumerate(pool.passages))
            store.add(ChunkRecord(str(at), chunk) for at, chunk in sorted(query.changed.items()))
            made.append(store)
        yield made


@pytest.fixture(scope="module")
def pool_search(asked, tmp_path_factory):
    with contextlib.closing(PoolSearch(tmp_path_factory.mktemp("pool") / "store", *asked, "english")) as search:
        yield search


def expected(stores, queries, mode, fusion=None):
    values = []
    for store, query in zip(stores, queries, strict=True):
        found = [hit.id for hit in store.search(query.text, 10, mode, fusion=fusion)]
        values.append(ndcg(found, {str(at): 1 for at in query.answers}))
    return values


@pytest.mark.parametrize("fusion", FUSIONS, ids=str)
def test_hybrid_search_equals_a_store_with_the_changes(config, asked, stores, pool_search, fusion):
    _, queries = asked
    vectors = Encoder([config], *asked).vectors(config)
    found = pool_search.hybrid(vectors, range(len(queries)), fusion)
    np.testing.assert_allclose(found, expected(stores, queries, "hybrid", fusion))


def test_dense_search_equals_a_store_with_the_changes(config, asked, stores, pool_search):
    vectors = Encoder([config], *asked).vectors(config)
    np.testing.assert_allclose(pool_search.dense(vectors, range(6)), expected(stores, asked[1], "dense"))


# Candidates


def test_lexical_search_equals_a_store_with_the_changes(config, asked, stores, pool_search):
    pool, queries = asked
    vectors = Encoder([config], pool, queries).vectors(config)
    found = pool_search.find(vectors, range(len(queries)), "lexical", count=20)
    for store, query, best in zip(stores, queries, found, strict=True):
        assert [str(at) for at in best] == [hit.id for hit in store.search(query.text, 20, "lexical")]


def test_equivalent_chains_are_compared_once():
    chains = chain_choices(EmbedderConfig())
    assert chains[0] == ChainChoice(("normalize",), "separate")
    assert ChainChoice(("center", "normalize"), "shared") in chains
    assert len({(each.postprocess, each.query_fit) for each in chains}) == len(chains)
    plain = [
        each for each in chain_choices(EmbedderConfig(postprocess=())) if not set(each.postprocess) - {"normalize"}
    ]
    assert plain == [ChainChoice((), "separate")]


def test_current_settings_come_first_and_once(tiny_config):
    variants = raw_variants(tiny_config)
    assert variants[0] == tiny_config
    assert tiny_config not in variants[1:]
    assert {variant.model for variant in variants} == {tiny_config.model}
    extractors = {variant.extractor for variant in variants}
    assert extractors == {"transformer", "bert+avg:w=0.25", "bert+avg:w=0.5"}


@pytest.mark.usefixtures("needs_minilm")
def test_template_is_compared_if_it_fits_the_model():
    assert "t4" in {variant.template for variant in raw_variants(EmbedderConfig())}
    assert "t4" not in {variant.template for variant in raw_variants(EmbedderConfig(max_tokens=16))}


def test_without_a_model_only_weights_differ(config):
    assert {variant.weighting for variant in raw_variants(config)} == {"uniform", "idf", "idf:0.5"}


def test_label_names_the_differing_settings():
    other = EmbedderConfig(layers="first+last", postprocess=("whiten", "normalize"), query_fit="shared")
    assert describe(other, EmbedderConfig()) == "layers first+last; postprocess whiten,normalize; query fit shared"
    assert describe(EmbedderConfig(), EmbedderConfig()) == ""
