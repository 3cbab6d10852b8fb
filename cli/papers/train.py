"""``ragembed papers train`` and ``ragembed papers reverse-dictionary``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import click

from ragembed.cli import HelpfulGroup
from ragembed.cli.options import EXISTING_PATH, LocalPath, format_option, setting_option, shared, takes, with_options
from ragembed.cli.output import print_record, say
from ragembed.config.fields import setting
from ragembed.config.settings import EmbedderConfig
from ragembed.evaluation.table import aligned
from ragembed.models.files import find_model
from ragembed.papers.training.dictionary import read_dictionaries
from ragembed.papers.training.settings import (
    MAX_STEPS,
    PROMPT,
    RECIPES,
    B2sSettings,
    EntryKind,
    Head,
    Ica,
    OptimizerSettings,
    Pooling,
    StepSettings,
    TrainingSettings,
    recipe_for,
)
from ragembed.printable import printable_line
from ragembed.progress import StderrProgress

_RUN_OPTIONS = ("runs", "seed", "epochs", "batch_size", "max_tokens", "held_out", "bf16")
_POOLING = {
    "cls": "--pooling cls",
    "mean": "--pooling mean",
    "prompt": f"--template {shlex.quote(PROMPT)} --pooling masks",
}


@dataclass(frozen=True, slots=True)
class _DictionaryOptions:
    """What a training on dictionaries reads and writes."""

    dictionaries: tuple[Path, ...] = setting(
        ...,
        "Dictionary to learn: TSV, JSON Lines, Markdown, dictd (.index), StarDict (.ifo), or the folder of WordNet.",
        *("--dictionary", "PATH"),
        type=EXISTING_PATH,
    )
    model: str = setting(..., "Hugging Face model id or folder of the model to train.", "--model", "ID|PATH")
    head_from: str | None = setting(
        None,
        "Model whose head is used, such as roberta-base for a SimCSE-RoBERTa model, which has no head for masked "
        "words.",
        *("--head-from", "ID|PATH"),
        default="--model",
    )
    out: Path = setting(
        ...,
        "Folder for the trained model: new, empty, or with an interrupted training, which then continues.",
        "--out",
        type=LocalPath(),
    )


@dataclass(frozen=True, slots=True)
class _MeasuringOptions:
    """How a training on dictionaries is measured and shown, and where it runs."""

    sentence_pairs: tuple[Path, ...] = setting(
        (),
        "TSV with columns score, sentence1 and sentence2, measured before and after; the result chooses the best run.",
        *("--sts", "FILE"),
    )
    pictures: bool = setting(
        False, "Draw the entry vectors of each step as a PNG file in the output folder.", "--pictures"
    )
    device: str | None = setting(
        None,
        "Device for training: cpu, gpu:1, or auto (a GPU, else the CPU).",
        *("--device", "DEVICE"),
        default="auto",
    )


_training_options = with_options(
    *(setting_option(TrainingSettings, name, filled=True) for name in _RUN_OPTIONS),
    takes(OptimizerSettings, "optimizer"),
    takes(_MeasuringOptions, "measuring"),
    shared("quiet"),
    format_option,
)
"""The options that both methods of dictionaries share."""


@click.group(name="train", cls=HelpfulGroup)
def command() -> None:
    """Train a model on a dictionary, or word vectors on a corpus, without labels.

    \b
    ragembed papers train defsent-plus --dictionary glossary.tsv --model bert-base-uncased --out trained
    ragembed index docs/ --model trained --pooling cls
    ragembed papers train b2s --corpus sentences.txt --model bert-base-uncased --out b2s

    The dictionary can be the glossary of your field. The result is a folder that you can pass to every --model option;
    b2s writes a word-vector file for --extractor words. If a training is interrupted, run the same command again: it
    continues and produces the same model.
    """


@command.command(name="defsent-plus", short_help="Train with DefSent+, for dictionaries with any entries.")
@takes(_DictionaryOptions, "material")
@click.option(
    "--recipe",
    type=click.Choice(list(RECIPES)),
    metavar="NAME",
    help=f"Number of steps, combinations and learning rates of the paper: {', '.join(RECIPES)}.  [default: chosen by "
    "the model's family and size]",
)
@click.option(
    *("--steps", "steps_of"),
    type=click.IntRange(1, MAX_STEPS),
    metavar="N",
    help="Number of training steps.  [default: the recipe's]",
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
@setting_option(TrainingSettings, "head", filled=True)
@click.option("--single-words", is_flag=True, help="Use only the entries that are single tokens of the model.")
@_training_options
def defsent_plus(
    recipe: str | None,
    steps_of: int | None,
    combinations: tuple[str, ...],
    learning_rates: tuple[float, ...],
    ica: Ica | None,
    head: Head,
    quiet: bool,
    output: str,
    material: _DictionaryOptions,
    **options: Any,
) -> None:
    """Train with DefSent+, for dictionaries with any entries.

    \b
    ragembed papers train defsent-plus --dictionary glossary.tsv --model bert-base-uncased --out trained

    The model learns to map each definition to the vector of the entry that it defines. The vector of an entry is the
    mean of the vectors of its definitions. Each step trains a new copy of the model; the best model of a step computes
    the entry vectors of the next step (progressive separate training).
    """
    chosen = tuple(_combination(combination) for combination in combinations)
    if recipe is None:
        recipe = recipe_for(find_model(material.model).folder)
        if not quiet:
            say(f"note: using the recipe {recipe}: choose another with --recipe", err=True)
    steps = RECIPES[recipe].steps(steps_of, chosen, learning_rates, ica)
    _train(material, steps, quiet, output, head=head, **options)


@command.command(name="defsent", short_help="Train with DefSent, for entries that are single tokens.")
@takes(_DictionaryOptions, "material")
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
    default=1e-5,
    show_default=True,
    help="Learning rate of the first batch.",
)
@_training_options
def defsent(
    pooling: Pooling, learning_rate: float, quiet: bool, output: str, material: _DictionaryOptions, **options: Any
) -> None:
    """Train with DefSent, for dictionaries whose entries are single tokens of the model.

    \b
    ragembed papers train defsent --dictionary glossary.tsv --model bert-base-uncased --out trained

    This is the older method. It uses only entries that are single tokens. The model learns to map each definition,
    through its frozen masked-language head, to the word embedding of the entry.
    """
    _train(material, (StepSettings(pooling, "words", learning_rate),), quiet, output, **options)


@dataclass(frozen=True, slots=True)
class _WordVectorOptions:
    """What ``ragembed papers train b2s`` reads and writes."""

    corpus: Path = setting(
        ..., "Text file with one sentence or paragraph per line; blank lines are skipped.", "--corpus", "FILE"
    )
    model: str = setting(
        ..., "Hugging Face model id or folder of the encoder; it is not changed.", "--model", "ID|PATH"
    )
    out: Path = setting(
        ...,
        "Folder for the vectors: new, empty, or with an interrupted training, which then continues.",
        "--out",
        type=LocalPath(),
    )
    layers: str = setting(
        "last",
        "Hidden layers of the model to average: last, first+last, or numbers such as 1+6.",
        *("--layers", "SPEC"),
    )
    pooling: str = setting("mean", "Tokens whose vectors make the vector of a text.", "--pooling", "NAME")


@command.command(name="b2s", short_help="Train word vectors from the vectors of a model.")
@takes(_WordVectorOptions)
@takes(B2sSettings, "settings")
@click.option("--device", metavar="DEVICE", help="Device of the encoder: cpu, gpu:1, or auto.  [default: auto]")
@shared("quiet")
@format_option
def b2s(device: str | None, quiet: bool, output: str, options: _WordVectorOptions, settings: B2sSettings) -> None:
    """Train word vectors from the contextual vectors of a model (B2S, X2Static).

    \b
    ragembed papers train b2s --corpus sentences.txt --model bert-base-uncased --out b2s
    ragembed index docs/ --extractor words --model b2s/vectors.bin

    The vector of a word learns to predict the word from the vectors of the sentences that contain it. Encoding with the
    result needs no model.
    """
    from ragembed.papers.training import B2sRequest, train_b2s

    config = EmbedderConfig(model=options.model, layers=options.layers, pooling=options.pooling, weighting="uniform")
    request = B2sRequest(options.corpus, config, options.out, settings, device)
    report = train_b2s(request, StderrProgress(quiet=quiet))
    if not print_record(report, output):
        losses = ", ".join(f"{loss:.2f}" for loss in report["losses"])
        vectors = shlex.quote(str(options.out / report["vectors"]))
        click.echo(
            f"{report['words']:,} words of {report['dim']} dimensions, from {report['texts']:,} texts; loss: {losses}\n"
            f"to use it: ragembed index PATH --extractor words --model {vectors}"
        )


def _combination(value: str) -> tuple[Pooling, EntryKind]:
    """Parse ``cls,amp`` to a pooling and a kind of entry vectors; raise a usage error for anything else."""
    parts = [part.strip().lower() for part in value.split(",")]
    if len(parts) == 2:
        pooling = next((name for name in get_args(Pooling) if name == parts[0]), None)
        entries = next((name for name in ("ac", "amp") if name == parts[1]), None)
        if pooling is not None and entries is not None:
            return pooling, entries
    raise click.BadParameter(
        f"{value!r}: expected cls or mean, a comma, and ac or amp, such as cls,amp", param_hint="'--combination'"
    )


def _train(
    material: _DictionaryOptions,
    steps: tuple[StepSettings, ...],
    quiet: bool,
    output: str,
    *,
    measuring: _MeasuringOptions,
    single_words: bool = False,
    **settings: Any,
) -> None:
    from ragembed.papers.training import TrainingRequest, train_from_dictionary

    request = TrainingRequest(
        material.dictionaries,
        material.model,
        material.out,
        TrainingSettings(steps, **settings),
        measuring.sentence_pairs,
        measuring.pictures,
        measuring.device,
        head_from=material.head_from,
        single_words=single_words,
    )
    report = train_from_dictionary(request, StderrProgress(quiet=quiet))
    if not print_record(report, output):
        click.echo("\n".join(map(printable_line, _report_lines(report, material.out))))


def _report_lines(report: Mapping[str, Any], out: Path) -> Iterator[str]:
    """Yield the lines of the report: the dictionary, a table of the steps, and the command that uses the model."""
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
    from ragembed.papers.training.outcome import spread

    steps = report["steps"]
    held_out, similarity = "held_out" in steps[0]["summary"], "sts" in steps[0]["summary"]
    heads = ["", "IsoScore", "ICA", "first loss", "last loss", "minutes"]
    heads += ["top-1", "top-10", "top-100"] if held_out else []
    poolings = list(report["before"].get("sts", {}))
    yield heads + ([f"STS {name}" for name in poolings] if similarity else [])
    if similarity:
        scores = [fmean(report["before"]["sts"][name].values()) for name in poolings]
        yield ["before", *[""] * (len(heads) - 1), *(f"{score:.1f}" for score in scores)]
    for number, step in enumerate(steps, 1):
        stats, space = step["summary"], step["space"]
        row = [f"step {number}", f"{space['isoscore']:.3f}"]
        row.append(f"{space['isoscore_ica']:.3f}" if "isoscore_ica" in space else "")
        row += [_spread(stats["first_loss"], 2), _spread(stats["loss"], 2), f"{stats['seconds']['mean'] / 60:.1f}"]
        if held_out:
            row += [_spread(stats["held_out"][name], 1) for name in ("top1", "top10", "top100")]
        if similarity:
            of_runs = ([fmean(run["sts"][name].values()) for run in step["runs"]] for name in poolings)
            row += [_spread(spread(scores), 1) for scores in of_runs]
        yield row


def _spread(value: Mapping[str, float], decimals: int) -> str:
    shown = f"{value['mean']:.{decimals}f}"
    return f"{shown} ± {value['deviation']:.{decimals}f}" if value["deviation"] else shown


@click.command(name="reverse-dictionary")
@click.argument("model", type=LocalPath(exists=True, file_okay=False))
@click.argument("text", required=False)
@click.option(
    "-k", "k", type=click.IntRange(1), metavar="N", default=10, show_default=True, help="Number of entries to print."
)
@click.option(
    "--evaluate",
    type=EXISTING_PATH,
    metavar="DICTIONARY",
    help="Look up every definition of this dictionary, and print how often its entry is among the first 1, 10 and 100.",
)
@click.option(
    "--device",
    metavar="DEVICE",
    help="Device of the model: cpu, gpu:1, or auto (a GPU, else the CPU).  [default: auto]",
)
@format_option
def reverse_dictionary(
    model: Path, text: str | None, k: int, evaluate: Path | None, device: str | None, output: str
) -> None:
    """Find words by their definition.

    \b
    ragembed papers reverse-dictionary trained/ "a long-necked African animal"
    ragembed papers reverse-dictionary trained/ --evaluate trained/held-out.jsonl

    MODEL is a folder that ragembed papers train has written. Prints the entries of its dictionary that fit TEXT best,
    each with its probability. Give either TEXT or --evaluate.
    """
    if (text is None) == (evaluate is None):
        raise click.UsageError("nothing to look up: give either TEXT or --evaluate DICTIONARY")
    from ragembed.papers.training import ReverseDictionary

    reverse = ReverseDictionary(model, device)
    if text is not None:
        entries = [{"entry": hit.entry, "probability": hit.probability} for hit in reverse.look_up(text, k)]
        if not print_record({"entries": entries}, output, "entries"):
            for entry in entries:
                say(f"{entry['probability']:.4f}  {entry['entry']}")
    elif evaluate is not None:
        measured = reverse.measure(read_dictionaries([evaluate])).to_dict()
        if not print_record(measured, output):
            say(
                f"top-1 {measured['top1']:.1f}, top-10 {measured['top10']:.1f}, top-100 {measured['top100']:.1f}, mean "
                f"reciprocal rank {measured['mrr']:.3f}, of {measured['definitions']:,} definitions"
            )
