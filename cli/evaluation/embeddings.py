"""``ragembed eval sts``, ``clustering``, ``classification`` and ``isotropy``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragembed.cli.evaluation.results import candidates, names, print_results, results
from ragembed.cli.options import EXISTING_PATH, LocalPath, embedding_options, format_option, quiet_option, with_options
from ragembed.cli.progress import StderrProgress
from ragembed.indexes.types import Progress, SilentProgress

if TYPE_CHECKING:
    from ragembed.cli.requests import NamedConfig
    from ragembed.evaluation.table import Result
    from ragembed.evaluation.tasks import Measured, Task

_COMBINED = """Options that are repeated are combined with one another, share the model's passes, and make one table;
--layers each is every single layer. One side serves all texts unless --query-fit says otherwise."""


CSV = {"csv": "csv (a line for each result) for tables"}
plot_option = click.option("--plot", "plot_file", type=LocalPath(dir_okay=False), help="Draw the scores as PNG.")


def _task(name: str, counted: str | None, help_text: str) -> click.Command:
    """Return the command of a task whose collections are files; ``counted`` is what ``--runs`` are, if it has them."""

    def command(
        paths: tuple[Path, ...], plot_file: Path | None, quiet: bool, output: str, runs: int | None = None, **given: Any
    ) -> None:
        named = candidates(given, query_fit="shared")
        tasks = [_read(name, path, runs) for path in paths]
        if plot_file is not None:
            from ragembed.evaluation.plots import check_plot

            check_plot(named, plot_file)
        progress: Progress = SilentProgress() if quiet else StderrProgress()
        found: list[Result] = []
        for one, collection in zip(tasks, names([task.name for task in tasks], paths), strict=True):
            found += results(collection, named, _measured(one, named, collection, progress))
        print_results(name, found, output)
        if plot_file is not None:
            from ragembed.evaluation.plots import plot

            plot(found, plot_file)

    counts = click.option("--runs", type=click.IntRange(1), default=10, show_default=True, help=f"{counted}.")
    with_options(
        command,
        click.argument("paths", nargs=-1, required=True, type=EXISTING_PATH, metavar="PATH..."),
        partial(embedding_options, several=True),
        *([counts] if counted else []),
        plot_option,
        quiet_option,
        partial(format_option, more=CSV),
    )
    return click.command(name=name, help=f"{help_text}\n\n{_COMBINED}")(command)


def _read(task: str, path: Path, runs: int | None) -> Task:
    from ragembed.evaluation import tasks

    read: Callable[..., Task] = tasks.READERS[task]
    return read(path) if runs is None else read(path, runs)


def _measured(task: Task, named: Sequence[NamedConfig], collection: str, progress: Progress) -> Iterator[Measured]:
    from ragembed.evaluation.tasks import evaluate

    progress.start(collection, "configurations", len(named))
    try:
        for _, measured in evaluate(task, [candidate.config for candidate in named]):
            yield measured
            progress.advance(1)
    finally:
        progress.finish()


COMMANDS = (
    _task(
        "sts", None, "Spearman of cosines with judged similarity.\n\nPATH is a TSV with score, sentence1, sentence2."
    ),
    _task("clustering", "Runs of k-means", "Accuracy of k-means.\n\nPATH is a TSV with label, text."),
    _task(
        "classification",
        "Folds",
        "Accuracy of logistic regression, cross-validated.\n\nPATH is a TSV with label, text; or with score, "
        "sentence1, sentence2: then similarity is predicted, and measured as by sts.",
    ),
    _task(
        "isotropy",
        None,
        "IsoScore and uniformity of vectors, alignment of pairs.\n\nPATH is a TSV of the other tasks, a BEIR folder, "
        "or a file with a text a line.",
    ),
)
