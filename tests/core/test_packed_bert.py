"""PackedBert: its hidden states equal those of transformers."""

import copy
import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError
from ragembed.models import packed_bert
from ragembed.models.bert_files import WORDS, BertTensors
from ragembed.models.choice import _load, batch_model
from ragembed.models.files import find_model
from ragembed.models.int8_bert import Int8Bert, can_int8
from ragembed.models.packed_bert import PackedBert, can_pack
from ragembed.models.transformers_model import TransformersModel

needs_bfloat16 = pytest.mark.skipif(not can_pack("bfloat16"), reason="oneDNN has no bfloat16 on this CPU")
needs_int8 = pytest.mark.skipif(not can_int8(), reason="this CPU has no AVX512-VNNI")
pytestmark = pytest.mark.skipif(not can_pack("float32"), reason="PyTorch has no oneDNN here")

LAYERS = (-1, 0, 1, 2)


@pytest.fixture(scope="module")
def ours(tiny_model):
    return PackedBert(tiny_model, "float32")


@pytest.fixture(scope="module")
def theirs(tiny_model):
    return TransformersModel(tiny_model, "float32", "cpu")


def windows(lengths):
    lengths = np.array(lengths)
    ids = np.random.default_rng(0).integers(5, 100, size=(len(lengths), lengths.max() + 2))
    return ids, lengths


def test_file_does_not_stay_in_memory(tiny_model, tmp_path, resident_bytes):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    model = PackedBert(folder, "float32")
    assert resident_bytes(folder / "model.safetensors") == 0
    np.testing.assert_array_equal(model.word_embeddings(), BertTensors(folder).tensor(WORDS))
    assert resident_bytes(folder / "model.safetensors") > 0


def assert_same(found, expected, lengths, atol=2e-5):
    for mine, other in zip(found, expected, strict=True):
        assert mine.dtype == np.float32
        assert mine.shape == other.shape
        assert np.isfinite(mine).all()
        for row, length in enumerate(lengths):
            np.testing.assert_allclose(mine[row, :length], other[row, :length], atol=atol)


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8))
def test_float32_hidden_states_equal_transformers(ours, theirs, lengths):
    ids, lengths = windows(lengths)
    assert_same(ours.states(ids, lengths, LAYERS), theirs.states(ids, lengths, LAYERS), lengths)


@pytest.mark.parametrize("layers", [(2,), (0,), (-1,), (-1, 1)])
def test_requested_layers_are_returned_in_order(ours, theirs, layers):
    ids, lengths = windows([4, 4, 2])
    assert_same(ours.states(ids, lengths, layers), theirs.states(ids, lengths, layers), lengths)
    np.testing.assert_array_equal(ours.word_embeddings(), theirs.word_embeddings())
    assert (ours.dim, ours.n_layers) == (theirs.dim, theirs.n_layers)


def test_copy_gives_the_same_states(ours):
    ids, lengths = windows([4, 2])
    for other in (copy.deepcopy(ours), copy.copy(ours)):
        np.testing.assert_array_equal(other.states(ids, lengths, (2,))[0], ours.states(ids, lengths, (2,))[0])


@needs_bfloat16
def test_bfloat16_is_close_to_float32(tiny_model, theirs):
    ids, lengths = windows([9, 7, 7, 3])
    [found] = PackedBert(tiny_model, "bfloat16").states(ids, lengths, (2,))
    [expected] = theirs.states(ids, lengths, (2,))
    for row, length in enumerate(lengths):
        mine, other = found[row, :length].mean(axis=0), expected[row, :length].mean(axis=0)
        assert mine @ other > 0.999 * np.linalg.norm(mine) * np.linalg.norm(other)


@needs_int8
@pytest.mark.parametrize("attention", ["bfloat16", "float32"])
@pytest.mark.parametrize("fixture", ["tiny_model", "roberta_model"])
def test_int8_is_close_to_float32(fixture, attention, request, monkeypatch):
    monkeypatch.setattr("ragembed.models.int8_bert.fast_dtype", lambda devices: attention)
    files = find_model(str(request.getfixturevalue(fixture)))
    ids, lengths = windows([9, 7, 7, 3])
    [found] = _load(files, "int8", "cpu").states(ids, lengths, (2,))
    [expected] = PackedBert(files.folder, "float32").states(ids, lengths, (2,))
    for row, length in enumerate(lengths):
        mine, other = found[row, :length].mean(axis=0), expected[row, :length].mean(axis=0)
        assert mine @ other > 0.995 * np.linalg.norm(mine) * np.linalg.norm(other)


@needs_int8
def test_int8_vectors_do_not_depend_on_the_batch(tiny_model, monkeypatch):
    monkeypatch.setattr("ragembed.models.int8_bert.fast_dtype", lambda devices: "float32")
    model = Int8Bert(find_model(str(tiny_model)))
    ids, lengths = windows([9, 7, 7, 3])
    [together] = model.states(ids, lengths, (2,))
    for other in (model, copy.deepcopy(model)):
        for row, length in enumerate(lengths):
            [alone] = other.states(ids[row : row + 1, :length], lengths[row : row + 1], (2,))
            np.testing.assert_allclose(alone[0], together[row, :length], atol=2e-2)  # one level


def test_int8_is_refused_where_it_is_not_fast(tiny_model, gpt_model, monkeypatch):
    files = find_model(str(tiny_model))
    with pytest.raises(ConfigError, match=r"the device is 'cuda:0': choose device 'cpu' or"):
        _load(files, "int8", "cuda:0")
    with pytest.raises(ConfigError, match="the model is not a BERT or one of its relatives"):
        _load(find_model(str(gpt_model)), "int8", "cpu")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    with pytest.raises(ConfigError, match="PyTorch finds no AVX512-VNNI"):
        _load(files, "int8", "cpu")


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8), data=st.data())
def test_batch_and_padding_do_not_change_the_result(ours, lengths, data):
    ids, lengths = windows(lengths)
    order = np.array(data.draw(st.permutations(range(len(lengths)))))
    [together] = ours.states(ids, lengths, (2,))
    [moved] = ours.states(ids[order], lengths[order], (2,))
    np.testing.assert_allclose(moved, together[order], atol=1e-5)
    [alone] = ours.states(ids[:1, : lengths[0]], lengths[:1], (2,))
    np.testing.assert_allclose(alone[0], together[0, : lengths[0]], atol=1e-5)


@needs_bfloat16
@pytest.mark.usefixtures("needs_minilm")
def test_default_model_in_bfloat16_is_close_to_float32(collections):
    from ragembed import Embedder
    from ragembed.evaluation import read_beir

    texts = list(read_beir(collections / "retrieval" / "cran", 15).documents.values())
    exact, fast = (
        Embedder.from_preset("minilm", dtype=dtype, weighting="uniform").fit(texts).encode_documents(texts)
        for dtype in ("float32", "bfloat16")
    )
    assert (exact * fast).sum(axis=1).min() >= 0.9995


def test_plain_bert_on_cpu_is_packed(tiny_model, tmp_path, monkeypatch):
    files = find_model(str(tiny_model))
    assert isinstance(batch_model(files, "float32", "cpu"), PackedBert)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((tiny_model / name).read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    assert isinstance(batch_model(find_model(str(tmp_path)), "float32", "cpu"), TransformersModel)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not can_pack("float32")
    (tmp_path / "config.json").write_text(json.dumps({**config, "changed": True}))
    assert isinstance(batch_model(find_model(str(tmp_path)), "float32", "cpu"), TransformersModel)


@pytest.mark.parametrize("size", [1.0, 100.0, 10_000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_equals_softmax_for_any_score_size(size, dtype):
    query_key_value = torch.randn(3, 7, 3, 4, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    query_key_value[:, :, 0] *= size
    query, key, value = query_key_value.float().permute(2, 0, 3, 1, 4).unbind(0)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
    found = packed_bert._attention(query_key_value, query_key_value.new_ones(query_key_value.shape[:2])).float()
    assert torch.isfinite(found).all()
    if size == 1.0 or dtype == torch.float32:  # bfloat16 cannot resolve the largest of large scores
        torch.testing.assert_close(found, expected, atol=2e-5 if dtype == torch.float32 else 5e-2, rtol=1e-3)


def test_attention_ignores_padding_when_all_scores_are_low():
    query_key_value = torch.ones(1, 5, 3, 2, 4)
    query_key_value[:, :, 0] *= -100.0
    query_key_value[:, 3:, 2] = 7.0
    real = torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0]])
    torch.testing.assert_close(packed_bert._attention(query_key_value, real), torch.ones(1, 5, 2, 4))


@pytest.mark.parametrize(("machine", "dtype", "bfloat16"), [("arm64", "float32", True), ("x86_64", "bfloat16", False)])
def test_unsupported_machines_use_transformers(tiny_model, monkeypatch, machine, dtype, bfloat16):
    monkeypatch.setattr(packed_bert.platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: bfloat16)
    assert not can_pack(dtype)
    assert isinstance(_load(find_model(str(tiny_model)), dtype, "cpu"), TransformersModel)
