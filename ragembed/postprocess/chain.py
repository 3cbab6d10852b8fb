"""Chains of post-processors, one for each side of retrieval.

Questions are short and documents long, so their vectors have different statistics: each step is fitted once on
document vectors and once on pseudo-query vectors (``sides="two"``). For symmetric tasks one fit serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragembed.postprocess.center import Center
from ragembed.postprocess.normalize import Normalize
from ragembed.postprocess.protocol import Floats, PostProcessor, State
from ragembed.postprocess.zscore import ZScore

_STEPS: Mapping[str, Callable[[], PostProcessor]] = {"center": Center, "zscore": ZScore, "normalize": Normalize}


class Chain:
    """Post-processors applied one after the other; each is fitted on what the one before it gives."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._steps = [_STEPS[name]() for name in names]

    def fit(self, vectors: Floats) -> Chain:
        """Fit every step on ``vectors``, float32, shape ``(n, d)``, ``n >= 1``."""
        for step in self._steps:
            vectors = step.fit(vectors).transform(vectors)
        return self

    def transform(self, vectors: Floats) -> Floats:
        """Return ``vectors``, shape ``(n, d)``, after every step; float32, C-order."""
        for step in self._steps:
            vectors = step.transform(vectors)
        return np.ascontiguousarray(vectors, dtype=np.float32)

    def state(self) -> State:
        """Return the steps' arrays, named ``<position>.<name>``."""
        return {f"{i}.{name}": array for i, step in enumerate(self._steps) for name, array in step.state().items()}

    def restore(self, state: Mapping[str, NDArray[np.float32]]) -> Chain:
        """Take back :meth:`state`; raises :class:`ragembed.errors.NotFittedError` when an array is missing."""
        for i, step in enumerate(self._steps):
            step.restore(_below(state, f"{i}."))
        return self


@dataclass(frozen=True, slots=True)
class TwoSidedChain:
    """A fitted chain for documents and one for queries (the same object when one side serves both)."""

    documents: Chain
    queries: Chain

    @classmethod
    def fit(cls, names: Sequence[str], documents: Floats, queries: Floats | None) -> TwoSidedChain:
        """Fit on raw document vectors and raw pseudo-query vectors; ``queries=None`` fits one side for both."""
        fitted = Chain(names).fit(documents)
        return cls(fitted, fitted if queries is None else Chain(names).fit(queries))

    def state(self) -> State:
        """Return both chains' arrays, named ``documents.…`` and, if it is another one, ``queries.…``."""
        arrays = {f"documents.{name}": array for name, array in self.documents.state().items()}
        if self.queries is not self.documents:
            arrays.update({f"queries.{name}": array for name, array in self.queries.state().items()})
        return arrays

    @classmethod
    def restore(cls, names: Sequence[str], state: Mapping[str, NDArray[np.float32]], two: bool) -> TwoSidedChain:
        """Take back :meth:`state`; ``two`` says whether the query side has a chain of its own."""
        documents = Chain(names).restore(_below(state, "documents."))
        return cls(documents, Chain(names).restore(_below(state, "queries.")) if two else documents)


def _below(state: Mapping[str, NDArray[np.float32]], prefix: str) -> dict[str, NDArray[np.float32]]:
    return {name[len(prefix) :]: array for name, array in state.items() if name.startswith(prefix)}
