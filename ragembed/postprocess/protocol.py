"""What every post-processor offers: ``fit``, ``transform``, and a state of named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ragembed.errors import NotFittedError

Floats = NDArray[np.float32]
State = dict[str, NDArray[np.float32]]


class PostProcessor(Protocol):
    """A map of vectors to vectors, fitted on vectors. Arrays are float32, C-order, shape ``(n, d)``."""

    def fit(self, vectors: Floats) -> Self:
        """Fit on ``vectors``, shape ``(n, d)``, ``n >= 1``; a former fit is forgotten."""
        ...

    def transform(self, vectors: Floats) -> Floats:
        """Map ``vectors``, shape ``(n, d)``, to shape ``(n, d')``."""
        ...

    def state(self) -> State:
        """Return what was fitted as named float32 arrays."""
        ...

    def restore(self, state: Mapping[str, NDArray[np.float32]]) -> Self:
        """Take back what :meth:`state` gave; raises :class:`NotFittedError` when an array is missing."""
        ...


def require(state: Mapping[str, NDArray[np.float32]], name: str) -> NDArray[np.float32]:
    """Return the array ``name`` of ``state``; raises :class:`NotFittedError` naming it when it is missing."""
    if name not in state:
        raise NotFittedError(f"the saved state has no array {name!r}: it was not saved by a fitted post-processor")
    return state[name]
