"""DefSent+ on WordNet: loss, similarity before and after, entry spaces, reverse dictionary, and cost."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data import Setting
from processes import RAGEMBED
from report import table
from speed import Outcome

from ragembed.config.settings import DEFAULT_MODEL
from ragembed.papers.training.dictionary import read_dictionaries

WORDNET = Path("/usr/share/wordnet")  # Debian's package wordnet-base
_STS, _POOLINGS = ("sts12", "sts13", "sts14"), ("cls", "mean", "prompt")


def training(setting: Setting) -> Outcome:
    """Train MiniLM on entries drawn from WordNet with ``ragembed papers train``."""
    entries, steps = setting.choose(6000, 300), setting.choose(2, 1)
    names = _STS[: setting.choose(len(_STS), 1)]
    whole = read_dictionaries([WORDNET])
    drawn = sorted(random.Random(setting.seed).sample(range(len(whole)), entries))
    dictionary = setting.folder / "wordnet.tsv"
    lines = [f"{whole.entries[i]}\t{text}\n" for i in drawn for text in whole.definitions[i]]
    dictionary.write_text("".join(lines), encoding="utf-8")
    command = [
        *(
            *RAGEMBED,
            "papers",
            "train",
            "defsent-plus",
            "-q",
            "--json",
            "--recipe",
            "simcse-bert-base",
            "--ica",
            "none",
        ),
        *("--dictionary", dictionary, "--model", DEFAULT_MODEL, "--out", setting.folder / "out"),
        *("--steps", str(steps), "--runs", "1"),
        *(part for name in names for part in ("--sts", setting.data / "sts" / f"{name}.tsv")),
    ]
    cost, printed = setting.runner.run(command)
    report = json.loads(printed)
    size = report["statistics"]
    about = (
        f"`{DEFAULT_MODEL}` on {report['made_by']['device']}, with {entries:,} entries drawn from WordNet: "
        f"{size['definitions']:,} definitions of {size['entries']:,} entries, {report['held_out']:,} held out. Recipe "
        f"`simcse-bert-base`, {steps} steps, batches of {report['settings']['batch_size']}, no ICA. The whole run took "
        f"{cost.wall / 60:.1f} minutes, with a peak memory of {cost.memory / 1024:.1f} GiB."
    )
    return Outcome([about, _steps(report), _similarity(report)])


def _steps(report: Mapping[str, Any]) -> str:
    rows = []
    for number, step in enumerate(report["steps"], 1):
        run = step["runs"][step["best"]]
        held_out = run.get("held_out", {})
        found = [f"{held_out[name]:.1f}" if held_out else "" for name in ("top1", "top10", "top100")]
        loss = f"{run['first_loss']:.2f} to {run['loss']:.2f}"
        minutes = f"{step['summary']['seconds']['mean'] / 60:.1f}"
        rows.append([f"step {number}", f"{step['space']['isoscore']:.3f}", loss, *found, minutes])
    heads = ["", "IsoScore of the entries", "loss", "top-1", "top-10", "top-100", "minutes per run, with measurements"]
    return table(heads, rows)


def _similarity(report: Mapping[str, Any]) -> str:
    stages = {"before": report["before"]["sts"]}
    stages |= {f"step {i}": step["runs"][step["best"]]["sts"] for i, step in enumerate(report["steps"], 1)}
    names = list(next(iter(report["before"]["sts"].values())))
    rows = []
    for stage, scores in stages.items():
        for pooling in (each for each in _POOLINGS if each in scores):
            values = [scores[pooling][name] for name in names]
            rows.append([f"{stage}, {pooling}", *(f"{value:.1f}" for value in (*values, sum(values) / len(values)))])
    return table(["Spearman × 100", *names, "mean"], rows)
