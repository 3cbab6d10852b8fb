"""Searches under random filters, with every kind of index, beside exact search of what a plain mask selects."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from ragembed.errors import IndexWarning
from ragembed.indexes import Store
from ragembed.indexes.faiss_index.records import NAMES
from tests.conftest import KnownEncoder, record
from tests.slow.helpers import scaled

pytestmark = pytest.mark.slow

CHUNKS, DIM, TOPICS, K = 12_000, 32, 200, 10
EXACT = ("flat", "fp16", "sq8")
TIE = 1e-3

Filter = tuple[str, np.ndarray]
"""An expression, and which chunks it selects."""


@pytest.fixture(scope="module")
def chunks() -> dict[str, np.ndarray]:
    """Unit vectors around some topics, and metadata: a number, the topic, and a field that half of the chunks have."""
    rng = np.random.default_rng(0)
    topics = rng.integers(TOPICS, size=CHUNKS)
    vectors = rng.standard_normal((TOPICS, DIM))[topics] + 0.5 * rng.standard_normal((CHUNKS, DIM))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    rare = np.where(rng.random(CHUNKS) < 0.5, rng.integers(100, size=CHUNKS), -1)
    return {"vectors": vectors, "topic": topics, "number": rng.integers(1000, size=CHUNKS), "rare": rare}


def a_filter(rng: np.random.Generator, chunks: dict[str, np.ndarray], depth: int) -> Filter:
    """Return a random expression."""
    if depth and rng.random() < 0.6:
        one, other = (a_filter(rng, chunks, depth - 1) for _ in range(2))
        if rng.random() < 0.25:
            return f"NOT ({one[0]})", ~one[1]
        word, joined = ("AND", one[1] & other[1]) if rng.random() < 0.5 else ("OR", one[1] | other[1])
        return f"({one[0]}) {word} ({other[0]})", joined
    leaves: tuple[Callable[[], Filter], ...] = (
        lambda: _below(chunks, int(1000 * 10 ** rng.uniform(-3, 0))),
        lambda: _between(chunks, sorted(rng.integers(1000, size=2).tolist())),
        lambda: _one_of(chunks, rng.integers(TOPICS, size=3).tolist()),
        lambda: _rare(chunks, int(rng.integers(100))),
    )
    return leaves[rng.integers(len(leaves))]()


def _below(chunks: dict[str, np.ndarray], limit: int) -> Filter:
    return f"number < {limit}", chunks["number"] < limit


def _between(chunks: dict[str, np.ndarray], ends: list[int]) -> Filter:
    low, high = ends
    return f"number BETWEEN {low} AND {high}", (chunks["number"] >= low) & (chunks["number"] <= high)


def _one_of(chunks: dict[str, np.ndarray], topics: list[int]) -> Filter:
    return f"topic IN ({', '.join(map(str, topics))})", np.isin(chunks["topic"], topics)


def _rare(chunks: dict[str, np.ndarray], value: int) -> Filter:
    """A missing field matches nothing but what is negated."""
    return f"rare >= {value}", chunks["rare"] >= value


@pytest.mark.parametrize("kind", NAMES)
def test_a_filtered_search_finds_what_exact_search_finds(kind, chunks, tmp_path):
    rng, vectors = np.random.default_rng(len(kind)), chunks["vectors"]
    table = {f"chunk {i}": row for i, row in enumerate(vectors.tolist())}
    metadata = [
        {name: int(chunks[name][i]) for name in ("topic", "number", "rare") if chunks[name][i] >= 0}
        for i in range(CHUNKS)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IndexWarning)  # what is found is compared here
        with Store.create(tmp_path / "s", KnownEncoder(table), index=kind) as store:
            store.add(record(str(i), f"chunk {i}", metadata=metadata[i]) for i in range(CHUNKS))
            halves = vectors.astype(np.float16).astype(np.float32)
            halves /= np.linalg.norm(halves, axis=1, keepdims=True)
            shares = []
            for _ in range(scaled(60)):
                where, selected = a_filter(rng, chunks, 3)
                query = vectors[rng.integers(CHUNKS)] + 0.3 * rng.standard_normal(DIM).astype(np.float32)
                hits = store.search_vector(query, K, where=where)
                scores = halves @ (query / np.linalg.norm(query))
                best = np.sort(scores[selected])[::-1][:K]
                assert len(hits) == len(best), where
                assert all(selected[int(hit.id)] for hit in hits), where
                assert all(abs(scores[int(hit.id)] - hit.score) < TIE for hit in hits), where
                assert all(one.score >= other.score for one, other in pairwise(hits)), where
                if len(best):
                    shares.append(np.mean([hit.score >= best[-1] - 1e-5 for hit in hits]))
    assert np.mean(shares) >= (1.0 if kind in EXACT else 0.95)
