"""The forward pass of BERT in PyTorch on a CPU: no computation for padding, and few passes over memory.

The token vectors of all texts form one matrix without gaps. Query, key and value are one product. The kernel of the
product (oneDNN with post-operations) also applies GELU and adds the residual; its weights are packed once. Texts of
similar length share one attention product. Equations follow Devlin et al. 2019, as in
:mod:`ragembed.models.numpy_bert`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from ragembed.config.specs import WORD_EMBEDDINGS
from ragembed.models.bert_files import POSITIONS, WORDS, BertTensors
from ragembed.types import Floats

PACKED_FOR = 2048  # number of rows that the weights are packed for; other numbers work too
# oneDNN keeps a plan for each size, so the rows of a matrix and the tokens of a text are rounded up to these multiples.
_ROWS, _WIDTH_STEP = 128, 16
_SCORES = 1 << 17  # attention scores per head computed at a time; they fit in the cache
_X86 = ("x86_64", "amd64")
_LEAST_SUM, _MOST_SUM = 1e-30, 1e30  # range of a token's sum of weights that is exact enough without a shift


class _Linear(NamedTuple):
    weight: torch.Tensor  # packed by oneDNN
    bias: torch.Tensor


class Norm(NamedTuple):
    """A layer normalisation."""

    weight: torch.Tensor
    bias: torch.Tensor
    epsilon: float

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Normalise each row."""
        return functional.layer_norm(states, self.weight.shape, self.weight, self.bias, self.epsilon)


Attend: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Queries, keys and values, shape ``(tokens, 3 d)``, to the output of the attention, shape ``(tokens, d)``."""
Layer: TypeAlias = Callable[[torch.Tensor, Attend], torch.Tensor]
"""The token vectors before a layer, shape ``(tokens, d)``, to those after it."""


@dataclass(frozen=True, slots=True)
class _EncoderLayer:
    query_key_value: _Linear
    attention_output: _Linear
    attention_norm: Norm
    intermediate: _Linear
    output: _Linear
    output_norm: Norm

    def __call__(self, states: torch.Tensor, attend: Attend) -> torch.Tensor:
        attended = attend(_product(states, self.query_key_value))
        states = self.attention_norm(_sum(attended, self.attention_output, states))
        inner = _product(states, self.intermediate, "gelu")
        return self.output_norm(_sum(inner, self.output, states))


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Texts whose attention is computed together, each padded to ``width`` tokens."""

    rows: torch.Tensor  # (texts, width), in the matrix of all tokens; padding has the row of the first token
    real: torch.Tensor  # (texts, width), whether an entry of rows is a token
    tokens: torch.Tensor  # (n,), the rows of the tokens
    places: torch.Tensor  # (n,), their positions in the flattened group


class PackedBert:
    """BERT on the CPU; ``folder`` must satisfy :func:`ragembed.models.bert_files.is_plain_bert`.

    ``dtype`` is ``"float32"`` or ``"bfloat16"`` and must satisfy :func:`can_pack`.
    """

    def __init__(self, folder: Path, dtype: str) -> None:
        self._arguments = folder, dtype
        self._tensors = BertTensors(folder)
        self._shape = self._tensors.shape
        self._dtype: torch.dtype = getattr(torch, dtype)
        self.dim = self._shape.dim
        self.n_layers = self._shape.n_layers
        self._places = torch.from_numpy(self._tensors.tensor(POSITIONS) + self._tensors.type_vector())
        self._norm = self._norm_of("embeddings.LayerNorm", torch.float32)
        self._layers: list[Layer] = self._load_layers()
        self._tensors.release()  # all tensors but the word embeddings have been copied

    def __reduce__(self) -> tuple[type[PackedBert], tuple[Any, ...]]:
        """Load the model again in a copy, because packed weights cannot be copied."""
        return PackedBert, self._arguments

    def states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Return the hidden states of ``layers``; see :meth:`ragembed.models.protocol.Backbone.states`."""
        present = np.arange(ids.shape[1]) < lengths[:, None]
        tokens = int(lengths.sum())
        found = {}
        with torch.inference_mode():
            words, places = self._rows(ids, lengths)
            for layer, states in self._states(words, places, self._groups(lengths), max(layers)):
                if layer in layers:
                    padded = torch.zeros((*ids.shape, self.dim))
                    padded[torch.from_numpy(present)] = states[:tokens].float()
                    found[layer] = padded.numpy()
        return [found[layer] for layer in layers]

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table; see :meth:`ragembed.models.protocol.Backbone.word_embeddings`."""
        return self._tensors.tensor(WORDS)

    def _rows(
        self, ids: NDArray[np.int64], lengths: NDArray[np.int64], multiple: int = _ROWS
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the word and position embeddings of all tokens, shape ``(tokens, d)`` rounded up to ``multiple``."""
        present = np.arange(ids.shape[1]) < lengths[:, None]
        filling = np.zeros(-int(lengths.sum()) % multiple, dtype=np.int64)
        words = self._tensors.stored(WORDS)[np.concatenate([ids[present], filling])]
        places = np.concatenate([self._tensors.positions(ids)[present], filling])
        return torch.from_numpy(words), self._places[torch.from_numpy(places)]

    def _states(
        self, words: torch.Tensor, places: torch.Tensor, groups: Sequence[AttentionGroup], last: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield each layer up to ``last`` with its token vectors, shape ``(tokens, d)``."""
        yield WORD_EMBEDDINGS, words
        states = self._norm(words + places).to(self._dtype)
        yield 0, states
        attend = partial(self._attended, groups)
        for number, layer in enumerate(self._layers[: max(last, 0)], start=1):
            states = layer(states, attend)
            yield number, states

    def _attended(self, groups: Sequence[AttentionGroup], query_key_value: torch.Tensor) -> torch.Tensor:
        """Return the output of the attention, shape ``(tokens, d)``, for inputs of shape ``(tokens, 3 d)``."""
        heads = self._shape.heads
        mixed = query_key_value.new_zeros(len(query_key_value), self.dim)
        for group in groups:
            of_group = query_key_value.index_select(0, group.rows.view(-1))
            of_group = of_group.view(*group.rows.shape, 3, heads, self.dim // heads)
            bias = self._tensors.distance_bias(group.rows.shape[1])
            distances = None if bias is None else torch.from_numpy(bias).to(mixed.dtype)
            attended = _attention(of_group, group.real.to(mixed.dtype), distances).reshape(-1, self.dim)
            mixed.index_copy_(0, group.tokens, attended.index_select(0, group.places))
        return mixed

    def _groups(self, lengths: NDArray[np.int64]) -> list[AttentionGroup]:
        """Return groups of texts with the same padded width, small enough for the cache."""
        starts = np.cumsum(lengths) - lengths
        widths = -(-lengths // _WIDTH_STEP) * _WIDTH_STEP
        groups = []
        for width in np.unique(widths).tolist():
            members = np.flatnonzero(widths == width)
            most = max(1, _SCORES // width**2)
            for first in range(0, len(members), most):
                texts = members[first : first + most]
                real = np.arange(width) < lengths[texts, None]
                rows = np.where(real, starts[texts, None] + np.arange(width), starts[texts, None])
                parts = (rows, real, rows[real], np.flatnonzero(real))
                groups.append(AttentionGroup(*map(torch.from_numpy, parts)))
        return groups

    def _load_layers(self) -> list[Layer]:
        return [self._layer(f"encoder.layer.{i}.") for i in range(self.n_layers)]

    def _layer(self, name: str) -> _EncoderLayer:
        attention = name + "attention."
        return _EncoderLayer(
            self._linear_of(*(f"{attention}self.{part}" for part in ("query", "key", "value"))),
            self._linear_of(attention + "output.dense"),
            self._norm_of(attention + "output.LayerNorm", self._dtype),
            self._linear_of(name + "intermediate.dense"),
            self._linear_of(name + "output.dense"),
            self._norm_of(name + "output.LayerNorm", self._dtype),
        )

    def _linear_of(self, *names: str) -> _Linear:
        """Return several linear layers with the same input as one."""
        weight, bias = (part.to(self._dtype) for part in self._parameters(*names))
        return _Linear(torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR), bias)

    def _norm_of(self, name: str, dtype: torch.dtype) -> Norm:
        weight, bias = (part.to(dtype) for part in self._parameters(name))
        return Norm(weight, bias, self._shape.epsilon)

    def _parameters(self, *names: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies of the weights and the biases of several layers with the same input, in float32."""
        parts = ([self._tensors.tensor(f"{name}.{part}") for name in names] for part in ("weight", "bias"))
        weight, bias = (torch.from_numpy(np.concatenate(part)) for part in parts)
        return weight, bias


def _attention(
    query_key_value: torch.Tensor, real: torch.Tensor, distances: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the output of the attention, shape ``(texts, tokens, heads, d)``.

    ``query_key_value`` has shape ``(texts, tokens, 3, heads, d)``. ``real``, shape ``(texts, tokens)``, is 1 for a
    token and 0 for padding, which gets no weight. ``distances``, shape ``(heads, tokens, tokens)``, is added to the
    scores.
    """
    texts, tokens, _, heads, dim = query_key_value.shape
    parts = query_key_value.permute(2, 0, 3, 1, 4)  # (3, texts, heads, tokens, d)
    query, key = (part.reshape(texts * heads, tokens, dim) for part in parts[:2])
    query = query * dim**-0.5
    # A column of ones among the values gives the sum of the weights in the same product.
    values = torch.cat([parts[2], query.new_ones(texts, heads, tokens, 1)], dim=-1) * real[:, None, :, None]
    values = values.view(texts * heads, tokens, dim + 1)

    def scores() -> torch.Tensor:
        products = torch.bmm(query, key.transpose(1, 2))
        if distances is not None:
            products.view(texts, heads, tokens, tokens).add_(distances)
        return products

    sums = torch.bmm(scores().exp_(), values)
    if not _LEAST_SUM < sums[..., dim].min() <= sums[..., dim].max() < _MOST_SUM:
        large = scores()
        sums = torch.bmm(large.sub_(large.amax(dim=-1, keepdim=True)).exp_(), values)
    mixed = sums[..., :dim] / sums[..., dim:]
    return mixed.view(texts, heads, tokens, dim).transpose(1, 2)


def can_pack(dtype: str) -> bool:
    """Return whether PyTorch has the kernels for ``dtype`` on this machine: oneDNN on an x86 CPU."""
    onednn: Any = torch.backends.mkldnn
    if platform.machine().lower() not in _X86 or not (onednn.is_available() and onednn.enabled):
        return False
    kernels: Any = torch.ops.mkldnn
    available = all(hasattr(kernels, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    return available and (dtype != "bfloat16" or bool(kernels._is_mkldnn_bf16_supported()))


def _product(states: torch.Tensor, linear: _Linear, then: str = "none") -> torch.Tensor:
    """Apply a linear layer, followed by the activation ``then``."""
    result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, linear.weight, linear.bias, then, [], "none")
    return result


def _sum(states: torch.Tensor, linear: _Linear, other: torch.Tensor) -> torch.Tensor:
    """Apply a linear layer and add ``other``."""
    result: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(states, other, linear.weight, linear.bias, "add")
    return result
