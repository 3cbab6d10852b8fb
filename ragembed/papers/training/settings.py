"""Settings of a training, as dataclasses that validate their values, and the recipes of Liu 2024 (DefSent+)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ragembed.config.fields import one_of, setting, settings_of
from ragembed.errors import ConfigError, ModelError
from ragembed.files import read_regular
from ragembed.models.packaging import MOST_JSON

Pooling = Literal["cls", "mean"]
EntryKind = Literal["ac", "amp", "words"]
Ica = Literal["none", "unit-variance", "arbitrary-variance"]
Head = Literal["auto", "own", "mlm-head"]

MAX_STEPS = 4
LARGE_DICTIONARY = 200_000
"""Number of definitions from which the default batch size is 32 instead of 16 (Liu 2024, appendix A)."""


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """Settings of AdamW with linear decay to 0, as in the authors' program (Liu 2024)."""

    weight_decay: float = setting(0.0, "Weight decay of AdamW.", "--weight-decay", "NUMBER")
    eps: float = setting(1e-6, "Epsilon of AdamW.", "--eps", "NUMBER")
    betas: tuple[float, float] = setting((0.9, 0.999), "The two betas of AdamW.", "--betas", "NUMBER NUMBER")
    warmup: float = setting(
        0.0, "Share of the batches over which the learning rate rises, from 0 to 1.", "--warmup", "NUMBER"
    )
    max_grad_norm: float = setting(
        1.0, "Gradients with a larger norm are scaled down to it.", "--max-grad-norm", "NUMBER"
    )

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

    ``pooling`` is that of the definitions. ``entries`` is the kind of entry vectors (equation 2): the mean of the
    ``[CLS]`` vectors of an entry's definitions (``ac``), the mean of their mean-pooled vectors (``amp``), or the word
    embeddings of the model (``words``, DefSent). ``ica`` is the convention of the ICA of the entry vectors in
    scikit-learn's terms.
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

    Each of the one to four ``steps`` has ``runs`` runs with the seeds ``seed``, ``seed + 1``, …; the encoder of the
    best run builds the entry vectors of the next step. DefSent ignores ``head``: it uses the complete
    masked-word head, frozen.
    """

    steps: tuple[StepSettings, ...]
    runs: int = setting(1, "Number of seeds to try in each step; the best run is kept.", "--runs", "N", least=1)
    seed: int = setting(0, "First random seed.", "--seed", "N", least=0)
    epochs: int = setting(1, "Number of passes over the definitions.", "--epochs", "N", least=1)
    batch_size: int | None = setting(
        None,
        "Number of definitions in a batch.",
        *("--batch-size", "N"),
        least=1,
        default="16; 32 for 200,000 definitions or more",
    )
    head: Head = setting(
        "auto",
        "Layer on top of the pooled vector: the model's own pooler with tanh (own), or the dense layer of its "
        "masked-language head with GELU (mlm-head). auto is mlm-head for RoBERTa, else own.",
        "--head",
        choices=get_args(Head),
    )
    max_tokens: int | None = setting(
        None,
        "Largest number of tokens of a definition; longer ones are cut.",
        *("--max-tokens", "N"),
        least=8,
        default="the model's limit",
    )
    held_out: int | None = setting(
        None,
        "Number of definitions to hold out and measure on.",
        *("--held-out", "N"),
        least=0,
        default="5 %, at most 1,000",
    )
    bf16: bool = setting(
        False, "Compute forward passes in bfloat16 where that is numerically safe (autocast).", "--bf16"
    )
    optimizer: OptimizerSettings = dataclasses.field(default_factory=OptimizerSettings)

    def __post_init__(self) -> None:
        if not 1 <= len(self.steps) <= MAX_STEPS:
            raise ConfigError(f"there are {len(self.steps)} steps: expected 1 to {MAX_STEPS}")
        if self.uses_words and len(self.steps) > 1:
            raise ConfigError(
                f"there are {len(self.steps)} steps: expected one, because entries are 'words', which do not change"
            )
        one_of("head", self.head, get_args(Head))
        _check_least(self)

    @property
    def uses_words(self) -> bool:
        """Whether this is DefSent, whose entry vectors are the model's word embeddings."""
        return any(step.entries == "words" for step in self.steps)

    def batch_of(self, definitions: int) -> int:
        """Return the batch size for a number of definitions."""
        return self.batch_size or (32 if definitions >= LARGE_DICTIONARY else 16)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        fields = dataclasses.asdict(self)
        fields["steps"] = list(fields["steps"])
        fields["optimizer"]["betas"] = list(fields["optimizer"]["betas"])
        return fields


@dataclass(frozen=True, slots=True)
class B2sSettings:
    """Settings of :func:`train_b2s`, with the defaults of the authors' program.

    A word with the relative frequency f is a target with probability ``min(1, sqrt(t / f) + t / f)``, where t is
    ``threshold``. Negative words are drawn in proportion to the root of their counts.
    """

    min_count: int = setting(10, "Least number of occurrences of a word.", "--min-count", "N", least=1)
    paragraphs: bool = setting(
        False,
        "Each line is a paragraph: the context of a word is its sentence, encoded inside of the paragraph.",
        "--paragraphs",
    )
    vocabulary: int = setting(750_000, "Largest number of words.", "--vocabulary", "N", least=1)
    threshold: float = setting(
        5e-6, "Relative frequency above which occurrences of a word are left out at random.", *("--threshold", "NUMBER")
    )
    negatives: int = setting(10, "Number of words drawn for each occurrence.", "--negatives", "N", least=1)
    epochs: int = setting(5, "Number of passes over the corpus.", "--epochs", "N", least=1)
    batch_size: int = setting(128, "Number of texts or paragraphs in a batch.", "--batch-size", "N", least=1)
    learning_rate: float = setting(
        1e-3,
        "Learning rate of Adam. A corpus below a million sentences needs a larger one, such as 0.01.",
        *("--learning-rate", "NUMBER"),
    )
    seed: int = setting(0, "Random seed.", "--seed", "N", least=0)

    def __post_init__(self) -> None:
        _check_least(self)
        _within("threshold", self.threshold, 0.0, 1.0, above=True)
        _within("learning_rate", self.learning_rate, 0.0, 1.0, above=True)


def _check_least(settings: TrainingSettings | B2sSettings) -> None:
    """Raise :class:`ConfigError` for a setting below its least value."""
    for name, about in settings_of(type(settings)).items():
        value = getattr(settings, name)
        if about.least is not None and value is not None and value < about.least:
            raise ConfigError(f"{name} is {value}: expected at least {about.least}")


def _within(name: str, value: float, least: float, most: float, *, above: bool = False) -> None:
    if not (least < value <= most if above else least <= value <= most) or math.isinf(value):
        bound = "above" if above else "from"
        limit = "" if math.isinf(most) else f" to {most:g}"
        raise ConfigError(f"{name} is {value}: expected a number {bound} {least:g}{limit}")


_LARGE_DIMENSION = 1024
_ROBERTA = ("roberta", "xlm-roberta", "camembert")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The pooling and kind of entry vectors of each step, the learning rates, and whether the last step has ICA.

    The last combination also applies to all further steps.
    """

    combinations: tuple[tuple[Pooling, EntryKind], ...]
    learning_rates: tuple[float, ...]
    ica: bool = False

    def steps(
        self,
        count: int | None = None,
        combinations: tuple[tuple[Pooling, EntryKind], ...] = (),
        learning_rates: tuple[float, ...] = (),
        ica: Ica | None = None,
    ) -> tuple[StepSettings, ...]:
        """Return the settings of all steps; your values replace those of the recipe.

        The last combination and the last learning rate apply to all further steps. ``ica`` applies to the last step.
        Raises :class:`ConfigError` for more combinations or learning rates than steps.
        """
        chosen, rates = combinations or self.combinations, learning_rates or self.learning_rates
        number = count or max(len(self.learning_rates), len(learning_rates), len(combinations))
        for name, given in (("combinations", combinations), ("learning rates", learning_rates)):
            if len(given) > number:
                raise ConfigError(f"there are {len(given)} {name} for {number} steps: give at most one per step")
        last: Ica = ica if ica is not None else "unit-variance" if self.ica else "none"
        return tuple(
            StepSettings(
                *chosen[min(i, len(chosen) - 1)], rates[min(i, len(rates) - 1)], last if i == number - 1 else "none"
            )
            for i in range(number)
        )


_CLS_AMP: tuple[Pooling, EntryKind] = ("cls", "amp")
_CLS_AC: tuple[Pooling, EntryKind] = ("cls", "ac")
_MEAN_AC: tuple[Pooling, EntryKind] = ("mean", "ac")

RECIPES: Mapping[str, Recipe] = {
    "bert-base": Recipe((_CLS_AMP,), (5e-5, 4e-5, 3e-5), ica=True),
    "bert-large": Recipe((_CLS_AMP,), (4e-5, 4e-5, 3e-5), ica=True),
    "roberta-base": Recipe((_MEAN_AC,), (3e-5, 2e-5, 1e-5)),
    "roberta-large": Recipe((_MEAN_AC,), (3e-5, 2e-5, 1e-5)),
    "simcse-bert-base": Recipe((_CLS_AMP,), (3e-5,)),
    "simcse-bert-large": Recipe((_CLS_AMP,), (1e-5,)),
    "simcse-roberta-base": Recipe((_CLS_AC,), (1e-5,)),
    "simcse-roberta-large": Recipe((_CLS_AC,), (3e-5, 2e-5)),
    "sncse-bert-base": Recipe((_CLS_AMP,), (2e-5,)),
    "sncse-bert-large": Recipe((_CLS_AMP,), (1e-5,)),
    "sncse-roberta-base": Recipe((_MEAN_AC,), (2e-6,)),
    "sncse-roberta-large": Recipe((_CLS_AC, _MEAN_AC), (1e-6, 1e-6)),
}
"""The recipes of Liu 2024 for each kind of model, by name; their method ``steps`` returns the steps of a training."""


def recipe_for(folder: Path) -> str:
    """Return the name of the default recipe for the model in ``folder``.

    The family and size of the model decide. A model with the files of sentence-transformers gets the SimCSE recipe,
    because it is not a raw pre-trained model. Raises :class:`ModelError` if the configuration cannot be read.
    """
    try:
        fields = json.loads(read_regular(folder / "config.json", MOST_JSON))
        family, dimension = str(fields["model_type"]), int(fields["hidden_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"the model folder {folder} has no config.json with model_type and hidden_size: give a complete model"
        ) from error
    name = f"{'roberta' if family in _ROBERTA else 'bert'}-{'large' if dimension >= _LARGE_DIMENSION else 'base'}"
    contrastive = any((folder / file).is_file() for file in ("modules.json", "sentence_bert_config.json"))
    return f"simcse-{name}" if contrastive else name


PROMPT = 'This sentence : "[X]" means [M] . '
"""The prompt of the authors' program. BERT reads it as the template ``t0``; for RoBERTa, the spaces are tokens."""
POOLINGS: Mapping[str, Mapping[str, str]] = {
    **{name: {"pooling": name} for name in ("cls", "mean")},
    "prompt": {"pooling": "masks", "template": PROMPT},
}
"""The settings of the poolings of equation 14."""
