"""Every preset: independence of the batch, save and load, and unusual texts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragembed import Embedder, EmbedderConfig, embedder_files
from ragembed.config.settings import PRESETS
from ragembed.embedder import encode_raw
from ragembed.errors import ModelError

CORPUS = [
    "the cat sleeps and the dog runs",
    "supersonic air flow on a wing",
    "the lock of the store, a reader.",
    "the fish swims, the bird flies!",
    "shock wave and boundary layer on a wing: high pressure, \u201clow\u201d speed",
    "the writer holds the lock of the store, a reader is in the folder. " * 9,
    "dictionary and synonym",
    "fox",
]
ODD = [
    "",
    "   ",
    "\n\t",
    "cat " * 5000,
    "\U0001f600\U0001f389",
    "\x00\x07\x1b",
    "\ud800 alone",
    "qxqxqx",
    "\u65e5\u672c\u8a9e",
    "[MASK]",
]
LONG_AND_ODD = st.lists(
    st.one_of(st.sampled_from([*CORPUS, *ODD[:3], *ODD[4:]]), st.text(max_size=40)), min_size=1, max_size=7
)


def make(name, bert_model, words_file, **changes):
    model = words_file if name == "b2s-100" else bert_model
    return Embedder.from_preset(name, **{"model": str(model), "dtype": "float32", **changes})


@pytest.fixture(scope="module", params=PRESETS)
def embedder(request, bert_model, words_file):
    return make(request.param, bert_model, words_file).fit(CORPUS)


def cosines(a, b):
    """Return the cosines of rows; 1 for two zero rows."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    nothing = (np.linalg.norm(a, axis=1) < 1e-6) & (np.linalg.norm(b, axis=1) < 1e-6)
    return np.where(nothing, 1.0, (a * b).sum(axis=1) / np.where(nothing, 1.0, lengths))


def test_vectors_do_not_depend_on_the_batch(embedder):
    for side in ("documents", "queries"):
        (together,) = encode_raw([embedder], CORPUS, side)
        alone = np.concatenate([encode_raw([embedder], [text], side)[0] for text in CORPUS])
        (backwards,) = encode_raw([embedder], CORPUS[::-1] + ODD[:3], side)
        assert cosines(together, alone).min() > 1 - 1e-5
        assert cosines(together, backwards[: len(CORPUS)][::-1]).min() > 1 - 1e-5
    for encode in (embedder.encode_documents, embedder.encode_queries):
        alone = np.concatenate([encode([text]) for text in CORPUS])
        assert cosines(encode(CORPUS), alone).min() > 1 - 1e-5


@given(texts=LONG_AND_ODD, order=st.randoms(use_true_random=False))
@settings(max_examples=settings().max_examples // 5)
def test_any_batch_in_any_order_gives_the_same_vectors(embedder, texts, order):
    rows = list(range(len(texts)))
    order.shuffle(rows)
    vectors = embedder.raw_documents(texts)
    shuffled = embedder.raw_documents([texts[row] for row in rows])
    assert np.isfinite(vectors).all()
    assert cosines(shuffled, vectors[rows]).min() > 1 - 1e-5


@pytest.mark.parametrize("name", ["minilm", "t4", "bert+avg", "sbert-wk"])
def test_bfloat16_vectors_do_not_depend_on_the_batch(name, bert_model, words_file):
    embedder = make(name, bert_model, words_file, dtype="bfloat16").fit(CORPUS)
    together = embedder.raw_documents(CORPUS)
    alone = np.concatenate([embedder.raw_documents([text]) for text in CORPUS])
    assert cosines(together, alone).min() > 1 - 1e-4


def test_unusual_texts_give_finite_vectors(embedder):
    for encode in (embedder.encode_documents, embedder.encode_queries):
        vectors = encode(ODD)
        assert vectors.shape == (len(ODD), embedder.dim)
        assert vectors.dtype == np.float32
        assert np.isfinite(vectors).all()


def test_unusual_texts_in_the_corpus(embedder, bert_model, words_file):
    again = Embedder(embedder.config).fit([*CORPUS, *ODD])
    assert np.isfinite(again.encode_documents(CORPUS)).all()
    assert np.isfinite(again.encode_queries(ODD)).all()


def test_save_and_load_keep_the_vectors(embedder, tmp_path):
    embedder.save(tmp_path / "saved")
    loaded = Embedder.load(tmp_path / "saved")
    assert (loaded.fingerprint, loaded.raw_fingerprint) == (embedder.fingerprint, embedder.raw_fingerprint)
    assert (loaded.config, loaded.fitted_on, loaded.dim) == (embedder.config, embedder.fitted_on, embedder.dim)
    for name in ("encode_documents", "encode_queries", "raw_documents", "raw_queries"):
        np.testing.assert_array_equal(getattr(loaded, name)(CORPUS), getattr(embedder, name)(CORPUS))
    loaded.save(tmp_path / "again")
    assert sorted(file.name for file in (tmp_path / "again").iterdir()) == ["config.json", "state.safetensors"]
    for file in ("config.json", "state.safetensors"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "saved" / file).read_bytes()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda arrays: arrays.pop("extractor.tokens.occurrences"), "no array 'tokens.occurrences'"),
        (lambda arrays: arrays.pop("extractor.avg.vectors"), "no array 'avg.vectors'"),
        (
            lambda arrays: arrays.update({"extractor.avg.present": np.zeros(3, np.uint8)}),
            r"'avg.present'.*shape \(3,\)",
        ),
        (lambda arrays: arrays.update({"extractor.tokens.texts": np.ones(1)}), "'tokens.texts'.*float64"),
    ],
)
def test_changed_state_with_a_valid_hash_is_rejected(bert_model, tmp_path, change, named):
    config = EmbedderConfig(extractor="avg", model=str(bert_model), dtype="float32")
    Embedder(config).fit(["the cat sleeps", "the dog runs"]).save(tmp_path)
    about, arrays = embedder_files.read(tmp_path)
    change(arrays)
    kept = {name: value for name, value in about.items() if name not in ("format", "ragembed", "state_sha256")}
    embedder_files.write(tmp_path, kept, arrays)  # this stores the hash of the changed arrays
    with pytest.raises(ModelError, match=named):
        Embedder.load(tmp_path)
