"""Embeddings without a model: questions' vectors are known, any other text's is drawn by its hash."""

from __future__ import annotations

import hashlib

import numpy as np
from corpus import Corpus
from langchain_core.embeddings import Embeddings
from layout import QUESTIONS


class KnownEmbeddings(Embeddings):
    """LangChain embeddings of the questions of ``corpus``."""

    def __init__(self, corpus: Corpus) -> None:
        self._known = {corpus.question(number): corpus.questions[number] for number in range(QUESTIONS)}
        self._dim = corpus.questions.shape[1]

    def embed_query(self, text: str) -> list[float]:
        """Return the unit vector of ``text``."""
        vector: list[float] = (self._known[text] if text in self._known else self._drawn(text)).tolist()
        return vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the unit vectors of ``texts``."""
        return [self.embed_query(text) for text in texts]

    def _drawn(self, text: str) -> np.ndarray:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        vector = np.random.default_rng(seed).standard_normal(self._dim)
        return vector / np.linalg.norm(vector)
