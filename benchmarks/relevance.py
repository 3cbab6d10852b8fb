"""Relevance of hits for answerable and for other queries, and search in scripts that the model cannot read."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from data import Setting
from defaults import judged_collections
from processes import say
from report import table
from speed import Outcome

from ragembed import Embedder, Hit, Store
from ragembed.documents.model import Chunk
from ragembed.evaluation import RetrievalCollection, score_rankings
from ragembed.indexes import ChunkRecord
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.search.relevance import WEAK
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.types import Doubles

_DOCUMENTS, _CHARACTERS = 500, 600
_OWN, _FOREIGN = 100, 20
_HARDEST = 5
"""Number of collections in the table of the lowest AUC."""
_BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


_RELIABILITY = (
    "Reliability: of the queries whose relevance is in a range, the share that their collection answers. Own and other "
    "queries have the same weight in each collection."
)
_LANGUAGES = (
    "Collections in scripts that the model cannot read. With the fixed weight, the vector of a query counts as much as "
    "in English."
)


class _Signals(NamedTuple):
    """Highest relevance, best fused score and highest cosine of the ten hits of each query, shapes ``(n,)``."""

    relevance: Doubles
    score: Doubles
    cosine: Doubles

    @classmethod
    def of(cls, answers: Sequence[Sequence[Hit]]) -> _Signals:
        rows = [[max((hit.relevance or 0.0 for hit in hits), default=0.0), *_best(hits)] for hits in answers]
        return cls(*np.array(rows).reshape(-1, 3).T)


def _best(hits: Sequence[Hit]) -> tuple[float, float]:
    return max((hit.score for hit in hits), default=0.0), max((hit.dense or 0.0 for hit in hits), default=-1.0)


def relevance(setting: Setting) -> Outcome:
    """Compare the relevance of a collection's own queries with that of queries of all other collections."""
    collections = {each.name: each for each, _ in judged_collections(setting)}
    queries = {name: _drawn(each) for name, each in collections.items()}
    rows: list[tuple[float, list[str]]] = []
    pairs, languages, ratios = [], [], []
    for name, collection in collections.items():
        path = _store(collection, list(queries[name]), setting)
        with Store.open(path) as store:
            texts: dict[str, Any] = store.status()["detected_language"]
            own = _Signals.of(store.search_many(list(queries[name].values())))
            others = {each: list(found.values())[:_FOREIGN] for each, found in queries.items() if each != name}
            foreign = {each: _Signals.of(store.search_many(found)) for each, found in others.items()}
            together = _Signals(*(np.concatenate(parts) for parts in zip(*foreign.values(), strict=True)))
            worst = min(foreign, key=lambda each: (_auc(own.relevance, foreign[each].relevance), each))
            aucs = [_auc(mine, theirs) for mine, theirs in zip(own, together, strict=True)]
            hardest = f"{_auc(own.relevance, foreign[worst].relevance):.2f} ({worst})"
            shares = [(own.relevance >= WEAK).mean(), (together.relevance < WEAK).mean()]
            cells = [name, texts["language"] or "–", *(f"{each:.3f}" for each in aucs), hardest]
            rows.append((aucs[0], [*cells, *(f"{share:.0%}" for share in shares)]))
            pairs.append((own.relevance, together.relevance))
            if any(store.embedder.unread_share(query) > 0.5 for query in queries[name].values()):
                languages.append(_language(store, collection, queries[name], texts))
            ratios.append(_ratio(store, list(queries[name].values()), setting))
    about = (
        f"Up to {_OWN} own queries of each collection against up to {_FOREIGN} queries of each other collection. Each "
        f"collection has up to {_DOCUMENTS} documents, cut to {_CHARACTERS} characters; MiniLM, default settings. AUC: "
        "the probability that a query that the collection answers has a higher value than one of another collection; "
        "the value is the highest among ten hits. `hardest` has the lowest AUC of relevance among the others. The "
        f"table has the {_HARDEST} collections with the lowest AUC of relevance. Time of a query with relevance "
        f"divided by that without: median {statistics.median(ratios):.3f} over the collections ({min(ratios):.3f} to "
        f"{max(ratios):.3f}). Seed {setting.seed}. ragembed {version('ragembed')}."
    )
    head = ["", "language", "AUC relevance", "AUC score", "AUC cosine", "hardest", f"own ≥ {WEAK}", f"others < {WEAK}"]
    head_of_languages = ["nDCG@10", "recognised as", "words", "hybrid, fixed weight", "hybrid"]
    return Outcome(
        [
            about,
            table(head, [cells for _, cells in sorted(rows)[:_HARDEST]]),
            _RELIABILITY,
            table(["relevance", "mean", "answerable", "share of queries"], _reliability(pairs)),
            _LANGUAGES,
            table(head_of_languages, languages),
        ]
    )


def _drawn(collection: RetrievalCollection) -> dict[str, str]:
    """Return up to ``_OWN`` queries."""
    names = list(collection.queries)
    random.Random(0).shuffle(names)
    return {name: collection.queries[name] for name in names[:_OWN]}


def _store(collection: RetrievalCollection, queries: Sequence[str], setting: Setting) -> Path:
    """Return a store of the documents that answer ``queries``, and of others."""
    path = setting.cache / f"relevance-{collection.name}"
    if not path.exists():
        say(f"{collection.name}: making the store")
        answers = {key for query in queries for key, grade in collection.relevance[query].items() if grade > 0}
        others = [key for key in collection.documents if key not in answers]
        random.Random(1).shuffle(others)
        kept = answers.union(others[: max(0, _DOCUMENTS - len(answers))])
        parts = {key: collection.parts(key) for key in collection.documents if key in kept}
        embedder = Embedder.from_preset("minilm", seed=setting.seed)
        embedder.fit(collection.documents[key][:_CHARACTERS] for key in parts)
        with Store.create(path, embedder) as store:
            store.add(
                [ChunkRecord(key, Chunk(text[:_CHARACTERS], title=title)) for key, (title, text) in parts.items()]
            )
    refit_store(path)
    return path


def _auc(own: Doubles, others: Doubles) -> float:
    higher = (own[:, None] > others[None, :]).mean() + 0.5 * (own[:, None] == others[None, :]).mean()
    return float(higher)


def _reliability(pairs: Sequence[tuple[Doubles, Doubles]]) -> list[list[str]]:
    values = np.concatenate([part for pair in pairs for part in pair])
    answered = np.concatenate(
        [np.full(len(part), side) for pair in pairs for side, part in zip((1, 0), pair, strict=True)]
    )
    weights = np.concatenate([np.full(len(part), 1 / len(part)) for pair in pairs for part in pair])
    rows = []
    for low, high in pairwise(_BINS):
        inside = (values >= low) & ((values < high) | (high == 1.0))
        total = weights[inside].sum()
        mean, share = (weights * values)[inside].sum() / total, (weights * answered)[inside].sum() / total
        rows.append([f"{low:g} to {high:g}", f"{mean:.2f}", f"{share:.2f}", f"{total / weights.sum():.0%}"])
    return rows


def _language(
    store: Store, collection: RetrievalCollection, queries: Mapping[str, str], texts: Mapping[str, Any]
) -> list[str]:
    """Return the quality of words, of hybrid search as for text that the model reads, and of hybrid search."""

    def quality(mode: Any = "hybrid") -> str:
        answers = store.search_many(list(queries.values()), 10, mode)
        rankings = {key: [hit.id for hit in hits] for key, hits in zip(queries, answers, strict=True)}
        judged = {key: collection.relevance[key] for key in queries}
        return f"{100 * score_rankings(rankings, judged).values['ndcg@10'].mean():.1f}"

    with patch.object(Snapshot, "unread_share", return_value=0.0):
        fixed = quality()
    return [collection.name, texts["language"], quality("lexical"), fixed, quality()]


def _ratio(store: Store, queries: Sequence[str], setting: Setting) -> float:
    """Return the time of queries with relevance divided by that without, one after the other."""
    ratios = []
    stored = Snapshot.relevance
    for turn in range(setting.turns + 1):
        spent = {False: 0.0, True: 0.0}
        for number, query in enumerate(queries[: setting.choose(40, 3)]):
            for fitted in sorted(spent, reverse=bool((turn + number) % 2)):
                with patch.object(Snapshot, "relevance", stored if fitted else lambda _: None):
                    started = time.perf_counter()
                    store.search(query)
                    spent[fitted] += time.perf_counter() - started
        ratios.append(spent[True] / spent[False])
    return statistics.median(ratios[1:])
