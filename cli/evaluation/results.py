"""Print the results of an evaluation as text, JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragembed.cli.evaluation.systems import System
from ragembed.cli.output import print_record, print_records, terminal_width
from ragembed.cli.requests import NamedConfig, embedder_config, embedder_configs
from ragembed.printable import printable, printable_line

if TYPE_CHECKING:
    from ragembed.evaluation.retrieval import Difference
    from ragembed.evaluation.table import Result
    from ragembed.evaluation.tasks import Measured


CSV = {"csv": "csv (one line per result)"}
"""The format that the evaluations have beside those of every command."""
_EVERY_LAYER = "each"
_TASK = "retrieval"


def candidates(given: Mapping[str, Any], *, query_fit: str | None) -> list[NamedConfig]:
    """Return every combination of the embedding options; ``query_fit`` is the default of that option.

    The layer ``each`` stands for every single layer of the model.
    """
    layers: tuple[str, ...] = given["layers"]
    if _EVERY_LAYER in layers:
        from ragembed.config.settings import DEFAULT_MODEL
        from ragembed.models.files import find_model, model_shape

        named = embedder_config({name: given[name] for name in ("config_file", "model")})
        _, count = model_shape(find_model(DEFAULT_MODEL if named is None else named.model).folder)
        every = [str(layer) for layer in range(-1, count + 1)]
        layers = tuple(dict.fromkeys(layer for name in layers for layer in (every if name == _EVERY_LAYER else [name])))
    return embedder_configs({**given, "layers": layers}, query_fit=query_fit)


def names(collections: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return the name of each collection, or the paths if two names are the same."""
    shown = [printable_line(name) for name in collections]
    return shown if len(set(shown)) == len(shown) else [printable_line(str(path)) for path in paths]


def results(collection: str, named: Sequence[NamedConfig], measured: Iterable[Measured]) -> Iterator[Result]:
    """Yield the results of a collection; later ones with their difference from the first, if it can be computed."""
    from ragembed.evaluation.table import Result

    first: Measured | None = None
    for (name, config), one in zip(named, measured, strict=True):
        first = first or one
        yield Result(name, config, collection, {**one.scores, **_difference_to(first, one)}, one.headline)


def _difference_to(first: Measured, other: Measured) -> dict[str, dict[str, float]]:
    """Return the difference of the headline measure, or nothing without per-query values for at least two queries."""
    if first is other or first.by_query is None or other.by_query is None or len(first.by_query) < 2:
        return {}
    from ragembed.evaluation.retrieval import paired_bootstrap

    found = paired_bootstrap(other.by_query, first.by_query)
    values = {"difference": found.difference, "low": found.low, "high": found.high, "p_value": found.p_value}
    return {"difference_to_first": values}


def print_results(task: str, found: Sequence[Result], output: str, html: Path | None = None) -> None:
    """Print results in one of the formats of ``--format``, and write them to the page ``html``, if given."""
    from ragembed.evaluation.table import csv_rows

    objects = [
        {"task": task, "collection": one.collection, "name": one.name, **one.scores, "config": one.config.to_dict()}
        for one in found
    ]
    _emit(task, objects, csv_rows(found), _result_lines(found, terminal_width()), output, html)


def _result_lines(found: Sequence[Result], width: int | None) -> Iterator[str]:
    """Yield the lines of the tables, the pairs of alignment, the differences from the first, and undefined results."""
    from ragembed.evaluation.table import columns, labels, text_table, undefined_lines, wrapped

    yield text_table(found, width=width)
    for score in ("uniformity", "alignment"):
        having = [result for result in found if score in result.scores]
        if having:
            yield from ("", text_table(having, score, width))
    scores = {result.collection: result.scores for result in found if "positive_pairs" in result.scores}
    lines = [
        f"{collection}: alignment of {one['positive_pairs']:,} pairs with a score of {one['positive_score']:g} or more"
        for collection, one in scores.items()
    ]
    for result, column, label in zip(found, columns(found), labels(found), strict=True):
        if difference := result.scores.get("difference_to_first"):
            lines.append(_difference_line(f"{result.collection}, {column}: {label}", difference))
    for line in (*lines, *undefined_lines(found)):
        yield from wrapped(line, width)


def _emit(
    task: str,
    objects: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    lines: Iterable[str],
    output: str,
    html: Path | None,
) -> None:
    """Print ``objects`` as JSON, ``rows`` as CSV or ``lines`` as text, and write the page ``html``, if given."""
    if output == "csv":
        print_csv(rows)
    elif output == "text":
        click.echo(printable("\n".join(lines)))
    else:
        print_objects(task, objects, output)
    if html is not None:
        from ragembed.reports.page import write_page
        from ragembed.reports.results import evaluation_page

        write_page(html, evaluation_page(task, objects))


def print_objects(task: str, objects: Sequence[Mapping[str, Any]], output: str) -> None:
    """Print JSON: one object per line, or a single object with a list if there are several results."""
    if len(objects) == 1:
        print_record(objects[0], output)
    else:
        print_records({"task": task, "results": list(objects)}, "results", output)


def _difference_line(name: str, found: Mapping[str, float]) -> str:
    """Return the line with the difference of the system ``name`` from the first one."""
    return (
        f"{name}: {found['difference']:+.1f} from the first, 95 % interval {found['low']:+.1f} to "
        f"{found['high']:+.1f}, p = {found['p_value']:.3f}"
    )


@dataclass(frozen=True, slots=True)
class Row:
    """The measures of one system on the queries of one collection."""

    collection: str
    system: System
    measured: Measured

    @property
    def means(self) -> dict[str, float]:
        """The measures without the number of queries, in per cent."""
        return {name: value for name, value in self.measured.scores.items() if name != "queries"}


def print_rows(rows: Sequence[Row], output: str, html: Path | None = None) -> None:
    """Print one line per system, with the difference from the first on its collection, as :func:`print_results`."""
    first = {row.collection: row.measured for row in reversed(rows)}
    records = [
        {"collection": row.collection, "name": row.system.label, **row.measured.scores}
        | _difference_to(first[row.collection], row.measured)
        for row in rows
    ]
    objects = [{"task": _TASK, **record, **row.system.about()} for row, record in zip(rows, records, strict=True)]
    lines = _row_lines(rows, [record.get("difference_to_first") for record in records])
    _emit(_TASK, objects, records, lines, output, html)


def _row_lines(rows: Sequence[Row], differences: Sequence[Any]) -> Iterator[str]:
    from ragembed.evaluation.table import folded, wrapped

    width = terminal_width()
    for i, collection in enumerate(dict.fromkeys(row.collection for row in rows)):
        here = [row for row in rows if row.collection == collection]
        if i:
            yield ""
        yield f"{collection}, {here[0].measured.scores['queries']:,} queries"
        yield ""
        lines = [[row.system.label, *(f"{value:.1f}" for value in row.means.values())] for row in here]
        yield from folded([["", *here[0].means], *lines], 1, width)
    if any(differences):
        yield ""
    for row, difference in zip(rows, differences, strict=True):
        if difference:
            name = f"{row.collection}, {row.system.label}, {row.measured.headline}"
            yield from wrapped(_difference_line(name, difference), width)


def print_comparisons(pairs: Sequence[tuple[Row, Row]], output: str, html: Path | None = None) -> None:
    """Print the difference of each measure for each pair of systems on the same queries, as :func:`print_results`."""
    from ragembed.evaluation.retrieval import compare

    compared = []
    for a, b in pairs:
        first: Any = a.measured.score
        second: Any = b.measured.score
        compared.append((a, b, compare(first, second)))
    records = [
        {"collection": a.collection, "measure": name, "a": a.system.label, "b": b.system.label}
        | asdict(difference)
        | {"significant": difference.significant}
        for a, b, differences in compared
        for name, difference in differences.items()
    ]
    lines = ["\n\n".join("\n".join(_comparison(*each)) for each in compared)]
    _emit(_TASK, [_comparison_dict(*each) for each in compared], records, lines, output, html)


def _comparison_dict(a: Row, b: Row, differences: dict[str, Difference]) -> dict[str, Any]:
    def system(row: Row) -> dict[str, Any]:
        config = {} if row.system.config is None else {"config": row.system.config.to_dict()}
        return {"name": row.system.label, **row.means, **row.system.about(), **config}

    return {
        "task": _TASK,
        "collection": a.collection,
        "queries": a.measured.scores["queries"],
        "a": system(a),
        "b": system(b),
        "differences": {
            name: {field: getattr(each, field) for field in ("difference", "low", "high", "p_value", "significant")}
            for name, each in differences.items()
        },
    }


def _comparison(a: Row, b: Row, differences: dict[str, Difference]) -> Iterator[str]:
    from ragembed.evaluation.table import folded, wrapped

    width = terminal_width()
    queries = f"{a.measured.scores['queries']:,} queries"
    yield from wrapped(f"{a.collection}, {queries}: A = {a.system.label}, B = {b.system.label}", width)
    yield ""
    lines = [["", "A", "B", "B - A", "95 % interval", "p"]]
    for name, each in differences.items():
        means = [f"{each.first:.1f}", f"{each.second:.1f}", f"{each.difference:+.1f}"]
        lines.append([name, *means, f"{each.low:+.1f} to {each.high:+.1f}", f"{each.p_value:.4f}"])
    yield from folded(lines, 1, width)
    yield ""
    better: dict[str, list[str]] = {"A": [], "B": [], "": []}
    for name, each in differences.items():
        better[("B" if each.difference > 0 else "A") if each.significant else ""].append(name)
    for system, names in better.items():
        if names and system:
            yield from wrapped(f"{system} is significantly better in {', '.join(names)} (p < 0.05)", width)
    if better[""]:
        yield from wrapped(f"no significant difference in {', '.join(better[''])}", width)


def print_csv(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per dictionary, below a header with the keys of all; nested ones get a column for each part."""
    rows: list[dict[str, Any]] = []
    for line in lines:
        rows.append({})
        for name, value in line.items():
            parts = {f"{name}.{part}": each for part, each in value.items()} if isinstance(value, dict) else None
            rows[-1] |= {name: value} if parts is None else parts
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(head for row in rows for head in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    click.echo(printable(text.getvalue()), nl=False)
