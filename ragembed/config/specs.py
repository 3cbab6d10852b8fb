"""Short strings in which users name choices: ``"first+last"``, ``"idf:0.5"``, ``"abtt:2"``, ``"bert+avg:w=0.25"``.

The only place where strings become choices; what is behind it works with numbers and names that were checked. Every
function raises :class:`ragembed.errors.ConfigError` naming the string and what was expected.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from ragembed.checks import one_of
from ragembed.errors import ConfigError

POSTPROCESSORS = ("center", "zscore", "quantile-u", "quantile-n", "robust", "whiten", "abtt", "normalize")
WEIGHTINGS = ("uniform", "idf", "-biases", "sif", "usif")
POOLINGS = ("mean", "masks", "no-mask", "text", "cls", "last")

WORD_EMBEDDINGS = -1
"""The layer that is the bare word-embedding table, before positions and types are added."""

Variant = Literal["paper", "released-code"]
"""Versions of SBERT-WK: as the paper describes it, or as its authors' program computes it."""

_LAYER = {str(number): number for number in range(-999, 1000)}
_ABTT_DIRECTIONS = 2
_DEFAULT_SHARE, _DEFAULT_SIF = 1.0, 1e-3
_LEAST_SIF = 1e-12
_MOST_DIMENSIONS = 65_536


@dataclass(frozen=True, slots=True)
class Transformer:
    """Contextual token vectors of a model."""


@dataclass(frozen=True, slots=True)
class Avg:
    """One static vector for each token: the mean of its contextual vectors over a corpus.

    ``unseen`` says what a token that the corpus does not hold gets: ``"mapped"``, its word embedding mapped into the
    space, or ``"skip"``, nothing, so that it is left out of the text's mean.
    """

    unseen: str = "mapped"

    def __post_init__(self) -> None:
        one_of("unseen", self.unseen, ("mapped", "skip"))


@dataclass(frozen=True, slots=True)
class BertAvg:
    """``(1 - w)`` parts contextual vectors and ``w`` parts Avg.; ``w`` may be negative or above 1."""

    w: float = 0.5
    unseen: str = "mapped"

    def __post_init__(self) -> None:
        one_of("unseen", self.unseen, ("mapped", "skip"))
        if not math.isfinite(self.w):
            raise ConfigError(f"w is {self.w}: expected a finite number")


@dataclass(frozen=True, slots=True)
class RandomEmbeddings:
    """One vector drawn from N(0, sigma) for each token, of ``dim`` dimensions; ``sigma`` is a standard deviation."""

    dim: int = 768
    sigma: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.dim <= _MOST_DIMENSIONS:
            raise ConfigError(f"dim is {self.dim}: expected a number from 1 to {_MOST_DIMENSIONS}")
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise ConfigError(f"sigma is {self.sigma}: expected a number above 0")


@dataclass(frozen=True, slots=True)
class Words:
    """Vectors of whole words from a file; the ``drop`` most frequent words, first in the file, are left out."""

    drop: int = 0

    def __post_init__(self) -> None:
        if self.drop < 0:
            raise ConfigError(f"drop is {self.drop}: expected 0 or more")


@dataclass(frozen=True, slots=True)
class SbertWk:
    """Settings of SBERT-WK.

    The context of a token's vector at layer i is the same token's vectors at up to ``window`` layers on both sides
    of i, out of ``start_layer``..L: the paper leaves the layers before the start out of the whole fusion
    (section V-A), and the authors' program cuts them off first.

    Parameters
    ----------
    window
        The paper's m: layers on each side of a layer that form its context.
    start_layer
        First layer that is fused; 0 is the input of the blocks.
    alignment
        Weigh layers by their inverse alignment, one over the mean cosine with the context.
    novelty
        Weigh layers by their novelty, the share of the vector's length that is orthogonal to the context. With
        ``alignment`` too, the weight is the mean of both; with neither, every layer has the same.
    importance
        Weigh tokens by the variance over layers of the cosine between consecutive layers; otherwise uniformly.
    variant
        ``"paper"``, or ``"released-code"`` for the authors' program, which differs in four ways: a layer with fewer
        than ``window`` fused layers before it has no left half of a context C; the alignment is divided by the
        length of the projection instead of the vector's, and multiplied by ``2 (|C| + 1)``; the variance leaves out
        the layers before the start; the last token is left out.
    """

    window: int = 2
    start_layer: int = 4
    alignment: bool = True
    novelty: bool = True
    importance: bool = True
    variant: Variant = "paper"

    def __post_init__(self) -> None:
        one_of("variant", self.variant, get_args(Variant))
        if self.window < 1:
            raise ConfigError(f"window is {self.window}: expected at least 1")

    def check(self, n_layers: int) -> None:
        """Raise :class:`ragembed.errors.ConfigError` unless a model of ``n_layers`` blocks can be fused like this."""
        if not 0 <= self.start_layer <= n_layers:
            raise ConfigError(f"start_layer is {self.start_layer}: expected a layer of the model, 0 to {n_layers}")
        fused = n_layers - self.start_layer + 1
        if (self.alignment or self.novelty) and fused <= self.window:
            raise ConfigError(
                f"too few layers for a window: layers {self.start_layer} to {n_layers} are {fused}, a window of "
                f"{self.window} expects at least {self.window + 1}; lower start_layer or window"
            )
        compared = len(self.layers(n_layers))
        if self.importance and compared < 3:
            raise ConfigError(
                f"too few layers for token importance: a variance of cosines between consecutive layers expects at "
                f"least 3 layers, there are {compared}; set importance=false"
            )

    def layers(self, n_layers: int) -> tuple[int, ...]:
        """Return the hidden states that are read of a model of ``n_layers`` blocks, ascending."""
        first = 0 if self.compares_all_layers else self.start_layer
        return tuple(range(first, n_layers + 1))

    @property
    def compares_all_layers(self) -> bool:
        """Whether tokens are weighed by all layers, and not by the fused ones alone."""
        return self.importance and self.variant == "paper"


Extraction: TypeAlias = "Transformer | Avg | BertAvg | RandomEmbeddings | Words | SbertWk"

_EXTRACTORS: Mapping[str, type[Any]] = {
    "transformer": Transformer,
    "avg": Avg,
    "bert+avg": BertAvg,
    "re": RandomEmbeddings,
    "words": Words,
    "sbert-wk": SbertWk,
}


def parse_extractor(spec: str) -> Extraction:
    """Turn ``"transformer"``, ``"bert+avg:w=0.25"`` or ``"sbert-wk:window=1,importance=false"`` into settings."""
    name, _, options = spec.partition(":")
    if name not in _EXTRACTORS:
        raise ConfigError(f"unknown extractor {spec!r}: expected one of {', '.join(_EXTRACTORS)}")
    settings = _EXTRACTORS[name]
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    values = {}
    for option in options.split(",") if options else ():
        key, separator, text = option.partition("=")
        if not separator or key not in defaults or key in values:
            known = ", ".join(f"{key}={value}".lower() for key, value in defaults.items()) or "no options"
            raise ConfigError(f"extractor {spec!r}: option {option!r}, expected {known}")
        values[key] = _value(spec, key, text, defaults[key])
    try:
        made: Extraction = settings(**values)
    except ConfigError as error:
        raise ConfigError(f"extractor {spec!r}: {error}") from None
    return made


def parse_layers(spec: str, n_layers: int | None) -> tuple[int, ...]:
    """Turn ``"last"``, ``"first+last"`` or ``"0+1+6"`` into layer numbers, ascending.

    ``n_layers`` is the number L of the model's blocks; None checks the form only. Layers are -1 (the word-embedding
    table), 0 (the blocks' input) and 1..L; ``first`` is 1.
    """
    last = 1 if n_layers is None else n_layers
    names = {"first": 1, "last": last}
    try:
        numbers = sorted(names[part] if part in names else _LAYER[part] for part in spec.split("+"))
    except KeyError:
        raise ConfigError(
            f"layers {spec!r}: expected 'last', 'first+last' or numbers joined by +, as in '1+6'"
        ) from None
    for number in numbers:
        if number < WORD_EMBEDDINGS or (n_layers is not None and number > n_layers):
            there_are = "" if n_layers is None else f", the model has layers {WORD_EMBEDDINGS} to {n_layers}"
            raise ConfigError(f"layers {spec!r}: layer {number} does not exist{there_are}")
    return tuple(numbers)


def parse_weighting(spec: str) -> tuple[str, float | None]:
    """Turn ``"uniform"``, ``"idf"``, ``"idf:SHARE"``, ``"-biases"``, ``"sif[:A]"`` or ``"usif"`` into name and number.

    The number is the share of idf (1 alone), the ``a`` of SIF (0.001 alone), or None.
    """
    name, separator, number = spec.partition(":")
    defaults = {"idf": _DEFAULT_SHARE, "sif": _DEFAULT_SIF}
    if name not in WEIGHTINGS or (separator and name not in defaults):
        raise ConfigError(
            f"weighting {spec!r}: expected uniform, idf, idf:SHARE (from 0 to 1), -biases, sif, sif:A or usif"
        )
    if not separator:
        return name, defaults.get(name)
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if name == "idf" and not 0.0 <= value <= 1.0:
        raise ConfigError(f"weighting {spec!r}: expected a share of idf from 0 to 1, as in 'idf:0.5'")
    if name == "sif" and not _LEAST_SIF <= value < math.inf:
        raise ConfigError(f"weighting {spec!r}: expected a number from {_LEAST_SIF}, as in 'sif:0.001'")
    return name, value


def parse_postprocessor(spec: str) -> tuple[str, int | None]:
    """Turn ``"zscore"``, ``"whiten:128"`` or ``"abtt:2"`` into a name and a number of directions.

    The number is None where the post-processor takes none, and where ``whiten`` keeps every direction; ``abtt`` alone
    is ``abtt:2``.
    """
    name, separator, number = spec.partition(":")
    if name not in POSTPROCESSORS:
        raise ConfigError(f"unknown post-processor {spec!r}: expected one of {', '.join(POSTPROCESSORS)}")
    if not separator:
        return name, _ABTT_DIRECTIONS if name == "abtt" else None
    if name not in ("whiten", "abtt"):
        raise ConfigError(f"post-processor {spec!r}: {name} takes no number; write {name!r}")
    if not re.fullmatch(r"[1-9][0-9]{0,5}", number):
        raise ConfigError(
            f"post-processor {spec[:99]!r}: expected a number of directions from 1 to 999999, as in '{name}:2'"
        )
    return name, int(number)


def _value(spec: str, key: str, text: str, default: Any) -> Any:
    """Read ``text`` as a value of ``default``'s type."""
    kind = type(default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        expected = "true or false" if kind is bool else {int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"extractor {spec!r}: {key} is {text!r}, expected {expected}") from None
