"""The order of hybrid results: weighted feedback, correction for hubs, late interaction; quality and query time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

import numpy as np
from data import Setting
from defaults import judged_collections
from processes import say
from report import table
from speed import Outcome

from ragembed import Embedder, Fusion, Store
from ragembed.documents.model import Chunk
from ragembed.evaluation import RetrievalCollection, paired_bootstrap, score_rankings
from ragembed.indexes import ChunkRecord
from ragembed.indexes.search import feedback
from ragembed.indexes.search.search import Mode
from ragembed.types import Doubles

_MEASURES = ("ndcg@10", "map", "recall@100")
_DEPTH, _RESAMPLES = 100, 10_000
_LEAST_TIMED = 1400
"""Number of documents from which the time of a query is measured: smaller collections are searched in no time."""
_JUDGED = ("cran", "npl")


@dataclass(frozen=True, slots=True)
class _Order:
    """A way to search: the weight of hubness, whether feedback weighs the best chunks equally, and late interaction."""

    hubness: float = Fusion().hubness
    equal: bool = False
    late_interaction: float = 0.0
    mode: Mode = "hybrid"

    @property
    def fusion(self) -> Fusion:
        """The fusion of hybrid search."""
        return Fusion(hubness=self.hubness, late_interaction=self.late_interaction)


_NEITHER = _Order(hubness=0.0, equal=True)
_DEFAULT = _Order()
_LATE = _Order(late_interaction=Fusion().late_interaction)
_ORDERS = {
    "weighted feedback": _Order(hubness=0.0),
    "correction for hubs": _Order(equal=True),
    "both (default)": _DEFAULT,
}
"""Compared with neither of the two steps."""
_OTHERS = {"BM25": _Order(mode="lexical"), "dense": _Order(mode="dense"), "token vectors": _LATE}
"""Compared with the default."""

Values = Mapping[_Order, Mapping[str, Doubles]]
"""The values of each measure, one for each query, by order."""


def ordering(setting: Setting) -> Outcome:
    """Score hybrid search with and without each step; each document is one chunk."""
    found: dict[str, Values] = {}
    sizes, times, sizes_of_tokens = {}, [], []
    for collection, _ in judged_collections(setting):
        say(f"{collection.name}: {len(collection.documents):,} documents")
        path = setting.folder / f"ordering-{collection.name}"
        seconds = _write(collection, path, setting)
        with Store.open(path) as store:
            found[collection.name] = measured(store, collection)
            if len(collection.documents) >= setting.choose(_LEAST_TIMED, 0):
                both, late = _ratios(store, list(collection.queries.values()), setting)
                times.append(f"{collection.name} {both:.3f}, with token vectors {late:.3f} ({seconds:.0f} s to index)")
            tokens = sum(file.stat().st_size for file in (path / "tokens").rglob("*") if file.is_file())
            sizes_of_tokens.append(tokens / sum(len(text) for text in collection.documents.values()))
        sizes[collection.name] = len(collection.documents)
        shutil.rmtree(path)
    return outcome(found, sizes, times, float(np.mean(sizes_of_tokens)), setting.seed)


def outcome(
    found: Mapping[str, Values], sizes: Mapping[str, int], times: Sequence[str], token_bytes: float, seed: int
) -> Outcome:
    """Return the tables of the measurements."""
    rows = []
    for name, values in found.items():
        of_one = [values[order]["ndcg@10"] - values[_NEITHER]["ndcg@10"] for order in _ORDERS.values()]
        before = values[_NEITHER]["ndcg@10"]
        cells = [_of_one(gain) for gain in of_one]
        rows.append([name, f"{sizes[name]:,}", str(len(before)), f"{100.0 * before.mean():.1f}", *cells])
    means = []
    for measure in _MEASURES:
        gains = [
            [100.0 * (values[order][measure] - values[_NEITHER][measure]) for values in found.values()]
            for order in _ORDERS.values()
        ]
        before = np.mean([100.0 * values[_NEITHER][measure].mean() for values in found.values()])
        means.append([measure, f"{before:.1f}", *(_of_mean(each, seed) for each in gains)])
    others = []
    for name, values in found.items():
        default = values[_DEFAULT]["ndcg@10"]
        cells = [_of_one(values[order]["ndcg@10"] - default) for order in _OTHERS.values()]
        others.append([name, f"{100.0 * default.mean():.1f}", *cells])
    other_means = []
    for measure in _MEASURES:
        default = np.mean([100.0 * values[_DEFAULT][measure].mean() for values in found.values()])
        gains = [
            [100.0 * (values[order][measure] - values[_DEFAULT][measure]) for values in found.values()]
            for order in _OTHERS.values()
        ]
        other_means.append([measure, f"{default:.1f}", *(_of_mean(each, seed) for each in gains)])
    judged = []
    for measure in _MEASURES:
        gains = [
            [100.0 * (found[name][order][measure] - found[name][base][measure]) for name in _JUDGED if name in found]
            for order, base in (*((each, _NEITHER) for each in _ORDERS.values()), (_LATE, _DEFAULT))
        ]
        judged.append([measure, *(_of_mean(each, seed) for each in gains)])
    notes = (
        "nDCG@10 of hybrid search with MiniLM, in points; each document is one chunk. *neither* weighs the three best "
        "chunks equally in feedback and does not subtract hubness. The other columns are differences from it, with the "
        "95 % interval of a paired bootstrap over the queries. BM25, dense and hybrid search with token vectors are "
        "compared with the default. The tables of means have intervals and p-values of a bootstrap over the queries of "
        "each collection. Time of a query divided by that with neither, by the shortest time of each query: "
        f"{'; '.join(times)}. Token vectors take {token_bytes:.1f} bytes for each character of text on average. "
        f"ragembed {version('ragembed')}."
    )
    return Outcome(
        [
            table(["", "documents", "queries", "neither", *_ORDERS], rows),
            table(["mean", "neither", *_ORDERS], means),
            table(["", "default", *_OTHERS], others),
            table(["mean", "default", *_OTHERS], other_means),
            "Means of Cranfield and NPL, which people judged; the last column compares with the default.",
            table(["mean", *_ORDERS, "token vectors"], judged),
            notes,
        ]
    )


def measured(store: Store, collection: RetrievalCollection) -> Values:
    """Return the values of each measure with each order; the id of a chunk is the name of its document."""
    found = {}
    for order in (_NEITHER, *_ORDERS.values(), *_OTHERS.values()):
        with _feedback(order):
            answers = store.search_many(list(collection.queries.values()), _DEPTH, order.mode, fusion=order.fusion)
        rankings = {key: [hit.id for hit in hits] for key, hits in zip(collection.queries, answers, strict=True)}
        found[order] = score_rankings(rankings, collection.relevance).values
    return found


@contextmanager
def _feedback(order: _Order) -> Iterator[None]:
    """Let feedback weigh the best chunks equally if ``order`` says so."""
    with patch.object(feedback, "shares", _equal_shares) if order.equal else nullcontext():
        yield


def _equal_shares(scores: Doubles, best: int) -> Doubles:
    count = len(scores[:best])
    return np.full(count, 1.0 / max(count, 1))


def _of_one(gain: Doubles) -> str:
    found = paired_bootstrap(100.0 * gain, np.zeros(len(gain)))
    return f"{found.difference:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def _of_mean(gains: Sequence[Doubles], seed: int) -> str:
    """Return the mean of the mean gains of the collections, with its interval and p-value."""
    generator = np.random.default_rng(seed)
    drawn = [gain[generator.integers(len(gain), size=(_RESAMPLES, len(gain)))].mean(axis=1) for gain in gains]
    means, observed = np.mean(drawn, axis=0), float(np.mean([gain.mean() for gain in gains]))
    low, high = np.quantile(means, [0.025, 0.975])
    p_value = (1 + np.count_nonzero(np.abs(means - observed) >= abs(observed))) / (1 + _RESAMPLES)
    return f"{observed:+.2f} ({low:+.2f} to {high:+.2f}; p {p_value:.4f})"


def _write(collection: RetrievalCollection, path: Path, setting: Setting) -> float:
    """Write a store of the collection; return the seconds."""
    started = time.perf_counter()
    embedder = Embedder.from_preset("minilm", seed=setting.seed).fit(collection.documents.values())
    parts = {name: collection.parts(name) for name in collection.documents}
    with Store.create(path, embedder) as store:
        store.add([ChunkRecord(name, Chunk(text, title=title)) for name, (title, text) in parts.items()])
        store.optimize(token_vectors=True)
    return time.perf_counter() - started


def _ratios(store: Store, queries: Sequence[str], setting: Setting) -> tuple[float, float]:
    """Return the time of queries by default, and with token vectors, divided by that with neither step.

    The shortest time of each query counts.
    """
    queries = queries[: setting.choose(60, 5)]
    orders = [_NEITHER, _DEFAULT, _LATE]
    shortest = {order: np.full(len(queries), np.inf) for order in orders}
    for turn in range(setting.turns + 1):
        for number, query in enumerate(queries):
            for order in orders[:: -1 if (turn + number) % 2 else 1]:
                with _feedback(order):
                    started = time.perf_counter()
                    store.search(query, 10, fusion=order.fusion)
                    spent = time.perf_counter() - started
                shortest[order][number] = min(shortest[order][number], spent)
    base = shortest[_NEITHER].sum()
    return float(shortest[_DEFAULT].sum() / base), float(shortest[_LATE].sum() / base)
