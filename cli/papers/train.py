"""``ragembed papers train``."""

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
from ragembed.cli.output import print_record, say
from ragembed.papers.training.recipes import RECIPES, recipe_for
from ragembed.papers.training.settings import (
    MAX_STEPS,
    B2sSettings,
    EntryKind,
    Head,
    Ica,
    OptimizerSettings,
    Pooling,
    StepSettings,
    TrainingSettings,
)
from ragembed.papers.training.similarity import PROMPT
from ragembed.printable import printable_line
from ragembed.progress import StderrProgress

_WORDS_LEARNING_RATE = 1e-5
_DEFAULTS = OptimizerSettings()
_B2S = B2sSettings()
_OPTIMIZER_OPTIONS = ("weight_decay", "eps", "betas", "warmup", "max_grad_norm")
_RUN_OPTIONS = ("runs", "seed", "epochs", "batch_size", "max_tokens", "held_out", "bf16")
_POOLING = {
    "cls": "--pooling cls",
    "mean": "--pooling mean",
    "prompt": f"--template {shlex.quote(PROMPT)} --pooling masks",
}


def _material_options(command: Command) -> Command:
    """Add the options for the model, the dictionaries and the output folder."""
    return with_options(
        command,
        click.option(
            "--dictionary",
            "dictionaries",
            type=EXISTING_PATH,
            multiple=True,
            required=True,
            metavar="PATH",
            help="Dictionary to learn: TSV, JSON Lines, Markdown, dictd (.index), StarDict (.ifo), or the folder of "
            "WordNet. Can be repeated.",
        ),
        click.option(
            "--model", required=True, metavar="ID|PATH", help="Hugging Face model id or folder of the model to train."
        ),
        click.option(
            "--head-from",
            metavar="ID|PATH",
            help="Model whose head is used, such as roberta-base for a SimCSE-RoBERTa model, which has no head for "
            "masked words.  [default: --model]",
        ),
        click.option(
            "--out",
            required=True,
            type=LocalPath(),
            help="Folder for the trained model: new, empty, or with an interrupted training, which then continues.",
        ),
    )


def _training_options(command: Command) -> Command:
    """Add the options that both methods share."""
    return with_options(
        _optimizer_options(command),
        click.option(
            "--runs",
            type=click.IntRange(1),
            metavar="N",
            default=1,
            show_default=True,
            help="Number of seeds to try in each step; the best run is kept.",
        ),
        click.option(
            "--seed", type=click.IntRange(0), metavar="N", default=0, show_default=True, help="First random seed."
        ),
        click.option(
            "--epochs",
            type=click.IntRange(1),
            metavar="N",
            default=1,
            show_default=True,
            help="Number of passes over the definitions.",
        ),
        click.option(
            "--batch-size",
            type=click.IntRange(1),
            metavar="N",
            help="Number of definitions in a batch.  [default: 16; 32 for 200,000 definitions or more]",
        ),
        click.option(
            "--max-tokens",
            type=click.IntRange(8),
            metavar="N",
            help="Largest number of tokens of a definition; longer ones are cut.  [default: the model's limit]",
        ),
        click.option(
            "--held-out",
            type=click.IntRange(0),
            metavar="N",
            help="Number of definitions to hold out and measure on.  [default: 5 %, at most 1,000]",
        ),
        click.option(
            "--sts",
            "sentence_pairs",
            type=EXISTING_FILE,
            multiple=True,
            metavar="FILE",
            help="TSV with columns score, sentence1 and sentence2, measured before and after; the result chooses the "
            "best run. Can be repeated.",
        ),
        click.option(
            "--pictures", is_flag=True, help="Draw the entry vectors of each step as a PNG file in the output folder."
        ),
        click.option(
            "--bf16", is_flag=True, help="Compute forward passes in bfloat16 where that is numerically safe (autocast)."
        ),
        click.option(
            "--device",
            metavar="DEVICE",
            help="Device for training: cpu, gpu:1, or auto (a GPU, else the CPU).  [default: auto]",
        ),
    )


def _optimizer_options(command: Command) -> Command:
    """Add the options of the optimizer, AdamW, and of its learning rate."""
    return with_options(
        command,
        click.option(
            "--weight-decay",
            type=float,
            metavar="NUMBER",
            default=_DEFAULTS.weight_decay,
            show_default=True,
            help="Weight decay of AdamW.",
        ),
        click.option(
            "--eps", type=float, metavar="NUMBER", default=_DEFAULTS.eps, show_default=True, help="Epsilon of AdamW."
        ),
        click.option(
            "--betas",
            type=(float, float),
            metavar="NUMBER NUMBER",
            default=_DEFAULTS.betas,
            show_default=True,
            help="The two betas of AdamW.",
        ),
        click.option(
            "--warmup",
            type=float,
            metavar="NUMBER",
            default=_DEFAULTS.warmup,
            show_default=True,
            help="Share of the batches over which the learning rate rises, from 0 to 1.",
        ),
        click.option(
            "--max-grad-norm",
            type=float,
            metavar="NUMBER",
            default=_DEFAULTS.max_grad_norm,
            show_default=True,
            help="Gradients with a larger norm are scaled down to it.",
        ),
    )


@click.group(name="train")
def command() -> None:
    """Train a model on a dictionary, or word vectors on a corpus, without labels.

    \b
    ragembed papers train defsent-plus --dictionary glossary.tsv --model bert-base-uncased --out trained
    ragembed index docs/ --model trained --pooling cls
    ragembed papers train b2s --corpus sentences.txt --model bert-base-uncased --out b2s

    The dictionary can be the glossary of your field. The result is a folder that you can pass to every --model option;
    b2s writes a word-vector file for --extractor words. If a training is interrupted, run the same command again: it
    continues and produces the same model.
    """  # noqa: D301  click reads the backspace character as "do not wrap"


@command.command(name="defsent-plus", short_help="Train with DefSent+, for dictionaries with any entries.")
@_material_options
@click.option(
    "--recipe",
    type=click.Choice(list(RECIPES)),
    metavar="NAME",
    help=f"Number of steps, combinations and learning rates of the paper: {', '.join(RECIPES)}.  [default: chosen by "
    "the model's family and size]",
)
@click.option(
    "--steps", type=click.IntRange(1, MAX_STEPS), metavar="N", help="Number of training steps.  [default: the recipe's]"
)
@click.option(
    "--combination",
    "combinations",
    multiple=True,
    metavar="POOLING,ENTRIES",
    help="Pooling while training (cls or mean), and kind of entry vectors: from the [CLS] vectors of the definitions "
    "(ac) or from their means over all tokens (amp). Can be repeated, once for each step.  [default: the recipe's]",
)
@click.option(
    "--learning-rate",
    "learning_rates",
    type=float,
    metavar="NUMBER",
    multiple=True,
    help="Learning rate of the first batch, such as 5e-5. Can be repeated, once for each step.  [default: the "
    "recipe's]",
)
@click.option(
    "--ica",
    type=click.Choice(get_args(Ica)),
    help="Independent component analysis of the entry vectors of the last step.  [default: the recipe's]",
)
@click.option(
    "--head",
    type=click.Choice(get_args(Head)),
    default="auto",
    show_default=True,
    help="Layer on top of the pooled vector: the model's own pooler with tanh (own), or the dense layer of its "
    "masked-language head with GELU (mlm-head). auto is mlm-head for RoBERTa, else own.",
)
@click.option("--single-words", is_flag=True, help="Use only the entries that are single tokens of the model.")
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
    """Train with DefSent+, for dictionaries with any entries.

    \b
    ragembed papers train defsent-plus --dictionary glossary.tsv --model bert-base-uncased --out trained

    The model learns to map each definition to the vector of the entry that it defines. The vector of an entry is the
    mean of the vectors of its definitions. Each step trains a new copy of the model; the best model of a step computes
    the entry vectors of the next step (progressive separate training).
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    chosen = tuple(_combination(each) for each in combinations)
    if recipe is None:
        from ragembed.models.files import find_model

        recipe = recipe_for(find_model(given["model"]).folder)
        if not quiet:
            say(f"note: using the recipe {recipe}: choose another with --recipe", err=True)
    settings = _settings_of(RECIPES[recipe].steps(steps, chosen, learning_rates, ica), given, head=head)
    _train(settings, given, quiet, output)


@command.command(name="defsent", short_help="Train with DefSent, for entries that are single tokens.")
@_material_options
@click.option(
    "--pooling",
    type=click.Choice(get_args(Pooling)),
    default="cls",
    show_default=True,
    help="Pooling of the definitions while training.",
)
@click.option(
    "--learning-rate",
    type=float,
    metavar="NUMBER",
    default=_WORDS_LEARNING_RATE,
    show_default=True,
    help="Learning rate of the first batch.",
)
@_training_options
@quiet_option
@format_option
def defsent(pooling: Pooling, learning_rate: float, quiet: bool, output: str, **given: Any) -> None:
    """Train with DefSent, for dictionaries whose entries are single tokens of the model.

    \b
    ragembed papers train defsent --dictionary glossary.tsv --model bert-base-uncased --out trained

    This is the older method. It uses only entries that are single tokens. The model learns to map each definition,
    through its frozen masked-language head, to the word embedding of the entry.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    _train(_settings_of((StepSettings(pooling, "words", learning_rate),), given), given, quiet, output)


@command.command(name="b2s", short_help="Train word vectors from the vectors of a model.")
@click.option(
    "--corpus",
    type=EXISTING_FILE,
    required=True,
    metavar="FILE",
    help="Text file with one sentence per line; blank lines are skipped.",
)
@click.option(
    "--model",
    required=True,
    metavar="ID|PATH",
    help="Hugging Face model id or folder of the encoder; it is not changed.",
)
@click.option(
    "--out",
    required=True,
    type=LocalPath(),
    help="Folder for the vectors: new, empty, or with an interrupted training, which then continues.",
)
@click.option(
    "--layers",
    metavar="SPEC",
    default="last",
    show_default=True,
    help="Hidden layers of the model to average: last, first+last, or numbers such as 1+6.",
)
@click.option(
    "--pooling",
    metavar="NAME",
    default="mean",
    show_default=True,
    help="Tokens whose vectors make the vector of a text.",
)
@click.option(
    "--min-count",
    type=click.IntRange(1),
    metavar="N",
    default=_B2S.min_count,
    show_default=True,
    help="Least number of occurrences of a word.",
)
@click.option(
    "--vocabulary",
    type=click.IntRange(1),
    metavar="N",
    default=_B2S.vocabulary,
    show_default=True,
    help="Largest number of words.",
)
@click.option(
    "--threshold",
    type=float,
    metavar="NUMBER",
    default=_B2S.threshold,
    show_default=True,
    help="Relative frequency above which occurrences of a word are left out at random.",
)
@click.option(
    "--negatives",
    type=click.IntRange(1),
    metavar="N",
    default=_B2S.negatives,
    show_default=True,
    help="Number of words drawn for each occurrence.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    metavar="N",
    default=_B2S.epochs,
    show_default=True,
    help="Number of passes over the corpus.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    metavar="N",
    default=_B2S.batch_size,
    show_default=True,
    help="Number of texts in a batch.",
)
@click.option(
    "--learning-rate",
    type=float,
    metavar="NUMBER",
    default=_B2S.learning_rate,
    show_default=True,
    help="Learning rate of Adam. A corpus below a million sentences needs a larger one, such as 0.01.",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", default=0, show_default=True, help="Random seed.")
@click.option("--device", metavar="DEVICE", help="Device of the encoder: cpu, gpu:1, or auto.  [default: auto]")
@quiet_option
@format_option
def b2s(
    corpus: Path,
    model: str,
    out: Path,
    layers: str,
    pooling: str,
    device: str | None,
    quiet: bool,
    output: str,
    **given: Any,
) -> None:
    """Train word vectors from the contextual vectors of a model (B2S, X2Static).

    \b
    ragembed papers train b2s --corpus sentences.txt --model bert-base-uncased --out b2s
    ragembed index docs/ --extractor words --model b2s/vectors.bin

    The vector of a word learns to predict the word from the vectors of the sentences that contain it. Encoding with the
    result needs no model.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    from ragembed.config.settings import EmbedderConfig
    from ragembed.papers.training import B2sRequest, train_b2s
    from ragembed.papers.training.progress import SilentTraining

    config = EmbedderConfig(model=model, layers=layers, pooling=pooling, weighting="uniform")
    request = B2sRequest(corpus, config, out, B2sSettings(**given), device)
    report = train_b2s(request, SilentTraining() if quiet else StderrTrainingProgress())
    if not print_record(report, output):
        losses = ", ".join(f"{loss:.2f}" for loss in report["losses"])
        click.echo(
            f"{report['words']:,} words of {report['dim']} dimensions, from {report['texts']:,} texts; loss: {losses}\n"
            f"to use it: ragembed index PATH --extractor words --model {shlex.quote(str(out / report['vectors']))}"
        )


def _combination(value: str) -> tuple[Pooling, EntryKind]:
    """Parse ``cls,amp`` to a pooling and a kind of entry vectors; raise a usage error for anything else."""
    parts = [part.strip().lower() for part in value.split(",")]
    if len(parts) == 2:
        pooling = next((each for each in get_args(Pooling) if each == parts[0]), None)
        entries = next((each for each in ("ac", "amp") if each == parts[1]), None)
        if pooling is not None and entries is not None:
            return pooling, entries
    raise click.BadParameter(
        f"{value!r}: expected cls or mean, a comma, and ac or amp, such as cls,amp", param_hint="'--combination'"
    )


def _settings_of(steps: tuple[StepSettings, ...], given: Mapping[str, Any], **more: Any) -> TrainingSettings:
    """Return the training settings from the command line options."""
    return TrainingSettings(
        steps,
        optimizer=OptimizerSettings(**{name: given[name] for name in _OPTIMIZER_OPTIONS}),
        **{name: given[name] for name in _RUN_OPTIONS},
        **more,
    )


def _train(settings: TrainingSettings, given: Mapping[str, Any], quiet: bool, output: str) -> None:
    from ragembed.papers.training import TrainingRequest, train_from_dictionary
    from ragembed.papers.training.progress import SilentTraining

    out: Path = given["out"]
    request = TrainingRequest(
        given["dictionaries"],
        given["model"],
        out,
        settings,
        given["sentence_pairs"],
        given["pictures"],
        given["device"],
        head_from=given["head_from"],
        single_words=given.get("single_words", False),
    )
    report = train_from_dictionary(request, SilentTraining() if quiet else StderrTrainingProgress())
    if not print_record(report, output):
        click.echo("\n".join(map(printable_line, _report_lines(report, out))))


class StderrTrainingProgress(StderrProgress):
    """Show phases with their loss, and notes: the :class:`ragembed.papers.training.progress.TrainingProgress`."""

    def __init__(self) -> None:
        super().__init__()
        self._detail = ""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Begin a phase."""
        self._detail = ""
        super().start(phase, unit, total)

    def advance(self, count: int, detail: str = "") -> None:
        """Add ``count``, and print with the last ``detail`` if enough time has passed."""
        self._detail = detail or self._detail
        super().advance(count)

    def note(self, text: str) -> None:
        """Print a note on its own line."""
        self.finish()
        say(f"note: {text}", err=True)

    def line(self, seconds: float) -> str:
        """Return the line to print ``seconds`` after the start of the phase."""
        shown = super().line(seconds)
        return f"{shown}, {self._detail}" if self._detail else shown


def _report_lines(report: Mapping[str, Any], out: Path) -> Iterator[str]:
    """Yield the lines of the report: the dictionary, a table of the steps, and the command that uses the model."""
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
        yield f"ICA of the last step: {space['ica']}, {space['ica_iterations']:,} iterations{end}"
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
    from ragembed.papers.training.training_report import Spread

    return _spread(Spread.of([_mean(run["sts"][pooling]) for run in runs]).to_dict(), 1)


def _spread(value: Mapping[str, float], decimals: int) -> str:
    shown = f"{value['mean']:.{decimals}f}"
    return f"{shown} ± {value['deviation']:.{decimals}f}" if value["deviation"] else shown


def _mean(scores: Mapping[str, float]) -> float:
    return sum(scores.values()) / len(scores)
