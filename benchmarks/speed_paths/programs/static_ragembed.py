"""ragembed's side of static vectors: plain means of a table's rows, other texts in every turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from waiting import Told, Turn, main

from ragembed import Embedder
from ragembed.extractors.random_embeddings import RandomTable
from ragembed.specs import RandomEmbeddings


def make(request: dict[str, Any]) -> tuple[Turn, Told]:
    """Fit the preset, write the table of its vectors where the request wants it, and return a turn."""
    turns = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    embedder = Embedder.from_preset(request["preset"], weighting="uniform", postprocess=(), **request["changes"])
    embedder.fit(turns[0][: request["fitted"]])
    np.save(request["table"], _table(embedder))
    np.save(request["vectors"], embedder.encode_documents(turns[0][: request["compared"]]))

    def turn(number: int) -> None:
        embedder.encode_documents(turns[number])

    return turn, {}


def _table(embedder: Embedder) -> np.ndarray:
    """Return the static vectors of all token ids, float32, shape ``(vocabulary, d)``."""
    extraction = embedder.config.extraction
    if isinstance(extraction, RandomEmbeddings):
        table = RandomTable(embedder.config.seed, extraction.dim, extraction.sigma)
        return table.rows(np.arange(embedder.tokenizer.vocabulary_size))
    return embedder.extractor.state()["avg.vectors"]


if __name__ == "__main__":
    main(make)
