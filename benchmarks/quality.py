"""What each way of searching finds, on the judged collections of the test data.

What is measured, and how to run it, is described in README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np
from collection import TEST_DATA, write_files
from contestants import LangChain
from environments import LANGCHAIN
from measure import Runner
from report import machine, table, write_section

from ragembed import Embedder
from ragembed.documents.model import Chunk
from ragembed.evaluation import RetrievalCollection, read_beir, score_rankings
from ragembed.evaluation.bootstrap import paired_bootstrap
from ragembed.evaluation.retrieval import RetrievalScore
from ragembed.indexes import ChunkRecord, Fusion, Store
from ragembed.indexes.tuning import TuningReport, tune_store
from ragembed.indexes.tuning.store_evaluation import Rankings, Search, StoreJudgements, rank, rank_in_store

_MEASURE = "ndcg@10"
_DEPTH = 10
"""Results that are asked for, as by ``ragembed query``."""
_DEFAULT = "default: hybrid with feedback"
_TUNED = "tuned"
_PEER = "LangChain FAISS, MiniLM"
_FIGURE = Path(__file__).resolve().parent / "figures" / "quality.png"

_SEARCHES: Mapping[str, Search] = {
    "BM25": Search("lexical"),
    "dense": Search("dense"),
    "hybrid without feedback": Search(fusion=Fusion(feedback=0.0)),
    _DEFAULT: Search(),
}
"""Ways to search the store of the default preset."""

_FUSIONS: Mapping[str, Search] = {
    **{f"hybrid, alpha {alpha:g}": Search(fusion=Fusion(alpha=alpha)) for alpha in (0.4, 0.5, 0.7, 0.8)},
    **{f"hybrid, feedback {weight:g}": Search(fusion=Fusion(feedback=weight)) for weight in (0.5, 1.0)},
    "hybrid, minmax": Search(fusion=Fusion("minmax")),
    "hybrid, rrf": Search(fusion=Fusion("rrf")),
}
"""Other ways to fuse."""

_EMBEDDERS: Mapping[str, Mapping[str, object]] = {
    "uniform weights": {"weighting": "uniform"},
    "idf:0.5": {"weighting": "idf:0.5"},
    "center, two sides": {"postprocess": ("center", "normalize")},
    "idf:0.5, center, two sides": {"weighting": "idf:0.5", "postprocess": ("center", "normalize")},
    "quantile-n, two sides": {"postprocess": ("quantile-n", "normalize")},
}
"""What the default preset might be in its place, searched densely and by hybrid search."""

_ALONE: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "RE alone": ("re", {}),
    "Avg. alone": ("avg", {}),
    "T4, one side": ("t4", {"sides": "one"}),
    "T4, two sides": ("t4", {"sides": "two"}),
}
"""Other presets, searched densely."""

_DRAWN = ("BM25", _PEER, "dense", "hybrid without feedback", _DEFAULT, _TUNED, *_ALONE)


@dataclass(frozen=True, slots=True)
class Measured:
    """The scores of every way, and what tuning said, None where nothing was tuned."""

    scores: Mapping[str, RetrievalScore]
    tuning: TuningReport | None


def main() -> None:
    """Measure, print the tables, and put them and the figure into the page of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=TEST_DATA, help="folder of the test collections")
    parser.add_argument("--full", action="store_true", help="other settings in the place of the defaults, too")
    parser.add_argument("--no-tuning", action="store_true", help="leave out tuning, which takes most of the time")
    parser.add_argument("--dry-run", action="store_true", help="print, write nothing")
    arguments = parser.parse_args()
    LANGCHAIN.ensure()
    load = os.getloadavg()[0]
    folders = sorted(folder for folder in (arguments.data / "retrieval").iterdir() if folder.is_dir())
    measured = {each.name: _measure(each, arguments.full, not arguments.no_tuning) for each in map(read_beir, folders)}
    figure = f"![nDCG@10 of each way, by collection](figures/{_FIGURE.name})"
    body = "\n\n".join(["## Retrieval quality", figure, _table(measured), _notes(measured, load)])
    print(body)
    if not arguments.dry_run:
        _draw(measured)
        write_section("quality", body)


def _measure(collection: RetrievalCollection, full: bool, tune: bool) -> Measured:
    """Score every way of searching a collection, a document being one chunk."""
    _say(f"{collection.name}: {len(collection.documents):,} documents")
    found: dict[str, Rankings] = {}
    with tempfile.TemporaryDirectory(prefix="ragembed-benchmark-") as folder:
        searches = {**_SEARCHES, **(_FUSIONS if full else {})}
        found |= dict(zip(searches, rank(collection, Embedder(), list(searches.values()), _DEPTH), strict=True))
        ways = {"dense": Search("dense"), "hybrid": Search()}
        for name, changes in (_EMBEDDERS if full else {}).items():
            _say(f"{collection.name}: {name}")
            rankings = rank(collection, Embedder.from_preset("minilm", **changes), list(ways.values()), _DEPTH)
            found |= {f"{name}: {way}": each for way, each in zip(ways, rankings, strict=True)}
        for name, (preset, changes) in _ALONE.items():
            _say(f"{collection.name}: {name}")
            [found[name]] = rank(collection, Embedder.from_preset(preset, **changes), [Search("dense")], _DEPTH)
        tuning = None
        if tune:
            _say(f"{collection.name}: tuning")
            found[_TUNED], tuning = _tuned(collection, Path(folder, "store"))
    named = {
        way: {question: [name for name, _ in best] for question, best in each.items()} for way, each in found.items()
    }
    named[_PEER] = _peer(collection)
    return Measured({way: score_rankings(each, collection.relevance) for way, each in named.items()}, tuning)


def _tuned(collection: RetrievalCollection, path: Path) -> tuple[Rankings, TuningReport]:
    """Make a store of the default preset, let it be tuned without the judgements, and ask it."""
    embedder = Embedder().fit(collection.documents.values())
    with Store.create(path, embedder) as store:
        store.add(ChunkRecord(name, Chunk(text)) for name, text in collection.documents.items())
    report = tune_store(path, apply=True)
    with Store.open(path) as store:
        judged = StoreJudgements(collection.relevance, frozenset())
        return rank_in_store(store, collection.questions, judged, Search(fusion=store.fusion), _DEPTH), report


def _peer(collection: RetrievalCollection) -> dict[str, list[str]]:
    _say(f"{collection.name}: {_PEER}")
    with tempfile.TemporaryDirectory(prefix="ragembed-benchmark-") as folder:
        runner = Runner(Path(folder), {**os.environ, "HF_HUB_OFFLINE": "1"})
        peer = LangChain()
        peer.index(write_files(collection, Path(folder, "documents")), Path(folder, "store"), runner)
        return peer.rankings(collection, runner)


def _table(measured: Mapping[str, Measured]) -> str:
    columns = ("nDCG@10", "less the default's")
    header = ["", *(f"{name}: {what}" for name in measured for what in columns), "mean nDCG@10"]
    ways = list(next(iter(measured.values())).scores)
    rows = []
    for way in [*(way for way in _DRAWN if way in ways), *(way for way in ways if way not in _DRAWN)]:
        cells = []
        for each in measured.values():
            cells += [_mean(each.scores[way].values[_MEASURE]), _difference(each, way)]
        mean = float(np.mean([100.0 * each.scores[way].values[_MEASURE].mean() for each in measured.values()]))
        rows.append([way, *cells, f"{mean:.1f}"])
    return table(header, rows)


def _mean(values: np.ndarray) -> str:
    """Return the mean with its 95 % interval."""
    found = paired_bootstrap(100.0 * values, np.zeros(len(values)))
    return f"{found.difference:.1f} ({found.low:.1f} to {found.high:.1f})"


def _difference(each: Measured, way: str) -> str:
    """Return how much better than the default a way is, with the 95 % interval."""
    if way == _DEFAULT:
        return "–"
    found = paired_bootstrap(*(100.0 * each.scores[name].values[_MEASURE] for name in (way, _DEFAULT)))
    return f"{found.difference:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def _draw(measured: Mapping[str, Measured]) -> None:
    from matplotlib.figure import Figure

    drawn = [way for way in _DRAWN if all(way in each.scores for each in measured.values())]
    figure = Figure(figsize=(11.0, 5.0), dpi=110, layout="constrained")
    axes = figure.subplots(1, len(measured), sharey=True, squeeze=False)[0]
    for axis, (name, each) in zip(axes, measured.items(), strict=True):
        for row, way in enumerate(drawn):
            values = 100.0 * each.scores[way].values[_MEASURE]
            found = paired_bootstrap(values, np.zeros(len(values)))
            error = [[found.difference - found.low], [found.high - found.difference]]
            axis.barh(row, found.difference, xerr=error, color="C1" if way == _DEFAULT else "C0", capsize=2)
            axis.text(1.0, row, f"{found.difference:.1f}", va="center", color="white", fontsize=8)
        axis.set(title=name, xlabel="nDCG@10, per cent, with 95 % interval")
    axes[0].set_yticks(range(len(drawn)), drawn)
    axes[0].invert_yaxis()
    figure.savefig(_FIGURE)


def _notes(measured: Mapping[str, Measured], load: float) -> str:
    questions = ", ".join(f"{name} {len(each.scores[_DEFAULT].questions)}" for name, each in measured.items())
    said = "; ".join(f"{name}: {_outcome(each.tuning)}" for name, each in measured.items())
    return f"""\
- Judged questions: {questions}. One document, title and text, is one chunk; every embedder but the peer's is fitted on
  the documents. In per cent; in brackets the 95 % interval of a bootstrap over the questions, paired for differences.
- The default is {Fusion()}, the model MiniLM with {Embedder().config.weighting} and
  {", ".join(Embedder().config.postprocess)}. The other presets have the same model, and are searched densely.
- Tuning sees no judgements. What it chose, {said}.
- {date.today().isoformat()}; {machine()}; load average {load:.1f} at the start; ragembed {version("ragembed")}."""


def _outcome(report: TuningReport | None) -> str:
    if report is None:
        return "nothing, as it was left out"
    chosen = "nothing else" if report.chosen is None or report.outcome != "better" else report.chosen.label
    return f"{report.outcome} ({chosen})"


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
