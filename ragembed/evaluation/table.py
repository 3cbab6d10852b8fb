"""Tables of results: rows are weightings and post-processors, columns are the other embedding settings.

The layout is that of table 4 in Stankevičius & Lukoševičius 2024.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragembed.config.settings import EmbedderConfig
from ragembed.config.specs import PLAIN

AVERAGE = "average"
FRACTIONS = ("iso_score", "uniformity", "alignment")
"""Measures that are not in per cent, and are shown with more decimals."""
_COLUMN_FIELDS = ("extractor", "model", "layers", "template", "pooling", "special_tokens")


class Named(Protocol):
    """An object with a name and a configuration."""

    @property
    def name(self) -> str:
        """Name of the preset or configuration file."""

    @property
    def config(self) -> EmbedderConfig:
        """The configuration."""


@dataclass(frozen=True, slots=True)
class Result:
    """The scores of a configuration on a collection; ``headline`` is the name of the main score."""

    name: str
    config: EmbedderConfig
    collection: str
    scores: Mapping[str, Any]
    headline: str

    @property
    def value(self) -> float:
        """The main score; NaN if the measure is not defined for the vectors."""
        return self.score(self.headline)

    def score(self, name: str) -> float:
        """Return a score; NaN if the measure is not defined for the vectors."""
        value = self.scores.get(name)
        return math.nan if value is None else float(value)


def row_label(config: EmbedderConfig) -> str:
    """Return weighting and post-processors as in the paper, such as ``idf + quantile-u``; ``avg.`` means uniform."""
    weighting = "avg." if config.weighting == "uniform" else config.weighting
    return " + ".join([weighting, *config.postprocess])


def labels(named: Sequence[Named]) -> list[str]:
    """Return the row label of each configuration, with the query fit if it differs between them."""
    differ = len({entry.config.query_fit for entry in named}) > 1
    fits = {"shared": " (shared fit)", "separate": " (separate fit)"}
    return [row_label(entry.config) + (fits[entry.config.query_fit] if differ else "") for entry in named]


def columns(named: Sequence[Named], without: Sequence[str] = ()) -> list[str]:
    """Return the column label of each configuration: its name and the settings that differ, apart from ``without``."""
    one_name = len({entry.name for entry in named}) == 1
    column_labels = []
    for entry in named:
        same = [other.config for other in named if other.name == entry.name]
        varied = [field for field in _COLUMN_FIELDS if len({getattr(config, field) for config in same}) > 1]
        parts = [] if one_name and "extractor" in varied and "extractor" not in without else [entry.name]
        parts += [_short(field, getattr(entry.config, field)) for field in varied if field not in without]
        column_labels.append(" ".join(parts))
    return column_labels


def text_table(results: Sequence[Result], score: str | None = None, width: int | None = None) -> str:
    """Return a text table with one column per embedding and collection, and the averages over collections.

    Columns beyond ``width`` characters continue below. Combinations that were not evaluated are empty.
    """
    score = score or results[0].headline
    embeddings, collections = columns(results), list(dict.fromkeys(result.collection for result in results))
    cells: dict[tuple[str, tuple[str, str]], list[float]] = {}
    for result, column, label in zip(results, embeddings, labels(results), strict=True):
        for collection in (result.collection, *([AVERAGE] if len(collections) > 1 else [])):
            cells.setdefault((label, (collection, column)), []).append(result.score(score))
    ways = list(dict.fromkeys(embeddings))
    heads = [(collection, way) for collection in (*collections, AVERAGE) for way in ways]
    heads = [head for head in heads if any(head == place for _, place in cells)]
    several = len(collections) > 1, len(ways) > 1
    titles = [[collection for collection, _ in heads]] if several[0] or not several[1] else []
    titles += [[way for _, way in heads]] if several[1] else []
    lines = [["", *title] for title in titles]
    decimals = 3 if score in FRACTIONS else 1
    for row in dict.fromkeys(label for label, _ in cells):
        values = [cells.get((row, head)) for head in heads]
        lines.append([row, *("" if value is None else _shown(_mean(value), decimals) for value in values)])
    title = f"{score}, {', '.join(collections)}"
    return "\n".join([*wrapped(title, width), "", *folded(lines, len(titles), width)])


def undefined_lines(results: Sequence[Result]) -> Iterator[str]:
    """Yield a line for each result whose measure is not defined, with its configuration and the reason."""
    for result, column, label in zip(results, columns(results), labels(results), strict=True):
        if "undefined" in result.scores:
            yield f"undefined: {result.collection}, {column}: {label}: {result.scores['undefined']}"


def csv_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the collection, name, settings and scores of each result; list settings are joined by spaces.

    Scores that are lists are left out.
    """
    return [
        {"collection": result.collection, "name": result.name}
        | {name: " ".join(v) if isinstance(v, list) else v for name, v in result.config.to_dict().items()}
        | {name: score for name, score in result.scores.items() if not isinstance(score, list)}
        for result in results
    ]


def _short(field: str, value: Any) -> str:
    if field == "template":
        return "plain" if value == PLAIN else str(value)
    if field == "special_tokens":
        return {True: "with specials", False: "without specials", None: "specials by default"}[value]
    return str(value)


def folded(lines: Sequence[Sequence[str]], headers: int, width: int | None) -> list[str]:
    """Return :func:`aligned` rows; columns beyond ``width`` continue in a further block, below the same headers."""
    if width is None:
        return aligned(lines)
    most = max(1, (width - 2) // 2)
    cut = [[cell if len(cell) <= most else f"{cell[: most - 1]}…" for cell in line] for line in lines]
    widths = [max(len(cell) for cell in column) for column in zip(*cut, strict=True)]
    blocks: list[list[int]] = []
    room = 0
    for column, needed in enumerate(widths[1:], 1):
        if not blocks or needed + 2 > room:
            blocks.append([])
            room = width - widths[0]
        blocks[-1].append(column)
        room -= needed + 2
    folded_lines: list[str] = []
    for block in blocks:
        rows = [[line[0], *(line[column] for column in block)] for line in cut]
        used = [row for number, row in enumerate(rows) if number < headers or any(row[1:])]
        folded_lines += [*([""] if folded_lines else []), *aligned(used)]
    return folded_lines


def wrapped(text: str, width: int | None) -> list[str]:
    """Return ``text`` as lines of at most ``width`` characters; further lines are indented."""
    return [text] if width is None or not text else textwrap.wrap(text, max(width, 20), subsequent_indent="  ")


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns: the first left-aligned, the others right-aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))]
        ).rstrip()
        for first, *cells in lines
    ]


def _shown(value: float, decimals: int) -> str:
    return "undefined" if math.isnan(value) else f"{value:.{decimals}f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
