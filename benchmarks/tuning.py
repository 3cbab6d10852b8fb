"""How well the score that ``ragembed tune`` goes by agrees with human judgements, and what tuning does to a store.

What is measured, and how to run it, is described in README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np
from collection import TEST_DATA
from numpy.typing import NDArray
from report import machine, table, write_section

from ragembed import Embedder
from ragembed.documents.model import Chunk
from ragembed.evaluation import RetrievalCollection, ndcg, paired_bootstrap, read_beir
from ragembed.evaluation.correlation import spearman_correlation
from ragembed.indexes import ChunkRecord, Fusion, Store
from ragembed.indexes.fitting import refit_store
from ragembed.indexes.tuning import TuningReport, tune_store
from ragembed.indexes.tuning.candidates import chain_choices, describe
from ragembed.indexes.tuning.choosing import macro_mean
from ragembed.indexes.tuning.pool import Passage, draw_pool
from ragembed.indexes.tuning.pool_search import Encoder, PoolSearch
from ragembed.indexes.tuning.queries import PseudoQuery, collect
from ragembed.indexes.tuning.sources import SOURCES
from ragembed.presets import DEFAULT_PRESET, preset

Doubles = NDArray[np.float64]

_DEFAULT = preset(DEFAULT_PRESET)
_RAWS = (
    _DEFAULT,
    *(_DEFAULT.replace(weighting=weighting) for weighting in ("uniform", "idf")),
    *(_DEFAULT.replace(layers=layers) for layers in ("first+last", "5")),
    *(_DEFAULT.replace(extractor=f"bert+avg:w={w}") for w in (0.25, 0.5)),
    _DEFAULT.replace(extractor="bert+avg:w=0.5", weighting="idf"),
)
_FUSIONS = tuple(Fusion(alpha=alpha) for alpha in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9))
_QUERIES = 400


@dataclass(frozen=True, slots=True)
class Grid:
    """Two scores of each of the same settings, in per cent: by pseudo-queries, and by human judgement."""

    names: Sequence[str]
    pseudo: Doubles
    human: Doubles

    @property
    def agreement(self) -> float:
        """Spearman's correlation of the two."""
        return spearman_correlation(self.pseudo, self.human)

    @property
    def best(self) -> int:
        """The position of the best by human judgement."""
        return int(self.human.argmax())

    @property
    def regret(self) -> float:
        """What the best finds more than the one that pseudo-queries say is the best, by human judgement."""
        return float(self.human.max() - self.human[self.pseudo.argmax()])


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one collection: the grids by name, and the judged questions' values before and after tuning, in per cent."""

    grids: Mapping[str, Grid]
    queries: Mapping[str, int]
    report: TuningReport
    before: Doubles
    after: Doubles


def main() -> None:
    """Measure, print the section, and put it into the page of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=TEST_DATA, help="folder of the test collections")
    parser.add_argument("--seed", type=int, default=0, help="seed of what is drawn")
    parser.add_argument("--dry-run", action="store_true", help="print, write nothing")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    folders = sorted(folder for folder in (arguments.data / "retrieval").iterdir() if folder.is_dir())
    measured = {each.name: _measure(each, arguments.seed) for each in map(read_beir, folders)}
    body = "\n\n".join(["## Tuning", _agreement(measured), _outcomes(measured), _notes(measured, load)])
    print(body)
    if not arguments.dry_run:
        write_section("tuning", body)


def _measure(collection: RetrievalCollection, seed: int) -> Measured:
    print(f"{collection.name}: {len(collection.documents):,} documents", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="ragembed-benchmark-") as folder:
        path = Path(folder, "store")
        unfitted = Embedder().fit_extractor(collection.documents.values()).with_postprocess(("normalize",), "one")
        with Store.create(path, unfitted.fit_chain(np.zeros((1, 1), dtype=np.float32), [])) as store:
            store.add(ChunkRecord(name, Chunk(text)) for name, text in collection.documents.items())
            refit_store(path, _DEFAULT.postprocess, _DEFAULT.sides)
            grids, queries = _grids(collection, store, seed)
            before = _found(collection, store)
            report = tune_store(path, seed=seed, apply=True)
            print(f"{collection.name}: {report.outcome}: {report.reason}", file=sys.stderr, flush=True)
            return Measured(grids, queries, report, before, _found(collection, store))


def _found(collection: RetrievalCollection, store: Store) -> Doubles:
    judged = list(collection.relevance)
    answers = store.search_many([collection.questions[name] for name in judged], 10)
    rankings = zip(judged, answers, strict=True)
    return np.array([100.0 * ndcg([hit.id for hit in hits], collection.relevance[name]) for name, hits in rankings])


def _grids(collection: RetrievalCollection, store: Store, seed: int) -> tuple[dict[str, Grid], dict[str, int]]:
    """Score many settings by pseudo-queries and by the judged questions, over all documents."""
    passages = [Passage(name, None, Chunk(text)) for name, text in collection.documents.items()]
    pool = draw_pool(lambda: passages, len(passages), seed)
    drawn, _ = collect(pool, SOURCES, seed, limit=_QUERIES, changed_limit=_QUERIES, least=10)
    judged = [PseudoQuery(collection.questions[name], (), {}) for name in collection.relevance]
    queries = [*drawn.queries, *judged]
    folder = tempfile.TemporaryDirectory(prefix="ragembed-benchmark-")
    search = PoolSearch(Path(folder.name, "store"), pool, queries, store.language)
    encoder = Encoder(_RAWS, pool, queries)
    names = [passage.id for passage in pool.passages]
    pseudo_rows, judged_rows = range(len(drawn.queries)), range(len(drawn.queries), len(queries))

    def judge(best: Sequence[list[int]]) -> float:
        rankings = zip(collection.relevance.values(), best, strict=True)
        return float(np.mean([100.0 * ndcg([names[i] for i in ten], relevance) for relevance, ten in rankings]))

    def score(values: Doubles) -> float:
        return 100.0 * macro_mean(values, drawn.source)

    scores: dict[str, list[tuple[str, float, float]]] = {"dense": [], "hybrid": [], "fusion": []}
    for config in (chain.on(raw) for raw, chain in product(_RAWS, chain_choices(_DEFAULT))):
        vectors = encoder.vectors(config)
        name = describe(config, _DEFAULT) or "default"
        scores["dense"].append(
            (name, score(search.dense(vectors, pseudo_rows)), judge(search.find(vectors, judged_rows, "dense")))
        )
        for fusion in _FUSIONS if config == _DEFAULT else (Fusion(),):
            both = (
                score(search.hybrid(vectors, pseudo_rows, fusion)),
                judge(search.find(vectors, judged_rows, "hybrid", fusion)),
            )
            if fusion == Fusion():
                scores["hybrid"].append((name, *both))
            if config == _DEFAULT:
                scores["fusion"].append((f"alpha {fusion.alpha:g}", *both))
    search.close()
    folder.cleanup()
    grids = {
        kind: Grid([name for name, _, _ in rows], np.array([p for _, p, _ in rows]), np.array([h for _, _, h in rows]))
        for kind, rows in scores.items()
    }
    return grids, {name: drawn.source.count(name) for name in drawn.sources}


def _agreement(measured: Mapping[str, Measured]) -> str:
    about = {
        "hybrid": "embedders, hybrid search",
        "dense": "embedders, dense search",
        "fusion": "weights of fusion, with the default embedder",
    }
    heads = ["settings", "Spearman", "best by pseudo-queries", "best by judgements", "regret"]
    rows = []
    for collection, of_collection in measured.items():
        for kind, text in about.items():
            grid = of_collection.grids[kind]
            picked = grid.names[int(grid.pseudo.argmax())]
            rows.append(
                [
                    f"{collection}: {text}",
                    str(len(grid.names)),
                    f"{grid.agreement:.2f}",
                    f"{picked}: {grid.human[grid.pseudo.argmax()]:.1f}",
                    f"{grid.names[grid.best]}: {grid.human.max():.1f}",
                    f"{grid.regret:.1f}",
                ]
            )
    return table(["", *heads], rows)


def _outcomes(measured: Mapping[str, Measured]) -> str:
    rows = []
    for collection, each in measured.items():
        compared = paired_bootstrap(each.after, each.before)
        mean = each.report.held_out.get("mean")
        chosen = each.report.chosen
        rows.append(
            [
                collection,
                "–" if chosen is None else chosen.label,
                "–" if mean is None else f"{mean.difference:+.1f} ({mean.low:+.1f} to {mean.high:+.1f})",
                each.report.outcome,
                f"{each.before.mean():.1f}",
                f"{each.after.mean():.1f}",
                f"{compared.difference:+.1f} ({compared.low:+.1f} to {compared.high:+.1f})",
                f"{max(each.grids['hybrid'].human.max(), each.grids['fusion'].human.max()) - each.after.mean():.1f}",
            ]
        )
    heads = ["chosen on the first half", "gain on the half held out", "outcome", "default", "after `tune --apply`"]
    return table(["", *heads, "difference", "regret"], rows)


def _notes(measured: Mapping[str, Measured], load: float) -> str:
    drawn = "; ".join(
        f"{name} " + ", ".join(f"{source} {count}" for source, count in each.queries.items())
        for name, each in measured.items()
    )
    return f"""\
- Above: nDCG@10 of settings by pseudo-queries (the mean over their sources), beside that of the judged questions, both
  over the whole collection; one document, title and text, is one chunk. Regret is what the best finds more than the one
  that pseudo-queries put first, by judgements. Embedders: {len(_RAWS)} ways to make raw vectors with each of the chains
  that tuning knows. Pseudo-queries: {drawn}.
- Below: `ragembed tune --apply` on a store of the collection, and nDCG@10 of the judged questions before and after; in
  brackets 95 % intervals. Regret is to the best of all settings above.
- {date.today().isoformat()}; {machine()}; load average {load:.1f} at the start; ragembed {version("ragembed")}."""


if __name__ == "__main__":
    main()
