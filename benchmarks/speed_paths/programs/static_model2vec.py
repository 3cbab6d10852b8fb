"""model2vec's side of static vectors: the same table and tokenizer, in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from model2vec import StaticModel
from tokenizers import Tokenizer
from waiting import Told, Turn, main


def make(request: dict[str, Any]) -> tuple[Turn, Told]:
    """Return a turn; told is the lowest cosine to the vectors that the other side made of some texts."""
    turns = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(request["tokenizer"])
    model = StaticModel(vectors=np.load(request["table"]), tokenizer=tokenizer, max_length=None)

    def encode(texts: list[str]) -> np.ndarray:
        return model.encode(texts, use_multiprocessing=False)

    others, own = np.load(request["vectors"]), encode(turns[0][: request["compared"]])
    lengths = np.linalg.norm(others, axis=1) * np.linalg.norm(own, axis=1)
    cosines = np.einsum("ij,ij->i", others, own) / np.maximum(lengths, 1e-30)

    def turn(number: int) -> None:
        encode(turns[number])

    return turn, {"median_cosine": float(np.median(cosines)), "same": float((cosines > 0.9999).mean())}


if __name__ == "__main__":
    main(make)
