"""Train an encoder on a dictionary, without labels: DefSent and DefSent+.

The model learns to project each definition onto the vector of the entry that it defines. Source: Liu 2024 (DefSent+);
for DefSent, Tsukagoshi et al. 2021 as described by Liu 2024.

======================  ======================================================================================
``dictionaries``        readers for the dictionary formats, and merging of dictionaries
``settings``            settings of a training; ``recipes`` has the settings of the paper
``material``            the inputs of a training, read and validated
``train``               a complete training; ``progressive`` its steps, ``run`` the training of one model copy
``entry_space``         entry vectors (equation 2); ``ica`` transforms them, ``pictures`` plots them
``objective``           the loss (equation 1), with the ``encoder``, its ``heads`` and the ``optimizer``
``held_out``            accuracy on held-out definitions; ``similarity`` measures on sentence pairs
``checkpoints``         files from which an interrupted training continues; ``outcome`` writes the result
``reverse_dictionary``  look up entries by a description
======================  ======================================================================================

Importing this package is fast, because each name loads its module on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.training.dictionaries.reading import read_dictionaries
    from ragembed.training.dictionaries.senses import Dictionary
    from ragembed.training.material import TrainingRequest
    from ragembed.training.recipes import RECIPES
    from ragembed.training.reverse_dictionary import ReverseDictionary
    from ragembed.training.settings import OptimizerSettings, StepSettings, TrainingSettings
    from ragembed.training.train import train_from_dictionary

__all__ = [
    "RECIPES",
    "Dictionary",
    "OptimizerSettings",
    "ReverseDictionary",
    "StepSettings",
    "TrainingRequest",
    "TrainingSettings",
    "read_dictionaries",
    "train_from_dictionary",
]

_NAMES = {
    "dictionaries.reading": ("read_dictionaries",),
    "dictionaries.senses": ("Dictionary",),
    "material": ("TrainingRequest",),
    "recipes": ("RECIPES",),
    "reverse_dictionary": ("ReverseDictionary",),
    "settings": ("OptimizerSettings", "StepSettings", "TrainingSettings"),
    "train": ("train_from_dictionary",),
}
__getattr__, __dir__ = lazy_attributes(__name__, _NAMES, extra="training")
