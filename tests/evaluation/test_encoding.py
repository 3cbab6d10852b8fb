"""Encoding with several configurations equals encoding with each of them, with shared passes of the model."""

import itertools

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.config.settings import PRESETS
from ragembed.errors import ConfigError
from ragembed.evaluation.encoding import encode_each
from tests.core.backbones import BACKBONES
from tests.pretrained import pretrained

DOCUMENTS = [
    "the writer holds the lock of the store",
    "a reader is in the folder",
    "shock wave and boundary layer on a wing",
    "supersonic air flow",
    "the cat sleeps and the dog runs",
    "the fish swims, the bird flies",
    "heat and pressure of the body",
    "one two three four five six seven",
]
QUERIES = ["which wing has a shock", "who holds the lock?", "cat and dog"]
CORPUS = ["the zebra runs", "", "red green blue", "the lock of a zebra", "alpha beta", "wing flow air heat speed"]


@pytest.fixture(scope="module")
def four_blocks(tmp_path_factory):
    """A BERT of 4 blocks with a mask token and room for the longest template."""
    folder = tmp_path_factory.mktemp("four-blocks")
    return pretrained(folder, 1, num_hidden_layers=4, max_position_embeddings=192)


@pytest.fixture(scope="module")
def word_vectors(tmp_path_factory):
    words = [f"w{i}" for i in range(100)] + sorted({word for text in DOCUMENTS + QUERIES for word in text.split()})
    vectors = np.random.default_rng(0).normal(size=(len(words), 8))
    file = tmp_path_factory.mktemp("words") / "vectors.txt"
    rows = [" ".join([word, *(f"{x:.6f}" for x in row)]) for word, row in zip(words, vectors, strict=True)]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    file.write_text("\n".join(CORPUS) + "\n", encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def presets(four_blocks, word_vectors):
    """Every preset, with the models of these tests."""
    changes = {
        "sbert-wk": {"extractor": "sbert-wk:window=1,start_layer=0"},
        "b2s-100": {"model": str(word_vectors)},
        "re": {"extractor": "re:dim=24"},
    }
    base = {"model": str(four_blocks), "dtype": "float32"}
    return {name: EmbedderConfig.from_preset(name, **{**base, **changes.get(name, {})}) for name in PRESETS}


@pytest.fixture
def batches(monkeypatch):
    """Count the batches that a model encodes."""
    counted = []
    for backbone in BACKBONES:

        def spy(self, *given, _states=backbone.states, **named):
            counted.append(1)
            return _states(self, *given, **named)

        monkeypatch.setattr(backbone, "states", spy)
    return counted


def assert_each_equals_an_embedder(configs, documents=DOCUMENTS, queries=QUERIES):
    found = list(encode_each(configs, documents, queries))
    assert len(found) == len(configs)
    for config, encoded in zip(configs, found, strict=True):
        embedder = Embedder(config).fit(documents)
        np.testing.assert_allclose(encoded.documents, embedder.encode_documents(documents), atol=5e-5)
        np.testing.assert_allclose(encoded.queries, embedder.encode_queries(queries), atol=5e-5)
        assert encoded.documents.dtype == encoded.queries.dtype == np.float32
    return found


def test_every_preset_equals_its_embedder(presets):
    fits = itertools.cycle(("shared", "separate"))
    assert_each_equals_an_embedder([config.replace(query_fit=next(fits)) for config in presets.values()])


@pytest.mark.parametrize("named", ["postprocess_corpus", "weighting_corpus", "avg_corpus"])
def test_corpus_settings_are_used(presets, corpus, named):
    names = ["bert+avg"] if named == "avg_corpus" else ["bert+avg", "re"]
    plain = [presets[name].replace(query_fit="separate", weighting="idf", postprocess=("center",)) for name in names]
    other = [config.replace(**{named: corpus}) for config in plain]
    found = assert_each_equals_an_embedder([*plain, *other])
    for one, two in zip(found[: len(plain)], found[len(plain) :], strict=True):
        assert np.abs(one.documents - two.documents).max() > 1e-3


@pytest.mark.parametrize(
    "extractor", ["bert+avg:w=0.5", pytest.param("sbert-wk:window=1,start_layer=0", marks=pytest.mark.slow)]
)
def test_weightings_have_vectors_of_their_own(presets, corpus, extractor):
    """Extractors that share their token counts and their settings differ by the function from counts to weights."""
    config = presets["bert"].replace(extractor=extractor, postprocess=(), query_fit="shared", layers="last")
    grid = [config.replace(weighting=weighting) for weighting in ("idf", "-biases", "uniform", "sif:0.5", "idf:0.5")]
    grid.append(config.replace(weighting="idf", weighting_corpus=corpus))
    if "avg" in extractor:
        grid.append(config.replace(weighting="idf", avg_corpus=corpus))
    assert_each_equals_an_embedder(grid)


def test_pseudo_queries_depend_on_seed_and_number(presets, corpus):
    config = presets["re"].replace(postprocess=("center", "normalize"), query_fit="separate")
    changes = [{}, {"seed": 3}, {"pseudo_queries": 3}, {"pseudo_queries": 3, "postprocess_corpus": corpus}]
    assert_each_equals_an_embedder([config.replace(**change) for change in changes])


def test_post_processors_are_fitted_on_a_sample(presets, monkeypatch):
    for module in ("ragembed.embedder", "ragembed.evaluation.encoding"):
        monkeypatch.setattr(f"{module}.FIT_LIMIT", 5)
    assert_each_equals_an_embedder([presets["re"].replace(postprocess=("zscore",), seed=seed) for seed in (0, 1)])


def test_no_queries_and_one_document(presets):
    config = presets["bert"].replace(postprocess=("normalize",))
    assert_each_equals_an_embedder([config], DOCUMENTS[:1], [])


def test_configurations_with_same_model_share_passes(presets, batches):
    config = presets["bert+avg"].replace(query_fit="separate")
    list(encode_each([config], DOCUMENTS, QUERIES))
    alone = len(batches)
    assert alone > 0
    batches.clear()
    grid = [
        config.replace(extractor=extractor, layers=layers, weighting=weighting, postprocess=steps)
        for extractor in ("transformer", "avg", "bert+avg:w=0.25", "bert+avg:w=-1")
        for layers in ("-1", "2", "first+last")
        for weighting in ("uniform", "idf")
        for steps in ((), ("quantile-u",), ("abtt:2", "normalize"))
    ]
    grid += [presets[name].replace(query_fit="separate") for name in ("bert", "sbert-wk")]
    list(encode_each(grid, DOCUMENTS, QUERIES))
    assert len(batches) == alone


def test_no_configuration_is_an_error():
    with pytest.raises(ConfigError, match="expected at least one"):
        next(encode_each([], DOCUMENTS, []))


@pytest.mark.parametrize("named", ["postprocess_corpus", "avg_corpus"])
@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\n \n", "is empty"), (b"a line\n\xff\n", "not UTF-8"), (None, "cannot be read: No such file")],
)
def test_invalid_corpus_is_an_error_before_encoding(presets, batches, tmp_path, named, content, message):
    file = tmp_path / "corpus.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"corpus.txt.* {message}"):
        next(encode_each([presets["bert"], presets["bert+avg"].replace(**{named: str(file)})], DOCUMENTS, []))
    assert not batches


def test_missing_layers_are_an_error_before_encoding(presets, batches):
    with pytest.raises(ConfigError, match="the model has no layer 9: expected a number from -1 to 4"):
        next(encode_each([presets["bert"], presets["bert"].replace(layers="9")], DOCUMENTS, []))
    assert not batches
