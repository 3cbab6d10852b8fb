"""The extractor ``avg``: one static vector per token, the mean of its contextual vectors over a corpus.

Source: Stankevičius & Lukoševičius 2024, section 3.2.3. The fit takes one pass over the corpus; encoding needs no
model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import Corpus
from ragembed.errors import NotFittedError
from ragembed.extractors.forward import Batch
from ragembed.extractors.model import ContextualModel
from ragembed.extractors.protocol import saved_array
from ragembed.extractors.static import StaticExtractor
from ragembed.extractors.token_tables import TokenTable
from ragembed.extractors.transformer import layer_mean
from ragembed.extractors.weighting import TokenWeights
from ragembed.models.tokenizer import TokenKind
from ragembed.types import Floats, Integers, State

_RIDGE = 1e-3


class TokenMeans:
    """A consumer of hidden states that averages them for each token id of the text and the special tokens.

    The rounding error of each sum is accumulated separately, so that the means do not depend on the order of the
    batches or on how the corpus is split.
    """

    def __init__(self, vocabulary: int, dim: int, layers: tuple[int, ...]) -> None:
        self.layers = layers
        self._sums = np.zeros((vocabulary, dim), dtype=np.float64)
        self._rest = np.zeros((vocabulary, dim), dtype=np.float32)
        self.counts = np.zeros(vocabulary, dtype=np.int64)

    def take(self, batch: Batch, states: Mapping[int, Floats]) -> None:
        """Add the token vectors of a batch."""
        hidden = layer_mean(self.layers, states)
        text = (batch.kinds == TokenKind.TEXT) | (batch.kinds == TokenKind.SPECIAL)
        ids = batch.ids[text]
        order = np.argsort(ids, kind="stable")
        distinct, starts, counts = np.unique(ids[order], return_index=True, return_counts=True)
        self._add(distinct, np.add.reduceat(hidden[text][order], starts, axis=0, dtype=np.float64), counts)

    def _add(self, ids: Integers, sums: NDArray[np.float64], counts: Integers) -> None:
        """Add sums and counts of token vectors, with compensated summation."""
        before = self._sums[ids]
        after = before + sums
        added = after - before
        self._rest[ids] += (before - (after - added)) + (sums - added)  # Knuth 1997, section 4.2.2, theorem B
        self._sums[ids] = after
        self.counts[ids] += counts

    def means(self) -> Floats:
        """Return the mean vector of each id, float32, shape ``(vocabulary, d)``; 0 for an id that does not occur."""
        return ((self._sums + self._rest) / np.maximum(self.counts, 1)[:, None]).astype(np.float32)

    def state(self) -> State:
        """Return the sums and counts of the ids that occur."""
        ids = np.flatnonzero(self.counts)
        return {"ids": ids, "counts": self.counts[ids], "sums": self._sums[ids], "rest": self._rest[ids]}

    def add(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Add the :meth:`state` of another object."""
        self._add(state["ids"], state["sums"], state["counts"])
        self._rest[state["ids"]] += state["rest"]


class AvgTable(TokenTable):
    """The fitted static vectors; ``unseen`` tokens have none, or a ridge regression maps their word embedding."""

    def __init__(self, vocabulary: int, dim: int, unseen: str) -> None:
        self.dim = dim
        self._vocabulary = vocabulary
        self.unseen = unseen
        self._vectors: Floats | None = None
        self._present: NDArray[np.bool_] | None = None

    @property
    def config(self) -> Mapping[str, Any]:
        """Empty, because everything that determines the vectors is fitted."""
        return {}

    def rows(self, ids: Integers) -> Floats:
        """Return the vectors of ``ids``, float32, shape ``(n, d)``."""
        return self.fitted()[0][ids]

    def present(self, ids: Integers) -> NDArray[np.bool_]:
        """Return which of ``ids`` have a vector."""
        return self.fitted()[1][ids]

    def fit(self, means: TokenMeans, word_embeddings: Callable[[], Floats]) -> None:
        """Fit on averaged vectors; ``word_embeddings`` returns the table of the model, shape ``(vocabulary, d)``."""
        vectors, seen = means.means(), means.counts > 0
        if self.unseen == "mapped" and seen.any():
            # A table may have more rows than the vocabulary, and a vocabulary may have tokens without a row.
            embeddings = word_embeddings()[: len(seen)]
            count = len(embeddings)
            seen_known = np.flatnonzero(seen[:count])
            mapped = _linear_map(embeddings[seen_known], vectors[seen_known])(embeddings)
            vectors[:count] = np.where(seen[:count, None], vectors[:count], mapped)
            seen[:count] = True
        self._vectors, self._present = vectors, seen

    def share(self, other: AvgTable) -> None:
        """Use the vectors of ``other``, which was fitted on the same means with the same ``unseen``."""
        self._vectors, self._present = other.fitted()

    def state(self) -> State:
        """Return the vectors, and which ids have one."""
        vectors, present = self.fitted()
        return {"avg.vectors": vectors, "avg.present": present.astype(np.uint8)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays that :meth:`state` returned."""
        self._vectors = saved_array(state, "avg.vectors", np.float32, (self._vocabulary, self.dim))
        self._present = saved_array(state, "avg.present", np.uint8, (self._vocabulary,)).astype(bool)

    def fitted(self) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the vectors, and which ids have one; raise :class:`NotFittedError` before a fit."""
        if self._vectors is None or self._present is None:
            raise NotFittedError("this embedder is not fitted: call embedder.fit(texts) or Embedder.load(folder) first")
        return self._vectors, self._present


class AvgExtractor(StaticExtractor):
    """A static extractor whose table is fitted by the forward pass of a model, which reads texts without a template.

    The hidden states of ``layers`` are averaged over the texts of ``corpus``, or over those of the fit.
    """

    def __init__(
        self,
        model: ContextualModel,
        layers: tuple[int, ...],
        table: AvgTable,
        weights: TokenWeights,
        special_tokens: bool,
        config: Mapping[str, Any],
        corpus: Corpus | None,
    ) -> None:
        super().__init__(model.tokenizer, table, weights, special_tokens, config)
        self.model = model
        self.layers = layers
        self.corpus = corpus
        self.averages = table

    def consumer(self) -> TokenMeans:
        """Return a consumer that averages token vectors in a shared forward pass, for :meth:`take`."""
        return TokenMeans(self.model.tokenizer.vocabulary_size, self.dim, self.layers)

    def take(self, means: TokenMeans) -> None:
        """Fit the static vectors on averaged token vectors."""
        self.averages.fit(means, self.model.word_embeddings)

    def fingerprint_arrays(self) -> State:
        """Return the fitted token weights and static vectors."""
        return {**super().fingerprint_arrays(), **self.averages.state()}

    def state(self) -> State:
        """Return token statistics and static vectors."""
        return {**super().state(), **self.averages.state()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays that :meth:`state` returned."""
        super().restore(state)
        self.averages.restore(state)


def _linear_map(inputs: Floats, outputs: Floats) -> Callable[[Floats], Floats]:
    """Return the affine map from rows of ``inputs`` to rows of ``outputs``, by ridge regression."""
    mean_in, mean_out = inputs.mean(axis=0, dtype=np.float64), outputs.mean(axis=0, dtype=np.float64)
    centred = inputs - mean_in
    gram = centred.T @ centred
    gram[np.diag_indices_from(gram)] += _RIDGE * max(np.trace(gram) / len(gram), np.finfo(np.float64).tiny)
    slope = np.linalg.solve(gram, centred.T @ (outputs - mean_out))
    return lambda rows: ((rows - mean_in) @ slope + mean_out).astype(np.float32)
