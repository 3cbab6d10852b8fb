"""SBERT-WK: each token's vectors fused over the layers, and how much each token counts. Pure functions on arrays.

Source: Wang & Kuo 2020, *SBERT-WK*, section IV, and the authors' program (``unify_token`` and ``unify_sentence``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ragembed.checks import one_of
from ragembed.errors import ConfigError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Variant = Literal["paper", "released-code"]

_ROUNDING = 1e-6
"""A part shorter than this share of its vector is float32 rounding. No novelty, alignment or projection counts as less,
so that layers that are equal, orthogonal or zero have finite weights, and so that a mean cosine below 0, whose inverse
is no weight, ranks as the least aligned."""

_LEAST_VARIANCE = 1e-24
"""Added to every token's importance: above what float64 rounding gives equal layers (1e-31), far below what a model
gives a token (1e-6 to 1e-2). Tokens whose vector never turns then count alike, and no text has a total of 0."""

_BLOCK = 256  # tokens fused at a time: few enough for the cache, enough to make up for NumPy's cost of a call


@dataclass(frozen=True, slots=True)
class SbertWk:
    """Settings of SBERT-WK.

    The context of a token's vector at layer i is the same token's vectors at up to ``window`` layers on both sides
    of i, out of ``start_layer``..L: the paper leaves the layers before the start out of the whole fusion
    (section V-A), and the authors' program cuts them off first.

    Parameters
    ----------
    window
        The paper's m: layers on each side of a layer that form its context.
    start_layer
        First layer that is fused; 0 is the input of the blocks.
    alignment
        Weigh layers by their inverse alignment, one over the mean cosine with the context.
    novelty
        Weigh layers by their novelty, the share of the vector's length that is orthogonal to the context. With
        ``alignment`` too, the weight is the mean of both; with neither, every layer has the same.
    importance
        Weigh tokens by the variance over layers of the cosine between consecutive layers; otherwise uniformly.
    variant
        ``"paper"``, or ``"released-code"`` for the authors' program, which differs in four ways: a layer with fewer
        than ``window`` fused layers before it has no left half of a context C; the alignment is divided by the
        length of the projection instead of the vector's, and multiplied by ``2 (|C| + 1)``; the variance leaves out
        the layers before the start; the last token is left out.
    """

    window: int = 2
    start_layer: int = 4
    alignment: bool = True
    novelty: bool = True
    importance: bool = True
    variant: Variant = "paper"

    def __post_init__(self) -> None:
        one_of("variant", self.variant, get_args(Variant))
        if self.window < 1:
            raise ConfigError(f"window is {self.window}: expected at least 1")

    def check(self, n_layers: int) -> None:
        """Raise :class:`ragembed.errors.ConfigError` unless a model of ``n_layers`` blocks can be fused like this."""
        if not 0 <= self.start_layer <= n_layers:
            raise ConfigError(f"start_layer is {self.start_layer}: expected a layer of the model, 0 to {n_layers}")
        fused = n_layers - self.start_layer + 1
        if (self.alignment or self.novelty) and fused <= self.window:
            raise ConfigError(
                f"too few layers for a window: layers {self.start_layer} to {n_layers} are {fused}, a window of "
                f"{self.window} expects at least {self.window + 1}; lower start_layer or window"
            )
        compared = len(self.layers(n_layers))
        if self.importance and compared < 3:
            raise ConfigError(
                f"too few layers for token importance: a variance of cosines between consecutive layers expects at "
                f"least 3 layers, there are {compared}; set importance=false"
            )

    def layers(self, n_layers: int) -> tuple[int, ...]:
        """Return the hidden states that :meth:`token_vectors` expects of a model of ``n_layers`` blocks, ascending."""
        first = 0 if self._compares_all_layers else self.start_layer
        return tuple(range(first, n_layers + 1))

    def token_vectors(self, states: Sequence[Floats], lengths: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Fuse the vectors of each token over the layers, and tell how much each token counts.

        Parameters
        ----------
        states
            Hidden states of :meth:`layers`, in that order, each float32, shape ``(batch, tokens, d)``, padded at the
            right with anything. The settings must have passed :meth:`check`.
        lengths
            Number of tokens of each text, special ones included, shape ``(batch,)``.

        Returns
        -------
        vectors
            float32, shape ``(batch, tokens, d)``; 0 at padding and at tokens left out.
        importance
            float32, shape ``(batch, tokens)``; above 0, not normalised over the tokens; 0 at padding and at tokens
            left out. The released code's last token stays in where it is the only one.

        Notes
        -----
        Cosines between layers are near 1, so that they and their variance are computed in float64. A text's result
        does not depend on what it is batched with.
        """
        batch, tokens, dim = states[0].shape
        used = lengths if self.variant == "paper" else np.maximum(lengths - 1, np.minimum(lengths, 1))
        rows = np.flatnonzero(np.arange(tokens) < used[:, None])
        flat = [state.reshape(-1, dim) for state in states]
        vectors = np.zeros((batch * tokens, dim), dtype=np.float32)
        importance = np.zeros(batch * tokens, dtype=np.float32)
        shape = (len(flat), min(_BLOCK, len(rows)), dim)
        single, double = np.empty(shape, dtype=np.float32), np.empty(shape)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            layers, precise = single[:, : len(block)], double[:, : len(block)]
            for layer, state in zip(layers, flat, strict=True):
                np.take(state, block, axis=0, out=layer, mode="clip")  # "raise", the default, would copy once more
            precise[:] = layers
            weights, importance[block] = self._weigh(precise)
            vectors[block] = _weighted_sum(weights, layers[-len(weights) :])
        return vectors.reshape(batch, tokens, dim), importance.reshape(batch, tokens)

    @property
    def _compares_all_layers(self) -> bool:
        return self.importance and self.variant == "paper"

    def _weigh(self, vectors: Doubles) -> tuple[Doubles, Doubles]:
        """Return weights of the fused layers, ``(fused, n)``, and importances, ``(n,)``, of the tokens.

        ``vectors`` has shape ``(layers, n, d)``; the fused layers are the last of them.
        """
        first = self.start_layer if self._compares_all_layers else 0
        windowed = self.alignment or self.novelty
        cosines = _cosines(vectors, first, 2 * self.window if windowed else 1)
        importance = np.ones(vectors.shape[1])
        if self.importance:
            importance = np.diagonal(cosines, offset=1).var(axis=-1) + _LEAST_VARIANCE
        return self._layer_weights(cosines[first:, first:]), importance

    def _layer_weights(self, cosines: Doubles) -> Doubles:
        """Return the fused layers' weights, ``(layers, n)``, sum 1, from their ``cosines``, ``(layers, layers, n)``."""
        if not (self.alignment or self.novelty):
            return np.full(cosines.shape[1:], 1.0 / len(cosines))
        inverse_alignment, novelty = np.empty(cosines.shape[1:]), np.empty(cosines.shape[1:])
        for layer in range(len(cosines)):
            context = self._context(layer, len(cosines))
            orthogonal = np.maximum(_residual(cosines, context, layer), _ROUNDING**2)
            novelty[layer] = np.sqrt(orthogonal)
            alignment = cosines[layer, context].mean(axis=0)
            if self.variant == "released-code":
                projection = np.sqrt(np.maximum(1.0 - orthogonal, _ROUNDING**2))
                alignment = alignment / projection * (2 * (len(context) + 1))
            inverse_alignment[layer] = 1.0 / np.maximum(alignment, _ROUNDING)
        chosen = [*([inverse_alignment] if self.alignment else []), *([novelty] if self.novelty else [])]
        weights: Doubles = np.mean([measure / measure.sum(axis=0) for measure in chosen], axis=0)
        return weights

    def _context(self, layer: int, count: int) -> list[int]:
        """Return the layers, out of ``count`` fused ones, that form the context of ``layer``."""
        left = range(max(layer - self.window, 0), layer)
        if self.variant == "released-code" and layer < self.window:
            left = range(0)  # the program's slice starts below 0, which in Python is empty here
        return [*left, *range(layer + 1, min(layer + self.window + 1, count))]


def _weighted_sum(weights: Doubles, layers: Floats) -> Floats:
    """Return the sum of ``layers``, ``(layers, n, d)``, times their ``weights``, ``(layers, n)``, in float32."""
    total: Floats = np.zeros_like(layers[0])
    for weight, layer in zip(weights.astype(np.float32), layers, strict=True):
        total += weight[:, None] * layer
    return total


def _cosines(vectors: Doubles, first: int, reach: int) -> Doubles:
    """Return the cosines between layers of ``vectors``, ``(layers, n, d)``, as symmetric ``(layers, layers, n)``.

    Only those of consecutive layers, and from layer ``first`` on of layers up to ``reach`` apart; 0 for the others. A
    zero vector has cosine 0 with all, itself included.
    """
    lengths = np.sqrt(np.einsum("ktd,ktd->kt", vectors, vectors))
    inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    cosines = np.zeros((len(vectors), *lengths.shape))
    each = np.arange(len(vectors))
    cosines[each, each] = lengths > 0
    for apart in range(1, min(reach, len(vectors) - 1) + 1):
        start, end = 0 if apart == 1 else first, len(vectors) - apart
        dots = np.einsum("ktd,ktd->kt", vectors[start:end], vectors[start + apart :])
        lower, upper = each[start:end], each[start + apart :]
        cosines[lower, upper] = cosines[upper, lower] = dots * inverse[lower] * inverse[upper]
    return cosines


def _residual(cosines: Doubles, context: list[int], layer: int) -> Doubles:
    """Return the squared share of each vector at ``layer`` that is orthogonal to its ``context``, shape ``(n,)``.

    It is the Schur complement of the context in the Gram matrix of unit vectors, by Cholesky elimination with the
    context's vectors one after the other; one that depends on those before it is skipped. Equals ``r_kk² / ‖r_k‖²``
    of the paper's QR decomposition (section IV-C). Rounding may give a value slightly below 0.
    """
    order = [*context, layer]
    gram = cosines[np.ix_(order, order)]
    for pivot in range(len(context)):
        square = gram[pivot, pivot]
        inverse = np.divide(1.0, square, out=np.zeros_like(square), where=square > _ROUNDING**2)
        row = gram[pivot, pivot + 1 :]
        gram[pivot + 1 :, pivot + 1 :] -= row[:, None] * row * inverse
    residual: Doubles = gram[-1, -1]
    return residual
