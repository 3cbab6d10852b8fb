"""Hybrid search with and without the correction for hubs: quality on judged collections, and time of a query."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
from data import Setting
from processes import say
from report import table
from speed import Outcome

from ragembed import Embedder, Fusion, Store
from ragembed.documents.model import Chunk
from ragembed.evaluation import RetrievalCollection, paired_bootstrap, score_rankings
from ragembed.indexes import ChunkRecord
from ragembed.indexes.indexing.refit import refit_store
from ragembed.types import Doubles

_WEIGHTS = (0.0, 0.5, 0.7)
_MEASURES = ("ndcg@10", "map", "recall@100")
_DEPTH, _RESAMPLES = 100, 10_000


def hubness(setting: Setting) -> Outcome:
    """Score hybrid search with several weights of hubness; each document is one chunk."""
    found: dict[str, dict[float, dict[str, Doubles]]] = {}
    ratios: list[str] = []
    for collection in setting.collections():
        found[collection.name], ratio, seconds = _measured(collection, setting)
        ratios.append(f"{collection.name} {ratio:.3f} ({seconds:.0f} s to measure hubness)")
    rows = []
    for measure in _MEASURES:
        for weight in _WEIGHTS[1:]:
            gains = [100.0 * (each[weight][measure] - each[0.0][measure]) for each in found.values()]
            single = [paired_bootstrap(gain, np.zeros(len(gain))) for gain in gains]
            cells = [f"{each.difference:+.2f} (p {each.p_value:.3f})" for each in single]
            rows.append([f"{measure}, weight {weight:g}", *cells, _mean(gains, setting.seed), _pooled(gains)])
    own = "; ".join(
        f"{name}: {', '.join(f'{measure} {100.0 * each[0.0][measure].mean():.2f}' for measure in _MEASURES)}"
        for name, each in found.items()
    )
    notes = (
        "Changes in points, against weight 0, of the default hybrid search with MiniLM. Each document is one chunk. "
        "`mean` has its 95 % interval and p-value from a bootstrap over the queries of each collection; `all queries` "
        f"is a paired bootstrap over all of them. Without correction: {own}. Time of a query with weight 0.5 divided "
        f"by that with weight 0, median over turns: {'; '.join(ratios)}. Seed {setting.seed}. ragembed "
        f"{version('ragembed')}."
    )
    return Outcome([table(["", *found, "mean", "all queries"], rows), notes])


def _mean(gains: Sequence[Doubles], seed: int) -> str:
    """Return the mean of the mean gains of the collections, with its interval and p-value."""
    generator = np.random.default_rng(seed)
    drawn = [gain[generator.integers(len(gain), size=(_RESAMPLES, len(gain)))].mean(axis=1) for gain in gains]
    means, observed = np.mean(drawn, axis=0), float(np.mean([gain.mean() for gain in gains]))
    low, high = np.quantile(means, [0.025, 0.975])
    p_value = (1 + np.count_nonzero(np.abs(means - observed) >= abs(observed))) / (1 + _RESAMPLES)
    return f"{observed:+.2f} ({low:+.2f} to {high:+.2f}; p {p_value:.3f})"


def _pooled(gains: Sequence[Doubles]) -> str:
    every = np.concatenate(gains)
    found = paired_bootstrap(every, np.zeros(len(every)))
    return f"{found.difference:+.2f} (p {found.p_value:.3f})"


def _measured(
    collection: RetrievalCollection, setting: Setting
) -> tuple[dict[float, dict[str, Doubles]], float, float]:
    """Return the values of each weight by measure, the ratio of query times, and the seconds of the refit."""
    say(f"{collection.name}: {len(collection.documents):,} documents")
    path = setting.folder / f"hubness-{collection.name}"
    embedder = Embedder.from_preset("minilm", seed=setting.seed).fit(collection.documents.values())
    names = list(collection.documents)
    with Store.create(path, embedder) as store:
        parts = [collection.parts(name) for name in names]
        store.add(
            [ChunkRecord(name, Chunk(text, title=title)) for name, (title, text) in zip(names, parts, strict=True)]
        )
    started = time.perf_counter()
    refit_store(path, hubness=0.5)
    seconds = time.perf_counter() - started
    found = {}
    with Store.open(path) as store:
        for weight in _WEIGHTS:
            answers = store.search_many(list(collection.queries.values()), _DEPTH, fusion=Fusion(hubness=weight))
            rankings = {key: [hit.id for hit in hits] for key, hits in zip(collection.queries, answers, strict=True)}
            found[weight] = score_rankings(rankings, collection.relevance).values
        return found, _ratio(store, list(collection.queries.values()), setting), seconds


def _ratio(store: Store, queries: Sequence[str], setting: Setting) -> float:
    """Return the time of queries with weight 0.5 divided by that with weight 0, one after the other."""
    ratios = []
    for turn in range(setting.turns + 1):
        spent = {0.0: 0.0, 0.5: 0.0}
        for number, query in enumerate(queries[: setting.choose(60, 5)]):
            for weight in sorted(spent, reverse=bool((turn + number) % 2)):
                started = time.perf_counter()
                store.search(query, 10, fusion=Fusion(hubness=weight))
                spent[weight] += time.perf_counter() - started
        ratios.append(spent[0.5] / spent[0.0])
    return statistics.median(ratios[1:])
