"""Training an encoder from a dictionary, with no labels: DefSent and DefSent+.

Definitions are projected onto vectors of the entries they define. Source: Liu 2024 (DefSent+), and for DefSent,
Tsukagoshi et al. 2021 as that paper describes it.

======================  ============================================================================
``dictionaries``        readers of each format, and merging
``settings``            what is chosen; ``recipes`` are the paper's choices
``material``            what is asked for, read and checked
``train``               a whole training; ``progressive`` its steps, ``run`` one copy of the model
``entry_space``         equation 2; ``ica`` transforms it, ``pictures`` draws it
``objective``           equation 1, for the ``encoder`` and its ``heads``; ``optimizer`` goes down it
``held_out``            accuracy on definitions kept out; ``similarity`` on sentence pairs
``checkpoints``         what an interrupted training goes on from; ``outcome`` what one leaves
``reverse_dictionary``  the entries that a description defines
======================  ============================================================================

Importing this package is cheap: each name brings its module in when it is first used.
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
