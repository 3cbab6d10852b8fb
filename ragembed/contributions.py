"""Split a cosine into the contributions of token pairs. Pure functions on arrays.

A raw vector is a weighted sum of token vectors. An affine post-processor can be applied to each summand on its own, and
normalisation divides every summand by the same number. The inner product of two vectors is therefore the sum of the
inner products of their summands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ragembed.extractors.protocol import Token, TokenOrigin, TokenParts
from ragembed.models.word_tokenizer import WordTokenizer
from ragembed.postprocess.chain import Chain
from ragembed.postprocess.protocol import Parts
from ragembed.postprocess.steps import Normalize
from ragembed.types import Doubles, Floats


@dataclass(frozen=True, slots=True, eq=False)
class TextParts:
    """The unit vector of a text as a sum of one row per token and a rest. All arrays are float64."""

    text: str
    tokens: tuple[Token, ...]
    rows: Doubles  # (n, d), one row per token
    rest: Doubles  # (d,), of no token: the offset of a post-processor that is not affine, or of an empty text
    rounding: Doubles  # (d,), the stored raw vector less the one computed from the tokens; rows has it by share
    additive: bool  # whether rest is 0 for every text that has tokens

    @property
    def vector(self) -> Doubles:
        """The sum of all parts, float64, shape ``(d,)``."""
        total: Doubles = self.rows.sum(axis=0) + self.rest
        return total


@dataclass(frozen=True, slots=True)
class WordShare:
    """The contribution of one word to a score, over all its occurrences and all words of the other text.

    ``best`` is the word of the other text that contributes most together with this one, and ``best_value`` is that
    contribution. ``origin`` says whether the word belongs to the text or to the special and template tokens around it.
    """

    word: str
    origin: TokenOrigin
    value: float
    best: str
    best_value: float


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """The contributions of query tokens and document tokens to a score, which ``pairs`` and ``residual`` sum to."""

    query_text: str
    document_text: str
    query: tuple[Token, ...]
    document: tuple[Token, ...]
    pairs: Doubles  # float64, (query tokens, document tokens)
    residual: float  # of no pair of tokens
    rounding: float  # the part of pairs that comes from the rounding of the stored document vector
    additive: bool  # whether every post-processor is affine, so that residual is 0 for texts with tokens

    @property
    def score(self) -> float:
        """The sum of all contributions."""
        return float(self.pairs.sum()) + self.residual

    def scaled(self, factor: float) -> Contributions:
        """Return the contributions to ``factor`` times the score."""
        return replace(
            self, pairs=factor * self.pairs, residual=factor * self.residual, rounding=factor * self.rounding
        )

    def of_words(self) -> Contributions:
        """Return the same contributions per word: the tokens of each word are added up, in both texts."""
        query, rows = words(self.query_text, self.query)
        document, columns = words(self.document_text, self.document)
        pairs = np.zeros((len(query), len(document)))
        np.add.at(pairs, (rows[:, None], columns), self.pairs)
        return replace(self, query=query, document=document, pairs=pairs)

    @property
    def carriers(self) -> tuple[Token, ...]:
        """The tokens of the document whose contribution is not 0."""
        total = np.abs(self.pairs).sum(axis=0).tolist()
        return tuple(token for token, value in zip(self.document, total, strict=True) if value)

    def document_words(self) -> list[WordShare]:
        """Return the contribution of each word of the document, largest first, ignoring case."""
        own = self.of_words()
        return _shares(own.document, own.query, own.pairs.T)

    def query_words(self) -> list[WordShare]:
        """Return the contribution of each word of the query, largest first, ignoring case."""
        own = self.of_words()
        return _shares(own.query, own.document, own.pairs)


def text_parts(text: str, token_parts: TokenParts, chain: Chain, raw: Floats | None = None) -> TextParts:
    """Return the unit vector of ``text`` as a sum, after the post-processors of ``chain``.

    ``token_parts`` holds the parts of the raw vector. ``raw``, shape ``(d,)``, is the stored raw vector, which may be
    rounded; None uses the sum of the parts.
    """
    own = token_parts.rows.sum(axis=0)
    rounding = np.zeros_like(own) if raw is None else raw.astype(np.float64) - own
    shares = np.array([*token_parts.shares, 0.0, 1.0 - token_parts.shares.sum()])
    parts = chain.transform_parts(Parts(np.vstack([token_parts.rows, rounding, np.zeros_like(own)]), shares))
    rows = Normalize().transform_parts(parts).rows
    rounding, rest = rows[-2], rows[-1] + (1.0 - token_parts.shares.sum()) * rows[-2]
    rows = rows[:-2] + token_parts.shares[:, None] * rounding
    return TextParts(text, token_parts.tokens, rows, rest, rounding, chain.additive)


def contributions(query: TextParts, document: TextParts) -> Contributions:
    """Return the contribution of each pair of tokens to the cosine of a query and a document."""
    # einsum runs in one thread. For products this small, the threads of a BLAS matrix product cost more than they save.
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
    """Return the words of ``text`` that ``tokens`` belong to, and the index of each token's word, shape ``(n,)``.

    A special or template token counts as a word of its own. Words are the atoms of
    :mod:`ragembed.models.word_tokenizer`.
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
    """Return the word that spans both ``word`` and ``token``."""
    if word.start is None or word.end is None or token.start is None or token.end is None:
        return word
    start, end = min(word.start, token.start), max(word.end, token.end)
    start += len(text[start:end]) - len(text[start:end].lstrip())
    return Token(text[start:end], start, end)


def _shares(own: Sequence[Token], other: Sequence[Token], pairs: Doubles) -> list[WordShare]:
    """Return the contribution of each form in ``own``; ``pairs`` has shape ``(own, other)``."""
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
    """Return the distinct forms with their origins, and the index of each token's form."""
    written = [(token.text.lower() if token.origin == "text" else token.text, token.origin) for token in tokens]
    places = {form: place for place, form in enumerate(dict.fromkeys(written))}
    return list(places), np.array([places[form] for form in written], dtype=np.intp)
