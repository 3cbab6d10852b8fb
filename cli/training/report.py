"""The outcome of a training as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_POOLING = {"cls": "--pooling cls", "mean": "--pooling mean", "prompt": "--template t0 --pooling masks"}


def report_lines(report: Mapping[str, Any], out: Path) -> Iterator[str]:
    """Yield the lines of what ``training.json`` holds: the dictionary, a table of the steps, and how to go on."""
    size = report["statistics"]
    yield (
        f"{size['definitions']:,} definitions of {size['entries']:,} entries, {report['held_out']:,} held out; longest "
        f"{size['max_length']} tokens, median {size['median_length']:g}; cut: {report['truncated']:,}"
    )
    yield ""
    yield from _aligned(_table(report))
    yield ""
    last = report["steps"][-1]
    if (space := last["space"])["ica"] != "none":
        end = "" if space["ica_converged"] else ", not converged"
        yield f"independent components of the last step: {space['ica']}, {space['ica_iterations']:,} iterations{end}"
    best = last["runs"][last["best"]]
    if len(last["runs"]) > 1:
        yield f"best run of the last step, by {report['chosen_by']}: seed {best['seed']}"
    options = _POOLING[best.get("sts_pooling", report["pooling"])]
    yield f"to use it: ragembed index PATH --model {shlex.quote(str(out))} {options}"


def _table(report: Mapping[str, Any]) -> Iterator[list[str]]:
    steps = report["steps"]
    held_out, similarity = "held_out" in steps[0]["summary"], "sts" in steps[0]["summary"]
    heads = ["", "IsoScore", "ICA", "first loss", "last loss", "minutes"]
    heads += ["top-1", "top-10", "top-100"] if held_out else []
    poolings = list(report["before"].get("sts", {}))
    yield heads + ([f"STS {name}" for name in poolings] if similarity else [])
    if similarity:
        scores = [_mean(report["before"]["sts"][name]) for name in poolings]
        yield ["before", *[""] * (len(heads) - 1), *(f"{score:.1f}" for score in scores)]
    for number, step in enumerate(steps, 1):
        found, space = step["summary"], step["space"]
        row = [f"step {number}", f"{space['isoscore']:.3f}"]
        row.append(f"{space['isoscore_ica']:.3f}" if "isoscore_ica" in space else "")
        row += [_spread(found["first_loss"], 2), _spread(found["loss"], 2), f"{found['seconds']['mean'] / 60:.1f}"]
        if held_out:
            row += [_spread(found["held_out"][name], 1) for name in ("top1", "top10", "top100")]
        if similarity:
            row += [_similarity(step["runs"], name) for name in poolings]
        yield row


def _similarity(runs: Sequence[Mapping[str, Any]], pooling: str) -> str:
    from ragembed.training.report import Spread

    return _spread(Spread.of([_mean(run["sts"][pooling]) for run in runs]).to_dict(), 1)


def _spread(value: Mapping[str, float], decimals: int) -> str:
    shown = f"{value['mean']:.{decimals}f}"
    return f"{shown} ± {value['deviation']:.{decimals}f}" if value["deviation"] else shown


def _mean(scores: Mapping[str, float]) -> float:
    return sum(scores.values()) / len(scores)


def _aligned(rows: Iterator[list[str]]) -> Iterator[str]:
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *rest in cells:
        parts = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        yield "  ".join(parts).rstrip()
