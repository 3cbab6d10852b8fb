"""Embeddings with known vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

FAKE = DeterministicFakeEmbedding(size=6)


class Angles(Embeddings):
    """Embed texts that are angles in degrees as points on a circle with radius ``length``."""

    def __init__(self, length: float = 1.0) -> None:
        self.length = length
        self.batches: list[int] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.batches.append(len(texts))
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        angle = math.radians(float(text or 0))
        return [self.length * math.cos(angle), self.length * math.sin(angle)]


class FirstAngle(Angles):
    """The first number in a text is its angle; all numbers are words."""

    def embed_query(self, text: str) -> list[float]:
        return super().embed_query(text.split()[0])


class Given(Embeddings):
    """Return fixed vectors for any texts."""

    def __init__(self, vectors: Sequence[Sequence[float]], model: str | None = None) -> None:
        self.vectors = vectors
        self.model = model

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [list(vector) for vector in self.vectors]

    def embed_query(self, text: str) -> list[float]:
        return list(self.vectors[0])


def ids(documents: Sequence[Document]) -> list[str | None]:
    return [document.id for document in documents]
