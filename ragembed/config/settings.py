"""The configuration of an embedder: everything that is chosen, as opposed to fitted."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ragembed.checks import one_of
from ragembed.config.specs import (
    AUTO,
    DEFAULT_WEIGHTING,
    WORD_POOLINGS,
    Avg,
    BertAvg,
    Extraction,
    RandomEmbeddings,
    Transformer,
    Words,
    parse_extractor,
    parse_layers,
    parse_pooling,
    parse_postprocessor,
    parse_server,
    parse_weighting,
)
from ragembed.config.templates import PLAIN, Template
from ragembed.errors import ConfigError

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_PRESET = "minilm"

QueryFit = Literal["separate", "shared"]
Dtype = Literal["auto", "float32", "bfloat16", "int8", "mixed"]

_STATIC = (Avg, RandomEmbeddings, Words)
_PROMPTS = ("prompt_name", "document_prompt", "query_prompt")
_CONTEXTUAL_ONLY = ("template", "query_template", "pooling", "trust_remote_code", *_PROMPTS)


@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """The settings of an :class:`ragembed.Embedder`: everything that is chosen, as opposed to fitted.

    The object is immutable. A setting that the extractor or the weighting does not use must keep its default value; any
    other value raises an error.

    Parameters
    ----------
    extractor : str, default "transformer"
        The source of the token vectors. ``transformer``: hidden states of a model. ``avg``: one static vector per
        token, the mean of its hidden states over the corpus. ``bert+avg[:w=0.5]``: a mixture of both.
        ``re[:dim=768,sigma=0.1]``: random vectors. ``words[:drop=0]``: a word-vector file.
        ``sbert-wk[:window=2,start_layer=4,…]``: SBERT-WK.
    model : str
        A Hugging Face model id, or a folder with ``config.json``, ``tokenizer.json`` and ``model.safetensors``. The
        extractor ``re`` needs only the tokenizer. For ``words``, the path of the word-vector file. A model
        behind a server is ``openai:NAME``, ``ollama:NAME`` or ``http://HOST/v1#NAME``. The default is
        ``sentence-transformers/all-MiniLM-L6-v2``.
    layers : str, default "last"
        The hidden layers to average: ``"last"``, or numbers joined by ``+``, such as ``"1+6"``. Layer 0 is the input of
        the blocks and -1 the word-embedding table. ``"first+last"`` means layers 1 and L.
    revision : str, optional
        The branch, tag or commit of a model on the Hugging Face hub. The default is the current version.
    trust_remote_code : bool, default False
        Whether a model may run the code in its own files. Read the code first. It is never run for a store that you
        open, unless you set ``RAGEMBED_TRUST_REMOTE_CODE=1``.
    template : str, default "[X]"
        The text that the model reads. ``[X]`` stands for the text and ``[M]`` for a mask token. The names ``t0`` to
        ``t4`` stand for predefined templates.
    query_template : str, optional
        The template for queries. The default is ``template``.
    document_prompt, query_prompt : str, optional
        The text before each document or query, another way to write the templates ``"prompt[X]"``. The default is the
        prompt of the model's package if ``pooling`` is ``"auto"``.
    prompt_name : str, optional
        The name of a prompt of the model's package, to use before documents and queries.
    pooling : str, default "auto"
        The tokens to average: ``mean`` (all), ``masks``, ``no-mask``, ``text`` (the tokens of ``[X]``),
        ``after-prompt`` (the tokens after a prompt), ``cls`` (the first token), ``last`` (the last token), ``max`` (the
        largest value of each dimension), ``min`` (the smallest), ``weighted`` (weights by position) or ``mean-sqrt``
        (the sum divided by the root of the number). Several, joined by ``+``, make one longer vector; ``min+mean+max``
        is the p-mean of Rücklé et al. 2018. ``auto`` uses the model as its sentence-transformers package says: pooling,
        prompts and modules; without a package it is ``mean``. Any other value uses the transformer alone. Word vectors
        have only ``mean``, ``min`` and ``max``.
    modules : bool, optional
        Whether to apply the modules that the model's package has after the pooling, such as ``Dense``. The default is
        True only if ``pooling`` is ``"auto"``.
    normalize : bool, default False
        Whether to scale the vectors of the model to length 1 before the post-processors. A final ``Normalize`` in the
        model's package is left out otherwise, because it changes no cosine.
    truncate_dim : int, optional
        The number of leading dimensions of the model's vectors to keep, for models that are trained for it. The default
        is that of the model's package if ``pooling`` is ``"auto"``, otherwise all.
    special_tokens : bool, optional
        Whether to average ``[CLS]``, ``[SEP]`` and other special tokens too. By default they are included in the
        vectors of a model and excluded from static vectors. The setting has no effect with ``masks``, ``text`` and
        ``cls``.
    weighting : str, default "auto"
        The token weights. ``auto`` is ``idf:0.25`` for the default model and for models without a package, otherwise
        ``uniform``, as the authors of the model trained it. ``uniform``; ``idf``; ``idf:s``, a mixture of ``s`` parts
        idf weights and ``1 - s`` parts uniform weights, each scaled to sum to 1 over the text; ``-biases``, which
        excludes frequent tokens, punctuation and subwords; ``sif[:a]``; or ``usif``.
    template_tokens : {"common", "counted"}, default "common"
        ``"common"`` counts the tokens of the template in every text, so that their idf is 0. ``"counted"`` uses their
        document frequency in the texts themselves.
    biases : tuple of str, optional
        The frequent tokens that ``-biases`` excludes. The default is the list of the PromptBERT program.
    weighting_corpus : str, optional
        Path of a UTF-8 file with one text per line, on which token weights are fitted.
        The default is the texts given to :meth:`ragembed.Embedder.fit`.
    avg_corpus : str, optional
        Such a file for the static vectors of ``avg`` and ``bert+avg``. The default is the same as above.
    postprocess_corpus : str, optional
        Such a file for the post-processors. The default is the same as above.
    postprocess : tuple of str, default ("normalize",)
        The chain of post-processors, in order: ``center``, ``zscore``, ``quantile-u``, ``quantile-n``, ``robust``,
        ``whiten[:k]``, ``abtt[:d]``, ``common[:m]``, ``common-weighted[:m]``, ``normalize``.
    query_fit : {"separate", "shared"}, default "separate"
        ``"separate"`` fits the post-processors for queries on pseudo-queries. ``"shared"`` uses the fit on documents
        for both, which suits symmetric tasks.
    max_tokens : int, optional
        The size of the model's window in tokens, special tokens included; at least 8. The default is the limit of the
        model. A longer text is read in several windows, so no part of it is lost.
    dtype : {"auto", "float32", "bfloat16", "int8", "mixed"}, default "auto"
        The arithmetic for documents. ``"mixed"`` is bfloat16, and float32 when a run encodes only a few documents.
        ``"int8"`` is faster than bfloat16 and less exact; it needs PyTorch, a CPU with AVX512-VNNI, and a model that is
        a BERT or one of its relatives.
        ``"auto"`` is ``"mixed"`` on hardware that multiplies bfloat16 natively if the vectors of the model then keep a
        cosine of at least 0.9995 to those in float32, which the fit measures; otherwise ``"float32"``. Queries always
        use float32.
    pseudo_queries : int, default 2000
        The maximum number of spans of the corpus that stand in for queries in a separate query fit.
    seed : int, default 0
        The seed of random embeddings, pseudo-queries and the sample for post-processors.

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

    extractor: str = "transformer"
    model: str = DEFAULT_MODEL
    revision: str | None = None
    trust_remote_code: bool = False
    layers: str = "last"
    template: str = PLAIN
    query_template: str | None = None
    document_prompt: str | None = None
    query_prompt: str | None = None
    prompt_name: str | None = None
    pooling: str = AUTO
    modules: bool | None = None
    normalize: bool = False
    truncate_dim: int | None = None
    special_tokens: bool | None = None
    weighting: str = AUTO
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
        parse_pooling(self.pooling)
        one_of("template_tokens", self.template_tokens, ("common", "counted"))
        one_of("query_fit", self.query_fit, ("separate", "shared"))
        one_of("dtype", self.dtype, ("auto", "float32", "bfloat16", "int8", "mixed"))
        if not self.model:
            raise ConfigError("model is empty: give a Hugging Face model id or a folder")
        parse_server(self.model)
        if self.max_tokens is not None and self.max_tokens < 8:
            raise ConfigError(f"max_tokens is {self.max_tokens}: expected at least 8")
        if self.truncate_dim is not None and self.truncate_dim < 1:
            raise ConfigError(f"truncate_dim is {self.truncate_dim}: expected at least 1")
        if self.pseudo_queries < 1:
            raise ConfigError(f"pseudo_queries is {self.pseudo_queries}: expected at least 1")
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

        Raises
        ------
        ragembed.errors.ConfigError
            If the preset, a field or a value is not accepted.

        Examples
        --------
        >>> from ragembed import EmbedderConfig
        >>> EmbedderConfig.from_preset("t4", layers="1+6").layers
        '1+6'
        """
        if name not in PRESETS:
            raise ConfigError(f"unknown preset {name!r}: expected one of {', '.join(PRESETS)}")
        return PRESETS[name].replace(**changes)

    def replace(self, **changes: Any) -> EmbedderConfig:
        """Return a copy with some settings changed.

        Parameters
        ----------
        **changes
            Fields with their new values.

        Returns
        -------
        EmbedderConfig
            The copy.

        Raises
        ------
        ragembed.errors.ConfigError
            If a field or a value is not accepted.

        Examples
        --------
        >>> from ragembed import EmbedderConfig
        >>> EmbedderConfig().replace(seed=7).seed
        7
        """
        _check_names(changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the values of all fields by name, as JSON values; tuples become lists.

        Examples
        --------
        >>> from ragembed import EmbedderConfig
        >>> EmbedderConfig().to_dict()["postprocess"]
        ['normalize']
        """
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self._fields().items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EmbedderConfig:
        """Return the configuration for the output of :meth:`to_dict`.

        Parameters
        ----------
        fields : mapping of str to object
            Values of fields by name. Missing fields get their default values.

        Returns
        -------
        EmbedderConfig
            The configuration.

        Raises
        ------
        ragembed.errors.ConfigError
            If a field or a value is not accepted.

        Examples
        --------
        >>> from ragembed import EmbedderConfig
        >>> EmbedderConfig.from_dict({"extractor": "re", "seed": 7}).seed
        7
        """
        _check_names(fields)
        return cls(**fields)

    def to_json(self) -> str:
        """Return all fields as a JSON object.

        Returns
        -------
        str
            The object, indented.

        Examples
        --------
        >>> import json
        >>> from ragembed import EmbedderConfig
        >>> json.loads(EmbedderConfig().to_json())["seed"]
        0
        """
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> EmbedderConfig:
        """Return the configuration for a JSON object.

        Parameters
        ----------
        text : str
            A JSON object with some or all fields. Missing fields get their default values.

        Returns
        -------
        EmbedderConfig
            The configuration.

        Raises
        ------
        ragembed.errors.ConfigError
            If ``text`` is not a JSON object, or a field or a value is not accepted.

        Examples
        --------
        >>> from ragembed import EmbedderConfig
        >>> EmbedderConfig.from_json('{"seed": 7}').seed
        7
        """
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the configuration is not valid JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ConfigError(f"the configuration is of type {type(fields).__name__}: expected a JSON object")
        return cls.from_dict(fields)

    def to_toml(self) -> str:
        """Return all fields as TOML.

        Returns
        -------
        str
            The TOML document. Fields that are None are left out, because TOML has no null value.

        Examples
        --------
        >>> from ragembed import EmbedderConfig
        >>> EmbedderConfig.from_toml(EmbedderConfig().to_toml()) == EmbedderConfig()
        True
        """
        import tomlkit

        return tomlkit.dumps({name: value for name, value in self.to_dict().items() if value is not None})

    @classmethod
    def from_toml(cls, text: str) -> EmbedderConfig:
        """Return the configuration for a TOML document.

        Parameters
        ----------
        text : str
            TOML with some or all fields. Missing fields get their default values.

        Returns
        -------
        EmbedderConfig
            The configuration.

        Raises
        ------
        ragembed.errors.ConfigError
            If ``text`` is not valid TOML, or a field or a value is not accepted.

        Examples
        --------
        >>> from ragembed import EmbedderConfig
        >>> EmbedderConfig.from_toml("seed = 7").seed
        7
        """
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
        """Raise for a value of the wrong type; lists become tuples."""
        for name in ("postprocess", "biases"):
            value = getattr(self, name)
            if isinstance(value, (list, tuple)):
                object.__setattr__(self, name, tuple(value))
        for name, value in self._fields().items():
            expected = _TYPES[name]
            strings = all(isinstance(part, str) for part in value) if isinstance(value, tuple) else True
            unexpected_bool = isinstance(value, bool) and bool not in expected
            if not isinstance(value, expected) or unexpected_bool or not strings:
                shown = " or ".join(_TYPE_NAMES[kind] for kind in expected)
                raise ConfigError(f"{name} is {value!r}: expected {shown}")

    def _check_use(self) -> None:
        """Raise for a setting that the extractor or the weighting does not use."""
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
        self._check_prompts()

    def _check_prompts(self) -> None:
        """Raise for two settings that state the same text."""
        given = [name for name in _PROMPTS if getattr(self, name) is not None]
        templated = self.template != PLAIN or self.query_template is not None
        if given and (templated or ("prompt_name" in given and len(given) > 1)):
            other = "template" if templated else given[0]
            raise ConfigError(f"{given[-1]} cannot be combined with {other}: give only one of them")


_TYPES: Mapping[str, tuple[type, ...]] = {
    "extractor": (str,),
    "model": (str,),
    "revision": (str, type(None)),
    "trust_remote_code": (bool,),
    "layers": (str,),
    "template": (str,),
    "query_template": (str, type(None)),
    "document_prompt": (str, type(None)),
    "query_prompt": (str, type(None)),
    "prompt_name": (str, type(None)),
    "pooling": (str,),
    "modules": (bool, type(None)),
    "normalize": (bool,),
    "truncate_dim": (int, type(None)),
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
    """Raise :class:`ConfigError` for a name that is not a field."""
    known = [field.name for field in dataclasses.fields(EmbedderConfig)]
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise ConfigError(f"unknown setting {unknown[0]!r}: expected one of {', '.join(known)}")


PRESETS: Mapping[str, EmbedderConfig] = {
    "minilm": EmbedderConfig(),
    "t4": EmbedderConfig(template="t4", pooling="mean", weighting="idf", postprocess=("quantile-u",)),
    "t0-mask": EmbedderConfig(template="t0", pooling="masks", weighting="uniform", postprocess=("normalize",)),
    "bert": EmbedderConfig(layers="first+last", pooling="mean", weighting="uniform", postprocess=("normalize",)),
    "bert+avg": EmbedderConfig(
        extractor="bert+avg", layers="first+last", pooling="mean", weighting="idf", postprocess=("quantile-u",)
    ),
    "avg": EmbedderConfig(extractor="avg", layers="first+last", weighting="idf", postprocess=("zscore",)),
    "re": EmbedderConfig(extractor="re", weighting="idf", postprocess=("normalize",)),
    "sbert-wk": EmbedderConfig(extractor="sbert-wk", pooling="mean", weighting="uniform", postprocess=("normalize",)),
    "b2s-100": EmbedderConfig(extractor="words:drop=100", weighting="uniform", postprocess=("normalize",)),
}
"""Named configurations.

Sources: Stankevičius & Lukoševičius 2024, tables 4 and 5; Wang & Kuo 2020. The papers evaluate symmetric tasks, which
``query_fit="shared"`` reproduces. The presets use ``query_fit="separate"``, because retrieval is not symmetric.
"""
