"""A raw vector as the sum of the contributions of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ragembed.types import Doubles

TokenOrigin = Literal["text", "special", "template", "mask"]


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text, or a special or template token around it.

    ``start`` and ``end`` (exclusive) are character offsets in the text. They are None for a token that is not part of
    the text; its ``text`` is then its name in the vocabulary.
    """

    text: str
    start: int | None = None
    end: int | None = None
    origin: TokenOrigin = "text"


@dataclass(frozen=True, slots=True, eq=False)
class TokenParts:
    """The ``n`` token vectors of a text, multiplied by their shares of the mean.

    A token that occurs in every window, such as a special token, has one row. The shares sum to less than 1 if no token
    takes part in the vector or in one of two mixed vectors.
    """

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
