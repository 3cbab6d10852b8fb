"""Several extractors at once: what they have in common, a model's forward pass above all, is done once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ragembed.corpus import Corpus
from ragembed.extractors.avg import AvgExtractor, TokenMeans
from ragembed.extractors.forward import Consumer
from ragembed.extractors.mix import MixExtractor
from ragembed.extractors.model import ContextualModel
from ragembed.extractors.protocol import Extractor, Floats, Side
from ragembed.extractors.static import StaticExtractor
from ragembed.extractors.token_weights import Taker, TextCounter, TokenWeights, fit_streams
from ragembed.extractors.transformer import TransformerExtractor

Made = TypeVar("Made")


def fit_together(extractors: Sequence[Extractor], texts: Iterable[str]) -> int:
    """Fit each of ``extractors`` on ``texts``, as its ``fit`` does, in one pass; return how many texts there are."""
    counters: dict[tuple[str, Corpus | None], TextCounter] = {}
    means: dict[tuple[str, tuple[int, ...], Corpus | None], TokenMeans] = {}
    models: dict[tuple[str, Corpus | None], ContextualModel] = {}
    consumers: dict[tuple[str, Corpus | None], list[Consumer]] = defaultdict(list)
    for weights in _each(extractors, _weights):
        counters.setdefault(_counts_key(weights), weights.counter())
    for avg in _each(extractors, _averaged):
        key = _means_key(avg)
        if key not in means:
            means[key] = avg.consumer()
            models[key[0], key[2]] = avg.model
            consumers[key[0], key[2]].append(means[key])
    takers = [Taker(corpus, counter.add) for (_, corpus), counter in counters.items()]
    takers += [_forward_taker(models[key], key[1], consumers[key]) for key in models]
    number = fit_streams(texts, takers)
    for weights in _each(extractors, _weights):
        weights.take(counters[_counts_key(weights)].statistics())
    for avg in _each(extractors, _averaged):
        avg.take(means[_means_key(avg)])
    return number


def encode_together(extractors: Sequence[Extractor], texts: Sequence[str], side: Side) -> list[Floats]:
    """Return the raw vectors that each of ``extractors`` makes of ``texts``, as its ``encode`` does."""
    contextual = _each(extractors, _contextual)
    groups: dict[str, list[TransformerExtractor]] = defaultdict(list)
    for extractor in contextual:
        groups[_model_key(extractor.model)].append(extractor)
    vectors: dict[int, Floats] = {}
    for group in groups.values():
        pooled = [extractor.consumer(len(texts)) for extractor in group]
        group[0].model.forward(side).run(texts, pooled)
        vectors.update({id(extractor): one.vectors() for extractor, one in zip(group, pooled, strict=True)})
    return [_finish(extractor, vectors, texts, side) for extractor in extractors]


def _finish(extractor: Extractor, contextual: dict[int, Floats], texts: Sequence[str], side: Side) -> Floats:
    if isinstance(extractor, MixExtractor):
        return extractor.mixed(contextual[id(extractor.contextual)], extractor.static.encode(texts, side))
    return contextual[id(extractor)] if id(extractor) in contextual else extractor.encode(texts, side)


def _forward_taker(model: ContextualModel, corpus: Corpus | None, consumers: Sequence[Consumer]) -> Taker:
    forward = model.forward("documents")
    return Taker(corpus, lambda block: forward.run(block, consumers))


def _each(extractors: Iterable[Extractor], part: Callable[[Extractor], Sequence[Made]]) -> list[Made]:
    return [made for extractor in extractors for made in part(extractor)]


def _weights(extractor: Extractor) -> Sequence[TokenWeights]:
    if isinstance(extractor, MixExtractor):
        return extractor.contextual.weights, extractor.static.weights
    if isinstance(extractor, (TransformerExtractor, AvgExtractor, StaticExtractor)):
        return (extractor.weights,)
    raise TypeError(f"an extractor of unknown kind: {type(extractor).__name__}")


def _averaged(extractor: Extractor) -> Sequence[AvgExtractor]:
    if isinstance(extractor, MixExtractor):
        return (extractor.static,)
    return (extractor,) if isinstance(extractor, AvgExtractor) else ()


def _contextual(extractor: Extractor) -> Sequence[TransformerExtractor]:
    if isinstance(extractor, MixExtractor):
        return (extractor.contextual,)
    return (extractor,) if isinstance(extractor, TransformerExtractor) else ()


def _counts_key(weights: TokenWeights) -> tuple[str, Corpus | None]:
    return weights.tokenizer_sha256, weights.corpus


def _means_key(avg: AvgExtractor) -> tuple[str, tuple[int, ...], Corpus | None]:
    return _model_key(avg.model), avg.layers, avg.corpus


def _model_key(model: ContextualModel) -> str:
    return json.dumps(model.config, sort_keys=True)
