"""The configuration of an embedder: everything that is chosen, as opposed to fitted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ragembed.config.fields import check_values, documented, setting, settings_of
from ragembed.config.specs import (
    AUTO,
    DEFAULT_WEIGHTING,
    PLAIN,
    POOLINGS,
    POSTPROCESSORS,
    WORD_POOLINGS,
    Avg,
    BertAvg,
    Extraction,
    RandomEmbeddings,
    Template,
    Transformer,
    Words,
    parse_extractor,
    parse_layers,
    parse_pooling,
    parse_postprocessor,
    parse_server,
    parse_weighting,
)
from ragembed.errors import ConfigError
from ragembed.files import parse_toml

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_PRESET = "minilm"

QueryFit = Literal["separate", "shared"]
Dtype = Literal["auto", "float32", "bfloat16", "int8", "mixed"]

_STATIC = (Avg, RandomEmbeddings, Words)
_PROMPTS = ("prompt_name", "document_prompt", "query_prompt")
_CONTEXTUAL_ONLY = ("template", "query_template", "pooling", "trust_remote_code", *_PROMPTS)
_PRESETS = "the preset's"
_MODELS = "the model's"


@documented
@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """The settings of an :class:`ragembed.Embedder`: everything that is chosen, as opposed to fitted.

    The object is immutable. A setting that the extractor or the weighting does not use must keep its default value; any
    other value raises an error.

    Parameters
    ----------
    {settings}

    Raises
    ------
    ragembed.errors.ConfigError
        If a value is not accepted, or a setting has no effect with the others.

    Examples
    --------
    >>> from ragembed import EmbedderConfig
    >>> config = EmbedderConfig(extractor="re:dim=64", weighting="idf")
    >>> config.postprocess
    ('normalize',)
    >>> EmbedderConfig(pooling="first")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ragembed.errors.ConfigError: pooling is 'first': expected auto, one of mean, masks, no-mask, text, after-prompt, ...
    """

    extractor: str = setting(
        "transformer",
        "Method that turns a text into a raw vector: `transformer`, `avg`, `bert+avg:w=0.5`, `re:dim=768`, "
        "`words:drop=0` or `sbert-wk:window=2`.",
        *("--extractor", "SPEC"),
        default=_PRESETS,
        more="`transformer` takes hidden states of a model. `avg` has one static vector for each token, the mean of "
        "its hidden states over the corpus, and `bert+avg` is a mixture of both. `re` draws random vectors. `words` "
        "reads a word-vector file.",
        page="embeddings.md#extractors",
    )
    model: str = setting(
        DEFAULT_MODEL,
        "Hugging Face model id, folder of a model, or model behind a server, such as `ollama:NAME`. Also "
        "`openai:NAME`, `http://HOST/v1#NAME`, or a word-vector file for `--extractor words`.",
        *("--model", "ID|PATH|URL"),
        default=DEFAULT_MODEL,
        more="A folder has `config.json`, `tokenizer.json` and `model.safetensors`; the extractor `re` needs only the "
        "tokenizer.",
        page="served-models.md",
    )
    revision: str | None = setting(
        None,
        "Branch, tag or commit of a model on the Hugging Face hub.",
        *("--revision", "NAME"),
        default="the current version",
    )
    trust_remote_code: bool = setting(
        False,
        "Let the model run the code in its own files. Read the code first.",
        "--trust-remote-code",
        more="It is never run for a store that you open, unless you set `RAGEMBED_TRUST_REMOTE_CODE=1`.",
        page="models.md#code-of-a-model",
    )
    layers: str = setting(
        "last",
        "Hidden layers of the model to average: `first`, `last`, `first+last`, or numbers such as `0+1+6`.",
        *("--layers", "SPEC"),
        default=_PRESETS,
        more="Layer 0 is the input of the blocks, -1 the word-embedding table, and `first` is layer 1.",
        page="embeddings.md#layers",
    )
    template: str = setting(
        PLAIN,
        "Text around each document: `t0` to `t4`, or one with `[X]` for the document and `[M]` for a mask token.",
        *("--template", "TEXT"),
        default=_PRESETS,
        page="embeddings.md#templates",
    )
    query_template: str | None = setting(
        None,
        "Template for queries.",
        *("--query-template", "TEXT"),
        default="--template",
        more="By default that of documents.",
    )
    document_prompt: str | None = setting(
        None,
        "Text before each document.",
        *("--document-prompt", "TEXT"),
        default=_MODELS,
        more="A short form of a template. By default the prompt of the model's package, if `pooling` is `auto`.",
        page="models.md#package",
    )
    query_prompt: str | None = setting(
        None, "Text before each query.", "--query-prompt", "TEXT", default=_MODELS, more="As for documents."
    )
    prompt_name: str | None = setting(
        None,
        "Name of a prompt in the model's files, to use before documents and queries.",
        *("--prompt-name", "NAME"),
    )
    pooling: str = setting(
        AUTO,
        f"Tokens whose vectors are averaged: {AUTO} (the model as its authors use it), {', '.join(POOLINGS)}; several "
        "joined by +.",
        *("--pooling", "NAME"),
        default=_PRESETS,
        more="`auto` is the pooling, the prompts and the modules of the model's package; without a package it is "
        "`mean`. `text` are the tokens of `[X]`, `after-prompt` those after a prompt; `max` and `min` are the largest "
        "and the smallest value of each dimension; `weighted` has weights by position, and `mean-sqrt` divides the sum "
        "by the root of the number. Several make one longer vector. Word vectors have only `mean`, `min` and `max`.",
        page="embeddings.md#pooling",
    )
    modules: bool | None = setting(
        None,
        "Whether to apply the modules of the model's package that follow the pooling, such as `Dense`.",
        more="By default only if `pooling` is `auto`.",
    )
    normalize: bool = setting(
        False,
        "Scale the model's vectors to length 1 before the post-processors.",
        "--normalize/--no-normalize",
        default="--no-normalize",
        more="A final `Normalize` in the model's package is left out otherwise, because it changes no cosine.",
    )
    truncate_dim: int | None = setting(
        None,
        "Keep only the first N dimensions of the model's vectors, for models trained for it.",
        *("--truncate-dim", "N"),
        least=1,
        default=_MODELS,
        more="By default the number in the model's package, if `pooling` is `auto`, else all.",
    )
    special_tokens: bool | None = setting(
        None,
        "Include special tokens such as `[CLS]` in the average, or leave them out.",
        "--special-tokens/--no-special-tokens",
        default="include them, except from static vectors",
        more="It has no effect with `masks`, `text` and `cls`.",
    )
    weighting: str = setting(
        AUTO,
        "Weights of tokens in the average: `auto`, `uniform`, `idf`, `idf:0.5`, `-biases`, `sif` or `usif`.",
        *("--weighting", "SPEC"),
        default=_PRESETS,
        more="`auto` is `idf:0.25` for the default model and for models without a package, else `uniform`. `idf:s` "
        "mixes `s` parts idf weights and `1 - s` parts uniform weights. `-biases` leaves out frequent tokens, "
        "punctuation and subwords.",
        page="embeddings.md#token-weights",
    )
    template_tokens: Literal["common", "counted"] = setting(
        "common",
        "Idf of the template's tokens: 0, because every text has them (`common`), or that in the texts (`counted`).",
        choices=("common", "counted"),
    )
    biases: tuple[str, ...] | None = setting(
        None, "Frequent tokens that `-biases` leaves out.", more="By default the list of the PromptBERT program."
    )
    weighting_corpus: str | None = setting(
        None,
        "File with one text per line to fit token weights on.",
        *("--weighting-corpus", "FILE"),
        default="the documents",
    )
    avg_corpus: str | None = setting(
        None,
        "File with one text per line to fit the static vectors of avg on.",
        *("--avg-corpus", "FILE"),
        default="the documents",
    )
    postprocess_corpus: str | None = setting(
        None,
        "File with one text per line to fit post-processors on.",
        *("--postprocess-corpus", "FILE"),
        default="the documents",
    )
    postprocess: tuple[str, ...] = setting(
        ("normalize",),
        "Post-processors, separated by commas, such as `abtt:2,normalize`; or `none`.",
        *("--postprocess", "STEPS"),
        default=_PRESETS,
        more=f"A list of {', '.join(POSTPROCESSORS)}, in order.",
        page="post-processors.md#definitions",
    )
    query_fit: QueryFit = setting(
        "separate",
        "Post-processors for queries: the same as for documents (shared), or fitted on pseudo-queries (separate).",
        *("--query-fit", "shared|separate"),
        choices=get_args(QueryFit),
        default=_PRESETS,
    )
    max_tokens: int | None = setting(
        None,
        "Size of the model's window in tokens, special tokens included.",
        least=8,
        more="By default the model's limit, or 512 for a model behind a server. A longer text is read in several "
        "windows, so no part of it is lost.",
    )
    dtype: Dtype = setting(
        "auto",
        "Arithmetic for documents; queries always use float32.",
        choices=get_args(Dtype),
        more="`mixed` is bfloat16, and float32 if a run encodes only a few documents. `int8` rounds the weights to 8 "
        "bits: faster and less exact; it needs OpenVINO, a CPU, and a BERT or one of its relatives. "
        "`auto` is `mixed` on hardware "
        "that multiplies bfloat16 natively, if the vectors of the model then keep a cosine of at least 0.9995 to those "
        "in float32, which the fit measures; else `float32`.",
        page="models.md#precision",
    )
    pseudo_queries: int = setting(
        2000, "Largest number of spans of the corpus that stand in for queries in a separate query fit.", least=1
    )
    seed: int = setting(0, "Seed of random embeddings, of pseudo-queries and of the sample for post-processors.")

    def __post_init__(self) -> None:
        check_values(self)
        parse_layers(self.layers, n_layers=None)
        parse_weighting(self.weighting)
        for template in (self.template, self.query_template):
            if template is not None:
                Template.parse(template)
        for step in self.postprocess:
            parse_postprocessor(step)
        parse_pooling(self.pooling)
        if not self.model:
            raise ConfigError("model is empty: give a Hugging Face model id or a folder")
        parse_server(self.model)
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed is {self.seed}: expected a number from 0 to 2^63 - 1")
        self._check_use()

    @property
    def extraction(self) -> Extraction:
        """The parsed settings of ``extractor``."""
        return parse_extractor(self.extractor)

    @property
    def fits_tokens(self) -> bool:
        """Whether token weights or static vectors are fitted on the corpus; raw vectors then change with each fit."""
        return self.fits_weights or self.fits_static

    @property
    def fits_weights(self) -> bool:
        """Whether token weights are fitted on the corpus."""
        name, number = parse_weighting(DEFAULT_WEIGHTING if self.weighting == AUTO else self.weighting)
        counts = name in ("sif", "usif") or (name == "idf" and number != 0.0)
        return counts and self.weighting_corpus is None

    @property
    def fits_static(self) -> bool:
        """Whether static vectors are fitted on the corpus."""
        return isinstance(self.extraction, (Avg, BertAvg)) and self.avg_corpus is None

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> EmbedderConfig:
        """Return a preset with some settings changed.

        Parameters
        ----------
        name : str
            One of ``minilm``, ``t4``, ``t0-mask``, ``bert``, ``bert+avg``, ``avg``, ``re``, ``sbert-wk`` and
            ``b2s-100``.
        **changes
            Fields with their new values.

        Examples
        --------
        >>> from ragembed import EmbedderConfig
        >>> EmbedderConfig.from_preset("t4", layers="1+6").layers
        '1+6'
        """
        if name not in PRESETS:
            raise ConfigError(f"unknown preset {name!r}: expected one of {', '.join(PRESETS)}")
        return cls.from_dict({**PRESETS[name], **changes})

    def replace(self, **changes: Any) -> EmbedderConfig:
        """Return a copy with some settings changed.

        Parameters
        ----------
        **changes
            Fields with their new values.
        """
        return self.from_dict({name: getattr(self, name) for name in _NAMES} | changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the values of all fields by name, as JSON values; tuples become lists."""
        values = {name: getattr(self, name) for name in _NAMES}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EmbedderConfig:
        """Return the configuration for the output of :meth:`to_dict`.

        Parameters
        ----------
        fields : mapping of str to object
            Values of fields by name. Missing fields get their default values.

        Examples
        --------
        >>> from ragembed import EmbedderConfig
        >>> EmbedderConfig.from_dict({"extractor": "re", "seed": 7}).to_dict()["postprocess"]
        ['normalize']
        """
        for name in fields:
            if name not in _NAMES:
                raise ConfigError(f"unknown setting {name!r}: expected one of {', '.join(_NAMES)}")
        return cls(**fields)

    def to_json(self) -> str:
        """Return all fields as a JSON object, indented."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> EmbedderConfig:
        """Return the configuration for a JSON object.

        Parameters
        ----------
        text : str
            A JSON object with some or all fields; the others get their default values.
        """
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the configuration is not valid JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ConfigError(f"the configuration is of type {type(fields).__name__}: expected a JSON object")
        return cls.from_dict(fields)

    def to_toml(self) -> str:
        """Return all fields as TOML. Fields that are None are left out, because TOML has no null value."""
        import tomlkit

        return tomlkit.dumps({name: value for name, value in self.to_dict().items() if value is not None})

    @classmethod
    def from_toml(cls, text: str) -> EmbedderConfig:
        """Return the configuration for TOML.

        Parameters
        ----------
        text : str
            TOML with some or all fields; the others get their default values.
        """
        try:
            fields = parse_toml(text)
        except ValueError as error:
            raise ConfigError(f"the configuration is not valid TOML: {error}") from None
        return cls.from_dict(fields)

    def _check_use(self) -> None:
        """Raise for a setting that the extractor or the weighting does not use, and for two that state the same."""
        extraction = self.extraction
        unused: list[str] = []
        if isinstance(extraction, _STATIC):
            unused += _CONTEXTUAL_ONLY
        if not isinstance(extraction, (Transformer, Avg, BertAvg)):
            unused += ["layers"]
        if not isinstance(extraction, Transformer):
            unused += ["modules", "normalize", "truncate_dim"]
        if not isinstance(extraction, (Avg, BertAvg)):
            unused += ["avg_corpus"]
        if isinstance(extraction, Words):
            unused += ["special_tokens"]
            if set(parse_pooling(self.pooling)) <= set(WORD_POOLINGS):
                unused.remove("pooling")
        by = dict.fromkeys(unused, f"extractor {self.extractor!r}")
        if self.weighting != "-biases":
            by["biases"] = f"weighting {self.weighting!r}"
        if parse_weighting(self.weighting)[0] not in ("idf", AUTO):
            by["template_tokens"] = f"weighting {self.weighting!r}"
        for field in dataclasses.fields(self):
            unset = (field.default, "mean") if field.name == "pooling" else (field.default,)
            if field.name in by and getattr(self, field.name) not in unset:
                raise ConfigError(
                    f"{field.name} is {getattr(self, field.name)!r}, but {by[field.name]} does not use it: leave it out"
                )
        prompts = [name for name in _PROMPTS if getattr(self, name) is not None]
        templated = self.template != PLAIN or self.query_template is not None
        if prompts and (templated or ("prompt_name" in prompts and len(prompts) > 1)):
            other = "template" if templated else prompts[0]
            raise ConfigError(f"{prompts[-1]} cannot be combined with {other}: give only one of them")


_NAMES = tuple(settings_of(EmbedderConfig))

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "minilm": {},
    "t4": {"template": "t4", "pooling": "mean", "weighting": "idf", "postprocess": ("quantile-u",)},
    "t0-mask": {"template": "t0", "pooling": "masks", "weighting": "uniform"},
    "bert": {"layers": "first+last", "pooling": "mean", "weighting": "uniform"},
    "bert+avg": {
        "extractor": "bert+avg",
        "layers": "first+last",
        "pooling": "mean",
        "weighting": "idf",
        "postprocess": ("quantile-u",),
    },
    "avg": {"extractor": "avg", "layers": "first+last", "weighting": "idf", "postprocess": ("zscore",)},
    "re": {"extractor": "re", "weighting": "idf"},
    "sbert-wk": {"extractor": "sbert-wk", "pooling": "mean", "weighting": "uniform"},
    "b2s-100": {"extractor": "words:drop=100", "weighting": "uniform"},
}
"""Named groups of settings; the other settings have their defaults.

Sources: Stankevičius & Lukoševičius 2024, tables 4 and 5; Wang & Kuo 2020. The papers evaluate symmetric tasks, which
``query_fit="shared"`` reproduces. The presets use ``query_fit="separate"``, because retrieval is not symmetric.
"""
