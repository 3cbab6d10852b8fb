"""The files of BERT and its relatives: check whether ragembed computes a model itself, and read its tensors.

The relatives differ in the names of tensors, in the numbers of positions, and in whether there are token types. MPNet
adds a learned bias to the attention scores that depends on the distance of two tokens (Song et al. 2020).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ModelError
from ragembed.models.packaging import read_json
from ragembed.tensor_map import map_tensors, release
from ragembed.types import Floats

WORDS = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"

_TYPES = "embeddings.token_type_embeddings.weight"
_DISTANCES = "encoder.relative_attention_bias.weight"
_WEIGHTS = "model.safetensors"
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
_MOST_DISTANCE = 128  # MPNet does not distinguish larger distances


@dataclass(frozen=True, slots=True)
class _Kind:
    """A model type: the prefix of its tensors, whether it has token types, and parts of names with BERT's own names."""

    prefix: str
    types: bool = True
    padded_positions: bool = False
    names: tuple[tuple[str, str], ...] = ()
    config: Mapping[str, str] | None = None


_ROBERTA = _Kind("roberta.", padded_positions=True)
_KINDS: Mapping[str, _Kind] = {
    "bert": _Kind("bert."),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": _Kind(
        "distilbert.",
        types=False,
        names=(
            ("transformer.layer.", "encoder.layer."),
            ("attention.q_lin", "attention.self.query"),
            ("attention.k_lin", "attention.self.key"),
            ("attention.v_lin", "attention.self.value"),
            ("attention.out_lin", "attention.output.dense"),
            ("sa_layer_norm", "attention.output.LayerNorm"),
            ("ffn.lin1", "intermediate.dense"),
            ("ffn.lin2", "output.dense"),
            ("output_layer_norm", "output.LayerNorm"),
        ),
        config={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "hidden_act": "activation",
        },
    ),
    "mpnet": _Kind(
        "mpnet.",
        types=False,
        padded_positions=True,
        names=(
            ("attention.attn.q.", "attention.self.query."),
            ("attention.attn.k.", "attention.self.key."),
            ("attention.attn.v.", "attention.self.value."),
            ("attention.attn.o.", "attention.output.dense."),
            ("attention.LayerNorm", "attention.output.LayerNorm"),
        ),
    ),
}
"""The model types that ragembed computes itself."""
_MPNET_PADDING = 1  # whatever the configuration says


@dataclass(frozen=True, slots=True)
class BertShape:
    """Dimension, number of blocks, number of attention heads, and the epsilon of layer normalisation."""

    dim: int
    n_layers: int
    heads: int
    epsilon: float


def _parts(layer: str) -> tuple[str, str]:
    return f"{layer}.weight", f"{layer}.bias"


def _current_name(name: str, kind: _Kind) -> str:
    """Return BERT's name of a tensor; checkpoints converted from TensorFlow call the parts of a norm otherwise."""
    for old, new in (*kind.names, ("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        name = name.replace(old, new)
    return name


class BertTensors:
    """The tensors of the model in ``folder``, which must satisfy :func:`is_plain_bert`, read on demand."""

    def __init__(self, folder: Path) -> None:
        config = _read_config(folder)
        self._kind = kind = _KINDS[str(config["model_type"])]
        self.shape = BertShape(
            int(config["hidden_size"]),
            int(config["num_hidden_layers"]),
            int(config["num_attention_heads"]),
            float(config.get("layer_norm_eps", 1e-12)),
        )
        self._has_distances = kind.prefix == "mpnet."
        padding = _MPNET_PADDING if self._has_distances else int(config.get("pad_token_id") or 0)
        self._padding = padding if kind.padded_positions else None
        self._tensors = {_current_name(name, kind): tensor for name, tensor in map_tensors(folder / _WEIGHTS).items()}
        self._prefix = kind.prefix if any(name.startswith(kind.prefix) for name in self._tensors) else ""
        self._check(folder)

    def _check(self, folder: Path) -> None:
        """Raise :class:`ModelError` for missing tensors, and for unknown ones in the embeddings and the blocks."""
        expected = {WORDS, POSITIONS, *_parts("embeddings.LayerNorm")}
        expected |= {_TYPES} if self._kind.types else set()
        expected |= {_DISTANCES} if self._has_distances else set()
        for block in range(self.shape.n_layers):
            expected |= {name for layer in _LAYERS for name in _parts(f"encoder.layer.{block}.{layer}")}
        present = {
            name.removeprefix(self._prefix)
            for name in self._tensors
            if name.startswith((self._prefix + "embeddings.", self._prefix + "encoder."))
        }
        missing, unknown = sorted(expected - present), sorted(present - expected - {_POSITION_IDS})
        if missing or unknown:
            name, what = (missing[0], "is missing") if missing else (unknown[0], "is unknown")
            raise ModelError(
                f"the weights in {folder} do not match its config.json: {name} {what} ({len(missing)} missing, "
                f"{len(unknown)} unknown); get the model again, or choose one that transformers supports"
            )

    def tensor(self, name: str) -> Floats:
        """Return a tensor as float32; a tensor that is float32 in the file is a read-only view."""
        return np.asarray(self.stored(name), dtype=np.float32)

    def stored(self, name: str) -> NDArray[Any]:
        """Return a read-only view of a tensor, with its type in the file."""
        return self._tensors[self._prefix + name]

    def positions(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each token in the table of positions, with the shape of ``ids``, ``(texts, tokens)``."""
        if self._padding is None:
            return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        real = ids != self._padding
        return np.asarray(np.cumsum(real, axis=1) * real + self._padding)

    def type_vector(self) -> Floats:
        """Return the vector that is added to each token for its type, float32, shape ``(d,)``."""
        return self.tensor(_TYPES)[0] if self._kind.types else np.zeros(self.shape.dim, dtype=np.float32)

    def distance_bias(self, width: int) -> Floats | None:
        """Return what the distance of two tokens adds to their attention score, shape ``(heads, width, width)``.

        The first axis of tokens is that of the query. None if distances add nothing.
        """
        if not self._has_distances:
            return None
        table = self.tensor(_DISTANCES)  # (buckets, heads)
        half = len(table) // 2
        exact = half // 2
        away = np.arange(width)[:, None] - np.arange(width)
        size = np.abs(away)
        scale = (half - exact) / math.log(_MOST_DISTANCE / exact)
        far = exact + (np.log(np.maximum(size, 1) / np.float32(exact)).astype(np.float32) * np.float32(scale)).astype(
            int
        )
        bucket = np.where(size < exact, size, np.minimum(far, half - 1)) + half * (away < 0)
        return np.ascontiguousarray(table[bucket].transpose(2, 0, 1))

    def release(self) -> None:
        """Free the memory of the mapped file; the next use reads it again."""
        release(self.stored(WORDS))


def is_plain_bert(folder: Path) -> bool:
    """Return whether ragembed computes the model in ``folder`` itself.

    It must be a BERT, RoBERTa, XLM-R, CamemBERT, DistilBERT or MPNet in float32, with exact (erf) GELU and absolute
    positions.
    """
    if not (folder / _WEIGHTS).is_file():
        return False
    config = _read_config(folder)
    kind = _KINDS.get(str(config.get("model_type")))
    plain = (
        kind is not None
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder", False)
    )
    if kind is None or not plain:
        return False
    tensors = map_tensors(folder / _WEIGHTS)
    return any(name in (WORDS, kind.prefix + WORDS) and tensor.dtype == np.float32 for name, tensor in tensors.items())


def _read_config(folder: Path) -> dict[str, Any]:
    """Return the fields of ``config.json``, under BERT's names."""
    config = read_json(folder / "config.json")
    kind = _KINDS.get(str(config.get("model_type")))
    named = {} if kind is None or kind.config is None else kind.config
    return {**config, **{new: config[old] for new, old in named.items() if old in config}}
