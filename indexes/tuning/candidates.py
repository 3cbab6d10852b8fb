"""The configurations to compare: ways to make raw vectors, and post-processors with their query fit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from ragembed.config.settings import EmbedderConfig, QueryFit
from ragembed.config.specs import Avg, BertAvg, RandomEmbeddings, Transformer, Words, parse_layers, parse_weighting
from ragembed.config.templates import PLAIN
from ragembed.errors import ConfigError
from ragembed.extractors.build import build_extractor, is_external
from ragembed.models.files import find_model, model_shape
from ragembed.models.packaging import is_static

_WEIGHTINGS = ("uniform", "idf:0.5", "idf")
_MIXES = (0.25, 0.5)
_STEPS = (
    ("center",),
    ("zscore",),
    ("abtt:1",),
    ("abtt:2",),
    ("abtt:5",),
    ("whiten",),
    ("quantile-u",),
    ("quantile-n",),
)
_UNIT = "normalize"


@dataclass(frozen=True, slots=True)
class ChainChoice:
    """Post-processors and their query fit."""

    postprocess: tuple[str, ...]
    query_fit: QueryFit

    @classmethod
    def of(cls, config: EmbedderConfig) -> ChainChoice:
        """Return the post-processors and query fit of ``config``."""
        return cls(config.postprocess, config.query_fit)

    def on(self, config: EmbedderConfig) -> EmbedderConfig:
        """Return ``config`` with these post-processors and this query fit."""
        return config.replace(postprocess=self.postprocess, query_fit=self.query_fit)


def chain_choices(current: EmbedderConfig) -> list[ChainChoice]:
    """Return the chains to compare, the chain of ``current`` first, without equivalent chains.

    Search compares directions only, so a final ``normalize`` changes nothing.
    """
    query_fits: tuple[QueryFit, ...] = ("separate", "shared")
    found = [ChainChoice.of(current), ChainChoice((_UNIT,), current.query_fit)]
    found += [ChainChoice((*steps, _UNIT), query_fit) for steps, query_fit in product(_STEPS, query_fits)]
    distinct: dict[object, ChainChoice] = {}
    for choice in found:
        distinct.setdefault(_meaning(choice), choice)
    return list(distinct.values())


def raw_variants(current: EmbedderConfig) -> list[EmbedderConfig]:
    """Return configurations of the same model that make different raw vectors, ``current`` first.

    All have the post-processors of ``current``. They include a template if the model has a mask token and enough token
    positions for it. Vectors from a server have no variants.
    """
    if is_external(current.model):
        return [current]
    if isinstance(current.extraction, (Words, RandomEmbeddings)):
        return _distinct([current, *(current.replace(weighting=weighting) for weighting in _WEIGHTINGS)], 1)
    files = find_model(current.model, download=False, revision=current.revision)
    if is_static(files.root):
        return _distinct([current, *(current.replace(weighting=weighting) for weighting in _WEIGHTINGS)], 1)
    _, n_layers = model_shape(files.folder)
    plain = EmbedderConfig(
        model=current.model,
        revision=current.revision,
        trust_remote_code=current.trust_remote_code,
        weighting_corpus=current.weighting_corpus,
        postprocess_corpus=current.postprocess_corpus,
        postprocess=current.postprocess,
        query_fit=current.query_fit,
        max_tokens=current.max_tokens,
        dtype=current.dtype,
        pseudo_queries=current.pseudo_queries,
        seed=current.seed,
    )
    layers = _layers(n_layers)
    found = [current, plain.replace(weighting="uniform")]
    found += [plain.replace(layers=chosen, weighting=weighting) for chosen, weighting in product(layers, _WEIGHTINGS)]
    found += [
        plain.replace(extractor=f"bert+avg:w={w}", layers=chosen, weighting=weighting)
        for w, chosen, weighting in product(_MIXES, layers[:2], _WEIGHTINGS[1:])
    ]
    framed = plain.replace(template="t4")
    if _is_possible(framed):
        found += [framed.replace(weighting=weighting) for weighting in _WEIGHTINGS[::2]]
    return _distinct(found, n_layers)


def _is_possible(config: EmbedderConfig) -> bool:
    try:
        build_extractor(config, download=False)
    except ConfigError:
        return False
    return True


def _layers(n_layers: int) -> list[str]:
    """Return the layer choices: last; first and last; last but one; first two and last."""
    if n_layers < 3:
        return ["last", "first+last"]
    return ["last", "first+last", str(n_layers - 1), f"1+2+{n_layers}"]


def _distinct(configs: list[EmbedderConfig], n_layers: int) -> list[EmbedderConfig]:
    found: dict[object, EmbedderConfig] = {}
    for config in configs:
        layers: tuple[int, ...] = ()
        if isinstance(config.extraction, (Transformer, Avg, BertAvg)):
            layers = parse_layers(config.layers, n_layers)
        rest = config.replace(extractor="transformer", layers="last", weighting="uniform")
        found.setdefault((rest, config.extraction, layers, parse_weighting(config.weighting)), config)
    return list(found.values())


def _meaning(choice: ChainChoice) -> tuple[tuple[str, ...], str]:
    steps = choice.postprocess[:-1] if choice.postprocess[-1:] == (_UNIT,) else choice.postprocess
    return steps, choice.query_fit if steps else ""


def describe(config: EmbedderConfig, of: EmbedderConfig) -> str:
    """Return as text the settings of ``config`` that differ from those of ``of``; empty if none differ."""
    names = ("extractor", "layers", "template", "pooling", "special_tokens", "weighting")
    parts = [f"{name} {getattr(config, name)}" for name in names if getattr(config, name) != getattr(of, name)]
    parts = [part.replace(PLAIN, "none") for part in parts]
    if config.postprocess != of.postprocess:
        parts.append(f"postprocess {','.join(config.postprocess) or 'none'}")
    if config.query_fit != of.query_fit:
        parts.append(f"query fit {config.query_fit}")
    return "; ".join(parts)
