"""Plots of results as PNG files, with matplotlib (the extra ``plot``).

What differs among the results decides the kind: scores by layer; by the mix's ``w`` and layer, as figure 5 of
Stankevičius & Lukoševičius 2024; by post-processor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError, MissingExtraError
from ragembed.evaluation.table import Result, row_label
from ragembed.specs import BertAvg

_WIDTH, _HEIGHT = 7.0, 4.2
_DPI = 150


def plot(results: Sequence[Result], file: Path) -> None:
    """Draw ``results``, the mean over collections, to ``file``.

    Raises
    ------
    MissingExtraError
        Where matplotlib is not installed.
    ConfigError
        Where nothing differs that could be an axis, or the file cannot be written.
    """
    figure = _figure()
    axes = figure.add_subplot()
    layers = {result.config.layers for result in results}
    mixes = {_w(result) for result in results}
    if len(mixes - {None}) > 1:
        _lines(axes, results, _w, "w: 0 is the contextual vector alone, 1 is Avg. alone", _layers_label)
    elif len(layers) > 1:
        _lines(axes, results, _layer_number, "layer", lambda result: f"{result.name}: {row_label(result.config)}")
    elif len({row_label(result.config) for result in results}) > 1:
        _bars(axes, results)
    else:
        raise ConfigError("nothing to plot: give several of --layers, --extractor bert+avg:w=…, or --postprocess")
    axes.set_ylabel(results[0].headline)
    axes.set_title(", ".join(dict.fromkeys(result.collection for result in results)))
    try:
        figure.savefig(file, format="png", dpi=_DPI, bbox_inches="tight")
    except OSError as error:
        raise ConfigError(f"the plot {file} cannot be written: {error.strerror or error}") from error


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "drawing a plot") from error
    return Figure(figsize=(_WIDTH, _HEIGHT))


def _lines(
    axes: Any,
    results: Sequence[Result],
    position: Callable[[Result], float | None],
    name: str,
    label: Callable[[Result], str],
) -> None:
    series: dict[str, dict[float, list[float]]] = {}
    for result in results:
        where = position(result)
        if where is not None:
            series.setdefault(label(result), {}).setdefault(where, []).append(result.value)
    for text, points in series.items():
        places = sorted(points)
        axes.plot(places, [_mean(points[place]) for place in places], marker="o", markersize=3, label=text)
    axes.set_xlabel(name)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=7)


def _bars(axes: Any, results: Sequence[Result]) -> None:
    rows = list(dict.fromkeys(row_label(result.config) for result in results))
    names = list(dict.fromkeys(result.name for result in results))
    height = 0.8 / len(names)
    for number, name in enumerate(names):
        values = [[r.value for r in results if r.name == name and row_label(r.config) == row] for row in rows]
        places = [i + (number - (len(names) - 1) / 2) * height for i in range(len(rows))]
        shown = [_mean(value) if value else 0.0 for value in values]
        axes.barh(places, shown, height=height, label=name)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlabel(results[0].headline)
    axes.legend(fontsize=7)


def _w(result: Result) -> float | None:
    extraction = result.config.extraction
    return extraction.w if isinstance(extraction, BertAvg) else None


def _layer_number(result: Result) -> float | None:
    """Return the number of a single layer; a mean of several has no place on the axis."""
    layers = result.config.layers
    return float(layers) if layers.lstrip("-").isdigit() else None


def _layers_label(result: Result) -> str:
    return f"layers {result.config.layers}: {row_label(result.config)}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
