"""sentence-transformers' side of encoding documents, with its defaults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from waiting import Told, Turn, main


def make(request: dict[str, Any]) -> tuple[Turn, Told]:
    """Return a turn that encodes the texts."""
    texts = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    model = SentenceTransformer(request["model"], device="cpu")
    model.encode(texts[:32])

    def turn(number: int) -> None:
        del number
        model.encode(texts)

    return turn, {}


if __name__ == "__main__":
    main(make)
