"""Token weights fitted on a corpus: document frequencies, idf, and weights that sum to 1 over a text.

Source: Stankevičius & Lukoševičius 2024, section 3.3 (``idf_t = ln(N / df_t)``, no smoothing).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TokenStatistics:
    """How many of the ``texts`` fitted hold each token id.

    ``document_frequency`` is int64, shape ``(vocabulary,)``.
    """

    texts: int
    document_frequency: NDArray[np.int64]

    def idf(self) -> NDArray[np.float32]:
        """Return ``ln(N / df)`` for each token id, float32, shape ``(vocabulary,)``.

        A token never seen gets ``ln N``, the weight of ``df = 1``; a token in every text gets 0.
        """
        count = max(self.texts, 1)
        return np.log(count / np.maximum(self.document_frequency, 1)).astype(np.float32)


def count_tokens(texts_ids: Iterable[Sequence[int]], vocabulary: int, always: Sequence[int]) -> TokenStatistics:
    """Count in how many texts each token id occurs, whatever its count within one; reads the stream once.

    ``always`` names the token ids that frame every text (special tokens): their frequency is the number of texts.
    """
    frequency = np.zeros(vocabulary, dtype=np.int64)
    texts = 0
    for ids in texts_ids:
        frequency[np.unique(np.asarray(ids, dtype=np.int64))] += 1
        texts += 1
    frequency[list(always)] = texts
    return TokenStatistics(texts, frequency)


def blend(ids: NDArray[np.int64], idf: NDArray[np.float32], share: float) -> NDArray[np.float32]:
    """Return token weights that sum to 1: ``share`` parts idf, ``1 - share`` parts uniform.

    Parameters
    ----------
    ids
        Token ids of one text, shape ``(tokens,)``, at least one.
    idf
        Weight of each token id, float32, shape ``(vocabulary,)``, not negative.
    share
        0 is uniform, 1 is idf. Where every idf weight is 0 the weights are uniform.

    Returns
    -------
    float32, shape ``(tokens,)``.
    """
    uniform = np.full(len(ids), 1.0 / len(ids), dtype=np.float32)
    if share == 0.0:
        return uniform
    weights = idf[ids]
    total = weights.sum()
    if total <= 0.0:
        return uniform
    mixed: NDArray[np.float32] = share * (weights / total) + (1.0 - share) * uniform
    return mixed.astype(np.float32)
