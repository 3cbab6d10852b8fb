"""What evaluations share: systems, judged queries, measuring, and printing results."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from ragembed.cli.output import print_record, terminal_width
from ragembed.cli.requests import NamedConfig, embedder_config
from ragembed.config.settings import PRESETS, EmbedderConfig
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import listed
from ragembed.evaluation.judgements import (
    JudgedQueries,
    RetrievalCollection,
    beir_qrels,
    read_beir,
    read_beir_queries,
    read_document_ids,
    read_jsonl_collection,
    read_qrels,
    require_known,
)
from ragembed.evaluation.retrieval import Difference, Measure, compare, paired_bootstrap
from ragembed.evaluation.runs import read_run
from ragembed.evaluation.table import Result, columns, csv_rows, folded, labels, text_table, undefined_lines, wrapped
from ragembed.evaluation.tasks import DEPTH as EXACT_DEPTH
from ragembed.evaluation.tasks import Measured, evaluate, measured_rankings, retrieval_task
from ragembed.indexes import Collection, Store
from ragembed.indexes.search.pipeline import MODES
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.store_evaluation import DEPTH, Rankings, SearchSettings, in_store, rank, rank_in_store
from ragembed.printable import printable, printable_line
from ragembed.progress import Progress, TrainingProgress
from ragembed.reports.page import evaluation_page, write_page

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

    NAME is a mode, a preset, a configuration file, a store, or a run file.
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
        system = replace(system, config=embedder_config({"preset": preset}))
    if settings:
        if system.search is None or system.search.mode != "hybrid":
            raise ConfigError(f"{spec!r}: {', '.join(settings)} applies only to hybrid search")
        values = {"method" if key == "fusion" else key: value for key, value in settings.items()}
        try:
            fusion = replace(system.search.fusion, **values)
        except ConfigError as error:
            raise ConfigError(f"{spec!r}: {error}") from None
        system = replace(system, search=replace(system.search, fusion=fusion))
    if system.of_collection and not searchable:
        raise ConfigError(
            f"{spec!r} needs the texts of the queries: give a BEIR folder or a file of judged queries, or compare runs"
        )
    return system


def _named(spec: str, name: str, base: NamedConfig, search: SearchSettings, store: Path | NamedStores | None) -> System:
    config = None if store is not None else base.config
    if name in MODES:
        mode: Any = name
        return System(spec, replace(search, mode=mode), None if mode == "lexical" else config, store)
    path = Path(name)
    if name in PRESETS or path.suffix in _CONFIGURATIONS:
        if store is not None:
            raise ConfigError(f"{spec!r}: a store has its own settings: compare modes, stores or runs")
        if name not in PRESETS and not path.is_file():
            raise ConfigError(f"the configuration file {path} does not exist: check the path")
        return System(spec, search, embedder_config({"preset": name} if name in PRESETS else {"config_file": path}))
    if is_store(path):
        return System(spec, search, store=path)
    if path.is_file():
        return System(spec, run=path)
    raise ConfigError(
        f"unknown system {spec!r}: expected a mode ({', '.join(MODES)}), a preset ({', '.join(PRESETS)}), "
        "a configuration file, a run file or a store"
    )


def _settings(spec: str, text: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for part in text.split(",") if text else []:
        key, equals, value = part.partition("=")
        if key.strip() not in _SETTINGS or not equals or key.strip() in settings:
            raise ConfigError(
                f"{spec!r}: {part!r}: expected each of {', '.join(_SETTINGS)} at most once, such as alpha=0.8"
            )
        name, stated = key.strip(), value.strip()
        try:
            settings[name] = float(stated) if name in _NUMBERS else stated
        except ValueError:
            raise ConfigError(f"{spec!r}: {name} is {stated!r}: expected a number") from None
    return settings


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
    judged = read_alone(path, split)
    if not has_documents(path, corpus):
        return judged
    documents = corpus or (path / _CORPUS if path.is_dir() else path.parent / _CORPUS)
    ids = read_document_ids(documents)
    require_known(judged.origin, judged.queries.documents, ids, documents)
    return replace(judged, known=ids)


def read_alone(path: Path, split: str) -> Judged:
    """Read judgements (BEIR, JSON Lines or TREC) without documents."""
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

    Runs and stores come first, so that errors in files are reported before anything is encoded.
    """
    by_system: dict[int, Measured] = {}
    for i, system in enumerate(systems):
        if system.run is not None:
            by_system[i] = _of_run(judged, system.run, measures, progress)
        elif system.store is not None and system.search is not None:
            by_system[i] = _of_store(judged, system.store, system.search, measures, depth)
    remaining = [i for i in range(len(systems)) if i not in by_system]
    if remaining and judged.collection is not None:
        searched = [systems[i] for i in remaining]
        for i, measured in zip(
            remaining, _of_collection(judged.collection, searched, measures, depth, progress), strict=True
        ):
            # Rankings of a whole grid of settings would take too much memory.
            by_system[i] = measured if keep_rankings else replace(measured, rankings=None)
    return [by_system[i] for i in range(len(systems))]


def _of_run(judged: Judged, run: Path, measures: Mapping[str, Measure], progress: TrainingProgress) -> Measured:
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
    with Collection.open(path.paths) if isinstance(path, NamedStores) else Store.open(path) as store:
        judgements = in_store(store, judged.queries, judged.origin)
        rankings = rank_in_store(store, judged.queries.queries, judgements, search, depth or DEPTH)
    return scored(rankings, judgements.relevance, measures)


def _of_collection(
    collection: RetrievalCollection,
    systems: Sequence[System],
    measures: Mapping[str, Measure],
    depth: int | None,
    progress: Progress,
) -> Iterator[Measured]:
    """Yield the measures of searches: by exact search if all are dense, else by search in temporary stores.

    There is one store per configuration, and one without vectors for lexical search.
    """
    if all(system.search is not None and system.search.mode == "dense" for system in systems):
        configs = [system.config for system in systems if system.config is not None]
        task = retrieval_task(collection, measures, depth or EXACT_DEPTH)
        for _, measured in evaluate(task, configs, progress=progress):
            if measured.undefined is not None:
                raise ConfigError(f"{collection.name}: {measured.undefined}")
            yield measured
        return
    by_config: dict[EmbedderConfig | None, list[int]] = {}
    for i, system in enumerate(systems):
        by_config.setdefault(system.config, []).append(i)
    by_system: dict[int, Measured] = {}
    for config, members in by_config.items():
        searches = [search for i in members if (search := systems[i].search) is not None]
        embedder = None if config is None else Embedder(config)
        rankings = rank(collection, embedder, searches, depth or DEPTH, progress)
        outcomes = (scored(ranking, collection.relevance, measures) for ranking in rankings)
        by_system.update(zip(members, outcomes, strict=True))
    yield from (by_system[i] for i in range(len(systems)))


def scored(rankings: Rankings, relevance: Mapping[str, Mapping[str, int]], measures: Mapping[str, Measure]) -> Measured:
    """Return the measures of rankings in per cent, with these rankings."""
    ids = {query: [document for document, _ in ranking] for query, ranking in rankings.items()}
    return replace(measured_rankings(ids, relevance, measures), rankings=rankings)


CSV = {"csv": "csv (one line per result)"}
"""The format that the evaluations have beside those of every command."""
_TASK = "retrieval"


def names(collections: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return the name of each collection, or the paths if two names are the same."""
    shown = [printable_line(name) for name in collections]
    return shown if len(set(shown)) == len(shown) else [printable_line(str(path)) for path in paths]


def results(collection: str, named: Sequence[NamedConfig], measured: Iterable[Measured]) -> Iterator[Result]:
    """Yield the results of a collection; later ones with their difference from the first, if it can be computed."""
    first: Measured | None = None
    for (name, config), outcome in zip(named, measured, strict=True):
        first = first or outcome
        yield Result(name, config, collection, {**outcome.scores, **_difference_to(first, outcome)}, outcome.headline)


def _difference_to(first: Measured, later: Measured) -> dict[str, dict[str, float]]:
    """Return the difference of the headline measure, or nothing without per-query values for at least two queries."""
    if first is later or first.by_query is None or later.by_query is None or len(first.by_query) < 2:
        return {}
    tested = paired_bootstrap(later.by_query, first.by_query)
    return {"difference_to_first": asdict(tested)}


def print_results(task: str, evaluated: Sequence[Result], output: str, html: Path | None = None) -> None:
    """Print results in one of the formats of ``--format``, and write them to the page ``html``, if given."""
    objects = [
        {"task": task, "collection": row.collection, "name": row.name, **row.scores, "config": row.config.to_dict()}
        for row in evaluated
    ]
    emit(task, objects, csv_rows(evaluated), _result_lines(evaluated, terminal_width()), output, html)


def _result_lines(evaluated: Sequence[Result], width: int | None) -> Iterator[str]:
    """Yield the lines of the tables, the pairs of alignment, the differences from the first, and undefined results."""
    yield text_table(evaluated, width=width)
    for score in ("uniformity", "alignment"):
        having = [result for result in evaluated if score in result.scores]
        if having:
            yield from ("", text_table(having, score, width))
    scores = {result.collection: result.scores for result in evaluated if "positive_pairs" in result.scores}
    lines = [
        f"{collection}: alignment of {one['positive_pairs']:,} pairs with a score of {one['positive_score']:g} or more"
        for collection, one in scores.items()
    ]
    for result, column, label in zip(evaluated, columns(evaluated), labels(evaluated), strict=True):
        if difference := result.scores.get("difference_to_first"):
            lines.append(_difference_line(f"{result.collection}, {column}: {label}", difference))
    for line in (*lines, *undefined_lines(evaluated)):
        yield from wrapped(line, width)


def emit(
    task: str,
    objects: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    lines: Iterable[str],
    output: str,
    html: Path | None = None,
) -> None:
    """Print ``objects`` as JSON, ``rows`` as CSV or ``lines`` as text, and write the page ``html``, if given.

    In CSV, nested dictionaries get a column for each part.
    """
    if output == "csv":
        flat: list[dict[str, Any]] = []
        for row in rows:
            flat.append({})
            for name, value in row.items():
                parts = {f"{name}.{part}": inner for part, inner in value.items()} if isinstance(value, dict) else None
                flat[-1] |= {name: value} if parts is None else parts
        text = io.StringIO()
        writer = csv.DictWriter(text, list(dict.fromkeys(head for row in flat for head in row)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        click.echo(printable(text.getvalue()), nl=False)
    elif output == "text":
        click.echo(printable("\n".join(lines)))
    elif len(objects) == 1:
        print_record(objects[0], output)
    else:
        print_record({"task": task, "results": list(objects)}, output, "results")
    if html is not None:
        write_page(html, evaluation_page(task, objects))


def _difference_line(name: str, tested: Mapping[str, float]) -> str:
    """Return the line with the difference of the system ``name`` from the first one."""
    return (
        f"{name}: {tested['difference']:+.1f} from the first, 95 % interval {tested['low']:+.1f} to "
        f"{tested['high']:+.1f}, p = {tested['p_value']:.3f}"
    )


@dataclass(frozen=True, slots=True)
class Row:
    """The measures of one system on the queries of one collection."""

    collection: str
    system: System
    measured: Measured

    @property
    def means(self) -> dict[str, float]:
        """The measures without the number of queries, in per cent."""
        return {name: value for name, value in self.measured.scores.items() if name != "queries"}

    def to_dict(self) -> dict[str, Any]:
        """Return the system with its measures and settings as JSON values."""
        config = {} if self.system.config is None else {"config": self.system.config.to_dict()}
        return {"name": self.system.label, **self.means, **self.system.about(), **config}


def print_rows(rows: Sequence[Row], output: str, html: Path | None = None) -> None:
    """Print one line per system, with the difference from the first on its collection, as :func:`print_results`."""
    first = {row.collection: row.measured for row in reversed(rows)}
    records = [
        {"collection": row.collection, "name": row.system.label, **row.measured.scores}
        | _difference_to(first[row.collection], row.measured)
        for row in rows
    ]
    objects = [{"task": _TASK, **record, **row.system.about()} for row, record in zip(rows, records, strict=True)]
    lines = _row_lines(rows, [record.get("difference_to_first") for record in records])
    emit(_TASK, objects, records, lines, output, html)


def _row_lines(rows: Sequence[Row], differences: Sequence[Any]) -> Iterator[str]:
    width = terminal_width()
    for i, collection in enumerate(dict.fromkeys(row.collection for row in rows)):
        of_collection = [row for row in rows if row.collection == collection]
        if i:
            yield ""
        yield f"{collection}, {of_collection[0].measured.scores['queries']:,} queries"
        yield ""
        lines = [[row.system.label, *(f"{value:.1f}" for value in row.means.values())] for row in of_collection]
        yield from folded([["", *of_collection[0].means], *lines], 1, width)
    if any(differences):
        yield ""
    for row, difference in zip(rows, differences, strict=True):
        if difference:
            name = f"{row.collection}, {row.system.label}, {row.measured.headline}"
            yield from wrapped(_difference_line(name, difference), width)


def print_comparisons(pairs: Sequence[tuple[Row, Row]], output: str, html: Path | None = None) -> None:
    """Print the difference of each measure for each pair of systems on the same queries, as :func:`print_results`."""
    objects, records, texts = [], [], []
    for a, b in pairs:
        first: Any = a.measured.score
        second: Any = b.measured.score
        differences = compare(first, second)
        fields = {name: asdict(tested) | {"significant": tested.significant} for name, tested in differences.items()}
        names = {"a": a.system.label, "b": b.system.label}
        records += [{"collection": a.collection, "measure": name, **names, **row} for name, row in fields.items()]
        about = {"task": _TASK, "collection": a.collection, "queries": a.measured.scores["queries"]}
        without_means = {
            name: {key: value for key, value in row.items() if key not in ("first", "second")}
            for name, row in fields.items()
        }
        objects.append({**about, "a": a.to_dict(), "b": b.to_dict(), "differences": without_means})
        texts.append("\n".join(_comparison(a, b, differences)))
    emit(_TASK, objects, records, ["\n\n".join(texts)], output, html)


def _comparison(a: Row, b: Row, differences: dict[str, Difference]) -> Iterator[str]:
    width = terminal_width()
    queries = f"{a.measured.scores['queries']:,} queries"
    yield from wrapped(f"{a.collection}, {queries}: A = {a.system.label}, B = {b.system.label}", width)
    yield ""
    lines = [["", "A", "B", "B - A", "95 % interval", "p"]]
    for name, tested in differences.items():
        means = [f"{tested.first:.1f}", f"{tested.second:.1f}", f"{tested.difference:+.1f}"]
        lines.append([name, *means, f"{tested.low:+.1f} to {tested.high:+.1f}", f"{tested.p_value:.4f}"])
    yield from folded(lines, 1, width)
    yield ""
    better: dict[str, list[str]] = {"A": [], "B": [], "": []}
    for name, tested in differences.items():
        better[("B" if tested.difference > 0 else "A") if tested.significant else ""].append(name)
    for system, names in better.items():
        if names and system:
            yield from wrapped(f"{system} is significantly better in {', '.join(names)} (p < 0.05)", width)
    if better[""]:
        yield from wrapped(f"no significant difference in {', '.join(better[''])}", width)
