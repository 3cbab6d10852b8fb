"""Token weights fitted on a corpus.

Sources: [S] Stankevičius & Lukoševičius 2024, section 3.3 (idf, -biases); Arora et al. 2017 (SIF); Ethayarajh 2018
(uSIF). A weighting makes one weight for each token id; a text's weights are those of its tokens, scaled to sum to 1.
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
"""Gives the tokens by id."""

FREQUENT_TOKENS: tuple[str, ...] = (
    *(".", "a", "the", "in", ",", "is", "to", "of", "and", "'", "on", "-", "s", "with", "for", '"', "at", "##s", "are"),
    *("it", "two", "that", "you", "said", "playing", "i", "an", "as", "was", "from", ":", "by", "white"),
)
"""The frequent tokens of the PromptBERT program (Jiang et al. 2022) for the vocabulary of ``bert-base-uncased``.

Without ``man``, ``woman`` and ``dog``: 33 tokens, the number that [S] counts and what fits its figures best.
"""

_LEAST = 1e-30
_SUBWORD = "##"
_WORD_STARTS = "\u0120\u2581"  # marks of byte-level and sentence-piece vocabularies


@dataclass(frozen=True, slots=True)
class TokenStatistics:
    """What a corpus of ``texts`` texts holds, by token id.

    ``document_frequency`` counts the texts that hold a token, ``occurrences`` how often it occurs in all of them; both
    int64, shape ``(vocabulary,)``.
    """

    texts: int
    document_frequency: Integers
    occurrences: Integers

    def __add__(self, other: TokenStatistics) -> TokenStatistics:
        """Return the statistics of both corpora together."""
        return TokenStatistics(
            self.texts + other.texts,
            self.document_frequency + other.document_frequency,
            self.occurrences + other.occurrences,
        )


class Weighting(Protocol):
    """Makes the weight of each token id from what the corpus holds."""

    @property
    def share(self) -> float:
        """Parts of a text's weights that come from the table; the rest is uniform."""
        ...

    def table(self, statistics: TokenStatistics, vocabulary: Vocabulary, common: Sequence[int]) -> Floats | None:
        """Return the weight of each token id, float32, shape ``(vocabulary,)``, not negative; None is uniform.

        ``vocabulary`` gives the tokens by id; ``common`` the ids of tokens that stand in every text.
        """
        ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every token weighs the same."""

    share: float = 0.0

    def table(self, statistics: TokenStatistics, vocabulary: Vocabulary, common: Sequence[int]) -> Floats | None:  # noqa: ARG002  the protocol's signature
        """Return None: there is nothing to weigh by."""
        return None


@dataclass(frozen=True, slots=True)
class Idf:
    """``idf_t = ln(N / df_t)``, no smoothing ([S] section 3.3).

    A token never seen gets ``ln N``, the weight of ``df = 1``; a token in every text gets 0.
    """

    share: float = 1.0

    def table(self, statistics: TokenStatistics, vocabulary: Vocabulary, common: Sequence[int]) -> Floats | None:  # noqa: ARG002  as above
        """Return ``ln(N / df)``."""
        texts = max(statistics.texts, 1)
        frequency = np.maximum(statistics.document_frequency, 1)
        frequency[list(common)] = texts
        return np.log(texts / frequency).astype(np.float32)


@dataclass(frozen=True, slots=True)
class WithoutBiases:
    """1, and 0 for frequent tokens, punctuation (Unicode P* and S*) and ``##`` subwords ([S] section 3.3).

    Special and mask tokens keep 1: whether they take part is for pooling to say.
    """

    frequent: tuple[str, ...] = FREQUENT_TOKENS
    share: float = 1.0

    def table(self, statistics: TokenStatistics, vocabulary: Vocabulary, common: Sequence[int]) -> Floats | None:  # noqa: ARG002  as above
        """Return 1 for each token that stays."""
        frequent = frozenset(self.frequent)
        return np.array([not _is_bias(token, frequent) for token in vocabulary()], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Sif:
    """Smooth inverse frequency ``a / (a + p_t)``, ``p_t`` the share of token t in the corpus (Arora et al. 2017).

    The common component that the method also removes is the post-processor ``abtt:1``.
    """

    a: float = 1e-3
    share: float = 1.0

    def table(self, statistics: TokenStatistics, vocabulary: Vocabulary, common: Sequence[int]) -> Floats | None:  # noqa: ARG002  as above
        """Return ``a / (a + p)``."""
        return (self.a / (self.a + _probabilities(statistics))).astype(np.float32)


@dataclass(frozen=True, slots=True)
class USif:
    """Unsupervised SIF: ``a / (a / 2 + p_t)`` with ``a`` from the corpus alone (Ethayarajh 2018, section 3).

    With V the number of distinct tokens and n the mean number of tokens in a text, alpha is the share of tokens more
    probable than ``1 - (1 - 1/V)^n``, and ``a = (1 - alpha) / (alpha V / 2)``. Where no token is so probable, alpha is
    ``1 / V``.
    """

    share: float = 1.0

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
    """Integers the texts that hold each token id, and its occurrences, in texts that come bit by bit.

    ``framing`` names the special tokens that frame every text: they count once in each.
    """

    def __init__(self, vocabulary: int, framing: Sequence[int]) -> None:
        self._framing = list(framing)
        self._frequency = np.zeros(vocabulary, dtype=np.int64)
        self._occurrences = np.zeros(vocabulary, dtype=np.int64)
        self._texts = 0

    def add(self, ids: TokenIds) -> None:
        """Count the token ids of some texts."""
        vocabulary = len(self._occurrences)
        once = np.unique(ids.texts * vocabulary + ids.flat) % vocabulary  # each token once in each text
        self._frequency += np.bincount(once, minlength=vocabulary)
        self._occurrences += np.bincount(ids.flat, minlength=vocabulary)
        self._texts += len(ids)

    def statistics(self) -> TokenStatistics:
        """Return what was counted."""
        frequency, occurrences = self._frequency.copy(), self._occurrences.copy()
        frequency[self._framing] = self._texts
        np.add.at(occurrences, self._framing, self._texts)
        return TokenStatistics(self._texts, frequency, occurrences)


def _byte_characters() -> dict[int, int]:
    """Return what byte each character of a byte-level vocabulary stands for (Radford et al. 2019)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in shown]
    return {**{byte: byte for byte in shown}, **{0x100 + i: byte for i, byte in enumerate(hidden)}}


_BYTES = _byte_characters()


def _decoded(token: str) -> str:
    """Return the text of a token whose characters stand for bytes of UTF-8; any other token as it is."""
    try:
        return bytes(_BYTES[ord(character)] for character in token).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return token


def _probabilities(statistics: TokenStatistics) -> NDArray[np.float64]:
    return statistics.occurrences / max(int(statistics.occurrences.sum()), 1)


def _is_bias(token: str, frequent: frozenset[str]) -> bool:
    bare = _decoded(token.lstrip(_WORD_STARTS))
    subword = token.startswith(_SUBWORD) and token != _SUBWORD
    return subword or bare in frequent or (bare != "" and all(unicodedata.category(c)[0] in "PS" for c in bare))
