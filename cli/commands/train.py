"""``ragembed train``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click

from ragembed.cli.options import (
    EXISTING_FILE,
    EXISTING_PATH,
    Command,
    LocalPath,
    format_option,
    quiet_option,
    with_options,
)
from ragembed.cli.output import print_record, printable, say
from ragembed.cli.progress import StderrProgress
from ragembed.training.recipes import RECIPES, recipe_for
from ragembed.training.settings import (
    MAX_STEPS,
    EntryKind,
    Head,
    Ica,
    OptimizerSettings,
    Pooling,
    StepSettings,
    TrainingSettings,
)

_WORDS_LEARNING_RATE = 1e-5
_DEFAULTS = OptimizerSettings()
_OPTIMIZER_OPTIONS = ("weight_decay", "eps", "betas", "warmup", "max_grad_norm")
_RUN_OPTIONS = ("runs", "seed", "epochs", "batch_size", "max_tokens", "held_out", "bf16")
_POOLING = {"cls": "--pooling cls", "mean": "--pooling mean", "prompt": "--template t0 --pooling masks"}


def _material_options(command: Command) -> Command:
    """Add the options that say what is trained, on what, and where it is written."""
    return with_options(
        command,
        click.option(
            "--dictionary",
            "dictionaries",
            type=EXISTING_PATH,
            multiple=True,
            required=True,
            metavar="PATH",
            help="TSV, JSON lines, Markdown, dictd (.index), StarDict (.ifo), or WordNet's folder; may be repeated.",
        ),
        click.option("--model", required=True, metavar="ID|PATH", help="Model that is trained."),
        click.option("--out", required=True, type=LocalPath(), help="Folder of the trained model; goes on in it."),
    )


def _training_options(command: Command) -> Command:
    """Add the options that methods share, but for those of their steps."""
    return with_options(
        command,
        click.option("--runs", type=click.IntRange(1), default=1, show_default=True, help="Seeds tried in each step."),
        click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The first seed."),
        click.option("--epochs", type=click.IntRange(1), default=1, show_default=True, help="Passes over definitions."),
        click.option("--batch-size", type=click.IntRange(1), help="Definitions a batch.  [default: 16; large: 32]"),
        click.option("--max-tokens", type=click.IntRange(8), help="Longest definition.  [default: the model's limit]"),
        click.option(
            "--held-out", type=click.IntRange(0), help="Definitions kept for measuring.  [default: 5 %, 1,000 at most]"
        ),
        click.option(
            "--sts",
            "sentence_pairs",
            type=EXISTING_FILE,
            multiple=True,
            metavar="FILE",
            help="TSV with score, sentence1, sentence2: measured before and after; chooses the best run.",
        ),
        click.option("--pictures", is_flag=True, help="Draw the entry vectors of each step as PNG."),
        click.option("--bf16", is_flag=True, help="Compute forward passes in bfloat16 where that is safe."),
        click.option("--device", metavar="DEVICE", help="auto (a GPU, if any), cpu, gpu:1.  [default: auto]"),
        click.option("--weight-decay", type=float, default=_DEFAULTS.weight_decay, show_default=True, help="Of AdamW."),
        click.option("--eps", type=float, default=_DEFAULTS.eps, show_default=True, help="Of AdamW."),
        click.option("--betas", type=(float, float), default=_DEFAULTS.betas, show_default=True, help="Of AdamW."),
        click.option(
            "--warmup", type=float, default=_DEFAULTS.warmup, show_default=True, help="Share of batches that warm up."
        ),
        click.option(
            "--max-grad-norm", type=float, default=_DEFAULTS.max_grad_norm, show_default=True, help="Of gradients."
        ),
    )


@click.group()
def command() -> None:
    """Train a model on a dictionary, such as the glossary of a field, without labels.

    The outcome is a folder that every --model takes. A training that was interrupted goes on when the same command is
    given again, and ends in the same model.
    """


@command.command(name="defsent-plus")
@_material_options
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
@_training_options
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
    chosen = tuple(_combination(each) for each in combinations)
    if recipe is None:
        from ragembed.models.files import find_model

        recipe = recipe_for(find_model(given["model"]).folder)
        if not quiet:
            say(f"note: recipe {recipe}; choose another with --recipe", err=True)
    settings = _settings_of(RECIPES[recipe].steps(steps, chosen, learning_rates, ica), given, head=head)
    _train(settings, given, quiet, output)


@command.command(name="defsent")
@_material_options
@click.option(
    "--pooling", type=click.Choice(get_args(Pooling)), default="cls", show_default=True, help="While training."
)
@click.option(
    "--learning-rate", type=float, default=_WORDS_LEARNING_RATE, show_default=True, help="Of the first batch."
)
@_training_options
@quiet_option
@format_option
def defsent(pooling: Pooling, learning_rate: float, quiet: bool, output: str, **given: Any) -> None:
    """Train with DefSent, the earlier method: only entries that are single tokens of the model.

    Definitions are projected, through the model's frozen head for masked words, onto its own word embeddings.
    """
    _train(_settings_of((StepSettings(pooling, "words", learning_rate),), given), given, quiet, output)


def _combination(value: str) -> tuple[Pooling, EntryKind]:
    """Turn ``cls,amp`` into a pooling and a kind of entry vectors; raises a usage error for what is none."""
    parts = [part.strip().lower() for part in value.split(",")]
    if len(parts) == 2:
        pooling = next((each for each in get_args(Pooling) if each == parts[0]), None)
        entries = next((each for each in ("ac", "amp") if each == parts[1]), None)
        if pooling is not None and entries is not None:
            return pooling, entries
    raise click.BadParameter(f"{value!r}: expected cls or mean, a comma, and ac or amp, as in cls,amp")


def _settings_of(steps: tuple[StepSettings, ...], given: Mapping[str, Any], **more: Any) -> TrainingSettings:
    """Return the settings that the options ``given`` say."""
    return TrainingSettings(
        steps,
        optimizer=OptimizerSettings(**{name: given[name] for name in _OPTIMIZER_OPTIONS}),
        **{name: given[name] for name in _RUN_OPTIONS},
        **more,
    )


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
        click.echo(printable("\n".join(_report_lines(report, out))))


class StderrTrainingProgress(StderrProgress):
    """Shows phases with their loss, and notes; implements :class:`ragembed.training.progress.TrainingProgress`."""

    def __init__(self) -> None:
        super().__init__()
        self._detail = ""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Begin a phase."""
        self._detail = ""
        super().start(phase, unit, total)

    def advance(self, count: int, detail: str = "") -> None:
        """Count, and show where it is time to, with the last ``detail``."""
        self._detail = detail or self._detail
        super().advance(count)

    def note(self, text: str) -> None:
        """Say something on a line of its own."""
        self.finish()
        say(f"note: {text}", err=True)

    def line(self, seconds: float) -> str:
        """Return what is shown after ``seconds`` of the phase."""
        shown = super().line(seconds)
        return f"{shown}, {self._detail}" if self._detail else shown


def _report_lines(report: Mapping[str, Any], out: Path) -> Iterator[str]:
    """Yield the lines of what ``training.json`` holds: the dictionary, a table of the steps, and how to go on."""
    from ragembed.evaluation.table import aligned

    size = report["statistics"]
    yield (
        f"{size['definitions']:,} definitions of {size['entries']:,} entries, {report['held_out']:,} held out; longest "
        f"{size['max_length']} tokens, median {size['median_length']:g}; cut: {report['truncated']:,}"
    )
    yield ""
    yield from aligned(list(_table(report)))
    yield ""
    last = report["steps"][-1]
    if (space := last["space"])["ica"] != "none":
        end = "" if space["ica_converged"] else ", not converged"
        yield f"independent components of the last step: {space['ica']}, {space['ica_iterations']:,} iterations{end}"
    best = last["runs"][last["best"]]
    if len(last["runs"]) > 1:
        yield f"best run of the last step, by {report['chosen_by']}: seed {best['seed']}"
    options = _POOLING[best.get("sts_pooling", report["pooling"])]
    yield f"to use it: ragembed index PATH --model {shlex.quote(str(out))} {options}"


def _table(report: Mapping[str, Any]) -> Iterator[list[str]]:
    steps = report["steps"]
    held_out, similarity = "held_out" in steps[0]["summary"], "sts" in steps[0]["summary"]
    heads = ["", "IsoScore", "ICA", "first loss", "last loss", "minutes"]
    heads += ["top-1", "top-10", "top-100"] if held_out else []
    poolings = list(report["before"].get("sts", {}))
    yield heads + ([f"STS {name}" for name in poolings] if similarity else [])
    if similarity:
        scores = [_mean(report["before"]["sts"][name]) for name in poolings]
        yield ["before", *[""] * (len(heads) - 1), *(f"{score:.1f}" for score in scores)]
    for number, step in enumerate(steps, 1):
        found, space = step["summary"], step["space"]
        row = [f"step {number}", f"{space['isoscore']:.3f}"]
        row.append(f"{space['isoscore_ica']:.3f}" if "isoscore_ica" in space else "")
        row += [_spread(found["first_loss"], 2), _spread(found["loss"], 2), f"{found['seconds']['mean'] / 60:.1f}"]
        if held_out:
            row += [_spread(found["held_out"][name], 1) for name in ("top1", "top10", "top100")]
        if similarity:
            row += [_similarity(step["runs"], name) for name in poolings]
        yield row


def _similarity(runs: Sequence[Mapping[str, Any]], pooling: str) -> str:
    from ragembed.training.report import Spread

    return _spread(Spread.of([_mean(run["sts"][pooling]) for run in runs]).to_dict(), 1)


def _spread(value: Mapping[str, float], decimals: int) -> str:
    shown = f"{value['mean']:.{decimals}f}"
    return f"{shown} ± {value['deviation']:.{decimals}f}" if value["deviation"] else shown


def _mean(scores: Mapping[str, float]) -> float:
    return sum(scores.values()) / len(scores)
