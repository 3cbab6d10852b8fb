"""``ragembed train``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import click

from ragembed.cli.options import format_option
from ragembed.cli.output import print_record, printable, say
from ragembed.cli.training import (
    StderrTrainingProgress,
    combination,
    material_options,
    report_lines,
    settings_of,
    training_options,
)
from ragembed.training.recipes import RECIPES, recipe_for
from ragembed.training.settings import MAX_STEPS, Head, Ica, Pooling, StepSettings, TrainingSettings

_WORDS_LEARNING_RATE = 1e-5

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print nothing but results and errors.")


@click.group()
def command() -> None:
    """Train a model on a dictionary, such as the glossary of a field, without labels.

    The outcome is a folder that every --model takes. A training that was interrupted goes on when the same command is
    given again, and ends in the same model.
    """


@command.command(name="defsent-plus")
@material_options
@click.option(
    "--recipe",
    type=click.Choice(list(RECIPES)),
    metavar="NAME",
    help=f"Steps, combinations and learning rates of the paper: {', '.join(RECIPES)}.  [default: by the model's family "
    "and size]",
)
@click.option("--steps", type=click.IntRange(1, MAX_STEPS), help="Steps.  [default: those of the recipe]")
@click.option(
    "--combination",
    "combinations",
    multiple=True,
    metavar="POOLING,ENTRIES",
    help="cls or mean while training, ac or amp for entries; may be repeated, one for each step.",
)
@click.option("--learning-rate", "learning_rates", type=float, multiple=True, help="May be repeated, one a step.")
@click.option("--ica", type=click.Choice(get_args(Ica)), help="Of the last step's entries.  [default: by the recipe]")
@click.option(
    "--head",
    type=click.Choice(get_args(Head)),
    default="auto",
    show_default=True,
    help="The model's own pooler (tanh), or the dense layer of its head for masked words (GELU).",
)
@training_options
@quiet_option
@format_option
def defsent_plus(
    recipe: str | None,
    steps: int | None,
    combinations: tuple[str, ...],
    learning_rates: tuple[float, ...],
    ica: Ica | None,
    head: Head,
    quiet: bool,
    output: str,
    **given: Any,
) -> None:
    """Train with DefSent+: definitions are projected onto vectors of the entries that they define.

    Entry vectors are means of the vectors of their definitions. Each step trains a fresh copy of the model; the best
    encoder of a step builds the entry vectors of the next (progressive separate training).
    """
    chosen = tuple(combination(each) for each in combinations)
    if recipe is None:
        from ragembed.models.files import find_model

        recipe = recipe_for(find_model(given["model"]).folder)
        if not quiet:
            say(f"note: recipe {recipe}; choose another with --recipe", err=True)
    settings = settings_of(RECIPES[recipe].steps(steps, chosen, learning_rates, ica), given, head=head)
    _train(settings, given, quiet, output)


@command.command(name="defsent")
@material_options
@click.option(
    "--pooling", type=click.Choice(get_args(Pooling)), default="cls", show_default=True, help="While training."
)
@click.option(
    "--learning-rate", type=float, default=_WORDS_LEARNING_RATE, show_default=True, help="Of the first batch."
)
@training_options
@quiet_option
@format_option
def defsent(pooling: Pooling, learning_rate: float, quiet: bool, output: str, **given: Any) -> None:
    """Train with DefSent, the earlier method: only entries that are single tokens of the model.

    Definitions are projected, through the model's frozen head for masked words, onto its own word embeddings.
    """
    _train(settings_of((StepSettings(pooling, "words", learning_rate),), given), given, quiet, output)


def _train(settings: TrainingSettings, given: Mapping[str, Any], quiet: bool, output: str) -> None:
    from ragembed.training import TrainingRequest, train_from_dictionary
    from ragembed.training.progress import SilentTraining

    out: Path = given["out"]
    request = TrainingRequest(
        given["dictionaries"],
        given["model"],
        out,
        settings,
        given["sentence_pairs"],
        given["pictures"],
        given["device"],
    )
    report = train_from_dictionary(request, SilentTraining() if quiet else StderrTrainingProgress())
    if not print_record(report, output):
        click.echo(printable("\n".join(report_lines(report, out))))
