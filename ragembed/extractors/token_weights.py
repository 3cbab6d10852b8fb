"""The token weights of an extractor: a weighting, fitted on the tokens of a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import Corpus, blocks
from ragembed.errors import ConfigError, NotFittedError
from ragembed.extractors.protocol import Progress, Tokenizer, saved_array
from ragembed.extractors.weighting import TokenCounter, TokenStatistics, Weighting
from ragembed.types import Floats, State

_BLOCK = 2048


class TokenWeights:
    """Weights of token ids, fitted on the texts of ``corpus``, or on those given to :meth:`fit`.

    The ids in ``common``, those of a template, count as part of every text, as special tokens do. Without
    ``special_tokens``, the occurrences of both do not count.
    """

    def __init__(
        self,
        weighting: Weighting,
        tokenizer: Tokenizer,
        tokenizer_sha256: str,
        common: Iterable[int] = (),
        corpus: Corpus | None = None,
        *,
        special_tokens: bool = True,
    ) -> None:
        self.weighting = weighting
        self._special_tokens = special_tokens
        self.corpus = corpus
        self.tokenizer_sha256 = tokenizer_sha256
        self._tokenizer = tokenizer
        self._common = sorted({*common, *tokenizer.prefix, *tokenizer.suffix})
        self._statistics: TokenStatistics | None = None

    @property
    def share(self) -> float:
        """The share of these weights in a text's weights, from 0 to 1; the rest is uniform."""
        return self.weighting.share

    @property
    def by_length(self) -> bool:
        """Whether the weights of a text are divided by its number of tokens, instead of scaled to sum to 1."""
        return self.weighting.by_length

    @property
    def config(self) -> Mapping[str, Any]:
        """How the weights of a text are scaled, as JSON values."""
        return {"share": self.share, **({"by_length": True} if self.by_length else {})}

    def fit(self, texts: Iterable[str]) -> None:
        """Count the tokens of ``texts``, read once as a stream, or of the corpus."""
        self.take(self.count(texts))

    def count(self, texts: Iterable[str]) -> TokenStatistics:
        """Return the statistics for :meth:`take`; they are the same for all weights of one tokenizer and corpus."""
        counter = self.counter()
        fit_streams(texts, [TextConsumer(self.corpus, counter.add)])
        return counter.statistics()

    def counter(self) -> TextCounter:
        """Return a counter for the tokens of texts."""
        return TextCounter(self._tokenizer)

    def take(self, statistics: TokenStatistics) -> None:
        """Use statistics that were counted elsewhere."""
        self._statistics = statistics
        self.__dict__.pop("table", None)

    @cached_property
    def table(self) -> Floats | None:
        """The weight of each token id, shape ``(vocabulary,)``; None means uniform weights."""
        return self.table_for(self.require_fitted())

    def table_for(self, statistics: TokenStatistics) -> Floats | None:
        """Return the :attr:`table` for the given ``statistics``."""
        if self.weighting.share == 0.0:
            return None
        if not self._special_tokens:
            statistics = statistics.without([*self._tokenizer.prefix, *self._tokenizer.suffix])
        return self.weighting.table(statistics, self._tokenizer.vocabulary, self._common)

    def of(self, ids: NDArray[np.int64], base: Floats) -> Floats:
        """Return the unscaled weights of tokens: ``base`` times the weight of each id, all of one shape."""
        return base if self.table is None else self.table[ids] * base

    def fingerprint_arrays(self) -> State:
        """Return the fitted array that determines the weights, if there is one."""
        return {} if self.table is None else {"weights": self.table}

    def state(self) -> State:
        """Return the token statistics as arrays."""
        statistics = self.require_fitted()
        return {
            "tokens.texts": np.array([statistics.texts], dtype=np.int64),
            "tokens.document_frequency": statistics.document_frequency,
            "tokens.occurrences": statistics.occurrences,
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays that :meth:`state` returned."""
        # The tokenizer has the saved hash. To count its tokens would take as long as to load it.
        shape = state.get("tokens.document_frequency", np.zeros(0)).shape[:1]
        texts = saved_array(state, "tokens.texts", np.int64, (1,))
        frequency = saved_array(state, "tokens.document_frequency", np.int64, shape)
        occurrences = saved_array(state, "tokens.occurrences", np.int64, shape)
        self.take(TokenStatistics(int(texts[0]), frequency, occurrences))

    def require_fitted(self) -> TokenStatistics:
        """Return the statistics; raise :class:`NotFittedError` before a fit."""
        if self._statistics is None:
            raise NotFittedError("this embedder is not fitted: call embedder.fit(texts) or Embedder.load(folder) first")
        return self._statistics


class FittedByWeights:
    """Base class of extractors that fit nothing but token weights."""

    weights: TokenWeights

    def fit(self, texts: Iterable[str]) -> None:
        """Fit the token weights on ``texts``, read once as a stream."""
        self.weights.fit(texts)

    def fingerprint_arrays(self) -> State:
        """Return the fitted token weights."""
        return self.weights.fingerprint_arrays()

    def state(self) -> State:
        """Return the token statistics."""
        return self.weights.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays that :meth:`state` returned."""
        self.weights.restore(state)


class TextCounter:
    """A counter for the tokens of texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._counter = TokenCounter(tokenizer.vocabulary_size, [*tokenizer.prefix, *tokenizer.suffix])

    def add(self, texts: Sequence[str]) -> None:
        """Count the tokens of ``texts``."""
        self._counter.add(self._tokenizer.ids(texts))

    def statistics(self) -> TokenStatistics:
        """Return the statistics of all texts so far."""
        return self._counter.statistics()


@dataclass(frozen=True, slots=True)
class TextConsumer:
    """A function that reads texts in blocks: those of ``corpus``, or those given to the fit if it is None."""

    corpus: Corpus | None
    consume: Callable[[Sequence[str]], None]


def fit_streams(
    texts: Iterable[str],
    text_consumers: Sequence[TextConsumer],
    *,
    needed: bool = True,
    progress: Progress | None = None,
) -> int:
    """Read ``texts`` and each other corpus once, for all ``text_consumers``; return the number of texts.

    ``progress`` is called with the number of texts in each block that was consumed. Raises :class:`ConfigError` if a
    corpus is empty, or if ``texts`` is empty and ``needed``.
    """
    # Read the named corpora first, so that an error in one of them shows before the long pass over the texts.
    streams: dict[Corpus | None, Iterable[str]] = {
        consumer.corpus: consumer.corpus for consumer in text_consumers if consumer.corpus
    }
    streams[None] = texts
    numbers: dict[Corpus | None, int] = dict.fromkeys(streams, 0)
    for corpus, stream in streams.items():
        for block in blocks(stream, _BLOCK):
            numbers[corpus] += len(block)
            for consumer in text_consumers:
                if consumer.corpus == corpus:
                    consumer.consume(block)
            if progress is not None:
                progress(len(block))
        if not numbers[corpus] and (needed or corpus is not None):
            where = "the corpus is empty" if corpus is None else f"the corpus {corpus.path} is empty"
            raise ConfigError(f"cannot fit without texts: {where}, expected at least one text")
    return numbers[None]
