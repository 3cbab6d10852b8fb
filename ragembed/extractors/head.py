"""The modules of a model after the pooling, as its sentence-transformers package lists them.

They map the vector of a text: ``Dense`` is ``f(x W^T + b)`` with an activation ``f``, ``LayerNorm`` is ``(x - mean) /
sqrt(var + 1e-5) * g + b``, and ``Normalize`` scales to length 1. A head may finally keep the leading dimensions only
(Kusupati et al. 2022, Matryoshka representations).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError, ModelError
from ragembed.extractors.protocol import TokenParts
from ragembed.models.files import weight_files
from ragembed.models.packaging import Module
from ragembed.postprocess.protocol import Parts
from ragembed.postprocess.steps import Normalize
from ragembed.tensor_map import map_tensors
from ragembed.types import Doubles, Floats

_EPSILON = 1e-5  # of torch.nn.LayerNorm
_SMALL = 1e-12

_erf: Callable[[Doubles], Doubles] = np.vectorize(math.erf, otypes=[np.float64])
_ACTIVATIONS: Mapping[str, Callable[[Doubles], Doubles]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0.0),
    "GELU": lambda x: x * 0.5 * (1.0 + _erf(x / math.sqrt(2.0))),
    "SiLU": lambda x: x / (1.0 + np.exp(-x)),
    "Sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
}
"""Activations by the name of their class in ``torch.nn``."""


class _Step(Protocol):
    """A map of vectors."""

    def transform(self, vectors: Floats) -> Floats:
        """Map ``vectors``, shape ``(n, d)``, to shape ``(n, d')``, float32."""
        ...

    def transform_parts(self, parts: Parts) -> Parts:
        """Map the parts of one vector to parts of its image."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """``f(x W^T + b)``: ``weight`` has shape ``(d', d)`` and ``bias`` shape ``(d',)``."""

    weight: Floats
    bias: Floats
    activation: str

    def transform(self, vectors: Floats) -> Floats:
        """Map ``vectors``, shape ``(n, d)``, to shape ``(n, d')``; the result of a row depends on that row alone."""
        linear = np.einsum("nd,od->no", vectors, self.weight) + self.bias
        return _ACTIVATIONS[self.activation](linear).astype(np.float32)

    def transform_parts(self, parts: Parts) -> Parts:
        """Map parts: an activation scales the parts of a dimension alike, the rescale rule of Shrikumar et al. 2017."""
        rows = parts.rows @ self.weight.T.astype(np.float64) + parts.shares[:, None] * self.bias
        total = rows.sum(axis=0)
        activate = _ACTIVATIONS[self.activation]
        at_zero = activate(np.zeros_like(total))
        large = np.abs(total) > _SMALL
        scale = np.divide(activate(total) - at_zero, total, out=np.zeros_like(total), where=large)
        return Parts(rows * scale + parts.shares[:, None] * at_zero, parts.shares)


@dataclass(frozen=True, slots=True, eq=False)
class LayerNorm:
    """``(x - mean) / sqrt(var + 1e-5) * weight + bias``, with the mean and variance over the dimensions of ``x``."""

    weight: Floats
    bias: Floats

    def transform(self, vectors: Floats) -> Floats:
        """Map ``vectors``, shape ``(n, d)``, to the same shape."""
        rows = vectors.astype(np.float64)
        rows -= rows.mean(axis=1, keepdims=True)
        rows /= np.sqrt(np.square(rows).mean(axis=1, keepdims=True) + _EPSILON)
        return (rows * self.weight + self.bias).astype(np.float32)

    def transform_parts(self, parts: Parts) -> Parts:
        """Map parts: each is centred on its own mean, and all are divided by the deviation of the whole."""
        rows = parts.rows - parts.rows.mean(axis=1, keepdims=True)
        deviation = math.sqrt(float(np.square(rows.sum(axis=0)).mean()) + _EPSILON)
        return Parts(rows / deviation * self.weight + parts.shares[:, None] * self.bias, parts.shares)


@dataclass(frozen=True, slots=True)
class Truncate:
    """The leading ``dim`` dimensions."""

    dim: int

    def transform(self, vectors: Floats) -> Floats:
        """Map ``vectors``, shape ``(n, d)``, to shape ``(n, dim)``."""
        return np.ascontiguousarray(vectors[:, : self.dim])

    def transform_parts(self, parts: Parts) -> Parts:
        """Map parts."""
        return Parts(parts.rows[:, : self.dim], parts.shares)


class Head:
    """The modules after the pooling, in order; ``dim`` is the dimension of the vectors that they return."""

    def __init__(self, dim: int, steps: Sequence[_Step] = (), names: Sequence[str] = ()) -> None:
        self.dim = dim
        self.config: Mapping[str, Any] = {"modules": list(names)} if names else {}
        self._steps = steps

    def transform(self, vectors: Floats) -> Floats:
        """Map pooled vectors, shape ``(n, d)``, to raw vectors, float32, shape ``(n, dim)``."""
        for step in self._steps:
            vectors = step.transform(vectors)
        return vectors

    def transform_parts(self, pooled: TokenParts) -> TokenParts:
        """Map the parts of a pooled vector to parts of the raw vector; the sum of the parts stays exact."""
        parts = Parts(pooled.rows, pooled.shares)
        for step in self._steps:
            parts = step.transform_parts(parts)
        return TokenParts(pooled.tokens, parts.rows, pooled.shares)


def build_head(dim: int, modules: Sequence[Module], *, normalize: bool, truncate_dim: int | None) -> Head:
    """Return the steps from pooled vectors of ``dim`` dimensions to raw vectors.

    Raises :class:`ModelError` if the weights of a module are missing or do not fit, and :class:`ConfigError` if
    ``truncate_dim`` is larger than the dimension of the vectors.
    """
    steps: list[_Step] = []
    names: list[str] = []
    for module in modules:
        if module.name == "Normalize":
            steps.append(Normalize())
            names.append("Normalize")
            continue
        step: Dense | LayerNorm = _dense(module, dim) if module.name == "Dense" else _layer_norm(module, dim)
        dim = len(step.bias)
        steps.append(step)
        names.append(f"{module.name} {step.activation} {dim}" if isinstance(step, Dense) else module.name)
    if normalize:
        steps.append(Normalize())
        names.append("Normalize")
    if truncate_dim is not None and truncate_dim != dim:
        if truncate_dim > dim:
            raise ConfigError(
                f"truncate_dim is {truncate_dim}: the vectors have {dim} dimensions, expected at most {dim}"
            )
        steps.append(Truncate(truncate_dim))
        names.append(f"Truncate {truncate_dim}")
        dim = truncate_dim
    return Head(dim, steps, names)


def _dense(module: Module, dim: int) -> Dense:
    name = str(module.settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = name.rpartition(".")[2]
    if activation not in _ACTIVATIONS or not name.startswith("torch.nn."):
        raise ModelError(
            f"the module in {module.folder} has the activation {name!r}: expected one of {', '.join(_ACTIVATIONS)} of "
            "torch.nn; set the pooling, such as --pooling mean, to use the transformer alone"
        )
    tensors = _tensors(module.folder)
    weight = _tensor(tensors, "linear.weight", module.folder, 2)
    if weight.shape[1] != dim:
        raise ModelError(
            f"the module in {module.folder} takes {weight.shape[1]} dimensions, but the vectors have {dim}: get the "
            "model again"
        )
    bias = np.zeros(len(weight), np.float32)
    return Dense(
        weight,
        _tensor(tensors, "linear.bias", module.folder, 1) if module.settings.get("bias", True) else bias,
        activation,
    )


def _layer_norm(module: Module, dim: int) -> LayerNorm:
    tensors = _tensors(module.folder)
    weight, bias = (_tensor(tensors, f"norm.{name}", module.folder, 1) for name in ("weight", "bias"))
    if weight.shape != (dim,) or bias.shape != (dim,):
        raise ModelError(f"the module in {module.folder} does not fit vectors of {dim} dimensions: get the model again")
    return LayerNorm(weight, bias)


def _tensors(folder: Path) -> Mapping[str, NDArray[Any]]:
    return map_tensors(weight_files(folder)[0], widen=True)


def _tensor(tensors: Mapping[str, NDArray[Any]], name: str, folder: Path, axes: int) -> Floats:
    tensor = tensors.get(name)
    if tensor is None or tensor.ndim != axes:
        shown = "is missing" if tensor is None else f"has shape {tensor.shape}"
        raise ModelError(f"{folder / 'model.safetensors'}: the tensor {name!r} {shown}; get the model again")
    return np.ascontiguousarray(tensor, dtype=np.float32)
