"""What ``ragembed eval retrieval`` measures, on what judged queries, and the measuring itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from ragembed.cli.requests import NamedConfig, embedder_configs
from ragembed.config.settings import PRESETS, EmbedderConfig
from ragembed.errors import ConfigError
from ragembed.indexes.search.fusion import Fusion, Method
from ragembed.indexes.search.search import MODES, Mode
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.tuning.store_evaluation import SearchSettings
from ragembed.indexes.types import Progress

if TYPE_CHECKING:
    from ragembed.evaluation.datasets import RetrievalCollection
    from ragembed.evaluation.judgements import JudgedQueries
    from ragembed.evaluation.retrieval import Measure
    from ragembed.evaluation.tasks import Measured
    from ragembed.indexes.tuning.store_evaluation import Rankings


_CONFIGURATIONS = (".toml", ".json")
_NUMBERS = ("alpha", "feedback")
_SETTINGS = (*_NUMBERS, "fusion", "preset")


@dataclass(frozen=True, slots=True)
class System:
    """What finds documents for questions, called ``label``.

    It is a ``run`` that is read; or a search of ``store``; or a search of a collection, whose texts ``config`` embeds
    where it is not by words alone.
    """

    label: str
    search: SearchSettings | None = None
    config: EmbedderConfig | None = None
    store: Path | None = None
    run: Path | None = None

    @property
    def of_collection(self) -> bool:
        """Whether it searches a collection."""
        return self.run is None and self.store is None

    def about(self) -> dict[str, object]:
        """Return what is searched and how as JSON values, without the configuration."""
        if self.search is None:
            return {"run": str(self.run)}
        fusion = self.search.fusion
        fused = {"method": fusion.method, "alpha": fusion.alpha, "feedback": fusion.feedback}
        return {
            **({} if self.store is None else {"store": str(self.store)}),
            "mode": self.search.mode,
            **({"fusion": fused} if self.search.mode == "hybrid" else {}),
        }


def searches(named: Sequence[NamedConfig], search: SearchSettings) -> list[System]:
    """Return the system of each configuration, named with its mode where that is not dense; words alone need none."""
    if search.mode == "lexical":
        return [System(search.mode, search)]
    mode = "" if search.mode == "dense" else f", {search.mode}"
    return [System(f"{name}{mode}", search, config) for name, config in named]


def runs(paths: Sequence[Path]) -> list[System]:
    """Return the system of each run, called as its file."""
    short = [path.name for path in paths]
    distinct = len(set(short)) == len(short)
    return [System(path.name if distinct else str(path), run=path) for path in paths]


def parse_system(
    spec: str, base: NamedConfig, search: SearchSettings, store: Path | None, *, searchable: bool
) -> System:
    """Return the system that ``spec`` names: ``NAME`` or ``NAME:SETTING=VALUE,...``.

    NAME is a mode, a preset, a configuration file, a store, or a run file. Settings are ``alpha``, ``fusion`` and
    ``feedback`` of hybrid search, and the ``preset`` of a mode.

    Parameters
    ----------
    spec
        What was given on the command line.
    base, search
        The configuration and the way of searching that the options ask for, and ``spec`` changes.
    store
        The store that modes search, None where they search the collection.
    searchable
        Whether there are questions to search for; where there are none, only runs can be compared.

    Raises
    ------
    ConfigError
        For anything else, and settings of no use.
    """
    name, _, text = spec.partition(":")
    if Path(spec).exists() and name not in (*MODES, *PRESETS):
        name, text = spec, ""
    settings = _settings(spec, text)
    system = _named(spec, name, base, search, store)
    preset = settings.pop("preset", None)
    if preset is not None:
        if name not in MODES or system.config is None:
            raise ConfigError(f"{spec!r}: 'preset' is of use for dense and hybrid search of a collection alone")
        [found] = embedder_configs({"preset": (preset,)}, query_fit=None)
        system = replace(system, config=found.config)
    if settings:
        if system.search is None or system.search.mode != "hybrid":
            raise ConfigError(f"{spec!r}: {', '.join(settings)} is of use for hybrid search alone")
        system = replace(system, search=replace(system.search, fusion=_fusion(spec, system.search.fusion, settings)))
    if system.of_collection and not searchable:
        raise ConfigError(f"{spec!r} needs questions to search for: give a BEIR folder or judged questions, or a run")
    return system


def _named(spec: str, name: str, base: NamedConfig, search: SearchSettings, store: Path | None) -> System:
    config = None if store is not None else base.config
    if name in MODES:
        mode: Mode = next(each for each in MODES if each == name)
        return System(spec, replace(search, mode=mode), None if mode == "lexical" else config, store)
    path = Path(name)
    if name in PRESETS or path.suffix in _CONFIGURATIONS:
        if store is not None:
            raise ConfigError(f"{spec!r}: a store has its own settings; compare modes, stores or runs")
        options = {"preset": (name,)} if name in PRESETS else {"config_file": _file(path)}
        [found] = embedder_configs(options, query_fit=None)
        return System(spec, search, found.config)
    if is_store(path):
        return System(spec, search, store=path)
    if path.is_file():
        return System(spec, run=path)
    raise ConfigError(
        f"{spec!r} is none of {', '.join(MODES)}, no preset ({', '.join(PRESETS)}), and no file of a run or of "
        "settings, and no store: expected one of these to compare"
    )


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(f"the configuration {path} is no file")
    return path


def _settings(spec: str, text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in text.split(",") if text else []:
        key, given, value = part.partition("=")
        if key.strip() not in _SETTINGS or not given or key.strip() in settings:
            raise ConfigError(f"{spec!r}: {part!r}: expected each of {', '.join(_SETTINGS)} once, as in alpha=0.8")
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
    """Judged questions, read from ``origin``.

    ``collection`` has the documents that are searched, None where none were read. ``known`` are the ids of all
    documents that there are, None where that is not known.
    """

    name: str
    origin: Path
    queries: JudgedQueries
    collection: RetrievalCollection | None = None
    known: frozenset[str] | None = None

    def notes(self) -> Iterator[str]:
        """Yield what has to be said of the judgements."""
        count = self.queries.unanswered
        if count:
            yield f"{self.name}: {count:,} judged questions have no relevant document, and are left out"


def has_documents(path: Path, corpus: Path | None) -> bool:
    """Tell whether documents come with judged questions: a folder has some, a file may have."""
    return path.is_dir() or corpus is not None or _beside(path).is_file()


def read_with_documents(path: Path, split: str, corpus: Path | None) -> Judged:
    """Read a BEIR folder; or a file of judged questions, and the documents in ``corpus`` or beside it."""
    from ragembed.evaluation.datasets import beir_qrels, read_beir, read_jsonl_collection
    from ragembed.evaluation.judgements import JudgedQueries

    if path.is_dir():
        origin, collection = beir_qrels(path, split), read_beir(path, split=split)
    else:
        origin, collection = path, read_jsonl_collection(path, corpus or _beside(path))
    name = _name(path)
    collection = replace(collection, name=name)
    queries = JudgedQueries(name, collection.queries, collection.relevance, collection.unanswered)
    return Judged(name, origin, queries, collection, frozenset(collection.documents))


def read_with_ids(path: Path, split: str, corpus: Path | None) -> Judged:
    """Read judgements, of TREC too, and of the documents, where there are any, the ids alone."""
    from ragembed.evaluation.datasets import read_document_ids
    from ragembed.evaluation.judgements import require_known

    judged = read_alone(path, split)
    if not has_documents(path, corpus):
        return judged
    documents = corpus or (path / _CORPUS if path.is_dir() else _beside(path))
    known = read_document_ids(documents)
    require_known(judged.origin, judged.queries.documents, known, documents)
    return replace(judged, known=known)


def read_alone(path: Path, split: str) -> Judged:
    """Read judgements, of TREC too, and no document."""
    from ragembed.evaluation.datasets import beir_qrels, read_beir_queries
    from ragembed.evaluation.judgements import read_qrels

    if not path.is_dir():
        return Judged(_name(path), path, read_qrels(path))
    queries = read_beir_queries(path, split)
    if not queries.relevance:
        raise ConfigError(f"no question of {path} has a relevant document")
    return Judged(_name(path), beir_qrels(path, split), queries)


def _name(path: Path) -> str:
    return path.absolute().name if path.is_dir() else path.stem


def _beside(path: Path) -> Path:
    return path.parent / _CORPUS


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

    rankings, relevance = read_run(run), judged.queries.relevance
    if judged.known is not None:
        named = dict.fromkeys(document for ranking in rankings.values() for document in ranking)
        require_known(run, named, judged.known, f"the documents of {judged.name}")
    missing = [query for query in relevance if query not in rankings]
    if len(missing) == len(relevance):
        raise ConfigError(
            f"{run} has no query that {judged.origin} judges: expected {listed(relevance, 3)}, found "
            f"{listed(rankings, 3)}"
        )
    if missing:
        note(f"{run}: {len(missing):,} of {len(relevance):,} questions are missing and count as 0: {listed(missing)}")
    return measured_rankings(rankings, relevance, measures)


def _of_store(
    judged: Judged, path: Path, search: SearchSettings, measures: Mapping[str, Measure], depth: int | None
) -> Measured:
    from ragembed.indexes import Store
    from ragembed.indexes.tuning.store_evaluation import DEPTH, in_store, rank_in_store

    with Store.open(path) as store:
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

    ids = {query: [document for document, _ in ranking] for query, ranking in rankings.items()}
    return replace(measured_rankings(ids, relevance, measures), rankings=rankings)
