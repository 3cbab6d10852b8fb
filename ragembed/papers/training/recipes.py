"""Named settings: the encoding combinations and learning rates of Liu 2024 (DefSent+), tables 2, 3 and 5."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ragembed.errors import ConfigError, ModelError
from ragembed.files import read_regular
from ragembed.models.packaging import MOST_JSON
from ragembed.papers.training.settings import EntryKind, Ica, Pooling, StepSettings

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
"""The recipes of Liu 2024 for each kind of model, by name.

The values are :class:`ragembed.papers.training.recipes.Recipe` objects. Their method ``steps`` returns the steps for
:class:`TrainingSettings`.

Examples
--------
>>> from ragembed.papers.training import RECIPES, TrainingSettings
>>> settings = TrainingSettings(steps=RECIPES["roberta-base"].steps())
>>> [(step.pooling, step.entries, step.learning_rate) for step in settings.steps]
[('mean', 'ac', 3e-05), ('mean', 'ac', 2e-05), ('mean', 'ac', 1e-05)]
"""


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
