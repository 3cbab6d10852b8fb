"""Two-dimensional plots of entry vectors, like figures 1 and 2 of Liu 2024, with matplotlib (extra ``papers``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.papers.sentences.plots import new_figure

_INCHES, _DPI = 4.2, 150
_MOST_POINTS = 20_000


def svd_plane(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the first two columns of ``U S`` from the SVD of the uncentred vectors, shape ``(n, 2)`` (figure 1)."""
    return _project(vectors.astype(np.float64))


def pca_plane(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the first two principal components, scaled to variance 1, shape ``(n, 2)`` (figure 2)."""
    centred = vectors.astype(np.float64)
    centred -= centred.mean(axis=0)
    plane = _project(centred)
    whitened: NDArray[np.float64] = plane / plane.std(axis=0)
    return whitened


def draw_space(vectors: NDArray[np.float32], title: str, file: Path) -> None:
    """Plot both planes side by side to the PNG file ``file``. If there are many entries, plot only every k-th one."""
    figure = new_figure(2 * _INCHES, _INCHES)
    every = max(1, len(vectors) // _MOST_POINTS)
    panels = figure.subplots(1, 2)
    for axes, plane, name in zip(
        panels, (svd_plane(vectors), pca_plane(vectors)), ("SVD", "PCA, whitened"), strict=True
    ):
        axes.scatter(*plane[::every].T, s=2, alpha=0.4, linewidths=0)
        axes.set_aspect("equal", adjustable="datalim")  # the same scale on both axes makes isotropy visible
        axes.axhline(0, color="grey", linewidth=0.5)
        axes.axvline(0, color="grey", linewidth=0.5)
        axes.set_title(name, fontsize=9)
    figure.suptitle(title)
    figure.savefig(file, format="png", dpi=_DPI)


def _project(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Project ``points`` on the two directions of largest second moment, with positive largest values."""
    _, directions = np.linalg.eigh(points.T @ points)
    plane: NDArray[np.float64] = points @ directions[:, :-3:-1]
    largest = np.take_along_axis(plane, np.abs(plane).argmax(axis=0)[None], axis=0)
    return plane * np.where(largest < 0, -1.0, 1.0)
