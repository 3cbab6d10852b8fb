"""Chains of post-processors, one for documents and one for queries.

Queries are short and documents are long, so their vectors have different statistics. With ``query_fit="separate"`` each
step is fitted once on document vectors and once on pseudo-query vectors. Symmetric tasks share one fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import parse_postprocessor
from ragembed.errors import ConfigError, ModelError
from ragembed.postprocess.protocol import Parts, PostProcessor
from ragembed.postprocess.quantile import Quantile
from ragembed.postprocess.steps import AllButTheTop, Center, CommonComponents, Normalize, Robust, Whiten, ZScore
from ragembed.tensor_map import with_prefix
from ragembed.types import Floats, State

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
_NUMBERED: Mapping[str, Callable[[int], PostProcessor]] = {
    "whiten": Whiten,
    "abtt": AllButTheTop,
    "common": CommonComponents,
    "common-weighted": partial(CommonComponents, weighted=True),
}


def post_processor(spec: str) -> PostProcessor:
    """Return the post-processor that ``spec`` names, not fitted; raise :class:`ConfigError` if it is unknown."""
    name, number = parse_postprocessor(spec)
    return _PLAIN[name]() if number is None else _NUMBERED[name](number)


class Chain:
    """Several post-processors, such as ``["abtt:2", "normalize"]``; each is fitted on the output of the one before.

    ``specs`` are their names, such as ``["abtt:2", "normalize"]``; an unknown one raises
    :class:`ragembed.errors.ConfigError`. An empty chain returns vectors unchanged.
    """

    def __init__(self, specs: Sequence[str]) -> None:
        self.specs = tuple(specs)
        self._steps = [post_processor(spec) for spec in specs]

    @property
    def learns(self) -> bool:
        """Whether at least one post-processor has something to fit."""
        return any(step.saved for step in self._steps)

    @property
    def dim(self) -> int | None:
        """Dimension of the output; None before a fit, or if no post-processor depends on the dimension."""
        dims = self._dims()
        return dims[-1][1] if dims else None

    def fit(self, vectors: Floats) -> Chain:
        """Fit every post-processor on raw vectors, float32, finite, shape ``(n, d)``, ``n >= 1``; return this chain."""
        for step in self._steps:
            vectors = step.fit(vectors).transform(vectors)
        return self

    def fit_queries(self, vectors: Floats, documents: Chain) -> Chain:
        """Fit every post-processor on query vectors, given the fitted chain of the same steps for documents.

        ``whiten`` takes its directions from the documents.
        """
        for step, of_documents in zip(self._steps, documents._steps, strict=True):
            vectors = step.fit_queries(vectors, of_documents).transform(vectors)
        return self

    def transform(self, vectors: Floats) -> Floats:
        """Apply every post-processor to raw vectors, float32, shape ``(n, d)``; ``n`` may be 0."""
        for step in self._steps:
            vectors = step.transform(vectors)
        return np.ascontiguousarray(vectors, dtype=np.float32)

    @property
    def additive(self) -> bool:
        """Whether the summands of an input vector explain the output completely, without a rest."""
        return all(step.additive for step in self._steps)

    def transform_parts(self, parts: Parts) -> Parts:
        """Map the summands of one raw vector to summands of its processed vector."""
        for step in self._steps:
            parts = step.transform_parts(parts)
        return parts

    def state(self) -> State:
        """Return the fitted arrays by name, ``<position>.<name>``; errors are as for :meth:`transform_parts`."""
        return {f"{i}.{name}": array for i, step in enumerate(self._steps) for name, array in step.state().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Chain:
        """Load arrays that :meth:`state` returned."""
        positions = {str(i) for i in range(len(self._steps))}
        for name in state:
            if name.partition(".")[0] not in positions:
                raise ModelError(
                    f"the saved state has an unknown array {name!r}: the chain has {len(positions)} post-processors"
                )
        for i, step in enumerate(self._steps):
            step.restore(with_prefix(state, f"{i}."))
        dims = self._dims()
        for (_, out), (into, _) in pairwise(dims):
            if out != into:
                raise ModelError(
                    f"the saved post-processors do not match: one returns {out} dimensions, but the next expects "
                    f"{into}; fit again"
                )
        return self

    def _dims(self) -> list[tuple[int, int]]:
        """Return the dimensions of input and output of each post-processor that depends on them."""
        return [step.dims for step in self._steps if step.dims is not None]


@dataclass(frozen=True, slots=True)
class TwoSidedChain:
    """A fitted chain for documents and a fitted chain for queries, the same object if both share one fit."""

    documents: Chain
    queries: Chain

    @classmethod
    def fit(cls, specs: Sequence[str], documents: Floats, queries: Floats | None) -> TwoSidedChain:
        """Return both chains, fitted on raw vectors of documents and of pseudo-queries, float32, shapes ``(·, d)``.

        Without pseudo-queries, both share the fit on documents.
        """
        if queries is not None and queries.shape[1:] != documents.shape[1:]:
            raise ConfigError(
                f"the query vectors have shape {queries.shape}, the document vectors {documents.shape}: "
                "expected the same dimension"
            )
        fitted = Chain(specs).fit(documents)
        return cls(fitted, fitted if queries is None else Chain(specs).fit_queries(queries, fitted))

    def state(self) -> State:
        """Return the fitted arrays of both chains by name, ``documents.<position>.<name>``.

        Those of the queries, ``queries.<position>.<name>``, are among them only if the query chain has its own fit.
        """
        arrays = {f"documents.{name}": array for name, array in self.documents.state().items()}
        if self.queries is not self.documents:
            arrays.update({f"queries.{name}": array for name, array in self.queries.state().items()})
        return arrays

    @classmethod
    def restore(cls, specs: Sequence[str], state: Mapping[str, NDArray[Any]], two: bool) -> TwoSidedChain:
        """Return the chains from the arrays of :meth:`state`; ``two`` says whether queries have their own fit."""
        documents = Chain(specs).restore(with_prefix(state, "documents."))
        if not two:
            return cls(documents, documents)
        queries = Chain(specs).restore(with_prefix(state, "queries."))
        if queries.dim != documents.dim:
            raise ModelError(
                f"the saved query chain returns {queries.dim} dimensions and the document chain {documents.dim}: "
                "expected the same dimension; fit again"
            )
        return cls(documents, queries)
