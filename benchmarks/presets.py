"""Every preset under every post-processor, on every collection of the test data: which defaults are good ones.

One side (post-processors fitted on the documents alone) and two, where a collection has questions or second sentences.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path

from collection import TEST_DATA
from report import table, write_section

from ragembed.config import DEFAULT_MODEL, EmbedderConfig
from ragembed.evaluation.tasks import Task, evaluate, read_clustering, read_retrieval, read_sts
from ragembed.presets import DEFAULT_PRESET, PRESETS

STEPS = ("none", "normalize", "center", "zscore", "quantile-u", "quantile-n", "robust", "whiten", "abtt:2")
NEEDS_A_FILE = ("b2s-100",)
SIDES = {"one": "one side", "two": "two sides"}

Key = tuple[str, str, str]  # steps, sides, preset


def main() -> None:
    """Measure, print the tables and put them into the page of results."""
    arguments = _arguments()
    kinds: Mapping[str, tuple[str, Callable[[Path], Task]]] = {
        "sts": ("*.tsv", read_sts),
        "retrieval": ("*/", read_retrieval),
        "clustering": ("*.tsv", partial(read_clustering, runs=arguments.runs)),
    }
    for kind in arguments.tasks or kinds:
        pattern, read = kinds[kind]
        values = {path.stem: _measure(read(path), kind) for path in sorted((arguments.data / kind).glob(pattern))}
        if not values:
            sys.exit(f"no collection in {arguments.data / kind}: expected {pattern}")
        body = _section(kind, values, arguments.runs)
        print(body)
        write_section(f"presets:{kind}", body)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="sts|retrieval|clustering", help="default: all three")
    parser.add_argument("--data", type=Path, default=TEST_DATA, help="folder of the test collections")
    parser.add_argument("--runs", type=int, default=1, help="runs of k-means (the usual measure takes 10)")
    return parser.parse_args()


def _measure(task: Task, kind: str) -> dict[Key, float]:
    """Return the main score of each combination on one collection."""
    sides = ("one",) if kind == "clustering" else tuple(SIDES)
    keys = [(steps, side, name) for steps in STEPS for side in sides for name in PRESETS if name not in NEEDS_A_FILE]
    configs = [_config(*key) for key in keys]
    values = {}
    for key, (_, measured) in zip(keys, evaluate(task, configs), strict=True):
        values[key] = float(measured.scores[measured.headline])
        print(f"{task.name}: {', '.join(key)}: {values[key]:.1f}", file=sys.stderr, flush=True)
    return values


def _config(steps: str, sides: str, name: str) -> EmbedderConfig:
    return PRESETS[name].replace(postprocess=() if steps == "none" else (steps,), sides=sides)


def _section(kind: str, collections: Mapping[str, Mapping[Key, float]], runs: int) -> str:
    measure = {
        "sts": "Spearman's correlation × 100",
        "retrieval": "nDCG@10 × 100, dense alone, one vector a document",
        "clustering": f"accuracy of k-means × 100, {runs} run{'s' * (runs > 1)} of 10 initialisations",
    }[kind]
    average = {
        key: statistics.fmean(values[key] for values in collections.values())
        for key in next(iter(collections.values()))
    }
    about = (
        f"{measure}. The model is {DEFAULT_MODEL}; each preset has its own token weights and another post-processor. "
        f"{date.today().isoformat()}. `{', '.join(NEEDS_A_FILE)}` needs a word-vector file and is not here."
    )
    shown = {"average": average, **collections} if len(collections) > 1 else collections
    tables = [f"### {kind}: {name}\n\n{_table(values)}" for name, values in shown.items()]
    return "\n\n".join([f"## Presets and post-processors: {kind}", about, *tables, _findings(average)])


def _table(values: Mapping[Key, float]) -> str:
    names = list(dict.fromkeys(name for _, _, name in values))
    best = max(values.values())
    rows = []
    for steps, side in dict.fromkeys((steps, side) for steps, side, _ in values):
        cells = [values[steps, side, name] for name in names]
        shown = [f"**{value:.1f}**" if value == best else f"{value:.1f}" for value in cells]
        rows.append([f"{steps}, {SIDES[side]}", *shown])
    return table(["", *names], rows)


def _findings(average: Mapping[Key, float]) -> str:
    """Return what the averages say, in sentences."""
    ranked = sorted(average, key=average.__getitem__, reverse=True)
    best = ranked[0]
    lines = [f"- Best on average: {best[2]}, {best[0]}, {SIDES[best[1]]}, {average[best]:.1f}."]
    names = list(dict.fromkeys(name for _, _, name in average))
    for name in names:
        own = max((key for key in average if key[2] == name), key=average.__getitem__)
        plain = average["none", own[1], name]
        lines.append(
            f"- {name}: best with {own[0]}, {SIDES[own[1]]}: {average[own]:.1f}; without post-processor {plain:.1f}."
        )
    lines += _two_sides(average)
    own_steps = PRESETS[DEFAULT_PRESET].postprocess[0]
    side = PRESETS[DEFAULT_PRESET].sides if ("none", "two", DEFAULT_PRESET) in average else "one"
    default = (own_steps, side, DEFAULT_PRESET)
    place = ranked.index(default) + 1
    lines.append(
        f"- The default, {DEFAULT_PRESET} with {own_steps}, {SIDES[side]}: {average[default]:.1f}, place {place} of "
        f"{len(ranked)}, {average[best] - average[default]:.1f} below the best."
    )
    return "\n".join(lines)


def _two_sides(average: Mapping[Key, float]) -> Sequence[str]:
    lines = []
    for steps in STEPS[2:]:
        gains = [
            average[steps, "two", name] - average[steps, "one", name]
            for name in PRESETS
            if (steps, "two", name) in average
        ]
        if gains:
            lines.append(
                f"- {steps}: two sides in place of one change the average by {statistics.fmean(gains):+.1f} over the "
                f"presets (from {min(gains):+.1f} to {max(gains):+.1f})."
            )
    return lines


if __name__ == "__main__":
    main()
