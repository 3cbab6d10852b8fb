"""Vectors, questions and exact answers for every number of vectors: ``python -m indexing.prepare REQUEST``.

A process of its own, so that what encodes and searches exactly is not in the memory of the one that measures. What is
in the folder already is used again.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.growing import grown
from indexing.layout import K, Prepared
from indexing.texts import read_questions, read_texts
from ragembed import Embedder
from ragembed.postprocess import unit_rows
from ragembed.pseudo_queries import draw_pseudo_queries
from ragembed.version import __version__

Floats = NDArray[np.float32]

_DEPTH = 100
_TIE = 1e-6
_BLOCK = 20_000
_SLACK = 2
"""Times as many spans as are needed are drawn, since one that is a whole text is left out."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts in a random order, the embedder that was fitted on them, and their unit vectors; where these are kept."""

    folder: Path
    texts: Sequence[str]
    embedder: Embedder
    vectors: Floats

    def encode(self, questions: Sequence[str]) -> Floats:
        """Return the unit vectors of questions."""
        unit: Floats = unit_rows(self.embedder.encode_queries(questions))
        return unit


def main() -> None:
    """Prepare what the request asks for; print where it is, and how many texts there are."""
    request = json.loads(sys.argv[1])
    data, sizes, seed = Path(request["data"]), request["sizes"], request["seed"]
    texts = read_texts(data)
    order = np.random.default_rng(seed).permutation(len(texts))[: request["texts"]]
    corpus = _corpus([texts[i] for i in order], Path(request["folder"]), seed)
    asked = read_questions(data)
    asked = asked[:: max(1, len(asked) // request["questions"])]
    prepared = [
        Prepared(corpus.folder / f"{size}-{request['questions']}-{request['tuning']}-{seed}", size) for size in sizes
    ]
    for one in prepared:
        if not one.folder.is_dir():
            _prepare(one, corpus, asked, request)
    told = {
        "folders": [str(one.folder) for one in prepared],
        "dim": corpus.vectors.shape[1],
        "texts": len(corpus.texts),
        "real": len(asked),
        "held_out": request["questions"],
    }
    print(json.dumps(told))


def _corpus(texts: Sequence[str], folder: Path, seed: int) -> Corpus:
    recipe = json.dumps([__version__, Embedder().config.to_dict(), seed, texts])
    kept = folder / f"texts-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    file = kept / "vectors.npy"
    if not file.is_file():
        _say(f"encoding {len(texts):,} texts")
        embedder = Embedder().fit_extractor(texts)
        raw = embedder.raw_documents(texts)
        embedder.fit_chain(raw, texts)
        kept.mkdir(parents=True, exist_ok=True)
        embedder.save(kept / "embedder")
        partial = file.with_suffix(".partial.npy")
        np.save(partial, unit_rows(embedder.postprocess_documents(raw)))
        partial.rename(file)
    return Corpus(kept, texts, Embedder.load(kept / "embedder"), np.load(file))


def _prepare(prepared: Prepared, corpus: Corpus, asked: Sequence[str], request: dict[str, Any]) -> None:
    """Write vectors, questions and answers for one number of vectors."""
    _say(f"preparing {prepared.size:,} vectors")
    new = Prepared(prepared.folder.with_suffix(".partial"), prepared.size)
    new.vectors.parent.mkdir(parents=True, exist_ok=True)
    _write_vectors(new, corpus, request["seed"])
    indexed = corpus.texts[: prepared.size]
    np.save(new.tuning, corpus.encode(_spans(indexed[0::2], request["tuning"], request["seed"] + 1)))
    held_out = _spans(indexed[1::2], request["questions"], request["seed"] + 2)
    questions = corpus.encode([*asked, *held_out])
    order = np.random.default_rng(request["seed"]).permutation(len(questions))
    np.save(new.questions, questions[order])
    np.savez(new.truth, real=order < len(asked), rows=_answers(new, questions[order]))
    new.folder.rename(prepared.folder)


def _write_vectors(new: Prepared, corpus: Corpus, seed: int) -> None:
    """Write float16 vectors, and as float32 the unit vectors that a store makes of them."""
    shape = (new.size, corpus.vectors.shape[1])
    vectors = np.lib.format.open_memmap(new.vectors, mode="w+", dtype=np.float32, shape=shape)
    start = 0
    with new.raw.open("wb") as stream:
        for rows in grown(corpus.vectors, new.size, seed):
            halves = rows.astype("<f2")
            stream.write(halves.tobytes())
            vectors[start : start + len(rows)] = unit_rows(halves.astype(np.float32))
            start += len(rows)
    vectors.flush()


def _spans(texts: Sequence[str], count: int, seed: int) -> list[str]:
    """Return ``count`` pseudo-queries of ``texts``, none of which is the whole of one."""
    whole = {" ".join(text.split()) for text in texts}
    drawn = [span for span in draw_pseudo_queries(texts, _SLACK * count, seed) if span not in whole]
    return drawn[:count]


def _answers(prepared: Prepared, questions: Floats) -> NDArray[np.int64]:
    """Return the rows that are right answers to each question, shape ``(n, _DEPTH)``, -1 where there are no more.

    They are the best K, and those whose inner product is the same as that of the last of these.
    """
    vectors = np.load(prepared.vectors, mmap_mode="r")
    scores = np.full((len(questions), _DEPTH), -np.inf, dtype=np.float32)
    rows = np.full(scores.shape, -1, dtype=np.int64)
    for start in range(0, len(vectors), _BLOCK):
        block = np.asarray(vectors[start : start + _BLOCK])
        numbers = np.broadcast_to(np.arange(start, start + len(block)), (len(questions), len(block)))
        scores, rows = np.hstack([scores, questions @ block.T]), np.hstack([rows, numbers])
        best = np.argpartition(-scores, _DEPTH - 1, axis=1)[:, :_DEPTH]
        scores, rows = np.take_along_axis(scores, best, axis=1), np.take_along_axis(rows, best, axis=1)
    last = np.sort(scores, axis=1)[:, -K, None]
    return np.where(scores >= last - _TIE, rows, -1)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
