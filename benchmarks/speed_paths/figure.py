"""The plot of the time of each path by the number of chunks."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from ragembed.errors import MissingExtraError

_WIDTH, _HEIGHT, _DPI = 9.0, 6.0, 110


def check_figure() -> None:
    """Raise MissingExtraError where there is no matplotlib; it is not loaded, to keep the measuring process small."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plot", "drawing a plot")


def draw(seconds: Mapping[int, Mapping[str, float]], file: Path) -> None:
    """Draw the seconds of each path by chunks, both scales logarithmic, with a line of linear growth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    sizes = sorted(seconds)
    for path in seconds[sizes[0]]:
        axes.plot(sizes, [seconds[size][path] for size in sizes], marker=".", label=path)
    start = min(seconds[sizes[0]].values())
    linear = [start * size / sizes[0] for size in sizes]
    axes.plot(sizes, linear, color="grey", linestyle=":", label="linear")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("chunks")
    axes.set_ylabel("seconds")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, format="png", dpi=_DPI)
