"""The systems and judged queries of ``ragembed eval retrieval``, and the evaluation itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from ragembed.cli.requests import NamedConfig, embedder_configs
from ragembed.config.settings import PRESETS, EmbedderConfig
from ragembed.errors import ConfigError
from ragembed.indexes.search.fusion import Fusion, Method
from ragembed.indexes.search.pipeline import MODES, Mode
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.store_evaluation import SearchSettings
from ragembed.progress import Progress, TrainingProgress

if TYPE_CHECKING:
    from ragembed.evaluation.judgements import JudgedQueries, RetrievalCollection
    from ragembed.evaluation.retrieval import Measure
    from ragembed.evaluation.tasks import Measured
    from ragembed.indexes.store_evaluation import Rankings


_CONFIGURATIONS = (".toml", ".json")
_NUMBERS = ("alpha", "feedback", "hubness")
_SETTINGS = (*_NUMBERS, "fusion", "preset")


@dataclass(frozen=True, slots=True)
class NamedStores:
    """The stores of the collections ``names``, by name."""

    names: str
    paths: Mapping[str, Path]

    def __str__(self) -> str:
        return self.names


@dataclass(frozen=True, slots=True)
class System:
    """A system that ranks documents for queries, named ``label``.

    It is one of three: a ``run`` that is read from a file, a search in one or several stores (``store``), or a search
    in the documents of a collection with judgements. The last is embedded with ``config``, which is None for lexical
    search.
    """

    label: str
    search: SearchSettings | None = None
    config: EmbedderConfig | None = None
    store: Path | NamedStores | None = None
    run: Path | None = None

    @property
    def of_collection(self) -> bool:
        """Whether it searches the documents of a collection."""
        return self.run is None and self.store is None

    def about(self) -> dict[str, object]:
        """Return the store or run and the search settings as JSON values, without the embedder configuration."""
        if self.search is None:
            return {"run": str(self.run)}
        fused = {name: getattr(self.search.fusion, name) for name in ("method", *_NUMBERS)}
        return {
            **({} if self.store is None else {"store": str(self.store)}),
            "mode": self.search.mode,
            **({"fusion": fused} if self.search.mode == "hybrid" else {}),
        }


def parse_system(
    spec: str, base: NamedConfig, search: SearchSettings, store: Path | NamedStores | None, *, searchable: bool
) -> System:
    """Return the system that ``spec``, an argument of ``--compare``, names: ``NAME`` or ``NAME:SETTING=VALUE,...``.

    NAME is a mode, a preset, a configuration file, a store, or a run file. Settings are ``alpha``, ``fusion``,
    ``feedback`` and ``hubness`` of hybrid search, and the ``preset`` of a mode; they change ``base`` and ``search``,
    which come from the other options. Without ``searchable`` texts of queries, only runs can be compared. Raise
    :class:`ConfigError` if ``spec`` is unknown, or has a setting that does not apply to it.
    """
    name, _, text = spec.partition(":")
    if Path(spec).exists() and name not in (*MODES, *PRESETS):
        name, text = spec, ""
    settings = _settings(spec, text)
    system = _named(spec, name, base, search, store)
    preset = settings.pop("preset", None)
    if preset is not None:
        if name not in MODES or system.config is None:
            raise ConfigError(f"{spec!r}: 'preset' applies only to dense and hybrid search of a collection")
        [found] = embedder_configs({"preset": (preset,)}, query_fit=None)
        system = replace(system, config=found.config)
    if settings:
        if system.search is None or system.search.mode != "hybrid":
            raise ConfigError(f"{spec!r}: {', '.join(settings)} applies only to hybrid search")
        fusion = _fusion(spec, system.search.fusion, settings)
        system = replace(system, search=replace(system.search, fusion=fusion))
    if system.of_collection and not searchable:
        raise ConfigError(
            f"{spec!r} needs the texts of the queries: give a BEIR folder or a file of judged queries, or compare runs"
        )
    return system


def _named(spec: str, name: str, base: NamedConfig, search: SearchSettings, store: Path | NamedStores | None) -> System:
    config = None if store is not None else base.config
    if name in MODES:
        mode: Mode = next(each for each in MODES if each == name)
        return System(spec, replace(search, mode=mode), None if mode == "lexical" else config, store)
    path = Path(name)
    if name in PRESETS or path.suffix in _CONFIGURATIONS:
        if store is not None:
            raise ConfigError(f"{spec!r}: a store has its own settings: compare modes, stores or runs")
        if name not in PRESETS and not path.is_file():
            raise ConfigError(f"the configuration file {path} does not exist: check the path")
        options = {"preset": (name,)} if name in PRESETS else {"config_file": path}
        [found] = embedder_configs(options, query_fit=None)
        return System(spec, search, found.config)
    if is_store(path):
        return System(spec, search, store=path)
    if path.is_file():
        return System(spec, run=path)
    raise ConfigError(
        f"unknown system {spec!r}: expected a mode ({', '.join(MODES)}), a preset ({', '.join(PRESETS)}), "
        "a configuration file, a run file or a store"
    )


def _settings(spec: str, text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in text.split(",") if text else []:
        key, given, value = part.partition("=")
        if key.strip() not in _SETTINGS or not given or key.strip() in settings:
            raise ConfigError(
                f"{spec!r}: {part!r}: expected each of {', '.join(_SETTINGS)} at most once, such as alpha=0.8"
            )
        settings[key.strip()] = value.strip()
    return settings


def _fusion(spec: str, fusion: Fusion, settings: Mapping[str, str]) -> Fusion:
    numbers = {}
    for name in _NUMBERS:
        if name in settings:
            try:
                numbers[name] = float(settings[name])
            except ValueError:
                raise ConfigError(f"{spec!r}: {name} is {settings[name]!r}: expected a number") from None
    named = settings.get("fusion", fusion.method)
    method: Method | None = next((each for each in get_args(Method) if each == named), None)
    if method is None:
        raise ConfigError(f"{spec!r}: unknown fusion {named!r}: expected one of {', '.join(get_args(Method))}")
    try:
        return replace(fusion, method=method, **numbers)
    except ConfigError as error:
        raise ConfigError(f"{spec!r}: {error}") from None


_CORPUS = "corpus.jsonl"


@dataclass(frozen=True, slots=True)
class Judged:
    """Judged queries that were read from ``origin``.

    ``collection`` holds the documents to search, or None if they were not read. ``known`` holds the ids of all
    documents, or None if they are unknown.
    """

    name: str
    origin: Path
    queries: JudgedQueries
    collection: RetrievalCollection | None = None
    known: frozenset[str] | None = None


def has_documents(path: Path, corpus: Path | None) -> bool:
    """Return whether documents come with the judged queries: always in a folder, optionally beside a file."""
    return path.is_dir() or corpus is not None or (path.parent / _CORPUS).is_file()


def read_with_documents(path: Path, split: str, corpus: Path | None) -> Judged:
    """Read a BEIR folder, or a file of judged queries with the documents in ``corpus`` or beside it."""
    from ragembed.evaluation.judgements import JudgedQueries, beir_qrels, read_beir, read_jsonl_collection

    if path.is_dir():
        origin, collection = beir_qrels(path, split), read_beir(path, split=split)
    else:
        origin, collection = path, read_jsonl_collection(path, corpus or path.parent / _CORPUS)
    name = _name(path)
    collection = replace(collection, name=name)
    queries = JudgedQueries(name, collection.queries, collection.relevance, collection.unanswered)
    return Judged(name, origin, queries, collection, frozenset(collection.documents))


def read_with_ids(path: Path, split: str, corpus: Path | None) -> Judged:
    """Read judgements (BEIR, JSON Lines or TREC) and, if there are documents, only their ids."""
    from ragembed.evaluation.judgements import read_document_ids, require_known

    judged = read_alone(path, split)
    if not has_documents(path, corpus):
        return judged
    documents = corpus or (path / _CORPUS if path.is_dir() else path.parent / _CORPUS)
    known = read_document_ids(documents)
    require_known(judged.origin, judged.queries.documents, known, documents)
    return replace(judged, known=known)


def read_alone(path: Path, split: str) -> Judged:
    """Read judgements (BEIR, JSON Lines or TREC) without documents."""
    from ragembed.evaluation.judgements import beir_qrels, read_beir_queries, read_qrels

    if not path.is_dir():
        return Judged(_name(path), path, read_qrels(path))
    queries = read_beir_queries(path, split)
    if not queries.relevance:
        raise ConfigError(f"no query of {path} has a relevant document: expected at least one judgement above 0")
    return Judged(_name(path), beir_qrels(path, split), queries)


def _name(path: Path) -> str:
    return path.absolute().name if path.is_dir() else path.stem


def measure(
    judged: Judged,
    systems: Sequence[System],
    measures: Mapping[str, Measure],
    depth: int | None,
    progress: TrainingProgress,
    *,
    keep_rankings: bool,
) -> list[Measured]:
    """Return the measures of each system, in order, with the rankings if ``keep_rankings``.

    Runs and stores come first, so that errors in files are reported before anything is encoded. ``depth`` is the length
    of the rankings; the default is 1,000 for dense search of a collection, else 100.
    """
    found: dict[int, Measured] = {}
    for i, system in enumerate(systems):
        if system.run is not None:
            found[i] = _of_run(judged, system.run, measures, progress)
        elif system.store is not None and system.search is not None:
            found[i] = _of_store(judged, system.store, system.search, measures, depth)
    rest = [i for i in range(len(systems)) if i not in found]
    if rest and judged.collection is not None:
        searched = [systems[i] for i in rest]
        for i, measured in zip(
            rest, _of_collection(judged.collection, searched, measures, depth, progress), strict=True
        ):
            # Rankings of a whole grid of settings would take too much memory.
            found[i] = measured if keep_rankings else replace(measured, rankings=None)
    return [found[i] for i in range(len(systems))]


def _of_run(judged: Judged, run: Path, measures: Mapping[str, Measure], progress: TrainingProgress) -> Measured:
    from ragembed.evaluation.inputs import listed
    from ragembed.evaluation.judgements import require_known
    from ragembed.evaluation.runs import read_run
    from ragembed.evaluation.tasks import measured_rankings

    rankings, relevance = read_run(run), judged.queries.relevance
    if judged.known is not None:
        named = dict.fromkeys(document for ranking in rankings.values() for document in ranking)
        require_known(run, named, judged.known, f"the documents of {judged.name}")
    missing = [query for query in relevance if query not in rankings]
    if len(missing) == len(relevance):
        raise ConfigError(
            f"{run} has none of the queries in {judged.origin}: expected {listed(relevance, 3)}, found "
            f"{listed(rankings, 3)}"
        )
    if missing:
        progress.note(
            f"{run}: {len(missing):,} of {len(relevance):,} queries are missing and count as 0: {listed(missing)}"
        )
    return measured_rankings(rankings, relevance, measures)


def _of_store(
    judged: Judged, path: Path | NamedStores, search: SearchSettings, measures: Mapping[str, Measure], depth: int | None
) -> Measured:
    from ragembed.indexes import Collection, Store
    from ragembed.indexes.store_evaluation import DEPTH, in_store, rank_in_store

    with Collection.open(path.paths) if isinstance(path, NamedStores) else Store.open(path) as store:
        judgements = in_store(store, judged.queries, judged.origin)
        rankings = rank_in_store(store, judged.queries.queries, judgements, search, depth or DEPTH)
    return _scored(rankings, judgements.relevance, measures)


def _of_collection(
    collection: RetrievalCollection,
    systems: Sequence[System],
    measures: Mapping[str, Measure],
    depth: int | None,
    progress: Progress,
) -> Iterator[Measured]:
    """Yield the measures of searches: by exact search if all are dense, else by search in temporary stores."""
    if any(system.search is None or system.search.mode != "dense" for system in systems):
        yield from _by_stores(collection, systems, measures, depth, progress)
        return
    from ragembed.evaluation.tasks import DEPTH, RetrievalTask, evaluate

    configs = [system.config for system in systems if system.config is not None]
    for _, measured in evaluate(RetrievalTask(collection, measures, depth or DEPTH), configs, progress=progress):
        if measured.undefined is not None:
            raise ConfigError(f"{collection.name}: {measured.undefined}")
        yield measured


def _by_stores(
    collection: RetrievalCollection,
    systems: Sequence[System],
    measures: Mapping[str, Measure],
    depth: int | None,
    progress: Progress,
) -> list[Measured]:
    """Search one temporary store per configuration, and one without vectors for lexical search."""
    from ragembed.embedder import Embedder
    from ragembed.indexes.store_evaluation import DEPTH, rank

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

    ids = {query: [document for document, _ in ranking] for query, ranking in rankings.items()}
    return replace(measured_rankings(ids, relevance, measures), rankings=rankings)
