"""What a cosine is made of: the contributions of pairs of tokens, which sum to it. Pure functions on arrays.

A raw vector is the sum of token vectors times their shares. An affine post-processor maps each part by itself, and the
length by which a vector is divided is one number. Therefore the inner product of two vectors is the sum of those of
their parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ragembed.extractors.parts import Token, TokenOrigin, TokenParts
from ragembed.models.word_tokenizer import WordTokenizer
from ragembed.postprocess.chain import Chain
from ragembed.postprocess.normalize import Normalize
from ragembed.postprocess.parts import Parts
from ragembed.types import Doubles, Floats


@dataclass(frozen=True, slots=True, eq=False)
class TextParts:
    """The unit vector of a text as a sum: ``rows``, shape ``(n, d)``, one for each of ``tokens``, and ``rest``.

    ``rest``, shape ``(d,)``, belongs to no token: what a post-processor that is not affine makes of none, and the
    constant of a text without tokens. ``rounding``, shape ``(d,)``, is how much of the vector is the difference between
    the raw vector that was kept and the one of these tokens; it is in ``rows``, divided as the tokens' shares are.
    ``additive`` tells whether ``rest`` is 0 for a text with tokens. Arrays are float64.
    """

    text: str
    tokens: tuple[Token, ...]
    rows: Doubles
    rest: Doubles
    rounding: Doubles
    additive: bool

    @property
    def vector(self) -> Doubles:
        """The vector, shape ``(d,)``."""
        total: Doubles = self.rows.sum(axis=0) + self.rest
        return total


@dataclass(frozen=True, slots=True)
class WordShare:
    """What a word contributes: all its occurrences with all words of the other text, and the ``best`` among those.

    ``origin`` is that of its tokens: what stands around a text contributes, too.
    """

    word: str
    origin: TokenOrigin
    value: float
    best: str
    best_value: float


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """What the tokens of a query and of a document contribute to a score.

    ``pairs``, float64, shape ``(n, m)``, and ``residual``, which no pair of tokens has, sum to the score. ``rounding``
    is how much of the pairs is the rounding of the document's stored vector.
    """

    query_text: str
    document_text: str
    query: tuple[Token, ...]
    document: tuple[Token, ...]
    pairs: Doubles
    residual: float
    rounding: float
    additive: bool

    @property
    def score(self) -> float:
        """What all of it sums to."""
        return float(self.pairs.sum()) + self.residual

    def scaled(self, factor: float) -> Contributions:
        """Return the contributions to ``factor`` times the score."""
        return replace(
            self, pairs=factor * self.pairs, residual=factor * self.residual, rounding=factor * self.rounding
        )

    def of_words(self) -> Contributions:
        """Return the contributions with those of the parts of a word, on both sides, added up."""
        query, rows = words(self.query_text, self.query)
        document, columns = words(self.document_text, self.document)
        pairs = np.zeros((len(query), len(document)))
        np.add.at(pairs, (rows[:, None], columns), self.pairs)
        return replace(self, query=query, document=document, pairs=pairs)

    @property
    def carriers(self) -> tuple[Token, ...]:
        """The tokens of the document that contribute anything."""
        total = np.abs(self.pairs).sum(axis=0).tolist()
        return tuple(token for token, value in zip(self.document, total, strict=True) if value)

    def document_words(self) -> list[WordShare]:
        """Return what each word of the document contributes, the most first; letter case makes no difference."""
        own = self.of_words()
        return _shares(own.document, own.query, own.pairs.T)

    def query_words(self) -> list[WordShare]:
        """Return what each word of the query contributes, the most first; letter case makes no difference."""
        own = self.of_words()
        return _shares(own.query, own.document, own.pairs)


def text_parts(text: str, found: TokenParts, chain: Chain, raw: Floats | None = None) -> TextParts:
    """Return the unit vector of ``text`` as a sum, after the post-processors of ``chain``.

    ``found`` are the parts of its raw vector; ``raw``, shape ``(d,)``, is the raw vector that was kept, None for the
    sum of the parts itself.
    """
    own = found.rows.sum(axis=0)
    rounding = np.zeros_like(own) if raw is None else raw.astype(np.float64) - own
    shares = np.array([*found.shares, 0.0, 1.0 - found.shares.sum()])
    parts = chain.transform_parts(Parts(np.vstack([found.rows, rounding, np.zeros_like(own)]), shares))
    rows = Normalize().transform_parts(parts).rows
    rounding, rest = rows[-2], rows[-1] + (1.0 - found.shares.sum()) * rows[-2]
    rows = rows[:-2] + found.shares[:, None] * rounding
    return TextParts(text, found.tokens, rows, rest, rounding, chain.additive)


def contributions(query: TextParts, document: TextParts) -> Contributions:
    """Return what pairs of tokens contribute to the cosine of a query and a document."""
    # Not by the matrix library, whose threads wait for one another longer than one works on so small a product.
    pairs = np.einsum("id,jd->ij", query.rows, document.rows)
    cosine = query.vector @ document.vector
    return Contributions(
        query.text,
        document.text,
        query.tokens,
        document.tokens,
        pairs,
        float(cosine - pairs.sum()),
        float(query.vector @ document.rounding),
        query.additive and document.additive,
    )


def words(text: str, tokens: Sequence[Token]) -> tuple[tuple[Token, ...], NDArray[np.intp]]:
    """Return the words of ``text`` that ``tokens`` are parts of, and for each token which of them, shape ``(n,)``.

    A token that is not the text's own stays by itself. Words are what :mod:`word_tokenizer` takes for atoms.
    """
    (atoms,) = WordTokenizer({}).offsets([text])
    ends = [end for _, end in atoms]
    places: dict[Token | int, int] = {}
    spans: list[Token] = []
    at = np.zeros(len(tokens), dtype=np.intp)
    for i, token in enumerate(tokens):
        key: Token | int = token
        if token.start is not None and token.end is not None:
            begin = token.start + len(token.text) - len(token.text.lstrip())
            atom = int(np.searchsorted(ends, begin, side="right"))
            if atom < len(atoms) and atoms[atom][0] < token.end:
                key = atom
        if key not in places:
            places[key] = len(spans)
            spans.append(token)
        at[i] = places[key]
        spans[at[i]] = _joined(text, spans[at[i]], token)
    return tuple(spans), at


def _joined(text: str, word: Token, token: Token) -> Token:
    if word.start is None or word.end is None or token.start is None or token.end is None:
        return word
    start, end = min(word.start, token.start), max(word.end, token.end)
    start += len(text[start:end]) - len(text[start:end].lstrip())
    return Token(text[start:end], start, end)


def _shares(own: Sequence[Token], other: Sequence[Token], pairs: Doubles) -> list[WordShare]:
    """Return what each form of ``own`` contributes; ``pairs`` has shape ``(own, other)``."""
    if not other:
        return []
    (forms, rows), (others, columns) = _forms(own), _forms(other)
    total = np.zeros((len(forms), len(others)))
    np.add.at(total, (rows[:, None], columns), pairs)
    best = total.argmax(axis=1)
    shares = [
        WordShare(form, origin, float(row.sum()), others[column][0], float(row[column]))
        for (form, origin), row, column in zip(forms, total, best.tolist(), strict=True)
    ]
    return sorted(shares, key=lambda share: -share.value)


def _forms(tokens: Sequence[Token]) -> tuple[list[tuple[str, TokenOrigin]], NDArray[np.intp]]:
    """Return the different forms with their origins, and for each token which it has."""
    written = [(token.text.lower() if token.origin == "text" else token.text, token.origin) for token in tokens]
    places = {form: place for place, form in enumerate(dict.fromkeys(written))}
    return list(places), np.array([places[form] for form in written], dtype=np.intp)
