"""The files of a plain BERT: check whether ragembed computes a model itself, and read its tensors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ModelError
from ragembed.tensor_map import map_tensors, release
from ragembed.types import Floats

WORDS = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"
TYPES = "embeddings.token_type_embeddings.weight"

_WEIGHTS = "model.safetensors"
_PREFIX = "bert."
_POSITION_IDS = "embeddings.position_ids"
_LAYERS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
"""The layers of a block."""


@dataclass(frozen=True, slots=True)
class BertShape:
    """Dimension, number of blocks, number of attention heads, and the epsilon of layer normalisation."""

    dim: int
    n_layers: int
    heads: int
    epsilon: float


def _parts(layer: str) -> tuple[str, str]:
    return f"{layer}.weight", f"{layer}.bias"


def _current_name(name: str) -> str:
    """Return the current name of a tensor; checkpoints converted from TensorFlow call the parts of a norm otherwise."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


class BertTensors:
    """The tensors of the model in ``folder``, which must satisfy :func:`is_plain_bert`, read on demand."""

    def __init__(self, folder: Path) -> None:
        config = _read_config(folder)
        self.shape = BertShape(
            int(config["hidden_size"]),
            int(config["num_hidden_layers"]),
            int(config["num_attention_heads"]),
            float(config.get("layer_norm_eps", 1e-12)),
        )
        self._tensors = {_current_name(name): tensor for name, tensor in map_tensors(folder / _WEIGHTS).items()}
        self._prefix = _PREFIX if any(name.startswith(_PREFIX) for name in self._tensors) else ""
        self._check(folder)

    def _check(self, folder: Path) -> None:
        """Raise :class:`ModelError` for missing tensors, and for unknown ones in the embeddings and the blocks."""
        expected = {WORDS, POSITIONS, TYPES, *_parts("embeddings.LayerNorm")}
        for block in range(self.shape.n_layers):
            expected |= {name for layer in _LAYERS for name in _parts(f"encoder.layer.{block}.{layer}")}
        found = {
            name.removeprefix(self._prefix)
            for name in self._tensors
            if name.startswith((self._prefix + "embeddings.", self._prefix + "encoder."))
        }
        missing, unknown = sorted(expected - found), sorted(found - expected - {_POSITION_IDS})
        if missing or unknown:
            name, what = (missing[0], "is missing") if missing else (unknown[0], "is unknown")
            raise ModelError(
                f"the weights in {folder} are not those of a BERT: {name} {what} ({len(missing)} missing, "
                f"{len(unknown)} unknown); get the model again, or choose one that transformers supports"
            )

    def tensor(self, name: str) -> Floats:
        """Return a tensor as float32; a tensor that is float32 in the file is a read-only view."""
        return np.asarray(self.stored(name), dtype=np.float32)

    def stored(self, name: str) -> NDArray[Any]:
        """Return a read-only view of a tensor, with its type in the file."""
        return self._tensors[self._prefix + name]

    def release(self) -> None:
        """Free the memory of the mapped file; the next use reads it again."""
        release(self.stored(WORDS))


def is_plain_bert(folder: Path) -> bool:
    """Return whether the model in ``folder`` is a float32 BERT with exact (erf) GELU and absolute positions."""
    if not (folder / _WEIGHTS).is_file():
        return False
    config = _read_config(folder)
    plain = (
        config.get("model_type") == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder", False)
    )
    if not plain:
        return False
    tensors = map_tensors(folder / _WEIGHTS)
    return any(name in (WORDS, _PREFIX + WORDS) and tensor.dtype == np.float32 for name, tensor in tensors.items())


def _read_config(folder: Path) -> dict[str, Any]:
    """Return the fields of ``config.json``."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config
