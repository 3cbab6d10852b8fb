"""The packed BERT with its matrix products in 8 bits, for CPUs with AVX512-VNNI or AMX.

Weights are rounded to 255 levels per output, inputs to 256 levels whose range is fixed when the model is loaded, so a
vector does not depend on the other texts of its batch. Attention runs in bfloat16 if the CPU multiplies it, all other
steps in float32. Two measures keep the rounding errors small:

- Channels with large values are divided by a factor, and their weights are multiplied by it (SmoothQuant, Xiao et al.
  2023).
- The few channels between the feed-forward layers that reach the largest values have levels of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from ragembed.errors import ConfigError
from ragembed.languages import everyday_sentences
from ragembed.models.files import ModelFiles
from ragembed.models.packed_bert import PACKED_FOR, Attend, AttentionGroup, Layer, Norm, PackedBert, can_pack
from ragembed.models.tokenizer import TextTokenizer
from ragembed.models.torch_devices import fast_dtype

_LEVELS, _MOST_WEIGHT = 255, 127
_HEADROOM = 1.1  # range of the levels, relative to that of the sample
_SMOOTHING = 0.75  # exponent of the range of a channel in its factor
_WIDE = 16  # number of channels between the feed-forward layers that have levels of their own
_SENTENCES = 2  # number of sentences of each language in the sample
_SMALLEST = 1e-6


class _Levels(NamedTuple):
    """Levels 0 to 255 that stand for ``(level - zero) * step``, for a value multiplied by the factor of its channel.

    ``scale`` and ``offset``, shape ``(d,)``, map a value to its level plus one half, which is then cut off.
    """

    step: float
    zero: int
    scale: torch.Tensor
    offset: torch.Tensor

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """Round values, shape ``(n, d)``, to levels, uint8."""
        levels = torch.addcmul(self.offset, values, self.scale).clamp_(0, _LEVELS)
        return levels.to(torch.int16).to(torch.uint8)  # in two steps, because PyTorch has no fast direct conversion


class _Int8Linear(NamedTuple):
    """A linear layer; row i of its weight is rounded to multiples of ``steps[i]``."""

    weight: torch.Tensor  # packed by oneDNN
    steps: torch.Tensor
    zeros: torch.Tensor
    bias: torch.Tensor
    levels: _Levels  # of its input

    def product(self, levels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the product in ``dtype``."""
        return self._run(levels, None, (1.0, 0, dtype), "none")

    def gelu(self, levels: torch.Tensor, result: _Levels) -> torch.Tensor:
        """Return the GELU of the product, as levels of ``result``."""
        return self._run(levels, None, (result.step, result.zero, torch.uint8), "gelu")

    def sum(self, levels: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the product plus ``other``, float32."""
        return self._run(levels, other, (1.0, 0, torch.float32), "none")

    def _run(
        self, levels: torch.Tensor, other: torch.Tensor | None, result: tuple[float, int, torch.dtype], then: str
    ) -> torch.Tensor:
        inputs = levels, self.levels.step, self.levels.zero, self.weight, self.steps, self.zeros
        kernel: Any = torch.ops.onednn.qlinear_pointwise
        found: torch.Tensor
        if other is None:
            found = kernel(*inputs, self.bias, *result, then, [], "none")
        else:
            found = kernel.binary(*inputs, other, self.bias, *result, 1.0, 0, "add", 1.0, then, [], "none")
        return found


@dataclass(frozen=True, slots=True)
class _Int8Layer:
    query_key_value: _Int8Linear
    attention_output: _Int8Linear
    attention_norm: Norm
    feed_forward: tuple[tuple[_Int8Linear, _Int8Linear], ...]  # the parts with levels of their own
    output_norm: Norm
    attention_dtype: torch.dtype

    def __call__(self, states: torch.Tensor, attend: Attend) -> torch.Tensor:
        attended = attend(self.query_key_value.product(self.query_key_value.levels(states), self.attention_dtype))
        states = self.attention_norm(self.attention_output.sum(self.attention_output.levels(attended.float()), states))
        levels = self.feed_forward[0][0].levels(states)
        for intermediate, output in self.feed_forward:
            states = output.sum(intermediate.gelu(levels, output.levels), states)
        return self.output_norm(states)


class Int8Bert(PackedBert):
    """BERT on the CPU in 8 bits; ``files.folder`` must satisfy :func:`ragembed.models.bert_files.is_plain_bert`."""

    def __init__(self, files: ModelFiles) -> None:
        self._files = files
        super().__init__(files.folder, "float32")

    def __reduce__(self) -> tuple[type[PackedBert], tuple[Any, ...]]:
        """Load the model again in a copy, because packed weights cannot be copied."""
        return Int8Bert, (self._files,)

    def _load_layers(self) -> list[Layer]:
        """Return the layers, whose levels fit what the float32 model computes for a fixed sample of texts."""
        ids, lengths = _sample(self._files)
        attention_dtype: torch.dtype = getattr(torch, fast_dtype(("cpu",)))
        layers: list[Layer] = []
        with torch.inference_mode():
            words, places = self._rows(ids, lengths, 1)
            states, groups = self._norm(words + places), self._groups(lengths)
            for number in range(self.n_layers):
                layer, states = self._int8_layer(f"encoder.layer.{number}.", states, groups, attention_dtype)
                layers.append(layer)
        return layers

    def _int8_layer(
        self, name: str, states: torch.Tensor, groups: list[AttentionGroup], attention_dtype: torch.dtype
    ) -> tuple[_Int8Layer, torch.Tensor]:
        """Return a layer, and the token vectors of the sample after it."""
        attention = name + "attention."
        query_key_value = self._parameters(*(f"{attention}self.{part}" for part in ("query", "key", "value")))
        attention_output = self._parameters(attention + "output.dense")
        first, second = self._parameters(name + "intermediate.dense"), self._parameters(name + "output.dense")
        attention_norm = self._norm_of(attention + "output.LayerNorm", torch.float32)
        output_norm = self._norm_of(name + "output.LayerNorm", torch.float32)
        attended = self._attended(groups, functional.linear(states, *query_key_value))
        middle = attention_norm(functional.linear(attended, *attention_output) + states)
        inner = functional.gelu(functional.linear(middle, *first))
        layer = _Int8Layer(
            _linear(*query_key_value, _fitted(states, _factors(states, query_key_value[0]))),
            _linear(*attention_output, _fitted(attended)),
            attention_norm,
            _feed_forward(first, second, middle, inner),
            output_norm,
            attention_dtype,
        )
        return layer, output_norm(functional.linear(inner, *second) + middle)


def require_int8(device: str, plain: bool) -> None:
    """Raise :class:`ConfigError` if a model on ``device`` cannot run in 8 bits; ``plain`` is BERT or a relative."""
    if not device.startswith("cpu"):
        raise ConfigError(f"dtype is 'int8', but the device is {device!r}: choose device 'cpu' or dtype 'auto'")
    if not plain:
        raise ConfigError("dtype is 'int8', but the model is not a BERT or one of its relatives: choose dtype 'auto'")
    if not can_int8():
        raise ConfigError("dtype is 'int8', but PyTorch finds no AVX512-VNNI in this processor: choose dtype 'auto'")


def can_int8() -> bool:
    """Return whether PyTorch has fast kernels for 8 bits on this machine."""
    kernels: Any = torch.ops.onednn
    available = all(hasattr(kernels, name) for name in ("qlinear_prepack", "qlinear_pointwise"))
    return available and can_pack("float32") and torch.cpu._is_vnni_supported()


def _sample(files: ModelFiles) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the token ids of everyday texts in several languages, shape ``(texts, tokens)``, and their lengths."""
    tokenizer = TextTokenizer(files.tokenizer, files.folder)
    texts = [". ".join(sentences[:_SENTENCES]) for sentences in everyday_sentences().values()]
    room = tokenizer.max_tokens - tokenizer.special_tokens
    framed = [[*tokenizer.prefix, *ids[:room], *tokenizer.suffix] for ids in tokenizer.ids(texts)]
    lengths = np.array([len(ids) for ids in framed])
    padded = np.zeros((len(framed), lengths.max()), dtype=np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(framed)
    return padded, lengths


def _factors(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the factor of each input channel that moves large values into the weights, shape ``(d,)``."""
    largest = (values.abs().amax(dim=0).clamp_min(_SMALLEST) for values in (weight, inputs))
    factors = next(largest) ** (1 - _SMOOTHING) / next(largest) ** _SMOOTHING
    return factors / factors.mean()


def _fitted(values: torch.Tensor, factors: torch.Tensor | None = None) -> _Levels:
    """Return the levels for values of shape ``(n, d)``, each multiplied by the factor of its channel."""
    factors = torch.ones(values.shape[1]) if factors is None else factors
    least, most = (values * factors).aminmax()
    low, high = min(float(least), 0.0) * _HEADROOM, max(float(most), _SMALLEST) * _HEADROOM
    step = (high - low) / _LEVELS
    zero = round(-low / step)
    return _Levels(step, zero, factors / step, torch.full_like(factors, zero + 0.5))


def _linear(weight: torch.Tensor, bias: torch.Tensor, levels: _Levels) -> _Int8Linear:
    """Return a linear layer in 8 bits for inputs in ``levels``."""
    scaled = weight / (levels.scale * levels.step)
    steps = scaled.abs().amax(dim=1).clamp_min(_SMALLEST) / _MOST_WEIGHT
    rounded = (scaled / steps[:, None]).round().to(torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(rounded, [PACKED_FOR, weight.shape[1]])
    return _Int8Linear(packed, steps, torch.zeros(len(weight), dtype=torch.int64), bias, levels)


def _feed_forward(
    first: tuple[torch.Tensor, torch.Tensor],
    second: tuple[torch.Tensor, torch.Tensor],
    inputs: torch.Tensor,
    inner: torch.Tensor,
) -> tuple[tuple[_Int8Linear, _Int8Linear], ...]:
    """Return the feed-forward layers in two parts, the first with the channels of ``inner`` that reach furthest."""
    levels = _fitted(inputs, _factors(inputs, first[0]))
    order = inner.amax(dim=0).argsort(descending=True, stable=True)
    wide = min(_WIDE, len(order) // 2)
    bias, parts = second[1], []
    for channels in (order[:wide], order[wide:]):
        intermediate = _linear(first[0][channels], first[1][channels], levels)
        parts.append((intermediate, _linear(second[0][:, channels], bias, _fitted(inner[:, channels]))))
        bias = torch.zeros_like(bias)  # the sum of the parts needs it once
    return tuple(parts)
