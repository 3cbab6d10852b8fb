"""How well the score that ``ragembed tune`` goes by agrees with human judgements, on the judged collections.

What is measured, and how to run it, is described in README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np
from collection import TEST_DATA
from numpy.typing import NDArray
from report import machine, table, write_section

from ragembed import Embedder
from ragembed.documents.model import Chunk
from ragembed.evaluation import RetrievalCollection, ndcg, paired_bootstrap, read_beir
from ragembed.evaluation.correlation import spearman_correlation
from ragembed.evaluation.encoding import raw_part
from ragembed.indexes import ChunkRecord, Fusion, Store
from ragembed.indexes.fitting import refit_store
from ragembed.indexes.tuning import Candidate, TuningReport, tune_store
from ragembed.indexes.tuning.ranking import Ranking
from ragembed.indexes.tuning.words import PoolTexts, match_words
from ragembed.presets import DEFAULT_PRESET, preset
from ragembed.tuning.passages import Passage, Place, Pool
from ragembed.tuning.queries import PseudoQuery
from ragembed.tuning.vectors import Encoder

Doubles = NDArray[np.float64]

_MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Measured:
    """What was tried on a collection, with nDCG@10 of each judged question, in per cent, of each candidate."""

    report: TuningReport
    hybrid: Sequence[Doubles]
    dense: Sequence[Doubles]

    @property
    def now(self) -> int:
        """The position of the default among the candidates."""
        return next(i for i, each in enumerate(self.report.candidates) if each.label == "now")

    @property
    def chosen(self) -> int:
        """The position of what tuning gives the store: the default where nothing is significantly better."""
        if self.report.outcome != "better" or self.report.chosen is None:
            return self.now
        return self.report.candidates.index(self.report.chosen)


def main() -> None:
    """Measure, print the section, and put it into the page of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=TEST_DATA, help="folder of the test collections")
    parser.add_argument("--only", nargs="*", help="names of collections; all, if left out")
    parser.add_argument("--seed", type=int, default=0, help="seed of what tuning draws")
    parser.add_argument("--dry-run", action="store_true", help="print, write nothing")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    every = sorted(folder for folder in (arguments.data / "retrieval").iterdir() if folder.is_dir())
    folders = [folder for folder in every if folder.name in arguments.only] if arguments.only else every
    measured = {each.name: _measure(each, arguments.seed) for each in map(read_beir, folders)}
    body = "\n\n".join(["## Tuning", _agreement(measured), _picks(measured), _notes(measured, load)])
    print(body)
    if not arguments.dry_run:
        write_section("tuning", body)


def _measure(collection: RetrievalCollection, seed: int) -> Measured:
    print(f"{collection.name}: {len(collection.documents):,} documents", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="ragembed-benchmark-") as folder:
        path = Path(folder, "store")
        unit = Embedder().fit_extractor(collection.documents.values()).with_postprocess(("normalize",), "one")
        with Store.create(path, unit.fit_chain(np.zeros((1, 1), dtype=np.float32), [])) as store:
            store.add(ChunkRecord(name, Chunk(text)) for name, text in collection.documents.items())
            refit_store(path, preset(DEFAULT_PRESET).postprocess, preset(DEFAULT_PRESET).sides)
            report = tune_store(path, seed=seed)
            print(f"{collection.name}: {report.outcome}: {report.reason}", file=sys.stderr, flush=True)
            hybrid, dense = _judged(collection, report.candidates, store)
    return Measured(report, hybrid, dense)


def _judged(
    collection: RetrievalCollection, candidates: Sequence[Candidate], store: Store
) -> tuple[list[Doubles], list[Doubles]]:
    """Return nDCG@10 of each judged question by human judgement for each candidate, hybrid and dense."""
    names = list(collection.documents)
    passages = [Passage(name, None, Chunk(text)) for name, text in collection.documents.items()]
    pool = Pool(passages, [Place(name, 0, i) for i, name in enumerate(names)], len(names))
    judged = list(collection.relevance)
    queries = [PseudoQuery(collection.questions[question], (), {}) for question in judged]
    ranking = store._reader.read(
        lambda view: Ranking(
            queries, match_words(view.connection, pool, queries), PoolTexts.of(view.connection, pool, queries)
        )
    )
    encoder = Encoder(list(dict.fromkeys(raw_part(each.config) for each in candidates)), pool, queries)
    rows = range(len(queries))

    def values(best: Sequence[NDArray[np.int64]]) -> Doubles:
        found = zip(judged, best, strict=True)
        return np.array([100.0 * ndcg([names[i] for i in ten], collection.relevance[name]) for name, ten in found])

    hybrid: list[Doubles] = []
    dense: list[Doubles] = []
    for each in candidates:
        vectors = encoder.vectors(each.config)
        hybrid.append(values(ranking.hybrid_best(vectors, rows, each.fusion)))
        dense.append(values(ranking.dense_best(vectors, rows)))
    return hybrid, dense


def _agreement(measured: Mapping[str, Measured]) -> str:
    """Return the rank correlations of the score with human judgement, over several sets of candidates."""
    sets: Mapping[str, tuple[str, Callable[[Candidate], bool]]] = {
        "all that was tried, hybrid": ("hybrid", lambda _: True),
        "embedders with the default fusion, hybrid": ("hybrid", lambda each: each.fusion == Fusion()),
        "embedders, dense alone": ("dense", lambda each: each.fusion == Fusion()),
        "the default embedder with other fusions, hybrid": ("hybrid", lambda each: each.needs in ("nothing", "note")),
    }
    rows = []
    for name, (kind, belongs) in sets.items():
        cells = []
        for of_collection in measured.values():
            chosen = [i for i, each in enumerate(of_collection.report.candidates) if belongs(each)]
            cells += [str(len(chosen)), _correlation(of_collection, chosen, kind)]
        rows.append([name, *cells])
    heads = [f"{name}: {what}" for name in measured for what in ("settings", "Spearman")]
    return table(["", *heads], rows)


def _correlation(measured: Measured, chosen: Sequence[int], kind: str) -> str:
    pseudo = np.array([getattr(measured.report.candidates[i], kind)[_MEAN] for i in chosen])
    human = np.array([float(getattr(measured, kind)[i].mean()) for i in chosen])
    return f"{spearman_correlation(pseudo, human):.2f}"


def _picks(measured: Mapping[str, Measured]) -> str:
    rows = []
    for name, of_collection in measured.items():
        means = [float(values.mean()) for values in of_collection.hybrid]
        now, chosen = of_collection.now, of_collection.chosen
        best = int(np.argmax(means))
        first = of_collection.report.chosen
        compared = paired_bootstrap(of_collection.hybrid[chosen], of_collection.hybrid[now])
        difference = f"{compared.difference:+.1f} ({compared.low:+.1f} to {compared.high:+.1f})"
        rows.append(
            [
                name,
                of_collection.report.outcome,
                "–" if first is None else first.label,
                f"{means[now]:.1f}",
                f"{means[chosen]:.1f}",
                difference if chosen != now else "0",
                f"{means[best]:.1f}",
                f"{means[best] - means[chosen]:.1f}",
                of_collection.report.candidates[best].label,
            ]
        )
    heads = ["outcome", "best on the first half", "default", "after tuning", "difference", "best of all", "regret"]
    return table(["", *heads, "which is"], rows)


def _notes(measured: Mapping[str, Measured], load: float) -> str:
    drawn = "; ".join(
        f"{name}: {each.report.pool:,} of {each.report.chunks:,} documents, "
        + ", ".join(f"{source} {sum(each.report.queries[source])}" for source in each.report.used)
        for name, each in measured.items()
    )
    return f"""\
- The score is the mean nDCG@10 of pseudo-queries on the first half of the documents; human judgement is nDCG@10 of the
  judged questions on the whole collection, of the same settings. One document, title and text, is one chunk. Spearman's
  correlation is over settings. Regret is what the best of all that was tried finds more than what tuning leaves the
  store with, by human judgement; in brackets the 95 % interval of a paired bootstrap over the judged questions.
- Pseudo-queries: {drawn}.
- {date.today().isoformat()}; {machine()}; load average {load:.1f} at the start; ragembed {version("ragembed")}."""


if __name__ == "__main__":
    main()
