"""The result of a table or figure as text and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ragembed.evaluation.table import folded, wrapped
from ragembed.papers.reproduction.data import COLLECTIONS, differences
from ragembed.papers.reproduction.reproduction_run import Item, Outcome

_DECIMALS, _LARGE, _FRACTION = 3, 1000, 1.01
_PRECISE = ("IsoScore", "alignment", "uniformity")


@dataclass(frozen=True, slots=True)
class Number:
    """The mean of the measurements of a row and column, beside the paper's number; None if there is none."""

    row: str
    column: str
    value: float | None
    published: float | None

    @property
    def difference(self) -> float | None:
        """The measured number minus the paper's."""
        return None if self.value is None or self.published is None else self.value - self.published


def described(items: Iterable[Item]) -> Iterator[str]:
    """Yield each table or figure of a paper with its data and their splits, and what differs from the paper and why."""
    texts: dict[str, int] = {}
    for item in items:
        by_split: dict[str, list[str]] = {}
        for name in item.collections:
            by_split.setdefault(item.splits.get(name, COLLECTIONS[name].split), []).append(name)
        yield f"{item.name}: {item.title}"
        yield f"  data: {'; '.join(f'{split} of ' + ', '.join(names) for split, names in by_split.items()) or 'none'}"
        found = [texts.setdefault(text, len(texts) + 1) for text in differences(item.paper, item.name)]
        yield f"  differs: {', '.join(map(str, found))}"
    yield from (f"{number}. {text}" for text, number in texts.items())


def numbers(outcome: Outcome) -> list[Number]:
    """Return the means over the collections; a mean with an undefined part is undefined."""
    cells: dict[tuple[str, str], list[float | None]] = {}
    names: dict[tuple[str, str], list[str]] = {}
    for value in outcome.values:
        cells.setdefault((value.row, value.column), []).append(value.value)
        names.setdefault((value.row, value.column), []).append(value.collection)
    found = []
    for (row, column), values in cells.items():
        known = [value for value in values if value is not None]
        mean = sum(known) / len(known) if len(known) == len(values) else None
        found.append(Number(row, column, mean, outcome.item.published(row, column, names[row, column])))
    return found


def text(outcome: Outcome, width: int | None) -> str:
    """Return the result as text: the table with the paper's numbers and the differences, notes and missing data."""
    return "\n".join(_lines(outcome, width))


def _lines(outcome: Outcome, width: int | None) -> Iterator[str]:
    found = numbers(outcome)
    title = f"{outcome.item.paper}, {outcome.item.name}: {outcome.item.title}; model {outcome.model}"
    yield from wrapped(title, width)
    if found:
        if any(number.published is not None for number in found):
            yield from wrapped("Each cell: measured (paper, measured minus paper).", width)
        yield ""
        yield from folded(table(outcome), 1, width)
        for line in _differences(found):
            yield from wrapped(line, width)
    yield ""
    for line in notes(outcome):
        yield from wrapped(line, width)


def notes(outcome: Outcome) -> Iterator[str]:
    """Yield the undefined numbers, the notes, and the missing collections."""
    for value in outcome.values:
        if value.value is None:
            yield f"undefined: {value.row}, {value.column}, {value.collection}: {value.note}"
    used = list(dict.fromkeys(value.collection for value in outcome.values if value.collection))
    if used:
        yield f"collections: {', '.join(used)}"
    yield from outcome.notes
    for one in outcome.missing:
        yield f"missing: {one.name}: expected {one.expected} in the folder of the data; published at {one.source}"


def table(outcome: Outcome) -> list[list[str]]:
    """Return the rows of the table, the header first: measured, and in brackets the paper's number and difference."""
    found = numbers(outcome)
    columns = sorted(dict.fromkeys(number.column for number in found), key=lambda column: column == "average")
    fractions = all(number.value is None or abs(number.value) <= _FRACTION for number in found)
    cells = {(number.row, number.column): _cell(number, fractions) for number in found}
    rows = dict.fromkeys(number.row for number in found)
    return [["", *columns], *([row, *(cells.get((row, column), "") for column in columns)] for row in rows)]


def _cell(number: Number, fractions: bool) -> str:
    if number.value is None:
        return "undefined"
    decimals = _DECIMALS if fractions or number.column.endswith(_PRECISE) else 0 if abs(number.value) >= _LARGE else 1
    shown = f"{_rounded(number.value, decimals):,.{decimals}f}"
    if number.published is None or number.difference is None:
        return shown
    return f"{shown} ({number.published:,.{decimals}f}, {_rounded(number.difference, decimals):+,.{decimals}f})"


def _rounded(value: float, decimals: int) -> float:
    """Return the rounded value; 0.0 for a value that rounds to -0.0."""
    return round(value, decimals) + 0.0


def _differences(found: Sequence[Number]) -> Iterator[str]:
    """Yield a line with the root mean square of the differences from the paper, by column."""
    by_column: dict[str, list[float]] = {}
    for number in found:
        if number.difference is not None:
            by_column.setdefault(number.column, []).append(number.difference)
    if by_column:
        roots = {name: math.hypot(*values) / math.sqrt(len(values)) for name, values in by_column.items()}
        parts = [f"{column} {root:.1f} ({len(by_column[column])})" for column, root in roots.items()]
        yield ""
        yield f"root mean square of the differences (numbers compared): {', '.join(parts)}"


def csv_text(outcome: Outcome) -> str:
    """Return one line per measurement and one per mean, with the paper's number and the difference of the means."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(["paper", "item", "model", "row", "column", "collection", "value", "published", "difference"])
    about = [outcome.item.paper, outcome.item.name, outcome.model]
    for value in outcome.values:
        writer.writerow([*about, value.row, value.column, value.collection, value.value, None, None])
    for number in numbers(outcome):
        writer.writerow([*about, number.row, number.column, "mean", number.value, number.published, number.difference])
    return lines.getvalue()
