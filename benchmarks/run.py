"""Run benchmarks by name. Each writes its own section of results.md or papers.md; README.md describes them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from processes import in_new_process, say
from report import RESULTS, machine, processor, write_section

if TYPE_CHECKING:
    from speed import Outcome

RATIOS = Path(__file__).resolve().parent / "speed_ratios.json"
PAPERS = "papers.md"
CHECKED = ("cold", "warm", "index")
TOLERANCE = 0.25
"""How much worse a ratio may be than the recorded one."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The title of a benchmark, its minutes on two idle cores, the place of its function, and the page of results."""

    title: str
    minutes: float
    place: str
    page: str = RESULTS


BENCHMARKS = {
    "encode": Benchmark("Encoding", 4, "speed.encode"),
    "methods": Benchmark("Embedding methods", 1, "speed.methods"),
    "static": Benchmark("Static vectors", 1, "speed.static"),
    "quantile": Benchmark("Quantiles", 1.5, "speed.quantile"),
    "index": Benchmark("Indexing", 25, "speed.index"),
    "reindex": Benchmark("Reindexing", 1.5, "speed.reindex"),
    "watch": Benchmark("Watching", 5, "watching.watch"),
    "cold": Benchmark("Cold queries", 3, "speed.cold"),
    "warm": Benchmark("Warm queries", 4, "speed.warm"),
    "lexical": Benchmark("Lexical search", 5, "speed.lexical"),
    "growth": Benchmark("Growth", 13, "speed.growth"),
    "quality": Benchmark("Retrieval quality", 8, "quality.quality"),
    "precision": Benchmark("Precision of the arithmetic", 8, "quality.precision"),
    "collections": Benchmark("Twenty collections", 90, "defaults.collections"),
    "doc_questions": Benchmark("Questions on documentation", 8, "doc_questions.doc_questions"),
    "ordering": Benchmark("Order of hybrid results", 8, "ordering.ordering"),
    "relevance": Benchmark("Relevance and languages", 15, "relevance.relevance"),
    "multilingual": Benchmark("Multilingual models", 10, "multilingual.multilingual"),
    "presets": Benchmark("Presets and post-processors", 30, "quality.presets", PAPERS),
    "context": Benchmark("Context within a budget", 15, "context.context"),
    "code_search": Benchmark("Search in source code", 15, "code_search.code_search"),
    "index_build": Benchmark("Index building", 20, "index_build.index_build"),
    "codes": Benchmark("Codes of product quantisers", 4, "index_build.codes"),
    "langchain": Benchmark("LangChain: RagVectorStore and FAISS", 10, "langchain_stores.langchain"),
    "generation": Benchmark("One model for queries and answers", 2, "generation.generation"),
    "agent": Benchmark("Tokens until the answer", 5, "agent.agent"),
    "serving": Benchmark("Serving over HTTP", 12, "serving.serving"),
    "reports": Benchmark("Reports", 6, "store_reports.reports"),
    "drift": Benchmark("Drift", 10, "drift.drift"),
    "doctor": Benchmark("Doctor", 5, "doctor.doctor"),
    "training": Benchmark("DefSent+", 15, "training.training", PAPERS),
    "word_vectors": Benchmark("Word vectors of a small corpus", 12, "word_vectors.word_vectors"),
    "readers": Benchmark("Readers", 3, "readers.readers"),
    "scale": Benchmark("Scale", 20, "scale.scale"),
    "papers": Benchmark("Quick tables", 10, "papers.papers", PAPERS),
    "papers_means": Benchmark("Means over the collections", 60, "papers.papers_means", PAPERS),
}


def main() -> None:
    """Run the benchmarks, and write or compare their results."""
    arguments = _arguments()
    kept = json.loads(RATIOS.read_text(encoding="utf-8"))
    worse: list[str] = []
    for name in arguments.names:
        benchmark, load, started = BENCHMARKS[name], os.getloadavg()[0], time.perf_counter()
        say(f"{name}: about {benchmark.minutes:g} minutes")
        outcome = _measure(name, arguments)
        minutes = (time.perf_counter() - started) / 60
        when = f"{date.today().isoformat()}; {machine()}; load average {load:.1f} at the start; {minutes:.1f} minutes."
        about, *shown = outcome.paragraphs
        title, paragraphs = benchmark.title + outcome.variant, [f"{about} {when}", *shown]
        print(f"## {title}", *paragraphs, sep="\n\n", flush=True)
        if arguments.check:
            worse += _worse(outcome, kept)
        elif not arguments.trial:
            write_section(title, paragraphs, benchmark.page)
            day = {"date": date.today().isoformat(), "processor": processor()}
            kept |= {path: {"ratio": round(ratio, 4), **day} for path, (ratio, _) in outcome.ratios.items()}
            RATIOS.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    for sentence in worse:
        say(sentence)
    if worse:
        sys.exit(1)


def _publish(benchmark: Benchmark, paragraphs: Sequence[str]) -> None:
    """Write the section of a benchmark that has not ended yet."""
    write_section(benchmark.title, paragraphs, benchmark.page)


def _discard(paragraphs: Sequence[str]) -> None:
    """Write nothing."""


def _worse(outcome: Outcome, kept: dict[str, dict[str, object]]) -> list[str]:
    """Return a message for each ratio that is worse than the recorded one by more than the tolerance."""
    found = []
    for path, (ratio, more_is_better) in outcome.ratios.items():
        if path not in kept:
            say(f"{path}: {ratio:.3g} ×, no recorded ratio")
            continue
        before = float(str(kept[path]["ratio"]))
        if (factor := before / ratio if more_is_better else ratio / before) > 1 + TOLERANCE:
            recorded = f"recorded {before:.3g} × on {kept[path]['date']}, {kept[path]['processor']}"
            found.append(f"{path}: {ratio:.3g} ×, {recorded}: {factor - 1:.0%} worse, tolerance {TOLERANCE:.0%}")
    return found


def _measure(name: str, arguments: argparse.Namespace) -> Outcome:
    """Run a benchmark in a new process, so that its memory is not mixed with that of others."""
    with tempfile.TemporaryDirectory(prefix="ragembed-benchmark-", dir=arguments.folder) as place:
        options = {
            "folder": Path(place).resolve(),
            "cache": arguments.folder or Path(place).resolve(),
            "data": arguments.data,
            "python_docs": arguments.python_docs,
            "turns": arguments.turns or (2 if arguments.trial else 5),
            "seed": arguments.seed,
            "trial": arguments.trial,
            "check": arguments.check,
            "measure": not arguments.measured_only,
            "publish": _discard if arguments.trial or arguments.check else partial(_publish, BENCHMARKS[name]),
        }
        outcome: Outcome = in_new_process(_call, BENCHMARKS[name].place, options)
        return outcome


def _call(place: str, options: dict[str, object]) -> Outcome:
    from data import TEST_DATA, Setting

    module, _, function = place.partition(".")
    options["data"] = options["data"] or TEST_DATA
    outcome: Outcome = getattr(import_module(module), function)(Setting(**options))  # type: ignore[arg-type]
    return outcome


def _arguments() -> argparse.Namespace:
    listed = "\n".join(f"  {name:12} {one.minutes:4g} min  {one.title}" for name, one in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\n\nBenchmarks with their minutes on two idle cores:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default with --check: cold, warm, index)")
    parser.add_argument("--trial", action="store_true", help="use sizes that take seconds; print and write nothing")
    parser.add_argument(
        "--check", action="store_true", help="compare with the recorded ratios; exit status 1 if one is worse"
    )
    parser.add_argument(
        "--measured-only", action="store_true", help="papers*: write what earlier runs with this --folder measured"
    )
    parser.add_argument("--turns", type=int, help="turns of each side (default: 5, with --trial 2)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws (default: 0)")
    parser.add_argument("--data", type=_folder, help="folder of the test collections (default: $RAGEMBED_TEST_DATA)")
    parser.add_argument("--folder", type=_folder, help="folder for texts and stores; texts stay there for later runs")
    parser.add_argument("--python-docs", type=_folder, help="Python's documentation, .rst.txt, for the benchmark index")
    arguments = parser.parse_args()
    arguments.names = arguments.names or (list(CHECKED) if arguments.check else [])
    if not arguments.names:
        parser.error(f"no benchmark given: expected one or more of {', '.join(BENCHMARKS)}")
    if unknown := [name for name in arguments.names if name not in BENCHMARKS]:
        parser.error(f"unknown benchmark {unknown[0]!r}: expected one or more of {', '.join(BENCHMARKS)}")
    return arguments


def _folder(text: str) -> Path:
    if not (path := Path(text).resolve()).is_dir():
        raise argparse.ArgumentTypeError(f"no folder at {text!r}: create it first")
    return path


if __name__ == "__main__":
    main()
