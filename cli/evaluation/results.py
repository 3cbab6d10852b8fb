"""Measuring configurations on test collections, and printing what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragembed.cli.output import print_json, print_jsonl, printable
from ragembed.cli.requests import NamedConfig, embedder_config, embedder_configs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ragembed.evaluation.table import Result
    from ragembed.evaluation.tasks import Measured

EVERY_LAYER = "each"


def candidates(given: Mapping[str, Any], *, query_fit: str | None) -> list[NamedConfig]:
    """Return every combination of the embedding options; ``query_fit`` holds where the option is not given."""
    return embedder_configs({**given, "layers": _layers(given)}, query_fit=query_fit)


def names(found: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return the name of each collection, or its path where two have the same name."""
    shown = [printable(name) for name in found]
    return shown if len(set(shown)) == len(shown) else [printable(str(path)) for path in paths]


def results(
    collection: str, named: Sequence[NamedConfig], measured: Sequence[Measured] | Iterator[Measured]
) -> Iterator[Result]:
    """Yield the results of a collection; from the second on with the difference to the first, where it is known."""
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
    """Return the difference in the headline under its key, where the same questions, two or more, are known of both."""
    if first.by_question is None or other.by_question is None or len(first.by_question) < 2:
        return {}
    return {"difference_to_first": _difference(other.by_question, first.by_question)}


def print_results(task: str, found: Sequence[Result], output: str) -> None:
    """Print results in one of the formats of ``--format``."""
    from ragembed.evaluation.table import csv_table, text_table

    if output == "text":
        click.echo(printable("\n".join([text_table(found), *_differences(found)])))
    elif output == "csv":
        click.echo(csv_table(found), nl=False)
    else:
        print_objects(task, [_as_dict(task, result) for result in found], output)


def print_objects(task: str, objects: Sequence[Mapping[str, Any]], output: str) -> None:
    """Print JSON: an object a line, or one object, which has a list where there are several."""
    if output == "jsonl":
        print_jsonl(objects)
    else:
        print_json(objects[0] if len(objects) == 1 else {"task": task, "results": list(objects)})


def difference_line(name: str, found: Mapping[str, float]) -> str:
    """Return a line on the difference of the system called ``name`` to the first one."""
    return (
        f"{name}: {found['difference']:+.1f} to the first, 95 % interval {found['low']:+.1f} to {found['high']:+.1f}, "
        f"p = {found['p_value']:.3f}"
    )


def _difference(values: NDArray[np.float64], first: NDArray[np.float64]) -> dict[str, float]:
    from ragembed.evaluation.bootstrap import paired_bootstrap

    found = paired_bootstrap(values, first)
    return {"difference": found.difference, "low": found.low, "high": found.high, "p_value": found.p_value}


def _differences(found: Sequence[Result]) -> Iterator[str]:
    """Yield a line for each difference to the first configuration, with its 95 % interval."""
    from ragembed.evaluation.table import columns, labels

    for result, column, label in zip(found, columns(found), labels(found), strict=True):
        difference = result.scores.get("difference_to_first")
        if difference is not None:
            yield difference_line(f"{result.collection}, {column}: {label}", difference)


def _layers(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the layers asked for, with ``each`` as every single layer of the model."""
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
