"""A raw vector as the sum of its tokens' parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ragembed.types import Doubles

TokenOrigin = Literal["text", "special", "template", "mask"]


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text, or one that stands around it.

    ``start`` and ``end`` are its place in the text, in characters, ``end`` exclusive; None for a token that is not the
    text's own, whose ``text`` is its name in the vocabulary.
    """

    text: str
    start: int | None = None
    end: int | None = None
    origin: TokenOrigin = "text"


@dataclass(frozen=True, slots=True, eq=False)
class TokenParts:
    """Token vectors times their shares of the mean: ``rows``, float64, shape ``(n, d)``, sum to the raw vector.

    ``shares``, float64, shape ``(n,)``, sum to 1, and to less where no token takes part in the vector, or in one of two
    that are mixed. A token that is met twice, as one that frames every window, has one row.
    """

    tokens: tuple[Token, ...]
    rows: Doubles
    shares: Doubles

    @classmethod
    def merged(cls, tokens: Sequence[Token], rows: Doubles, shares: Doubles) -> TokenParts:
        """Return the parts with those of equal tokens added up, in the order in which they are first met."""
        places = {token: place for place, token in enumerate(dict.fromkeys(tokens))}
        if len(places) == len(tokens):
            return cls(tuple(tokens), rows, shares)
        at = np.array([places[token] for token in tokens], dtype=np.intp)
        merged_rows, merged_shares = np.zeros((len(places), rows.shape[1])), np.zeros(len(places))
        np.add.at(merged_rows, at, rows)
        np.add.at(merged_shares, at, shares)
        return cls(tuple(places), merged_rows, merged_shares)


def text_tokens(text: str, spans: Sequence[tuple[int, int]], lead: int = 0) -> list[Token]:
    """Return the tokens of ``text`` at ``spans``, which count ``lead`` more characters before it."""
    placed = [(max(start - lead, 0), max(end - lead, 0)) for start, end in spans]
    return [Token(text[start:end], start, end) for start, end in placed]
