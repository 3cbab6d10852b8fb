"""Fit and encode with several extractors at once, so that common work such as a forward pass is done once."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import Corpus, blocks
from ragembed.errors import ConfigError
from ragembed.extractors.avg import AvgExtractor, TokenMeans
from ragembed.extractors.combined import MixExtractor
from ragembed.extractors.forward import Consumer
from ragembed.extractors.model import ContextualModel
from ragembed.extractors.protocol import Extractor, Progress, Side
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.extractors.weighting import TokenCounter, TokenStatistics, TokenWeights
from ragembed.tensor_map import with_prefix
from ragembed.types import Floats, State

_BLOCK = 2048
_CountsKey: TypeAlias = "tuple[str, Corpus | None]"
_MeansKey: TypeAlias = "tuple[str, tuple[int, ...], Corpus | None]"
_SameVectors: TypeAlias = "tuple[str, bytes, int]"


class SharedFit:
    """The data for the fit of several extractors, gathered in one pass over the texts or added up from several parts.

    Extractors with the same tokenizer share token counts, and extractors with the same model share means of token
    vectors.
    """

    def __init__(self, extractors: Sequence[Extractor]) -> None:
        self._extractors = extractors
        self._counts: dict[_CountsKey, TokenStatistics] = {}
        self._means: dict[_MeansKey, TokenMeans] = {}
        self._models: dict[_MeansKey, ContextualModel] = {}
        for avg in _averaged(extractors):
            self._means.setdefault(_means_key(avg), avg.consumer())
            self._models.setdefault(_means_key(avg), avg.model)

    def gather(self, texts: Iterable[str] | None, progress: Progress | None = None, *, corpora: bool = True) -> int:
        """Read ``texts``, unless they are None, and the corpora of the configurations if ``corpora``, once each.

        Returns the number of texts.
        """

        def is_read(corpus: Corpus | None) -> bool:
            return texts is not None if corpus is None else corpora

        takers: dict[Corpus | None, list[Callable[[Sequence[str]], object]]] = defaultdict(list)
        counters: dict[_CountsKey, TokenCounter] = {}
        for weights in _weights(self._extractors):
            key = _counts_key(weights)
            if is_read(weights.corpus) and key not in counters:
                counters[key] = weights.counter()
                takers[weights.corpus].append(counters[key].add)
        consumers: dict[tuple[str, Corpus | None], list[Consumer]] = {}
        for means_key, means in self._means.items():
            name, _, corpus = means_key
            if not is_read(corpus):
                continue
            if (name, corpus) not in consumers:
                consumers[name, corpus] = []
                forward = self._models[means_key].forward("documents")
                takers[corpus].append(partial(forward.run, consumers=consumers[name, corpus]))
            consumers[name, corpus].append(means)
        # The named corpora come first, so that an error in one of them shows before the long pass over the texts.
        for corpus in (*(corpus for corpus in takers if corpus is not None), None):
            number = _read((texts or ()) if corpus is None else corpus, takers[corpus], progress)
            if not number and is_read(corpus):
                where = "the corpus is empty" if corpus is None else f"the corpus {corpus.path} is empty"
                raise ConfigError(f"cannot fit without texts: {where}, expected at least one text")
        for key, counter in counters.items():
            self._add_counts(key, counter.statistics())
        return number

    def _add_counts(self, key: _CountsKey, statistics: TokenStatistics) -> None:
        """Add token counts."""
        self._counts[key] = self._counts[key] + statistics if key in self._counts else statistics

    def part(self) -> State:
        """Return the data gathered from texts, without that from corpora of the configurations, for :meth:`add`."""
        state: State = {}
        for i, key in enumerate(self._text_counts()):
            statistics = self._counts[key]
            state[f"counts.{i}.texts"] = np.array([statistics.texts], dtype=np.int64)
            state[f"counts.{i}.document_frequency"] = statistics.document_frequency
            state[f"counts.{i}.occurrences"] = statistics.occurrences
        for i, means in enumerate(self._text_means()):
            state.update({f"means.{i}.{name}": array for name, array in means.state().items()})
        return state

    def add(self, part: Mapping[str, NDArray[Any]]) -> None:
        """Add the :meth:`part` of another object whose extractors have the same settings."""
        for i, key in enumerate(self._text_counts()):
            counts = with_prefix(part, f"counts.{i}.")
            texts = int(counts["texts"][0])
            self._add_counts(key, TokenStatistics(texts, counts["document_frequency"], counts["occurrences"]))
        for i, means in enumerate(self._text_means()):
            means.add(with_prefix(part, f"means.{i}."))

    def _text_counts(self) -> list[_CountsKey]:
        """Return the keys of the counts that come from texts."""
        keys = dict.fromkeys(_counts_key(weights) for weights in _weights(self._extractors))
        return [key for key in keys if key[1] is None]

    def _text_means(self) -> list[TokenMeans]:
        """Return the means that come from texts."""
        return [means for (_, _, corpus), means in self._means.items() if corpus is None]

    def finish(self) -> None:
        """Fit the extractors on the gathered data."""
        for weights in _weights(self._extractors):
            weights.take(self._counts[_counts_key(weights)])
        fitted: dict[tuple[_MeansKey, str], AvgExtractor] = {}
        for avg in _averaged(self._extractors):
            first = fitted.setdefault((_means_key(avg), avg.averages.unseen), avg)
            if first is avg:
                avg.take(self._means[_means_key(avg)])
            else:
                avg.averages.share(first.averages)


def _read(texts: Iterable[str], takers: Sequence[Callable[[Sequence[str]], object]], progress: Progress | None) -> int:
    """Pass ``texts`` on to each of ``takers`` in blocks; return the number of texts."""
    number = 0
    for block in blocks(texts, _BLOCK):
        number += len(block)
        for take in takers:
            take(block)
        if progress is not None:
            progress(len(block))
    return number


def fit_together(extractors: Sequence[Extractor], texts: Iterable[str], progress: Progress | None = None) -> int:
    """Fit all ``extractors`` on ``texts`` in one pass; return the number of texts; see :meth:`SharedFit.gather`."""
    fit = SharedFit(extractors)
    number = fit.gather(texts, progress)
    fit.finish()
    return number


def encode_together(
    extractors: Sequence[Extractor], texts: Sequence[str], side: Side, progress: Progress | None = None
) -> list[Floats]:
    """Return the raw vectors of ``texts`` from each of ``extractors``, with shared forward passes.

    ``progress`` is called with the number of texts completed: once per text and model, and once per text and extractor
    without a model; :func:`passes` returns how often that is.
    """
    groups: dict[str, dict[_SameVectors, TransformerExtractor]] = defaultdict(dict)
    for extractor in _contextual(extractors):
        extractor.weights.require_fitted()
        groups[_model_key(extractor.model)].setdefault(_same_vectors(extractor), extractor)
    vectors: dict[_SameVectors, Floats] = {}
    for group in groups.values():
        pooled = {key: extractor.consumer(len(texts)) for key, extractor in group.items()}
        model = next(iter(group.values())).model
        model.forward(side).run(texts, list(pooled.values()), progress)
        vectors.update({key: one.vectors() for key, one in pooled.items()})
    for mixed in extractors:
        # Mixtures with other parts share their static vectors.
        if isinstance(mixed, MixExtractor) and _same_vectors(mixed.static) not in vectors:
            vectors[_same_vectors(mixed.static)] = mixed.static.encode(texts, side)
    return [_finish(extractor, vectors, texts, side, progress) for extractor in extractors]


def passes(extractors: Sequence[Extractor]) -> int:
    """Return how often :func:`encode_together` goes through the texts."""
    models = {_model_key(extractor.model) for extractor in _contextual(extractors)}
    return len(models) + len(extractors) - len(_contextual(extractors))


def _finish(
    extractor: Extractor,
    vectors: Mapping[_SameVectors, Floats],
    texts: Sequence[str],
    side: Side,
    progress: Progress | None,
) -> Floats:
    """Return the raw vectors of one extractor, given those of the contextual extractors and of parts of mixtures."""
    if isinstance(extractor, MixExtractor):
        return extractor.mixed(vectors[_same_vectors(extractor.contextual)], vectors[_same_vectors(extractor.static)])
    if isinstance(extractor, TransformerExtractor):
        return vectors[_same_vectors(extractor)]
    return extractor.encode(texts, side, progress)


def _same_vectors(extractor: TransformerExtractor | AvgExtractor) -> _SameVectors:
    """Return a key of everything that determines the vectors: the settings, the token weights, the static vectors."""
    weights = extractor.weights.table
    table = id(extractor.averages.fitted()[0]) if isinstance(extractor, AvgExtractor) else 0
    settings = json.dumps(extractor.config, sort_keys=True)
    return settings, b"" if weights is None else hashlib.sha256(weights.tobytes()).digest(), table


def _weights(extractors: Iterable[Extractor]) -> list[TokenWeights]:
    return [weights for extractor in extractors for weights in extractor.all_weights]


def _averaged(extractors: Iterable[Extractor]) -> list[AvgExtractor]:
    """Return the extractors with averaged vectors, those in mixtures included."""
    static = (extractor.static if isinstance(extractor, MixExtractor) else extractor for extractor in extractors)
    return [extractor for extractor in static if isinstance(extractor, AvgExtractor)]


def _contextual(extractors: Iterable[Extractor]) -> list[TransformerExtractor]:
    """Return the extractors with contextual vectors, those in mixtures included."""
    own = (extractor.contextual if isinstance(extractor, MixExtractor) else extractor for extractor in extractors)
    return [extractor for extractor in own if isinstance(extractor, TransformerExtractor)]


def _counts_key(weights: TokenWeights) -> _CountsKey:
    return weights.tokenizer_sha256, weights.corpus


def _means_key(avg: AvgExtractor) -> _MeansKey:
    return _model_key(avg.model), avg.layers, avg.corpus


def _model_key(model: ContextualModel) -> str:
    return json.dumps(model.config, sort_keys=True)
