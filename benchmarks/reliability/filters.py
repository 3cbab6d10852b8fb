"""Filtered search in sixty thousand vectors of real texts: what it finds, beside exact search, and how long it takes.

On an exact index the best that match, on approximate ones nearly all of them, and always min(k, matches) results. How
much of an approximate index is looked at is what holds where that was not tuned to a budget. The filter selects either
at random, or by topic: the documents nearest to one of them. Most questions are then far from all that may be found,
and that is what approximate search is bad at.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from collection import TEST_DATA
from numpy.typing import NDArray
from report import significant, table

from ragembed import Embedder
from ragembed.documents.model import Chunk
from ragembed.evaluation import read_beir
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.ann.specs import NAMES
from ragembed.indexes.segments import to_raw
from ragembed.indexes.writer import BATCH
from reliability.common import finish, parser, scratch, told
from reliability.corpus import Floats, HashedEncoder

EXACT = ("flat", "fp16")
"""Kinds that look at every vector."""
SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
LEAST_OVERLAP = 0.99
"""Of approximate indexes, as the mean over the queries."""

_K = 10
_NOISE = 0.02
_COLLECTIONS = ("npl", "cran")
_TOPICS = 5
_TIE = 1e-6


@dataclass(frozen=True, slots=True)
class Vectors:
    """``documents``, shape ``(n, d)``, and ``queries``, unit vectors; orders of the documents, by field of metadata.

    An order, shape ``(n,)``, gives the place of each document in it; a filter selects the first.
    """

    documents: Floats
    queries: Floats
    orders: Mapping[str, NDArray[np.int64]]

    def selections(self) -> Mapping[str, Sequence[str]]:
        """Return the fields of orders by what they are."""
        return {"at random": ["random"], "by topic": [name for name in self.orders if name != "random"]}


@dataclass
class Found:
    """What one kind of index found under filters of one share: overlaps with exact search, and seconds, by query.

    ``first`` has the seconds of the first search under each filter.
    """

    kind: str
    selection: str
    share: float
    overlaps: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def overlap(self) -> float:
        """Return the mean."""
        return statistics.fmean(self.overlaps)


def make_vectors(data: Path, count: int, queries: int, seed: int) -> Vectors:
    """Encode the documents and questions of the collections, and repeat them with noise until there are ``count``."""
    rng = np.random.default_rng(seed)
    collections = [read_beir(data / "retrieval" / name) for name in _COLLECTIONS]
    texts = [text for collection in collections for text in collection.documents.values()][:count]
    asked = [text for collection in collections for text in collection.questions.values()]
    embedder = Embedder.from_preset("minilm", weighting="uniform", postprocess=("normalize",), sides="one")
    embedder = embedder.fit(texts[:1000])
    told(f"encoding {len(texts):,} documents and {len(asked):,} questions")
    base = embedder.encode_documents(texts)
    return arrange(base, embedder.encode_queries(asked), count, queries, rng)


def arrange(base: Floats, asked: Floats, count: int, queries: int, rng: np.random.Generator) -> Vectors:
    """Repeat the unit vectors ``base`` with noise until there are ``count``, queries too, and order them."""
    documents = _repeated(base, count, rng)
    orders = {"random": rng.permutation(count)}
    for number in range(_TOPICS):
        farthest_first = np.argsort(documents @ documents[rng.integers(count)], kind="stable")
        orders[f"topic{number}"] = np.empty(count, dtype=np.int64)
        orders[f"topic{number}"][farthest_first[::-1]] = np.arange(count)
    return Vectors(documents, _repeated(asked, queries, rng), orders)


def _repeated(base: Floats, count: int, rng: np.random.Generator) -> Floats:
    rows = base[np.arange(count) % len(base)]
    noise = rng.standard_normal(rows.shape).astype(np.float32) * _NOISE
    noise[: len(base)] = 0.0
    rows = rows + noise
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def make_store(path: Path, vectors: Vectors, kind: str) -> None:
    """Make a store of the documents as one segment, each with its places in the orders in its metadata."""
    texts = [f"document {i}" for i in range(len(vectors.documents))]
    with Store.create(path, _encoder(vectors), index=kind) as store, store.writer() as writer:
        writer.stage_vectors(texts, vectors.documents)
        for start in range(0, len(texts), BATCH):
            numbers = range(start, min(start + BATCH, len(texts)))
            writer.commit(chunks=[_record(i, texts[i], vectors) for i in numbers])


def _record(number: int, text: str, vectors: Vectors) -> ChunkRecord:
    metadata = {name: int(order[number]) for name, order in vectors.orders.items()}
    return ChunkRecord(str(number), Chunk(text, metadata=metadata))


def _encoder(vectors: Vectors) -> HashedEncoder:
    return HashedEncoder(vectors.documents.shape[1])


def search(path: Path, vectors: Vectors, kind: str, shares: Sequence[float]) -> Iterator[Found]:
    """Ask the store every query under filters for each of the shares of documents, random ones and those of topics."""
    stored = to_raw(vectors.documents).astype(np.float32)
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    with Store.open(path, _encoder(vectors)) as store:
        for selection, fields in vectors.selections().items():
            for share in shares:
                found, limit = Found(kind, selection, share), max(1, round(share * len(stored)))
                for name in fields:
                    _ask(store, vectors.queries, stored[vectors.orders[name] < limit], found, name, limit)
                least = 1.0 if kind in EXACT else LEAST_OVERLAP
                if found.overlap() < least:
                    found.broken.append(f"{kind}, {share} {selection}: overlap {found.overlap():.4f}, expected {least}")
                yield found


def _ask(store: Store, queries: Floats, selected: Floats, found: Found, field: str, limit: int) -> None:
    """Ask every query under the filter that leaves the vectors ``selected``, which have ``field`` below ``limit``."""
    where = f"{field} < {limit}"
    started = time.perf_counter()
    store.search_vector(queries[0], _K, where=where)
    found.first.append(time.perf_counter() - started)
    wanted = min(_K, len(selected))
    for number, query in enumerate(queries):
        started = time.perf_counter()
        hits = store.search_vector(query, _K, where=where)
        found.seconds.append(time.perf_counter() - started)
        best = np.sort(selected @ query)[::-1][:wanted]
        found.overlaps.append(sum(hit.score >= best[-1] - _TIE for hit in hits) / wanted)
        if len(hits) != wanted:
            found.broken.append(f"{found.kind}, {where}, query {number}: {len(hits)} results, expected {wanted}")
        if any(hit.chunk.metadata[field] >= limit for hit in hits):
            found.broken.append(f"{found.kind}, {where}, query {number}: a result is not selected")


def measure(folder: Path, vectors: Vectors, kinds: Sequence[str] = NAMES) -> list[Found]:
    """Make a store of each kind, and search it."""
    found = []
    for kind in kinds:
        started = time.perf_counter()
        make_store(folder / kind, vectors, kind)
        told(f"{kind}: made in {time.perf_counter() - started:.0f} s")
        for one in search(folder / kind, vectors, kind, SHARES):
            told(f"{kind}, {one.selection}, {one.share}: {one.overlap():.4f}")
            found.append(one)
    return found


def main() -> None:
    """Measure, print the tables and put them into the page of results."""
    options = parser(__doc__, "about six minutes; a trial two")
    options.add_argument("--data", type=Path, default=TEST_DATA, help="folder of the test collections")
    options.add_argument("--kind", choices=NAMES, action="append", help="one of the kinds; may be repeated")
    options.add_argument("--vectors", type=int, help="default: 60,000, in a trial 30,000")
    arguments = options.parse_args()
    count, queries = arguments.vectors or (30_000 if arguments.trial else 60_000), 50 if arguments.trial else 200
    with scratch(arguments.folder) as folder:
        vectors = make_vectors(arguments.data, count, queries, arguments.seed)
        found = measure(folder, vectors, arguments.kind or NAMES)
    about = (
        f"{count:,} vectors of dimension {vectors.documents.shape[1]} in one segment: MiniLM's of the documents of "
        f"{' and '.join(_COLLECTIONS)}, repeated with noise of standard deviation {_NOISE} in each number; {queries} "
        f"queries, the questions in the same way; seed {arguments.seed}. Overlap@{_K} with exact search among the "
        "selected, mean and least over the queries; milliseconds of `Store.search_vector`, median. The first search "
        "under a filter also selects the chunks; the selection is then kept. By topic: the documents nearest to one "
        f"of them, for each of {_TOPICS}. Nothing was tuned: approximate indexes are searched with the usual effort."
    )
    parts = [about]
    for selection in vectors.selections():
        parts += [f"Selected {selection}:", _table([one for one in found if one.selection == selection])]
    broken = [sentence for one in found for sentence in one.broken]
    finish("filters", "filtered search", parts, broken, trial=arguments.trial)


def _table(found: Sequence[Found]) -> str:
    kinds = list(dict.fromkeys(one.kind for one in found))
    header = ["selected"]
    header += [f"{kind}: {what}" for kind in kinds for what in ("mean overlap", "least", "ms", "first, ms")]
    cells = {(one.kind, one.share): _cells(one) for one in found}
    shares = list(dict.fromkeys(one.share for one in found))
    return table(header, [[str(share), *(cell for kind in kinds for cell in cells[kind, share])] for share in shares])


def _cells(one: Found) -> list[str]:
    taken = significant(1000 * statistics.median(one.seconds)), significant(1000 * statistics.median(one.first))
    return [f"{one.overlap():.4f}", f"{min(one.overlaps):.1f}", *taken]


if __name__ == "__main__":
    main()
