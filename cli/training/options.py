"""Options that the methods of ``ragembed train`` share, and what they say as settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from ragembed.cli.options import with_options
from ragembed.training.settings import EntryKind, OptimizerSettings, Pooling, StepSettings, TrainingSettings

Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULTS = OptimizerSettings()
_PATH = click.Path(path_type=Path, exists=True)
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


def combination(value: str) -> tuple[Pooling, EntryKind]:
    """Turn ``cls,amp`` into a pooling and a kind of entry vectors; raises a usage error for what is none."""
    parts = [part.strip().lower() for part in value.split(",")]
    if len(parts) == 2:
        pooling = next((each for each in get_args(Pooling) if each == parts[0]), None)
        entries = next((each for each in ("ac", "amp") if each == parts[1]), None)
        if pooling is not None and entries is not None:
            return pooling, entries
    raise click.BadParameter(f"{value!r}: expected cls or mean, a comma, and ac or amp, as in cls,amp")


def material_options(command: Command) -> Command:
    """Add the options that say what is trained, on what, and where it is written."""
    return with_options(
        command,
        click.option(
            "--dictionary",
            "dictionaries",
            type=_PATH,
            multiple=True,
            required=True,
            metavar="PATH",
            help="TSV, JSON lines, Markdown, dictd (.index), StarDict (.ifo), or WordNet's folder; may be repeated.",
        ),
        click.option("--model", required=True, metavar="ID|PATH", help="Model that is trained."),
        click.option(
            "--out", required=True, type=click.Path(path_type=Path), help="Folder of the trained model; goes on in it."
        ),
    )


def training_options(command: Command) -> Command:
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
            type=_FILE,
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


OPTIMIZER_OPTIONS = ("weight_decay", "eps", "betas", "warmup", "max_grad_norm")
RUN_OPTIONS = ("runs", "seed", "epochs", "batch_size", "max_tokens", "held_out", "bf16")


def settings_of(steps: tuple[StepSettings, ...], given: Mapping[str, Any], **more: Any) -> TrainingSettings:
    """Return the settings that the options ``given`` say."""
    return TrainingSettings(
        steps,
        optimizer=OptimizerSettings(**{name: given[name] for name in OPTIMIZER_OPTIONS}),
        **{name: given[name] for name in RUN_OPTIONS},
        **more,
    )
