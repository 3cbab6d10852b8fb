"""Settings that have a name: the encoding combinations and learning rates of Liu 2024 (DefSent+), tables 2, 3 and 5."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ragembed.errors import ConfigError, ModelError
from ragembed.training.settings import EntryKind, Ica, Pooling, StepSettings

_LARGE_DIMENSION = 1024
_ROBERTA = ("roberta", "xlm-roberta", "camembert")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The combination and the learning rate of each step, and whether the last has its entry vectors transformed."""

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
        """Return the settings of ``count`` steps (None: those of the recipe), with what is given in its place.

        Where fewer combinations or learning rates are given than there are steps, the last holds for the rest: a
        learning rate is to be no larger than the one before. ``ica`` holds for the last step; None is that of the
        recipe, in the convention of the authors' program.
        """
        chosen, rates = combinations or self.combinations, learning_rates or self.learning_rates
        number = count or max(len(self.learning_rates), len(learning_rates), len(combinations))
        for name, given in (("combinations", combinations), ("learning rates", learning_rates)):
            if len(given) > number:
                raise ConfigError(
                    f"{len(given)} {name} are given for {number} steps: give no more than there are steps"
                )
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


def recipe_for(folder: Path) -> str:
    """Return the name of the recipe that the model in ``folder`` has where none is asked for.

    By family and size, as one of the paper's raw models; a model with the files of sentence-transformers is no raw one,
    and has the recipe of SimCSE's. Raises :class:`ModelError` where its configuration cannot be read.
    """
    try:
        fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        family, dimension = str(fields["model_type"]), int(fields["hidden_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"the model folder {folder} has no config.json with model_type and hidden_size") from error
    name = f"{'roberta' if family in _ROBERTA else 'bert'}-{'large' if dimension >= _LARGE_DIMENSION else 'base'}"
    contrastive = any((folder / file).is_file() for file in ("modules.json", "sentence_bert_config.json"))
    return f"simcse-{name}" if contrastive else name
