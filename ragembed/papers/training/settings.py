"""Settings of a training, as dataclasses that validate their values."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ragembed.config.fields import one_of
from ragembed.errors import ConfigError

Pooling = Literal["cls", "mean"]
EntryKind = Literal["ac", "amp", "words"]
Ica = Literal["none", "unit-variance", "arbitrary-variance"]
Head = Literal["auto", "own", "mlm-head"]

MAX_STEPS = 4
LARGE_DICTIONARY = 200_000
"""Number of definitions from which the default batch size is 32 instead of 16 (Liu 2024, appendix A)."""


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """Settings of AdamW with linear decay to 0. The defaults are those of the authors' program (Liu 2024).

    Parameters
    ----------
    weight_decay : float, default 0.0
        Weight decay, at least 0.
    eps : float, default 1e-6
        Term added to the denominator, above 0.
    betas : tuple of float, default (0.9, 0.999)
        Decay rates of the two moments, from 0 to below 1.
    warmup : float, default 0.0
        Share of the batches over which the learning rate rises from 0, from 0 to 1.
    max_grad_norm : float, default 1.0
        Norm to which gradients are clipped, above 0.

    Raises
    ------
    ConfigError
        If a value is out of range.

    Examples
    --------
    >>> from ragembed.papers.training import OptimizerSettings
    >>> OptimizerSettings(warmup=0.1)
    OptimizerSettings(weight_decay=0.0, eps=1e-06, betas=(0.9, 0.999), warmup=0.1, max_grad_norm=1.0)
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
    """Settings of one step of progressive separate training (Liu 2024, section 3.2).

    Parameters
    ----------
    pooling : {"cls", "mean"}
        Pooling of the definitions during the training: the vector at ``[CLS]``, or the mean over all tokens.
    entries : {"ac", "amp", "words"}
        Kind of entry vectors (equation 2). ``"ac"`` is the mean of the ``[CLS]`` vectors of an entry's definitions.
        ``"amp"`` is the mean of their mean-pooled vectors. ``"words"`` uses the word embeddings of the model
        (DefSent).
    learning_rate : float
        Learning rate at the start of the step, above 0 and at most 1.
    ica : {"none", "unit-variance", "arbitrary-variance"}, default "none"
        Convention of the ICA transformation of the entry vectors, in scikit-learn's terms. Must be ``"none"`` for
        ``"words"``.

    Raises
    ------
    ConfigError
        If a value is not allowed.

    Examples
    --------
    >>> from ragembed.papers.training import StepSettings
    >>> StepSettings(pooling="cls", entries="amp", learning_rate=5e-5)
    StepSettings(pooling='cls', entries='amp', learning_rate=5e-05, ica='none')
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
            raise ConfigError(f"ica is {self.ica!r}: expected 'none', because entries are 'words'")


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """All settings of a training, except its texts and its model.

    Parameters
    ----------
    steps : tuple of StepSettings
        One to four steps. The best encoder of a step builds the entry vectors of the next step.
    runs : int, default 1
        Number of runs per step, with the seeds ``seed``, ``seed + 1``, …. The best run is used.
    seed : int, default 0
        Seed of the first run, and of the choice of held-out definitions.
    epochs : int, default 1
        Passes over the definitions. According to the paper, more than one is harmful.
    batch_size : int, optional
        Definitions per batch. By default, 32 if there are at least 200,000 definitions, otherwise 16.
    head : {"auto", "own", "mlm-head"}, default "auto"
        Layer that projects pooled vectors into the space of the entries. ``"own"`` is the pooler of the model (tanh),
        ``"mlm-head"`` the dense layer of its masked-word head (GELU). ``"auto"`` is ``"mlm-head"`` for RoBERTa and
        ``"own"`` for other models. DefSent ignores this setting and uses the complete masked-word head, frozen.
    max_tokens : int, optional
        Maximum number of tokens of a definition, including special tokens, at least 8. Longer definitions are
        truncated. By default, the maximum of the model.
    held_out : int, optional
        Number of definitions to hold out for measuring. By default, a twentieth of the definitions, at most 1,000.
    bf16 : bool, default False
        Whether to run the forward passes with bfloat16 autocast.
    optimizer : OptimizerSettings, optional
        Settings of the optimiser.

    Raises
    ------
    ConfigError
        If a value is out of range, or DefSent has more than one step.

    Examples
    --------
    >>> from ragembed.papers.training import StepSettings, TrainingSettings
    >>> settings = TrainingSettings(steps=(StepSettings("mean", "ac", 3e-5),), runs=2)
    >>> settings.batch_of(definitions=10_000)
    16
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
            raise ConfigError(
                f"there are {len(self.steps)} steps: expected one, because entries are 'words', which do not change"
            )
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
        """Whether this is DefSent, whose entry vectors are the model's word embeddings."""
        return any(step.entries == "words" for step in self.steps)

    def batch_of(self, definitions: int) -> int:
        """Return the batch size for a number of definitions.

        Parameters
        ----------
        definitions : int
            Number of definitions of the dictionary.

        Returns
        -------
        int
            ``batch_size``, or its default if it is None.
        """
        return self.batch_size or (32 if definitions >= LARGE_DICTIONARY else 16)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values.

        Returns
        -------
        dict
            The settings by name; tuples become lists.
        """
        fields = dataclasses.asdict(self)
        fields["steps"] = list(fields["steps"])
        fields["optimizer"]["betas"] = list(fields["optimizer"]["betas"])
        return fields


@dataclass(frozen=True, slots=True)
class B2sSettings:
    """Settings of :func:`train_b2s`. The defaults are those of the authors' program.

    Parameters
    ----------
    min_count : int, default 10
        The least number of times that a word occurs in the corpus.
    vocabulary : int, default 750,000
        The largest number of words; the most frequent ones are kept.
    threshold : float, default 5e-6
        Threshold t of the subsampling of frequent words: a word with the relative frequency f is a target with
        probability ``min(1, sqrt(t / f) + t / f)``.
    negatives : int, default 10
        Number of words drawn for each target, with probabilities in proportion to the root of their counts.
    epochs : int, default 5
        Passes over the corpus.
    batch_size : int, default 128
        Texts in a batch.
    learning_rate : float, default 1e-3
        Learning rate of Adam, which updates only the words of a batch.
    seed : int, default 0
        Seed of the first vectors, of the order of the texts, and of the words that are drawn.

    Raises
    ------
    ConfigError
        If a value is out of range.

    Examples
    --------
    >>> from ragembed.papers.training import B2sSettings
    >>> B2sSettings(min_count=5).negatives
    10
    """

    min_count: int = 10
    vocabulary: int = 750_000
    threshold: float = 5e-6
    negatives: int = 10
    epochs: int = 5
    batch_size: int = 128
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("min_count", "vocabulary", "negatives", "epochs", "batch_size"):
            _at_least(name, getattr(self, name), 1)
        _at_least("seed", self.seed, 0)
        _within("threshold", self.threshold, 0.0, 1.0, above=True)
        _within("learning_rate", self.learning_rate, 0.0, 1.0, above=True)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} is {value}: expected at least {least}")


def _within(name: str, value: float, least: float, most: float, *, above: bool = False) -> None:
    if not (least < value <= most if above else least <= value <= most) or math.isinf(value):
        bound = "above" if above else "from"
        limit = "" if math.isinf(most) else f" to {most:g}"
        raise ConfigError(f"{name} is {value}: expected a number {bound} {least:g}{limit}")
