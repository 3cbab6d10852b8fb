"""Corpora and word vectors for which the better settings are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ragembed import EmbedderConfig
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import index_files

TOPICS, DIM = 80, 24


def word(number: int) -> str:
    """Return a word that consists of letters only."""
    letters = "bcdfghjklmnpqrst"
    return "w" + "".join(letters[(number >> shift) & 15] for shift in (8, 4, 0))


def write_corpus(folder: Path, topics: int = TOPICS) -> Path:
    """Write a file for each topic, with two sentences that share no word."""
    folder.mkdir()
    for topic in range(topics):
        words = [word(12 * topic + i) for i in range(12)]
        first, second = " ".join(words[:6]).capitalize(), " ".join(words[6:]).capitalize()
        (folder / f"{topic:03}.txt").write_text(f"{first}. {second}.\n")
    return folder


def write_vectors(file: Path, *, common: float, topics: int, shuffled: bool) -> Path:
    """Write vectors of the words: words of a topic have similar vectors, plus noise along one common direction.

    ``common`` is the size of the noise, which varies from word to word. ``shuffled`` gives each word the vector of
    another word.
    """
    generator = np.random.default_rng(0)
    meaning = generator.normal(size=(topics, DIM))
    nothing = generator.normal(size=DIM)
    nothing /= np.linalg.norm(nothing)
    meaning -= (meaning @ nothing)[:, None] * nothing
    size = 12 * topics
    vectors = np.repeat(meaning, 12, axis=0) + 0.3 * generator.normal(size=(size, DIM))
    vectors += common * generator.normal(size=(size, 1)) * nothing
    owners = generator.permutation(size) if shuffled else np.arange(size)
    lines = [f"{word(n)} {' '.join(f'{x:.4f}' for x in vectors[owner])}" for n, owner in enumerate(owners)]
    file.write_text("\n".join(lines) + "\n")
    return file


def words_config(file: Path) -> EmbedderConfig:
    return EmbedderConfig(
        extractor="words", model=str(file), weighting="uniform", postprocess=("normalize",), query_fit="shared"
    )


def make_store(folder: Path, *, common: float, topics: int = TOPICS, shuffled: bool = False) -> Path:
    """Create a store of the corpus with the vectors below ``folder``."""
    docs = write_corpus(folder / "docs", topics)
    vectors = write_vectors(folder / "vectors.txt", common=common, topics=topics, shuffled=shuffled)
    store = folder / "store"
    index_files(IndexingRequest(store, (docs,), embedder=words_config(vectors)))
    return store
