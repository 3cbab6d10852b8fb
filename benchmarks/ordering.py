"""The order of hybrid results: weighted feedback, correction for hubs; quality and query time."""

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
from ragembed.types import Doubles

_MEASURES = ("ndcg@10", "map", "recall@100")
_DEPTH, _RESAMPLES = 100, 10_000
_LEAST_TIMED = 1400
"""Number of documents from which the time of a query is measured: smaller collections are searched in no time."""
_JUDGED = ("cran", "npl")


@dataclass(frozen=True, slots=True)
class _Order:
    """A way to search: the weight of hubness, and whether feedback weighs the best chunks equally."""

    hubness: float = Fusion().hubness
    equal: bool = False

    @property
    def fusion(self) -> Fusion:
        """The fusion of hybrid search."""
        return Fusion(hubness=self.hubness)


_NEITHER = _Order(hubness=0.0, equal=True)
_DEFAULT = _Order()
_ORDERS = {
    "weighted feedback": _Order(hubness=0.0),
    "correction for hubs": _Order(equal=True),
    "both (default)": _DEFAULT,
}
"""Compared with neither of the two steps."""

Values = Mapping[_Order, Mapping[str, Doubles]]
"""The values of each measure, one for each query, by order."""


def ordering(setting: Setting) -> Outcome:
    """Score hybrid search with and without each step; each document is one chunk."""
    found: dict[str, Values] = {}
    sizes, times = {}, []
    for collection, _ in judged_collections(setting):
        say(f"{collection.name}: {len(collection.documents):,} documents")
        path = setting.folder / f"ordering-{collection.name}"
        _write(collection, path, setting)
        with Store.open(path) as store:
            found[collection.name] = measured(store, collection)
            if len(collection.documents) >= setting.choose(_LEAST_TIMED, 0):
                times.append(f"{collection.name} {_ratio(store, list(collection.queries.values()), setting):.3f}")
        sizes[collection.name] = len(collection.documents)
        shutil.rmtree(path)
    return outcome(found, sizes, times, setting.seed)


def outcome(found: Mapping[str, Values], sizes: Mapping[str, int], times: Sequence[str], seed: int) -> Outcome:
    """Return the tables of the measurements."""
    rows = []
    for name, values in found.items():
        before = 100.0 * values[_NEITHER]["ndcg@10"]
        gains = {order: paired_bootstrap(100.0 * values[order]["ndcg@10"], before) for order in _ORDERS.values()}
        if name in _JUDGED or gains[_DEFAULT].low > 0 or gains[_DEFAULT].high < 0:
            cells = [f"{gain.difference:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})" for gain in gains.values()]
            rows.append([name, f"{sizes[name]:,}", str(len(before)), f"{before.mean():.1f}", *cells])
    judged = {name: values for name, values in found.items() if name in _JUDGED}
    about = (
        "Hybrid search with MiniLM, in points; each document is one chunk. *neither* weighs the three best chunks "
        "equally in feedback and does not subtract hubness. The other columns are differences from it, with 95 % "
        "intervals: for one collection, of a paired bootstrap over the queries; for a mean, with the p-value, of a "
        "bootstrap over the queries of each collection. Time of a query divided by that with neither, by the shortest "
        f"time of each query: {'; '.join(times)}. ragembed {version('ragembed')}."
    )
    return Outcome(
        [
            about,
            table(
                ["mean", "neither", *_ORDERS],
                [*_means(f"{len(found)} collections", found, seed), *_means("Cranfield and NPL", judged, seed)],
            ),
            "nDCG@10 of the collections that people judged, and of those on which the default differs significantly.",
            table(["", "documents", "queries", "neither", *_ORDERS], rows),
        ]
    )


def _means(label: str, found: Mapping[str, Values], seed: int) -> list[list[str]]:
    """Return a row for each measure: the means over the collections."""
    rows = []
    for measure in _MEASURES:
        before = np.mean([100.0 * values[_NEITHER][measure].mean() for values in found.values()])
        gains = [
            [100.0 * (values[order][measure] - values[_NEITHER][measure]) for values in found.values()]
            for order in _ORDERS.values()
        ]
        rows.append([f"{label}: {measure}", f"{before:.1f}", *(_of_mean(each, seed) for each in gains)])
    return rows


def measured(store: Store, collection: RetrievalCollection) -> Values:
    """Return the values of each measure with each order; the id of a chunk is the name of its document."""
    found = {}
    for order in (_NEITHER, *_ORDERS.values()):
        with _feedback(order):
            answers = store.search_many(list(collection.queries.values()), _DEPTH, fusion=order.fusion)
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


def _of_mean(gains: Sequence[Doubles], seed: int) -> str:
    """Return the mean of the mean gains of the collections, with its interval and p-value."""
    generator = np.random.default_rng(seed)
    drawn = [gain[generator.integers(len(gain), size=(_RESAMPLES, len(gain)))].mean(axis=1) for gain in gains]
    means, observed = np.mean(drawn, axis=0), float(np.mean([gain.mean() for gain in gains]))
    low, high = np.quantile(means, [0.025, 0.975])
    p_value = (1 + np.count_nonzero(np.abs(means - observed) >= abs(observed))) / (1 + _RESAMPLES)
    return f"{observed:+.2f} ({low:+.2f} to {high:+.2f}; p {p_value:.4f})"


def _write(collection: RetrievalCollection, path: Path, setting: Setting) -> None:
    """Write a store of the collection."""
    embedder = Embedder.from_preset("minilm", seed=setting.seed).fit(collection.documents.values())
    parts = {name: collection.parts(name) for name in collection.documents}
    with Store.create(path, embedder) as store:
        store.add([ChunkRecord(name, Chunk(text, title=title)) for name, (title, text) in parts.items()])


def _ratio(store: Store, queries: Sequence[str], setting: Setting) -> float:
    """Return the time of queries by default, divided by that with neither step; the shortest of each query counts."""
    queries = queries[: setting.choose(60, 5)]
    orders = [_NEITHER, _DEFAULT]
    shortest = {order: np.full(len(queries), np.inf) for order in orders}
    for turn in range(setting.turns + 1):
        for number, query in enumerate(queries):
            for order in orders[:: -1 if (turn + number) % 2 else 1]:
                with _feedback(order):
                    started = time.perf_counter()
                    store.search(query, 10, fusion=order.fusion)
                    spent = time.perf_counter() - started
                shortest[order][number] = min(shortest[order][number], spent)
    return float(shortest[_DEFAULT].sum() / shortest[_NEITHER].sum())
