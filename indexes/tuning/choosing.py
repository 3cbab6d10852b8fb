"""The search for the best settings, in stages: raw vectors and post-processors first, then fusion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from ragembed.types import Doubles

_ALPHAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_RAWS_KEPT, _CLOSER, _FUSED_KEPT = 4, 8, 3
SLACK = 0.005
"""nDCG@10 by which a candidate that keeps more of what a store has may be worse and still be taken."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a store can be given."""

    config: EmbedderConfig
    fusion: Fusion


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings, and what they find: nDCG@10 of each query, float64, of hybrid and of dense search."""

    settings: Settings
    hybrid: Doubles
    dense: Doubles


class Trials:
    """Tries settings on some of the queries, each once.

    Parameters
    ----------
    encoder, search
        Of the pool and all queries.
    rows, source
        The queries that are tried, and the source of each of these.
    done
        Told of each trial.
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
        """Return what ``settings`` find.

        Raises :class:`ragembed.errors.RankError` where a post-processor has more directions than the vectors.
        """
        self._done(1)
        if settings not in self.tried:
            vectors = self._vectors(settings.config)
            if settings.config not in self._dense:
                self._dense[settings.config] = self._search.dense(vectors, self._rows)
            hybrid = self._search.hybrid(vectors, self._rows, settings.fusion)
            self.tried[settings] = Trial(settings, hybrid, self._dense[settings.config])
        return self.tried[settings]

    def where_possible(self, settings: Settings) -> None:
        """Try ``settings``, unless a post-processor has more directions than the vectors."""
        with suppress(RankError):
            self.of(settings)

    def score(self, values: Doubles) -> float:
        """Return the mean over sources of their means."""
        return macro_mean(values, self._source)

    def _vectors(self, config: EmbedderConfig) -> PoolVectors:
        if self._made is None or self._made[0] != config:
            self._made = config, self._encoder.vectors(config)
        return self._made[1]


def macro_mean(values: Doubles, source: NDArray[np.str_] | Sequence[str]) -> float:
    """Return the mean over sources of the means of ``values``, float64, shape ``(n,)``."""
    names = np.asarray(source)
    return float(np.mean([values[names == name].mean() for name in np.unique(names)]))


def most_trials(raws: Sequence[EmbedderConfig], chains: Sequence[ChainChoice]) -> int:
    """Return how many trials :func:`choose` makes at most."""
    fusions = 1 + len(_ALPHAS) + len(METHODS)
    dense = 1 + len(raws) + (1 + min(_RAWS_KEPT, len(raws))) * len(chains) + len(raws) * (len(raws) > 1)
    return dense + _CLOSER + fusions * (_FUSED_KEPT + 1)


def choose(trials: Trials, current: Settings, raws: Sequence[EmbedderConfig], chains: Sequence[ChainChoice]) -> Trial:
    """Return the best of what is tried; of those within ``SLACK`` of it, the one that keeps the most of ``current``.

    Every way to make raw vectors is tried with the present post-processors, and every chain with the present raw
    vectors; then the best few ways with every chain, and every way with the best chain. That is done without feedback,
    which takes more than twice as long; the best are then tried with it. Weights and methods of fusion are searched one
    after the other for the best few of these, and for what there is.
    """
    at_first = replace(current.fusion, feedback=0.0)
    trials.of(current)
    for config in [*raws, *(chain.on(current.config) for chain in chains)]:
        trials.where_possible(Settings(config, at_first))
    for found in _best(trials, [Settings(config, at_first) for config in raws])[:_RAWS_KEPT]:
        for chain in chains:
            trials.where_possible(Settings(chain.on(found.settings.config), at_first))
    if len(raws) > 1:
        best = ChainChoice.of(_best(trials, _with(trials, at_first))[0].settings.config)
        for config in raws:
            trials.where_possible(Settings(best.on(config), at_first))
    for found in _best(trials, _with(trials, at_first))[:_CLOSER]:
        trials.of(replace(found.settings, fusion=current.fusion))
    kept = [trial.settings for trial in _best(trials, _with(trials, current.fusion))[:_FUSED_KEPT]]
    for settings in dict.fromkeys([current, *kept]):
        _fuse(trials, settings)
    return _thriftiest(trials, current)


def _with(trials: Trials, fusion: Fusion) -> list[Settings]:
    return [settings for settings in trials.tried if settings.fusion == fusion]


def _fuse(trials: Trials, settings: Settings) -> None:
    """Try other shares of the two scores, and then other methods with the best of these.

    Feedback stays: a query with one answer cannot show that others like it are found, too.
    """
    steps: tuple[tuple[str, tuple[Any, ...]], ...] = (("alpha", _ALPHAS), ("method", METHODS))
    for name, values in steps:
        fusions = [settings.fusion, *(replace(settings.fusion, **{name: value}) for value in values)]
        found = [trials.of(replace(settings, fusion=fusion)) for fusion in dict.fromkeys(fusions)]
        settings = max(found, key=lambda trial: trials.score(trial.hybrid)).settings


def _best(trials: Trials, among: Sequence[Settings]) -> list[Trial]:
    found = [trials.tried[settings] for settings in dict.fromkeys(among) if settings in trials.tried]
    return sorted(found, key=lambda trial: -trials.score(trial.hybrid))


def to_choose_from(trials: Trials, current: Settings) -> list[Trial]:
    """Return what was tried with the present feedback, best first; the rest was a first look."""
    return _best(trials, [each for each in trials.tried if each.fusion.feedback == current.fusion.feedback])


def _thriftiest(trials: Trials, current: Settings) -> Trial:
    ranked = to_choose_from(trials, current)
    least = trials.score(ranked[0].hybrid) - SLACK
    near = [trial for trial in ranked if trials.score(trial.hybrid) >= least]
    return min(near, key=lambda trial: cost(trial.settings, current))


def cost(settings: Settings, current: Settings) -> int:
    """Return what a store has to do for ``settings``: 0 nothing, 1 note the fusion, 2 refit, 3 encode everything."""
    if settings.config == current.config:
        return int(settings.fusion != current.fusion)
    return 2 if raw_part(settings.config) == raw_part(current.config) else 3


PROBE = 300
"""Passages of the part that is looked at; a pool of less than twice as many is not screened."""
_KEPT = 6
_QUERIES, _LEAST = 300, 10
_CHAINS = (ChainChoice(("center", "normalize"), "separate"), ChainChoice(("abtt:1", "normalize"), "shared"))

Prepare = Callable[[Sequence[EmbedderConfig], Pool, QuerySet], tuple[Encoder, PoolSearch]]
"""Encodes a pool and queries with several configurations, and makes what searches it."""


def screen(
    pool: Pool,
    sources: Mapping[str, Source],
    seed: int,
    current: Settings,
    raws: Sequence[EmbedderConfig],
    prepare: Prepare,
) -> list[EmbedderConfig]:
    """Return those of ``raws`` that are worth a closer look, that of ``current`` among them, in their order.

    They are tried with the present post-processors and two others, each counting by its best, on queries of the
    first half alone. All are returned where there are few of them, or little to try them on.
    """
    part = Pool(pool.passages[:PROBE], pool.places[:PROBE], pool.total)
    drawn, _ = collect(part, sources, seed, limit=_QUERIES, changed_limit=_QUERIES, least=_LEAST)
    asked = drawn.of_half(0)
    if len(raws) <= _KEPT + 1 or len(pool) < 2 * PROBE or not asked.queries:
        return list(raws)
    encoder, search = prepare(raws, part, asked)
    trials = Trials(encoder, search, range(len(asked.queries)), asked.source)
    at_first = replace(current.fusion, feedback=0.0)
    best: dict[EmbedderConfig, float] = {}
    for config in raws:
        tried = {Settings(chain.on(config), at_first) for chain in (ChainChoice.of(config), *_CHAINS)}
        for settings in tried:
            trials.where_possible(settings)
        best[config] = max(trials.score(trials.tried[each].hybrid) for each in tried if each in trials.tried)
    kept = sorted(raws, key=lambda config: -best[config])[:_KEPT]
    return [config for config in raws if config in kept or config == current.config]
