"""What a refit of a large store takes, beside encoding its texts anew, and whether it gives the same.

The store has made-up texts and raw vectors, which are given to it, so that only the refit is measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from report import machine, significant, table, write_section

from ragembed import Embedder, EmbedderConfig
from ragembed.documents.model import Chunk
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.fitting import refit_store

Floats = NDArray[np.float32]

_STEPS = (("abtt:2", "normalize"), ("zscore",), ("whiten:100",), ("quantile-u",), ("center", "normalize"))
_WORDS = 20_000
_BATCH = 5_000


def main() -> None:
    """Measure, print the table, and put it into the page of results."""
    arguments = _arguments()
    rng = np.random.default_rng(arguments.seed)
    texts = _texts(rng, arguments.chunks)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name, _encoded() as encoded:
        store = Path(name) / "store"
        embedder = _embedder(texts, ("normalize",), "one")
        raw = _vectors(rng, len(texts), embedder.dim)
        _fill(store, embedder, texts, raw)
        refit_store(store, ("center", "normalize"), "two")  # as the first run over files does at its end
        rows = []
        for steps in _STEPS:
            encoded.clear()
            started = time.perf_counter()
            refit_store(store, steps)
            seconds = time.perf_counter() - started
            rows.append([", ".join(steps), significant(seconds), f"{sum(encoded):,}"])
            print(rows[-1], flush=True)
        difference = _difference(store, Path(name) / "clean", embedder, texts, raw)
        anew = _encoding_seconds(embedder, texts, arguments.sample)
    ratio = anew / float(rows[0][1])
    about = (
        f"{date.today().isoformat()}; {machine()}. A store of {len(texts):,} chunks of about 100 words, raw vectors of "
        f"dimension {embedder.dim}, two sides, exact index; each refit after the one above it."
    )
    notes = (
        f"Encoding the chunks anew would take {significant(anew)} s, going by {arguments.sample:,} of them: "
        f"{significant(ratio)} times the first refit. A store that was made with the last post-processors has vectors "
        f"that differ by {difference:.1g} at most."
    )
    body = "\n\n".join(["## Refit", about, table(["post-processors", "s", "texts encoded"], rows), notes])
    print(body)
    if not arguments.trial:
        write_section("refit", body)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--sample", type=int, default=500, help="chunks that are encoded to tell what all would take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the store is made; 1 GB of disk")
    parser.add_argument("--trial", action="store_true", help="print, write nothing")
    return parser.parse_args()


def _texts(rng: np.random.Generator, count: int) -> list[str]:
    words = np.array([f"w{number}" for number in range(_WORDS)])
    return [" ".join(words[np.minimum(rng.zipf(1.3, 100) - 1, _WORDS - 1)]) + f" {i}" for i in range(count)]


def _vectors(rng: np.random.Generator, count: int, dim: int) -> Floats:
    """Return vectors that spread along their dimensions as a model's do, about a mean that is not zero."""
    spread = (1.0 / np.sqrt(1.0 + np.arange(dim))).astype(np.float32)
    raw = rng.standard_normal((count, dim), dtype=np.float32) * spread + rng.standard_normal(dim, dtype=np.float32)
    return raw.astype(np.float16).astype(np.float32)


def _embedder(texts: Sequence[str], steps: tuple[str, ...], sides: str) -> Embedder:
    embedder = Embedder(EmbedderConfig(postprocess=steps, sides=sides)).fit_extractor(texts[:_BATCH])
    return embedder.fit_chain(np.zeros((1, 1), dtype=np.float32), [])


def _fill(path: Path, embedder: Embedder, texts: Sequence[str], raw: Floats) -> None:
    with Store.create(path, embedder) as store, store.writer() as writer:
        for start in range(0, len(texts), _BATCH):
            some = texts[start : start + _BATCH]
            writer.stage_vectors(some, raw[start : start + _BATCH])
            writer.commit(chunks=[ChunkRecord(f"c{start + i}", Chunk(text)) for i, text in enumerate(some)])
            writer.merge()
        writer.settle()


def _difference(store: Path, clean: Path, embedder: Embedder, texts: Sequence[str], raw: Floats) -> float:
    """Return how far the vectors of ``store`` are from those of one made with its post-processors."""
    with Store.open(store) as opened:
        config = opened.embedder.describe()["config"]
        made = embedder.with_postprocess(config["postprocess"], config["sides"]).fit_chain(raw, texts)
        _fill(clean, made, texts, raw)
        ids = [f"c{i}" for i in range(0, len(texts), 10)]
        with Store.open(clean) as other:
            return float(np.abs(opened.vectors(ids) - other.vectors(ids)).max())


def _encoding_seconds(embedder: Embedder, texts: Sequence[str], sample: int) -> float:
    embedder.raw_documents(texts[:10])
    started = time.perf_counter()
    embedder.raw_documents(texts[:: max(1, len(texts) // sample)][:sample])
    return (time.perf_counter() - started) * len(texts) / min(sample, len(texts))


@contextmanager
def _encoded() -> Iterator[list[int]]:
    """Note how many texts each call of the model's is given."""
    counts: list[int] = []
    encode = TransformerExtractor.encode

    def counting(self: TransformerExtractor, texts: Sequence[str], *arguments: object) -> Floats:
        counts.append(len(texts))
        return encode(self, texts, *arguments)  # type: ignore[arg-type]

    TransformerExtractor.encode = counting  # type: ignore[assignment, method-assign]
    try:
        yield counts
    finally:
        TransformerExtractor.encode = encode  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
