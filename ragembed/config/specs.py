"""Parse the short strings that name choices, such as ``"first+last"``, ``"idf:0.5"`` and ``"bert+avg:w=0.25"``.

All other code works with the checked numbers and names that these functions return. Every function raises
:class:`ragembed.errors.ConfigError`, with the string and the expected form.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from ragembed.config.fields import one_of
from ragembed.errors import ConfigError

POSTPROCESSORS = (
    *("center", "zscore", "quantile-u", "quantile-n", "robust", "whiten", "abtt"),
    *("common", "common-weighted", "normalize"),
)
WEIGHTINGS = ("uniform", "idf", "-biases", "sif", "usif")
AUTO = "auto"
"""The pooling and the token weights that suit the model."""

POOLINGS = ("mean", "masks", "no-mask", "text", "after-prompt", "cls", "last", "max", "min", "weighted", "mean-sqrt")
WORD_POOLINGS = ("mean", "min", "max")
"""The poolings of word vectors."""
DEFAULT_WEIGHTING = "idf:0.25"

WORD_EMBEDDINGS = -1
"""The number of the layer that is the word-embedding table alone, without position and type embeddings."""

Variant = Literal["paper", "released-code"]
"""Versions of SBERT-WK: as in the paper, or as in the authors' program."""
Decomposition = Literal["qr", "svd"]
"""How SBERT-WK finds the part of a vector that is orthogonal to its context; both give the same vectors."""

TEXT, MASK = "[X]", "[M]"
PLAIN = TEXT
"""The template without any text around ``[X]``."""

TEMPLATES: Mapping[str, str] = {
    "t0": 'This sentence: "[X]" means [M].',
    "t1": 'This sentence: "[X]" means [M][M].',
    "t2": 'This sentence: "[X]" means "[M][M]" and is about [M].',
    "t3": 'This sentence from the paraphrase dictionary: "[X]" means "[M]", which is about [M].',
    "t4": 'This sentence from the dictionary: "[X]" means "[M]" and is about [M], which is a synonym for [M].',
}
"""Source: Stankevičius & Lukoševičius 2024, table 1; T0 is from Jiang et al. 2022 (PromptBERT)."""

_LAYER = {str(number): number for number in range(-999, 1000)}
_DIRECTIONS = {"abtt": 2, "common": 1, "common-weighted": 5}
"""Number of directions of post-processors that are named without one."""
_DEFAULT_SHARE, _DEFAULT_SIF = 1.0, 1e-3
_LEAST_SIF = 1e-12
_MOST_DIMENSIONS = 65_536
_SERVER_EXAMPLE = "http://localhost:11434/v1#nomic-embed-text"
_SERVED_EXAMPLES = {"openai": "openai:text-embedding-3-small", "ollama": "ollama:nomic-embed-text"}


@dataclass(frozen=True, slots=True)
class Transformer:
    """Settings of the extractor ``transformer``: contextual token vectors of a model."""


@dataclass(frozen=True, slots=True)
class Avg:
    """Settings of the extractor ``avg``: one static vector per token, the mean of its contextual vectors over a corpus.

    ``unseen`` decides about a token that the corpus does not contain: ``"mapped"`` maps its word embedding into the
    space, ``"skip"`` leaves it out of the mean.
    """

    unseen: str = "mapped"

    def __post_init__(self) -> None:
        one_of("unseen", self.unseen, ("mapped", "skip"))


@dataclass(frozen=True, slots=True)
class BertAvg:
    """Settings of the extractor ``bert+avg``: ``(1 - w)`` parts contextual vectors and ``w`` parts static vectors.

    ``w`` may be negative or above 1. ``unseen`` is as in :class:`Avg`.
    """

    w: float = 0.5
    unseen: str = "mapped"

    def __post_init__(self) -> None:
        one_of("unseen", self.unseen, ("mapped", "skip"))
        if not math.isfinite(self.w):
            raise ConfigError(f"w is {self.w}: expected a finite number")


@dataclass(frozen=True, slots=True)
class RandomEmbeddings:
    """Settings of the extractor ``re``: one vector of ``dim`` dimensions per token, drawn from ``N(0, sigma²)``.

    ``sigma`` is a standard deviation.
    """

    dim: int = 768
    sigma: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.dim <= _MOST_DIMENSIONS:
            raise ConfigError(f"dim is {self.dim}: expected a number from 1 to {_MOST_DIMENSIONS}")
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise ConfigError(f"sigma is {self.sigma}: expected a number above 0")


@dataclass(frozen=True, slots=True)
class Words:
    """Settings of the extractor ``words``: word vectors from a file.

    The ``drop`` most frequent words, which come first in the file, are left out.
    """

    drop: int = 0

    def __post_init__(self) -> None:
        if self.drop < 0:
            raise ConfigError(f"drop is {self.drop}: expected 0 or more")


@dataclass(frozen=True, slots=True)
class SbertWk:
    """Settings of the extractor ``sbert-wk``.

    The context of a token's vector at layer i consists of the same token's vectors at up to ``window`` layers (the
    paper's m) on each side of i, within ``start_layer``..L; layer 0 is the input of the blocks. The paper excludes the
    layers before the start from the whole fusion (section V-A), and the authors' program removes them first.

    ``alignment`` weights each layer by one over the mean cosine with the context, ``novelty`` by the share of the
    vector's length that is orthogonal to the context, and both by the mean of both. ``importance`` weights each token
    by the variance over layers of the cosine between consecutive layers.

    The variant ``"released-code"`` is the authors' program. It differs in four ways. A layer with fewer than ``window``
    fused layers before it has no left half of a context C. The alignment is divided by the length of the projection
    instead of the length of the vector, and multiplied by ``2 (|C| + 1)``. The variance excludes the layers before the
    start. The last token is excluded.

    The ``decomposition`` is that of the context for the novelty: ``"qr"`` needs only the cosines, ``"svd"`` is slower
    and gives the same vectors (sections IV-B and IV-C).
    """

    window: int = 2
    start_layer: int = 4
    alignment: bool = True
    novelty: bool = True
    importance: bool = True
    variant: Variant = "paper"
    decomposition: Decomposition = "qr"

    def __post_init__(self) -> None:
        one_of("variant", self.variant, get_args(Variant))
        one_of("decomposition", self.decomposition, get_args(Decomposition))
        if self.window < 1:
            raise ConfigError(f"window is {self.window}: expected at least 1")

    def check(self, n_layers: int) -> None:
        """Raise :class:`ragembed.errors.ConfigError` if these settings do not fit a model of ``n_layers`` blocks."""
        if not 0 <= self.start_layer <= n_layers:
            raise ConfigError(f"start_layer is {self.start_layer}: expected a layer of the model, from 0 to {n_layers}")
        fused = n_layers - self.start_layer + 1
        if (self.alignment or self.novelty) and fused <= self.window:
            raise ConfigError(
                f"too few layers for a window: there are {fused}, from {self.start_layer} to {n_layers}, and a window "
                f"of {self.window} needs at least {self.window + 1}; lower start_layer or window"
            )
        compared = len(self.layers(n_layers))
        if self.importance and compared < 3:
            raise ConfigError(
                f"too few layers for token importance: there are {compared}, and the variance of cosines between "
                "consecutive layers needs at least 3; set importance=false"
            )

    def layers(self, n_layers: int) -> tuple[int, ...]:
        """Return the layers to read from a model of ``n_layers`` blocks, ascending."""
        first = 0 if self.compares_all_layers else self.start_layer
        return tuple(range(first, n_layers + 1))

    @property
    def compares_all_layers(self) -> bool:
        """Whether the token importance uses all layers, not only the fused ones."""
        return self.importance and self.variant == "paper"


@dataclass(frozen=True, slots=True)
class Server:
    """A model behind a server with OpenAI's interface for embeddings.

    ``kind`` is ``"openai"``, ``"ollama"`` or ``"url"``; ``url`` is None unless it is ``"url"``. ``options`` are fields
    of each request.
    """

    kind: str
    url: str | None
    model: str
    options: Mapping[str, int | str] = field(default_factory=dict)


Extraction: TypeAlias = "Transformer | Avg | BertAvg | RandomEmbeddings | Words | SbertWk"

_EXTRACTORS: Mapping[str, type[Any]] = {
    "transformer": Transformer,
    "avg": Avg,
    "bert+avg": BertAvg,
    "re": RandomEmbeddings,
    "words": Words,
    "sbert-wk": SbertWk,
}


@cache
def parse_extractor(spec: str) -> Extraction:
    """Parse ``"transformer"``, ``"bert+avg:w=0.25"`` or ``"sbert-wk:window=1,importance=false"``."""
    name, _, options = spec.partition(":")
    if name not in _EXTRACTORS:
        raise ConfigError(f"unknown extractor {spec!r}: expected one of {', '.join(_EXTRACTORS)}")
    settings = _EXTRACTORS[name]
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    values = {}
    for option in options.split(",") if options else ():
        key, separator, text = option.partition("=")
        if not separator or key not in defaults or key in values:
            listed = ", ".join(f"{key}={value}".lower() for key, value in defaults.items()) or "no options"
            raise ConfigError(f"extractor {spec!r}: unknown or repeated option {option!r}: expected {listed}")
        values[key] = _value(spec, key, text, defaults[key])
    try:
        made: Extraction = settings(**values)
    except ConfigError as error:
        raise ConfigError(f"extractor {spec!r}: {error}") from None
    return made


def parse_server(model: str) -> Server | None:
    """Parse ``"openai:NAME"``, ``"ollama:NAME"`` or ``"http://HOST/PATH#NAME"``; return None for any other model.

    Options may follow the name, as in ``"openai:NAME?dimensions=256&encoding_format=base64"``. A URL with a user name,
    a password or a query is refused, without showing it: it may contain a key.
    """
    kind, _, served = model.partition(":")
    if kind.lower() in ("http", "https"):
        url, _, name = model.partition("#")
        try:
            parts = urlsplit(url)
            secret = parts.username is not None or parts.password is not None or bool(parts.query)
            usable = bool(parts.hostname) and parts.port != 0
        except ValueError:
            secret = usable = False
        if secret or "@" in url or "?" in url:
            raise ConfigError(
                "the URL of the model contains a user name, a password or a query: expected http://HOST/PATH#NAME; set "
                "the key with RAGEMBED_API_KEY"
            )
        if not usable or not name:
            raise ConfigError(f"model {model!r}: expected a URL and a name, as in {_SERVER_EXAMPLE!r}")
        return _server("url", url.rstrip("/"), name)
    if kind not in ("openai", "ollama"):
        return None
    if not served:
        raise ConfigError(f"model {model!r}: expected a name, as in {_SERVED_EXAMPLES[kind]!r}")
    return _server(kind, None, served)


def _server(kind: str, url: str | None, name: str) -> Server:
    """Return the server with the options after the ``?`` in ``name``."""
    name, _, query = name.partition("?")
    options: dict[str, int | str] = {}
    for part in query.split("&") if query else ():
        option, _, value = part.partition("=")
        if option == "dimensions" and value.isascii() and value.isdigit() and int(value) > 0:
            options[option] = int(value)
        elif option == "encoding_format" and value in ("float", "base64"):
            options[option] = value
        else:
            raise ConfigError(
                f"the option {part!r} of the model {name!r}: expected dimensions=NUMBER, encoding_format=float or "
                "encoding_format=base64"
            )
    return Server(kind, url, name, options)


def parse_layers(spec: str, n_layers: int | None) -> tuple[int, ...]:
    """Parse ``"last"``, ``"first+last"`` or ``"0+1+6"`` into layer numbers, ascending.

    ``n_layers`` is the number L of blocks in the model; None checks the form only. Layers are -1 (the word-embedding
    table), 0 (the input of the blocks) and 1 to L; ``first`` is 1.
    """
    last = 1 if n_layers is None else n_layers
    names = {"first": 1, "last": last}
    try:
        numbers = sorted(names[part] if part in names else _LAYER[part] for part in spec.split("+"))
    except KeyError:
        raise ConfigError(
            f"layers {spec!r}: expected 'first', 'last', 'first+last' or numbers joined by +, as in '1+6'"
        ) from None
    for number in numbers:
        if number < WORD_EMBEDDINGS or (n_layers is not None and number > n_layers):
            available = "" if n_layers is None else f": expected a number from {WORD_EMBEDDINGS} to {n_layers}"
            raise ConfigError(f"layers {spec!r}: the model has no layer {number}{available}")
    return tuple(numbers)


def parse_pooling(spec: str) -> tuple[str, ...]:
    """Parse ``"auto"``, ``"mean"`` or ``"cls+mean"`` into the poolings whose vectors are joined."""
    parts = tuple(spec.split("+"))
    unknown = [part for part in parts if part not in POOLINGS]
    if spec != AUTO and unknown:
        raise ConfigError(
            f"pooling is {spec!r}: expected {AUTO}, one of {', '.join(POOLINGS)}, or several of them joined by +"
        )
    return parts


def parse_weighting(spec: str) -> tuple[str, float | None]:
    """Parse ``"uniform"``, ``"idf[:SHARE]"``, ``"-biases"``, ``"sif[:A]"`` or ``"usif"`` into a name and a number.

    The number is the share of idf (1 by default), the ``a`` of SIF (0.001 by default), or None. ``"auto"`` is returned
    as it is.
    """
    if spec == AUTO:
        return AUTO, None
    name, separator, number = spec.partition(":")
    defaults = {"idf": _DEFAULT_SHARE, "sif": _DEFAULT_SIF}
    if name not in WEIGHTINGS or (separator and name not in defaults):
        raise ConfigError(
            f"weighting {spec!r}: expected auto, uniform, idf, idf:SHARE (from 0 to 1), -biases, sif, sif:A or usif"
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
        raise ConfigError(f"weighting {spec!r}: expected a number of at least {_LEAST_SIF}, as in 'sif:0.001'")
    return name, value


def parse_postprocessor(spec: str) -> tuple[str, int | None]:
    """Parse ``"zscore"``, ``"whiten:128"`` or ``"abtt:2"`` into a name and a number of directions.

    The number is None for a post-processor that takes none, and for ``whiten`` without a number, which keeps every
    direction. ``abtt``, ``common`` and ``common-weighted`` without a number mean 2, 1 and 5 directions, as in their
    sources.
    """
    name, separator, number = spec.partition(":")
    if name not in POSTPROCESSORS:
        raise ConfigError(f"unknown post-processor {spec!r}: expected one of {', '.join(POSTPROCESSORS)}")
    if not separator:
        return name, _DIRECTIONS.get(name)
    if name != "whiten" and name not in _DIRECTIONS:
        raise ConfigError(f"post-processor {spec!r}: {name} takes no number; write {name!r}")
    if not re.fullmatch(r"[1-9][0-9]{0,5}", number):
        raise ConfigError(
            f"post-processor {spec[:99]!r}: expected a number of directions from 1 to 999999, as in '{name}:2'"
        )
    return name, int(number)


@dataclass(frozen=True, slots=True)
class Template:
    """The parts of a prompt before and after the text; ``[M]`` in a part is a mask token."""

    before: str
    after: str

    @classmethod
    def parse(cls, spec: str) -> Template:
        """Parse a name (``t0`` to ``t4``) or a text that contains ``[X]`` once.

        Raises :class:`ConfigError` if it does not.
        """
        text = TEMPLATES.get(spec.lower(), spec)
        if text.count(TEXT) != 1:
            raise ConfigError(
                f"template {spec!r}: expected one of {', '.join(TEMPLATES)}, or a text that contains {TEXT} once, "
                f"as in 'passage: {TEXT}'"
            )
        before, _, after = text.partition(TEXT)
        return cls(before, after)

    @property
    def masks(self) -> int:
        """The number of mask tokens."""
        return (self.before + self.after).count(MASK)


def _value(spec: str, key: str, text: str, default: Any) -> Any:
    """Parse ``text`` as a value of the type of ``default``."""
    kind = type(default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        expected = "true or false" if kind is bool else {int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"extractor {spec!r}: {key} is {text!r}: expected {expected}") from None
