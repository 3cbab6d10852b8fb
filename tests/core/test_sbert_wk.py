import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from ragembed.config.specs import SbertWk
from ragembed.errors import ConfigError
from ragembed.extractors.sbert_wk import token_vectors

VARIANTS = ("paper", "released-code")
DIM = 24


def drifting_states(n_layers, shape=(3, 7), step=0.5, seed=0):
    """Return token vectors that rotate a little from layer to layer, as in a model; NaN at padding."""
    rng = np.random.default_rng(seed)
    lengths = np.array([shape[1], 4, 2])[: shape[0]]
    state = rng.standard_normal((*shape, DIM))
    states = [state]
    for _ in range(n_layers):
        state = state + step * rng.standard_normal((*shape, 1)) ** 2 * rng.standard_normal((*shape, DIM))
        states.append(state)
    padding = np.arange(shape[1]) >= lengths[:, None]
    return [np.where(padding[..., None], np.nan, state).astype(np.float32) for state in states], lengths


def cosine(a, b):
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def by_the_paper(layers, settings):
    """Fuse one token by the paper's equations, one layer at a time; ``layers`` is float64, (L + 1, d)."""
    fused = layers[settings.start_layer :]
    inverse_alignment, novelty = [], []
    for i, vector in enumerate(fused):
        around = [j for j in range(i - settings.window, i + settings.window + 1) if j != i and 0 <= j < len(fused)]
        inverse_alignment.append(1 / np.mean([cosine(vector, fused[j]) for j in around]))
        basis, _ = np.linalg.qr(fused[around].T)
        novelty.append(np.linalg.norm(vector - basis @ (basis.T @ vector)) / np.linalg.norm(vector))
    variance = np.var([cosine(a, b) for a, b in pairwise(layers)])
    return fuse(fused, inverse_alignment, novelty, settings), variance


def by_the_program(layers, settings):
    """Fuse one token like the loops of the authors: last column of R of the window, with Python's slices."""
    fused = layers[settings.start_layer :]
    inverse_alignment, novelty = [], []
    for i in range(len(fused)):
        left, right = fused[i - settings.window : i], fused[i + 1 : i + 1 + settings.window]
        window = np.concatenate([left, right, fused[i : i + 1]])
        upper = np.linalg.qr(window.T, mode="r")
        context, projected = upper[:-1, :-1], upper[:-1, -1]
        directions = context / np.linalg.norm(context, axis=0)
        alignment = directions.mean(axis=1) @ projected / np.linalg.norm(projected)
        inverse_alignment.append(1 / (alignment * len(window) * 2))
        novelty.append(abs(upper[-1, -1]) / np.linalg.norm(upper[:, -1]))
    similarity = np.array([[cosine(a, b) for b in fused] for a in fused])
    return fuse(fused, inverse_alignment, novelty, settings), np.var(similarity.diagonal(-1))


def fuse(fused, inverse_alignment, novelty, settings):
    chosen = [w for w, wanted in ((inverse_alignment, settings.alignment), (novelty, settings.novelty)) if wanted]
    weights = sum(np.array(w) / sum(w) for w in chosen or [np.ones(len(fused))])
    return fused.T @ (weights / weights.sum())


def assert_equals_loops(settings, states, lengths):
    settings.check(len(states) - 1)
    needed = [states[layer] for layer in settings.layers(len(states) - 1)]
    vectors, importance = token_vectors(settings, needed, lengths)
    assert vectors.dtype == importance.dtype == np.float32
    assert vectors.shape == states[0].shape
    assert importance.shape == states[0].shape[:2]
    one_token = by_the_paper if settings.variant == "paper" else by_the_program
    for row, length in enumerate(lengths):
        used = length if settings.variant == "paper" else length - 1
        for token in range(used):
            vector, variance = one_token(np.array([state[row, token] for state in states], dtype=np.float64), settings)
            np.testing.assert_allclose(vectors[row, token], vector, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(importance[row, token], variance if settings.importance else 1.0, rtol=1e-5)
        assert not vectors[row, used:].any()
        assert not importance[row, used:].any()


def stack(*layers):
    """Return the states of a text with one token (two for the released code, which drops the last)."""
    return [np.array([[layer, layer]], dtype=np.float32) for layer in layers], np.array([2])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("n_layers", "start_layer", "window"), [(6, 4, 2), (12, 4, 2), (5, 0, 1), (8, 2, 3), (6, 3, 3)]
)
def test_results_equal_plain_loops(variant, n_layers, start_layer, window):
    states, lengths = drifting_states(n_layers)
    assert_equals_loops(SbertWk(window=window, start_layer=start_layer, variant=variant), states, lengths)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("ablation", ["alignment", "novelty", "importance"])
def test_each_part_can_be_disabled(variant, ablation):
    states, lengths = drifting_states(6)
    whole = SbertWk(variant=variant)
    part = dataclasses.replace(whole, **{ablation: False})
    assert_equals_loops(part, states, lengths)
    results = [token_vectors(settings, states[-len(settings.layers(6)) :], lengths) for settings in (whole, part)]
    changed = 1 if ablation == "importance" else 0
    assert not np.allclose(results[0][changed], results[1][changed], rtol=1e-4)
    np.testing.assert_allclose(results[0][1 - changed], results[1][1 - changed], rtol=1e-5)


def test_more_tokens_than_a_block():
    states, _ = drifting_states(3, shape=(1, 300))
    assert_equals_loops(SbertWk(window=1, start_layer=1), states, np.array([300]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_identical_layers_have_uniform_importance(variant):
    state = np.random.default_rng(0).standard_normal((2, 9, 384)).astype(np.float32)
    settings = SbertWk(variant=variant)
    vectors, importance = token_vectors(settings, [state] * len(settings.layers(12)), np.array([9, 9]))
    used = 9 if variant == "paper" else 8
    np.testing.assert_allclose(vectors[:, :used], state[:, :used], rtol=1e-6)
    shares = importance / importance.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares[:, :used], 1 / used, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_equal_directions_have_uniform_importance(variant, scale):
    state = np.random.default_rng(0).standard_normal((1, 5, 384)).astype(np.float32)
    settings = SbertWk(variant=variant)
    states = [np.float32(scale * (1 + layer / 7)) * state for layer in settings.layers(12)]
    vectors, importance = token_vectors(settings, states, np.array([5]))
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(importance[0, :4], importance[0, 0], rtol=1e-3)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("zero", [(0,), (5,), (4, 6), range(7)])
def test_zero_vectors_are_finite(variant, zero):
    states, lengths = drifting_states(6)
    states = [np.zeros_like(state) if layer in zero else state for layer, state in enumerate(states)]
    settings = SbertWk(variant=variant)
    vectors, importance = token_vectors(settings, states[-len(settings.layers(6)) :], lengths)
    assert np.isfinite(vectors).all()
    assert np.isfinite(importance).all()
    assert (importance[:, 0] > 0).all()


def test_zero_vector_has_no_novelty():
    states, lengths = stack([1, 0], [0, 0], [0, 1])
    vectors, _ = token_vectors(SbertWk(window=1, start_layer=0, alignment=False), states, lengths)
    np.testing.assert_allclose(vectors[0, 0], [1 / 2, 1 / 2], rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_opposite_layers_have_finite_non_negative_weights(variant):
    states, lengths = stack([1, 0, 0], [-1, 0.1, 0], [1, 0, 0.1], [-1, 0, 0.1])
    settings = SbertWk(window=1, start_layer=0, novelty=False, variant=variant)
    vectors, _ = token_vectors(settings, states, lengths)
    np.testing.assert_allclose(vectors[0, 0], np.mean([state[0, 0] for state in states], axis=0), rtol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1.3])
def test_repeated_layer_adds_no_direction_to_the_context(scale):
    # After scaling, the repeated layer differs from the first only by float32 rounding, which is not a new direction.
    first, second, last = np.random.default_rng(0).standard_normal((3, 1, 50, 384)).astype(np.float32) + np.float32(1)
    states = [first, second, np.float32(scale) * second, last]
    settings = SbertWk(window=3, start_layer=0, alignment=False, importance=False)
    vectors, _ = token_vectors(settings, states, np.array([50]))

    def novelty(vector, *context):
        basis, _ = np.linalg.qr(np.array(context, dtype=np.float64).T)
        return np.linalg.norm(vector - basis @ (basis.T @ vector)) / np.linalg.norm(vector)

    for token in range(50):
        a, b, c = first[0, token], second[0, token], last[0, token]
        weights = np.array([novelty(a, b, c), 1e-6, 1e-6, novelty(c, a, b)])
        expected = weights / weights.sum() @ np.array([state[0, token] for state in states])
        np.testing.assert_allclose(vectors[0, token], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_both_decompositions_give_the_same_vectors(variant):
    """Equal layers, whose context has fewer directions than layers, and a zero vector included."""
    states, lengths = drifting_states(8)
    states[5], states[6][0, 0] = states[4].copy(), 0.0
    settings = [SbertWk(start_layer=2, variant=variant, decomposition=each) for each in ("qr", "svd")]
    first, second = (token_vectors(each, [states[layer] for layer in each.layers(8)], lengths) for each in settings)
    np.testing.assert_allclose(first[0], second[0], atol=1e-5)
    np.testing.assert_array_equal(first[1], second[1])


def test_variance_of_cosines_close_to_1():
    # Cosines differ from 1 by about 1e-6, which is only a few rounding steps in float32.
    states, lengths = drifting_states(6, step=5e-4)
    assert_equals_loops(SbertWk(start_layer=2), states, lengths)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("importance", [True, False])
def test_texts_with_one_and_no_token(variant, importance):
    states, _ = drifting_states(6, shape=(2, 3))
    settings = SbertWk(variant=variant, importance=importance)
    states = states[-len(settings.layers(6)) :]
    vectors, weights = token_vectors(settings, states, np.array([1, 0]))
    assert weights[0, 0] > 0
    assert vectors[0, 0].any()
    assert not weights[0, 1:].any()
    assert not vectors[1].any()
    assert not weights[1].any()


@pytest.mark.parametrize(
    ("options", "n_layers", "message"),
    [
        ({"window": 0}, 6, "window is 0: expected at least 1"),
        ({"start_layer": -1}, 6, "start_layer is -1: expected a layer of the model, from 0 to 6"),
        ({"start_layer": 7}, 6, "start_layer is 7: expected a layer of the model, from 0 to 6"),
        ({"window": 3}, 6, "there are 3, from 4 to 6, and a window of 3 needs at least 4; lower start_layer or window"),
        ({"window": 3, "novelty": False}, 6, "too few layers for a window"),
        ({"window": 3, "variant": "released-code"}, 6, "too few layers for a window"),
        (
            {"window": 1, "start_layer": 5, "variant": "released-code"},
            6,
            "there are 2, and the variance of cosines between consecutive layers needs at least 3",
        ),
        ({"window": 1, "start_layer": 0}, 1, "too few layers for token importance"),
        ({"decomposition": "lu"}, 6, "decomposition is 'lu': expected one of qr, svd"),
        ({"variant": "code"}, 6, "variant is 'code': expected one of paper, released-code"),
    ],
)
def test_settings_that_do_not_match_a_model(options, n_layers, message):
    with pytest.raises(ConfigError, match=message):
        SbertWk(**options).check(n_layers)
