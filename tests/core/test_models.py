import hashlib
import json
import os
import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed import files as file_access
from ragembed.config.settings import DEFAULT_MODEL
from ragembed.errors import ModelError, RagembedError
from ragembed.models import files
from ragembed.models.files import find_model
from ragembed.models.numpy_bert import NumpyBert
from ragembed.models.tokenizer import TextTokenizer
from ragembed.models.transformers_model import TransformersModel


@pytest.mark.usefixtures("needs_minilm")
def test_default_model_has_the_published_hash():
    found = find_model(DEFAULT_MODEL)
    assert hashlib.sha256((found.folder / "model.safetensors").read_bytes()).hexdigest() == files.DEFAULT_MODEL_SHA256


@pytest.mark.usefixtures("needs_minilm")
def test_changed_default_model_is_rejected(monkeypatch):
    monkeypatch.setattr(files, "DEFAULT_MODEL_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="damaged or was changed, reinstall"):
        find_model(DEFAULT_MODEL)


def test_folder_without_safetensors(tmp_path):
    with pytest.raises(ModelError, match="expected safetensors weights"):
        find_model(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pytorch_model.bin", r"pytorch_model.bin is in PyTorch's pickle.*\(FOLDER_OR_ID\)\.save\(NEW_FOLDER\)$"),
        ("onnx/model.onnx", "onnx/model.onnx is in ONNX: get the version of the model with model.safetensors"),
        ("model.gguf", "model.gguf is in GGUF: serve it, and give the address"),
    ],
)
def test_weights_in_other_formats_are_refused_by_name(tmp_path, name, message):
    for file in {name, "onnx/model.onnx"}:  # the remedy that keeps the model comes first
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(b"")
    with pytest.raises(ModelError, match=message):
        find_model(str(tmp_path))


@pytest.mark.parametrize("module", ["CLIPModel", "WordEmbeddings"])
def test_first_modules_that_are_not_computed_are_named(tmp_path, module):
    rows = [{"idx": 0, "name": "0", "path": f"0_{module}", "type": f"sentence_transformers.models.{module}"}]
    (tmp_path / "modules.json").write_text(json.dumps(rows))
    with pytest.raises(ModelError, match=rf"begins with the module 'sentence_transformers.models.{module}'.*choose a"):
        find_model(str(tmp_path))


def test_revision_of_a_folder_is_refused(tiny_model):
    with pytest.raises(ModelError, match="a revision needs a Hugging Face model id"):
        find_model(str(tiny_model), revision="main")


@pytest.mark.parametrize("name", ["no/such-model", "not a model id!"])
def test_unknown_model(name):
    with pytest.raises(ModelError, match=name):
        find_model(name)


def test_large_file_is_hashed_once_per_version(tmp_path, monkeypatch):
    monkeypatch.setattr(file_access, "_REMEMBERED_BYTES", 3)
    file = tmp_path / "file"
    file.write_bytes(b"one")
    read = []
    original = file_access.read_sha256
    monkeypatch.setattr(file_access, "read_sha256", lambda path: (read.append(path), original(path))[1])
    first = file_access.file_sha256(file)
    assert file_access.file_sha256(file) == first == hashlib.sha256(b"one").hexdigest()
    assert len(read) == 1
    file.write_bytes(b"other")
    assert file_access.file_sha256(file) == hashlib.sha256(b"other").hexdigest()


def test_unusable_cache_is_ignored(tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the cache folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(file_access, "_REMEMBERED_BYTES", 3)
    (tmp_path / "file").write_bytes(b"one")
    assert file_access.file_sha256(tmp_path / "file") == hashlib.sha256(b"one").hexdigest()


def test_tokenizer_frames_and_limits(tiny_model):
    tokenizer = TextTokenizer(tiny_model)
    assert (tokenizer.prefix, tokenizer.suffix, tokenizer.special_tokens) == ([2], [3], 2)
    assert tokenizer.max_tokens == 64
    text = "the cat sleeps"
    assert [text[start:end] for start, end in tokenizer.offsets([text])[0]] == ["the", "cat", "sleeps"]
    assert tokenizer.ids(["the " * 500]).lengths.tolist() == [500]


def test_models_with_position_offset(tiny_model, tmp_path):
    shutil.copytree(tiny_model, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    changed = {**config, "model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 514}
    (tmp_path / "model" / "config.json").write_text(json.dumps(changed))
    assert TextTokenizer(tmp_path / "model").max_tokens == 512


def test_hash_covers_the_vocabulary_of_a_slow_tokenizer(tiny_model, tmp_path):
    shutil.copytree(tiny_model, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    (tmp_path / "model" / "vocab.txt").write_text("a")
    first = find_model(str(tmp_path / "model")).sha256
    (tmp_path / "model" / "vocab.txt").write_text("b")
    assert find_model(str(tmp_path / "model")).sha256 != first


def change_json(file, **fields):
    stored = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**stored, **fields}))


@pytest.fixture
def copy(tiny_model, tmp_path):
    return Path(shutil.copytree(tiny_model, tmp_path / "copy"))


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        (
            "config.json",
            {"auto_map": {"AutoModel": "modeling_bert.JinaBertModel"}},
            "needs code of its own .*--trust-remote-code",
        ),
        (
            "config.json",
            {"model_type": "nomic_bert", "auto_map": {"AutoModel": "a--b.NomicBertModel"}, "num_experts": 8},
            "needs code of its own",
        ),
        ("config.json", {"architectures": ["BertForSequenceClassification"]}, "cross-encoder.*--rerank"),
        ("config.json", {"architectures": ["HF_ColBERT"]}, "multi-vector model"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "sparse encoder"),
        ("config_sentence_transformers.json", {"model_type": "CrossEncoder"}, "cross-encoder"),
    ],
)
def test_other_kinds_of_models_are_refused(copy, file, fields, message):
    change_json(copy / file, **fields)
    with pytest.raises(ModelError, match=message):
        Embedder(EmbedderConfig(model=str(copy))).fit(["the cat sleeps"])


def test_sparse_modules_are_refused(copy):
    modules = [
        {"type": f"sentence_transformers.sparse_encoder.models.{name}"} for name in ("MLMTransformer", "SpladePooling")
    ]
    (copy / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="sparse encoder"):
        Embedder(EmbedderConfig(model=str(copy))).fit(["the cat sleeps"])


@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer_config.json", "modules.json", "config_sentence_transformers.json"]
)
def test_every_file_of_the_package_counts(copy, tiny_model, file):
    if file == "modules.json":
        (copy / file).write_text('[{"type": "sentence_transformers.models.Transformer"}]')
    else:
        change_json(copy / file, added=1)
    assert find_model(str(copy)).sha256 != find_model(str(tiny_model)).sha256


@pytest.mark.parametrize(("stated", "window"), [(32, 32), (10**30, 64), (1000, 64)])
def test_window_of_the_tokenizer_configuration(copy, stated, window):
    change_json(copy / "tokenizer_config.json", model_max_length=stated)
    assert TextTokenizer(copy).max_tokens == window


@pytest.mark.parametrize("stated", [24, 48])
def test_a_text_that_fills_the_window_of_the_package_is_not_divided(copy, stated):
    change_json(copy / "tokenizer_config.json", model_max_length=32)
    change_json(copy / "sentence_bert_config.json", max_seq_length=stated)
    embedder = Embedder(EmbedderConfig(model=str(copy), dtype="float32")).fit(["the cat"])
    assert embedder.max_tokens == stated
    forward = embedder.extractor.model.forward("documents")
    words = ["the"] * (stated - 2)
    assert [forward.tokens([" ".join(words + more)]) for more in ([], ["the"])] == [stated, stated + 3]


def change_weights(folder, change):
    from safetensors.numpy import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def drop(weights):
    del weights["encoder.layer.1.output.dense.weight"]


def add(weights):
    weights["encoder.layer.1.output.gate.weight"] = weights["encoder.layer.1.output.dense.weight"]


def rename(weights):
    for name in [name for name in weights if "LayerNorm" in name]:
        weights[name.replace("weight", "gamma").replace("bias", "beta")] = weights.pop(name)


@pytest.mark.parametrize("load", [NumpyBert, lambda folder: TransformersModel(folder, "float32", "cpu")])
@pytest.mark.parametrize(("change", "message"), [(drop, "is missing"), (add, "is unknown")])
def test_weights_that_do_not_match_are_refused(copy, load, change, message):
    change_weights(copy, change)
    with pytest.raises(ModelError, match=message):
        load(copy)


def test_mismatched_shape_is_refused(copy):
    change_weights(copy, lambda weights: weights.update({"encoder.layer.0.output.dense.bias": np.zeros(5, np.float32)}))
    with pytest.raises(ModelError, match="cannot be loaded"):
        TransformersModel(copy, "float32", "cpu")


def test_names_of_old_checkpoints_are_known(copy, tiny_model):
    change_weights(copy, rename)
    ids, lengths = np.array([[2, 9, 10, 3]]), np.array([4])
    expected = NumpyBert(tiny_model).states(ids, lengths, (2,))[0]
    np.testing.assert_array_equal(NumpyBert(copy).states(ids, lengths, (2,))[0], expected)


@pytest.mark.skipif(os.name == "nt", reason="needs pipes")
@pytest.mark.parametrize("kind", ["pipe", "large", "deep"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "modules.json", "model.safetensors"])
def test_files_of_a_model_are_regular_files_within_a_limit(copy, name, kind):
    file = copy / name
    file.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.write_text("[" * 100_000 if kind == "deep" else "{}")
        os.truncate(file, 300 << 20 if kind == "large" and file.suffix == ".json" else file.stat().st_size)
    missing = (name, kind) == ("modules.json", "pipe")  # as if it did not exist
    with nullcontext() if missing else pytest.raises(RagembedError, match=re.escape(str(copy))):
        Embedder(EmbedderConfig(model=str(copy))).fit(["the cat sleeps"])


def test_links_to_the_files_of_a_model_are_followed(tmp_path, tiny_model):
    for file in Path(tiny_model).iterdir():
        (tmp_path / file.name).symlink_to(file)
    assert find_model(str(tmp_path)).sha256 == find_model(str(tiny_model)).sha256
