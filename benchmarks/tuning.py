"""Measure how well the score of ``ragembed tune`` agrees with human judgements, and the effect of tuning on a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from data import Setting
from numpy.typing import NDArray
from processes import say
from report import table
from speed import Outcome

from ragembed import Embedder
from ragembed.documents.model import Chunk
from ragembed.evaluation import RetrievalCollection, ndcg, paired_bootstrap
from ragembed.evaluation.correlation import spearman_correlation
from ragembed.indexes import ChunkRecord, Fusion, Store, apply_settings
from ragembed.indexes.search.search import Mode
from ragembed.indexes.tuning import Candidate, TuningReport, tune_store

Doubles = NDArray[np.float64]


def tuning(setting: Setting) -> Outcome:
    """Tune a store of each judged collection, and score the compared settings with the judgements."""
    agreement, outcomes = [], []
    for collection in setting.collections():
        say(f"{collection.name}: {len(collection.documents):,} documents")
        path = setting.folder / f"store-{collection.name}"
        with Store.create(path, Embedder().fit(collection.documents.values())) as store:
            store.add(ChunkRecord(name, Chunk(text)) for name, text in collection.documents.items())
            before = _judged(collection, store)
        report = tune_store(path, seed=setting.seed, apply=True)
        with Store.open(path) as store:
            after = _judged(collection, store)
        outcomes.append([collection.name, *_outcome(report, before, after)])
        tried = report.candidates[: 5 if setting.trial else None]
        say(f"{collection.name}: {report.outcome}; judging {len(tried)} settings")
        agreement += _agreement(collection, path, tried)
    heads = ["settings", "Spearman", "best by pseudo-queries", "best by judgements", "regret"]
    heads_below = ["chosen on the first half", "gain on the held-out half", "outcome", "default", "after", "difference"]
    notes = (
        "The first table compares nDCG@10, in per cent, of the settings that `ragembed tune` compared: by "
        "pseudo-queries on the first half of the documents, and by judged queries over the whole collection. Each "
        "document, with title and text, is one chunk. Regret is the nDCG@10, by judgements, of the best settings minus "
        "that of the settings that pseudo-queries rank first. The second table shows nDCG@10 of the judged queries "
        "before and after `ragembed tune --apply`, with 95 % intervals in brackets."
    )
    return Outcome([table(["", *heads], agreement), table(["", *heads_below], outcomes), notes])


def _judged(collection: RetrievalCollection, store: Store, mode: Mode = "hybrid") -> Doubles:
    """Return nDCG@10 of each judged query, in per cent."""
    judged = list(collection.relevance)
    answers = zip(judged, store.search_many([collection.queries[name] for name in judged], 10, mode), strict=True)
    return np.array([100.0 * ndcg([hit.id for hit in hits], collection.relevance[name]) for name, hits in answers])


def _agreement(collection: RetrievalCollection, path: Path, tried: Sequence[Candidate]) -> list[list[str]]:
    """Apply the settings of each candidate to the store, and compare its scores by pseudo-queries and judgements."""
    dense, hybrid = [], []
    for candidate in tried:
        apply_settings(path, candidate.config, candidate.fusion)
        with Store.open(path) as store:
            dense.append((candidate, candidate.dense["mean"], float(_judged(collection, store, "dense").mean())))
            hybrid.append((candidate, candidate.hybrid["mean"], float(_judged(collection, store).mean())))
    now = next((one.config for one in tried if one.label == "now"), tried[0].config)
    kinds = {
        "embedders, hybrid search": [one for one in hybrid if one[0].fusion == Fusion()],
        "embedders, dense search": [one for one in dense if one[0].fusion == Fusion()],
        "fusions, with the default embedder": [one for one in hybrid if one[0].config == now],
    }
    return [[f"{collection.name}: {kind}", *_compared(found)] for kind, found in kinds.items() if len(found) > 1]


def _compared(found: Sequence[tuple[Candidate, float, float]]) -> list[str]:
    pseudo, human = (np.array([one[i] for one in found]) for i in (1, 2))
    picked, best = int(pseudo.argmax()), int(human.argmax())
    return [
        str(len(found)),
        f"{spearman_correlation(pseudo, human):.2f}",
        f"{found[picked][0].label}: {human[picked]:.1f}",
        f"{found[best][0].label}: {human[best]:.1f}",
        f"{human[best] - human[picked]:.1f}",
    ]


def _outcome(report: TuningReport, before: Doubles, after: Doubles) -> list[str]:
    mean, compared = report.held_out.get("mean"), paired_bootstrap(after, before)
    return [
        "–" if report.chosen is None else report.chosen.label,
        "–" if mean is None else f"{mean.difference:+.1f} ({mean.low:+.1f} to {mean.high:+.1f})",
        report.outcome,
        f"{before.mean():.1f}",
        f"{after.mean():.1f}",
        f"{compared.difference:+.1f} ({compared.low:+.1f} to {compared.high:+.1f})",
    ]
