"""Vectors for made texts, near to MiniLM's of what they are made of, and a store of them with MiniLM for questions."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from filling import fill

from ragembed import Embedder
from ragembed.postprocess import unit_rows

_NOISE = 0.3
"""Length of what is added at random to the mean of two unit vectors."""
_BLOCK = 10_000


def run(folder: Path, seed: int) -> None:
    """Write ``vectors.npy``, float32, shape ``(n, d)``, and the store ``ragembed`` below ``folder``."""
    sources = json.loads((folder / "sources.json").read_text(encoding="utf-8"))
    embedder = Embedder.from_preset("minilm").fit(sources)
    encoded = unit_rows(embedder.raw_documents(sources))
    pairs = np.load(folder / "pairs.npy")
    rng, vectors = np.random.default_rng(seed), np.empty((len(pairs), encoded.shape[1]), dtype=np.float32)
    for start in range(0, len(pairs), _BLOCK):
        block = pairs[start : start + _BLOCK]
        noise = rng.standard_normal((len(block), encoded.shape[1]), dtype=np.float32) * _NOISE
        mean = encoded[block].mean(axis=1)
        vectors[start : start + len(block)] = unit_rows(mean + noise / np.sqrt(encoded.shape[1]))
    np.save(folder / "vectors.npy", vectors)
    fill(folder / "ragembed.partial", embedder, folder / "texts.txt", vectors)
    (folder / "ragembed.partial").rename(folder / "ragembed")


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    run(Path(request["folder"]), request["seed"])
    print("{}")
