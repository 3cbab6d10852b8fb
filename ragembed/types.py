"""Array types by element; docstrings give the shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Halves = NDArray[np.float16]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

Spans: TypeAlias = "Sequence[tuple[int, int]] | Integers"
"""Character spans ``(start, end)``: tuples, or an array of shape ``(n, 2)``."""
