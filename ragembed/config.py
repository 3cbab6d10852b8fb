"""Configuration as data: what an embedder is made of, and the presets.

This is the only place where strings given by a user become choices; everything behind it works with a
validated, frozen :class:`EmbedderConfig`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ragembed.errors import ConfigError

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_PRESET = "minilm"

Sides = Literal["two", "one"]
Dtype = Literal["auto", "float32", "bfloat16"]

_POSTPROCESSORS = ("center", "zscore", "normalize")


@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """Everything that is chosen, as opposed to fitted, about an embedder.

    Parameters
    ----------
    model
        Hugging Face model id, or a folder that holds ``config.json``, ``tokenizer.json`` and
        ``model.safetensors``.
    layers
        Hidden layers whose mean gives the token vectors: ``"last"``, or numbers 0..L joined by ``+``
        (``"1+6"``); ``"first+last"`` is layers 1 and L.
    weighting
        Token weights: ``"uniform"``, ``"idf"``, or ``"idf:s"`` = ``s`` parts idf weights and ``1 - s`` parts
        uniform weights, each scaled to sum to 1 over the text.
    postprocess
        Chain of post-processors applied to the pooled vectors, in order: ``center``, ``zscore``, ``normalize``.
    sides
        ``"two"`` fits each post-processor on documents and on pseudo-queries separately; ``"one"`` uses the
        documents' for both (symmetric tasks).
    max_tokens
        Longest window given to the model, special tokens included; None takes the model's own limit. A longer
        text is read in several windows, none of it is dropped.
    dtype
        Arithmetic for documents. ``"auto"`` is bfloat16 on processors and devices that multiply it in hardware,
        float32 elsewhere; queries are always encoded in float32.
    pseudo_queries
        How many spans drawn from the corpus stand in for queries when the query side is fitted.
    seed
        Seeds that draw.
    """

    model: str = DEFAULT_MODEL
    layers: str = "last"
    weighting: str = "idf:0.5"
    postprocess: tuple[str, ...] = ("center", "normalize")
    sides: Sides = "two"
    max_tokens: int | None = None
    dtype: Dtype = "auto"
    pseudo_queries: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("model is empty: give a Hugging Face model id or a folder")
        parse_layers(self.layers, n_layers=None)
        parse_weighting(self.weighting)
        object.__setattr__(self, "postprocess", tuple(self.postprocess))
        for step in self.postprocess:
            if step not in _POSTPROCESSORS:
                raise ConfigError(f"unknown post-processor {step!r}: expected one of {', '.join(_POSTPROCESSORS)}")
        _one_of("sides", self.sides, ("two", "one"))
        _one_of("dtype", self.dtype, ("auto", "float32", "bfloat16"))
        if self.max_tokens is not None and self.max_tokens < 8:
            raise ConfigError(f"max_tokens is {self.max_tokens}: expected at least 8")
        if self.pseudo_queries < 1:
            raise ConfigError(f"pseudo_queries is {self.pseudo_queries}: expected at least 1")

    def replace(self, **changes: Any) -> EmbedderConfig:
        """Return a copy with ``changes`` applied; raises :class:`ConfigError` for an unknown name."""
        _check_names(changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**dataclasses.asdict(self), "postprocess": list(self.postprocess)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EmbedderConfig:
        """Build from :meth:`to_dict`'s output; raises :class:`ConfigError` for an unknown field."""
        _check_names(fields)
        return cls(**fields)

    def to_json(self) -> str:
        """Return the fields as a JSON object."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> EmbedderConfig:
        """Build from :meth:`to_json`'s output."""
        return cls.from_dict(json.loads(text))


def preset(name: str) -> EmbedderConfig:
    """Return the preset called ``name``; raises :class:`ConfigError` naming those there are."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}: expected one of {', '.join(PRESETS)}")
    return PRESETS[name]


def parse_layers(spec: str, n_layers: int | None) -> tuple[int, ...]:
    """Turn ``"last"``, ``"first+last"`` or ``"0+1+6"`` into layer numbers.

    ``n_layers`` is the number L of the model's blocks; None checks the form only. Raises
    :class:`ConfigError` for another form or a layer the model does not have.
    """
    last = 1 if n_layers is None else n_layers
    names = {"first": 1, "last": last}
    try:
        numbers = tuple(names[part] if part in names else int(part) for part in spec.split("+"))
    except ValueError:
        raise ConfigError(
            f"layers {spec!r}: expected 'last', 'first+last' or numbers joined by +, as in '1+6'"
        ) from None
    for number in numbers:
        if number < 0 or (n_layers is not None and number > n_layers):
            raise ConfigError(f"layers {spec!r}: layer {number} does not exist, the model has layers 0 to {n_layers}")
    return numbers


def parse_weighting(spec: str) -> float:
    """Return the share of idf in ``spec``: 0 for ``uniform``, 1 for ``idf``, ``s`` for ``idf:s``."""
    if spec == "uniform":
        return 0.0
    name, _, share = spec.partition(":")
    try:
        value = float(share) if share else 1.0
    except ValueError:
        value = -1.0
    if name != "idf" or not 0.0 <= value <= 1.0:
        raise ConfigError(f"weighting {spec!r}: expected 'uniform', 'idf' or 'idf:SHARE' with a share from 0 to 1")
    return value


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}: expected one of {', '.join(choices)}")


def _check_names(fields: Mapping[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(EmbedderConfig)]
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise ConfigError(f"unknown setting {unknown[0]!r}: expected one of {', '.join(known)}")


PRESETS: Mapping[str, EmbedderConfig] = {
    "minilm": EmbedderConfig(),
}
