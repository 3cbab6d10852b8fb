"""The forward pass of BERT in NumPy.

Importing a deep-learning framework takes seconds; encoding one query here takes milliseconds. Without PyTorch, batches
of texts are computed in parts, one thread per part. Equations and names follow Devlin et al. 2019 (post-layer-norm
encoder). The results equal PyTorch's in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import WORD_EMBEDDINGS
from ragembed.models.bert_files import POSITIONS, WORDS, BertTensors
from ragembed.resources import ONE_BLAS_THREAD, processors, require_room
from ragembed.types import Floats

_PART_TOKENS = 256  # independent of the number of threads, so that results are too
_SMALL_PRODUCT = 1_000_000  # multiplications; OpenBLAS has faster kernels for products up to this size
_WIDEST_PANEL, _NARROWEST_PANEL, _FEW_ROWS = 64, 16, 8
_GELU_AT_ONCE = 16_384  # numbers; four arrays of this size fit in the cache


class NumpyBert:
    """BERT in float32 on the CPU; ``folder`` must satisfy :func:`ragembed.models.bert_files.is_plain_bert`.

    Small products need a copy of each weight in another layout. The first call frees each copy, and the memory of the
    mapped weights, after use, because many processes encode only one query. Later calls keep the copies.
    """

    def __init__(self, folder: Path) -> None:
        self._tensors = BertTensors(folder)
        require_room("OpenBLAS")
        self._shape = self._tensors.shape
        self._used_before = False
        self._kept: dict[str, Floats] = {}
        self.dim = self._shape.dim
        self.n_layers = self._shape.n_layers

    def states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Return the hidden states of ``layers``; see :meth:`ragembed.models.choice.Backbone.states`."""
        texts, width = ids.shape
        rows = max(1, _PART_TOKENS // max(width, 1))
        if texts > rows:
            return self._in_parts(ids, lengths, layers, rows)
        # Products of so few tokens are faster in one thread than in several.
        alone = ONE_BLAS_THREAD if ids.size <= _PART_TOKENS else nullcontext()
        with alone:
            by_layer = self._states(ids, lengths, frozenset(layers))
        self._used_before = True
        return [by_layer[layer] for layer in layers]

    def _in_parts(
        self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...], rows: int
    ) -> list[Floats]:
        """Compute ``rows`` texts at a time, in as many threads as processors, each part with its own padding."""
        self._used_before = True
        outputs = [np.zeros((*ids.shape, self.dim), dtype=np.float32) for _ in layers]

        def compute(start: int) -> None:
            part = slice(start, start + rows)
            width = max(1, int(lengths[part].max()))
            states = self._states(ids[part, :width], lengths[part], frozenset(layers))
            for layer, whole in zip(layers, outputs, strict=True):
                whole[part, :width] = states[layer]

        with ONE_BLAS_THREAD, ThreadPoolExecutor(processors()) as pool:
            for future in [pool.submit(compute, start) for start in range(0, len(ids), rows)]:
                future.result()
        return outputs

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table; see :meth:`ragembed.models.choice.Backbone.word_embeddings`."""
        return self._tensors.tensor(WORDS)

    def _states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: frozenset[int]) -> dict[int, Floats]:
        by_layer = {}
        if WORD_EMBEDDINGS in layers:
            by_layer[WORD_EMBEDDINGS] = self._tensors.stored(WORDS)[ids].astype(np.float32)
        states = self._embed(ids)  # (tokens of all texts, d)
        bias = self._attention_bias(ids.shape[1], lengths)
        for layer in range(max(layers) + 1):
            if layer:
                states = self._block(states, bias, ids.shape, f"encoder.layer.{layer - 1}.")
            if layer in layers:
                by_layer[layer] = states.reshape(*ids.shape, self.dim)
        return by_layer

    def _attention_bias(self, width: int, lengths: NDArray[np.int64]) -> Floats | None:
        """Return what is added to attention scores of shape ``(texts, heads, width, width)``, or None for nothing."""
        bias = self._tensors.distance_bias(width)
        if lengths.min() < width:
            padding = np.arange(width) >= lengths[:, None]
            hidden = np.where(padding, np.float32(-np.inf), np.float32(0.0))[:, None, None, :]
            bias = hidden if bias is None else bias + hidden
        return bias

    def _embed(self, ids: NDArray[np.int64]) -> Floats:
        words = self._tensors.stored(WORDS)
        positions = self._tensors.stored(POSITIONS)
        places = positions[self._tensors.positions(ids)].astype(np.float32)
        states = words[ids].astype(np.float32) + places + self._tensors.type_vector()
        if not self._used_before:
            self._tensors.release()
        return self._layer_norm(states.reshape(-1, self.dim), "embeddings.LayerNorm")

    def _block(self, states: Floats, bias: Floats | None, shape: tuple[int, ...], name: str) -> Floats:
        attended = self._attention(states, bias, shape, name + "attention.self.")
        output = self._linear(attended, name + "attention.output.dense")
        output += states
        states = self._layer_norm(output, name + "attention.output.LayerNorm")
        inner = self._linear(states, name + "intermediate.dense")
        _apply_gelu(inner)
        output = self._linear(inner, name + "output.dense")
        output += states
        return self._layer_norm(output, name + "output.LayerNorm")

    def _attention(self, states: Floats, bias: Floats | None, shape: tuple[int, ...], name: str) -> Floats:
        size = self.dim // self._shape.heads

        def heads(features: Floats) -> Floats:  # (texts, heads, tokens, size)
            return features.reshape(*shape, self._shape.heads, size).transpose(0, 2, 1, 3)

        query, key, value = (heads(self._linear(states, name + part)) for part in ("query", "key", "value"))
        scores = query @ key.transpose(0, 1, 3, 2)
        scores *= np.float32(size**-0.5)
        if bias is not None:
            scores += bias
        scores -= scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores, out=scores)
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.empty_like(states)
        np.matmul(weights, value, out=heads(mixed))
        return mixed

    def _linear(self, states: Floats, name: str) -> Floats:
        few = len(states) <= _PART_TOKENS
        panels = self._panels(name + ".weight") if few else self._tensors.tensor(name + ".weight").T[None]
        product = np.empty((len(states), panels.shape[0] * panels.shape[2]), dtype=np.float32)
        for rows in _small_products(len(states), panels) if few else [slice(None)]:
            part = product[rows]
            by_panel = part.reshape(len(part), len(panels), -1).transpose(1, 0, 2)
            np.matmul(states[rows], panels, out=by_panel)
        product += self._tensors.tensor(name + ".bias")
        if not self._used_before:
            self._tensors.release()
        return product

    def _panels(self, name: str) -> Floats:
        """Return a transposed weight in panels of output features, shape ``(panels, d_in, features)``."""
        panels = self._kept.get(name)
        if panels is None:
            weight = self._tensors.tensor(name)
            width = _panel_width(*weight.shape)
            panels = np.ascontiguousarray(weight.reshape(-1, width, weight.shape[1]).transpose(0, 2, 1))
            if self._used_before:
                self._kept[name] = panels
                self._tensors.release()
        return panels

    def _layer_norm(self, states: Floats, name: str) -> Floats:
        """Normalise each row of ``states`` in place and return it."""
        states -= states.mean(axis=1, keepdims=True)
        variance = np.einsum("td,td->t", states, states) / np.float32(self.dim)
        states /= np.sqrt(variance + np.float32(self._shape.epsilon))[:, None]
        states *= self._tensors.tensor(name + ".weight")
        states += self._tensors.tensor(name + ".bias")
        return states


def _panel_width(d_out: int, d_in: int) -> int:
    """Return the number of output features in a panel: a divisor of ``d_out``.

    OpenBLAS copies the matrices of a large product into another layout first. For few tokens the copy takes longer than
    the product. Small products are not copied, so a panel is so narrow that its product with a few rows is small.
    """
    widest = min(_WIDEST_PANEL, _SMALL_PRODUCT // (_FEW_ROWS * d_in))
    return next((width for width in range(widest, _NARROWEST_PANEL - 1, -1) if d_out % width == 0), d_out)


def _small_products(tokens: int, panels: Floats) -> Iterator[slice]:
    """Yield ranges of tokens of about equal size whose products with a panel are small."""
    most = max(_FEW_ROWS, _SMALL_PRODUCT // panels[0].size)
    parts = -(-tokens // most)
    rows = -(-tokens // parts)
    for start in range(0, tokens, rows):
        yield slice(start, start + rows)


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


def _erfc(x: Floats, out: Floats, scratch: Floats) -> None:
    """Write the complementary error function of ``x >= 0`` to ``found``; the absolute error is below 1.5e-7.

    Source: Abramowitz & Stegun 1964, 7.1.26. ``scratch`` has the shape of both.
    """
    t = scratch
    np.multiply(x, np.float32(0.3275911), out=t)
    t += np.float32(1.0)
    np.reciprocal(t, out=t)
    np.multiply(t, np.float32(1.061405429), out=out)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        out += np.float32(coefficient)
        out *= t
    power = scratch
    np.square(x, out=power)
    np.negative(power, out=power)
    out *= np.exp(power, out=power)
