"""Search for the best settings in stages: first raw vectors and post-processors, then fusion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.config.settings import EmbedderConfig
from ragembed.errors import RankError
from ragembed.evaluation.encoding import raw_part
from ragembed.indexes.search.fusion import METHODS, Fusion
from ragembed.indexes.tuning.candidates import ChainChoice
from ragembed.indexes.tuning.pool import Pool
from ragembed.indexes.tuning.pool_search import Encoder, PoolSearch, PoolVectors
from ragembed.indexes.tuning.queries import QuerySet, Source, collect
from ragembed.indexes.tuning.report import MEAN
from ragembed.indexes.tuning.sources import LOG
from ragembed.types import Doubles

_ALPHAS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_RAWS_KEPT, _CLOSER, _FUSED_KEPT = 4, 8, 3
SLACK = 0.005
"""Loss of nDCG@10 that is accepted for a candidate that needs less work, and the least gain of another fusion."""
LEAST_GAIN = 2.0
"""Minimum gain, in points of nDCG@10, that justifies another embedder.

Pseudo-queries do not rank embedders that differ less: see ``docs/how-to/tune.md``.
"""
_FUSION_SOURCES = (LOG, "first sentence")
"""The sources that choose the fusion, best first. The first sentences of files agree best with judgements."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a store that tuning changes."""

    config: EmbedderConfig
    fusion: Fusion


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings and their results: nDCG@10 of each query, float64, shape ``(n,)``, for hybrid and dense search."""

    settings: Settings
    hybrid: Doubles
    dense: Doubles


class Trials:
    """Tries settings on some of the queries. Each combination of settings is tried once.

    Parameters
    ----------
    encoder, search
        The encoder and the search of the pool and all queries.
    rows, source
        The numbers of the queries to try, and the source of each.
    done
        Called with 1 for each trial.
    """

    def __init__(
        self,
        encoder: Encoder,
        search: PoolSearch,
        rows: Sequence[int],
        source: Sequence[str],
        done: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._encoder = encoder
        self._search = search
        self._rows = rows
        self._source = np.asarray(source)
        self._done = done
        self._made: tuple[EmbedderConfig, PoolVectors] | None = None
        self._dense: dict[EmbedderConfig, Doubles] = {}
        self.tried: dict[Settings, Trial] = {}

    def of(self, settings: Settings) -> Trial:
        """Try ``settings`` and return the trial.

        Raises :class:`ragembed.errors.RankError` if a post-processor has more directions than the vectors.
        """
        self._done(1)
        if settings not in self.tried:
            vectors = self._vectors(settings.config)
            if settings.config not in self._dense:
                self._dense[settings.config] = self._search.dense(vectors, self._rows)
            hybrid = self._search.hybrid(vectors, self._rows, settings.fusion)
            self.tried[settings] = Trial(settings, hybrid, self._dense[settings.config])
        return self.tried[settings]

    def try_if_possible(self, settings: Settings) -> None:
        """Try ``settings``, unless a post-processor has more directions than the vectors."""
        with suppress(RankError):
            self.of(settings)

    def score(self, values: Doubles) -> float:
        """Return the mean over sources of the means of ``values``."""
        return macro_mean(values, self._source)

    def fusion_score(self, values: Doubles) -> float:
        """Return the mean of ``values`` by the source that chooses the fusion."""
        name = fusion_source(self._source.tolist())
        return self.score(values) if name == MEAN else float(values[self._source == name].mean())

    def _vectors(self, config: EmbedderConfig) -> PoolVectors:
        if self._made is None or self._made[0] != config:
            self._made = config, self._encoder.vectors(config)
        return self._made[1]


def fusion_source(sources: Collection[str]) -> str:
    """Return the source that chooses the fusion, or ``MEAN`` if none of ``sources`` does."""
    return next((name for name in _FUSION_SOURCES if name in sources), MEAN)


def macro_mean(values: Doubles, source: NDArray[np.str_] | Sequence[str]) -> float:
    """Return the mean over sources of the means of ``values``, float64, shape ``(n,)``."""
    names = np.asarray(source)
    return float(np.mean([values[names == name].mean() for name in np.unique(names)]))


def most_trials(raws: Sequence[EmbedderConfig], chains: Sequence[ChainChoice]) -> int:
    """Return the maximum number of trials that :func:`choose` makes."""
    fusions = 1 + len(_ALPHAS) + len(METHODS)
    dense = 1 + len(raws) + (1 + min(_RAWS_KEPT, len(raws))) * len(chains) + len(raws) * (len(raws) > 1)
    return dense + _CLOSER + fusions * (_FUSED_KEPT + 1)


def choose(trials: Trials, current: Settings, raws: Sequence[EmbedderConfig], chains: Sequence[ChainChoice]) -> Trial:
    """Return the best trial with another embedder, or that of ``current`` if no other gains ``LEAST_GAIN``.

    1. Try every way to make raw vectors with the current post-processors, and every chain with the current raw vectors.
    2. Try the best few raw vectors with every chain, and all raw vectors with the best chain.
    3. Try the best settings again with feedback. Steps 1 and 2 run without it, because it more than doubles the time.
    4. For the best few of these and for the current settings, try other weights of fusion, and other methods.
    """
    no_feedback = replace(current.fusion, feedback=0.0)
    trials.of(current)
    for config in [*raws, *(chain.on(current.config) for chain in chains)]:
        trials.try_if_possible(Settings(config, no_feedback))
    for found in _best(trials, [Settings(config, no_feedback) for config in raws])[:_RAWS_KEPT]:
        for chain in chains:
            trials.try_if_possible(Settings(chain.on(found.settings.config), no_feedback))
    if len(raws) > 1:
        best = ChainChoice.of(_best(trials, _with(trials, no_feedback))[0].settings.config)
        for config in raws:
            trials.try_if_possible(Settings(best.on(config), no_feedback))
    for found in _best(trials, _with(trials, no_feedback))[:_CLOSER]:
        trials.of(replace(found.settings, fusion=current.fusion))
    kept = [trial.settings for trial in _best(trials, _with(trials, current.fusion))[:_FUSED_KEPT]]
    for settings in dict.fromkeys([current, *kept]):
        _fuse(trials, settings)
    return _chosen(trials, current)


def _with(trials: Trials, fusion: Fusion) -> list[Settings]:
    return [settings for settings in trials.tried if settings.fusion == fusion]


def _fuse(trials: Trials, settings: Settings) -> list[Trial]:
    """Try other weights of the two scores, and other fusion methods.

    Feedback is not tuned: a pseudo-query with a single answer cannot show whether feedback finds similar chunks.
    """
    changes: list[dict[str, Any]] = [{}, *({"alpha": alpha} for alpha in _ALPHAS)]
    changes += [{"method": method} for method in METHODS]
    fusions = dict.fromkeys(replace(settings.fusion, **change) for change in changes)
    return [trials.of(replace(settings, fusion=fusion)) for fusion in fusions]


def _best(trials: Trials, among: Sequence[Settings]) -> list[Trial]:
    found = [trials.tried[settings] for settings in dict.fromkeys(among) if settings in trials.tried]
    return sorted(found, key=lambda trial: -trials.score(trial.hybrid))


def finalists(trials: Trials, current: Settings) -> list[Trial]:
    """Return the trials with the current feedback, best first. The other trials were a first pass."""
    return _best(trials, [each for each in trials.tried if each.fusion.feedback == current.fusion.feedback])


def _chosen(trials: Trials, current: Settings) -> Trial:
    """Return the best trial if its embedder gains ``LEAST_GAIN`` over the best fusion of the current one.

    Of the trials within ``SLACK`` of the best, the one that needs the least work counts.
    """
    ranked = finalists(trials, current)
    scores = [trials.score(trial.hybrid) for trial in ranked]
    near = [trial for trial, score in zip(ranked, scores, strict=True) if score >= scores[0] - SLACK]
    best = min(near, key=lambda trial: cost(trial.settings, current))
    own = max(score for trial, score in zip(ranked, scores, strict=True) if trial.settings.config == current.config)
    gain = 100.0 * (trials.score(best.hybrid) - own)
    return best if cost(best.settings, current) > 1 and gain >= LEAST_GAIN else trials.of(current)


def choose_fusion(trials: Trials, current: Settings) -> Trial:
    """Return the best fusion of the current embedder, or the current one if it gains less than ``SLACK``."""
    now, *others = _fuse(trials, current)
    best = max(others, key=lambda trial: trials.fusion_score(trial.hybrid))
    gain = trials.fusion_score(best.hybrid) - trials.fusion_score(now.hybrid)
    return best if gain >= SLACK else now


def cost(settings: Settings, current: Settings) -> int:
    """Return the work to apply ``settings``: 0 nothing, 1 save the fusion, 2 refit, 3 encode all documents."""
    if settings.config == current.config:
        return int(settings.fusion != current.fusion)
    return 2 if raw_part(settings.config) == raw_part(current.config) else 3


PROBE = 300
"""Number of chunks that screening uses. A pool with fewer than twice as many chunks is not screened."""
_KEPT = 6
_QUERIES, _LEAST = 300, 10
_CHAINS = (ChainChoice(("center", "normalize"), "separate"), ChainChoice(("abtt:1", "normalize"), "shared"))

Prepare = Callable[[Sequence[EmbedderConfig], Pool, QuerySet], tuple[Encoder, PoolSearch]]
"""Encodes a pool and queries with several configurations, and returns the encoder and the search of the pool."""


def screen(
    pool: Pool,
    sources: Mapping[str, Source],
    seed: int,
    current: Settings,
    raws: Sequence[EmbedderConfig],
    prepare: Prepare,
) -> list[EmbedderConfig]:
    """Return the most promising of ``raws`` and the configuration of ``current``, in their order.

    Each configuration is tried with the current post-processors and two other chains, on queries of the first half, and
    ranked by its best score. If there are few configurations, few chunks or no queries, all are returned.
    """
    part = Pool(pool.passages[:PROBE], pool.places[:PROBE], pool.total)
    drawn, _ = collect(part, sources, seed, limit=_QUERIES, changed_limit=_QUERIES, least=_LEAST)
    first_half = drawn.of_half(0)
    if len(raws) <= _KEPT + 1 or len(pool) < 2 * PROBE or not first_half.queries:
        return list(raws)
    encoder, search = prepare(raws, part, first_half)
    trials = Trials(encoder, search, range(len(first_half.queries)), first_half.source)
    no_feedback = replace(current.fusion, feedback=0.0)
    best: dict[EmbedderConfig, float] = {}
    for config in raws:
        tried = {Settings(chain.on(config), no_feedback) for chain in (ChainChoice.of(config), *_CHAINS)}
        for settings in tried:
            trials.try_if_possible(settings)
        best[config] = max(trials.score(trials.tried[each].hybrid) for each in tried if each in trials.tried)
    kept = sorted(raws, key=lambda config: -best[config])[:_KEPT]
    return [config for config in raws if config in kept or config == current.config]
