"""Print the results of an evaluation as text, JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragembed.cli.evaluation.systems import System
from ragembed.cli.output import print_record, print_records, terminal_width
from ragembed.cli.requests import NamedConfig, embedder_config, embedder_configs
from ragembed.printable import printable, printable_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ragembed.evaluation.retrieval import Difference
    from ragembed.evaluation.table import Result
    from ragembed.evaluation.tasks import Measured


CSV = {"csv": "csv (one line per result)"}
"""The format that the evaluations have beside those of every command."""
EVERY_LAYER = "each"


def candidates(given: Mapping[str, Any], *, query_fit: str | None) -> list[NamedConfig]:
    """Return every combination of the embedding options; ``query_fit`` is the default of that option."""
    return embedder_configs({**given, "layers": _layers(given)}, query_fit=query_fit)


def names(found: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return the name of each collection, or the paths if two names are the same."""
    shown = [printable_line(name) for name in found]
    return shown if len(set(shown)) == len(shown) else [printable_line(str(path)) for path in paths]


def results(
    collection: str, named: Sequence[NamedConfig], measured: Sequence[Measured] | Iterator[Measured]
) -> Iterator[Result]:
    """Yield the results of a collection; later ones with their difference from the first, if it can be computed."""
    from ragembed.evaluation.table import Result

    first: Measured | None = None
    for (name, config), one in zip(named, measured, strict=True):
        scores = dict(one.scores)
        if first is None:
            first = one
        else:
            scores.update(difference_to(first, one))
        yield Result(name, config, collection, scores, one.headline)


def difference_to(first: Measured, other: Measured) -> dict[str, dict[str, float]]:
    """Return the difference of the headline measure, or nothing without per-query values for at least two queries."""
    if first.by_query is None or other.by_query is None or len(first.by_query) < 2:
        return {}
    return {"difference_to_first": _difference(other.by_query, first.by_query)}


def print_results(task: str, found: Sequence[Result], output: str, html: Path | None = None) -> None:
    """Print results in one of the formats of ``--format``, and write them to the page ``html``, if given."""
    from ragembed.evaluation.table import csv_table

    objects = [_as_dict(task, result) for result in found]
    if output == "text":
        click.echo(printable("\n".join(_result_lines(found, terminal_width()))))
    elif output == "csv":
        click.echo(printable(csv_table(found)), nl=False)
    else:
        print_objects(task, objects, output)
    _write_html(task, objects, html)


def _result_lines(found: Sequence[Result], width: int | None) -> Iterator[str]:
    """Yield the lines of the tables, the differences from the first configuration, and the undefined results."""
    from ragembed.evaluation.table import text_table, undefined_lines, wrapped

    yield text_table(found, width=width)
    for score in ("uniformity", "alignment"):
        having = [result for result in found if score in result.scores]
        if having:
            yield from ("", text_table(having, score, width))
    for line in (*_positives(found), *_differences(found), *undefined_lines(found)):
        yield from wrapped(line, width)


def _positives(found: Sequence[Result]) -> Iterator[str]:
    """Yield a line per collection that says which pairs the alignment is measured on."""
    scores = {result.collection: result.scores for result in found if "positive_pairs" in result.scores}
    for collection, one in scores.items():
        pairs, least = one["positive_pairs"], one["positive_score"]
        yield f"{collection}: alignment of {pairs:,} pairs with a score of {least:g} or more"


def _write_html(task: str, objects: Sequence[Mapping[str, Any]], html: Path | None) -> None:
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


def difference_line(name: str, found: Mapping[str, float]) -> str:
    """Return the line with the difference of the system ``name`` from the first one."""
    return (
        f"{name}: {found['difference']:+.1f} from the first, 95 % interval {found['low']:+.1f} to "
        f"{found['high']:+.1f}, p = {found['p_value']:.3f}"
    )


def _difference(values: NDArray[np.float64], first: NDArray[np.float64]) -> dict[str, float]:
    from ragembed.evaluation.retrieval import paired_bootstrap

    found = paired_bootstrap(values, first)
    return {"difference": found.difference, "low": found.low, "high": found.high, "p_value": found.p_value}


def _differences(found: Sequence[Result]) -> Iterator[str]:
    """Yield one line per difference from the first configuration, with its 95 % interval."""
    from ragembed.evaluation.table import columns, labels

    for result, column, label in zip(found, columns(found), labels(found), strict=True):
        difference = result.scores.get("difference_to_first")
        if difference is not None:
            yield difference_line(f"{result.collection}, {column}: {label}", difference)


def _layers(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ``layers`` options, with ``each`` replaced by every single layer of the model."""
    layers: tuple[str, ...] = given["layers"]
    if EVERY_LAYER not in layers:
        return layers
    from ragembed.config.settings import DEFAULT_MODEL
    from ragembed.models.files import find_model, model_shape

    named = embedder_config({name: given[name] for name in ("config_file", "model")})
    _, count = model_shape(find_model(DEFAULT_MODEL if named is None else named.model).folder)
    every = [str(layer) for layer in range(-1, count + 1)]
    return tuple(dict.fromkeys(layer for name in layers for layer in (every if name == EVERY_LAYER else [name])))


def _as_dict(task: str, result: Result) -> dict[str, Any]:
    return {
        "task": task,
        "collection": result.collection,
        "name": result.name,
        **result.scores,
        "config": result.config.to_dict(),
    }


_TASK = "retrieval"


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
    differences = [
        {} if first[row.collection] is row.measured else difference_to(first[row.collection], row.measured)
        for row in rows
    ]
    objects = [
        {"task": _TASK, "collection": row.collection, "name": row.system.label, **row.measured.scores, **difference}
        | row.system.about()
        for row, difference in zip(rows, differences, strict=True)
    ]
    if output == "text":
        click.echo(printable("\n".join(_text(rows, differences))))
    elif output == "csv":
        lines = [
            {"collection": row.collection, "name": row.system.label, **row.measured.scores, **_flat(difference)}
            for row, difference in zip(rows, differences, strict=True)
        ]
        print_csv(lines)
    else:
        print_objects(_TASK, objects, output)
    _write_html(_TASK, objects, html)


def print_comparisons(pairs: Sequence[tuple[Row, Row]], output: str, html: Path | None = None) -> None:
    """Print the difference of each measure for each pair of systems on the same queries, as :func:`print_results`."""
    from ragembed.evaluation.retrieval import compare

    compared = [(a, b, compare(_score(a), _score(b))) for a, b in pairs]
    objects = [_comparison_dict(*each) for each in compared]
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
        print_csv(lines)
    else:
        print_objects(_TASK, objects, output)
    _write_html(_TASK, objects, html)


def _score(row: Row) -> Any:
    return row.measured.score


def _comparison_dict(a: Row, b: Row, differences: dict[str, Difference]) -> dict[str, Any]:
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
            yield from wrapped(difference_line(name, difference["difference_to_first"]), width)


def _comparison(a: Row, b: Row, differences: dict[str, Difference]) -> Iterator[str]:
    from ragembed.evaluation.table import folded, wrapped

    width = terminal_width()
    queries = f"{a.measured.scores['queries']:,} queries"
    yield from wrapped(f"{a.collection}, {queries}: A = {a.system.label}, B = {b.system.label}", width)
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


def _flat(difference: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}.{part}": value for name, parts in difference.items() for part, value in parts.items()}


def print_csv(lines: Sequence[dict[str, Any]]) -> None:
    """Print one line per dictionary, below a header with the keys of all."""
    text = io.StringIO()
    heads = list(dict.fromkeys(head for line in lines for head in line))
    writer = csv.DictWriter(text, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    click.echo(printable(text.getvalue()), nl=False)
