"""Token weights that an extractor holds: a weighting, fitted on the corpus's tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import Corpus, blocks
from ragembed.errors import ConfigError, NotFittedError
from ragembed.extractors.protocol import State, Tokenizer, saved_array
from ragembed.extractors.weighting import TokenCounter, TokenStatistics, Weighting
from ragembed.types import Floats

_BLOCK = 2048


class TokenWeights:
    """Weights of token ids, fitted on texts.

    Parameters
    ----------
    weighting
        How a token's weight follows from its counts.
    tokenizer, tokenizer_sha256
        What splits texts into tokens, and its hash.
    common
        Ids of tokens that stand in every text beside the tokenizer's special tokens: a template's.
    corpus
        The texts that are counted in place of those that :meth:`fit` is given.
    """

    def __init__(
        self,
        weighting: Weighting,
        tokenizer: Tokenizer,
        tokenizer_sha256: str,
        common: Iterable[int] = (),
        corpus: Corpus | None = None,
    ) -> None:
        self.weighting = weighting
        self.corpus = corpus
        self.tokenizer_sha256 = tokenizer_sha256
        self._tokenizer = tokenizer
        self._common = sorted({*common, *tokenizer.prefix, *tokenizer.suffix})
        self._statistics: TokenStatistics | None = None

    @property
    def share(self) -> float:
        """Parts of a text's weights that come from the table; the rest is uniform."""
        return self.weighting.share

    def fit(self, texts: Iterable[str]) -> None:
        """Count the tokens of ``texts``, read once as a stream, or of the corpus."""
        self.take(self.count(texts))

    def count(self, texts: Iterable[str]) -> TokenStatistics:
        """Return what :meth:`take` takes, the same for all weights of one tokenizer and corpus."""
        counter = self.counter()
        fit_streams(texts, [Taker(self.corpus, counter.add)])
        return counter.statistics()

    def counter(self) -> TextCounter:
        """Return what counts the tokens of texts."""
        return TextCounter(self._tokenizer)

    def take(self, statistics: TokenStatistics) -> None:
        """Take statistics that were counted elsewhere."""
        self._statistics = statistics
        self.__dict__.pop("table", None)

    @cached_property
    def table(self) -> Floats | None:
        """The weight of each token id, shape ``(vocabulary,)``; None is uniform."""
        return self.table_for(self.require_fitted())

    def table_for(self, statistics: TokenStatistics) -> Floats | None:
        """Return what :attr:`table` would be after a fit that counted ``statistics``."""
        if self.weighting.share == 0.0:
            return None
        return self.weighting.table(statistics, self._tokenizer.vocabulary, self._common)

    def of(self, ids: NDArray[np.int64], base: Floats) -> Floats:
        """Return the weights of tokens, not scaled: ``base`` times the table's; all of one shape."""
        return base if self.table is None else self.table[ids] * base

    def decisive(self) -> State:
        """Return the fitted array that decides the weights, if there is one."""
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
        """Take back :meth:`state`."""
        shape = (self._tokenizer.vocabulary_size,)
        texts = saved_array(state, "tokens.texts", np.int64, (1,))
        frequency = saved_array(state, "tokens.document_frequency", np.int64, shape)
        occurrences = saved_array(state, "tokens.occurrences", np.int64, shape)
        self.take(TokenStatistics(int(texts[0]), frequency, occurrences))

    def require_fitted(self) -> TokenStatistics:
        """Return the statistics; raises :class:`NotFittedError` where there are none."""
        if self._statistics is None:
            raise NotFittedError("this embedder is not fitted: call embedder.fit(texts) or Embedder.load(folder) first")
        return self._statistics


class FittedByWeights:
    """An extractor of which nothing but its token weights is fitted."""

    weights: TokenWeights

    def fit(self, texts: Iterable[str]) -> None:
        """Fit the token weights on ``texts``, read once as a stream."""
        self.weights.fit(texts)

    def decisive(self) -> State:
        """Return the fitted token weights."""
        return self.weights.decisive()

    def state(self) -> State:
        """Return the token statistics."""
        return self.weights.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back :meth:`state`."""
        self.weights.restore(state)


class TextCounter:
    """Counts the tokens of texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._counter = TokenCounter(tokenizer.vocabulary_size, [*tokenizer.prefix, *tokenizer.suffix])

    def add(self, texts: Sequence[str]) -> None:
        """Count the tokens of ``texts``."""
        self._counter.add(self._tokenizer.ids(texts))

    def statistics(self) -> TokenStatistics:
        """Return what was counted."""
        return self._counter.statistics()


@dataclass(frozen=True, slots=True)
class Taker:
    """Takes texts block by block: those of ``corpus``, or where that is None, those that a fit is given."""

    corpus: Corpus | None
    take: Callable[[Sequence[str]], None]


def fit_streams(texts: Iterable[str], takers: Sequence[Taker], *, needed: bool = True) -> int:
    """Go once through ``texts``, and once through each other corpus, for all ``takers``; return the number of texts.

    Raises :class:`ConfigError` where one of the streams is empty, ``texts`` only where they are ``needed``.
    """
    # Named corpora first: what is wrong with one must not be found after a long pass through the texts.
    streams: dict[Corpus | None, Iterable[str]] = {taker.corpus: taker.corpus for taker in takers if taker.corpus}
    streams[None] = texts
    numbers: dict[Corpus | None, int] = dict.fromkeys(streams, 0)
    for corpus, stream in streams.items():
        for block in blocks(stream, _BLOCK):
            numbers[corpus] += len(block)
            for taker in takers:
                if taker.corpus == corpus:
                    taker.take(block)
        if not numbers[corpus] and (needed or corpus is not None):
            where = "" if corpus is None else f": {corpus.path} holds none"
            raise ConfigError(f"cannot fit on no texts: give at least one text of the corpus{where}")
    return numbers[None]
