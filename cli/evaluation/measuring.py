"""Measuring systems on judged questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ragembed.cli.evaluation.judged import Judged
from ragembed.cli.evaluation.systems import System
from ragembed.errors import ConfigError
from ragembed.indexes.types import Progress

if TYPE_CHECKING:
    from ragembed.config.settings import EmbedderConfig
    from ragembed.evaluation.datasets import RetrievalCollection
    from ragembed.evaluation.retrieval import Measure
    from ragembed.evaluation.tasks import Measured
    from ragembed.indexes.tuning.store_evaluation import Rankings, Search

Note = Callable[[str], None]


def measure(
    judged: Judged,
    systems: Sequence[System],
    measures: Mapping[str, Measure],
    depth: int | None,
    progress: Progress,
    note: Note,
    *,
    keep_rankings: bool,
) -> list[Measured]:
    """Return what is measured of each system, in their order, with what was found where ``keep_rankings`` says so.

    What costs least is done first, so that a file that is wrong is told before anything is encoded. ``depth`` is the
    length of a ranking: by default 1,000 where all vectors of a collection are compared, else 100.
    """
    found: dict[int, Measured] = {}
    for i, system in enumerate(systems):
        if system.run is not None:
            found[i] = _of_run(judged, system.run, measures, note)
        elif system.store is not None and system.search is not None:
            found[i] = _of_store(judged, system.store, system.search, measures, depth)
    rest = [i for i in range(len(systems)) if i not in found]
    if rest and judged.collection is not None:
        searched = [systems[i] for i in rest]
        for i, measured in zip(
            rest, _of_collection(judged.collection, searched, measures, depth, progress), strict=True
        ):
            # A grid of settings has as many rankings as cells.
            found[i] = measured if keep_rankings else replace(measured, rankings=None)
    return [found[i] for i in range(len(systems))]


def _of_run(judged: Judged, run: Path, measures: Mapping[str, Measure], note: Note) -> Measured:
    from ragembed.evaluation.judgements import require_known
    from ragembed.evaluation.lines import listed
    from ragembed.evaluation.runs import read_run
    from ragembed.evaluation.tasks import measured_rankings

    rankings, relevance = read_run(run), judged.questions.relevance
    if judged.known is not None:
        named = dict.fromkeys(document for ranking in rankings.values() for document in ranking)
        require_known(run, named, judged.known, f"the documents of {judged.name}")
    missing = [question for question in relevance if question not in rankings]
    if len(missing) == len(relevance):
        raise ConfigError(
            f"{run} has no question that {judged.origin} judges: expected {listed(relevance, 3)}, found "
            f"{listed(rankings, 3)}"
        )
    if missing:
        note(f"{run}: {len(missing):,} of {len(relevance):,} questions are missing and count as 0: {listed(missing)}")
    return measured_rankings(rankings, relevance, measures)


def _of_store(
    judged: Judged, path: Path, search: Search, measures: Mapping[str, Measure], depth: int | None
) -> Measured:
    from ragembed.indexes import Store
    from ragembed.indexes.tuning.store_evaluation import DEPTH, in_store, rank_in_store

    with Store.open(path) as store:
        judgements = in_store(store, judged.questions, judged.origin)
        rankings = rank_in_store(store, judged.questions.questions, judgements, search, depth or DEPTH)
    return _scored(rankings, judgements.relevance, measures)


def _of_collection(
    collection: RetrievalCollection,
    systems: Sequence[System],
    measures: Mapping[str, Measure],
    depth: int | None,
    progress: Progress,
) -> Iterator[Measured]:
    """Yield what is measured of searches; where all are dense, by comparing all vectors, else by those of a store."""
    if any(system.search is None or system.search.mode != "dense" for system in systems):
        yield from _by_stores(collection, systems, measures, depth, progress)
        return
    from ragembed.evaluation.tasks import DEPTH, RetrievalTask, evaluate

    configs = [system.config for system in systems if system.config is not None]
    progress.start(collection.name, "configurations", len(configs))
    try:
        for _, measured in evaluate(RetrievalTask(collection, measures, depth or DEPTH), configs):
            yield measured
            progress.advance(1)
    finally:
        progress.finish()


def _by_stores(
    collection: RetrievalCollection,
    systems: Sequence[System],
    measures: Mapping[str, Measure],
    depth: int | None,
    progress: Progress,
) -> list[Measured]:
    """Search one store for each configuration, and one for words alone."""
    from ragembed.embedder import Embedder
    from ragembed.indexes.tuning.store_evaluation import DEPTH, rank

    by_config: dict[EmbedderConfig | None, list[int]] = {}
    for i, system in enumerate(systems):
        by_config.setdefault(system.config, []).append(i)
    found: dict[int, Measured] = {}
    for config, members in by_config.items():
        searches = [search for i in members if (search := systems[i].search) is not None]
        embedder = None if config is None else Embedder(config)
        rankings = rank(collection, embedder, searches, depth or DEPTH, progress)
        scored = (_scored(each, collection.relevance, measures) for each in rankings)
        found.update(zip(members, scored, strict=True))
    return [found[i] for i in range(len(systems))]


def _scored(
    rankings: Rankings, relevance: Mapping[str, Mapping[str, int]], measures: Mapping[str, Measure]
) -> Measured:
    from ragembed.evaluation.tasks import measured_rankings

    ids = {question: [document for document, _ in ranking] for question, ranking in rankings.items()}
    return replace(measured_rankings(ids, relevance, measures), rankings=rankings)
