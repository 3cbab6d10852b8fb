"""The forward pass of BERT in NumPy, on mapped weights.

Importing a deep-learning framework takes seconds; encoding one query here takes milliseconds. Without PyTorch, batches
of texts are computed in parts, one thread per part. Equations and names follow Devlin et al. 2019 (post-layer-norm
encoder). The results equal PyTorch's in float32.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import WORD_EMBEDDINGS
from ragembed.models.bert_files import POSITIONS, WORDS, BertTensors
from ragembed.resources import ONE_BLAS_THREAD, processors
from ragembed.types import Floats

_SMALL_BATCH = 256
_PART_TOKENS = 512  # independent of the number of threads, so that results are too
_SMALL_PRODUCT, _LEAST_ROWS = 1_000_000, 16
_GELU_AT_ONCE = 16_384  # numbers; four arrays of this size fit in the cache


class NumpyBert:
    """BERT in float32 on the CPU; ``folder`` must satisfy :func:`ragembed.models.bert_files.is_plain_bert`.

    Internally, a column is a token and a row is a feature, which suits products of mapped weights with few tokens.
    """

    def __init__(self, folder: Path) -> None:
        self._tensors = BertTensors(folder)
        self._shape = self._tensors.shape
        self._used_before = False
        self.dim = self._shape.dim
        self.n_layers = self._shape.n_layers

    def states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Return the hidden states of ``layers``; see :meth:`ragembed.models.protocol.Backbone.states`.

        The first call frees the memory of each weight after use, because many processes encode only one query.
        """
        texts, width = ids.shape
        rows = max(1, _PART_TOKENS // max(width, 1))
        if texts > rows:
            return self._in_parts(ids, lengths, layers, rows)
        # The products of one query are so small that several threads are slower than one.
        alone = ONE_BLAS_THREAD if ids.size <= _SMALL_BATCH else nullcontext()
        with alone:
            kept = self._states(ids, lengths, frozenset(layers))
        self._used_before = True
        return [kept[layer] for layer in layers]

    def _in_parts(
        self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...], rows: int
    ) -> list[Floats]:
        """Compute ``rows`` texts at a time, in as many threads as processors, each part with its own padding."""
        self._used_before = True
        found = [np.zeros((*ids.shape, self.dim), dtype=np.float32) for _ in layers]

        def compute(start: int) -> None:
            part = slice(start, start + rows)
            width = max(1, int(lengths[part].max()))
            states = self._states(ids[part, :width], lengths[part], frozenset(layers))
            for layer, whole in zip(layers, found, strict=True):
                whole[part, :width] = states[layer]

        with ONE_BLAS_THREAD, ThreadPoolExecutor(processors()) as pool:
            for future in [pool.submit(compute, start) for start in range(0, len(ids), rows)]:
                future.result()
        return found

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table; see :meth:`ragembed.models.protocol.Backbone.word_embeddings`."""
        return self._tensors.tensor(WORDS)

    def _states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: frozenset[int]) -> dict[int, Floats]:
        kept = {}
        if WORD_EMBEDDINGS in layers:
            kept[WORD_EMBEDDINGS] = self._tensors.stored(WORDS)[ids].astype(np.float32)
        states = self._embed(ids)  # (d, tokens of all texts)
        padding = np.arange(ids.shape[1]) >= lengths[:, None]
        bias = np.where(padding, np.float32(-np.inf), np.float32(0.0))[:, None, None, :]
        distances = self._tensors.distance_bias(ids.shape[1])
        if distances is not None:
            bias = bias + distances
        for layer in range(max(layers) + 1):
            if layer:
                states = self._block(states, bias, f"encoder.layer.{layer - 1}.")
            if layer in layers:
                kept[layer] = np.ascontiguousarray(states.T).reshape(*ids.shape, self.dim)
        return kept

    def _embed(self, ids: NDArray[np.int64]) -> Floats:
        words = self._tensors.stored(WORDS)
        positions = self._tensors.stored(POSITIONS)
        places = positions[self._tensors.positions(ids)].astype(np.float32)
        states = words[ids].astype(np.float32) + places + self._tensors.type_vector()
        self._release_at_first()
        return self._layer_norm(np.ascontiguousarray(states.reshape(-1, self.dim).T), "embeddings.LayerNorm")

    def _block(self, states: Floats, bias: Floats, name: str) -> Floats:
        attended = self._attention(states, bias, name + "attention.self.")
        output = self._linear(attended, name + "attention.output.dense")
        output += states
        states = self._layer_norm(output, name + "attention.output.LayerNorm")
        inner = self._linear(states, name + "intermediate.dense")
        _apply_gelu(inner)
        output = self._linear(inner, name + "output.dense")
        output += states
        return self._layer_norm(output, name + "output.LayerNorm")

    def _attention(self, states: Floats, bias: Floats, name: str) -> Floats:
        texts, tokens = len(bias), bias.shape[-1]
        size = self.dim // self._shape.heads

        def heads(part: str) -> Floats:  # (texts, heads, size, tokens)
            return self._linear(states, name + part).reshape(-1, size, texts, tokens).transpose(2, 0, 1, 3)

        scores = heads("query").transpose(0, 1, 3, 2) @ heads("key")
        scores /= np.float32(np.sqrt(size))
        scores += bias
        scores -= scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores, out=scores)
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = heads("value") @ weights.transpose(0, 1, 3, 2)
        return np.ascontiguousarray(mixed.transpose(1, 2, 0, 3)).reshape(self.dim, -1)

    def _linear(self, states: Floats, name: str) -> Floats:
        weight = self._tensors.tensor(name + ".weight")
        rows = _rows_at_once(*weight.shape, states.shape[1])
        product: Floats = (weight.reshape(-1, rows, len(states)) @ states).reshape(len(weight), -1)
        product += self._tensors.tensor(name + ".bias")[:, None]
        self._release_at_first()
        return product

    def _release_at_first(self) -> None:
        if not self._used_before:
            self._tensors.release()

    def _layer_norm(self, states: Floats, name: str) -> Floats:
        """Normalise the columns of ``states`` in place and return it."""
        states -= states.mean(axis=0)
        variance = np.square(states).mean(axis=0)
        states /= np.sqrt(variance + np.float32(self._shape.epsilon))
        states *= self._tensors.tensor(name + ".weight")[:, None]
        states += self._tensors.tensor(name + ".bias")[:, None]
        return states


@cache
def _rows_at_once(rows: int, columns: int, tokens: int) -> int:
    """Return the best number of rows of a matrix to multiply with ``tokens`` columns at once, a divisor of ``rows``.

    OpenBLAS copies the matrices of a large product into another layout first. For few tokens the copy takes longer than
    the product; small products are not copied.
    """
    for pieces in range(1, rows // _LEAST_ROWS + 1):
        if rows % pieces == 0 and rows // pieces * columns * tokens <= _SMALL_PRODUCT:
            return rows // pieces
    return rows


def _apply_gelu(x: Floats) -> None:
    """Replace each number by ``x Φ(x)`` (Hendrycks & Gimpel 2016); ``x`` must be contiguous."""
    flat = x.reshape(-1)
    scratch = np.empty((3, min(_GELU_AT_ONCE, len(flat))), dtype=np.float32)
    for start in range(0, len(flat), _GELU_AT_ONCE):
        part = flat[start : start + _GELU_AT_ONCE]
        size, tail, other = scratch[:, : len(part)]
        np.abs(part, out=size)
        size *= np.float32(np.sqrt(0.5))
        _erfc(size, tail, other)
        # x Φ(x) = max(x, 0) - |x| / 2 erfc(|x| / √2).
        tail *= size
        tail *= np.float32(np.sqrt(0.5))
        np.maximum(part, np.float32(0.0), out=part)
        part -= tail


def _erfc(x: Floats, found: Floats, scratch: Floats) -> None:
    """Write the complementary error function of ``x >= 0`` to ``found``; the absolute error is below 1.5e-7.

    Source: Abramowitz & Stegun 1964, 7.1.26. ``scratch`` has the shape of both.
    """
    t = scratch
    np.multiply(x, np.float32(0.3275911), out=t)
    t += np.float32(1.0)
    np.reciprocal(t, out=t)
    np.multiply(t, np.float32(1.061405429), out=found)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        found += np.float32(coefficient)
        found *= t
    power = scratch
    np.square(x, out=power)
    np.negative(power, out=power)
    found *= np.exp(power, out=power)
