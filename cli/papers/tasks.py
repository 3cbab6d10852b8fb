"""``ragembed papers eval``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from ragembed.cli import HelpfulGroup
from ragembed.cli.evaluation import CSV, emit, names, print_results, results
from ragembed.cli.options import (
    EXISTING_PATH,
    LocalPath,
    embedding_options,
    format_option,
    setting_option,
    shared,
    with_options,
)
from ragembed.cli.output import say, terminal_width
from ragembed.cli.requests import embedder_configs
from ragembed.config.fields import setting, settings_of
from ragembed.config.settings import DEFAULT_MODEL
from ragembed.evaluation.table import Result, folded
from ragembed.evaluation.tasks import Task, evaluate
from ragembed.extractors.kept_states import kept_states
from ragembed.models.files import find_tokenizer
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.sentences.description import Description, describe
from ragembed.papers.sentences.plots import check_plot, plot
from ragembed.papers.sentences.sentence_tasks import READERS
from ragembed.progress import StderrProgress
from ragembed.reports.page import check_output

_COMBINED = """Repeat an option to compare its values: all combinations are evaluated and make one table. --layers each
evaluates every single layer. --query-fit is "shared" unless you give it."""


@dataclass(frozen=True, slots=True)
class _ClassificationOptions:
    """The options of classification, by the parameters of its reader."""

    classifier: str = setting(
        "logistic",
        "Logistic regression, or a perceptron with 50 hidden units.",
        "--classifier",
        choices=("logistic", "mlp"),
    )
    nested: bool = setting(
        False,
        "Choose the regularisation by cross-validation inside of each fold; with given splits, it always is.",
        "--nested",
    )
    relatedness: bool = setting(
        False, "Predict the relatedness scores of SICK instead of its entailment labels.", "--relatedness"
    )


@dataclass(frozen=True, slots=True)
class _IsotropyOptions:
    """The option of isotropy, by the parameter of its reader."""

    positive_score: float = setting(
        5.0, "Score from which sentence pairs are positive and count for the alignment.", "--positive-score", "SCORE"
    )


@click.group(name="eval", cls=HelpfulGroup)
def command() -> None:
    """Evaluate embeddings on sentence tasks.

    \b
    ragembed papers eval sts pairs.tsv --preset minilm --preset t4

    Embedders are fitted on the texts of the collection, without its labels. ragembed eval evaluates search.
    """


def _task(
    name: str,
    counted: str | None,
    summary: str,
    example: str,
    details: str,
    short: str | None = None,
    options: type | None = None,
) -> click.Command:
    """Return the command of a task.

    ``counted`` says what ``--runs`` counts, or is None if there is no such option.
    """
    own = settings_of(options) if options else {}

    def evaluate_task(
        paths: tuple[Path, ...],
        plot_file: Path | None,
        html: Path | None,
        quiet: bool,
        output: str,
        runs: int | None = None,
        **given: Any,
    ) -> None:
        if html is not None:
            check_output(html)  # before anything is evaluated
        named = embedder_configs(given, query_fit="shared")
        chosen = {option: given[option] for option in own}
        read: Callable[..., Task] = READERS[name]
        tasks = [read(path, *([] if runs is None else [runs]), **chosen) for path in paths]
        if plot_file is not None:
            check_plot(named, plot_file)
        progress = StderrProgress(quiet=quiet)
        so_far: list[Result] = []
        try:
            # Collections use the same corpora for weights and post-processors.
            with kept_states():
                for task, collection in zip(tasks, names([task.name for task in tasks], paths), strict=True):
                    # One by one: if a later collection or configuration fails, += has kept the earlier results.
                    measured = evaluate(task, [config for _, config in named], progress=progress)
                    so_far += results(collection, named, (outcome for _, outcome in measured))
        except BaseException:
            if so_far:
                say("note: the evaluation failed: these are the results so far", err=True)
                _show(name, so_far, output, html, plot_file)
            raise
        _show(name, so_far, output, html, plot_file)

    counts = click.option(
        "--runs", type=click.IntRange(1), metavar="N", default=10, show_default=True, help=f"Number of {counted}."
    )
    with_options(
        click.argument("paths", nargs=-1, required=True, type=EXISTING_PATH, metavar="PATH..."),
        partial(embedding_options, several=True),
        *([counts] if counted else []),
        *(setting_option(options, option, filled=True) for option in own if options),
        click.option(
            "--plot",
            "plot_file",
            type=LocalPath(dir_okay=False),
            help="Draw the scores to this PNG file; needs the extra papers.",
        ),
        shared("html", "quiet"),
        partial(format_option, more=CSV),
    )(evaluate_task)
    text = f"{summary}\n\n\b\n{example}\n\n{details} {_COMBINED}"
    return click.command(name=name, help=text, short_help=short)(evaluate_task)


def _show(name: str, evaluated: Sequence[Result], output: str, html: Path | None, plot_file: Path | None) -> None:
    print_results(name, evaluated, output, html)
    if plot_file is not None:
        plot(evaluated, plot_file)


for _made in (
    _task(
        "sts",
        None,
        "Measure the correlation of cosines with judged similarity.",
        "ragembed papers eval sts pairs.tsv --weighting uniform --weighting idf",
        "PATH is a TSV with the columns score, sentence1 and sentence2, or a folder with STS-B or SICK as in SentEval; "
        "only the test split is read. Prints Spearman correlations in per cent.",
    ),
    _task(
        "clustering",
        "k-means runs to average",
        "Measure the accuracy of k-means clustering.",
        "ragembed papers eval clustering topics.tsv",
        "PATH is a TSV with the columns label and text. Prints accuracies in per cent.",
    ),
    _task(
        "classification",
        "cross-validation folds",
        "Measure the accuracy of a classifier on frozen vectors.",
        "ragembed papers eval classification topics.tsv --runs 5",
        "PATH is a TSV with the columns label and text, label, sentence1 and sentence2, or score, sentence1 and "
        "sentence2; a first column split (train, dev, test) replaces the cross-validation. For scores, the similarity "
        "is predicted and its correlation with the scores is measured. PATH can also be a probing task of SentEval, or "
        "a folder with SST, TREC, MRPC, SICK, STS-B, MR, CR, MPQA, SUBJ or SciCite as published.",
        options=_ClassificationOptions,
    ),
    _task(
        "isotropy",
        None,
        "Measure how evenly vectors are spread: IsoScore, uniformity, alignment.",
        "ragembed papers eval isotropy pairs.tsv",
        "PATH is a TSV file of another task, a BEIR folder, or a file with one text per line. Alignment needs sentence "
        "pairs.",
        "Measure how evenly vectors are spread.",
        options=_IsotropyOptions,
    ),
):
    command.add_command(_made)


_HEADS = ("", "split", "N", "C", "L/S", "V W", "B", "Len W", "B", "Alpha W", "B", "overlap")


@command.command(name="describe", short_help="Describe a collection: sizes, vocabulary, lengths.")
@click.argument("paths", nargs=-1, required=True, type=EXISTING_PATH, metavar="PATH...")
@click.option(
    "--model",
    metavar="ID|PATH",
    help="Model whose tokens are counted; only its tokenizer is read.  "
    "[default: sentence-transformers/all-MiniLM-L6-v2]",
)
@partial(format_option, more=CSV)
def describe_collections(paths: tuple[Path, ...], model: str | None, output: str) -> None:
    """Describe a collection: size, classes, vocabulary, lengths, alphabetic tokens.

    \b
    ragembed papers eval describe topics.tsv pairs.tsv

    PATH is a file or folder as for "ragembed papers eval classification". N is the number of texts or pairs, C of
    classes, L/S the size of the largest class divided by that of the smallest. V is the size of the vocabulary, Len the
    mean number of tokens, and Alpha the share of tokens with letters only: W for words that spaces separate, B for the
    tokens of the model. The overlap is the share of words that both texts of a pair have. Shares are in per cent.
    """
    tokenizer = TextTokenizer(find_tokenizer(DEFAULT_MODEL if model is None else model)[0])
    descriptions = [description for path in paths for description in describe(path, tokenizer)]
    objects = [{"task": "describe", **asdict(description)} for description in descriptions]
    emit("describe", objects, objects, _table(descriptions), output)


def _table(descriptions: Sequence[Description]) -> list[str]:
    lines = [list(_HEADS)]
    for description in descriptions:
        both = description.words, description.tokens
        lines.append(
            [
                description.collection,
                description.split or "",
                f"{description.texts:,}",
                "" if description.classes is None else str(description.classes),
                "" if description.imbalance is None else f"{description.imbalance:.1f}",
                *(f"{counts.vocabulary:,}" for counts in both),
                *(f"{counts.length:.1f}" for counts in both),
                *(f"{counts.alphabetic:.0f}" for counts in both),
                "" if description.overlap is None else f"{description.overlap:.0f}",
            ]
        )
    return folded(lines, 1, terminal_width())
