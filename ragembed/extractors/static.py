"""Static extractors: one vector per token id, independent of context; a text is their weighted mean.

Encoding needs only a table: no model and no deep-learning framework.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ragembed.extractors.head import Head
from ragembed.extractors.pooling import extremum_shares, mean_shares
from ragembed.extractors.protocol import Extractor, Progress, Side, Token, Tokenizer, TokenParts, text_tokens
from ragembed.extractors.token_tables import TokenTable
from ragembed.extractors.weighting import TokenWeights
from ragembed.models.token_ids import TokenIds
from ragembed.progress import check
from ragembed.types import Floats, Integers

_TEXTS_PER_BLOCK = 1024


class StaticExtractor(Extractor):
    """Encode texts as weighted means, or other power means (Rücklé et al. 2018), of the vectors of their tokens.

    ``config`` has further settings that determine a raw vector, such as the hash of the tokenizer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        table: TokenTable,
        weights: TokenWeights,
        special_tokens: bool,
        config: Mapping[str, Any],
        head: Head | None = None,
        prompts: Mapping[Side, str] = MappingProxyType({}),
        poolings: Sequence[str] = ("mean",),
    ) -> None:
        self.weights = weights
        self._poolings = tuple(poolings)
        self._head = head or Head(len(self._poolings) * table.dim)
        self._prompts = dict(prompts)  # a mapping proxy cannot be pickled or copied
        self._tokenizer = tokenizer
        self._table = table
        self._special_tokens = special_tokens
        self._config = config

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self._head.dim

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that determine a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        return {
            **self._config,
            **self._table.config,
            "special_tokens": self._special_tokens,
            **self.weights.config,
            **self._head.config,
            **{f"prompt of {side}": prompt for side, prompt in self._prompts.items() if prompt},
            **({} if self._poolings == ("mean",) else {"poolings": list(self._poolings)}),
        }

    def encode(self, texts: Sequence[str], side: Side, progress: Progress | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; each depends only on its own text."""
        self.weights.require_fitted()
        prompt = self._prompt(side)
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        for start in range(0, len(texts), _TEXTS_PER_BLOCK):
            check()
            block = [prompt + text for text in texts[start : start + _TEXTS_PER_BLOCK]]
            means = self._means(self._framed(self._tokenizer.ids(block)))
            vectors[start : start + len(block)] = self._head.transform(means)
            if progress is not None:
                progress(len(block))
        return vectors

    def token_parts(self, text: str, side: Side) -> TokenParts:
        """Return the parts of a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`."""
        self.weights.require_fitted()
        prompt = self._prompt(side)
        own, spans = self._tokenizer.ids_and_offsets(prompt + text)
        ids, tokens = self._framed(TokenIds.of([own])).flat, text_tokens(prompt + text, spans)
        if prompt:
            tokens = [_without_prompt(token, len(prompt)) for token in tokens]
        if self._special_tokens:
            before, after = (
                [Token(name, origin="special") for name in self._tokenizer.names(part)] for part in self._frame
            )
            tokens = [*before, *tokens, *after]
        base = self._table.present(ids).astype(np.float32)
        weights = self.weights.of(ids, base)
        mean = mean_shares(base, weights, self.weights.share, [len(ids)], self.weights.by_length)
        rows = self._table.rows(ids)
        shares = [
            mean[:, None] if pooling == "mean" else extremum_shares(rows, base, pooling == "min")
            for pooling in self._poolings
        ]
        parts = np.hstack([share * rows for share in shares])
        token_shares = np.mean([share.mean(axis=1) for share in shares], axis=0)
        return self._head.transform_parts(TokenParts.merged(tokens, parts, token_shares))

    def _prompt(self, side: Side) -> str:
        return self._prompts.get("queries" if side in ("queries", "pseudo-queries") else "documents", "")

    @property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The special token ids before and after a text."""
        return self._tokenizer.prefix, self._tokenizer.suffix

    def _framed(self, ids: TokenIds) -> TokenIds:
        """Add special tokens if they take part."""
        return ids.framed(*self._frame) if self._special_tokens else ids

    def _means(self, ids: TokenIds) -> Floats:
        """Return the raw vectors of texts, given their token ids."""
        distinct, place = ids.distinct()
        base = self._table.present(distinct)[place].astype(np.float32)
        weights, lengths = self.weights.of(ids.flat, base), ids.lengths.tolist()
        shares = mean_shares(base, weights, self.weights.share, lengths, self.weights.by_length)
        rows = self._table.rows(distinct)
        parts = [
            _pooled(pooling, shares.astype(np.float32) if pooling == "mean" else base, place, ids.lengths, rows)
            for pooling in self._poolings
        ]
        return parts[0] if len(parts) == 1 else np.hstack(parts)


def _without_prompt(token: Token, length: int) -> Token:
    """Return ``token`` placed in the text after a prompt of ``length`` characters."""
    start, end = token.start or 0, token.end or 0
    if end <= length:
        return Token(token.text, origin="template")
    return Token(token.text[max(length - start, 0) :], max(start - length, 0), end - length)


def _pooled(pooling: str, weights: Floats, place: Integers, lengths: Integers, rows: Floats) -> Floats:
    """Return for each text the sum of its ``rows`` times ``weights``, or their extrema, float32; 0 without weights."""
    pooled = np.zeros((len(lengths), rows.shape[1]), dtype=np.float32)
    stop = 0
    for text, length in enumerate(lengths.tolist()):
        start, stop = stop, stop + length
        if pooling == "mean":
            if length:  # NumPy 2.4's einsum may return NaN for a sum of no terms, depending on uninitialised memory
                # Unlike BLAS, einsum adds in the same order for any number of tokens and threads.
                np.einsum("t,td->d", weights[start:stop], rows[place[start:stop]], out=pooled[text])
        elif len(present := place[start:stop][weights[start:stop] > 0.0]):
            pooled[text] = rows[present].min(axis=0) if pooling == "min" else rows[present].max(axis=0)
    return pooled
