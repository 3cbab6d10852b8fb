"""Chains of post-processors, one for each side of retrieval.

Queries are short and documents long, so their vectors have different statistics: each step is fitted once on
document vectors and once on pseudo-query vectors (``query_fit="separate"``). For symmetric tasks one fit serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import parse_postprocessor
from ragembed.errors import ConfigError, ModelError
from ragembed.postprocess.abtt import AllButTheTop
from ragembed.postprocess.center import Center
from ragembed.postprocess.normalize import Normalize
from ragembed.postprocess.parts import Parts
from ragembed.postprocess.protocol import PostProcessor, State
from ragembed.postprocess.quantile import Quantile
from ragembed.postprocess.robust import Robust
from ragembed.postprocess.whiten import Whiten
from ragembed.postprocess.zscore import ZScore
from ragembed.types import Floats

_PLAIN: Mapping[str, Callable[[], PostProcessor]] = {
    "center": Center,
    "zscore": ZScore,
    "quantile-u": lambda: Quantile("uniform"),
    "quantile-n": lambda: Quantile("normal"),
    "robust": Robust,
    "whiten": Whiten,
    "abtt": AllButTheTop,
    "normalize": Normalize,
}
_NUMBERED: Mapping[str, Callable[[int], PostProcessor]] = {"whiten": Whiten, "abtt": AllButTheTop}


def post_processor(spec: str) -> PostProcessor:
    """Return the post-processor that ``spec`` names, not fitted; raises :class:`ConfigError` for an unknown one."""
    name, number = parse_postprocessor(spec)
    return _PLAIN[name]() if number is None else _NUMBERED[name](number)


class Chain:
    """Post-processors applied one after the other; each is fitted on what the one before it gives.

    Parameters
    ----------
    specs
        What they are, as in ``["abtt:2", "normalize"]``; none leaves vectors as they are.
    """

    def __init__(self, specs: Sequence[str]) -> None:
        self.specs = tuple(specs)
        self._steps = [post_processor(spec) for spec in specs]

    @property
    def learns(self) -> bool:
        """Whether a step has anything to fit."""
        return any(step.saved for step in self._steps)

    @property
    def dim(self) -> int | None:
        """Dimension of the vectors that come out; None before a fit, and where nothing fitted depends on it."""
        dims = self._dims()
        return dims[-1][1] if dims else None

    def fit(self, vectors: Floats) -> Chain:
        """Fit every step on ``vectors``, float32, shape ``(n, d)``, ``n >= 1``."""
        for step in self._steps:
            vectors = step.fit(vectors).transform(vectors)
        return self

    def fit_queries(self, vectors: Floats, documents: Chain) -> Chain:
        """Fit every step on query vectors, given the fitted chain of the document side."""
        for step, of_documents in zip(self._steps, documents._steps, strict=True):
            vectors = step.fit_queries(vectors, of_documents).transform(vectors)
        return self

    def transform(self, vectors: Floats) -> Floats:
        """Return ``vectors``, shape ``(n, d)``, after every step; float32, C-order."""
        for step in self._steps:
            vectors = step.transform(vectors)
        return np.ascontiguousarray(vectors, dtype=np.float32)

    @property
    def additive(self) -> bool:
        """Whether the parts of a vector account for all of what comes out."""
        return all(step.additive for step in self._steps)

    def transform_parts(self, parts: Parts) -> Parts:
        """Map the parts of one vector to parts of what :meth:`transform` makes of it; see :class:`PostProcessor`."""
        for step in self._steps:
            parts = step.transform_parts(parts)
        return parts

    def state(self) -> State:
        """Return the steps' arrays, named ``<position>.<name>``."""
        return {f"{i}.{name}": array for i, step in enumerate(self._steps) for name, array in step.state().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Chain:
        """Take back :meth:`state`.

        Raises :class:`NotFittedError` when an array is missing, and :class:`ModelError` when one is unknown, is not
        of the type and shape that was saved, or does not fit those of the step before.
        """
        positions = {str(i) for i in range(len(self._steps))}
        for name in state:
            if name.partition(".")[0] not in positions:
                raise ModelError(
                    f"the saved state has an unknown array {name!r}: the chain has {len(positions)} post-processors"
                )
        for i, step in enumerate(self._steps):
            step.restore(_below(state, f"{i}."))
        dims = self._dims()
        for (_, out), (into, _) in pairwise(dims):
            if out != into:
                raise ModelError(
                    f"the saved post-processors do not follow each other: one gives {out} dimensions, "
                    f"the next takes {into}"
                )
        return self

    def _dims(self) -> list[tuple[int, int]]:
        return [step.dims for step in self._steps if step.dims is not None]


@dataclass(frozen=True, slots=True)
class TwoSidedChain:
    """A fitted chain for documents and one for queries (the same object when one side serves both)."""

    documents: Chain
    queries: Chain

    @classmethod
    def fit(cls, specs: Sequence[str], documents: Floats, queries: Floats | None) -> TwoSidedChain:
        """Fit on raw document vectors and raw pseudo-query vectors, both of shape ``(n, d)``.

        ``queries=None`` fits one side for both. Raises :class:`ConfigError` where the sides have different dimensions.
        """
        if queries is not None and queries.shape[1:] != documents.shape[1:]:
            raise ConfigError(
                f"the query vectors have shape {queries.shape}, the document vectors {documents.shape}: "
                "expected the same dimension"
            )
        fitted = Chain(specs).fit(documents)
        return cls(fitted, fitted if queries is None else Chain(specs).fit_queries(queries, fitted))

    def state(self) -> State:
        """Return both chains' arrays, named ``documents.…`` and, if it is another one, ``queries.…``."""
        arrays = {f"documents.{name}": array for name, array in self.documents.state().items()}
        if self.queries is not self.documents:
            arrays.update({f"queries.{name}": array for name, array in self.queries.state().items()})
        return arrays

    @classmethod
    def restore(cls, specs: Sequence[str], state: Mapping[str, NDArray[Any]], two: bool) -> TwoSidedChain:
        """Take back :meth:`state`; ``two`` says whether the query side has a chain of its own.

        Raises what :meth:`Chain.restore` raises, and :class:`ModelError` where the sides have different dimensions.
        """
        documents = Chain(specs).restore(_below(state, "documents."))
        if not two:
            return cls(documents, documents)
        queries = Chain(specs).restore(_below(state, "queries."))
        if queries.dim != documents.dim:
            raise ModelError(
                f"the saved query side gives {queries.dim} dimensions, the document side {documents.dim}: "
                "expected the same"
            )
        return cls(documents, queries)


def _below(state: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name[len(prefix) :]: array for name, array in state.items() if name.startswith(prefix)}
