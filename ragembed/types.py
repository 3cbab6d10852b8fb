"""Array types by element, whose shapes the docstrings give, and arrays by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Halves = NDArray[np.float16]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]
State: TypeAlias = dict[str, NDArray[Any]]
"""The fitted arrays of an object by name."""

Spans: TypeAlias = "Sequence[tuple[int, int]] | Integers"
"""Character spans ``(start, end)``: tuples, or an array of shape ``(n, 2)``."""
