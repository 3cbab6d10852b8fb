"""Tables of results: rows are weightings and post-processors, columns are the other embedding settings.

The layout is that of table 4 in Stankevičius & Lukoševičius 2024.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragembed.config.settings import EmbedderConfig
from ragembed.config.templates import PLAIN

AVERAGE = "average"
FRACTIONS = ("iso_score",)
"""Headline measures that are fractions instead of per cent."""
_COLUMN_FIELDS = ("extractor", "model", "layers", "template", "pooling", "special_tokens")


class Named(Protocol):
    """An object with a name and a configuration."""

    @property
    def name(self) -> str:
        """Name of the preset or configuration file."""
        ...

    @property
    def config(self) -> EmbedderConfig:
        """The configuration."""
        ...


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
        """The main score."""
        return float(self.scores[self.headline])


def row_label(config: EmbedderConfig) -> str:
    """Return weighting and post-processors as in the paper, such as ``idf + quantile-u``; ``avg.`` means uniform."""
    weighting = "avg." if config.weighting == "uniform" else config.weighting
    return " + ".join([weighting, *config.postprocess])


def labels(named: Sequence[Named]) -> list[str]:
    """Return the row label of each configuration, with the query fit if it differs between them."""
    differ = len({one.config.query_fit for one in named}) > 1
    fits = {"shared": " (shared fit)", "separate": " (separate fit)"}
    return [row_label(one.config) + (fits[one.config.query_fit] if differ else "") for one in named]


def columns(named: Sequence[Named], without: Sequence[str] = ()) -> list[str]:
    """Return the column label of each configuration: its name and the settings that differ under that name.

    Settings in ``without`` are left out. If all names are the same and the extractors differ, the extractor replaces
    the name.
    """
    one_name = len({one.name for one in named}) == 1
    found = []
    for one in named:
        same = [other.config for other in named if other.name == one.name]
        varied = [field for field in _COLUMN_FIELDS if len({getattr(config, field) for config in same}) > 1]
        parts = [] if one_name and "extractor" in varied and "extractor" not in without else [one.name]
        parts += [_short(field, getattr(one.config, field)) for field in varied if field not in without]
        found.append(" ".join(parts))
    return found


def text_table(results: Sequence[Result]) -> str:
    """Return a text table with one column per embedding, or one per collection if there is a single embedding.

    With several embeddings and several collections, the values are means over the collections.
    """
    embeddings, collections = columns(results), list(dict.fromkeys(result.collection for result in results))
    cells: dict[tuple[str, str], list[float]] = {}
    for result, column, label in zip(results, embeddings, labels(results), strict=True):
        by_collection = [result.collection, *([AVERAGE] if len(collections) > 1 else [])]
        for head in [column] if len(set(embeddings)) > 1 else by_collection:
            cells.setdefault((label, head), []).append(result.value)
    heads = sorted(dict.fromkeys(head for _, head in cells), key=lambda head: head == AVERAGE)
    decimals = 3 if results[0].headline in FRACTIONS else 1
    lines = [["", *heads]]
    for row in dict.fromkeys(label for label, _ in cells):
        values = [cells.get((row, head)) for head in heads]
        lines.append([row, *("" if value is None else f"{_mean(value):.{decimals}f}" for value in values)])
    mean = "mean of " if len(collections) > 1 and AVERAGE not in heads else ""
    return "\n".join([f"{results[0].headline}, {mean}{', '.join(collections)}", "", *aligned(lines)])


def csv_table(results: Sequence[Result]) -> str:
    """Return CSV with one line per result: collection, name, settings, scores.

    List settings are joined by spaces. List scores are left out. Nested scores get one column per part, such as
    ``difference_to_first.low``; it is empty for results without that score.
    """
    settings = list(results[0].config.to_dict())
    scores = [dict(_flat(result.scores)) for result in results]
    heads = list(dict.fromkeys(head for found in scores for head in found))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["collection", "name", *settings, *heads])
    for result, found in zip(results, scores, strict=True):
        fields = result.config.to_dict()
        values = [" ".join(fields[name]) if isinstance(fields[name], list) else fields[name] for name in settings]
        writer.writerow([result.collection, result.name, *values, *(found.get(head) for head in heads)])
    return text.getvalue()


def _flat(scores: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in scores.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{part}", number) for part, number in value.items())
        elif not isinstance(value, list):
            yield name, value


def _short(field: str, value: Any) -> str:
    if field == "template":
        return "plain" if value == PLAIN else str(value)
    if field == "special_tokens":
        return {True: "with specials", False: "without specials", None: "specials by default"}[value]
    return str(value)


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns: the first left-aligned, the others right-aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))]
        ).rstrip()
        for first, *cells in lines
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
