"""Plots of results as PNG files, with matplotlib (the extra ``papers``).

The settings that differ between configurations of one name determine the kind of plot: scores by layer; by ``w`` of
``bert+avg``; by both, as in figure 5 of Stankevičius & Lukoševičius 2024; otherwise bars by weighting, post-processors
and embedding settings.
"""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragembed.config.specs import Avg, BertAvg, Transformer
from ragembed.errors import ConfigError
from ragembed.evaluation.table import FRACTIONS, Named, Result, columns, labels
from ragembed.extras import needed_for

_WIDTH, _HEIGHT = 7.0, 4.2
_DPI = 150
_BAR_INCHES = 0.2
_CELL_INCHES, _LETTER_INCHES, _ROW_INCHES = 0.3, 0.08, 0.22
_WIDE = 2
"""Longest tick label, in characters, that is not turned by 90°."""
_CORRELATIONS = ("spearman", "pearson")
_W = "w: 0 is only the contextual vector, 1 is only Avg."

Draw = Callable[[Any, Sequence[Result]], None]


def check_plot(candidates: Sequence[Named], file: Path) -> None:
    """Raise the errors that :func:`plot` would raise for these configurations, before they are evaluated.

    These are a missing matplotlib, configurations that do not differ in a setting that can be an axis or that have no
    value on it, and a file that cannot be written.
    """
    new_figure()
    _kind(candidates)
    existed = file.exists()
    try:
        file.open("ab").close()
    except OSError as error:
        raise _unwritable(file, error) from error
    if not existed:
        file.unlink()


def plot(results: Sequence[Result], file: Path) -> None:
    """Draw the means of ``results`` over collections to ``file``; errors are those of :func:`check_plot`."""
    figure = new_figure()
    _kind(results)(figure, results)
    figure.suptitle(_plain(", ".join(dict.fromkeys(result.collection for result in results))))
    try:
        figure.savefig(file, format="png", dpi=_DPI, bbox_inches="tight")
    except OSError as error:
        raise _unwritable(file, error) from error


def _unwritable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the plot {file} cannot be written: {error.strerror or error}")


@needed_for("drawing a plot")
def new_figure(width: float = _WIDTH, height: float = _HEIGHT) -> Any:
    """Return an empty figure; raise :class:`ragembed.errors.MissingExtraError` if matplotlib is not installed."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _kind(named: Sequence[Named]) -> Draw:
    """Return the function that draws the results of these configurations."""
    by_layer = _varies(named, lambda one: one.config.layers)
    by_w = any(isinstance(one.config.extraction, BertAvg) for one in named) and _varies(named, _w)
    if by_w:
        for one in named:
            if _w(one) is None:
                raise ConfigError(
                    f"the extractor {one.config.extractor!r} has no value of w to plot: expected bert+avg, "
                    "transformer or avg"
                )
        return _heat_maps if by_layer else _by_w
    if by_layer:
        return _by_layer
    if len(set(zip(columns(named), labels(named), strict=True))) > 1:
        return _bars
    raise ConfigError("nothing to plot: repeat --layers, --extractor bert+avg:w=…, --weighting or --postprocess")


def _varies(named: Sequence[Named], setting: Callable[[Named], Hashable]) -> bool:
    """Return whether configurations of one name differ in ``setting``; different presets do not count."""
    return any(len({setting(one) for one in named if one.name == name}) > 1 for name in {one.name for one in named})


def _by_layer(figure: Any, results: Sequence[Result]) -> None:
    ticks = _layers(results)
    numbers = all(map(_is_number, ticks))
    place = {layers: int(layers) if numbers else ticks.index(layers) for layers in ticks}
    axes = _lines(figure, results, "layers", lambda result: place[result.config.layers])
    if not numbers:
        axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlabel("layer" if numbers else "layers")


def _by_w(figure: Any, results: Sequence[Result]) -> None:
    _lines(figure, results, "extractor", _w).set_xlabel(_W)


def _lines(figure: Any, results: Sequence[Result], axis: str, place: Callable[[Result], Any]) -> Any:
    """Draw a line per series; return the axes. The setting ``axis`` is that of the x axis, at :func:`place`."""
    axes = figure.add_subplot()
    axes.set_ylabel(results[0].headline)
    axes.grid(visible=True, alpha=0.3)
    series = _series(results, (axis,))
    for label, members in series.items():
        values = sorted(_means(members, place).items())
        axes.plot(*zip(*values, strict=True), marker="o", markersize=3, label=_plain(label))
    _legend(figure, series)
    return axes


def _heat_maps(figure: Any, results: Sequence[Result]) -> None:
    """Draw a heat map per series."""
    layers, weights = _layers(results), sorted({w for result in results if (w := _w(result)) is not None})
    series = _series(results, ("extractor", "layers"))
    longest = max(map(len, layers))
    width = max(_WIDTH / len(series), _CELL_INCHES * len(layers), 2.5)
    height = _ROW_INCHES * len(weights) + 1.5 + (_LETTER_INCHES * longest if longest > _WIDE else 0.0)
    figure.set_size_inches(width * len(series) + 1.0, max(_HEIGHT, height))
    defined = [result.value for result in results if not math.isnan(result.value)] or [0.0]
    panels = figure.subplots(1, len(series), squeeze=False, sharey=True)[0]
    for axes, (label, members) in zip(panels, series.items(), strict=True):
        values = _means(members, lambda result: (_w(result), result.config.layers))
        title = textwrap.fill(_plain(label), int(width / _LETTER_INCHES))
        image = heat_map(axes, values, layers, weights, title, vmin=min(defined), vmax=max(defined))
    panels[0].set_ylabel(_W, fontsize=7)
    figure.colorbar(image, ax=panels, label=results[0].headline)


def heat_map(
    axes: Any,
    values: Mapping[tuple[float, str], float],
    layers: Sequence[str],
    weights: Sequence[float],
    title: str,
    **limits: float,
) -> Any:
    """Draw scores, layers on the x axis, ``w`` on the y axis, and a cross at the best; return the image.

    ``layers`` begin with the single layers, which a line divides from the combinations.
    """
    cells = [[values.get((w, each), math.nan) for each in layers] for w in weights]
    image = axes.imshow(cells, origin="lower", aspect="auto", **limits)
    if values:
        best_w, best_layers = max(values, key=lambda place: values[place])
        axes.plot(layers.index(best_layers), weights.index(best_w), marker="x", color="white")
    single = sum(map(_is_number, layers))
    if 0 < single < len(layers):
        axes.axvline(single - 0.5, color="black")
    axes.set_xticks(range(len(layers)), layers, rotation=90 if max(map(len, layers)) > _WIDE else 0, fontsize=8)
    axes.set_yticks(range(len(weights)), [f"{w:g}" for w in weights], fontsize=8)
    axes.set_title(title, fontsize=8)
    axes.set_xlabel("layers")
    return image


def _bars(figure: Any, results: Sequence[Result]) -> None:
    """Draw a bar per row and column of the table, with its value and the 95 % interval of the mean."""
    ways, row_labels = columns(results), labels(results)
    rows, heads = list(dict.fromkeys(row_labels)), list(dict.fromkeys(ways))
    cells: dict[tuple[str, str], list[Result]] = {}
    for result, head, row in zip(results, ways, row_labels, strict=True):
        cells.setdefault((head, row), []).append(result)
    figure.set_size_inches(_WIDTH, max(_HEIGHT, _BAR_INCHES * len(rows) * (len(heads) + 1)))
    axes = figure.add_subplot()
    height = 0.8 / len(heads)
    decimals = 3 if results[0].headline in FRACTIONS else 1
    for number, head in enumerate(heads):
        found = [(i, cells[head, row]) for i, row in enumerate(rows) if (head, row) in cells]
        defined = [(i, members) for i, members in found if not math.isnan(_mean_value(members))]
        places = [i + (number - (len(heads) - 1) / 2) * height for i, _ in defined]
        values = [_mean_value(members) for _, members in defined]
        margins = [_margins(members) for _, members in defined]
        bars = axes.barh(
            places,
            values,
            height=height,
            label=_plain(head),
            xerr=list(zip(*margins, strict=True)) if any(map(any, margins)) else None,
            error_kw={"elinewidth": 0.8, "capsize": 1.5},
        )
        axes.bar_label(bars, [f"{value:.{decimals}f}" for value in values], fontsize=6, padding=2)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(results[0].headline)
    if len(heads) > 1:
        _legend(figure, heads)


def _mean_value(members: Sequence[Result]) -> float:
    return statistics.fmean(member.value for member in members)


def _margins(members: Sequence[Result]) -> tuple[float, float]:
    """Return how far the 95 % interval of the mean of ``members`` reaches below and above it; 0 if unknown."""
    intervals = [(member.value, *interval(member)) for member in members]
    if any(math.isnan(low) for _, low, _ in intervals):
        return 0.0, 0.0
    below = math.sqrt(sum((value - low) ** 2 for value, low, _ in intervals)) / len(intervals)
    above = math.sqrt(sum((high - value) ** 2 for value, _, high in intervals)) / len(intervals)
    return below, above


def _legend(figure: Any, labels: Collection[str]) -> None:
    """Add a legend below the plot, where it covers nothing."""
    longest = max(map(len, labels))
    figure.legend(loc="outside lower center", fontsize=7, ncols=max(1, min(len(labels), 90 // (longest + 6))))


def _series(results: Sequence[Result], without: Sequence[str]) -> dict[str, list[Result]]:
    """Group the results into series with a label; the settings ``without`` are an axis and not part of the label.

    The treatment of unseen tokens is part of the extractor, but stays in the label if it differs.
    """
    unseen = [getattr(result.config.extraction, "unseen", "mapped") for result in results]
    differ = "extractor" in without and len(set(unseen)) > 1
    found: dict[str, list[Result]] = {}
    for result, way, row, one in zip(results, columns(results, without), labels(results), unseen, strict=True):
        found.setdefault(f"{way}{f', unseen {one}' if differ else ''}: {row}", []).append(result)
    return found


def _means(results: Sequence[Result], place: Callable[[Result], Any]) -> dict[Any, float]:
    """Return the mean score for each value of ``place``, without undefined means."""
    found: dict[Any, list[float]] = {}
    for result in results:
        found.setdefault(place(result), []).append(result.value)
    means = {value: statistics.fmean(scores) for value, scores in found.items()}
    return {value: mean for value, mean in means.items() if not math.isnan(mean)}


def _w(named: Named) -> float | None:
    """Return the weight of Avg.: 0 for a contextual extractor, 1 for ``avg``, None for other extractors."""
    extraction = named.config.extraction
    if isinstance(extraction, BertAvg):
        return extraction.w
    if isinstance(extraction, (Transformer, Avg)):
        return float(isinstance(extraction, Avg))
    return None


def _layers(results: Sequence[Result]) -> list[str]:
    """Return the distinct layers: single layers by number, then combinations in order of appearance."""
    found = dict.fromkeys(result.config.layers for result in results)
    return sorted(found, key=lambda layers: (0, int(layers)) if _is_number(layers) else (1, 0))


def _is_number(layers: str) -> bool:
    return layers.lstrip("-").isdigit()


def _plain(text: str) -> str:
    """Escape dollar signs, which start a formula in matplotlib."""
    return text.replace("$", r"\$")


def interval(result: Result) -> tuple[float, float]:
    """Return the 95 % interval of the main score, from runs or by Fisher's transformation (Fieller et al. 1957)."""
    runs, pairs = result.scores.get("run_accuracies") or (), result.scores.get("pairs", 0)
    if len(runs) > 1:
        half = 1.96 * statistics.stdev(runs) / math.sqrt(len(runs))
        return result.value - half, result.value + half
    if result.headline in _CORRELATIONS and pairs > 3 and abs(result.value) < 100:
        centre, half = math.atanh(result.value / 100), 1.96 * math.sqrt(1.06 / (pairs - 3))
        return 100 * math.tanh(centre - half), 100 * math.tanh(centre + half)
    return math.nan, math.nan
