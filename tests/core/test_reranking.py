"""Rerankers: scores equal those of the model, and other models give one-line errors."""

import importlib.util
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig, reranking
from ragembed.errors import MissingExtraError, ModelError, RagembedError
from ragembed.reranking import ModelReranker
from tests import multi_vectors
from tests.cross_encoders import known_score, make_cross_encoder

TEXTS = ["the lock of the store", "lock lock", "a wing", "", "lock " * 60]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_cross_encoder(tmp_path_factory.mktemp("cross-encoder"))


def test_scores_equal_the_model(model, capfd):
    reranker = ModelReranker(str(model), device="cpu", batch_size=2)
    scores = reranker.scores("which lock", TEXTS[:4])
    assert (scores.dtype, scores.shape) == (np.float32, (4,))
    assert scores.tolist() == pytest.approx([known_score("which lock", text) for text in TEXTS[:4]], abs=1e-5)
    assert np.argsort(-scores, kind="stable").tolist() == [1, 0, 3, 2]
    assert capfd.readouterr() == ("", "")


def test_text_beyond_the_window_is_ignored(model):
    [score] = ModelReranker(str(model), device="cpu").scores("which lock", TEXTS[4:])
    assert score == pytest.approx(known_score("which lock", TEXTS[4]), abs=1e-5)


def test_no_texts_give_no_scores(model, monkeypatch):
    monkeypatch.setattr(reranking, "_load", None)
    assert ModelReranker(str(model)).scores("which lock", []).shape == (0,)


def test_model_is_loaded_once_on_first_use(model, monkeypatch):
    loads = []
    load = reranking._load
    monkeypatch.setattr(reranking, "_load", lambda *args: loads.append(args) or load(*args))
    reranker = ModelReranker(str(model), device="cpu")
    assert loads == []
    with ThreadPoolExecutor(4) as pool:
        scores = list(pool.map(lambda text: reranker.scores("which lock", [text])[0], TEXTS))
    assert len(loads) == 1
    assert scores == pytest.approx([known_score("which lock", text) for text in TEXTS], abs=1e-5)


def test_missing_package_names_the_install_command(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"reranking needs .*pip install .*\[torch\]'"):
        ModelReranker(str(model))


def test_missing_model():
    message = (
        r"^the model 'no/model' is not on this machine(?: and could not be downloaded)?: give a local folder with "
    )
    for download in (True, False):
        with pytest.raises(ModelError, match=message + "--rerank$"):
            ModelReranker("no/model", download=download)


def test_model_that_is_not_a_cross_encoder(tiny_model):
    with pytest.raises(
        ModelError,
        match=r"has the architecture BertModel: expected a cross-encoder \(…ForSequenceClassification in its config\.",
    ):
        ModelReranker(str(tiny_model))


@pytest.mark.parametrize("config", ["", "[]", '{"architectures": 5}', '{"architectures": null}'])
def test_invalid_configuration(model, tmp_path, config):
    (tmp_path / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ModelError):
        ModelReranker(str(tmp_path))


def test_missing_weights(model, tmp_path):
    (tmp_path / "config.json").write_text((model / "config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="pickle format"):
        ModelReranker(str(tmp_path))


def test_damaged_weights(model, tmp_path):
    for file in model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes()[: 100 if file.suffix == ".safetensors" else None])
    with pytest.raises(RagembedError, match="cannot be loaded"):
        ModelReranker(str(tmp_path), device="cpu").scores("a", ["b"])


def test_classifier_with_several_labels(tmp_path):
    folder = make_cross_encoder(tmp_path / "three", labels=3)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]
    with pytest.raises(ModelError, match="gives 3 scores per text: expected a cross-encoder with one"):
        ModelReranker(str(folder), device="cpu").scores("a", ["b"])


# Multi-vector models

PYLATE = {
    "expansion": [11.9149, 9.79986, 11.32435, 11.90934],
    "no expansion": [7.93729, 6.79739, 7.5977, 7.95279],
    "attention": [11.90137, 9.47438, 10.63937, 11.65698],
    "Stanford": [15.41298, 10.88414, 14.77097, 12.12476],
}
"""Scores that PyLate 1.6.0 gives for the texts and the query, by layout."""


@pytest.mark.parametrize("layout", multi_vectors.LAYOUTS)
def test_scores_of_a_multi_vector_model_are_those_of_pylate(tmp_path, layout, capfd):
    folder = multi_vectors.make_multi_vector(tmp_path, layout)
    capfd.readouterr()
    reranker = ModelReranker(str(folder))
    scores = reranker.scores(multi_vectors.QUERY, multi_vectors.TEXTS)
    assert capfd.readouterr() == ("", "")
    assert (scores.dtype, scores.shape) == (np.float32, (4,))
    assert scores.tolist() == pytest.approx(PYLATE[layout], abs=1e-4)
    assert scores.tolist() == pytest.approx(multi_vectors.known_scores(folder, layout), abs=1e-4)
    padded = [f" {text} " for text in multi_vectors.TEXTS]
    assert reranker.scores(f"{multi_vectors.QUERY}\n", padded).tolist() == scores.tolist()
    assert reranker.scores("a", []).shape == (0,)


def test_pickle_weights_of_a_projection_are_refused(tmp_path):
    folder = multi_vectors.make_multi_vector(tmp_path, "expansion")
    (folder / "1_Dense" / "model.safetensors").rename(folder / "1_Dense" / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"1_Dense has no model.safetensors, and pytorch_model.bin is in PyTorch's"):
        ModelReranker(str(folder))


@pytest.mark.parametrize("layout", ["expansion", "Stanford"])
def test_a_multi_vector_model_is_no_embedding_model(tmp_path, layout):
    folder = multi_vectors.make_multi_vector(tmp_path, layout)
    with pytest.raises(
        ModelError, match="a multi-vector model, which has a vector for each token: use it with --rerank"
    ):
        Embedder(EmbedderConfig(model=str(folder))).fit(["a"])
