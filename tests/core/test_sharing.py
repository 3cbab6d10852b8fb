"""Several embedders at once: same results as one at a time, and shared work is done once."""

from collections import Counter

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.embedder import encode_raw, fit_extractors
from ragembed.errors import ConfigError, NotFittedError
from tests.core.backbones import BACKBONES

TEXTS = ["the cat sleeps and the dog runs", "supersonic air flow on a wing", "the lock of the store, a reader.", "fox"]
OTHER = ["pressure zebra", "", "the bird flies " * 30, "the cat sleeps"]


@pytest.fixture
def passes(monkeypatch):
    """Record the number of windows and the requested layers of each call of a model."""
    calls = []
    for kind in BACKBONES:

        def states(self, ids, lengths, layers, original=kind.states):
            calls.append((len(ids), layers))
            return original(self, ids, lengths, layers)

        monkeypatch.setattr(kind, "states", states)
    return calls


def windows(passes):
    """Return the number of windows by the layers that were requested together."""
    counts = Counter()
    for number, layers in passes:
        counts[layers] += number
    return counts


def configs(bert_model, words_file, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the bird flies\nair flow on a wing\n", encoding="utf-8")
    base = EmbedderConfig(model=str(bert_model), dtype="float32", weighting="uniform")
    return [
        base,
        base.replace(layers="1+2", weighting="idf"),
        base.replace(pooling="last", weighting="usif"),
        base.replace(template="t0", pooling="masks"),
        base.replace(template="t0", weighting="idf"),
        base.replace(extractor="avg", weighting="idf"),
        base.replace(extractor="avg:unseen=skip"),
        base.replace(extractor="avg", layers="first+last", weighting_corpus=str(corpus), weighting="sif"),
        base.replace(extractor="avg", avg_corpus=str(corpus)),
        base.replace(extractor="bert+avg", weighting="idf", template="t0"),
        base.replace(extractor="bert+avg:w=2"),
        base.replace(extractor="sbert-wk"),
        base.replace(extractor="re:dim=16", weighting="idf"),
        base.replace(extractor="words", model=str(words_file), weighting="idf"),
    ]


@pytest.fixture(scope="module")
def fitted(bert_model, words_file, tmp_path_factory):
    """Embedders that were fitted together, and the same ones fitted alone."""
    all_configs = configs(bert_model, words_file, tmp_path_factory.mktemp("corpus"))
    together = [Embedder(config) for config in all_configs]
    fit_extractors(together, iter(TEXTS))
    return together, [Embedder(config).fit_extractor(TEXTS) for config in all_configs]


@pytest.mark.parametrize("side", ["documents", "queries", "pseudo-queries"])
def test_shared_encoding_equals_separate_encoding(fitted, side):
    together, separate = fitted
    vectors = encode_raw(together, OTHER, side)
    for embedder, alone, found in zip(together, separate, vectors, strict=True):
        assert alone.raw_fingerprint == embedder.raw_fingerprint
        np.testing.assert_array_equal(found, encode_raw([alone], OTHER, side)[0])
        if side != "pseudo-queries":
            encode = alone.raw_documents if side == "documents" else alone.raw_queries
            np.testing.assert_array_equal(found, encode(OTHER))


def test_layers_pooling_and_weights_share_one_pass(bert_model, passes):
    base = EmbedderConfig(model=str(bert_model), dtype="float32")
    changes = [{}, {"layers": "1+2"}, {"pooling": "last"}, {"weighting": "sif"}, {"extractor": "sbert-wk"}]
    embedders = [Embedder(base.replace(**change)) for change in changes]
    fit_extractors(embedders, TEXTS)
    assert not passes
    encode_raw(embedders, TEXTS, "documents")
    assert windows(passes) == {(0, 1, 2, 3, 4, 5, 6): 4}


def test_one_pass_fits_all_static_tables_of_a_corpus(bert_model, passes):
    base = EmbedderConfig(model=str(bert_model), dtype="float32", extractor="avg")
    changes = [{}, {"layers": "1+2"}, {"extractor": "bert+avg:w=2"}, {"extractor": "avg:unseen=skip"}]
    embedders = [Embedder(base.replace(**change)) for change in changes]
    fit_extractors(embedders, TEXTS)
    assert windows(passes) == {(1, 2, 6): 4}
    passes.clear()
    encode_raw([embedders[0], embedders[1], embedders[3]], TEXTS, "documents")
    assert not passes
    encode_raw(embedders, TEXTS, "documents")
    assert windows(passes) == {(6,): 4}


def test_each_template_and_window_needs_its_own_pass(bert_model, passes):
    base = EmbedderConfig(model=str(bert_model), dtype="float32")
    changes = [{}, {"template": "t0"}, {"template": "t0", "pooling": "masks"}, {"max_tokens": 32}]
    embedders = [Embedder(base.replace(**change)) for change in changes]
    fit_extractors(embedders, TEXTS)
    encode_raw(embedders, TEXTS, "documents")
    assert windows(passes) == {(6,): 3 * 4}


def test_mask_and_literal_mask_name_do_not_share(bert_model):
    base = EmbedderConfig(model=str(bert_model), dtype="float32", pooling="no-mask", weighting="uniform")
    embedders = [Embedder(base.replace(template=template)) for template in ("[X] [M]", "[X] [MASK]")]
    fit_extractors(embedders, TEXTS)
    found = encode_raw(embedders, TEXTS, "documents")
    for embedder, vectors in zip(embedders, found, strict=True):
        np.testing.assert_array_equal(vectors, embedder.raw_documents(TEXTS))
    assert np.abs(found[0] - found[1]).max() > 1e-3
    assert embedders[0].raw_fingerprint != embedders[1].raw_fingerprint


def test_fit_without_texts(bert_model, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    base = EmbedderConfig(model=str(bert_model), dtype="float32")
    with pytest.raises(ConfigError, match="cannot fit without texts"):
        fit_extractors([Embedder(base), Embedder(base.replace(weighting="sif"))], [])
    for name in ("avg_corpus", "weighting_corpus"):
        with pytest.raises(ConfigError, match=r"empty\.txt is empty"):
            fit_extractors([Embedder(base.replace(extractor="avg", **{name: str(empty)}))], TEXTS)


def test_encoding_before_fit(bert_model):
    fitted = Embedder(EmbedderConfig(model=str(bert_model))).fit_extractor(TEXTS)
    with pytest.raises(NotFittedError, match="fit"):
        encode_raw([fitted, Embedder(EmbedderConfig(model=str(bert_model)))], TEXTS, "documents")
