"""SBERT-WK: fuse the layers of each token, and weight the tokens. Pure functions on arrays.

Source: Wang & Kuo 2020, *SBERT-WK*, section IV, and the authors' program (``unify_token`` and ``unify_sentence``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import SbertWk
from ragembed.types import Doubles, Floats

_ROUNDING = 1e-6
"""Lower bound of novelty, alignment and projection, relative to the length of the vector: below it is float32 rounding.
The bound keeps weights finite for equal, orthogonal and zero layers. A negative mean cosine, whose inverse is not a
valid weight, counts as the smallest alignment."""

_LEAST_VARIANCE = 1e-24
"""Added to the importance of every token. It is above the float64 rounding for equal layers (1e-31) and far below real
importances (1e-6 to 1e-2). Tokens whose direction never changes get equal importance, and no text has a total of 0."""

_BLOCK = 256  # tokens fused at a time: few enough for the cache, many enough to amortise the cost of NumPy calls


def token_vectors(settings: SbertWk, states: Sequence[Floats], lengths: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Fuse the layers of each token; return the vectors, ``(batch, tokens, d)``, and importances, ``(batch, tokens)``.

    ``states`` are the hidden states of :meth:`SbertWk.layers`, float32, ``(batch, tokens, d)``, with any values at the
    padding on the right; ``lengths`` counts special tokens. Results are float32, and 0 at padding and excluded tokens:
    the variant ``released-code`` excludes the last token of a text, unless it is the only one. Importances are above 0
    and not normalised.

    Cosines between layers are close to 1, so they and their variance are computed in float64. The result for a text
    does not depend on the other texts in the batch.
    """
    batch, tokens, dim = states[0].shape
    used = lengths if settings.variant == "paper" else np.maximum(lengths - 1, np.minimum(lengths, 1))
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
            np.take(state, block, axis=0, out=layer, mode="clip")  # the default, "raise", makes an extra copy
        precise[:] = layers
        weights, importance[block] = _weigh(settings, precise)
        vectors[block] = _weighted_sum(weights, layers[-len(weights) :])
    return vectors.reshape(batch, tokens, dim), importance.reshape(batch, tokens)


def _weigh(settings: SbertWk, vectors: Doubles) -> tuple[Doubles, Doubles]:
    """Return the weights of the fused layers, ``(fused, n)``, and the importances of the tokens, ``(n,)``.

    ``vectors`` has shape ``(layers, n, d)``; the fused layers come last.
    """
    first = settings.start_layer if settings.compares_all_layers else 0
    windowed = settings.alignment or settings.novelty
    cosines = _cosines(vectors, first, 2 * settings.window if windowed else 1)
    importance = np.ones(vectors.shape[1])
    if settings.importance:
        importance = np.diagonal(cosines, offset=1).var(axis=-1) + _LEAST_VARIANCE
    return _layer_weights(settings, cosines[first:, first:], vectors[first:]), importance


def _layer_weights(settings: SbertWk, cosines: Doubles, vectors: Doubles) -> Doubles:
    """Return the weights of the fused layers, ``(layers, n)``, with sum 1.

    ``cosines`` are those between the fused layers, ``(layers, layers, n)``; ``vectors`` are ``(layers, n, d)``.
    """
    if not (settings.alignment or settings.novelty):
        return np.full(cosines.shape[1:], 1.0 / len(cosines))
    inverse_alignment, novelty = np.empty(cosines.shape[1:]), np.empty(cosines.shape[1:])
    for layer in range(len(cosines)):
        context = _context(settings, layer, len(cosines))
        by_svd = settings.decomposition == "svd"
        residual = _svd_residual(vectors, context, layer) if by_svd else _residual(cosines, context, layer)
        orthogonal = np.maximum(residual, _ROUNDING**2)
        novelty[layer] = np.sqrt(orthogonal)
        alignment = cosines[layer, context].mean(axis=0)
        if settings.variant == "released-code":
            projection = np.sqrt(np.maximum(1.0 - orthogonal, _ROUNDING**2))
            alignment = alignment / projection * (2 * (len(context) + 1))
        inverse_alignment[layer] = 1.0 / np.maximum(alignment, _ROUNDING)
    chosen = [*([inverse_alignment] if settings.alignment else []), *([novelty] if settings.novelty else [])]
    weights: Doubles = np.mean([measure / measure.sum(axis=0) for measure in chosen], axis=0)
    return weights


def _context(settings: SbertWk, layer: int, count: int) -> list[int]:
    """Return the layers that form the context of ``layer``, out of ``count`` fused layers."""
    left = range(max(layer - settings.window, 0), layer)
    if settings.variant == "released-code" and layer < settings.window:
        left = range(0)  # the program slices from a negative index, which gives an empty range here
    return [*left, *range(layer + 1, min(layer + settings.window + 1, count))]


def _weighted_sum(weights: Doubles, layers: Floats) -> Floats:
    """Return the sum of ``layers``, ``(layers, n, d)``, weighted by ``weights``, ``(layers, n)``, in float32."""
    total: Floats = np.zeros_like(layers[0])
    for weight, layer in zip(weights.astype(np.float32), layers, strict=True):
        total += weight[:, None] * layer
    return total


def _cosines(vectors: Doubles, first: int, reach: int) -> Doubles:
    """Return the cosines between layers of ``vectors``, ``(layers, n, d)``, as a symmetric ``(layers, layers, n)``.

    Only the cosines of consecutive layers are computed, and from layer ``first`` those of layers up to ``reach`` apart;
    the others are 0. A zero vector has cosine 0 with every vector, including itself.
    """
    lengths = np.sqrt(np.einsum("ktd,ktd->kt", vectors, vectors))
    inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    cosines = np.zeros((len(vectors), *lengths.shape))
    numbers = np.arange(len(vectors))
    cosines[numbers, numbers] = lengths > 0
    for apart in range(1, min(reach, len(vectors) - 1) + 1):
        start, end = 0 if apart == 1 else first, len(vectors) - apart
        dots = np.einsum("ktd,ktd->kt", vectors[start:end], vectors[start + apart :])
        lower, upper = numbers[start:end], numbers[start + apart :]
        cosines[lower, upper] = cosines[upper, lower] = dots * inverse[lower] * inverse[upper]
    return cosines


def _residual(cosines: Doubles, context: list[int], layer: int) -> Doubles:
    """Return the squared share of each vector at ``layer`` that is orthogonal to its ``context``, shape ``(n,)``.

    This is the Schur complement of the context in the Gram matrix of unit vectors, computed by Cholesky elimination; a
    context vector that depends linearly on earlier ones is skipped. It equals ``r_kk² / ‖r_k‖²`` of the paper's QR
    decomposition (section IV-C). Rounding may give a value slightly below 0.
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


def _svd_residual(vectors: Doubles, context: list[int], layer: int) -> Doubles:
    """Return the same as :func:`_residual`, by a singular value decomposition of the context (section IV-B)."""
    chosen = vectors[[*context, layer]]
    lengths = np.linalg.norm(chosen, axis=2, keepdims=True)
    unit = np.divide(chosen, lengths, out=np.zeros_like(chosen), where=lengths > 0)
    _, sizes, basis = np.linalg.svd(unit[:-1].transpose(1, 0, 2), full_matrices=False)
    shares = np.einsum("nkd,nd->nk", basis, unit[-1]) * (sizes > _ROUNDING)
    residual: Doubles = (unit[-1] ** 2).sum(axis=1) - (shares**2).sum(axis=1)
    return residual
