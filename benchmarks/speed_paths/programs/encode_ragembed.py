"""ragembed's side of encoding documents: a preset, fitted before, tokenizing included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from waiting import Told, Turn, main

from ragembed import Embedder


def make(request: dict[str, Any]) -> tuple[Turn, Told]:
    """Return a turn that encodes the texts; told is the lowest cosine to the same preset's vectors in float32."""
    texts = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    embedder = Embedder.from_preset(request["preset"]).fit(texts)

    def turn(number: int) -> None:
        del number
        embedder.encode_documents(texts)

    exact = Embedder.from_preset(request["preset"], dtype="float32").fit(texts)
    cosines = np.einsum("ij,ij->i", _units(embedder.encode_documents(texts)), _units(exact.encode_documents(texts)))
    return turn, {"lowest_cosine": float(cosines.min())}


def _units(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main(make)
