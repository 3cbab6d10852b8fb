"""DefSent+ on WordNet: loss, similarity before and after, the entry spaces, the reverse dictionary, what it costs."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from collection import TEST_DATA
from measure import Cost, Runner
from report import machine, table, write_section

WORDNET = Path("/usr/share/wordnet")
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
STS = ("sts12", "sts13", "sts14")
POOLINGS = ("cls", "mean", "prompt")


def main() -> None:
    """Train in a process of its own, print what came of it, and put it into the page of results."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        dictionary = arguments.wordnet
        if arguments.entries:
            dictionary = Path(folder) / "wordnet.tsv"
            _write_subset(arguments.wordnet, arguments.entries, arguments.seed, dictionary)
        out = Path(folder) / "out"
        pairs = [str(arguments.data / "sts" / f"{name}.tsv") for name in arguments.sts]
        command = [
            *(sys.executable, "-c", "from ragembed.cli import main; main()", "train", "defsent-plus"),
            *("--dictionary", str(dictionary), "--model", arguments.model, "--out", str(out), "-q", "--json"),
            *("--recipe", arguments.recipe, "--steps", str(arguments.steps), "--ica", arguments.ica),
            *("--device", arguments.device, "--runs", str(arguments.runs)),
            *[part for file in pairs for part in ("--sts", file)],
        ]
        cost, printed = Runner(Path(folder), os.environ).run(command)
    report = json.loads(printed)
    body = _section(report, cost, arguments)
    print(body)
    if not arguments.trial:
        write_section("defsent", body)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wordnet", type=Path, default=WORDNET, help="folder of WordNet's data.noun and the others")
    parser.add_argument("--entries", type=int, default=6000, help="entries drawn from it; 0 takes all")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--recipe", default="simcse-bert-base")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--ica", default="none")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--sts", nargs="+", default=STS, help="sentence pairs of the test data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0, help="of the entries drawn")
    parser.add_argument("--data", type=Path, default=TEST_DATA, help="folder of the test collections")
    parser.add_argument("--trial", action="store_true", help="print, and write nothing")
    return parser.parse_args()


def _write_subset(wordnet: Path, entries: int, seed: int, file: Path) -> None:
    from ragembed.training.dictionaries.reading import read_dictionaries

    whole = read_dictionaries([wordnet])
    drawn = sorted(random.Random(seed).sample(range(len(whole)), entries))
    lines = [f"{whole.entries[i]}\t{text}\n" for i in drawn for text in whole.definitions[i]]
    file.write_text("".join(lines), encoding="utf-8")


def _section(report: Mapping[str, Any], cost: Cost, arguments: argparse.Namespace) -> str:
    size = report["statistics"]
    drawn = f"{arguments.entries:,} entries drawn from WordNet" if arguments.entries else "WordNet"
    about = (
        f"{date.today().isoformat()}; {machine()}, on {report['made_by']['device']}. `{arguments.model}`, {drawn}: "
        f"{size['definitions']:,} definitions of {size['entries']:,} entries, the longest of {size['max_length']} "
        f"tokens, the median {size['median_length']:g}; {report['held_out']:,} held out. Recipe `{arguments.recipe}`, "
        f"{arguments.steps} steps of {arguments.runs} runs, batches of {report['settings']['batch_size']}, ICA "
        f"{arguments.ica}. The whole took {cost.wall / 60:.1f} minutes, {cost.memory / 1024:.1f} GiB at most."
    )
    return "\n\n".join(["## DefSent+", about, _steps(report), _similarity(report)])


def _steps(report: Mapping[str, Any]) -> str:
    rows = []
    for number, step in enumerate(report["steps"], 1):
        run, space = step["runs"][step["best"]], step["space"]
        held_out = run.get("held_out", {})
        rows.append(
            [
                f"step {number}",
                f"{space['isoscore']:.3f}" + (f", ICA {space['isoscore_ica']:.3f}" if "isoscore_ica" in space else ""),
                f"{run['first_loss']:.2f} to {run['loss']:.2f}",
                *(f"{held_out[name]:.1f}" if held_out else "" for name in ("top1", "top10", "top100")),
                f"{step['summary']['seconds']['mean'] / 60:.1f}",
            ]
        )
    heads = ["", "IsoScore of the entries", "loss", "top-1", "top-10", "top-100", "minutes a run, with measuring"]
    return table(heads, rows)


def _similarity(report: Mapping[str, Any]) -> str:
    named = {"before": report["before"]["sts"]}
    named |= {f"step {i}": step["runs"][step["best"]]["sts"] for i, step in enumerate(report["steps"], 1)}
    names = list(next(iter(report["before"]["sts"].values())))
    rows = [
        [f"{stage}, {pooling}", *(f"{value:.1f}" for value in _with_mean([scores[pooling][name] for name in names]))]
        for stage, scores in named.items()
        for pooling in POOLINGS
        if pooling in scores
    ]
    return table(["Spearman × 100", *names, "mean"], rows)


def _with_mean(values: Sequence[float]) -> list[float]:
    return [*values, sum(values) / len(values)]


if __name__ == "__main__":
    main()
