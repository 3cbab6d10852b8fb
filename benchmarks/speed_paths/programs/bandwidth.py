"""How many bytes the memory moves in a second: reading one large array and writing another, by NumPy's copy."""

from __future__ import annotations

import json
import time

import numpy as np

_BYTES = 256 * 2**20
_TRIES = 7

source = np.ones(_BYTES, dtype=np.uint8)
target = np.empty_like(source)
taken = []
for _ in range(_TRIES):
    started = time.perf_counter()
    np.copyto(target, source)
    taken.append(time.perf_counter() - started)
print(json.dumps({"bytes_per_second": 2 * _BYTES / min(taken)}))
