import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from ragembed.errors import ModelError
from ragembed.models import numpy_bert
from ragembed.models.bert_files import is_plain_bert
from ragembed.models.choice import batch_model, exact_model
from ragembed.models.files import find_model
from ragembed.models.numpy_bert import NumpyBert, _apply_gelu, _small_products
from ragembed.models.transformers_model import TransformersModel
from ragembed.tensor_map import map_tensors, release


@pytest.mark.parametrize("layers", [(2,), (0,), (-1,), (1, 2), (-1, 0, 1, 2)])
def test_hidden_states_equal_pytorch(tiny_model, layers):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 100, size=(3, 9))
    lengths = np.array([9, 4, 1])
    ours = NumpyBert(tiny_model).states(ids, lengths, layers)
    theirs = TransformersModel(tiny_model, "float32", "cpu").states(ids, lengths, layers)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype == np.float32
        for row, length in enumerate(lengths):
            np.testing.assert_allclose(mine[row, :length], other[row, :length], atol=2e-5)


def test_concurrent_users_share_one_model(tiny_model):
    files = find_model(str(tiny_model))
    first = batch_model(files, "float32", "cpu")
    assert batch_model(files, "float32", "cpu") is first
    assert batch_model(files, "bfloat16", "cpu") is not first
    assert batch_model(replace(files, sha256="changed"), "float32", "cpu") is not first


def test_threads_do_not_change_the_result(tiny_model):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 61, 40)
    ids = rng.integers(5, 100, size=(40, 60))
    model = NumpyBert(tiny_model)
    together = model.states(ids, lengths, (1, 2))
    for row, length in enumerate(lengths):
        alone = model.states(ids[row : row + 1, :length], lengths[row : row + 1], (1, 2))
        for mine, others in zip(alone, together, strict=True):
            np.testing.assert_allclose(others[row, :length], mine[0], atol=2e-5)


def test_gelu_equals_the_standard_library():
    x = np.linspace(-8, 8, 40_001, dtype=np.float32)
    expected = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()]
    _apply_gelu(x)
    np.testing.assert_allclose(x, expected, atol=2e-6)


@pytest.mark.parametrize("change", [{"model_type": "electra"}, {"hidden_act": "relu"}, {"is_decoder": True}])
def test_other_architectures_use_pytorch(tiny_model, tmp_path, change):
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).write_bytes((tiny_model / name).read_bytes())
    assert is_plain_bert(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    assert not is_plain_bert(tmp_path)


def test_first_query_frees_the_memory_of_each_weight(tiny_model, tmp_path, monkeypatch, resident_bytes):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    resident = []

    def linear(self, states, name, product=NumpyBert._linear):
        found = product(self, states, name)
        resident.append(resident_bytes(folder / "model.safetensors"))
        return found

    monkeypatch.setattr(NumpyBert, "_linear", linear)
    model = NumpyBert(folder)
    ids, lengths = np.array([[7, 8, 9]]), np.array([3])
    (first,) = model.states(ids, lengths, (2,))
    assert len(resident) == 12
    assert not any(resident)
    for _ in range(2):  # the second call copies the weights, the third one uses the copies
        (again,) = model.states(ids, lengths, (2,))
        np.testing.assert_array_equal(first, again)


def test_weights_are_read_once_in_a_process_with_many_queries(tiny_model, monkeypatch):
    read = []
    model = exact_model(find_model(str(tiny_model)), None)
    tensors = model._tensors
    monkeypatch.setattr(tensors, "tensor", lambda name, tensor=tensors.tensor: read.append(name) or tensor(name))
    for _ in range(2):
        model.states(np.array([[7, 8, 9]]), np.array([3]), (2,))
    read.clear()
    model.states(np.array([[7, 8, 9, 10]]), np.array([4]), (2,))
    assert exact_model(find_model(str(tiny_model)), None) is model
    assert not [name for name in read if name.endswith("dense.weight")]


def test_long_texts_use_whole_products(tiny_model, monkeypatch):
    ids, lengths = np.arange(5, 35)[None], np.array([30])
    (expected,) = NumpyBert(tiny_model).states(ids, lengths, (2,))
    monkeypatch.setattr(numpy_bert, "_PART_TOKENS", 29)
    monkeypatch.setattr(NumpyBert, "_panels", None)
    (found,) = NumpyBert(tiny_model).states(ids, lengths, (2,))
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("tokens", [1, 8, 9, 41, 256])
def test_small_products_cover_all_tokens(tokens):
    ranges = list(_small_products(tokens, np.empty((6, 384, 64), dtype=np.float32)))
    assert [row for part in ranges for row in range(tokens)[part]] == list(range(tokens))
    assert max(len(range(tokens)[part]) for part in ranges) <= 40


def test_released_memory_is_read_again(tmp_path, resident_bytes):
    file = tmp_path / "t.safetensors"
    numbers = np.arange(200_000, dtype=np.float32)
    save_file({"other": numbers, "a": numbers}, file)
    mapped = map_tensors(file)["a"]
    np.testing.assert_array_equal(mapped, numbers)
    assert resident_bytes(file) >= mapped.nbytes
    release(mapped[5:])
    assert resident_bytes(file) == 0
    np.testing.assert_array_equal(mapped, numbers)


def test_release_ignores_memory_that_is_not_mapped(tmp_path):
    save_file({"a": np.arange(6, dtype=np.float32)}, tmp_path / "t.safetensors")
    for array in (np.arange(6), np.memmap(tmp_path / "t.safetensors", mode="c")):
        before = array.copy()
        array[:] += 1
        release(array)
        np.testing.assert_array_equal(array, before + 1)


def test_mapped_tensors_equal_the_saved_ones(tmp_path):
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([1, 2], dtype=np.int64)}
    save_file(tensors, tmp_path / "t.safetensors")
    mapped = map_tensors(tmp_path / "t.safetensors")
    assert mapped.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(mapped[name], tensor)
        assert not mapped[name].flags.writeable


@pytest.mark.parametrize(
    "data", [b"", b"12345678", b"\xff" * 16, (2).to_bytes(8, "little") + b"[]", (7).to_bytes(8, "little") + b'{"a":1}']
)
def test_invalid_safetensors(tmp_path, data):
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(ModelError, match="safetensors"):
        map_tensors(tmp_path / "t")


def test_tensor_outside_the_file_is_rejected(tmp_path):
    header = json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (tmp_path / "t").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)
    with pytest.raises(ModelError, match="outside its data"):
        map_tensors(tmp_path / "t")
