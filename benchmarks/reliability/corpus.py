"""Texts and vectors to fill stores with, the same for the same seed, and encoders that need no model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Corpus = Mapping[str, str]
"""The text of each file by its name."""

_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "zo")
WORDS = tuple("".join(syllables) for syllables in product(_SYLLABLES, repeat=3))

_TABLE = "docs/rows.csv"
_ROW_WORDS, _PARAGRAPH_WORDS, _PARAGRAPHS = 12, 60, 6


def words(rng: np.random.Generator, count: int) -> str:
    """Return a text of ``count`` words, of which few are frequent and many are rare."""
    ranks = np.minimum(rng.zipf(1.3, count), len(WORDS)) - 1
    return " ".join(WORDS[rank] for rank in ranks)


def make_corpus(seed: int, files: int, rows: int) -> Corpus:
    """Return Markdown files in two folders, and one table so long that it is encoded in several batches."""
    rng = np.random.default_rng(seed)
    texts = {f"docs/{'ab'[i % 2]}/f{i:04}.md": _page(rng) for i in range(files)}
    return {**texts, _TABLE: _table([words(rng, _ROW_WORDS) for _ in range(rows)])}


def edited(corpus: Corpus) -> Corpus:
    """Return the corpus with a third of the files changed, a sixth removed, and as many added as there were.

    The table loses rows, and gains more.
    """
    rng = np.random.default_rng(len(corpus))
    kept = {}
    for i, (name, text) in enumerate(corpus.items()):
        if name == _TABLE:
            rows = text.splitlines()[1:]
            kept[name] = _table([*rows[len(rows) // 4 :], *(words(rng, _ROW_WORDS) for _ in rows)])
        elif i % 6 != 1:
            kept[name] = f"{text}\n\n{words(rng, _PARAGRAPH_WORDS)}\n" if i % 3 == 0 else text
    return {**kept, **{name.replace("docs/", "docs/new/"): _page(rng) for name in corpus if name != _TABLE}}


def write_corpus(folder: Path, corpus: Corpus, before: Corpus | None = None) -> None:
    """Write the files below ``folder``; those of ``before`` that are the same are left alone, others removed."""
    before = before or {}
    for name in before.keys() - corpus.keys():
        (folder / name).unlink()
    for name, text in corpus.items():
        if before.get(name) != text:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")


def questions(seed: int, count: int) -> list[str]:
    """Return questions of two frequent words and a rare one."""
    rng = np.random.default_rng(seed)
    return [f"{words(rng, 2)} {WORDS[rng.integers(len(WORDS))]}" for _ in range(count)]


def _page(rng: np.random.Generator) -> str:
    parts = (f"## {words(rng, 2)}\n\n{words(rng, _PARAGRAPH_WORDS)}\n" for _ in range(_PARAGRAPHS))
    return f"# {words(rng, 3)}\n\n" + "\n".join(parts)


def _table(rows: Sequence[str]) -> str:
    return "text\n" + "\n".join(rows) + "\n"


class HashedEncoder:
    """An encoder of no meaning: a text's vector is drawn by its hash, a query's is that of the same text.

    With ``known``, vectors by text, those are returned and the rest is drawn.
    """

    def __init__(self, dim: int, known: Mapping[str, Floats] | None = None) -> None:
        self.dim = dim
        self.known = known or {}
        self.fingerprint = self.raw_fingerprint = hashlib.sha256(b"%d" % dim).hexdigest()[:32]

    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Return the vectors of texts, float32, shape ``(n, dim)``."""
        if progress is not None:
            progress(len(texts))
        vectors = [self.known[text] if text in self.known else self._drawn(text) for text in texts]
        return np.array(vectors, dtype=np.float32).reshape(-1, self.dim)

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Return the vectors as they are."""
        return raw

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, float32, shape ``(n, dim)``."""
        return self.raw_documents(texts)

    def describe(self) -> dict[str, Any]:
        """Return what a store says of it."""
        return {"kind": "external", "model": f"hashes of dimension {self.dim}"}

    def save(self, folder: str) -> None:
        """Write nothing: it is made anew."""

    def _drawn(self, text: str) -> Floats:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        return np.random.default_rng(seed).normal(size=self.dim).astype(np.float32)
