"""A store of many texts for lexical search, with vectors of few dimensions that mean nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from filling import GivenVectors, fill

_DIM = 8

if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    folder = Path(request["folder"])
    drawn = np.random.default_rng(request["seed"]).standard_normal((request["texts"], _DIM), dtype=np.float32)
    fill(folder / "ragembed.partial", GivenVectors(_DIM), folder / "texts.txt", drawn, index="flat")
    (folder / "ragembed.partial").rename(folder / "ragembed")
    print("{}")
