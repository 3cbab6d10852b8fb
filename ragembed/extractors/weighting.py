"""Token weights that are fitted on a corpus.

Sources: [S] Stankevičius & Lukoševičius 2024, section 3.3 (idf, -biases); Arora et al. 2017 (SIF); Ethayarajh 2018
(uSIF). A weighting gives one weight per token id; the weights of a text are those of its tokens. They are scaled to sum
to 1, or divided by the number of tokens.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import parse_weighting
from ragembed.models.token_ids import TokenIds
from ragembed.types import Floats, Integers

Vocabulary = Callable[[], Sequence[str]]
"""A function that returns the tokens by id."""

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

    def without(self, ids: Sequence[int]) -> TokenStatistics:
        """Return the statistics without the occurrences of some token ids; the texts that contain them stay."""
        occurrences = self.occurrences.copy()
        occurrences[list(ids)] = 0
        return TokenStatistics(self.texts, self.document_frequency, occurrences)


class Weighting(Protocol):
    """A function from token statistics to one weight per token id."""

    @property
    def share(self) -> float:
        """The share of these weights in a text's weights, from 0 to 1; the rest is uniform."""
        ...

    @property
    def by_length(self) -> bool:
        """Whether the weights of a text are divided by its number of tokens, instead of scaled to sum to 1."""
        ...

    def table(self, statistics: TokenStatistics, vocabulary: Vocabulary, common: Sequence[int]) -> Floats | None:
        """Return the weight of each token id, float32, shape ``(vocabulary,)``, not negative; None means uniform.

        ``vocabulary`` returns the tokens by id; ``common`` are the ids of tokens that count as part of every text.
        """
        ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """Equal weights for all tokens."""

    share: float = 0.0
    by_length: bool = False

    def table(self, statistics: TokenStatistics, vocabulary: Vocabulary, common: Sequence[int]) -> Floats | None:  # noqa: ARG002  the protocol's signature
        """Return None, for uniform weights."""
        return None


@dataclass(frozen=True, slots=True)
class Idf:
    """``idf_t = ln(N / df_t)`` without smoothing ([S] section 3.3).

    A token that the corpus does not contain gets ``ln N``, the weight of ``df = 1``; a token in every text gets 0.
    """

    share: float = 1.0
    by_length: bool = False

    def table(self, statistics: TokenStatistics, vocabulary: Vocabulary, common: Sequence[int]) -> Floats | None:  # noqa: ARG002  as above
        """Return ``ln(N / df)``."""
        texts = max(statistics.texts, 1)
        frequency = np.maximum(statistics.document_frequency, 1)
        frequency[list(common)] = texts
        return np.log(texts / frequency).astype(np.float32)


@dataclass(frozen=True, slots=True)
class WithoutBiases:
    """Weight 0 for frequent tokens, punctuation (Unicode P* and S*) and ``##`` subwords, otherwise 1 ([S] section 3.3).

    Special and mask tokens keep 1, because the pooling decides whether they take part.
    """

    frequent: tuple[str, ...] = FREQUENT_TOKENS
    share: float = 1.0
    by_length: bool = False

    def table(self, statistics: TokenStatistics, vocabulary: Vocabulary, common: Sequence[int]) -> Floats | None:  # noqa: ARG002  as above
        """Return 1 for each token that is kept, and 0 for the others."""
        frequent = frozenset(self.frequent)
        return np.array([not _is_bias(token, frequent) for token in vocabulary()], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Sif:
    """Smooth inverse frequency ``a / (a + p_t)``; ``p_t`` is the share of token t in the corpus (Arora et al. 2017).

    The method also removes a common component; the post-processor ``common:1`` does this.
    """

    a: float = 1e-3
    share: float = 1.0
    by_length: bool = True

    def table(self, statistics: TokenStatistics, vocabulary: Vocabulary, common: Sequence[int]) -> Floats | None:  # noqa: ARG002  as above
        """Return ``a / (a + p)``."""
        return (self.a / (self.a + _probabilities(statistics))).astype(np.float32)


@dataclass(frozen=True, slots=True)
class USif:
    """Unsupervised SIF: ``a / (a / 2 + p_t)``, with ``a`` computed from the corpus (Ethayarajh 2018, section 3).

    V is the number of distinct tokens and n the mean number of tokens in a text. Alpha is the share of tokens that are
    more probable than ``1 - (1 - 1/V)^n``, at least ``1 / V``. Then ``a = (1 - alpha) / (alpha V / 2)``. The method
    also removes parts of five common components; the post-processor ``common-weighted:5`` does this.
    """

    share: float = 1.0
    by_length: bool = True

    def table(self, statistics: TokenStatistics, vocabulary: Vocabulary, common: Sequence[int]) -> Floats | None:  # noqa: ARG002  as above
        """Return ``a / (a / 2 + p)``."""
        probabilities = _probabilities(statistics)
        distinct = max(int(np.count_nonzero(statistics.occurrences)), 1)
        length = statistics.occurrences.sum() / max(statistics.texts, 1)
        threshold = 1.0 - (1.0 - 1.0 / distinct) ** length
        alpha = max(int(np.count_nonzero(probabilities > threshold)), 1) / distinct
        a = max((1.0 - alpha) / (alpha * distinct / 2.0), _LEAST)
        return np.asarray(a / (a / 2.0 + probabilities), dtype=np.float32)


def make_weighting(spec: str, biases: tuple[str, ...] | None = None) -> Weighting:
    """Return the weighting that ``spec`` names; ``biases`` replaces the frequent tokens of ``-biases``."""
    name, number = parse_weighting(spec)
    if name == "idf":
        return Idf(share=1.0 if number is None else number)
    if name == "sif":
        return Sif() if number is None else Sif(number)
    if name == "-biases":
        return WithoutBiases() if biases is None else WithoutBiases(biases)
    return USif() if name == "usif" else Uniform()


class TokenCounter:
    """Counts, for each token id, the texts that contain it and its occurrences, in texts that arrive in blocks.

    ``framing`` are the special tokens around every text; they count once per text.
    """

    def __init__(self, vocabulary: int, framing: Sequence[int]) -> None:
        self._framing = list(framing)
        self._frequency = np.zeros(vocabulary, dtype=np.int64)
        self._occurrences = np.zeros(vocabulary, dtype=np.int64)
        self._texts = 0

    def add(self, ids: TokenIds) -> None:
        """Count the token ids of some texts."""
        vocabulary = len(self._occurrences)
        pairs = np.sort(ids.texts * vocabulary + ids.flat)  # several times as fast as np.unique, which hashes
        once = pairs[np.diff(pairs, prepend=-1) > 0] % vocabulary  # each token once per text
        self._frequency += np.bincount(once, minlength=vocabulary)
        self._occurrences += np.bincount(ids.flat, minlength=vocabulary)
        self._texts += len(ids)

    def statistics(self) -> TokenStatistics:
        """Return the statistics of all texts so far."""
        frequency, occurrences = self._frequency.copy(), self._occurrences.copy()
        frequency[self._framing] = self._texts
        np.add.at(occurrences, self._framing, self._texts)
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
