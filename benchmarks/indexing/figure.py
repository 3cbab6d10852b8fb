"""The plot: costs by number of vectors, and recall beside latency for each number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from indexing.contest import Entry
from indexing.verdicts import shown
from ragembed.errors import MissingExtraError

_WIDTH, _HEIGHT = 16.0, 9.0
_DPI = 110
_MIB = 2**20
_LEAST_RECALL = 0.8
_OURS = "ragembed"
_COLOURS = (*(f"C{number}" for number in range(10)), "black", "gold", "navy", "lime")

Measure = Callable[[Entry], float]


def check_figure() -> None:
    """Raise MissingExtraError where there is no matplotlib; it is not loaded, to keep the measuring process small."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plot", "drawing a plot")


def draw(entries: Sequence[Entry], file: Path, recall: float) -> None:
    """Draw the entries that have an index; latency by size is that of ``recall``, or of the highest below it."""
    entries = [entry for entry in entries if entry.points]
    figure = _figure()
    upper, lower = figure.subfigures(2, 1)
    names = list(dict.fromkeys(entry.contestant.name for entry in entries))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    measures: list[tuple[str, Measure]] = [
        ("build, s", lambda entry: entry.seconds),
        ("peak memory building, MiB", lambda entry: entry.cost.memory),
        ("index on the disk, MiB", lambda entry: entry.size_on_disk / _MIB),
        (f"a question at recall {recall:g}, ms", lambda entry: shown(entry, recall).median_ms),
    ]
    panels = upper.subplots(1, len(measures))
    for axes, (title, of) in zip(panels, measures, strict=True):
        _draw_growth(axes, entries, title, of, colours)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8)
    sizes = sorted({entry.size for entry in entries})
    for axes, size in zip(lower.subplots(1, len(sizes), squeeze=False)[0], sizes, strict=True):
        _draw_front(axes, [entry for entry in entries if entry.size == size], colours)
        axes.set_title(f"{size:,} vectors", fontsize=9)
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, format="png", dpi=_DPI)


def _figure() -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")


def _draw_growth(axes: Any, entries: Sequence[Entry], title: str, of: Measure, colours: Mapping[str, str]) -> None:
    for name, colour in colours.items():
        own = sorted((entry for entry in entries if entry.contestant.name == name), key=lambda entry: entry.size)
        ours = name.startswith(_OURS)
        places = [entry.size for entry in own], [of(entry) for entry in own]
        axes.plot(*places, label=name, color=colour, marker="*" if ours else ".", linestyle="-" if ours else "--")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("vectors")
    axes.set_title(title, fontsize=9)
    axes.grid(visible=True, alpha=0.3)


def _draw_front(axes: Any, entries: Sequence[Entry], colours: Mapping[str, str]) -> None:
    for entry in entries:
        name = entry.contestant.name
        ours = name.startswith(_OURS)
        points = [point for point in entry.points if point.recall.mean >= _LEAST_RECALL]
        places = [point.recall.mean for point in points], [point.median_ms for point in points]
        style = {"marker": "*", "markersize": 12} if ours else {"marker": ".", "linestyle": "--"}
        axes.plot(*places, color=colours[name], **style)
    axes.set_yscale("log")
    axes.set_xlabel("recall@10")
    axes.set_ylabel("ms, one question in one thread", fontsize=8)
    axes.grid(visible=True, alpha=0.3)
