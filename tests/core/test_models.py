import hashlib
import json
import shutil

import pytest

from ragembed import hashing
from ragembed.config.settings import DEFAULT_MODEL
from ragembed.errors import ModelError
from ragembed.models import files
from ragembed.models.files import find_model
from ragembed.models.tokenizer import TextTokenizer


@pytest.mark.usefixtures("needs_minilm")
def test_default_model_has_the_published_hash():
    found = find_model(DEFAULT_MODEL)
    assert hashlib.sha256((found.folder / "model.safetensors").read_bytes()).hexdigest() == files.DEFAULT_MODEL_SHA256


@pytest.mark.usefixtures("needs_minilm")
def test_changed_default_model_is_rejected(monkeypatch):
    monkeypatch.setattr(files, "DEFAULT_MODEL_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="damaged or was changed, reinstall"):
        find_model(DEFAULT_MODEL)


def test_hash_covers_weights_configuration_and_tokenizer(tiny_model, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(tiny_model, copy)
    assert find_model(str(copy)).sha256 == find_model(str(tiny_model)).sha256
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-3}))
    assert find_model(str(copy)).sha256 != find_model(str(tiny_model)).sha256


def test_folder_without_safetensors(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="expected safetensors weights"):
        find_model(str(tmp_path))


@pytest.mark.parametrize("name", ["no/such-model", "not a model id!"])
def test_unknown_model(name):
    with pytest.raises(ModelError, match=name):
        find_model(name)


def test_large_file_is_hashed_once_per_version(tmp_path, monkeypatch):
    monkeypatch.setattr(hashing, "_REMEMBERED_BYTES", 3)
    file = tmp_path / "file"
    file.write_bytes(b"one")
    read = []
    original = hashing.read_sha256
    monkeypatch.setattr(hashing, "read_sha256", lambda path: (read.append(path), original(path))[1])
    first = hashing.file_sha256(file)
    assert hashing.file_sha256(file) == first == hashlib.sha256(b"one").hexdigest()
    assert len(read) == 1
    file.write_bytes(b"other")
    assert hashing.file_sha256(file) == hashlib.sha256(b"other").hexdigest()


def test_unusable_cache_is_ignored(tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the cache folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(hashing, "_REMEMBERED_BYTES", 3)
    (tmp_path / "file").write_bytes(b"one")
    assert hashing.file_sha256(tmp_path / "file") == hashlib.sha256(b"one").hexdigest()


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
