"""What each way of searching finds, on the judged collections of the test data.

What is measured, and how to run it, is described in README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path

from collection import TEST_DATA
from report import machine, table, write_section

from ragembed import Embedder
from ragembed.documents.model import Chunk
from ragembed.evaluation import RetrievalCollection, read_beir, score_rankings
from ragembed.evaluation.bootstrap import paired_bootstrap
from ragembed.evaluation.retrieval import RetrievalScore
from ragembed.indexes import ChunkRecord, Fusion, Store
from ragembed.indexes.search import Mode

_DEPTH = 100
_MEASURE = "ndcg@10"
_DEFAULT = "hybrid, as it is by default"
_PLAIN = Fusion(feedback=0.0)
_WAYS: Mapping[str, tuple[Mode, Fusion]] = {
    "words (BM25)": ("lexical", Fusion()),
    "meaning (dense)": ("dense", Fusion()),
    "hybrid without feedback": ("hybrid", _PLAIN),
    _DEFAULT: ("hybrid", Fusion()),
    **{f"hybrid, alpha {alpha:g}": ("hybrid", Fusion(alpha=alpha)) for alpha in (0.4, 0.5, 0.7, 0.8)},
    **{f"hybrid, feedback {weight:g}": ("hybrid", Fusion(feedback=weight)) for weight in (0.3, 0.5, 1.0)},
    "hybrid, minmax": ("hybrid", Fusion("minmax")),
    "hybrid, rrf": ("hybrid", Fusion("rrf")),
    "hybrid without feedback, minmax": ("hybrid", replace(_PLAIN, method="minmax")),
    "hybrid without feedback, rrf": ("hybrid", replace(_PLAIN, method="rrf")),
}


def main() -> None:
    """Measure, print the table, and put it into the page of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=TEST_DATA, help="folder of the test collections")
    parser.add_argument("--dry-run", action="store_true", help="print, write nothing")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    folders = sorted(folder for folder in (arguments.data / "retrieval").iterdir() if folder.is_dir())
    scores = {collection.name: _scores(collection) for collection in map(read_beir, folders)}
    body = "\n\n".join(["## Retrieval quality", _table(scores), _notes(scores, load)])
    print(body)
    if not arguments.dry_run:
        write_section("quality", body)


def _scores(collection: RetrievalCollection) -> dict[str, RetrievalScore]:
    """Index a collection, a document a chunk, and score every way of searching it."""
    print(f"{collection.name}: {len(collection.documents):,} documents", file=sys.stderr, flush=True)
    records = [ChunkRecord(name, Chunk(text)) for name, text in collection.documents.items()]
    asked = list(collection.questions.values())
    with tempfile.TemporaryDirectory(prefix="ragembed-benchmark-") as folder:
        embedder = Embedder().fit(collection.documents.values())
        with Store.create(Path(folder, "store"), embedder) as store:
            store.add(records)
            found = {
                way: store.search_many(asked, _DEPTH, mode, fusion=fusion) for way, (mode, fusion) in _WAYS.items()
            }
    return {
        way: score_rankings(
            {question: [hit.id for hit in hits] for question, hits in zip(collection.questions, answers, strict=True)},
            collection.relevance,
        )
        for way, answers in found.items()
    }


def _table(scores: Mapping[str, Mapping[str, RetrievalScore]]) -> str:
    header = ["", *(f"{name}: {what}" for name in scores for what in ("nDCG@10", "less the default's", "recall@100"))]
    rows = []
    for way in _WAYS:
        cells = []
        for of_collection in scores.values():
            means = of_collection[way].means()
            cells += [f"{means[_MEASURE]:.1f}", _difference(of_collection, way), f"{means['recall@100']:.1f}"]
        mean = sum(of_collection[way].means()[_MEASURE] for of_collection in scores.values()) / len(scores)
        rows.append([way, *cells, f"{mean:.1f}"])
    return table([*header, "mean nDCG@10"], rows)


def _difference(of_collection: Mapping[str, RetrievalScore], way: str) -> str:
    """Return how much better than the default a way is, with the 95 % interval."""
    if way == _DEFAULT:
        return "–"
    compared = paired_bootstrap(*(100.0 * of_collection[name].values[_MEASURE] for name in (way, _DEFAULT)))
    return f"{compared.difference:+.1f} ({compared.low:+.1f} to {compared.high:+.1f})"


def _notes(scores: Mapping[str, Mapping[str, RetrievalScore]], load: float) -> str:
    questions = ", ".join(f"{name} {len(of[_DEFAULT].questions)}" for name, of in scores.items())
    return f"""\
- Judged questions: {questions}. One document, title and text, is one chunk; the embedder is the default preset, fitted
  on the documents. In per cent; in brackets the 95 % interval of a paired bootstrap over the questions.
- The default is {Fusion()}.
- {date.today().isoformat()}; {machine()}; load average {load:.1f} at the start; ragembed {version("ragembed")}."""


if __name__ == "__main__":
    main()
