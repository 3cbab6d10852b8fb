"""OpenVinoBert: its hidden states equal those of NumPy and transformers, and depend on no other window."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import ConfigError, MissingExtraError
from ragembed.models import choice
from ragembed.models.choice import batch_model
from ragembed.models.files import find_model
from ragembed.models.numpy_bert import NumpyBert
from ragembed.models.transformers_model import TransformersModel
from tests.core.model_families import FAMILIES, make_model

pytest.importorskip("openvino")

from ragembed.models.openvino_bert import OpenVinoBert, fast_dtype

LAYERS = (-1, 0, 1, 2)
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def ours(tiny_model):
    return OpenVinoBert(tiny_model, "float32")


@pytest.fixture(scope="module")
def theirs(tiny_model):
    return TransformersModel(tiny_model, "float32", "cpu")


def windows(lengths):
    lengths = np.array(lengths)
    ids = np.random.default_rng(0).integers(5, 100, size=(len(lengths), lengths.max() + 2))
    return ids, lengths


def assert_same(found, expected, lengths):
    for mine, other in zip(found, expected, strict=True):
        assert mine.dtype == np.float32
        assert mine.shape == other.shape
        for row, length in enumerate(lengths):
            np.testing.assert_allclose(mine[row, :length], other[row, :length], atol=2e-5)


@given(lengths=LENGTHS)
def test_float32_hidden_states_equal_transformers(ours, theirs, lengths):
    ids, lengths = windows(lengths)
    assert_same(ours.states(ids, lengths, LAYERS), theirs.states(ids, lengths, LAYERS), lengths)


@pytest.mark.parametrize("name", ["BERT", "MPNet"])
def test_windows_after_one_of_one_token_equal_numpy(name, tmp_path):
    folder = find_model(str(make_model(next(family for family in FAMILIES if family.name == name), tmp_path))).folder
    ids, lengths = windows([1, 1, 9, 12, 9, 12])
    found = OpenVinoBert(folder, "float32").states(ids, lengths, LAYERS)
    assert_same(found, NumpyBert(folder).states(ids, lengths, LAYERS), lengths)


@pytest.mark.parametrize("name", ["MPNet", "RoBERTa", "DistilBERT"])
def test_relatives_equal_numpy(name, tmp_path):
    folder = find_model(str(make_model(next(family for family in FAMILIES if family.name == name), tmp_path))).folder
    ids, lengths = windows([9, 7, 1])
    found = OpenVinoBert(folder, "float32").states(ids, lengths, LAYERS)
    assert_same(found, NumpyBert(folder).states(ids, lengths, LAYERS), lengths)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_window_does_not_depend_on_others_nor_on_the_copy(tiny_model, dtype):
    model = OpenVinoBert(tiny_model, dtype)
    ids, lengths = windows([9, 7, 7, 3])
    [together] = model.states(ids, lengths, (2,))
    for other in (model, copy.deepcopy(model)):
        for row, length in enumerate(lengths):
            [alone] = other.states(ids[row : row + 1, :length], lengths[row : row + 1], (2,))
            np.testing.assert_array_equal(alone[0], together[row, :length])


@pytest.mark.parametrize(("dtype", "least"), [("bfloat16", 0.999), ("int8", 0.995)])
def test_lower_precision_is_close_to_float32(tiny_model, theirs, dtype, least):
    ids, lengths = windows([9, 7, 7, 3])
    [found], [expected] = (model.states(ids, lengths, (2,)) for model in (OpenVinoBert(tiny_model, dtype), theirs))
    for row, length in enumerate(lengths):
        mine, other = found[row, :length].mean(axis=0), expected[row, :length].mean(axis=0)
        assert mine @ other > least * np.linalg.norm(mine) * np.linalg.norm(other)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("extractor", ["transformer", "bert+avg", "sbert-wk"])
def test_vectors_are_bit_equal_alone_and_together(bert_model, dtype, extractor):
    texts = ["the cat", "a reader is in the folder", "shock wave and boundary layer " * 30, "", "air flow"]
    config = EmbedderConfig(model=str(bert_model), dtype=dtype, extractor=extractor)
    embedder = Embedder(config, device="cpu").fit(texts)
    alone = np.concatenate([embedder.raw_documents([text]) for text in texts])
    np.testing.assert_array_equal(embedder.raw_documents(texts), alone)


def test_plain_bert_on_the_cpu_runs_with_openvino(tiny_model, gpt_model, tmp_path, monkeypatch):
    files = find_model(str(tiny_model))
    model = batch_model(files, "float32", "cpu")
    assert isinstance(model, OpenVinoBert)
    assert batch_model(files, "float32", "cpu") is model
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((tiny_model / name).read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    assert isinstance(batch_model(find_model(str(tmp_path)), "float32", "cpu"), TransformersModel)
    with pytest.raises(ConfigError, match="dtype is 'int8', but the device is 'cuda:0'"):
        batch_model(files, "int8", "cuda:0")
    with pytest.raises(ConfigError, match="dtype is 'int8', but the model is not a BERT or one of its relatives"):
        batch_model(find_model(str(gpt_model)), "int8", "cpu")
    monkeypatch.setattr(choice, "is_installed", lambda module: False)
    assert isinstance(batch_model(files, "float32", "cpu"), NumpyBert)
    for dtype in ("int8", "bfloat16"):
        with pytest.raises(MissingExtraError, match="openvino"):
            batch_model(files, dtype, "cpu")


def test_numpy_replaces_an_openvino_that_computes_wrong_vectors(tiny_model, monkeypatch, caplog):
    states = OpenVinoBert.states
    monkeypatch.setattr(OpenVinoBert, "states", lambda *given: [array[:, ::-1] for array in states(*given)])
    monkeypatch.setattr(choice, "_SHARED", {})
    assert isinstance(batch_model(find_model(str(tiny_model)), "bfloat16", "cpu"), NumpyBert)
    assert "OpenVINO computes wrong vectors on this processor" in caplog.text


def test_model_is_compared_within_its_window(tiny_model, monkeypatch):
    monkeypatch.setattr(choice, "_COMPARED", (1, 64, 65))  # it has 64 positions
    monkeypatch.setattr(choice, "_SHARED", {})
    assert isinstance(batch_model(find_model(str(tiny_model)), "float32", "cpu"), OpenVinoBert)


def test_linux_knows_the_arithmetic_that_openvino_chooses():
    assert choice.fast_dtype(("cpu",)) == fast_dtype()
