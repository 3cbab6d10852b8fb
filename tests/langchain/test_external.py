from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from ragembed.errors import ConfigError
from ragembed.langchain import RagVectorStore
from ragembed.langchain.embeddings import ExternalEncoder, model_name

from .fakes import Angles, Given


def test_fingerprint_depends_on_class_and_model_name() -> None:
    path = f"{Given.__module__}.Given"
    assert model_name(Given([])) == path
    assert model_name(Given([], "m")) == f"{path}(m)"
    fingerprints = {ExternalEncoder(e).fingerprint for e in (Given([]), Given([[1.0]]), Given([], "m"), Angles())}
    assert len(fingerprints) == 3
    encoder = ExternalEncoder(Given([], "m"))
    assert encoder.describe() == {"kind": "external", "model": f"{path}(m)"}
    assert encoder.raw_fingerprint == encoder.fingerprint


def test_fingerprint_is_the_same_in_every_process() -> None:
    assert ExternalEncoder(DeterministicFakeEmbedding(size=6)).fingerprint == "57b090f278a80aa8917fb0df39cee60e"


def test_vectors_are_unit_float32_and_zero_stays_zero() -> None:
    encoder = ExternalEncoder(Given([[3.0, 4.0], [0.0, 0.0], [-1e-200, 0.0], [1e200, 1e200]]))
    raw = encoder.raw_documents(["a", "b", "c", "d"])
    assert raw.dtype == np.float32
    half = math.sqrt(0.5)
    assert raw == pytest.approx(np.array([[0.6, 0.8], [0.0, 0.0], [-1.0, 0.0], [half, half]]), abs=1e-7)
    assert encoder.postprocess_documents(raw) is raw
    assert encoder.encode_queries(["a", "b"]) == pytest.approx(np.array([[0.6, 0.8]] * 2))
    assert ExternalEncoder(Angles()).raw_documents([]).shape == (0, 0)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 2.0]], "returned 1 vectors for 2 texts"),
        ([[1.0, 2.0], [1.0]], "vectors of 1 and 2 values"),
        ([[], []], "vectors of 0 values"),
        ([[1.0, 2.0], [3.0, math.nan]], "returned nan as value 1 of vector 1"),
    ],
)
def test_invalid_vectors_are_errors(vectors: Any, message: str) -> None:
    with RagVectorStore(Given(vectors, "broken")) as store:
        with pytest.raises(ConfigError, match=message) as raised:
            store.add_texts(["a", "b"])
        assert "Given(broken)" in str(raised.value)
        assert len(store) == 0
