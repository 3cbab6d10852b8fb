"""BERT's forward pass in NumPy, over mapped weights, for short texts.

One question needs no deep-learning framework: importing one costs seconds, this costs milliseconds. Equations and
names are those of Devlin et al. 2019 (post-layer-norm encoder); results equal PyTorch's in float32.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from ragembed.backbones.bert_files import POSITIONS, TYPES, WORDS, BertTensors
from ragembed.specs import WORD_EMBEDDINGS

Floats = NDArray[np.float32]

_SMALL_BATCH = 256
_SMALL_PRODUCT, _LEAST_ROWS = 1_000_000, 16


class NumpyBert:
    """BERT in float32 on the CPU; ``folder`` must satisfy :func:`ragembed.backbones.bert_files.is_plain_bert`."""

    def __init__(self, folder: Path) -> None:
        self._tensors = BertTensors(folder)
        self._shape = self._tensors.shape
        self.dim = self._shape.dim
        self.n_layers = self._shape.n_layers

    def states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Return the hidden states of ``layers``; see :meth:`ragembed.backbones.protocol.Backbone.states`."""
        # Products of one question are so small that a second thread waits longer than it works.
        alone = _threads().limit(limits=1, user_api="blas") if ids.size <= _SMALL_BATCH else nullcontext()
        with alone:
            kept = self._states(ids, lengths, frozenset(layers))
        return [kept[layer] for layer in layers]

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table; see :meth:`ragembed.backbones.protocol.Backbone.word_embeddings`."""
        return self._tensors.tensor(WORDS)

    def _states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: frozenset[int]) -> dict[int, Floats]:
        kept = {}
        if WORD_EMBEDDINGS in layers:
            kept[WORD_EMBEDDINGS] = self._tensors.stored(WORDS)[ids].astype(np.float32)
        states = self._embed(ids)  # (batch, tokens, d)
        padding = np.arange(ids.shape[1]) >= lengths[:, None]
        bias = np.where(padding, np.float32(-np.inf), np.float32(0.0))[:, None, None, :]
        for layer in range(max(layers) + 1):
            if layer:
                states = self._block(states, bias, f"encoder.layer.{layer - 1}.")
            if layer in layers:
                kept[layer] = states
        return kept

    def _embed(self, ids: NDArray[np.int64]) -> Floats:
        words = self._tensors.stored(WORDS)
        positions = self._tensors.stored(POSITIONS)
        types = self._tensors.tensor(TYPES)
        states = words[ids].astype(np.float32) + positions[: ids.shape[1]].astype(np.float32) + types[0]
        return self._layer_norm(states, "embeddings.LayerNorm")

    def _block(self, states: Floats, bias: Floats, name: str) -> Floats:
        attended = self._attention(states, bias, name + "attention.self.")
        output = self._linear(attended, name + "attention.output.dense")
        states = self._layer_norm(output + states, name + "attention.output.LayerNorm")
        inner = _gelu(self._linear(states, name + "intermediate.dense"))
        return self._layer_norm(self._linear(inner, name + "output.dense") + states, name + "output.LayerNorm")

    def _attention(self, states: Floats, bias: Floats, name: str) -> Floats:
        batch, tokens, dim = states.shape
        size = dim // self._shape.heads

        def heads(part: str) -> Floats:  # (batch, heads, tokens, size)
            return (
                self._linear(states, name + part).reshape(batch, tokens, self._shape.heads, size).transpose(0, 2, 1, 3)
            )

        scores = heads("query") @ heads("key").transpose(0, 1, 3, 2) / np.float32(np.sqrt(size)) + bias
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed: Floats = (weights @ heads("value")).transpose(0, 2, 1, 3).reshape(batch, tokens, dim)
        return mixed

    def _linear(self, states: Floats, name: str) -> Floats:
        weight = self._tensors.tensor(name + ".weight")
        tokens = np.ascontiguousarray(states.reshape(-1, states.shape[-1]).T)  # (d, tokens of all texts)
        rows = _rows_at_once(*weight.shape, tokens.shape[1])
        product = weight.reshape(-1, rows, len(tokens)) @ tokens
        flat = np.ascontiguousarray(product.reshape(len(weight), -1).T)
        flat += self._tensors.tensor(name + ".bias")
        return flat.reshape(*states.shape[:-1], -1)

    def _layer_norm(self, states: Floats, name: str) -> Floats:
        centred = states - states.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(variance + np.float32(self._shape.epsilon))
        normed: Floats = scaled * self._tensors.tensor(name + ".weight") + self._tensors.tensor(name + ".bias")
        return normed


@cache
def _rows_at_once(rows: int, columns: int, tokens: int) -> int:
    """Return how many rows of a matrix are best multiplied with ``tokens`` columns at once, a divisor of ``rows``.

    OpenBLAS first copies the matrices of a product into another order, which for few tokens takes longer than the
    product, unless the product is small.
    """
    for pieces in range(1, rows // _LEAST_ROWS + 1):
        if rows % pieces == 0 and rows // pieces * columns * tokens <= _SMALL_PRODUCT:
            return rows // pieces
    return rows


@cache
def _threads() -> ThreadpoolController:
    """Return the controller of the thread pools of the libraries that are loaded."""
    return ThreadpoolController()


def _gelu(x: Floats) -> Floats:
    """Return ``x Φ(x)`` (Hendrycks & Gimpel 2016)."""
    value = _erf(x * np.float32(np.sqrt(0.5)))
    value += np.float32(1.0)
    value *= np.float32(0.5)
    value *= x
    return value


def _erf(x: Floats) -> Floats:
    """Return the error function, absolute error below 1.5e-7 (Abramowitz & Stegun 1964, 7.1.26)."""
    size = np.abs(x)
    t = np.float32(0.3275911) * size
    t += np.float32(1.0)
    np.reciprocal(t, out=t)
    polynomial: Floats = np.float32(1.061405429) * t
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        polynomial += np.float32(coefficient)
        polynomial *= t
    np.square(size, out=size)
    np.negative(size, out=size)
    polynomial *= np.exp(size, out=size)
    np.subtract(np.float32(1.0), polynomial, out=polynomial)
    np.copysign(polynomial, x, out=polynomial)
    return polynomial
