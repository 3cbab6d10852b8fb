"""Two extractors, one for documents and one for queries, for models with separate modules for both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from ragembed.extractors.parts import TokenParts
from ragembed.extractors.protocol import Extractor, Progress, Side
from ragembed.extractors.token_weights import TokenWeights
from ragembed.types import Floats, State, with_prefix


class RoutedExtractor:
    """Encode documents with one extractor and queries with another; both make vectors of the same dimension."""

    def __init__(self, documents: Extractor, queries: Extractor) -> None:
        self.dim = documents.dim
        self.routes: Mapping[str, Extractor] = {"documents": documents, "queries": queries}

    @property
    def weights(self) -> TokenWeights:
        """The token weights of documents."""
        return self.routes["documents"].weights

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that determine a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        return {side: extractor.config for side, extractor in self.routes.items()}

    def fit(self, texts: Iterable[str]) -> None:
        """Fit the token weights of both extractors."""
        kept = list(texts)
        for extractor in self.routes.values():
            extractor.fit(kept)

    def encode(self, texts: Sequence[str], side: Side, progress: Progress | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; each depends only on its own text."""
        return self._of(side).encode(texts, side, progress)

    def token_parts(self, text: str, side: Side) -> TokenParts:
        """Return the parts of a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        return self._of(side).token_parts(text, side)

    def fingerprint_arrays(self) -> State:
        """Return the fitted arrays of both extractors that determine a raw vector."""
        return self._joined(lambda extractor: extractor.fingerprint_arrays())

    def state(self) -> State:
        """Return all fitted arrays of both extractors."""
        return self._joined(lambda extractor: extractor.state())

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays that :meth:`state` returned."""
        for side, extractor in self.routes.items():
            extractor.restore(with_prefix(state, f"{side}."))

    def _of(self, side: Side) -> Extractor:
        return self.routes["queries" if side in ("queries", "pseudo-queries") else "documents"]

    def _joined(self, arrays: Callable[[Extractor], State]) -> State:
        """Return the arrays of both extractors, named by their side."""
        return {
            f"{side}.{name}": array
            for side, extractor in self.routes.items()
            for name, array in arrays(extractor).items()
        }
