"""Results of several configurations as one table: rows are what aggregates and post-processes, columns what embeds.

The shape of table 4 of Stankevičius & Lukoševičius 2024.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragembed.config import EmbedderConfig
from ragembed.templates import PLAIN

AVERAGE = "average"
FRACTIONS = ("iso_score",)
"""Main scores that are not in per cent."""
_COLUMN_FIELDS = ("model", "layers", "template", "pooling", "special_tokens")


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of a configuration, called ``name``, on a collection; ``headline`` names the main score."""

    name: str
    config: EmbedderConfig
    collection: str
    scores: Mapping[str, Any]
    headline: str

    @property
    def value(self) -> float:
        """The main score."""
        return float(self.scores[self.headline])


def row_label(config: EmbedderConfig) -> str:
    """Return weighting and post-processors as the paper writes them: ``idf + quantile-u``; ``avg.`` is uniform."""
    weighting = "avg." if config.weighting == "uniform" else config.weighting
    return " + ".join([weighting, *config.postprocess])


def labels(results: Sequence[Result]) -> list[str]:
    """Return the row label of each result, with the sides where they differ among the results."""
    differ = len({result.config.sides for result in results}) > 1
    sides = {"one": " (one side)", "two": " (two sides)"}
    return [row_label(result.config) + (sides[result.config.sides] if differ else "") for result in results]


def text_table(results: Sequence[Result]) -> str:
    """Return a table for people: a column for each way of embedding, or for each collection where there is one way.

    With several collections, the values of several ways of embedding are means over the collections.
    """
    columns, collections = _columns(results), list(dict.fromkeys(result.collection for result in results))
    cells: dict[tuple[str, str], list[float]] = {}
    for result, column, label in zip(results, columns, labels(results), strict=True):
        by_collection = [result.collection, *([AVERAGE] if len(collections) > 1 else [])]
        for head in [column] if len(set(columns)) > 1 else by_collection:
            cells.setdefault((label, head), []).append(result.value)
    heads = sorted(dict.fromkeys(head for _, head in cells), key=lambda head: head == AVERAGE)
    decimals = 3 if results[0].headline in FRACTIONS else 1
    lines = [["", *heads]]
    for row in dict.fromkeys(label for label, _ in cells):
        values = [cells.get((row, head)) for head in heads]
        lines.append([row, *("" if value is None else f"{_mean(value):.{decimals}f}" for value in values)])
    return "\n".join([f"{results[0].headline}, {', '.join(collections)}", "", *_aligned(lines)])


def csv_table(results: Sequence[Result]) -> str:
    """Return one line for each result: collection, name, settings, scores."""
    settings = list(results[0].config.to_dict())
    scores = [name for name, value in results[0].scores.items() if not isinstance(value, list)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["collection", "name", *settings, *scores])
    for result in results:
        fields = result.config.to_dict()
        values = ["+".join(fields[name]) if isinstance(fields[name], list) else fields[name] for name in settings]
        writer.writerow([result.collection, result.name, *values, *(result.scores[name] for name in scores)])
    return text.getvalue()


def _columns(results: Sequence[Result]) -> list[str]:
    """Return how each result embeds: its name, and those settings that differ among results of that name."""
    labels = []
    for result in results:
        same = [other.config for other in results if other.name == result.name]
        varied = [field for field in _COLUMN_FIELDS if len({getattr(config, field) for config in same}) > 1]
        extractor = len({config.extractor for config in same}) > 1
        parts = [result.config.extractor if extractor else result.name]
        parts += [_short(field, getattr(result.config, field)) for field in varied]
        labels.append(" ".join(parts))
    return labels


def _short(field: str, value: Any) -> str:
    if field == "template":
        return "plain" if value == PLAIN else str(value)
    if field == "special_tokens":
        return {True: "with specials", False: "without specials", None: "specials by default"}[value]
    return str(value)


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))]
        ).rstrip()
        for first, *cells in lines
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
