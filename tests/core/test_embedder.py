import json

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig, Store
from ragembed.corpus import draw_pseudo_queries
from ragembed.errors import ConfigError, ModelError, NotFittedError
from ragembed.indexes.search.relevance import collected_notes
from ragembed.models.files import find_model

TEXTS = [
    "the writer holds the lock of the store",
    "a reader is in the folder",
    "shock wave and boundary layer on a wing",
    "supersonic air flow",
    "the cat sleeps and the dog runs",
    "the fish swims, the bird flies",
]


@pytest.fixture(scope="module")
def embedder(tiny_config):
    return Embedder(tiny_config).fit(TEXTS)


def cosines(a, b):
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_shapes_types_and_unit_length(embedder):
    vectors = embedder.encode_documents(TEXTS)
    assert vectors.shape == (6, 32) == (6, embedder.dim)
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert embedder.encode_documents([]).shape == (0, 32)
    assert embedder.encode_queries([]).shape == (0, 32)


def test_vectors_equal_the_equations(embedder, tiny_model):
    """Compute token vectors, half idf and half uniform weights, minus the mean of the corpus, at unit length."""
    from ragembed.models.transformers_model import TransformersModel

    tokenizer = embedder.tokenizer
    rows = [[*tokenizer.prefix, *ids, *tokenizer.suffix] for ids in tokenizer.ids(TEXTS)]
    frequency = {token: sum(token in row for row in rows) for row in rows for token in row}
    backbone = TransformersModel(tiny_model, "float32", "cpu")
    raw = []
    for row in rows:
        hidden = backbone.states(np.array([row]), np.array([len(row)]), (2,))[0][0]
        idf = np.array([np.log(len(rows) / frequency[token]) for token in row])
        weights = 0.5 * idf / idf.sum() + 0.5 / len(row)
        raw.append(weights @ hidden)
    np.testing.assert_allclose(embedder.raw_documents(TEXTS), raw, atol=1e-4)
    centred = np.array(raw) - np.mean(raw, axis=0)
    expected = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(embedder.encode_documents(TEXTS), expected, atol=1e-4)


def test_a_query_is_read_up_to_the_end_of_the_first_window(tiny_config, tmp_path):
    embedder = Embedder(tiny_config.replace(max_tokens=12)).fit(TEXTS)
    inside = "wing " * 10
    np.testing.assert_array_equal(embedder.raw_queries([inside + "cat dog fish"]), embedder.raw_queries([inside]))
    assert not np.array_equal(embedder.raw_documents([inside + "cat dog fish"]), embedder.raw_documents([inside]))
    assert embedder.query_note(inside) is None
    assert embedder.query_note(inside + "cat dog fish").endswith("its last 3 tokens count only as words")
    with Store.create(tmp_path / "store", embedder) as store:
        store.add(TEXTS)
        for mode, notes in (("dense", 1), ("hybrid", 1), ("lexical", 0)):
            with collected_notes() as collected:
                store.search(inside + "cat dog fish", mode=mode)
            assert len(collected) == notes


def test_queries_are_fitted_on_spans_and_documents_on_whole_texts(tiny_config):
    texts = [" ".join(TEXTS[i:] + TEXTS[:i]) for i in range(len(TEXTS))]
    embedder = Embedder(tiny_config.replace(postprocess=("center",))).fit(texts)
    assert np.abs(embedder.encode_documents(texts).mean(axis=0)).max() < 1e-5
    spans = draw_pseudo_queries(texts, 100, seed=0)
    assert np.abs(embedder.encode_queries(spans).mean(axis=0)).max() < 1e-5
    assert np.abs(embedder.encode_queries(texts) - embedder.encode_documents(texts)).max() > 0.01


def test_shared_query_fit(tiny_config):
    embedder = Embedder(tiny_config.replace(query_fit="shared")).fit(TEXTS)
    assert cosines(embedder.encode_documents(TEXTS), embedder.encode_queries(TEXTS)).min() > 1 - 1e-5


def test_unfitted_embedder_names_the_missing_call(tiny_config):
    embedder = Embedder(tiny_config)
    for call in (embedder.encode_documents, embedder.encode_queries):
        with pytest.raises(NotFittedError, match=r"embedder\.fit\(texts\)"):
            call(["text"])
    with pytest.raises(NotFittedError, match="fit"):
        _ = embedder.fingerprint
    assert not embedder.is_fitted


def test_fitted_extractor_alone_is_not_a_fitted_embedder(tiny_config):
    embedder = Embedder(tiny_config).fit_extractor(TEXTS)
    assert not embedder.is_fitted
    assert embedder.raw_documents(TEXTS).shape == (6, 32)
    with pytest.raises(NotFittedError, match="post-processors"):
        embedder.encode_documents(TEXTS)


def test_single_string_is_rejected(embedder):
    with pytest.raises(ConfigError, match="put it in a list"):
        embedder.encode_documents("text")


@pytest.mark.parametrize("wrong", [1, None, b"tea"])
@pytest.mark.parametrize("method", ["encode_documents", "encode_queries", "raw_documents", "raw_queries"])
def test_texts_that_are_not_str_are_refused(wrong, method):
    embedder = Embedder.from_preset("re").fit(["tea", "wing"])
    with pytest.raises(ConfigError, match=f"text 1 is {str(wrong)!r}, of type {type(wrong).__name__}: expected a str"):
        getattr(embedder, method)(["tea", wrong])


def test_second_fit_replaces_the_first(tiny_config):
    twice = Embedder(tiny_config).fit(["zebra alpha", "beta gamma"]).fit(TEXTS)
    assert twice.fingerprint == Embedder(tiny_config).fit(TEXTS).fingerprint


def test_flipped_byte_is_rejected(embedder, tmp_path):
    embedder.save(tmp_path)
    state = bytearray((tmp_path / "state.safetensors").read_bytes())
    state[-1] ^= 1
    (tmp_path / "state.safetensors").write_bytes(state)
    with pytest.raises(ModelError, match=r"state\.safetensors is not the file that was saved"):
        Embedder.load(tmp_path)


def test_changed_model_is_rejected(embedder, tmp_path, tiny_model):
    copy = tmp_path / "model"
    copy.mkdir()
    for file in tiny_model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    Embedder(embedder.config.replace(model=str(copy))).fit(TEXTS).save(tmp_path / "saved")
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    with pytest.raises(ModelError, match="is not the one this embedder was fitted with"):
        Embedder.load(tmp_path / "saved")


def test_load_without_saved_embedder(tmp_path):
    with pytest.raises(ModelError, match=r"holds no saved embedder: config\.json is missing"):
        Embedder.load(tmp_path)


def test_with_postprocess_keeps_the_raw_vectors(embedder):
    other = embedder.with_postprocess(("zscore",), "separate")
    assert not other.is_fitted
    assert other.raw_fingerprint == embedder.raw_fingerprint
    np.testing.assert_array_equal(other.raw_documents(TEXTS), embedder.raw_documents(TEXTS))


@pytest.mark.usefixtures("needs_minilm")
def test_minilm_equals_sentence_transformers():
    """Mean pooling and unit length without a fit equal the reference implementation."""
    from sentence_transformers import SentenceTransformer

    config = EmbedderConfig(weighting="uniform", postprocess=("normalize",), dtype="float32")
    embedder = Embedder(config).fit(TEXTS)
    reference = SentenceTransformer(str(find_model(config.model).folder), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(embedder.encode_documents(TEXTS), reference, atol=1e-5)
    np.testing.assert_allclose(embedder.encode_queries(TEXTS), reference, atol=1e-5)
    fast = Embedder(config.replace(dtype="bfloat16")).fit(TEXTS)
    assert cosines(fast.encode_documents(TEXTS), reference).min() > 0.999


def test_progress_counts_every_text_once(embedder):
    counts = []
    embedder.raw_documents(["cat dog " * 200, *TEXTS, "", "wing " * 90], counts.append)
    assert sum(counts) == len(TEXTS) + 3


def test_failed_fit_keeps_the_earlier_one(tiny_config):
    embedder = Embedder(tiny_config).fit(TEXTS)
    before = embedder.fingerprint, embedder.encode_documents(TEXTS)
    with pytest.raises(ConfigError, match="without texts"):
        embedder.fit([])
    assert embedder.fingerprint == before[0]
    np.testing.assert_array_equal(embedder.encode_documents(TEXTS), before[1])


@pytest.mark.parametrize("steps", [("whiten:33",), ("normalize", "abtt:33")])
def test_too_many_directions_are_rejected_before_encoding(tiny_config, steps):
    with pytest.raises(ConfigError, match="the vectors have 32 dimensions"):
        _ = Embedder(tiny_config.replace(postprocess=steps)).extractor


def test_float16_rounding_does_not_count_in_the_rank(tiny_config):
    from ragembed.postprocess import Chain

    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(500, 8)) @ rng.normal(size=(8, 64))).astype(np.float16).astype(np.float32)
    assert Chain(["whiten"]).fit(vectors).dim == 8


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"config": None}, "config is missing"),
        ({"fitted_on": None}, r"fitted_on\.texts is missing"),
        ({"source_sha256": 3}, "source_sha256 is missing"),
        ({"config": {"layers": "top"}}, "the configuration saved in .*'top'"),
        ({"config": {"no": 1}}, "unknown setting 'no'"),
    ],
)
def test_changed_configuration_is_rejected(embedder, tmp_path, change, named):
    embedder.save(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**about, **change}))
    with pytest.raises(ModelError, match=named):
        Embedder.load(tmp_path)
