"""Index a collection and ask it cold, as whole processes: ragembed beside a LangChain program of the usual kind.

What is measured, and how to run it, is described in README.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from collection import TEST_DATA, write_files
from contestants import RAGEMBED, LangChain, Ragembed
from environments import LANGCHAIN, packages
from measure import Cost, Runner, own_peak
from report import machine, significant, table, write_section

from ragembed.config import DEFAULT_MODEL
from ragembed.evaluation import RetrievalCollection, read_beir, score_rankings

_WARM_UP_DOCUMENTS = 20
_MEASURES = {"wall": "wall-clock time, s", "cpu": "processor time, s", "memory": "peak memory, MiB"}
_OUR_PACKAGES = ("ragembed", "torch", "transformers", "faiss-cpu")
_PEER_PACKAGES = (
    "langchain-community",
    "langchain-huggingface",
    "sentence-transformers",
    "torch",
    "transformers",
    "faiss-cpu",
)


def main() -> None:
    """Run the comparison, print its table and put it into the page of results."""
    arguments = _arguments()
    if not RAGEMBED.is_file():
        sys.exit(f"there is no {RAGEMBED}: run this with the Python of an environment that ragembed is installed in")
    collection = read_beir(arguments.collection, arguments.documents)
    LANGCHAIN.ensure()
    load = os.getloadavg()[0]
    ours, theirs = Ragembed(), LangChain()
    with tempfile.TemporaryDirectory(prefix="ragembed-benchmark-") as folder:
        runner = Runner(Path(folder), _environment(Path(folder)))
        _measure(ours, theirs, collection, runner, arguments)
        _say(f"asking all {len(collection.questions):,} questions, for their quality")
        rankings = {"peer": theirs.rankings(collection, runner), **ours.rankings(collection)}
        status = ours.status(collection)
    quality = {
        name: float(score_rankings(found, collection.relevance).values["ndcg@10"].mean())
        for name, found in rankings.items()
    }
    about = f"{len(collection.documents):,} documents, one file each; {len(collection.questions):,} judged questions."
    rows = [*_cost_rows(ours, theirs), *_quality_rows(quality)]
    parts = [
        f"## End to end: {collection.name}",
        f"{about} Both sides use the model {DEFAULT_MODEL}.",
        table(["", ours.name, theirs.name, "ratio"], rows),
        _notes(status, load),
    ]
    body = "\n\n".join(parts)
    print(body)
    if arguments.documents is None:
        write_section(f"end_to_end:{collection.name}", body)
    else:
        _say("results.md is left as it is: a cut of a collection is a trial only")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "collection",
        nargs="?",
        type=Path,
        default=TEST_DATA / "retrieval" / "cran",
        help="BEIR folder (default: retrieval/cran of the test data)",
    )
    parser.add_argument("--repeat", type=_positive, default=1, metavar="N", help="index N times (default: 1)")
    parser.add_argument("--queries", type=_positive, default=5, metavar="N", help="N cold queries (default: 5)")
    parser.add_argument(
        "--documents",
        type=_positive,
        metavar="N",
        help="a trial with the first N documents, which writes no results",
    )
    return parser.parse_args()


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is too few: expected 1 or more")
    return number


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of both sides: no network, no settings of the user's, a cache folder of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAGEMBED_", "PYTHON"))}
    return {**kept, "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(folder / "cache")}


def _measure(
    ours: Ragembed, theirs: LangChain, collection: RetrievalCollection, runner: Runner, arguments: argparse.Namespace
) -> None:
    """Let both sides index and answer, in turns, and keep what it cost in them."""
    documents = write_files(collection, runner.folder / "documents")
    few = write_files(collection, runner.folder / "few", _WARM_UP_DOCUMENTS)
    questions = _spread(list(collection.questions.values()), arguments.queries)
    for number, side in enumerate((ours, theirs)):
        _say(f"warming up: {side.name}")
        side.index(few, runner.folder / f"warm-up-{number}", runner)
        side.query(questions[0], runner)
    for turn in range(arguments.repeat):
        for side in _in_turn(ours, theirs, turn):
            _say(f"indexing {len(collection.documents):,} documents: {side.name}")
            store = runner.folder / f"{type(side).__name__.lower()}-{turn}"
            side.index_costs.append(side.index(documents, store, runner))
    for side in (ours, theirs):
        side.query(questions[0], runner)
    for turn, question in enumerate(questions):
        for side in _in_turn(ours, theirs, turn):
            _say(f"cold query {turn + 1} of {len(questions)}: {side.name}")
            side.query_costs.append(side.query(question, runner))
    lowest = min(cost.memory for side in (ours, theirs) for cost in (*side.index_costs, *side.query_costs))
    if lowest <= (own := own_peak()):
        raise RuntimeError(f"no peak memory can be told: the lowest is {lowest:.0f} MiB, the benchmark's own {own:.0f}")


def _in_turn(ours: Ragembed, theirs: LangChain, turn: int) -> Sequence[Ragembed | LangChain]:
    """Return both sides; the one that comes first alternates."""
    return (theirs, ours) if turn % 2 else (ours, theirs)


def _spread(questions: Sequence[str], count: int) -> list[str]:
    """Return ``count`` different questions from all over the collection."""
    different = list(dict.fromkeys(questions))
    if count > len(different):
        raise ValueError(f"--queries is {count}, and the collection has {len(different)} different questions")
    return [different[position * len(different) // count] for position in range(count)]


def _cost_rows(ours: Ragembed, theirs: LangChain) -> list[list[str]]:
    tasks: list[tuple[str, Sequence[Cost], Sequence[Cost]]] = [
        ("index", ours.index_costs, theirs.index_costs),
        ("cold query", ours.query_costs, theirs.query_costs),
    ]
    rows = []
    for task, *both in tasks:
        for measure, words in _MEASURES.items():
            values = [[getattr(cost, measure) for cost in costs] for costs in both]
            ratio = significant(statistics.median(values[0]) / statistics.median(values[1]))
            label = f"{task}: {words}" + (f", median of {len(values[0])}" if len(values[0]) > 1 else "")
            rows.append([label, *map(_median_and_range, values), ratio])
    return rows


def _median_and_range(values: Sequence[float]) -> str:
    middle = significant(statistics.median(values), 3)
    return middle if len(values) == 1 else f"{middle} ({significant(min(values), 3)}–{significant(max(values), 3)})"


def _quality_rows(quality: Mapping[str, float]) -> list[list[str]]:
    peers = quality["peer"]
    return [
        [f"nDCG@10, ragembed {mode}", f"{value:.4f}", f"{peers:.4f}", significant(value / peers)]
        for mode, value in quality.items()
        if mode != "peer"
    ]


def _notes(status: Mapping[str, Any], load: float) -> str:
    embedder = status["embedder"]
    # The interpreter of this process is that of the environment that ragembed is installed in.
    mine, others = packages(sys.executable), packages(LANGCHAIN.python)
    shared = sorted((mine.keys() & others.keys()) - {"pip", "setuptools", "wheel"})
    different = [f"{name} ({mine[name]} | {others[name]})" for name in shared if mine[name] != others[name]]
    return f"""\
- The ratio is ragembed ÷ LangChain, of medians: below 1, ragembed takes less time or memory; above 1, its nDCG is
  higher. In brackets the least and the most.
- Where it is timed, ragembed answers in its default mode, hybrid.
- The work is not the same: ragembed splits what is longer than the model takes ({status["chunks"]:,} chunks here),
  encodes {embedder["fitted_on"]["pseudo_queries"]:,} pseudo-queries to fit its vectors to the collection, and indexes
  the words; the peer embeds one text a document, of which the model reads the first 256 tokens.
- Each side takes its default arithmetic on this machine: ragembed {embedder["config"]["dtype"]} for documents and
  float32 for questions, the peer the type of the model's weights, float32.
- {date.today().isoformat()}; {machine()}; load average {load:.1f} at the start.
- The machine is shared and noisy: the sides took turns, so a ratio means more than a time, and a difference of a tenth
  means nothing.
- ragembed's side: {_versions(mine, _OUR_PACKAGES)}{_installation()}.
- LangChain's side: {_versions(others, _PEER_PACKAGES)}.
- Packages of both sides in different versions (ragembed's | LangChain's): {", ".join(different) or "none"}."""


def _versions(installed: Mapping[str, str], wanted: Sequence[str]) -> str:
    return ", ".join(f"{name} {installed.get(name, '(absent)')}" for name in wanted)


def _installation() -> str:
    """Tell of an editable installation, whose imports are slower than a user's."""
    origin = distribution("ragembed").read_text("direct_url.json") or ""
    return "; an editable installation, which starts more slowly" if '"editable": true' in origin else ""


def _say(message: str) -> None:
    print(message, file=sys.stderr)


if __name__ == "__main__":
    main()
