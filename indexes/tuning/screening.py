"""A first look at ways to make raw vectors, on a small part of the pool: only the promising are encoded in full."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ragembed.config import EmbedderConfig
from ragembed.indexes.tuning.choosing import Settings, Trials
from ragembed.indexes.tuning.ranking import Ranking
from ragembed.tuning.candidates import ChainChoice
from ragembed.tuning.passages import Pool
from ragembed.tuning.queries import QuerySet, Source, collect
from ragembed.tuning.vectors import Encoder

PROBE = 300
"""Passages of the part that is looked at; a pool of less than twice as many is not screened."""
_KEPT = 6
_QUERIES, _LEAST = 300, 10
_CHAINS = (ChainChoice(("center", "normalize"), "two"), ChainChoice(("abtt:1", "normalize"), "one"))

Prepare = Callable[[Sequence[EmbedderConfig], Pool, QuerySet], tuple[Encoder, Ranking]]
"""Encodes a pool and queries with several configurations, and matches their words."""


def screen(
    pool: Pool,
    sources: Mapping[str, Source],
    seed: int,
    current: Settings,
    raws: Sequence[EmbedderConfig],
    prepare: Prepare,
) -> list[EmbedderConfig]:
    """Return those of ``raws`` that are worth a closer look, that of ``current`` among them, in their order.

    They are tried with the present post-processors and two others, each counting by its best, on questions of the
    first half alone. All are returned where there are few of them, or little to try them on.
    """
    part = Pool(pool.passages[:PROBE], pool.places[:PROBE], pool.total)
    drawn, _ = collect(part, sources, seed, limit=_QUERIES, changed_limit=_QUERIES, least=_LEAST)
    asked = drawn.of_half(0)
    if len(raws) <= _KEPT + 1 or len(pool) < 2 * PROBE or not asked.queries:
        return list(raws)
    encoder, ranking = prepare(raws, part, asked)
    trials = Trials(encoder, ranking, range(len(asked.queries)), asked.source)
    at_first = replace(current.fusion, feedback=0.0)
    best: dict[EmbedderConfig, float] = {}
    for config in raws:
        tried = {Settings(chain.on(config), at_first) for chain in (ChainChoice.of(config), *_CHAINS)}
        for settings in tried:
            trials.where_possible(settings)
        best[config] = max(trials.score(trials.tried[each].hybrid) for each in tried if each in trials.tried)
    kept = sorted(raws, key=lambda config: -best[config])[:_KEPT]
    return [config for config in raws if config in kept or config == current.config]
