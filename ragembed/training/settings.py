"""What is chosen about a training, as data, checked when it is made."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ragembed.checks import one_of
from ragembed.errors import ConfigError

Pooling = Literal["cls", "mean"]
EntryKind = Literal["ac", "amp", "words"]
Ica = Literal["none", "unit-variance", "arbitrary-variance"]
Head = Literal["auto", "own", "mlm-head"]

MAX_STEPS = 4
LARGE_DICTIONARY = 200_000
"""Definitions from which on a batch has 32 of them by default, and 16 below (Liu 2024, appendix A)."""


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """AdamW with linear decay to 0; the defaults are those of the authors' program.

    ``warmup`` is the share of batches over which the learning rate rises from 0; ``max_grad_norm`` what the norm of the
    gradients is clipped at.
    """

    weight_decay: float = 0.0
    eps: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: float = 0.0
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        _within("weight_decay", self.weight_decay, 0.0, math.inf)
        _within("eps", self.eps, 0.0, math.inf, above=True)
        _within("warmup", self.warmup, 0.0, 1.0)
        _within("max_grad_norm", self.max_grad_norm, 0.0, math.inf, above=True)
        for beta in self.betas:
            if not 0.0 <= beta < 1.0:
                raise ConfigError(f"betas are {self.betas}: expected numbers from 0 to below 1")


@dataclass(frozen=True, slots=True)
class StepSettings:
    """One step of progressive separate training (Liu 2024, section 3.2).

    ``pooling`` makes the vector of a definition while training, ``entries`` those of entries (equation 2): ``ac``
    averages [CLS] over an entry's definitions, ``amp`` their means over all tokens, ``words`` takes the model's word
    embeddings (DefSent). ``ica`` is the convention by which the entry vectors are transformed.
    """

    pooling: Pooling
    entries: EntryKind
    learning_rate: float
    ica: Ica = "none"

    def __post_init__(self) -> None:
        one_of("pooling", self.pooling, get_args(Pooling))
        one_of("entries", self.entries, get_args(EntryKind))
        one_of("ica", self.ica, get_args(Ica))
        _within("learning_rate", self.learning_rate, 0.0, 1.0, above=True)
        if self.entries == "words" and self.ica != "none":
            raise ConfigError("entries are 'words', which the model's head belongs to: expected ica 'none'")


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Everything that is chosen about a training but its texts and its model.

    Parameters
    ----------
    steps
        One to four; the entry vectors of each are built by the best encoder of the step before.
    runs
        Trainings of each step, with the seeds ``seed``, ``seed + 1``, …; the best builds the next step.
    epochs
        Passes over the definitions; the paper finds more than one to harm.
    batch_size
        Definitions a batch; None is 32 from :data:`LARGE_DICTIONARY` definitions on, 16 below.
    head
        What turns a pooled vector into one of the entries' space: ``own`` (the model's pooler, tanh), ``mlm-head``
        (the dense layer of the head for masked words, GELU), ``auto`` (``mlm-head`` for RoBERTa, else ``own``). Not
        used by DefSent, which has the whole head for masked words, frozen.
    max_tokens
        Longest definition, special tokens included; None is what the model takes.
    held_out
        Definitions that are kept for measuring; None is a twentieth of them, 1,000 at most.
    bf16
        Whether the forward passes are computed in bfloat16 where that is safe (autocast).
    optimizer
        See :class:`OptimizerSettings`.
    """

    steps: tuple[StepSettings, ...]
    runs: int = 1
    seed: int = 0
    epochs: int = 1
    batch_size: int | None = None
    head: Head = "auto"
    max_tokens: int | None = None
    held_out: int | None = None
    bf16: bool = False
    optimizer: OptimizerSettings = dataclasses.field(default_factory=OptimizerSettings)

    def __post_init__(self) -> None:
        if not 1 <= len(self.steps) <= MAX_STEPS:
            raise ConfigError(f"there are {len(self.steps)} steps: expected 1 to {MAX_STEPS}")
        if self.uses_words and len(self.steps) > 1:
            raise ConfigError("entries are 'words', which no step changes: expected a single step")
        one_of("head", self.head, get_args(Head))
        _at_least("runs", self.runs, 1)
        _at_least("epochs", self.epochs, 1)
        _at_least("seed", self.seed, 0)
        if self.batch_size is not None:
            _at_least("batch_size", self.batch_size, 1)
        if self.max_tokens is not None:
            _at_least("max_tokens", self.max_tokens, 8)
        if self.held_out is not None:
            _at_least("held_out", self.held_out, 0)

    @property
    def uses_words(self) -> bool:
        """Whether this is DefSent: entries are the model's word embeddings."""
        return any(step.entries == "words" for step in self.steps)

    def batch_of(self, definitions: int) -> int:
        """Return how many of ``definitions`` a batch has."""
        return self.batch_size or (32 if definitions >= LARGE_DICTIONARY else 16)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        fields = dataclasses.asdict(self)
        fields["steps"] = list(fields["steps"])
        fields["optimizer"]["betas"] = list(fields["optimizer"]["betas"])
        return fields


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} is {value}: expected at least {least}")


def _within(name: str, value: float, least: float, most: float, *, above: bool = False) -> None:
    if not (least < value <= most if above else least <= value <= most) or math.isinf(value):
        bound = "above" if above else "from"
        limit = "" if math.isinf(most) else f" to {most:g}"
        raise ConfigError(f"{name} is {value}: expected a number {bound} {least:g}{limit}")
