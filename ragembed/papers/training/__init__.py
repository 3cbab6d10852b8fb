"""Train without labels: an encoder on a dictionary (DefSent and DefSent+), or word vectors from an encoder (B2S).

With a dictionary, the model learns to project each definition onto the vector of the entry that it defines. Source:
Liu 2024 (DefSent+); for DefSent, Tsukagoshi et al. 2021 as described by Liu 2024.

- :func:`train_from_dictionary` trains a model. :class:`TrainingRequest` holds its inputs, and
  :class:`TrainingSettings`, :class:`StepSettings` and :class:`OptimizerSettings` its settings. :data:`RECIPES` has the
  settings of the paper.
- :func:`read_dictionaries` reads dictionary files into a :class:`Dictionary`.
- :func:`train_b2s` trains word vectors (Gupta & Jaggi 2021). :class:`B2sRequest` holds its inputs and
  :class:`B2sSettings` its settings.
- :class:`ReverseDictionary` uses a trained model to find the entries that fit a description.

Importing this package is fast, because each name is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.papers.training.b2s import B2sRequest as B2sRequest
    from ragembed.papers.training.b2s import train_b2s as train_b2s
    from ragembed.papers.training.dictionary import Dictionary as Dictionary
    from ragembed.papers.training.dictionary import read_dictionaries as read_dictionaries
    from ragembed.papers.training.material import TrainingRequest as TrainingRequest
    from ragembed.papers.training.reverse_dictionary import ReverseDictionary as ReverseDictionary
    from ragembed.papers.training.settings import RECIPES as RECIPES
    from ragembed.papers.training.settings import B2sSettings as B2sSettings
    from ragembed.papers.training.settings import OptimizerSettings as OptimizerSettings
    from ragembed.papers.training.settings import StepSettings as StepSettings
    from ragembed.papers.training.settings import TrainingSettings as TrainingSettings
    from ragembed.papers.training.train import train_from_dictionary as train_from_dictionary

_NAMES = {
    "b2s": ("B2sRequest", "train_b2s"),
    "dictionary": ("Dictionary", "read_dictionaries"),
    "material": ("TrainingRequest",),
    "reverse_dictionary": ("ReverseDictionary",),
    "settings": ("RECIPES", "B2sSettings", "OptimizerSettings", "StepSettings", "TrainingSettings"),
    "train": ("train_from_dictionary",),
}
__getattr__, __dir__ = lazy_attributes(__name__, _NAMES, extra="torch,papers")
__all__ = __dir__()
