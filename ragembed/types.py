"""Array types by element; docstrings give the shapes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Halves = NDArray[np.float16]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]
