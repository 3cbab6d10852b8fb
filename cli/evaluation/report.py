"""Printing what was measured of systems, and what they differ in."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from ragembed.cli.evaluation.results import difference_line, difference_to, print_objects
from ragembed.cli.evaluation.systems import System
from ragembed.cli.output import printable

if TYPE_CHECKING:
    from ragembed.evaluation.comparison import Difference
    from ragembed.evaluation.tasks import Measured

_TASK = "retrieval"


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of a system on the questions called ``collection``."""

    collection: str
    system: System
    measured: Measured

    @property
    def means(self) -> dict[str, float]:
        """The measures, in per cent."""
        return {name: value for name, value in self.measured.scores.items() if name != "queries"}


def print_rows(rows: Sequence[Row], output: str) -> None:
    """Print a line for each system, the second and further ones with their difference to the first on the same."""
    first = {row.collection: row.measured for row in reversed(rows)}
    differences = [
        {} if first[row.collection] is row.measured else difference_to(first[row.collection], row.measured)
        for row in rows
    ]
    if output == "text":
        click.echo(printable("\n".join(_text(rows, differences))))
    elif output == "csv":
        lines = [
            {"collection": row.collection, "name": row.system.label, **row.measured.scores, **_flat(difference)}
            for row, difference in zip(rows, differences, strict=True)
        ]
        _print_csv(lines)
    else:
        objects = [
            {"task": _TASK, "collection": row.collection, "name": row.system.label, **row.measured.scores, **difference}
            | row.system.about()
            for row, difference in zip(rows, differences, strict=True)
        ]
        print_objects(_TASK, objects, output)


def print_comparisons(pairs: Sequence[tuple[Row, Row]], output: str) -> None:
    """Print for each pair of systems, on the same questions, how the second differs from the first by each measure."""
    from ragembed.evaluation.comparison import compare

    compared = [(a, b, compare(_score(a), _score(b))) for a, b in pairs]
    if output == "text":
        click.echo(printable("\n\n".join("\n".join(_comparison(*each)) for each in compared)))
    elif output == "csv":
        lines = [
            {"collection": a.collection, "measure": name, "a": a.system.label, "b": b.system.label}
            | asdict(difference)
            | {"significant": difference.significant}
            for a, b, differences in compared
            for name, difference in differences.items()
        ]
        _print_csv(lines)
    else:
        print_objects(_TASK, [_as_dict(*each) for each in compared], output)


def _score(row: Row) -> Any:
    return row.measured.score


def _as_dict(a: Row, b: Row, differences: dict[str, Difference]) -> dict[str, Any]:
    return {
        "task": _TASK,
        "collection": a.collection,
        "queries": a.measured.scores["queries"],
        **{key: {"name": row.system.label, **row.means, **_about(row.system)} for key, row in (("a", a), ("b", b))},
        "differences": {
            name: {
                "difference": each.difference,
                "low": each.low,
                "high": each.high,
                "p_value": each.p_value,
                "significant": each.significant,
            }
            for name, each in differences.items()
        },
    }


def _about(system: System) -> dict[str, Any]:
    config = {} if system.config is None else {"config": system.config.to_dict()}
    return {**system.about(), **config}


def _text(rows: Sequence[Row], differences: Sequence[dict[str, Any]]) -> Iterator[str]:
    from ragembed.evaluation.table import aligned

    for i, collection in enumerate(dict.fromkeys(row.collection for row in rows)):
        here = [row for row in rows if row.collection == collection]
        if i:
            yield ""
        yield f"{collection}, {here[0].measured.scores['queries']:,} questions"
        yield ""
        lines = [[row.system.label, *(f"{value:.1f}" for value in row.means.values())] for row in here]
        yield from aligned([["", *here[0].means], *lines])
    if any(differences):
        yield ""
    for row, difference in zip(rows, differences, strict=True):
        if difference:
            name = f"{row.collection}, {row.system.label}, {row.measured.headline}"
            yield difference_line(name, difference["difference_to_first"])


def _comparison(a: Row, b: Row, differences: dict[str, Difference]) -> Iterator[str]:
    from ragembed.evaluation.table import aligned

    yield f"{a.collection}, {a.measured.scores['queries']:,} questions: A = {a.system.label}, B = {b.system.label}"
    yield ""
    lines = [["", "A", "B", "B - A", "95 % interval", "p"]]
    lines += [
        [
            name,
            f"{each.first:.1f}",
            f"{each.second:.1f}",
            f"{each.difference:+.1f}",
            f"{each.low:+.1f} to {each.high:+.1f}",
            f"{each.p_value:.4f}",
        ]
        for name, each in differences.items()
    ]
    yield from aligned(lines)
    yield ""
    better: dict[str, list[str]] = {"A": [], "B": [], "": []}
    for name, each in differences.items():
        better[("B" if each.difference > 0 else "A") if each.significant else ""].append(name)
    for system, names in better.items():
        if names and system:
            yield f"{system} is significantly better in {', '.join(names)} (p < 0.05)"
    if better[""]:
        yield f"no significant difference in {', '.join(better[''])}"


def _flat(difference: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}.{part}": value for name, parts in difference.items() for part, value in parts.items()}


def _print_csv(lines: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO()
    heads = list(dict.fromkeys(head for line in lines for head in line))
    writer = csv.DictWriter(text, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    click.echo(text.getvalue(), nl=False)
