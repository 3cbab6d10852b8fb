"""Presets: configurations that have a name.

Sources: [S] Stankevičius & Lukoševičius 2024, tables 4 and 5; [W] Wang & Kuo 2020. Those of the papers are symmetric
(``query_fit="shared"`` reproduces the papers' tasks); here they have two sides, as retrieval needs.
"""

from __future__ import annotations

from collections.abc import Mapping

from ragembed.config.settings import EmbedderConfig
from ragembed.errors import ConfigError

DEFAULT_PRESET = "minilm"

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


def preset(name: str) -> EmbedderConfig:
    """Return the preset called ``name``; raises :class:`ConfigError` naming those there are."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}: expected one of {', '.join(PRESETS)}")
    return PRESETS[name]
