"""Pictures of tables and figures as PNG files, with matplotlib (the extra ``papers``)."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ragembed.files import make_folders, replace_file
from ragembed.papers.reproduction.reproduction_report import Number, csv_text, numbers
from ragembed.papers.reproduction.reproduction_run import Outcome
from ragembed.papers.sentences.plots import heat_map, new_figure

_PANEL_WIDTH, _PANEL_HEIGHT = 4.6, 3.8
_DPI = 130
_MARKERS = "osD^v<>PX*h"
"""One more than the colours of matplotlib, so that the series after the tenth differ from the first ones."""
_LARGE = 1000


def write(outcome: Outcome, folder: Path) -> list[Path]:
    """Write the CSV file and the picture, and return their paths; each needs at least one number."""
    if not outcome.values:
        return []
    make_folders(folder)
    stem = outcome.item.name.replace(" ", "-")
    table = folder / f"{stem}.csv"
    replace_file(table, csv_text(outcome).encode())
    picture = folder / f"{stem}.png"
    return [table, picture] if draw(outcome, picture) else [table]


def draw(outcome: Outcome, file: Path) -> bool:
    """Draw an outcome to ``file``; return False, and draw nothing, if there is no number to draw."""
    figure = new_figure()
    if not _DRAWINGS[outcome.item.draw](figure, outcome):
        return False
    title = f"{outcome.item.paper}, {outcome.item.name}: {outcome.item.title}\nmodel {Path(outcome.model).name}"
    figure.suptitle(title.replace("$", r"\$"), fontsize=9)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=_DPI, bbox_inches="tight")
    replace_file(file, picture.getvalue())
    return True


def _agreement(figure: Any, outcome: Outcome) -> bool:
    """Draw each measured number against the paper's number, or the measured numbers alone if the paper prints none."""
    known = [
        (number.column, number.published, value) for number, value in _known(outcome) if number.published is not None
    ]
    if not known:
        return _dots(figure, outcome)
    (axes,) = _panels(figure, 1)
    _series(figure, axes, known)
    drawn = [place for _, *places in known for place in places]
    ends = [min(drawn), max(drawn)]
    axes.plot(ends, ends, color="grey", linewidth=0.8)
    if ends[0] > 0 and ends[1] > _LARGE:
        axes.set(xscale="log", yscale="log")
    axes.set(xlabel="paper", ylabel="measured")
    return True


def _dots(figure: Any, outcome: Outcome) -> bool:
    known = _known(outcome)
    if not known:
        return False
    rows = list(dict.fromkeys(number.row for number, _ in known))
    figure.set_size_inches(7.0, max(_PANEL_HEIGHT, 0.22 * len(rows) + 1.2))
    axes = figure.add_subplot()
    _series(figure, axes, [(number.column, value, rows.index(number.row)) for number, value in known])
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x", alpha=0.3)
    return True


def _series(figure: Any, axes: Any, points: Sequence[tuple[str, float, float]], **style: float) -> None:
    """Draw points, each with the name of its series, and a legend."""
    names = list(dict.fromkeys(name for name, _, _ in points))
    for i, name in enumerate(names):
        x, y = zip(*((x, y) for series, x, y in points if series == name), strict=True)
        axes.plot(x, y, _MARKERS[i % len(_MARKERS)], markersize=4, label=name, **style)
    figure.legend(loc="outside lower center", fontsize=7, ncols=min(len(names), 4))


def _correlations(figure: Any, outcome: Outcome) -> bool:
    """Draw the score against IsoScore, a panel per model with Pearson's correlation, as in figures 1 and 2."""
    found = _by_column(outcome)
    models = [column.partition(":")[0] for column in found if column.endswith("IsoScore")]
    models = [model for model in dict.fromkeys(models) if any(_scores(found, model))]
    if not models:
        return False
    for axes, model in zip(_panels(figure, len(models)), models, strict=True):
        scores, isotropy = _scores(found, model)
        pearson = scores.get("Pearson correlation")
        rows = [row for row in scores if row in isotropy]
        axes.plot([isotropy[row] for row in rows], [scores[row] for row in rows], "o", markersize=4)
        axes.set_title(model if pearson is None else f"{model}: r = {pearson / 100:.2f}", fontsize=9)
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel("IsoScore", fontsize=8)
        axes.set_ylabel("score", fontsize=8)
    return True


def _scores(found: Mapping[str, Mapping[str, float]], model: str) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return the scores and the isotropy of a model, by row."""
    scores = next((found[c] for c in found if c.startswith(f"{model}: ") and not c.endswith("IsoScore")), {})
    return scores, found.get(f"{model}: IsoScore", {})


def _alignment(figure: Any, outcome: Outcome) -> bool:
    """Draw alignment against uniformity, a series per model and a marker per weighting, as in figure 3."""
    found = _by_column(outcome)
    models = [column.partition(":")[0] for column in found if column.endswith("alignment")]
    if not models:
        return False
    (axes,) = _panels(figure, 1)
    points = [
        (model, found[f"{model}: uniformity"][row], value)
        for model in models
        for row, value in found[f"{model}: alignment"].items()
        if row in found.get(f"{model}: uniformity", {})
    ]
    _series(figure, axes, points, alpha=0.8)
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set(xlabel="uniformity", ylabel="alignment")
    return True


def _layers(figure: Any, outcome: Outcome) -> bool:
    """Draw the mean over collections by layer, and the deviation as shading; a panel per group and comparison."""
    cells: dict[tuple[str, str], dict[str, dict[str, list[float]]]] = {}
    for value in outcome.values:
        group, comparison, line = value.row.split(": ", 2)
        if value.value is not None:
            by_layer = cells.setdefault((group, comparison), {}).setdefault(line, {})
            by_layer.setdefault(value.column, []).append(value.value)
    if not cells:
        return False
    groups, comparisons = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
    panels = _panels(figure, len(comparisons), len(groups))
    for axes, (group, comparison) in zip(panels, product(groups, comparisons), strict=True):
        for line, by_layer in cells.get((group, comparison), {}).items():
            ticks = list(by_layer)
            means = [fmean(by_layer[tick]) for tick in ticks]
            spread = [stdev(by_layer[tick]) if len(by_layer[tick]) > 1 else 0.0 for tick in ticks]
            (drawn,) = axes.plot(range(len(ticks)), means, marker="o", markersize=2, label=line)
            low, high = zip(*((m - s, m + s) for m, s in zip(means, spread, strict=True)), strict=True)
            axes.fill_between(range(len(ticks)), low, high, color=drawn.get_color(), alpha=0.12)
            axes.set_xticks(range(len(ticks)), ticks, fontsize=7, rotation=90 if len(ticks) > 8 else 30)
        axes.set_title(f"{group}: {comparison}", fontsize=9)
        axes.set_xlabel("layer", fontsize=8)
        axes.legend(fontsize=6, loc="upper left", bbox_to_anchor=(0.0, -0.32), ncols=2)
    return True


def _heat_maps(figure: Any, outcome: Outcome) -> bool:
    """Draw the score by layer and weight, a panel per group or collection, with a cross at the best."""
    panels: dict[str, dict[tuple[float, str], float]] = {}
    for number, value in _known(outcome):
        name, _, weight = number.row.partition(": w=")
        panels.setdefault(name, {})[float(weight), number.column] = value
    if not panels:
        return False
    drawn = _panels(figure, len(panels))
    for axes, (name, values) in zip(drawn, panels.items(), strict=True):
        weights = sorted({weight for weight, _ in values})
        layers = list(dict.fromkeys(layer for _, layer in values))
        image = heat_map(axes, values, layers, weights, f"{name}: best {max(values.values()):.1f}")
        figure.colorbar(image, ax=axes)
    drawn[0].set_ylabel("w")
    return True


def _curves(figure: Any, outcome: Outcome) -> bool:
    """Draw a curve per row; a row ``name: curve`` belongs to the panel ``name``."""
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for number, value in _known(outcome):
        name, _, curve = number.row.partition(": ")
        panels.setdefault(name, {}).setdefault(curve, {})[number.column] = value
    if not panels:
        return False
    for axes, (name, curves) in zip(_panels(figure, len(panels)), panels.items(), strict=True):
        for curve, points in curves.items():
            axes.plot([int(place) for place in points], list(points.values()), marker="o", markersize=3, label=curve)
        axes.set_xticks(sorted({int(place) for points in curves.values() for place in points}))
        axes.set(xlabel=name, ylabel="score")
        axes.grid(visible=True, alpha=0.3)
        if len(curves) > 1:
            _legend_below(axes, columns=3)
    return True


def _similarity_map(figure: Any, outcome: Outcome) -> bool:
    """Draw the cosines between layers as a map, and by the number of hops as curves."""
    values = {(int(number.row), int(number.column)): value for number, value in _known(outcome)}
    if not values:
        return False
    layers = sorted({row for row, _ in values})
    left, right = _panels(figure, 2)
    cells = [[values[row, column] for column in layers] for row in layers]
    figure.colorbar(left.imshow(cells, origin="lower"), ax=left)
    left.set(xlabel="layer", ylabel="layer")
    for hops in range(1, 5):
        starts = [layer for layer in layers if layer + hops in layers]
        if starts:
            places = [values[layer, layer + hops] for layer in starts]
            right.plot(starts, places, marker="o", markersize=3, label=f"{hops} hops" if hops > 1 else "1 hop")
    right.set(xlabel="layer", ylabel="cosine")
    right.grid(visible=True, alpha=0.3)
    _legend_below(right, columns=4)
    return True


def _by_column(outcome: Outcome) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for number, value in _known(outcome):
        found.setdefault(number.column, {})[number.row] = value
    return found


def _known(outcome: Outcome) -> list[tuple[Number, float]]:
    return [(number, number.value) for number in numbers(outcome) if number.value is not None]


def _panels(figure: Any, across: int, down: int = 0) -> list[Any]:
    """Return the axes of a grid; without ``down``, at most four are beside each other, and unused ones are hidden."""
    count = across * max(down, 1)
    across = across if down else min(across, 4)
    down = down or -(-count // across)
    figure.set_size_inches(_PANEL_WIDTH * across + (1.5 if across == 1 else 0.0), _PANEL_HEIGHT * down + 0.5)
    panels: list[Any] = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for axes in panels[count:]:
        axes.set_visible(False)
    return panels[:count]


def _legend_below(axes: Any, columns: int) -> None:
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0.0, -0.15), ncols=columns)


_DRAWINGS: Mapping[str, Callable[[Any, Outcome], bool]] = {
    "agreement": _agreement,
    "alignment": _alignment,
    "correlations": _correlations,
    "curves": _curves,
    "heat_maps": _heat_maps,
    "layers": _layers,
    "similarity_map": _similarity_map,
}
