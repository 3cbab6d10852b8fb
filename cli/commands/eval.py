"""``ragembed eval``, with ``--fit-fusion``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from ragembed.cli import HelpfulGroup
from ragembed.cli.evaluation import (
    CSV,
    Judged,
    NamedStores,
    Row,
    System,
    emit,
    has_documents,
    measure,
    names,
    parse_system,
    print_comparisons,
    print_results,
    print_rows,
    read_alone,
    read_with_documents,
    read_with_ids,
    results,
    scored,
)
from ragembed.cli.options import EXISTING_PATH, LocalPath, embedding_options, format_option, shared, takes
from ragembed.cli.output import shown_path
from ragembed.cli.project import choose_store, stores_in
from ragembed.cli.requests import NamedConfig, embedder_configs
from ragembed.config.fields import left_open, setting
from ragembed.errors import ConfigError
from ragembed.evaluation.retrieval import Measure, paired_bootstrap, parse_measures
from ragembed.evaluation.runs import write_run
from ragembed.evaluation.table import Result, aligned
from ragembed.indexes import Store, apply_settings
from ragembed.indexes.search.fusion import Fusion, Method
from ragembed.indexes.search.pipeline import MODES, Mode
from ragembed.indexes.store_evaluation import DEPTH, SearchSettings, in_store, rank_in_store
from ragembed.progress import StderrProgress
from ragembed.reports.page import check_output

_SPLIT = "test"


@click.group(name="eval", cls=HelpfulGroup)
def command() -> None:
    """Evaluate search on test collections.

    \b
    ragembed eval retrieval queries.jsonl --compare dense hybrid

    Embedders are fitted on the texts of the collection, without its judgements. ragembed papers eval evaluates
    embeddings on sentence tasks.
    """


@dataclass(frozen=True, slots=True)
class _RetrievalOptions:
    """The options except those for embedding and output."""

    split: str | None = setting(
        None, "Split of a BEIR folder; reads qrels/NAME.tsv.", "--split", "NAME", default=_SPLIT
    )
    qrels: Path | None = setting(
        None, "File with judgements only, instead of PATH: TREC qrels or a BEIR table.", "--qrels", "FILE"
    )
    corpus: Path | None = setting(
        None, "Documents in JSON Lines.", "--corpus", "FILE", default="corpus.jsonl beside the queries"
    )
    run_files: tuple[Path, ...] = setting((), "Score this run file instead of searching.", "--run", "FILE")
    store: Path | None = setting(
        None,
        "Folder of a store to search.",
        "--store",
        default="the nearest store, if the queries come without documents",
        type=LocalPath(file_okay=False),
    )
    collections: str | None = setting(
        None,
        "Collections of stores to search as one, separated by commas; all means every collection.",
        *("--in", "NAMES"),
    )
    mode: Mode | None = setting(
        None,
        "Search by meaning (dense), by words (lexical, BM25), or both combined (hybrid).",
        "--mode",
        default="dense for documents, hybrid for a store",
        choices=MODES,
    )
    alpha: float | None = left_open(Fusion, "alpha")
    method: Method | None = left_open(Fusion, "method")
    feedback: float | None = left_open(Fusion, "feedback")
    language: str | None = setting(
        None,
        "Language whose word endings and stop words lexical search of documents ignores.",
        *("--language", "LANGUAGE"),
        default="recognised",
    )
    fit_fusion: bool = setting(
        False,
        "Compare the values of --alpha in a store, and save the best one in the store if it is better.",
        "--fit-fusion",
    )
    compared: tuple[str, str] | None = setting(
        None,
        "Compare two systems: modes, presets, configuration files, stores or runs, such as dense hybrid:alpha=0.5.",
        *("--compare", "A B"),
        type=(str, str),
    )
    measures: str = setting(
        "ndcg@10,recall@100,mrr@10,map",
        "Measures, separated by commas: ndcg@k, recall@k, p@k, success@k, mrr@k, map@k, mrr and map, for any number k.",
        *("--measures", "NAMES"),
    )
    depth: int | None = setting(
        None,
        "Length of a ranking in documents, or in chunks of a store.",
        *("--depth", "N"),
        default="1000 for dense search of documents, else 100",
        least=1,
    )
    run_out: Path | None = setting(
        None,
        "Write the rankings to this file: a TREC run, or JSON Lines if the name ends in .jsonl.",
        "--run-out",
        type=LocalPath(dir_okay=False),
    )

    def places(self, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        """Return the files or folders with judgements; raise an error for options that do not apply to them."""
        if self.qrels is not None and paths:
            raise ConfigError(f"got judgements from both --qrels and {paths[0]}: give one of them")
        if self.qrels is None and not paths:
            raise click.UsageError("no judgements: give a BEIR folder, a file of judged queries, or --qrels")
        places = paths if self.qrels is None else (self.qrels,)
        if self.split is not None and not all(place.is_dir() for place in places):
            raise ConfigError(f"--split {self.split} applies only to BEIR folders: leave it out")
        if self.corpus is not None and any(place.is_dir() for place in places):
            raise ConfigError("--corpus does not apply to a BEIR folder, which has its own documents: leave it out")
        return places

    @property
    def fusion_options(self) -> dict[str, Any]:
        """The settings of the fusion that are given as options."""
        options = {"alpha": self.alpha, "method": self.method, "feedback": self.feedback}
        return {name: value for name, value in options.items() if value is not None}

    def search(self, default: Mode) -> SearchSettings:
        """Return the search settings; ``default`` is the mode if none is given."""
        return SearchSettings(self.mode or default, replace(Fusion(), **self.fusion_options), self.language)

    def searched_store(self, paths: Sequence[Path]) -> Path | NamedStores | None:
        """Return the stores to search: the given ones, or the nearest one for queries without documents."""
        if self.collections is not None:
            return NamedStores(self.collections, stores_in(self.collections, self.store))
        if self.store is not None or self.qrels is not None:
            return self.store
        alone = [path for path in paths if not has_documents(path, self.corpus)]
        if alone and len(alone) < len(paths):
            raise ConfigError(f"{alone[0]} has no documents, but other paths do: evaluate them in separate commands")
        return choose_store(None) if alone else None


@command.command(name="retrieval", short_help="Measure nDCG, recall, MRR and MAP of searches and runs.")
@click.argument("paths", nargs=-1, type=EXISTING_PATH, metavar="[PATH]...")
@takes(_RetrievalOptions)
@partial(embedding_options, several=True)
@shared("html", "quiet")
@partial(format_option, more=CSV)
def retrieval(
    paths: tuple[Path, ...], html: Path | None, quiet: bool, output: str, options: _RetrievalOptions, **embedding: Any
) -> None:
    """Measure nDCG, recall, MRR and MAP of searches and runs.

    \b
    ragembed eval retrieval scifact/ --mode hybrid
    ragembed eval retrieval queries.jsonl --store .ragembed --compare dense hybrid
    ragembed eval retrieval --qrels qrels.txt --run first.run --run second.run

    PATH is a BEIR folder or a file of judged queries. A BEIR folder is searched with an embedder that is fitted on its
    documents. A file of judged queries has one JSON object per line, with a query and its relevant documents:

    \b
    {"query": "how are stores locked?", "relevant": ["docs/locks.md"]}

    The ids in "relevant" are ids of documents in a file corpus.jsonl beside it. Without such a file, they are file
    names or chunk ids of a store, and the store is searched. With --run, nothing is searched: the rankings of the run
    are scored.

    Scores are in per cent. Repeat an embedding option to compare its values: all combinations are evaluated and make
    one table.
    """
    if html is not None:
        check_output(html)  # before anything is evaluated
    places = options.places(paths)
    measures = parse_measures(options.measures)
    if options.fit_fusion:
        _fit_fusion(places, options, embedding, measures, html, output)
        return
    base = embedder_configs(embedding, query_fit=None)
    systems = _systems(places, options, base)
    _check_options_apply(options, systems, embedding)
    judged = [_read(place, options, systems) for place in places]
    if options.run_out is not None:
        _check_run_out(options.run_out, systems, len(judged))
    progress = StderrProgress(quiet=quiet)
    rows: list[list[Row]] = []
    for judgements, name in zip(judged, names([judgements.name for judgements in judged], places), strict=True):
        if count := judgements.queries.unanswered:
            progress.note(f"{judgements.name}: skipped {count:,} judged queries without a relevant document")
        keep = options.run_out is not None
        measured = measure(judgements, systems, measures, options.depth, progress, keep_rankings=keep)
        rows.append([Row(name, *pair) for pair in zip(systems, measured, strict=True)])
    if options.compared:
        print_comparisons([(a, b) for a, b in rows], output, html)
    elif systems[0].config is None:
        print_rows([row for of_judgements in rows for row in of_judgements], output, html)
    else:
        every_result: list[Result] = []
        for row in rows:
            of_row = [NamedConfig(cell.system.label, cell.system.config) for cell in row if cell.system.config]
            compared = results(row[0].collection, of_row, [cell.measured for cell in row])
            every_result += [replace(result, scores={**result.scores, **row[0].system.about()}) for result in compared]
        print_results("retrieval", every_result, output, html)
    if options.run_out is not None:
        write_run(options.run_out, rows[0][0].measured.rankings or {}, rows[0][0].system.label)


def _fit_fusion(
    places: Sequence[Path],
    options: _RetrievalOptions,
    embedding: Mapping[str, Any],
    measures: Mapping[str, Measure],
    html: Path | None,
    output: str,
) -> None:
    """Print the first of ``measures`` for each weight, and save the best weight in the store if it is better.

    To be better, the weight that is best on all queries but one must gain on the query left out, on average. The
    options that other evaluations take are errors.
    """
    names = {"run_files": "run", "collections": "in", "method": "fusion", "compared": "compare"}
    fields = ("qrels", "corpus", *names, "mode", "language", "alpha", "feedback", "run_out")
    given = {name: getattr(options, name) for name in fields} | dict(embedding) | {"html": html}
    for name, value in given.items():
        if value not in (None, ()):
            option = names.get(name, name).replace("_file", "").replace("_", "-")
            raise ConfigError(f"--{option} does not apply with --fit-fusion, which searches a store: leave it out")
    if len(places) != 1 or places[0].is_dir():
        got = ", ".join(map(shown_path, places))
        raise ConfigError(f"--fit-fusion got {got}: expected one file of judged queries for a store")
    judged = read_alone(places[0], _SPLIT)
    if not judged.queries.queries:
        raise ConfigError(f"{places[0]} has judgements but no queries: expected one JSON object with a query per line")
    path = choose_store(options.store)
    measure, rows = next(iter(measures)), []
    with Store.open(path) as store:
        now = store.fusion
        # Of equal weights, the first wins.
        alphas = list(dict.fromkeys([now.alpha, *(number / 10 for number in range(11))]))
        judgements = in_store(store, judged.queries, judged.origin)
        if len(judgements.relevance) < 2:
            raise ConfigError(f"{judged.origin} has one judged query: --fit-fusion needs at least 2")
        for alpha in alphas:
            search = SearchSettings("hybrid", replace(now, alpha=alpha))
            rankings = rank_in_store(store, judged.queries.queries, judgements, search, options.depth or DEPTH)
            rows.append(scored(rankings, judgements.relevance, {measure: measures[measure]}).by_query)
    values = np.array(rows)
    others = values.sum(axis=1, keepdims=True) - values
    left_out = values[others.argmax(axis=0), np.arange(values.shape[1])]
    gain = paired_bootstrap(left_out, values[0])
    means = dict(zip(alphas, values.mean(axis=1).tolist(), strict=True))
    best = max(means, key=lambda alpha: means[alpha])
    if saved := best != now.alpha and gain.difference > 0:
        apply_settings(path, None, replace(now, alpha=best))
    about = {"task": "fusion", "collection": judged.name, "queries": values.shape[1], "store": str(path)}
    about |= {"measure": measure, "now": now.alpha, "best": best, "gain": asdict(gain), "saved": saved}
    lines = [{"alpha": alpha, measure: mean} for alpha, mean in sorted(means.items())]
    emit("fusion", [{**about, "alphas": lines}], lines, _text(about, lines, shown_path(path)), output)


def _systems(places: Sequence[Path], options: _RetrievalOptions, base: Sequence[NamedConfig]) -> list[System]:
    """Return the systems to evaluate: two if they are compared."""
    if options.run_files:
        taken = {
            "--compare": options.compared,
            "--store": options.store,
            "--in": options.collections,
            "--mode": options.mode,
        }
        for name, value in taken.items():
            if value:
                raise ConfigError(f"{name} does not apply with --run, which searches nothing: leave it out")
        short = [path.name for path in options.run_files]
        distinct = len(set(short)) == len(short)
        return [System(path.name if distinct else str(path), run=path) for path in options.run_files]
    store = options.searched_store(places)
    if options.compared:
        if len(base) > 1:
            raise ConfigError(f"--compare takes one value of each embedding option: got {len(base)} combinations")
        search = options.search("dense" if store is None else "hybrid")
        searchable = options.qrels is None
        return [parse_system(spec, base[0], search, store, searchable=searchable) for spec in options.compared]
    if options.qrels is not None:
        raise ConfigError(
            f"{options.qrels} has judgements but no queries: add the rankings to score with --run or --compare"
        )
    if store is not None:
        label = str(store) if isinstance(store, NamedStores) else shown_path(store)
        return [System(label, options.search("hybrid"), store=store)]
    search = options.search("dense")
    if search.mode == "lexical":  # It needs no embedder.
        return [System(search.mode, search)]
    mode = "" if search.mode == "dense" else f", {search.mode}"
    return [System(f"{name}{mode}", search, config) for name, config in base]


def _check_options_apply(options: _RetrievalOptions, systems: Sequence[System], embedding: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for options that apply to none of the systems."""
    embedded = any(system.config is not None for system in systems)
    named = [name for name, value in embedding.items() if value not in (None, ())]
    if named and not embedded:
        raise ConfigError(
            f"--{named[0].replace('_file', '').replace('_', '-')} does not apply: runs, stores and lexical search are "
            "evaluated as they are"
        )
    if options.language is not None and not any(
        system.of_collection and system.search and system.search.mode != "dense" for system in systems
    ):
        raise ConfigError("--language applies only to lexical and hybrid search of documents: a store has its own")
    if options.fusion_options and not any(system.search and system.search.mode == "hybrid" for system in systems):
        raise ConfigError("--alpha, --fusion and --feedback apply only to hybrid search: add --mode hybrid")


def _read(place: Path, options: _RetrievalOptions, systems: Sequence[System]) -> Judged:
    split = options.split or _SPLIT
    if any(system.of_collection for system in systems):
        return read_with_documents(place, split, options.corpus)
    with_runs = any(system.run is not None for system in systems)
    judged = read_with_ids(place, split, options.corpus) if with_runs else read_alone(place, split)
    if not judged.queries.queries and any(system.store is not None for system in systems):
        raise ConfigError(
            f"{place} has judgements but no queries: to search a store, expected one JSON object with a query per line"
        )
    return judged


def _check_run_out(path: Path, systems: Sequence[System], collections: int) -> None:
    if len(systems) * collections != 1:
        raise ConfigError(
            f"--run-out writes one run, of one system on one collection: got {len(systems) * collections}"
        )
    if systems[0].run is not None:
        raise ConfigError("--run-out applies only to searches: a run is already a file")
    if not path.parent.is_dir():
        raise ConfigError(f"{path} cannot be written: the folder {path.parent} does not exist")


def _text(about: Mapping[str, Any], lines: list[dict[str, float]], store: str) -> Iterator[str]:
    marks = {about["best"]: "best", about["now"]: "now"}
    rows = [[f"{line['alpha']:g}", f"{line[about['measure']]:.1f}", marks.get(line["alpha"], "")] for line in lines]
    gain = about["gain"]
    yield f"{about['collection']}, {about['queries']:,} queries, hybrid search in {store}"
    yield ""
    yield from aligned([["alpha", about["measure"], ""], *rows])
    yield ""
    yield (
        f"alpha chosen by the other queries for each query: {gain['difference']:+.1f} from now, 95 % interval "
        f"{gain['low']:+.1f} to {gain['high']:+.1f}, p = {gain['p_value']:.3f}"
    )
    yield f"saved alpha {about['best']:g} in the store" if about["saved"] else f"the store keeps alpha {about['now']:g}"
