"""The interfaces of extractors and tokenizers, and a raw vector as the sum of the contributions of its tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ModelError
from ragembed.models.token_ids import TokenIds
from ragembed.types import Doubles, Floats, Spans, State

if TYPE_CHECKING:
    from ragembed.extractors.weighting import TokenWeights

Side = Literal["documents", "queries", "pseudo-queries", "few-documents"]
"""The role of a text, which determines its template and how it is computed.

Pseudo-queries have the template of queries and are computed like documents. Few documents have the template of
documents and are computed like queries.
"""
Progress = Callable[[int], None]
"""A function that is called now and then with the number of texts completed since the last call."""


class Tokenizer(Protocol):
    """Splits texts into token ids and character spans."""

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""
        ...

    @property
    def max_tokens(self) -> int:
        """Number of tokens in the longest useful window, special tokens included."""
        ...

    @property
    def special_tokens(self) -> int:
        """Number of special tokens in each window."""
        ...

    @property
    def prefix(self) -> list[int]:
        """Ids of special tokens before a text."""
        ...

    @property
    def suffix(self) -> list[int]:
        """Ids of special tokens after a text."""
        ...

    def ids(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of each text, without special tokens and without truncation."""
        ...

    def offsets(self, texts: Sequence[str]) -> Sequence[Spans]:
        """Return the ``(start, end)`` character spans of the tokens of each text, without special tokens."""
        ...

    def ids_and_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the token ids of ``text``, as :meth:`ids` does, and the ``(start, end)`` character span of each."""
        ...

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens with these ``ids``."""
        ...

    def vocabulary(self) -> list[str]:
        """Return the tokens by id."""
        ...


TokenOrigin = Literal["text", "special", "template", "mask"]


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text with its character offsets, or one around the text, with its name and without offsets."""

    text: str
    start: int | None = None
    end: int | None = None
    origin: TokenOrigin = "text"


@dataclass(frozen=True, slots=True, eq=False)
class TokenParts:
    """The ``n`` token vectors of a text, multiplied by their shares of the mean; equal tokens have one row."""

    tokens: tuple[Token, ...]
    rows: Doubles  # float64, (n, d); they sum to the raw vector
    shares: Doubles  # float64, (n,)

    @classmethod
    def merged(cls, tokens: Sequence[Token], rows: Doubles, shares: Doubles) -> TokenParts:
        """Return the parts, with the parts of equal tokens added up, in order of first occurrence."""
        places = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
        if len(places) == len(tokens):
            return cls(tuple(tokens), rows, shares)
        at = np.array([places[token] for token in tokens], dtype=np.intp)
        merged_rows, merged_shares = np.zeros((len(places), rows.shape[1])), np.zeros(len(places))
        np.add.at(merged_rows, at, rows)
        np.add.at(merged_shares, at, shares)
        return cls(tuple(places), merged_rows, merged_shares)


def text_tokens(text: str, spans: Sequence[tuple[int, int]]) -> list[Token]:
    """Return the tokens of ``text`` at ``spans``."""
    return [Token(text[start:end], start, end) for start, end in spans]


class Extractor(ABC):
    """Turns texts into raw vectors, the vectors before post-processing; :mod:`ragembed.extractors.sharing` fits it.

    ``weights`` are the token weights, which are all that most extractors fit.
    """

    weights: TokenWeights

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the vectors."""

    @property
    @abstractmethod
    def config(self) -> Mapping[str, Any]:
        """The settings that determine a raw vector besides the fit, as JSON values; files are named by their hashes."""

    @property
    def all_weights(self) -> Sequence[TokenWeights]:
        """The token weights of the extractor and of those that it consists of."""
        return (self.weights,)

    @abstractmethod
    def encode(self, texts: Sequence[str], side: Side, progress: Progress | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; each depends only on its own text.

        Raises :class:`ragembed.errors.NotFittedError` before a fit.
        """

    @abstractmethod
    def token_parts(self, text: str, side: Side) -> TokenParts:
        """Return the parts that sum to the raw vector of ``text``, computed in float32.

        Raises :class:`ragembed.errors.NotFittedError` before a fit.
        """

    def fingerprint_arrays(self) -> State:
        """Return the fitted arrays that determine a raw vector, for its fingerprint."""
        return {} if self.weights.table is None else {"weights": self.weights.table}

    def state(self) -> State:
        """Return all fitted arrays by name."""
        return self.weights.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays that :meth:`state` returned."""
        self.weights.restore(state)


def saved_array(
    state: Mapping[str, NDArray[Any]], name: str, dtype: type[np.generic], shape: tuple[int, ...]
) -> NDArray[Any]:
    """Return the array ``name`` of a saved state.

    Raises :class:`ModelError` if it is missing or has another type or shape than expected.
    """
    array = state.get(name)
    if array is None:
        raise ModelError(f"the saved embedder has no array {name!r}: its files were changed; fit and save it again")
    if array.dtype != dtype or array.shape != shape:
        raise ModelError(
            f"the array {name!r} of the saved embedder is {array.dtype}, shape {array.shape}: expected "
            f"{np.dtype(dtype)}, shape {shape}; fit and save it again"
        )
    return array
