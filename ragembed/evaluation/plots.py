"""Plots of results as PNG files, with matplotlib (the extra ``plot``).

The settings that differ between configurations of one name determine the kind of plot: scores by layer; by ``w`` of
``bert+avg``; by both, as in figure 5 of Stankevičius & Lukoševičius 2024; otherwise bars by weighting, post-processors
and embedding settings.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from ragembed.config.specs import Avg, BertAvg, Transformer
from ragembed.errors import ConfigError
from ragembed.evaluation.table import Named, Result, columns, labels
from ragembed.extras import needed_for

_WIDTH, _HEIGHT = 7.0, 4.2
_DPI = 150
_BAR_INCHES = 0.18
_CELL_INCHES = 0.55
_W = "w: 0 is only the contextual vector, 1 is only Avg."

Draw = Callable[[Any, Sequence[Result]], None]


def check_plot(candidates: Sequence[Named], file: Path) -> None:
    """Raise the errors that :func:`plot` would raise for these configurations, before they are evaluated.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ConfigError
        If the configurations do not differ in a setting that can be an axis, if a configuration has no value on that
        axis, or if the file cannot be written.
    """
    _figure()
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
    figure = _figure()
    _kind(results)(figure, results)
    figure.suptitle(_plain(", ".join(dict.fromkeys(result.collection for result in results))))
    try:
        figure.savefig(file, format="png", dpi=_DPI, bbox_inches="tight")
    except OSError as error:
        raise _unwritable(file, error) from error


def _unwritable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the plot {file} cannot be written: {error.strerror or error}")


@needed_for("drawing a plot")
def _figure() -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")


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
    numbers = all(_is_number(result.config.layers) for result in results)
    ticks = _layers(results)
    series = _series(results, ("layers",))
    axes = _axes(figure, results)
    for label, members in series.items():
        values = _means(members, lambda result: result.config.layers)
        found = [layers for layers in ticks if layers in values]
        places = [int(layers) if numbers else ticks.index(layers) for layers in found]
        axes.plot(places, [values[layers] for layers in found], marker="o", markersize=3, label=_plain(label))
    if not numbers:
        axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlabel("layer" if numbers else "layers")
    axes.legend(fontsize=7)


def _by_w(figure: Any, results: Sequence[Result]) -> None:
    axes = _axes(figure, results)
    for label, members in _series(results, ("extractor",)).items():
        values = _means(members, _w)
        places = sorted(values)
        axes.plot(places, [values[w] for w in places], marker="o", markersize=3, label=_plain(label))
    axes.set_xlabel(_W)
    axes.legend(fontsize=7)


def _heat_maps(figure: Any, results: Sequence[Result]) -> None:
    """Draw a heat map per series: layers on the x axis, ``w`` on the y axis, and a cross at the best score."""
    ticks, weights = _layers(results), sorted({w for result in results if (w := _w(result)) is not None})
    series = _series(results, ("extractor", "layers"))
    figure.set_size_inches(max(_WIDTH, _CELL_INCHES * len(ticks) * len(series)), _HEIGHT)
    least, greatest = _range(results)
    panels = figure.subplots(1, len(series), squeeze=False, sharey=True)[0]
    for axes, (label, members) in zip(panels, series.items(), strict=True):
        values = _means(members, lambda result: (_w(result), result.config.layers))
        cells = [[values.get((w, layers), float("nan")) for layers in ticks] for w in weights]
        image = axes.imshow(cells, origin="lower", aspect="auto", vmin=least, vmax=greatest)
        best_w, best_layers = max(values, key=lambda place: values[place])
        axes.plot(ticks.index(best_layers), weights.index(best_w), marker="x", color="white")
        single = sum(_is_number(layers) for layers in ticks)
        if 0 < single < len(ticks):
            axes.axvline(single - 0.5, color="black")
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_yticks(range(len(weights)), [f"{w:g}" for w in weights])
        axes.set_title(_plain(label), fontsize=8)
        axes.set_xlabel("layers")
    panels[0].set_ylabel(_W, fontsize=7)
    figure.colorbar(image, ax=panels, label=results[0].headline)


def _bars(figure: Any, results: Sequence[Result]) -> None:
    ways, row_labels = columns(results), labels(results)
    rows, heads = list(dict.fromkeys(row_labels)), list(dict.fromkeys(ways))
    cells: dict[tuple[str, str], list[float]] = {}
    for result, head, row in zip(results, ways, row_labels, strict=True):
        cells.setdefault((head, row), []).append(result.value)
    figure.set_size_inches(_WIDTH, max(_HEIGHT, _BAR_INCHES * len(rows) * (len(heads) + 1)))
    axes = figure.add_subplot()
    height = 0.8 / len(heads)
    for number, head in enumerate(heads):
        found = [(i, _mean(cells[head, row])) for i, row in enumerate(rows) if (head, row) in cells]
        places = [i + (number - (len(heads) - 1) / 2) * height for i, _ in found]
        axes.barh(places, [value for _, value in found], height=height, label=_plain(head))
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlabel(results[0].headline)
    axes.legend(fontsize=7)


def _axes(figure: Any, results: Sequence[Result]) -> Any:
    axes = figure.add_subplot()
    axes.set_ylabel(results[0].headline)
    axes.grid(visible=True, alpha=0.3)
    return axes


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
    """Return the mean score for each value of ``place``."""
    found: dict[Any, list[float]] = {}
    for result in results:
        found.setdefault(place(result), []).append(result.value)
    return {value: _mean(scores) for value, scores in found.items()}


def _range(results: Sequence[Result]) -> tuple[float, float]:
    values = [result.value for result in results]
    return min(values), max(values)


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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
