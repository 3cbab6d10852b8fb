"""Token weights that are fitted on a corpus.

Sources: [S] Stankevičius & Lukoševičius 2024, section 3.3 (idf, -biases); Arora et al. 2017 (SIF); Ethayarajh 2018
(uSIF). A weighting gives one weight per token id; the weights of a text are those of its tokens. They are scaled to sum
to 1, or divided by the number of tokens.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import parse_weighting
from ragembed.corpus import Corpus
from ragembed.errors import NotFittedError
from ragembed.extractors.protocol import Tokenizer, saved_array
from ragembed.models.token_ids import TokenIds
from ragembed.types import Floats, Integers, State

FREQUENT_TOKENS: tuple[str, ...] = (
    *(".", "a", "the", "in", ",", "is", "to", "of", "and", "'", "on", "-", "s", "with", "for", '"', "at", "##s", "are"),
    *("it", "two", "that", "you", "said", "playing", "i", "an", "as", "was", "from", ":", "by", "white"),
)
"""The frequent tokens of the PromptBERT program (Jiang et al. 2022) for the vocabulary of ``bert-base-uncased``.

``man``, ``woman`` and ``dog`` are left out. The remaining 33 tokens are the number that [S] gives and match its figures
best.
"""

_LEAST = 1e-30
_SUBWORD = "##"
_WORD_STARTS = "\u0120\u2581"  # word-start markers of byte-level and SentencePiece vocabularies


@dataclass(frozen=True, slots=True)
class TokenStatistics:
    """Token counts of a corpus; the arrays are int64, shape ``(vocabulary,)``."""

    texts: int  # their number
    document_frequency: Integers  # texts that contain each token id
    occurrences: Integers

    def __add__(self, other: TokenStatistics) -> TokenStatistics:
        """Return the statistics of both corpora together."""
        return TokenStatistics(
            self.texts + other.texts,
            self.document_frequency + other.document_frequency,
            self.occurrences + other.occurrences,
        )

    def with_common(self, ids: Sequence[int], without: Sequence[int] = ()) -> TokenStatistics:
        """Return the statistics as if every text had the token ``ids``, and those in ``without`` never occurred."""
        frequency, occurrences = self.document_frequency.copy(), self.occurrences.copy()
        frequency[list(ids)] = self.texts
        occurrences[list(without)] = 0
        return TokenStatistics(self.texts, frequency, occurrences)


@dataclass(frozen=True, slots=True)
class Weighting:
    """A function from token statistics to one weight per token id, float32, shape ``(vocabulary,)``, not negative.

    ``share`` is the share of these weights in a text's weights, from 0 to 1; the rest is uniform. With ``by_length``,
    the weights of a text are divided by its number of tokens, instead of scaled to sum to 1.
    """

    table: Callable[[TokenStatistics], Floats]
    share: float = 1.0
    by_length: bool = False


def idf(statistics: TokenStatistics) -> Floats:
    """``idf_t = ln(N / df_t)`` without smoothing ([S] section 3.3).

    A token that the corpus does not contain gets ``ln N``, the weight of ``df = 1``; a token in every text gets 0.
    """
    return np.log(max(statistics.texts, 1) / np.maximum(statistics.document_frequency, 1)).astype(np.float32)


def without_biases(vocabulary: Sequence[str], frequent: Iterable[str] = FREQUENT_TOKENS) -> Floats:
    """Weight 0 for frequent tokens, punctuation (Unicode P* and S*) and ``##`` subwords, otherwise 1 ([S] section 3.3).

    Special and mask tokens keep 1, because the pooling decides whether they take part.
    """
    left_out = frozenset(frequent)
    return np.array([not _is_bias(token, left_out) for token in vocabulary], dtype=np.float32)


def sif(statistics: TokenStatistics, a: float = 1e-3) -> Floats:
    """Smooth inverse frequency ``a / (a + p_t)``; ``p_t`` is the share of token t in the corpus (Arora et al. 2017).

    The method also removes a common component; the post-processor ``common:1`` does this.
    """
    return (a / (a + _probabilities(statistics))).astype(np.float32)


def usif(statistics: TokenStatistics) -> Floats:
    """Unsupervised SIF: ``a / (a / 2 + p_t)``, with ``a`` computed from the corpus (Ethayarajh 2018, section 3).

    V is the number of distinct tokens and n the mean number of tokens in a text. Alpha is the share of tokens that are
    more probable than ``1 - (1 - 1/V)^n``, at least ``1 / V``. Then ``a = (1 - alpha) / (alpha V / 2)``. The method
    also removes parts of five common components; the post-processor ``common-weighted:5`` does this.
    """
    probabilities = _probabilities(statistics)
    distinct = max(int(np.count_nonzero(statistics.occurrences)), 1)
    length = statistics.occurrences.sum() / max(statistics.texts, 1)
    threshold = 1.0 - (1.0 - 1.0 / distinct) ** length
    alpha = max(int(np.count_nonzero(probabilities > threshold)), 1) / distinct
    a = max((1.0 - alpha) / (alpha * distinct / 2.0), _LEAST)
    return np.asarray(a / (a / 2.0 + probabilities), dtype=np.float32)


def make_weighting(
    spec: str, vocabulary: Callable[[], Sequence[str]], biases: tuple[str, ...] | None = None
) -> Weighting | None:
    """Return the weighting that ``spec`` names, None for uniform weights.

    ``vocabulary`` returns the tokens by id; ``biases`` replaces the frequent tokens of ``-biases``.
    """
    name, number = parse_weighting(spec)
    if name == "idf":
        return Weighting(idf, 1.0 if number is None else number)
    if name == "sif":
        return Weighting(sif if number is None else partial(sif, a=number), by_length=True)
    if name == "-biases":
        return Weighting(lambda _: without_biases(vocabulary(), FREQUENT_TOKENS if biases is None else biases))
    return Weighting(usif, by_length=True) if name == "usif" else None


class TokenCounter:
    """Counts, for each token id, the texts that contain it and its occurrences, in texts that arrive in blocks.

    The special tokens around every text count once per text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._frequency = np.zeros(tokenizer.vocabulary_size, dtype=np.int64)
        self._occurrences = np.zeros(tokenizer.vocabulary_size, dtype=np.int64)
        self._texts = 0

    def add(self, texts: Sequence[str]) -> TokenIds:
        """Count the token ids of some texts, and return them."""
        ids = self._tokenizer.ids(texts)
        vocabulary = len(self._occurrences)
        pairs = np.sort(ids.texts * vocabulary + ids.flat)  # several times as fast as np.unique, which hashes
        once = pairs[np.diff(pairs, prepend=-1) > 0] % vocabulary  # each token once per text
        self._frequency += np.bincount(once, minlength=vocabulary)
        self._occurrences += np.bincount(ids.flat, minlength=vocabulary)
        self._texts += len(ids)
        return ids

    def statistics(self) -> TokenStatistics:
        """Return the statistics of all texts so far."""
        frequency, occurrences = self._frequency.copy(), self._occurrences.copy()
        framing = [*self._tokenizer.prefix, *self._tokenizer.suffix]
        frequency[framing] = self._texts
        np.add.at(occurrences, framing, self._texts)
        return TokenStatistics(self._texts, frequency, occurrences)


def _byte_characters() -> dict[int, int]:
    """Return the byte that each character of a byte-level vocabulary stands for (Radford et al. 2019)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in shown]
    return {**{byte: byte for byte in shown}, **{0x100 + i: byte for i, byte in enumerate(hidden)}}


_BYTES = _byte_characters()


def _decoded(token: str) -> str:
    """Return the text of a byte-level token; any other token is returned unchanged."""
    try:
        return bytes(_BYTES[ord(character)] for character in token).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return token


def _probabilities(statistics: TokenStatistics) -> NDArray[np.float64]:
    """Return the share of each token id in all occurrences."""
    return statistics.occurrences / max(int(statistics.occurrences.sum()), 1)


def _is_bias(token: str, frequent: frozenset[str]) -> bool:
    """Return whether ``-biases`` excludes ``token``."""
    bare = _decoded(token.lstrip(_WORD_STARTS))
    subword = token.startswith(_SUBWORD) and token != _SUBWORD
    return subword or bare in frequent or (bare != "" and all(unicodedata.category(c)[0] in "PS" for c in bare))


class TokenWeights:
    """Weights of token ids, fitted on the texts of ``corpus``, or on those of the fit.

    The ids in ``common`` count as part of every text, but not at all without ``special_tokens``. ``share`` is the share
    of these weights in a text's weights, from 0 to 1; the rest is uniform. ``by_length`` says whether the weights of a
    text are divided by its number of tokens, instead of scaled to sum to 1.
    """

    def __init__(
        self,
        weighting: Weighting | None,
        tokenizer: Tokenizer,
        tokenizer_sha256: str,
        common: Iterable[int] = (),
        corpus: Corpus | None = None,
        *,
        special_tokens: bool = True,
    ) -> None:
        self._weighting = weighting
        self.share = 0.0 if weighting is None else weighting.share
        self.by_length = weighting is not None and weighting.by_length
        self._special_tokens = special_tokens
        self.corpus = corpus
        self.tokenizer_sha256 = tokenizer_sha256
        self._tokenizer = tokenizer
        self._common = sorted({*common, *tokenizer.prefix, *tokenizer.suffix})
        self._statistics: TokenStatistics | None = None

    @property
    def config(self) -> Mapping[str, Any]:
        """How the weights of a text are scaled, as JSON values."""
        return {"share": self.share, **({"by_length": True} if self.by_length else {})}

    def counter(self) -> TokenCounter:
        """Return a counter, whose statistics are the same for all weights of one tokenizer and corpus."""
        return TokenCounter(self._tokenizer)

    def take(self, statistics: TokenStatistics) -> None:
        """Fit the weights to counted statistics."""
        self._statistics = statistics
        self.__dict__.pop("table", None)

    @cached_property
    def table(self) -> Floats | None:
        """The weight of each token id, shape ``(vocabulary,)``; None means uniform weights."""
        return self.table_for(self.require_fitted())

    def table_for(self, statistics: TokenStatistics) -> Floats | None:
        """Return the :attr:`table` for the given ``statistics``."""
        if self._weighting is None or self.share == 0.0:
            return None
        without = [] if self._special_tokens else [*self._tokenizer.prefix, *self._tokenizer.suffix]
        return self._weighting.table(statistics.with_common(self._common, without))

    def of(self, ids: NDArray[np.int64], base: Floats) -> Floats:
        """Return the unscaled weights of tokens: ``base`` times the weight of each id, all of one shape."""
        return base if self.table is None else self.table[ids] * base

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
