"""Contributions of token pairs sum to the score, for every extractor and chain of post-processors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed import Embedder, EmbedderConfig
from ragembed.config.settings import PRESETS
from ragembed.contributions import contributions, words
from ragembed.extractors.pooling import WeightedMean, mean_shares
from ragembed.extractors.protocol import Token, TokenParts
from ragembed.models.word_tokenizer import WordTokenizer
from ragembed.postprocess import Chain, unit_rows
from ragembed.postprocess.protocol import Parts

CORPUS = [
    "the cat sleeps and the dog runs",
    "supersonic air flow on a wing",
    "the lock of the store, a reader.",
    "the fish swims, the bird flies!",
    "shock wave and boundary layer on a wing: high pressure, low speed",
    "the writer holds the lock of the store, a reader is in the folder. " * 9,
    "dictionary and synonym",
    "the reader of the folder means the cat",
    "where does the fox run? it runs into the woods",
    "a paraphrase is the other words of a sentence",
]
LONG = CORPUS[5]
ODD = ["", "   ", "qxqxqx", "日本語 cat", "\ud800 alone", "[MASK] the", "cat " * 150]
CHAINS = [
    (),
    ("normalize",),
    ("center", "normalize"),
    ("zscore",),
    ("robust", "center"),
    ("abtt:2",),
    ("whiten:3", "normalize"),
    ("normalize", "abtt:1", "center"),
]
EXTRACTIONS = {
    "several layers": {"layers": "first+last"},
    "windows": {"max_tokens": 12},
    "template": {"template": "t4"},
    "query template": {"query_template": "about: [X]"},
    "no special tokens": {"special_tokens": False},
    "cls": {"pooling": "cls"},
    "last": {"pooling": "last"},
    "power means": {"pooling": "min+mean+max", "weighting": "idf"},
    "masks": {"pooling": "masks", "template": "t0"},
    "sbert-wk": {"extractor": "sbert-wk"},
    "mix beyond 1": {"extractor": "bert+avg:w=1.5"},
    "static with special tokens": {"extractor": "re:dim=24", "special_tokens": True},
    "unseen skipped": {"extractor": "avg:unseen=skip"},
    "no weights": {"weighting": "uniform"},
    "without biases": {"weighting": "-biases"},
}


def make(model, **changes):
    config = EmbedderConfig(**{"model": str(model), "dtype": "float32", "postprocess": (), **changes})
    return Embedder(config).fit(CORPUS)


@pytest.fixture(scope="module", params=PRESETS)
def preset_embedder(request, bert_model, words_file):
    model = words_file if request.param == "b2s-100" else bert_model
    return Embedder.from_preset(request.param, model=str(model), dtype="float32").fit(CORPUS)


def check_parts(embedder, texts):
    for side, raw in (("documents", embedder.raw_documents(texts)), ("queries", embedder.raw_queries(texts))):
        for text, vector in zip(texts, raw, strict=True):
            found = embedder.extractor.token_parts(text, side)
            assert len(found.tokens) == len(found.rows) == len(found.shares)
            scale = max(1.0, np.abs(vector).max())
            np.testing.assert_allclose(found.rows.sum(axis=0), vector, atol=1e-5 * scale)
            if any(token.origin == "text" for token in found.tokens) and vector.any():
                assert found.shares.sum() == pytest.approx(1.0)
            for token in found.tokens:
                if token.start is not None:
                    assert text[token.start : token.end] == token.text


def check_cosine(embedder, query_text, text, **rounded):
    """Return the contributions after a check that they sum to the cosine."""
    [query] = unit_rows(embedder.encode_queries([query_text]))
    raw = embedder.raw_documents([text])
    if rounded:
        raw = raw.astype(np.float16).astype(np.float32)
    [document] = unit_rows(embedder.postprocess_documents(raw))
    parts = embedder.token_parts(query_text, "queries"), embedder.token_parts(text, "documents", raw[0])
    found = contributions(*parts)
    np.testing.assert_allclose(parts[0].vector, query, atol=1e-5)
    np.testing.assert_allclose(parts[1].vector, document, atol=1e-5)
    assert found.score == pytest.approx(float(query @ document), abs=1e-5)
    assert found.pairs.shape == (len(found.query), len(found.document))
    return found


def test_token_parts_sum_to_the_raw_vector_for_every_preset(preset_embedder):
    check_parts(preset_embedder, [CORPUS[2], CORPUS[4], LONG, *ODD])


def test_token_pairs_sum_to_the_cosine_for_every_preset(preset_embedder):
    for text in (CORPUS[2], LONG, ""):
        found = check_cosine(preset_embedder, "where is the lock of the reader?", text)
        if found.additive and found.document:
            assert found.residual == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("changes", EXTRACTIONS.values(), ids=EXTRACTIONS)
def test_token_parts_sum_to_the_raw_vector_for_every_extractor(bert_model, changes):
    embedder = make(bert_model, **changes)
    check_parts(embedder, [CORPUS[2], CORPUS[4], LONG, *ODD])
    check_cosine(embedder, "the fox of the store", LONG)


def test_tokens_of_all_windows_have_the_right_vectors(bert_model):
    """Vectors of layer -1 depend only on the token, so each equals the vector of a text with that token."""
    embedder = make(bert_model, layers="-1", max_tokens=12, special_tokens=False, weighting="uniform")
    for side in ("documents", "queries"):
        found = embedder.extractor.token_parts(LONG, side)
        own = [i for i, token in enumerate(found.tokens) if token.origin == "text"]
        alone = embedder.raw_queries([found.tokens[i].text for i in own])
        assert len(own) > 5 * 12 if side == "documents" else len(own) == embedder.text_tokens
        np.testing.assert_allclose(found.rows[own] * len(own), alone, atol=1e-5)


@pytest.mark.parametrize("template", ["[X]", 'means "[X]" or', "a: [X]."])
@pytest.mark.parametrize("model", ["roberta_model", "gpt_model", "llama_model"])
def test_tokens_have_the_right_offsets(request, model, template):
    check_parts(make(request.getfixturevalue(model), template=template), [CORPUS[2], LONG, "dog's caf\u00e9 日本", ""])


@pytest.mark.parametrize(
    ("chain", "query_fit"),
    list(zip(CHAINS, ["shared", "separate"] * 4, strict=True)),
    ids=lambda part: part if isinstance(part, str) else ",".join(part),
)
def test_affine_post_processors_have_no_residual(bert_model, chain, query_fit):
    embedder = make(bert_model, postprocess=chain, query_fit=query_fit)
    for text in (CORPUS[4], LONG):
        found = check_cosine(embedder, "high pressure on the wing", text, rounded=True)
        assert found.additive
        assert found.pairs.sum() == pytest.approx(found.score, abs=1e-9)


@pytest.mark.parametrize("chain", [("quantile-u",), ("quantile-n", "normalize"), ("zscore", "quantile-u", "center")])
def test_quantile_has_a_residual_that_completes_the_sum(bert_model, chain):
    found = check_cosine(make(bert_model, postprocess=chain), "high pressure on the wing", CORPUS[4])
    assert not found.additive
    assert found.pairs.sum() + found.residual == pytest.approx(found.score)


def test_residual_of_uniform_quantiles_is_constant():
    """The residual is 0.5 per dimension, the share of the median."""
    rng = np.random.default_rng(0)
    chain = Chain(["quantile-u"]).fit(rng.normal(size=(200, 4)).astype(np.float32))
    rows = np.vstack([rng.normal(size=(3, 4)), np.zeros(4)])
    mapped = chain.transform_parts(Parts(rows, np.array([0.5, 0.3, 0.2, 0.0])))
    np.testing.assert_allclose(mapped.whole, chain.transform(rows.sum(axis=0)[None].astype(np.float32))[0], atol=1e-5)
    np.testing.assert_allclose(mapped.rows[-1], 0.5, atol=0.01)
    np.testing.assert_array_equal(mapped.shares, [0, 0, 0, 1])
    centred = Chain(["center"]).fit(np.full((2, 4), 0.5, dtype=np.float32)).transform_parts(mapped)
    np.testing.assert_allclose(centred.rows[:-1], mapped.rows[:-1])
    np.testing.assert_allclose(centred.rows[-1], 0.0, atol=0.01)


@given(st.integers(0, 2**32 - 1), st.sampled_from(CHAINS))
def test_transform_parts_sums_to_transform(seed, specs):
    rng = np.random.default_rng(seed)
    chain = Chain(specs).fit((rng.normal(size=(30, 5)) + 3).astype(np.float32))
    shares = rng.dirichlet(np.ones(4))
    rows = shares[:, None] * (rng.normal(size=(4, 5)) + 3)
    whole = rows.sum(axis=0)
    mapped = chain.transform_parts(Parts(rows, shares))
    expected = chain.transform(whole[None].astype(np.float32))[0]
    np.testing.assert_allclose(mapped.whole, expected, rtol=1e-4, atol=1e-4)


def test_constant_is_split_by_shares():
    chain = Chain(["center"]).fit(np.array([[1.0, 2.0]], dtype=np.float32))
    mapped = chain.transform_parts(Parts(np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]), np.array([0.25, 0.5, 0.25])))
    np.testing.assert_allclose(mapped.rows, [[2.75, -0.5], [-0.5, 3.0], [-0.25, -0.5]])


def test_rounding_is_reported_and_included_in_the_pairs(bert_model):
    embedder = make(bert_model, postprocess=("center", "normalize"))
    exact = check_cosine(embedder, "high pressure", CORPUS[4])
    rounded = check_cosine(embedder, "high pressure", CORPUS[4], rounded=True)
    assert exact.rounding == pytest.approx(0.0, abs=1e-6)
    assert rounded.rounding != 0.0
    assert rounded.score - rounded.rounding == pytest.approx(exact.score, abs=1e-4)
    assert rounded.pairs.sum() == pytest.approx(rounded.score, abs=1e-9)


def test_text_without_tokens_has_only_a_residual(words_file):
    embedder = make(words_file, extractor="words", postprocess=("center",))
    parts = embedder.token_parts("qqq", "documents")
    assert parts.tokens == ()
    np.testing.assert_allclose(parts.vector, unit_rows(embedder.encode_documents(["qqq"]))[0], atol=1e-5)
    found = contributions(embedder.token_parts("w1 w2", "queries"), parts)
    assert found.score == pytest.approx(found.residual)
    assert found.document_words() == []


def test_contributions_of_a_text_to_itself_are_on_the_diagonal(bert_model):
    """Random vectors of different tokens are nearly orthogonal."""
    embedder = make(bert_model, extractor="re:dim=4096", weighting="uniform")
    found = check_cosine(embedder, "cat dog", "the dog sleeps")
    assert [token.text for token in found.document] == ["the", "dog", "sleeps"]
    assert found.pairs[1, 1] == pytest.approx(1 / np.sqrt(6), abs=0.05)
    others = found.pairs.copy()
    others[1, 1] = 0
    np.testing.assert_allclose(others, 0, atol=0.05)
    assert (found.document_words()[0].word, found.document_words()[0].best) == ("dog", "dog")
    assert found.query_words()[0].word == "dog"


def test_subwords_are_joined_into_words(bert_model):
    embedder = make(bert_model)
    found = check_cosine(embedder, "locks", "The writers, e.g. foxes: writers!")
    joined = found.of_words()
    assert [token.text for token in found.query] == ["[CLS]", "lock", "s", "[SEP]"]
    assert [token.text for token in joined.query] == ["[CLS]", "locks", "[SEP]"]
    shown = [token.text for token in joined.document]
    assert shown == ["[CLS]", "The", "writers", ",", "e", ".", "g", ".", "foxes", ":", "writers", "!", "[SEP]"]
    assert joined.pairs.sum() == pytest.approx(found.pairs.sum())
    by_form = {share.word: share.value for share in found.document_words()}
    places = [i for i, word in enumerate(shown) if word == "writers"]
    assert by_form["writers"] == pytest.approx(joined.pairs[:, places].sum())
    assert sum(by_form.values()) == pytest.approx(found.pairs.sum())


def test_token_of_several_atoms_is_one_word():
    spans = [(0, 10), (10, 14), (14, 15), (15, 17)]
    text = "well-known cat日 x"
    tokens = [Token(text[start:end], start, end) for start, end in spans]
    found, at = words(text, tokens)
    assert [word.text for word in found] == ["well-known", "cat", "日", "x"]
    assert [(word.start, word.end) for word in found] == [(0, 10), (11, 14), (14, 15), (16, 17)]
    assert at.tolist() == [0, 1, 2, 3]


def test_cls_pooling_names_no_word(bert_model):
    found = check_cosine(make(bert_model, pooling="cls"), "the lock", CORPUS[2])
    assert [token.text for token in found.carriers] == ["[CLS]"]


def test_contributions_can_be_scaled(bert_model):
    found = check_cosine(make(bert_model, postprocess=("quantile-u",)), "the lock", CORPUS[2], rounded=True)
    doubled = found.scaled(2.0)
    assert doubled.score == pytest.approx(2 * found.score)
    assert (doubled.residual, doubled.rounding) == (2 * found.residual, 2 * found.rounding)


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.5]), st.floats(0, 9, width=32)), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_mean_shares_equal_the_weighted_mean(tokens, share):
    base = np.array([each for each, _ in tokens], dtype=np.float32)
    weights = base * np.array([each for _, each in tokens], dtype=np.float32)
    hidden = np.eye(len(tokens), dtype=np.float32)[None]
    mean = WeightedMean(1, len(tokens), share)
    mean.add(np.array([0]), hidden, base[None], weights[None])
    expected = mean.result()[0]
    np.testing.assert_allclose(mean_shares(base, weights, share, [len(tokens)]), expected, atol=1e-5)
    twice = [np.concatenate([each, each]) for each in (base, weights)]
    of_three = mean_shares(*twice, share, [len(tokens), 0, len(tokens)])
    np.testing.assert_allclose(of_three, np.concatenate([expected, expected]), atol=1e-5)


def test_equal_tokens_are_merged():
    tokens = [Token("[CLS]", origin="special"), Token("a", 0, 1), Token("[CLS]", origin="special"), Token("a", 2, 3)]
    merged = TokenParts.merged(tokens, np.arange(8.0).reshape(4, 2), np.full(4, 0.25))
    assert merged.tokens == (tokens[0], tokens[1], tokens[3])
    np.testing.assert_array_equal(merged.rows, [[4, 6], [2, 3], [6, 7]])
    np.testing.assert_array_equal(merged.shares, [0.5, 0.25, 0.25])


@given(st.text(st.sampled_from("the dog's don't 東京都 U.S. \u00ad'-."), max_size=30))
def test_located_words_have_the_right_offsets(text):
    index = {word: i for i, word in enumerate(["the", "dog", "'s", "don't", "東京", "都", "u.s.", "."])}
    tokenizer = WordTokenizer(index)
    ids, spans = tokenizer.ids_and_offsets(text)
    assert [ids] == tokenizer.ids([text]).tolist()
    for name, (start, end) in zip(tokenizer.names(ids), spans, strict=True):
        assert text[start:end].lower() == name
    assert spans == sorted(spans)
