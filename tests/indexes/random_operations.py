"""Random changes and searches of a store, compared with a dictionary and brute force.

Every search has min(k, matches) results, all selected and with the right scores. On an exact index they are the best
chunks; on other indexes, nearly all of them are. Some limits of the package are lowered, so stores of a few hundred
chunks have approximate indexes and postings, and use them with filters.
"""

from __future__ import annotations

import math
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from ragembed.documents.model import Chunk
from ragembed.errors import IndexWarning
from ragembed.indexes import ChunkRecord, Hit, SourceRecord, Store
from ragembed.indexes.faiss_index import choose
from ragembed.indexes.faiss_index.records import NAMES
from ragembed.indexes.storage import posting_files, reader, segments, upkeep
from tests.conftest import KnownEncoder

Floats = NDArray[np.float32]

_K1, _B = 1.2, 0.75
"""Of SQLite's bm25()."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A chunk: ``order`` grows with each added chunk, ``bucket`` is in its metadata, ``path`` is its file or None."""

    order: int
    text: str
    bucket: int
    path: str | None


Predicate = Callable[[Entry], bool]
Ranking = list[tuple[str, float]]
"""Ids and scores, best first."""


@dataclass
class Mirror:
    """The expected contents of a store: chunks by id."""

    encoder: KnownEncoder
    entries: dict[str, Entry] = field(default_factory=dict)
    _added: int = 0
    _units: dict[str, Floats] = field(default_factory=dict)

    def put(self, chunk_id: str, text: str, bucket: int, path: str | None) -> None:
        """Add a chunk, replacing one with the same id."""
        self._added += 1
        self.entries[chunk_id] = Entry(self._added, text, bucket, path)

    def drop(self, condition: Callable[[str, Entry], bool]) -> None:
        """Delete chunks."""
        self.entries = {name: entry for name, entry in self.entries.items() if not condition(name, entry)}

    def dense(self, question: str, selected: Predicate) -> Ranking:
        """Return all selected chunks by cosine, with vectors rounded as in a store."""
        chosen = [(name, entry) for name, entry in self.entries.items() if selected(entry)]
        if not chosen:
            return []
        vectors = np.stack([self._unit(entry.text) for _, entry in chosen])
        query = self.encoder.encode_queries([question])[0]
        return _ranked(chosen, vectors @ (query / np.linalg.norm(query)))

    def lexical(self, question: str, selected: Predicate) -> Ranking:
        """Return the selected chunks that contain a word of the query, by BM25 over all chunks."""
        counts = {name: Counter(entry.text.split()) for name, entry in self.entries.items()}
        average = sum(map(Counter.total, counts.values())) / max(len(counts), 1)
        scores = dict.fromkeys(counts, 0.0)
        asked = set(question.split())
        for word in asked:
            holders = [name for name, count in counts.items() if count[word]]
            idf = math.log1p((len(counts) - len(holders) + 0.5) / (len(holders) + 0.5))
            for name in holders:
                often, length = counts[name][word], counts[name].total() / average
                scores[name] += idf * often * (_K1 + 1) / (often + _K1 * (1 - _B + _B * length))
        found = [name for name in counts if selected(self.entries[name]) and asked & counts[name].keys()]
        chosen = [(name, self.entries[name]) for name in found]
        return _ranked(chosen, np.array([scores[name] for name in found]))

    def _unit(self, text: str) -> Floats:
        if text not in self._units:
            raw = self.encoder.raw_documents([text])[0].astype(np.float16).astype(np.float32)
            self._units[text] = raw / np.linalg.norm(raw)
        return self._units[text]


def _ranked(chosen: Sequence[tuple[str, Entry]], scores: NDArray[np.floating]) -> Ranking:
    pairs = [(name, score, entry.order) for (name, entry), score in zip(chosen, scores.tolist(), strict=True)]
    return [(name, score) for name, score, _ in sorted(pairs, key=lambda pair: (-pair[1], pair[2]))]


def same_ranking(found: Ranking, expected: Ranking, tolerance: float) -> bool:
    """Return whether the scores are equal, and the ids too, except for ties."""
    mine, theirs = (np.array([score for _, score in hits]) for hits in (found, expected))
    if mine.shape != theirs.shape or not np.allclose(mine, theirs, rtol=tolerance, atol=tolerance):
        return False
    scores, last = dict(expected), expected[-1][1] if expected else 0.0
    return all(np.isclose(scores.get(name, last), score, rtol=tolerance, atol=tolerance) for name, score in found)


KINDS = (*NAMES, "IVF8,SQ6")
EXACT = ("flat", "fp16", "sq8")
"""Kinds that look at every vector."""

_LEAST, _LEAST_OF_CODES = 64, 256
_DIM, _WORDS, _FILES, _BUCKETS = 16, 60, 12, 1000
_FIRST, _MOST = 600, 1200
_TOLERANCE = 2e-5


def limits(kind: str) -> list[tuple[ModuleType, str, float]]:
    """Return modules, names in them, and the values of these while the operations on ``kind`` run."""
    least = _LEAST_OF_CODES if kind == "ivf-pq" else _LEAST
    return [
        (segments, "LEAST_APPROXIMATE", least),
        (choose, "LEAST_ASKED", least),
        (upkeep, "QUERIES_PER_CHECK", 20),
        (posting_files, "LEAST_CHUNKS", least),
        (reader, "_EXACT_ROWS", 16),
        (reader, "_EXACT_SHARE", 0.0),
    ]


@contextmanager
def low_limits(kind: str) -> Iterator[None]:
    """Let small stores behave like large ones during the ``with`` block."""
    lowered = limits(kind)
    before = [getattr(module, name) for module, name, _ in lowered]
    for module, name, value in lowered:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(lowered, before, strict=True):
            setattr(module, name, value)


@dataclass
class Tally:
    """Counts of the operations on one kind of index; ``overlaps`` has the share of the best k that were found."""

    changes: int = 0
    searches: int = 0
    approximate: int = 0
    overlaps: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Operations:
    """A store, the dictionary that it must agree with, and random operations on both."""

    def __init__(self, path: Path, kind: str, seed: int) -> None:
        self._path = path
        self._kind = kind
        self._rng = np.random.default_rng([seed, KINDS.index(kind)])
        self._mirror = Mirror(KnownEncoder(dim=_DIM))
        self._store = Store.create(path, self._mirror.encoder, index=kind)
        self._next = 0
        self._turn = 0
        self.tally = Tally()

    def run(self, count: int) -> Tally:
        """Fill the store, run ``count`` operations, half of them searches, and compare the final contents."""
        self._add(_FIRST)
        changes: Sequence[Callable[[], None]] = (
            *(self._add_some, self._upsert, self._put_file),
            *(self._delete_ids, self._delete_paths, self._delete_where, self._reopen),
        )
        searches = (self._dense, self._dense, self._lexical, self._hybrid)
        for self._turn in range(count):
            if self._turn % 100 == 50:
                self._store.optimize()
                self.tally.changes += 1
            elif self._turn % 2:
                searches[int(self._rng.integers(len(searches)))]()
            else:
                changes[int(self._rng.integers(len(changes)))]()
                self.tally.changes += 1
        self._compare_all()
        self._store.close()
        return self.tally

    # Changes

    def _add_some(self) -> None:
        if len(self._mirror.entries) < _MOST:
            self._add(int(self._rng.integers(1, 40)))

    def _add(self, count: int) -> None:
        self._next += count
        self._put([f"c{self._next - i}" for i in range(count)])

    def _upsert(self) -> None:
        self._put(self._some_ids())

    def _put(self, ids: Sequence[str]) -> None:
        records = [self._new(name, None) for name in ids]
        self._store.add(records)

    def _put_file(self) -> None:
        path = self._some_path()
        self._mirror.drop(lambda _, entry: entry.path == path)
        self._next += 1
        records = [self._new(f"{path}-{self._next}-{i}", path) for i in range(int(self._rng.integers(0, 30)))]
        with self._store.writer() as writer:
            writer.stage(record.chunk.embedded_text for record in records)
            writer.commit(chunks=records, sources=[SourceRecord(path, 1, self._turn, "0" * 64, "operations")])
            writer.merge()
            writer.refresh_index()

    def _new(self, name: str, path: str | None) -> ChunkRecord:
        texts = [entry.text for entry in list(self._mirror.entries.values())[-50:]]
        shared = texts and self._rng.random() < 0.1  # The text of another chunk, which shares its vector.
        text = texts[self._rng.integers(len(texts))] if shared else self._text(int(self._rng.integers(3, 9)))
        bucket = int(self._rng.integers(_BUCKETS))
        self._mirror.put(name, text, bucket, path)
        return ChunkRecord(name, Chunk(text, metadata={"bucket": bucket}), path)

    def _delete_ids(self) -> None:
        ids = set(self._some_ids())
        deleted = self._store.delete([*ids, "unknown"])
        self._dropped(deleted, lambda name, _: name in ids)

    def _delete_paths(self) -> None:
        path = self._some_path()
        self._dropped(self._store.delete(paths=[path]), lambda _, entry: entry.path == path)

    def _delete_where(self) -> None:
        first = int(self._rng.integers(_BUCKETS))
        last = first + int(self._rng.integers(40))
        deleted = self._store.delete(where=f"bucket BETWEEN {first} AND {last}")
        self._dropped(deleted, lambda _, entry: first <= entry.bucket <= last)

    def _dropped(self, deleted: int, condition: Callable[[str, Entry], bool]) -> None:
        before = len(self._mirror.entries)
        self._mirror.drop(condition)
        gone = before - len(self._mirror.entries)
        self._expect(deleted == gone, f"{deleted} chunks were deleted, expected {gone}")

    def _reopen(self) -> None:
        self._store.close()
        self._store = Store.open(self._path, self._mirror.encoder)

    # Searches

    def _dense(self) -> None:
        question, k, (where, selected) = self._text(3), self._some_k(), self._some_filter()
        expected = self._mirror.dense(question, selected)
        hits = self._store.search(question, k, "dense", where=where)
        self._check_dense(f"dense, k={k}, {where}", hits, expected, k)

    def _check_dense(self, name: str, hits: Sequence[Hit], expected: Ranking, k: int) -> None:
        found, best = [(hit.id, hit.score) for hit in hits], expected[:k]
        self._searched(name, found, expected, k)
        if self._kind in EXACT:
            self._expect(same_ranking(found, best, _TOLERANCE), f"{name}: not the best")
        elif best:
            kinds_there = {segment["kind"] for segment in self._store.status()["segments"]}
            self._expect(kinds_there <= {self._kind, "flat"}, f"{name}: there are indexes of kinds {kinds_there}")
            self.tally.approximate += self._kind in kinds_there
            self.tally.overlaps.append(sum(score >= best[-1][1] - _TOLERANCE for _, score in found) / len(best))

    def _lexical(self) -> None:
        question, k, (where, selected) = self._text(2), self._some_k(), self._some_filter()
        expected = self._mirror.lexical(question, selected)
        hits = self._store.search(question, k, "lexical", where=where)
        found = [(hit.id, hit.score) for hit in hits]
        self._searched(f"lexical, k={k}, {where}", found, expected, k)
        self._expect(same_ranking(found, expected[:k], _TOLERANCE), f"lexical, k={k}, {where}: not the best")

    def _hybrid(self) -> None:
        question, k, (where, selected) = self._text(2), self._some_k(), self._some_filter()
        hits = self._store.search(question, k, where=where)
        found = [(hit.id, float(hit.dense or 0.0)) for hit in hits]
        self._searched(f"hybrid, k={k}, {where}", found, self._mirror.dense(question, selected), k)

    def _searched(self, name: str, found: Ranking, expected: Ranking, k: int) -> None:
        self.tally.searches += 1
        wanted = min(k, len(expected))
        self._expect(len(found) == wanted, f"{name}: {len(found)} results, expected {wanted}")
        self._expect(len(dict(found)) == len(found), f"{name}: a chunk was found twice")
        scores = dict(expected)
        for chunk_id, score in found:
            right = chunk_id in scores and abs(scores[chunk_id] - score) <= _TOLERANCE * max(1.0, abs(score))
            self._expect(right, f"{name}: {chunk_id} has the score {score}, expected {scores.get(chunk_id)}")

    def _compare_all(self) -> None:
        expected = {name: (entry.text, entry.bucket, entry.path) for name, entry in self._mirror.entries.items()}
        found = {
            record.id: (record.chunk.text, record.chunk.metadata["bucket"], record.source)
            for record in self._store.chunks()
        }
        self._expect(found == expected, "at the end, the store does not hold what the dictionary holds")
        problems = self._store.verify().problems
        self._expect(not problems, f"at the end, verify found {problems[:3]}")

    def _expect(self, kept: bool, otherwise: str) -> None:
        if not kept:
            self.tally.wrong.append(f"{self._kind}, operation {self._turn}: {otherwise}")

    # Random choices

    def _text(self, length: int) -> str:
        return " ".join(f"w{i}x" for i in self._rng.integers(_WORDS, size=length).tolist())

    def _some_k(self) -> int:
        return int(self._rng.choice([1, 3, 10, 10, 10, 50, 2000]))

    def _some_ids(self) -> list[str]:
        ids = [name for name, entry in self._mirror.entries.items() if entry.path is None]
        return [ids[i] for i in self._rng.permutation(len(ids))[: self._rng.integers(1, 30)].tolist()]

    def _some_path(self) -> str:
        return f"docs/f{self._rng.integers(_FILES)}.md"

    def _some_filter(self) -> tuple[str | None, Predicate]:
        limit = int(_BUCKETS * 10 ** self._rng.uniform(-3, 0))
        path = self._some_path()
        options: list[tuple[str | None, Predicate]] = [
            (None, lambda _: True),
            (f"bucket < {limit}", lambda entry: entry.bucket < limit),
            (f"NOT bucket < {limit}", lambda entry: entry.bucket >= limit),
            (f"path = '{path}'", lambda entry: entry.path == path),
            (f"path IS NULL AND bucket < {limit}", lambda entry: entry.path is None and entry.bucket < limit),
        ]
        return options[self._rng.integers(len(options))]


def measure(folder: Path, kind: str, count: int, seed: int) -> Tally:
    """Run ``count`` operations on a new store of ``kind`` below ``folder``."""
    with low_limits(kind), warnings.catch_warnings():
        warnings.simplefilter("ignore", IndexWarning)  # Results are compared here.
        tally = Operations(folder / kind, kind, seed).run(count)
    shutil.rmtree(folder / kind)
    return tally
