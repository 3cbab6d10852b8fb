"""Hidden states that are kept: equal results, one forward pass for each text and layer, and the limit."""

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.extractors.kept_states import current, kept_states
from ragembed.models import choice
from tests.core.backbones import BACKBONES

TEXTS = ["hot tea", "", "a wing lifts in the air", "hot air lifts a balloon " * 9, "tea"] * 3


@pytest.fixture
def computed(monkeypatch):
    """The layers of each batch that a model computes, except to compare OpenVINO with NumPy."""
    found = []
    monkeypatch.setattr(choice, "_COMPARED", ())
    for backbone in BACKBONES:

        def spy(self, ids, lengths, layers, _states=backbone.states):
            found.append(tuple(layers))
            return _states(self, ids, lengths, layers)

        monkeypatch.setattr(backbone, "states", spy)
    return found


def vectors(model, layers, dtype="float32", texts=TEXTS, **more):
    config = EmbedderConfig(model=str(model), layers=layers, pooling="mean", dtype=dtype, max_tokens=16, **more)
    return Embedder(config.replace(postprocess=(), weighting="uniform")).fit(texts).raw_documents(texts)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kept_states_are_exact_and_computed_once(tiny_model, computed, dtype):
    plain = [vectors(tiny_model, layers, dtype) for layers in ("last", "0", "0+last")]
    computed.clear()
    with kept_states():
        first = vectors(tiny_model, "last", dtype)
        batches = len(computed)
        assert batches > 0
        again = vectors(tiny_model, "last", dtype)
        assert len(computed) == batches
        with kept_states(None):
            vectors(tiny_model, "last", dtype)
        assert len(computed) == 2 * batches
        del computed[batches:]
        lower = vectors(tiny_model, "0", dtype)
        assert computed[batches:] == [(0,)] * batches
        both = vectors(tiny_model, "0+last", dtype)
        assert len(computed) == 2 * batches
        vectors(tiny_model, "last", dtype, TEXTS[:3])
        assert len(computed) > 2 * batches
    for expected, found in zip(plain, (first, lower, both), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again, first)
    assert current() is None


def test_templates_have_states_of_their_own(tiny_model, computed):
    expected = vectors(tiny_model, "last", template="about [X]")
    with kept_states():
        vectors(tiny_model, "last")
        np.testing.assert_array_equal(vectors(tiny_model, "last", template="about [X]"), expected)


def test_limit(tiny_model, computed):
    """Too large a pass is not kept; of several, the one that was used longest ago is removed."""
    texts = [["tea"], ["wing"], ["air"]]
    with kept_states(1):
        for _ in range(2):
            vectors(tiny_model, "last", texts=texts[0])
    assert len(computed) == 2
    computed.clear()
    with kept_states(1 << 20):
        for part in texts:
            vectors(tiny_model, "last", texts=part)
        size = sum(one.bytes for one in current()._passes.values())
    computed.clear()
    with kept_states(size - 1):
        for part in (*texts[:2], texts[0], texts[2], texts[0]):
            vectors(tiny_model, "last", texts=part)
        assert len(computed) == 3
        vectors(tiny_model, "last", texts=texts[1])
        assert len(computed) == 4


def test_full_disk(tiny_model, computed, monkeypatch):
    """Without room for the states, the vectors are computed again."""
    expected = vectors(tiny_model, "last")
    batches = len(computed)
    computed.clear()

    def write(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ragembed.extractors.kept_states._write", write)
    with kept_states():
        for count in (1, 2):
            np.testing.assert_array_equal(vectors(tiny_model, "last"), expected)
            assert len(computed) == count * batches
        assert not current()._passes
