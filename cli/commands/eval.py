"""``ragembed eval``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ragembed.cli.options import embedding_options, format_option
from ragembed.cli.output import print_json, print_jsonl, printable
from ragembed.cli.progress import StderrProgress
from ragembed.cli.requests import Candidate, embedder_config, embedder_configs
from ragembed.indexes.progress import Progress, Silent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ragembed.evaluation.table import Result
    from ragembed.evaluation.tasks import Measured, Task

TASKS = ("sts", "clustering", "classification", "isotropy", "retrieval")
WITH_RUNS = ("clustering", "classification")
EVERY_LAYER = "each"


@click.command(name="eval")
@click.argument("task", type=click.Choice(TASKS), metavar="|".join(TASKS))
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="PATH...")
@partial(embedding_options, several=True)
@click.option("--runs", type=click.IntRange(1), default=10, show_default=True, help="Runs of k-means; folds.")
@click.option("--plot", "plot_file", type=click.Path(path_type=Path, dir_okay=False), help="Draw the scores as PNG.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but results and errors.")
@partial(format_option, more={"csv": "csv (a line for each result) for tables"})
def command(
    task: str, paths: tuple[Path, ...], runs: int, plot_file: Path | None, quiet: bool, output: str, **given: Any
) -> None:
    """Measure how well embeddings do on test collections.

    \b
    sts             score, sentence1, sentence2 in a TSV: Spearman of the cosines
    clustering      label, text in a TSV: accuracy of k-means
    classification  the same TSV, or pairs: logistic regression, cross-validated
    isotropy        any of these, or a text a line: IsoScore, uniformity, alignment
    retrieval       a BEIR folder: nDCG@10, recall@100, MRR@10, MAP, by exact search

    Each is fitted on the collection's own texts. Options that are repeated are combined with one another, share the
    model's passes, and make one table; --layers each is every single layer. Symmetric tasks have one side unless
    --sides says otherwise. Scores are in per cent, those of isotropy excepted.
    """  # noqa: D301  the escape is the character that keeps click from wrapping lines
    from ragembed.evaluation.table import csv_table, text_table

    candidates = embedder_configs({**given, "layers": _layers(given)}, sides=None if task == "retrieval" else "one")
    tasks = [_read(task, path, runs) for path in paths]
    if plot_file is not None:
        from ragembed.evaluation.plots import check_plot

        check_plot(candidates, plot_file)
    progress: Progress = Silent() if quiet else StderrProgress()
    results: list[Result] = []
    for one, name in zip(tasks, _names(tasks, paths), strict=True):
        results += _results(one, name, candidates, progress)
    if output == "text":
        click.echo(printable("\n".join([text_table(results), *_differences(results)])))
    elif output == "csv":
        click.echo(csv_table(results), nl=False)
    elif output == "jsonl":
        print_jsonl(_as_dict(task, result) for result in results)
    elif len(results) == 1:
        print_json(_as_dict(task, results[0]))
    else:
        print_json({"task": task, "results": [_as_dict(task, result) for result in results]})
    if plot_file is not None:
        from ragembed.evaluation.plots import plot

        plot(results, plot_file)


def _read(task: str, path: Path, runs: int) -> Task:
    from ragembed.evaluation import tasks

    read: Callable[..., Task] = tasks.READERS[task]
    if task in WITH_RUNS:
        return read(path, runs)
    if click.get_current_context().get_parameter_source("runs") is not ParameterSource.DEFAULT:
        raise click.UsageError(f"--runs is of no use for {task}: it is for {' and '.join(WITH_RUNS)}")
    return read(path)


def _names(tasks: Sequence[Task], paths: Sequence[Path]) -> list[str]:
    """Return the name of each collection, or its path where two have the same name."""
    names = [printable(task.name) for task in tasks]
    return names if len(set(names)) == len(names) else [printable(str(path)) for path in paths]


def _results(task: Task, collection: str, candidates: Sequence[Candidate], progress: Progress) -> Iterator[Result]:
    """Yield the results of a collection; from the second on with the difference to the first, where it is known."""
    from ragembed.evaluation.table import Result
    from ragembed.evaluation.tasks import evaluate

    progress.start(collection, "configurations", len(candidates))
    first: Measured | None = None
    measured = evaluate(task, [candidate.config for candidate in candidates])
    try:
        for (name, _), (config, one) in zip(candidates, measured, strict=True):
            scores = dict(one.scores)
            if first is None:
                first = one
            elif first.by_question is not None and one.by_question is not None and len(first.by_question) > 1:
                scores["difference_to_first"] = _difference(one.by_question, first.by_question)
            yield Result(name, config, collection, scores, one.headline)
            progress.advance(1)
    finally:
        progress.finish()


def _difference(values: NDArray[np.float64], first: NDArray[np.float64]) -> dict[str, float]:
    """Compare the values of the same questions, two or more."""
    from ragembed.evaluation.bootstrap import paired_bootstrap

    found = paired_bootstrap(values, first)
    return {"difference": found.difference, "low": found.low, "high": found.high, "p_value": found.p_value}


def _differences(results: Sequence[Result]) -> Iterator[str]:
    """Yield a line for each difference to the first configuration, with its 95 % interval."""
    from ragembed.evaluation.table import columns, labels

    for result, column, label in zip(results, columns(results), labels(results), strict=True):
        found = result.scores.get("difference_to_first")
        if found is not None:
            yield (
                f"{result.collection}, {column}: {label}: {found['difference']:+.1f} to the first, 95 % interval "
                f"{found['low']:+.1f} to {found['high']:+.1f}, p = {found['p_value']:.3f}"
            )


def _layers(given: dict[str, Any]) -> tuple[str, ...]:
    """Return the layers asked for, with ``each`` as every single layer of the model."""
    layers: tuple[str, ...] = given["layers"]
    if EVERY_LAYER not in layers:
        return layers
    from ragembed.config import DEFAULT_MODEL
    from ragembed.models import find_model, model_shape

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
