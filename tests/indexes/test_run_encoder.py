"""A run encodes few documents without PyTorch, with the same vectors as with PyTorch."""

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import GpuError
from ragembed.indexes import Store
from ragembed.indexes.indexing.index_run import index_files
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


def test_missing_gpu_raises_for_a_small_edit(docs, in_folder, tiny_config):
    store = in_folder / "store"
    index_files(IndexingRequest(store, (docs,), embedder=tiny_config))
    (docs / "0.txt").write_text("a bird and a fish\n")
    with pytest.raises(GpuError, match="gpu:99"):
        index_files(IndexingRequest(store, device="gpu:99"))
