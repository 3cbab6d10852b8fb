"""The side of ragembed in each comparison, and the limits of the machine."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from worker import Report, Request, Turn, alternate, main, milliseconds, unshared_memory

from ragembed import Embedder
from ragembed.documents.model import Chunk
from ragembed.indexes import ChunkRecord, Store, VectorEncoder
from ragembed.postprocess import Chain, unit_rows

_BATCH = 8192
_METHODS = {"T4": "t4", "BERT + Avg., first + last layer, idf": "bert+avg", "SBERT-WK": "sbert-wk"}
"""The presets that are compared with the plain mean."""


class GivenVectors(VectorEncoder):
    """An embedder whose document or query vectors are known: ``documents`` and ``queries`` by text."""

    fingerprint = raw_fingerprint = ""

    def __init__(
        self, embedder: Any, documents: Mapping[str, np.ndarray] | None, queries: Mapping[str, np.ndarray] | None
    ) -> None:
        self._embedder, self._documents, self._queries = embedder, documents, queries
        self.fingerprint, self.raw_fingerprint = embedder.fingerprint, embedder.raw_fingerprint

    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Return the known vectors."""
        if self._documents is None:
            return np.asarray(self._embedder.raw_documents(texts, progress))
        return np.stack([self._documents[text] for text in texts])

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Return the known vectors."""
        if self._queries is None:
            return np.asarray(self._embedder.encode_queries(texts))
        return np.concatenate([self._queries[text] for text in texts])

    def postprocess_documents(self, raw: np.ndarray) -> np.ndarray:
        """Return the vectors of the embedder."""
        return np.asarray(self._embedder.postprocess_documents(raw))

    def describe(self) -> Mapping[str, Any]:
        """Return the description of the embedder."""
        return dict(self._embedder.describe())

    def save(self, folder: str) -> None:
        """Save the embedder."""
        self._embedder.save(folder)


class RandomVectors(VectorEncoder):
    """An encoder without a model: random vectors with few dimensions."""

    fingerprint = raw_fingerprint = ""

    def __init__(self, dim: int, seed: int) -> None:
        self.dim = dim
        self.fingerprint = self.raw_fingerprint = hashlib.sha256(b"random %d" % dim).hexdigest()[:32]
        self._rng = np.random.default_rng(seed)

    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Draw vectors, float32, shape ``(n, dim)``."""
        if progress is not None:
            progress(len(texts))
        return self._rng.standard_normal((len(texts), self.dim), dtype=np.float32)

    def postprocess_documents(self, raw: np.ndarray) -> np.ndarray:
        """Return the vectors unchanged."""
        return raw

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Draw vectors, float32, shape ``(n, dim)``."""
        return self.raw_documents(texts)

    def describe(self) -> dict[str, Any]:
        """Return the description for a store."""
        return {"kind": "external", "model": f"random vectors of dimension {self.dim}"}

    def save(self, folder: str) -> None:
        """Write nothing, because nothing was fitted."""


def _fill(path: Path, encoder: Any, texts: Path, **options: Any) -> None:
    """Create a store of the texts in a file, one per line. It gets its final name when it is complete."""
    partial = path.with_name(f"{path.name}.partial")
    with Store.create(partial, encoder, **options) as store, texts.open(encoding="utf-8") as lines:
        count = 0
        while batch := [line.rstrip("\n") for line in islice(lines, _BATCH)]:
            store.add(ChunkRecord(str(count + i), Chunk(text)) for i, text in enumerate(batch))
            count += len(batch)
    partial.rename(path)


def encode(request: Request) -> tuple[Turn, Report]:
    """Encode documents with a fitted preset. The report has the lowest cosine to float32."""
    texts = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    embedder = Embedder.from_preset(request["preset"], dtype=request["dtype"]).fit(texts)
    exact = Embedder.from_preset(request["preset"], dtype="float32").fit(texts)
    found, expected = (unit_rows(one.encode_documents(texts)) for one in (embedder, exact))

    def turn(_number: int) -> None:
        embedder.encode_documents(texts)

    return turn, {"lowest_cosine": float(np.einsum("ij,ij->i", found, expected).min())}


def methods(request: Request) -> Report:
    """Return the seconds of each method, beside the plain mean of the last layer."""
    texts = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    plain = Embedder.from_preset("minilm", weighting="uniform", postprocess=()).fit(texts)
    report = {}
    for name, preset in _METHODS.items():
        own = Embedder.from_preset(preset, postprocess=()).fit(texts)
        calls = {"plain": lambda: plain.raw_documents(texts), "this": lambda e=own: e.raw_documents(texts)}
        report[name] = dict(alternate(calls, request["turns"]))
    return report


def static(request: Request) -> tuple[Turn, Report]:
    """Encode with plain means of static vectors, with new texts in every turn. Write the table and some vectors."""
    turns = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    changes = {"extractor": f"re:dim={request['dim']}"} if request["preset"] == "re" else {}
    embedder = Embedder.from_preset(request["preset"], weighting="uniform", postprocess=(), **changes)
    embedder.fit(turns[0][:500])
    if request["preset"] == "re":
        from ragembed.extractors.token_tables import RandomTable

        extraction: Any = embedder.config.extraction
        drawn = RandomTable(embedder.config.seed, extraction.dim, extraction.sigma)
        np.save(request["table"], drawn.rows(np.arange(embedder.tokenizer.vocabulary_size)))
    else:
        np.save(request["table"], embedder.extractor.state()["avg.vectors"])
    np.save(request["vectors"], embedder.encode_documents(turns[0][:200]))

    def turn(number: int) -> None:
        embedder.encode_documents(turns[number])

    return turn, {}


def warm_store(request: Request) -> None:
    """Create a store of generated texts. Their vectors are near the MiniLM vectors of the texts they are made from."""
    folder = Path(request["folder"])
    sources = (folder / "sources.txt").read_text(encoding="utf-8").split("\n")
    embedder = Embedder.from_preset("minilm").fit(sources)
    encoded = unit_rows(embedder.raw_documents(sources))
    rng, pairs = np.random.default_rng(request["seed"]), np.load(folder / "pairs.npy")
    vectors = np.empty((len(pairs), encoded.shape[1]), dtype=np.float32)
    for start in range(0, len(pairs), _BATCH):
        block = pairs[start : start + _BATCH]
        noise = rng.standard_normal((len(block), encoded.shape[1]), dtype=np.float32) * 0.3 / encoded.shape[1] ** 0.5
        vectors[start : start + len(block)] = unit_rows(encoded[block].mean(axis=1) + noise)
    np.save(folder / "vectors.npy", vectors)
    texts = (folder / "texts.txt").read_text(encoding="utf-8").splitlines()
    known = GivenVectors(embedder, dict(zip(texts, vectors, strict=True)), None)
    _fill(folder / "ragembed", known, folder / "texts.txt")
    with Store.open(folder / "ragembed", known) as store:
        store.optimize()  # one segment, as after 'ragembed index'


def warm(request: Request) -> tuple[Turn, Report]:
    """Search for the queries of a turn in several modes, and measure the throughput of a loop, threads and a batch."""
    turns: list[list[str]] = request["queries"]
    store = Store.open(request["store"])
    embedder = store.embedder
    vectors = {query: embedder.encode_queries([query]) for queries in turns for query in queries}
    ways: dict[str, Callable[[str], object]] = {
        "hybrid": store.search,
        "dense": lambda query: store.search(query, mode="dense"),
        "hybrid, vector given": lambda query: store.search_many([query], vectors=vectors[query])[0],
        "dense, vector given": lambda query: store.search_vector(vectors[query][0]),
    }
    kinds = sorted({segment["kind"] for segment in store.status()["segments"]})

    def turn(number: int) -> Report:
        taken = {way: milliseconds(turns[number], ask) for way, ask in ways.items()}
        return {**taken, "throughput": _throughput(store, turns[number])}

    return turn, {"kinds": kinds}


def _throughput(store: Store, queries: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return hybrid queries per second and processor milliseconds per query: in a loop, in 16 threads, as one batch."""
    with ThreadPoolExecutor(16) as pool:
        calls: dict[str, Callable[[], object]] = {
            "one": lambda: [store.search(query) for query in queries],
            "threads": lambda: list(pool.map(store.search, queries)),
            "batch": lambda: store.search_many(queries),
        }
        found = {}
        for name, call in calls.items():
            started, used = time.perf_counter(), time.process_time()
            call()
            seconds, busy = time.perf_counter() - started, time.process_time() - used
            found[name] = len(queries) / seconds, 1000 * busy / len(queries)
    return found


def lexical_store(request: Request) -> None:
    """Create a store of many texts for lexical search."""
    folder = Path(request["folder"])
    _fill(folder / "ragembed", RandomVectors(8, request["seed"]), folder / "texts.txt", index="flat")


def lexical(request: Request) -> tuple[Turn, Report]:
    """Run lexical search for the queries of a turn."""
    store = Store.open(request["store"])

    def turn(number: int) -> Report:
        return {"taken": milliseconds(request["queries"][number], lambda text: store.search(text, mode="lexical"))}

    return turn, {}


def quantile(request: Request) -> Report:
    """Return the seconds of the quantile post-processors and of scikit-learn, and the largest difference."""
    import sklearn
    from sklearn.preprocessing import QuantileTransformer

    vectors = np.random.default_rng(request["seed"]).standard_normal((request["rows"], request["dim"]))
    vectors = vectors.astype(np.float32)
    report: dict[str, Any] = {"scikit-learn": sklearn.__version__}
    for spec, output in (("quantile-u", "uniform"), ("quantile-n", "normal")):
        chain = Chain([spec]).fit(vectors)
        theirs = QuantileTransformer(n_quantiles=1000, subsample=None, output_distribution=output).fit(vectors)
        difference = float(np.abs(chain.transform(vectors[:2000]) - theirs.transform(vectors[:2000])).max())
        calls = {"theirs": lambda t=theirs: t.transform(vectors), "ours": lambda c=chain: c.transform(vectors)}
        report[spec] = {**dict(alternate(calls, request["turns"])), "difference": difference}
    return report


def search_modes(request: Request) -> Report:
    """Return the milliseconds of queries in each mode, after others that are not measured."""
    before, queries = request["queries"]
    report: dict[str, Any] = {}
    with Store.open(request["store"]) as store:
        for mode in ("lexical", "dense", "hybrid"):
            for some in (before, queries):
                report[mode] = milliseconds(some, lambda query, mode=mode: store.search(query, mode=mode))
        report["kinds"] = sorted({segment["kind"] for segment in store.status()["segments"]})
    return {**report, "unshared": unshared_memory()}


if __name__ == "__main__":
    main(
        {
            "methods": methods,
            "warm_store": warm_store,
            "lexical_store": lexical_store,
            "quantile": quantile,
            "search_modes": search_modes,
        },
        {"encode": encode, "static": static, "warm": warm, "lexical": lexical},
    )
