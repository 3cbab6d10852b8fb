"""ragembed's side of encoding documents: a preset, fitted before, tokenizing included."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from waiting import Told, Turn, main

from ragembed import Embedder


def make(request: dict[str, Any]) -> tuple[Turn, Told]:
    """Return a turn that encodes the texts; told is the lowest cosine to the same preset's vectors in float32.

    Those are written where the request wants it. Told are also the seconds of the first pass, loading included.
    """
    texts = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    changes = request.get("changes", {})
    started = time.perf_counter()
    embedder = Embedder.from_preset(request["preset"], **changes).fit(texts)
    found = _units(embedder.encode_documents(texts))
    seconds = time.perf_counter() - started

    def turn(number: int) -> None:
        del number
        embedder.encode_documents(texts)

    exact = Embedder.from_preset(request["preset"], dtype="float32", **changes).fit(texts)
    expected = _units(exact.encode_documents(texts))
    if "exact" in request:
        np.save(request["exact"], expected)
    return turn, {"first": seconds, "lowest_cosine": float(np.einsum("ij,ij->i", found, expected).min())}


def _units(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main(make)
