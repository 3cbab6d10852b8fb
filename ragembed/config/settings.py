"""Configuration as data: everything that is chosen, as opposed to fitted, about an embedder."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ragembed.checks import one_of
from ragembed.config.specs import (
    POOLINGS,
    Avg,
    BertAvg,
    Extraction,
    RandomEmbeddings,
    Transformer,
    Words,
    parse_extractor,
    parse_layers,
    parse_postprocessor,
    parse_weighting,
)
from ragembed.config.templates import PLAIN, Template
from ragembed.errors import ConfigError

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_PRESET = "minilm"

QueryFit = Literal["separate", "shared"]
Dtype = Literal["auto", "float32", "bfloat16", "mixed"]

_STATIC = (Avg, RandomEmbeddings, Words)
_CONTEXTUAL_ONLY = ("template", "query_template", "pooling")


@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """Everything that is chosen, as opposed to fitted, about an embedder.

    A setting that the extractor or the weighting does not use must be left at its default, so that none is ignored
    without a word.

    Parameters
    ----------
    extractor
        How token vectors are made: ``transformer`` (a model's hidden states), ``avg`` (a static vector for each token,
        the mean of its hidden states over the corpus), ``bert+avg[:w=0.5]`` (both, mixed), ``re[:dim=768,sigma=0.1]``
        (random vectors), ``words[:drop=0]`` (a word-vector file), ``sbert-wk[:window=2,start_layer=4,…]``.
    model
        Hugging Face model id, or a folder that holds ``config.json``, ``tokenizer.json`` and
        ``model.safetensors``; for ``re``, a tokenizer is enough; for ``words``, the word-vector file.
    layers
        Hidden layers whose mean gives the token vectors: ``"last"``, or numbers joined by ``+`` (``"1+6"``), where
        0 is the blocks' input and -1 the word-embedding table; ``"first+last"`` is layers 1 and L.
    template
        Text that the model sees, with ``[X]`` for the text and ``[M]`` for mask tokens, or one of ``t0`` to ``t4``.
    query_template
        The same for queries; None takes ``template``.
    pooling
        Tokens that the mean runs over: ``mean`` (all), ``masks``, ``no-mask``, ``text`` (those of ``[X]``), or ``cls``
        or ``last``, one token.
    special_tokens
        Whether the mean includes ``[CLS]``, ``[SEP]`` and their like; None includes them where a model made the
        vectors, and leaves them out of static vectors. Of no effect under ``masks``, ``text`` and ``cls``.
    weighting
        Token weights: ``uniform``; ``idf``; ``idf:s`` = ``s`` parts idf weights and ``1 - s`` parts uniform weights,
        each scaled to sum to 1 over the text; ``-biases`` (frequent tokens, punctuation and subwords left out);
        ``sif[:a]``; ``usif``.
    template_tokens
        ``common`` counts the template's own tokens as part of every text, so that their idf is 0; ``counted`` gives
        them the document frequency they have in the texts themselves.
    biases
        The frequent tokens that ``-biases`` leaves out; None takes those of the PromptBERT program.
    weighting_corpus, avg_corpus, postprocess_corpus
        Files of texts, one a line, that token weights, the static vectors of ``avg`` and ``bert+avg``, and
        post-processors are fitted on; None takes the texts given to ``fit``.
    postprocess
        Chain of post-processors applied to the pooled vectors, in order: ``center``, ``zscore``, ``quantile-u``,
        ``quantile-n``, ``robust``, ``whiten[:k]``, ``abtt[:d]``, ``normalize``.
    query_fit
        ``"separate"`` fits each post-processor on documents and on pseudo-queries apart; ``"shared"`` uses the
        documents' for both (symmetric tasks).
    max_tokens
        Longest window given to the model, special tokens included; None takes the model's own limit. A longer
        text is read in several windows, none of it is dropped.
    dtype
        Arithmetic for documents: ``"float32"``, ``"bfloat16"``, or ``"mixed"``, which is bfloat16 but for few documents
        of a run over files. ``"auto"`` is mixed on processors and devices that multiply bfloat16 in hardware, float32
        elsewhere; queries are always encoded in float32.
    pseudo_queries
        How many spans drawn from the corpus stand in for queries when the query side is fitted.
    seed
        Seeds that draw, the sample that post-processors are fitted on, and random embeddings.
    """

    extractor: str = "transformer"
    model: str = DEFAULT_MODEL
    layers: str = "last"
    template: str = PLAIN
    query_template: str | None = None
    pooling: str = "mean"
    special_tokens: bool | None = None
    weighting: str = "idf:0.25"
    template_tokens: Literal["common", "counted"] = "common"
    biases: tuple[str, ...] | None = None
    weighting_corpus: str | None = None
    avg_corpus: str | None = None
    postprocess_corpus: str | None = None
    postprocess: tuple[str, ...] = ("normalize",)
    query_fit: QueryFit = "separate"
    max_tokens: int | None = None
    dtype: Dtype = "auto"
    pseudo_queries: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        parse_layers(self.layers, n_layers=None)
        parse_weighting(self.weighting)
        Template.parse(self.template)
        if self.query_template is not None:
            Template.parse(self.query_template)
        for step in self.postprocess:
            parse_postprocessor(step)
        one_of("pooling", self.pooling, POOLINGS)
        one_of("template_tokens", self.template_tokens, ("common", "counted"))
        one_of("query_fit", self.query_fit, ("separate", "shared"))
        one_of("dtype", self.dtype, ("auto", "float32", "bfloat16", "mixed"))
        if not self.model:
            raise ConfigError("model is empty: give a Hugging Face model id or a folder")
        if self.max_tokens is not None and self.max_tokens < 8:
            raise ConfigError(f"max_tokens is {self.max_tokens}: expected at least 8")
        if self.pseudo_queries < 1:
            raise ConfigError(f"pseudo_queries is {self.pseudo_queries}: expected at least 1")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed is {self.seed}: expected a number from 0 to 2^63 - 1")
        self._check_use()

    @property
    def extraction(self) -> Extraction:
        """The settings that ``extractor`` names."""
        return parse_extractor(self.extractor)

    @property
    def fits_tokens(self) -> bool:
        """Whether token weights or static vectors depend on the corpus: raw vectors then change with the fit."""
        return self.fits_weights or self.fits_static

    @property
    def fits_weights(self) -> bool:
        """Whether token weights depend on the corpus."""
        name, number = parse_weighting(self.weighting)
        counts = name in ("sif", "usif") or (name == "idf" and number != 0.0)
        return counts and self.weighting_corpus is None

    @property
    def fits_static(self) -> bool:
        """Whether static vectors depend on the corpus."""
        return isinstance(self.extraction, (Avg, BertAvg)) and self.avg_corpus is None

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> EmbedderConfig:
        """Return a preset with some settings changed: ``EmbedderConfig.from_preset("t4", layers="1+6")``.

        Raises :class:`ConfigError` for an unknown preset, with the names of all, and for an unknown setting.
        """
        if name not in PRESETS:
            raise ConfigError(f"unknown preset {name!r}: expected one of {', '.join(PRESETS)}")
        return PRESETS[name].replace(**changes)

    def replace(self, **changes: Any) -> EmbedderConfig:
        """Return a copy with ``changes`` applied; raises :class:`ConfigError` for an unknown name."""
        _check_names(changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self._fields().items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EmbedderConfig:
        """Build from :meth:`to_dict`'s output; raises :class:`ConfigError` for an unknown field or a wrong value."""
        _check_names(fields)
        return cls(**fields)

    def to_json(self) -> str:
        """Return the fields as a JSON object."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> EmbedderConfig:
        """Build from :meth:`to_json`'s output, or from some of its fields; the others have their defaults."""
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the configuration is not valid JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ConfigError(f"the configuration is {type(fields).__name__}: expected a JSON object")
        return cls.from_dict(fields)

    def to_toml(self) -> str:
        """Return the fields as TOML; a field that is None is left out, as TOML has no such value."""
        import tomli_w

        return tomli_w.dumps({name: value for name, value in self.to_dict().items() if value is not None})

    @classmethod
    def from_toml(cls, text: str) -> EmbedderConfig:
        """Build from :meth:`to_toml`'s output, or from some of its fields; the others have their defaults."""
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        try:
            fields = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"the configuration is not valid TOML: {error}") from None
        return cls.from_dict(fields)

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def _check_types(self) -> None:
        """Turn lists into tuples and whole numbers into floats nowhere: raise for a value of the wrong type."""
        for name in ("postprocess", "biases"):
            value = getattr(self, name)
            if isinstance(value, (list, tuple)):
                object.__setattr__(self, name, tuple(value))
        for name, value in self._fields().items():
            expected = _TYPES[name]
            strings = all(isinstance(part, str) for part in value) if isinstance(value, tuple) else True
            misfit_bool = isinstance(value, bool) and bool not in expected
            if not isinstance(value, expected) or misfit_bool or not strings:
                shown = " or ".join(_TYPE_NAMES[kind] for kind in expected)
                raise ConfigError(f"{name} is {value!r}: expected {shown}")

    def _check_use(self) -> None:
        """Raise where a setting is given that the extractor does not use."""
        extraction = self.extraction
        unused: list[str] = []
        if isinstance(extraction, _STATIC):
            unused += _CONTEXTUAL_ONLY
        if not isinstance(extraction, (Transformer, Avg, BertAvg)):
            unused += ["layers"]
        if not isinstance(extraction, (Avg, BertAvg)):
            unused += ["avg_corpus"]
        if isinstance(extraction, Words):
            unused += ["special_tokens"]
        by = dict.fromkeys(unused, f"extractor {self.extractor!r}")
        if self.weighting != "-biases":
            by["biases"] = f"weighting {self.weighting!r}"
        if parse_weighting(self.weighting)[0] != "idf":
            by["template_tokens"] = f"weighting {self.weighting!r}"
        for field in dataclasses.fields(self):
            if field.name in by and getattr(self, field.name) != field.default:
                raise ConfigError(
                    f"{field.name} is {getattr(self, field.name)!r}, but {by[field.name]} does not use it: leave it out"
                )


_TYPES: Mapping[str, tuple[type, ...]] = {
    "extractor": (str,),
    "model": (str,),
    "layers": (str,),
    "template": (str,),
    "query_template": (str, type(None)),
    "pooling": (str,),
    "special_tokens": (bool, type(None)),
    "weighting": (str,),
    "template_tokens": (str,),
    "biases": (tuple, type(None)),
    "weighting_corpus": (str, type(None)),
    "avg_corpus": (str, type(None)),
    "postprocess_corpus": (str, type(None)),
    "postprocess": (tuple,),
    "query_fit": (str,),
    "max_tokens": (int, type(None)),
    "dtype": (str,),
    "pseudo_queries": (int,),
    "seed": (int,),
}
_TYPE_NAMES: Mapping[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    tuple: "a list of strings",
    type(None): "None",
}


def _check_names(fields: Mapping[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(EmbedderConfig)]
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise ConfigError(f"unknown setting {unknown[0]!r}: expected one of {', '.join(known)}")


PRESETS: Mapping[str, EmbedderConfig] = {
    "minilm": EmbedderConfig(),
    "t4": EmbedderConfig(template="t4", weighting="idf", postprocess=("quantile-u",)),
    "t0-mask": EmbedderConfig(template="t0", pooling="masks", weighting="uniform", postprocess=("normalize",)),
    "bert": EmbedderConfig(layers="first+last", weighting="uniform", postprocess=("normalize",)),
    "bert+avg": EmbedderConfig(extractor="bert+avg", layers="first+last", weighting="idf", postprocess=("quantile-u",)),
    "avg": EmbedderConfig(extractor="avg", layers="first+last", weighting="idf", postprocess=("zscore",)),
    "re": EmbedderConfig(extractor="re", weighting="idf", postprocess=("normalize",)),
    "sbert-wk": EmbedderConfig(extractor="sbert-wk", weighting="uniform", postprocess=("normalize",)),
    "b2s-100": EmbedderConfig(extractor="words:drop=100", weighting="uniform", postprocess=("normalize",)),
}
"""Presets: configurations that have a name.

Sources: Stankevičius & Lukoševičius 2024, tables 4 and 5; Wang & Kuo 2020. Those of the papers are symmetric
(``query_fit="shared"`` reproduces the papers' tasks); here they have two sides, as retrieval needs.
"""
