"""A run encodes few documents without PyTorch, with the same vectors as with PyTorch."""

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import GpuError
from ragembed.extractors import model
from ragembed.indexes import Store
from ragembed.indexes.indexing import index_run
from ragembed.indexes.indexing.index_run import RunEncoder, index_files
from ragembed.indexes.indexing.request import IndexingRequest

TEXTS = ["the writer holds the lock", "a reader is in the store", "shock wave and boundary layer", "wing"]


def cosines(a, b):
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.fixture
def docs(in_folder):
    folder = in_folder / "docs"
    folder.mkdir()
    for number, text in enumerate(TEXTS):
        (folder / f"{number}.txt").write_text(f"{text}\n")
    return folder


@pytest.fixture
def alone(monkeypatch):
    """The number of texts encoded without PyTorch in each call."""
    counts = []
    original = Embedder.raw_without_framework

    def encode(self, texts, progress=None):
        found = original(self, texts, progress)
        counts.extend([] if found is None else [len(texts)])
        return found

    monkeypatch.setattr(Embedder, "raw_without_framework", encode)
    return counts


def encoded(encode, texts):
    return np.concatenate(list(encode.parts(texts)))


@pytest.mark.parametrize(("texts", "times"), [(TEXTS, 0), (TEXTS * 10, 1)])
def test_memory_is_released_after_many_texts(tiny_config, monkeypatch, texts, times):
    given = []
    monkeypatch.setattr(index_run, "give_back", lambda: given.append(1))
    encoded(RunEncoder(Embedder(tiny_config).fit(TEXTS)), texts)
    assert len(given) == times


def test_texts_are_encoded_in_parts_of_similar_size(tiny_config, monkeypatch):
    monkeypatch.setattr(index_run, "PART", 70)
    texts = [f"{text} {number}" for number in range(5) for text in TEXTS]
    encode = RunEncoder(Embedder(tiny_config).fit(TEXTS))
    assert [len(part) for part in encode.parts(texts)] == [2, 3, 3, 2, 3, 3, 2, 2]


# Embedders


@pytest.mark.parametrize("extractor", ["transformer", "bert+avg", "sbert-wk:start_layer=0", "avg", "re:dim=8"])
def test_few_documents_get_the_same_vectors_as_with_pytorch(tiny_config, extractor):
    embedder = Embedder(tiny_config.replace(extractor=extractor)).fit(TEXTS)
    told = []
    found = embedder.raw_without_framework(TEXTS, told.append)
    np.testing.assert_allclose(found, embedder.raw_documents(TEXTS), atol=1e-5)
    assert sum(told) == len(TEXTS)


def test_few_documents_of_the_default_model(needs_minilm):
    texts = [" ".join(TEXTS * count) for count in (1, 3, 9)]
    config = EmbedderConfig(weighting="uniform", postprocess=("normalize",))
    exact, rounded = (Embedder(config.replace(dtype=dtype)).fit(texts) for dtype in ("float32", "mixed"))
    found = exact.raw_without_framework(texts)
    np.testing.assert_allclose(found, exact.raw_documents(texts), atol=1e-5)
    np.testing.assert_array_equal(found, rounded.raw_without_framework(texts))
    assert cosines(found, rounded.raw_documents(texts)).min() >= 0.9995


@pytest.mark.parametrize("texts", [["wing"] * 9, ["wing " * 1100], ["wing " * 300] * 4])
def test_many_or_long_documents_use_pytorch(tiny_config, texts):
    embedder = Embedder(tiny_config.replace(postprocess=())).fit(TEXTS)
    assert embedder.raw_without_framework(texts) is None
    assert embedder.raw_without_framework(texts[:1] if len(texts) > 1 else ["wing"]) is not None


def test_limit_of_tokens_depends_on_the_model_size(tiny_config, monkeypatch):
    embedder = Embedder(tiny_config).fit(TEXTS)
    monkeypatch.setattr(model, "_FEW_PRODUCTS", 12 * 2 * 32**2 * 10)  # ten tokens of two blocks of dimension 32
    assert embedder.raw_without_framework(["the cat is the dog and bird fish"]) is not None
    assert embedder.raw_without_framework(["the cat is the dog and bird fish is"]) is None


@pytest.mark.parametrize(
    ("device", "few"), [(None, True), ("auto", True), ("cpu", True), ("gpu", False), ("mps", False)]
)
def test_requested_device_is_used(tiny_config, tmp_path, device, few):
    Embedder(tiny_config, device="cpu").fit(TEXTS).save(tmp_path)
    found = Embedder.load(tmp_path, device=device).raw_without_framework(TEXTS)
    assert (found is not None) is few


# Runs


@pytest.mark.parametrize("extractor", ["transformer", "avg"])
def test_edit_is_encoded_without_pytorch(docs, in_folder, tiny_config, alone, extractor):
    store = in_folder / "store"
    index_files(IndexingRequest(store, (docs,), embedder=tiny_config.replace(extractor=extractor, dtype="auto")))
    del alone[:]
    (docs / "0.txt").write_text("a bird and a fish\n")
    report = index_files(IndexingRequest(store))
    assert (alone, report.encoded, report.devices) == ([1], 1, ("cpu",))
    with Store.open(store) as opened:
        assert not opened.verify().problems
        assert opened.search("a bird and a fish", 1)[0].source.endswith("0.txt")


def test_requested_dtype_is_used(docs, in_folder, tiny_config, alone):
    store = in_folder / "store"
    index_files(IndexingRequest(store, (docs,), embedder=tiny_config.replace(dtype="bfloat16")))
    (docs / "0.txt").write_text("a bird and a fish\n")
    report = index_files(IndexingRequest(store))
    assert (alone, report.encoded, report.devices) == ([], 1, ("cpu",))


def test_only_the_texts_decide_about_pytorch(tiny_config):
    encode = RunEncoder(Embedder(tiny_config).fit(TEXTS))
    np.testing.assert_array_equal(encoded(encode, TEXTS), encoded(encode, TEXTS))
    np.testing.assert_allclose(encoded(encode, TEXTS * 3)[:4], encoded(encode, TEXTS), atol=1e-5)
    assert encode.devices == ("cpu",)


def test_external_encoder_has_no_devices(encoder):
    encode = RunEncoder(encoder)
    assert encoded(encode, TEXTS).shape == (4, 8)
    assert (encode.devices, encoder.encoded) == ((), 4)


def test_missing_gpu_raises_for_a_small_edit(docs, in_folder, tiny_config):
    store = in_folder / "store"
    index_files(IndexingRequest(store, (docs,), embedder=tiny_config))
    (docs / "0.txt").write_text("a bird and a fish\n")
    with pytest.raises(GpuError, match="gpu:99"):
        index_files(IndexingRequest(store, device="gpu:99"))
