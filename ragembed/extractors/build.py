"""Build the extractor for a configuration. Only this module combines the parts."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ragembed.config.settings import DEFAULT_MODEL, EmbedderConfig
from ragembed.config.specs import (
    AUTO,
    DEFAULT_WEIGHTING,
    MASK,
    PLAIN,
    TEXT,
    Avg,
    BertAvg,
    RandomEmbeddings,
    SbertWk,
    Template,
    Transformer,
    Words,
    parse_layers,
    parse_pooling,
    parse_postprocessor,
    parse_server,
)
from ragembed.corpus import Corpus
from ragembed.errors import ConfigError, ModelError
from ragembed.extractors.avg import AvgExtractor, AvgTable
from ragembed.extractors.combined import MixExtractor, RoutedExtractor
from ragembed.extractors.external import ExternalExtractor, VectorSource
from ragembed.extractors.head import build_head
from ragembed.extractors.model import ContextualModel
from ragembed.extractors.protocol import Extractor, Side, Tokenizer
from ragembed.extractors.static import StaticExtractor
from ragembed.extractors.token_tables import EmbeddingTable, RandomTable, WordTable
from ragembed.extractors.transformer import LayerCombination, Pooling, TransformerExtractor
from ragembed.extractors.weighting import TokenWeights, make_weighting
from ragembed.models.files import ModelFiles, find_model, find_tokenizer, tokenizer_sha256
from ragembed.models.packaging import Package, Route, check_supported, has_router, is_packaged, is_static, read_package
from ragembed.models.tokenizer import TextTokenizer, TokenKind

if TYPE_CHECKING:
    from ragembed.extractors.word_vectors import WordVectors

GIVEN = "langchain:"
"""Begins the name of a model whose vectors come from a given object, which is not saved."""

_EXTERNAL = hashlib.sha256(b"external vectors").hexdigest()
"""Stands for the hash of files: a source of vectors has none, and its probe identifies it."""
_LEAST_ROOM = 8
_OWN_MODEL_SETTINGS = (
    *("extractor", "layers", "pooling", "modules", "normalize", "special_tokens", "weighting", "template_tokens"),
    *("biases", "dtype", "revision", "trust_remote_code", "prompt_name", "weighting_corpus", "avg_corpus"),
)
_SPECIAL_TOKENS_DECIDE = frozenset({"mean", "no-mask", "last", "max", "min", "weighted", "mean-sqrt"})
"""Poolings that the setting ``special_tokens`` applies to."""


@dataclass(frozen=True, slots=True)
class Built:
    """An extractor and the properties that follow from its configuration."""

    extractor: Extractor
    tokenizer: Tokenizer
    source_sha256: str  # of the files that config.model names, as far as the extractor uses them
    config: EmbedderConfig  # with the pooling and the prompts of the model's package if they were left open
    max_tokens: int  # of a window
    text_tokens: int  # of a text that fits in a window
    needs_model: bool  # for a fit or an encoding
    encoding_model: ContextualModel | None = None  # runs when texts are encoded, if any model does
    agrees_in_bfloat16: Callable[[], bool] = bool  # bool() is False; whether bfloat16 gives nearly the same vectors
    set_aside: Callable[[], tuple[str, ...]] = tuple  # what the package states and the configuration replaces
    is_external: bool = False  # from a source outside ragembed, so that the tokens are not known


def build_extractor(
    config: EmbedderConfig, *, device: str | None = None, download: bool = True, source: VectorSource | None = None
) -> Built:
    """Return the extractor for ``config``, not fitted; ``source`` makes its vectors if it is given.

    ``device`` is as in :func:`choose_devices`, resolved on first use. A missing model is downloaded if ``download``.
    A post-processor with more directions than the vectors have dimensions is a :class:`ConfigError`.
    """
    if source is not None or is_external(config.model):
        return _external(config, source)
    extraction = config.extraction
    if isinstance(extraction, Words):
        built = _words(config, extraction)
    elif isinstance(extraction, RandomEmbeddings):
        built = _random(config, extraction, download)
    else:
        built = _of_model(config, device, download)
    dim = built.extractor.dim
    for step in config.postprocess:
        name, directions = parse_postprocessor(step)
        if directions is not None and directions > dim:
            raise ConfigError(
                f"post-processor {step!r}: the vectors have {dim} dimensions: expected at most {name}:{dim}"
            )
    return built


def _of_model(config: EmbedderConfig, device: str | None, download: bool) -> Built:
    """Build the extractor of a model, or of the two models that a package has for documents and queries."""
    find = partial(
        find_model,
        config.model,
        download=download,
        revision=config.revision,
        trust_remote_code=config.trust_remote_code,
    )
    documents = find(route="document")
    check_supported(documents.root, trust_remote_code=config.trust_remote_code)
    if not has_router(documents.root) or not isinstance(config.extraction, Transformer):
        return _packaged(config, documents, device)
    if config.pooling != AUTO:
        raise ConfigError(
            f"pooling is {config.pooling!r}: the model in {documents.root} has separate modules for documents and "
            "queries, expected 'auto'"
        )
    queries = find(route="query")
    check_supported(queries.root, "query", trust_remote_code=config.trust_remote_code)
    return _routed(config, _packaged(config, documents, device), _packaged(config, queries, device, "query"))


def _packaged(config: EmbedderConfig, files: ModelFiles, device: str | None, route: Route = "document") -> Built:
    """Build the extractor of one model."""
    static = isinstance(config.extraction, Transformer) and is_static(files.root, route)
    return _static(config, files, route) if static else _Contextual(config, files, device, route).build()


def _routed(config: EmbedderConfig, documents: Built, queries: Built) -> Built:
    """Combine the extractors of documents and of queries."""
    if documents.extractor.dim != queries.extractor.dim:
        raise ModelError(
            f"the model {config.model!r} makes vectors of {documents.extractor.dim} dimensions for documents and of "
            f"{queries.extractor.dim} for queries: expected the same; get the model again"
        )
    resolved = documents.config
    return dataclasses.replace(
        documents,
        extractor=RoutedExtractor(documents.extractor, queries.extractor),
        source_sha256=hashlib.sha256((documents.source_sha256 + queries.source_sha256).encode()).hexdigest(),
        config=config.replace(  # the pooling stays open, because each model has its own
            weighting=resolved.weighting,
            template=resolved.template,
            query_template=resolved.query_template,
            **dict.fromkeys(("document_prompt", "query_prompt", "prompt_name")),
        ),
        needs_model=documents.needs_model or queries.needs_model,
        agrees_in_bfloat16=partial(_all_agree, documents, queries),
    )


def _all_agree(*parts: Built) -> bool:
    return all(part.agrees_in_bfloat16() for part in parts)


def _random(config: EmbedderConfig, extraction: RandomEmbeddings, download: bool) -> Built:
    """Build the extractor ``re``."""
    folder, sha256 = find_tokenizer(config.model, download=download, revision=config.revision)
    tokenizer = TextTokenizer(folder)
    table = RandomTable(config.seed, extraction.dim, extraction.sigma)
    config = _with_weighting(config, DEFAULT_WEIGHTING)
    special = bool(config.special_tokens)
    weights = _weights(config, tokenizer, sha256, special_tokens=special)
    static = StaticExtractor(tokenizer, table, weights, special, {"tokenizer": sha256})
    return _without_model(static, tokenizer, sha256, config)


def _words(config: EmbedderConfig, extraction: Words) -> Built:
    """Build the extractor ``words``."""
    from ragembed.extractors.word_vectors import open_word_vectors
    from ragembed.models.word_tokenizer import WordTokenizer

    if config.model == DEFAULT_MODEL:
        raise ConfigError(
            "the extractor 'words' needs a word-vector file (GloVe or word2vec): give its path as the model "
            "(--model FILE)"
        )
    vectors: WordVectors = open_word_vectors(Path(config.model))
    if extraction.drop >= len(vectors.words):
        raise ConfigError(
            f"drop is {extraction.drop}: expected less than {len(vectors.words)}, the number of words in {config.model}"
        )
    tokenizer = WordTokenizer(vectors.index)
    config = _with_weighting(config, DEFAULT_WEIGHTING)
    weights = _weights(config, tokenizer, vectors.sha256, special_tokens=False)
    poolings = parse_pooling(_own_pooling(config))
    static = StaticExtractor(tokenizer, WordTable(vectors, extraction.drop), weights, False, {}, poolings=poolings)
    return _without_model(static, tokenizer, vectors.sha256, config)


def _without_model(static: StaticExtractor, tokenizer: Tokenizer, sha256: str, config: EmbedderConfig) -> Built:
    """Return a static extractor with its properties."""
    limit = _window(config, tokenizer)
    config = config.replace(pooling=_own_pooling(config))
    return Built(static, tokenizer, sha256, config, limit, limit - tokenizer.special_tokens, needs_model=False)


def _own_pooling(config: EmbedderConfig) -> str:
    """Return the pooling of an extractor without a package."""
    return "mean" if config.pooling == AUTO else config.pooling


def is_external(model: str) -> bool:
    """Return whether ``model`` names vectors that ragembed does not compute."""
    return model.startswith(GIVEN) or parse_server(model) is not None


def _external(config: EmbedderConfig, source: VectorSource | None) -> Built:
    """Build the extractor for vectors of a server or of ``source``."""
    from ragembed.models.token_counting import MAX_TOKENS, EstimatedTokenizer

    _check_external(config)
    tokenizer = EstimatedTokenizer(config.max_tokens or MAX_TOKENS)
    config = _with_prompts(config, Package(), auto=False).replace(weighting="uniform", max_tokens=tokenizer.max_tokens)
    templates = _templates(config)
    documents, queries = templates["documents"], templates["queries"]
    if documents.masks or queries.masks:
        raise ConfigError(f"the template has mask tokens, but {config.model} does not take them: leave out {MASK}")
    framing = max(tokenizer.count(prompt.before + prompt.after) for prompt in (documents, queries))
    room = tokenizer.max_tokens - framing
    if room < _LEAST_ROOM:
        raise ConfigError(
            f"max_tokens is {tokenizer.max_tokens}: the template takes {framing}, and the text needs at least "
            f"{_LEAST_ROOM}; expected at least {framing + _LEAST_ROOM}"
        )
    weights = _weights(config, tokenizer, _EXTERNAL, special_tokens=False)
    source = source or _served(config.model, room)
    name = config.model.removeprefix(GIVEN) if source is None else source.name
    extractor = ExternalExtractor(name, source, documents, queries, tokenizer.max_tokens, config.truncate_dim, weights)
    return Built(
        extractor, tokenizer, _EXTERNAL, config, tokenizer.max_tokens, room, needs_model=False, is_external=True
    )


def _served(model: str, room: int) -> VectorSource | None:
    """Return the client of the server that ``model`` names, or None."""
    if (server := parse_server(model)) is None:
        return None
    from ragembed.models.served import ServedModel

    return ServedModel(server, room)


def _check_external(config: EmbedderConfig) -> None:
    """Raise :class:`ConfigError` for a setting that only a model on this machine has."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        unset = (field.default, "uniform") if field.name == "weighting" else (field.default,)
        if field.name in _OWN_MODEL_SETTINGS and value not in unset:
            raise ConfigError(
                f"{field.name} is {value!r}, but it does not apply to {config.model}, which returns one vector of unit "
                "length for each text: leave it out"
            )


def _window(config: EmbedderConfig, tokenizer: Tokenizer) -> int:
    """Return the number of tokens in a window: the configured number, at most the limit of the model."""
    return min(config.max_tokens or tokenizer.max_tokens, tokenizer.max_tokens)


def _with_weighting(config: EmbedderConfig, weighting: str) -> EmbedderConfig:
    """Return ``config`` with ``weighting`` if it leaves the token weights open."""
    return config.replace(weighting=weighting) if config.weighting == AUTO else config


def _as_packaged(config: EmbedderConfig, files: ModelFiles, route: Route) -> EmbedderConfig:
    """Return ``config`` with the settings of the model's package that it leaves open."""
    auto = config.pooling == AUTO and isinstance(config.extraction, Transformer)
    package = read_package(files.root, route) if auto or config.modules or config.prompt_name else Package()
    measured = files.is_default or not is_packaged(files.root)
    config = _with_weighting(config, DEFAULT_WEIGHTING if measured else "uniform")
    config = _with_prompts(config, package, auto)
    if not isinstance(config.extraction, Transformer):
        return config.replace(pooling=_own_pooling(config))
    if not auto:
        return config
    return config.replace(
        pooling=package.pooling or "mean",
        modules=bool(package.modules) if config.modules is None else config.modules,
        truncate_dim=config.truncate_dim or package.truncate_dim,
    )


def _with_prompts(config: EmbedderConfig, package: Package, auto: bool) -> EmbedderConfig:
    """Return ``config`` with its prompts, or those of ``package`` if ``auto``, as templates."""
    prompts = [config.document_prompt, config.query_prompt]
    if config.prompt_name is not None:
        if config.prompt_name not in package.prompts:
            names = ", ".join(map(repr, package.prompts)) or "none"
            raise ConfigError(f"unknown prompt {config.prompt_name!r}: {config.model} has the prompts {names}")
        prompts = [package.prompts[config.prompt_name]] * 2
    elif config.template != PLAIN or config.query_template is not None:
        return config
    if auto:
        packaged = package.document_prompt, package.query_prompt
        prompts = [own if prompt is None else prompt for prompt, own in zip(prompts, packaged, strict=True)]
    documents, queries = ((prompt or "") + TEXT for prompt in prompts)
    return config.replace(
        template=documents,
        query_template=None if queries == documents else queries,
        document_prompt=None,
        query_prompt=None,
        prompt_name=None,
    )


def _set_aside(config: EmbedderConfig, root: Path) -> tuple[str, ...]:
    """Return what the model's package states and ``config`` replaces, such as "the pooling cls"."""
    if not isinstance(config.extraction, Transformer) or not is_packaged(root):
        return ()
    try:
        package = read_package(root)
    except ModelError:
        return ("a package that ragembed does not compute",)
    prompts = (package.document_prompt + TEXT, package.query_prompt + TEXT)
    used = (config.template, config.template if config.query_template is None else config.query_template)
    statements = {
        f"the pooling {package.pooling!r}": package.pooling not in (None, config.pooling),
        f"the modules {', '.join(module.name for module in package.modules)}": package.modules and not config.modules,
        "the prompts " + " and ".join(repr(prompt) for prompt in dict.fromkeys(prompts)): prompts != (TEXT, TEXT)
        and prompts != used,
        f"the prompt {package.unused_prompt!r} for documents": package.unused_prompt and config.template == PLAIN,
    }
    return tuple(name for name, replaced in statements.items() if replaced)


def _static(config: EmbedderConfig, files: ModelFiles, route: Route) -> Built:
    """Build the extractor of a static model, which has one vector per token."""
    if config.pooling not in (AUTO, "mean"):
        raise ConfigError(
            f"pooling is {config.pooling!r}: the model in {files.root} has one vector per token, expected 'mean'"
        )
    config = _as_packaged(config.replace(pooling=AUTO), files, route)
    package = read_package(files.root, route)
    tokenizer = TextTokenizer(files.tokenizer, without_special_tokens=True)
    sha256 = tokenizer_sha256(files.tokenizer)
    left_out = frozenset() if (files.root / "modules.json").is_file() else tokenizer.unknown_ids
    table = EmbeddingTable(files.folder, files.sha256, left_out)
    head = build_head(table.dim, package.modules, normalize=config.normalize, truncate_dim=config.truncate_dim)
    weights = _weights(config, tokenizer, sha256, special_tokens=False)
    prompts = {side: template.before for side, template in _templates(config).items()}
    static = StaticExtractor(tokenizer, table, weights, False, {"tokenizer": sha256}, head, prompts)
    limit = _window(config, tokenizer)
    set_aside = partial(_set_aside, config, files.root)
    return Built(static, tokenizer, files.sha256, config, limit, limit, needs_model=False, set_aside=set_aside)


def _templates(config: EmbedderConfig) -> dict[Side, Template]:
    """Return the template of each side."""
    queries = config.query_template
    return {
        "documents": Template.parse(config.template),
        "queries": Template.parse(config.template if queries is None else queries),
    }


class _Contextual:
    """Builder of the extractors that need the hidden states of a model."""

    def __init__(self, config: EmbedderConfig, files: ModelFiles, device: str | None, route: Route) -> None:
        self._config = _as_packaged(config, files, route)
        self._route = route
        self._files = files
        self._device = device
        self._tokenizer = TextTokenizer(files.tokenizer, files.folder)
        self._tokenizer_sha256 = tokenizer_sha256(files.tokenizer)
        self._max_tokens = _window(self._config, self._tokenizer)

    def build(self) -> Built:
        extraction = self._config.extraction
        model = self._model(_templates(self._config))
        extractor: Extractor
        if isinstance(extraction, Avg):
            extractor = self._avg(extraction.unseen)
            contextual = self._transformer(extractor.model)
        elif isinstance(extraction, BertAvg):
            contextual = self._transformer(model)
            extractor = MixExtractor(contextual, self._avg(extraction.unseen), extraction.w)
        elif isinstance(extraction, SbertWk):
            extraction.check(model.n_layers)
            fused = LayerCombination(extraction.layers(model.n_layers), extraction)
            extractor = contextual = self._transformer(model, fused)
        else:
            extractor = contextual = self._transformer(model, with_head=True)
        return Built(
            extractor,
            self._tokenizer,
            self._files.sha256,
            self._config,
            self._max_tokens,
            model.rooms["documents"],
            needs_model=True,
            encoding_model=None if isinstance(extractor, AvgExtractor) else model,
            agrees_in_bfloat16=partial(bool, True) if self._files.is_default else contextual.agrees_in_bfloat16,
            set_aside=partial(_set_aside, self._config, self._files.root),
        )

    def _model(self, templates: dict[Side, Template]) -> ContextualModel:
        """Return the model with the templates of both sides."""
        dtype = self._config.dtype
        return ContextualModel(self._files, self._tokenizer, templates, self._max_tokens, dtype, self._device)

    def _transformer(
        self, model: ContextualModel, combination: LayerCombination | None = None, *, with_head: bool = False
    ) -> TransformerExtractor:
        """Build an extractor for contextual token vectors, by default the means of the configured layers.

        Raises :class:`ConfigError` if the pooling does not fit the model or the template.
        """
        config = self._config
        poolings = parse_pooling(config.pooling)
        special = config.special_tokens is not False or not set(poolings) & _SPECIAL_TOKENS_DECIDE
        frames = list(model.frames.values())
        if "masks" in poolings and not all(frame.has_masks for frame in frames):
            raise ConfigError(
                "pooling 'masks' needs a template with mask tokens: give one, as in 'This sentence: \"[X]\" means [M].'"
            )
        if "cls" in poolings and not all(TokenKind.SPECIAL in frame.prefix_kinds[:1] for frame in frames):
            raise ConfigError(
                f"pooling 'cls' needs a model whose texts begin with a special token, and {config.model} has none: "
                "choose another pooling"
            )
        common = (
            {number for frame in frames for number in (*frame.prefix, *frame.suffix)}
            if config.template_tokens == "common"
            else set()
        )
        pooled = special and not set(poolings) <= {"masks", "text"}
        weights = _weights(config, self._tokenizer, self._tokenizer_sha256, common, special_tokens=pooled)
        head = None
        if with_head:
            modules = read_package(self._files.root, self._route).modules if config.modules else ()
            dim, shorter = model.dim * len(poolings), config.truncate_dim
            head = build_head(dim, modules, normalize=config.normalize, truncate_dim=shorter)
        combination = combination or LayerCombination(parse_layers(config.layers, model.n_layers))
        return TransformerExtractor(model, combination, Pooling(config.pooling, special), weights, head)

    def _avg(self, unseen: str) -> AvgExtractor:
        """Build the extractor ``avg``."""
        config = self._config
        plain = Template.parse(PLAIN)
        model = self._model({"documents": plain, "queries": plain})
        table = AvgTable(self._tokenizer.vocabulary_size, model.dim, unseen)
        special = bool(config.special_tokens)
        weights = _weights(config, self._tokenizer, self._tokenizer_sha256, special_tokens=special)
        corpus = None if config.avg_corpus is None else Corpus(Path(config.avg_corpus))
        about = {"tokenizer": self._tokenizer_sha256}
        layers = parse_layers(config.layers, model.n_layers)
        return AvgExtractor(model, layers, table, weights, special, about, corpus)


def _weights(
    config: EmbedderConfig, tokenizer: Tokenizer, sha256: str, common: Iterable[int] = (), *, special_tokens: bool
) -> TokenWeights:
    """Return the token weights for ``config``, not fitted; ``special_tokens`` says whether they take part."""
    corpus = None if config.weighting_corpus is None else Corpus(Path(config.weighting_corpus))
    weighting = make_weighting(config.weighting, tokenizer.vocabulary, config.biases)
    return TokenWeights(weighting, tokenizer, sha256, common, corpus, special_tokens=special_tokens)
