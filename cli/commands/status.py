"""``ragembed status``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ragembed.cli.options import format_option, store_option
from ragembed.cli.output import counted, print_records, say, say_incomplete, shown_path
from ragembed.cli.project import choose_store
from ragembed.cli.searched import StoreReport, each_in_option, report_groups, report_stores
from ragembed.cli.settings_in_use import print_settings
from ragembed.config.settings import EmbedderConfig
from ragembed.config.specs import PLAIN
from ragembed.extractors.build import is_external
from ragembed.indexes import Collection, Fusion, IndexConfig, IndexingOptions, Store
from ragembed.indexes.doctor.drift import DriftReport, Verdict, measure_drift
from ragembed.indexes.faiss_index.records import IndexEvaluation, IndexSelection
from ragembed.indexes.indexing.fitting import pending_fit
from ragembed.indexes.search.relevance import LEAST_CHUNKS
from ragembed.indexes.storage.layout import file_path
from ragembed.printable import readable_bytes

_SETTINGS = ("all", "set")
_PRECISIONS = {"auto": "float32", "mixed": "bfloat16 for large runs, float32 for small runs and queries"}
_EXTRACTION = (
    *("layers", "revision", "trust_remote_code", "template", "query_template", "pooling", "modules", "normalize"),
    *("truncate_dim", "special_tokens"),
)
"""Settings that are shown with the extractor if they differ from the defaults."""
_EXIT: Mapping[Verdict, int] = {"keep": 0, "refit": 3, "rebuild": 4}
"""The exit status for each verdict on drift."""


@click.command(name="status")
@store_option
@each_in_option
@click.option("--skipped", is_flag=True, help="List the skipped files, with the reason for each.")
@click.option(
    "--boilerplate",
    is_flag=True,
    help="List the lines that are treated as boilerplate, with the number of files that contain each.",
)
@click.option(
    "--drift", is_flag=True, help="Measure how much the documents have changed since the fit, and recommend what to do."
)
@click.option(
    "--settings",
    is_flag=False,
    flag_value="all",
    type=click.Choice(_SETTINGS),
    help="Show the settings of ragembed index and query, and where each comes from; with the value set, only those "
    "that are not the defaults.",
)
@format_option
@click.pass_context
def command(
    context: click.Context,
    store: Path | None,
    collections: str | None,
    skipped: bool,
    boilerplate: bool,
    drift: bool,
    settings: str | None,
    output: str,
) -> None:
    """Show what a store contains and how it was made.

    \b
    ragembed status
    ragembed status --drift
    ragembed status --settings

    Prints the numbers of files, chunks and vectors, the model, the embedder settings and the index. --skipped,
    --boilerplate, --drift and --settings each print another report instead. With --in, --drift measures stores with the
    same embedder as one.

    --settings prints the store, the collection that is searched, and each option of ragembed index and ragembed query.
    A value comes from the first of these places that has it: the command line, the environment, ragembed.toml in this
    folder or a parent folder, the collection that is searched, the default. For an existing store, the default of an
    option of ragembed index is the value that the store keeps.

    Exit status of --drift: 0 if the fit is up to date, 3 if you should run ragembed refit, 4 if you should delete the
    store and index again, 2 for an error.
    """
    if sum((drift, skipped, boilerplate, settings is not None)) > 1:
        raise click.UsageError(
            "got more than one of --drift, --boilerplate, --settings and --skipped: give one of them"
        )
    if settings is not None:
        if collections is not None:
            raise click.UsageError("--settings shows the settings of this folder: leave out --in")
        print_settings(context, store, output, only_set=settings == "set")
        return
    if boilerplate:
        if collections is not None:
            raise click.UsageError("--boilerplate shows one store: name it with --store")
        with Store.open(choose_store(store)) as opened:
            lines = opened.boilerplate()
        if not print_records({"boilerplate": [line._asdict() for line in lines]}, "boilerplate", output):
            for line in lines:
                say(f"{line.files:>7,} {line.kind:<9} {line.line}")
        return
    if not drift:
        report_stores(store, collections, output, lambda where: _examined(where, skipped=skipped))
    elif collections is None:
        report_stores(store, collections, output, lambda where: _drift_of({"": where}))
    else:
        report_groups(store, collections, output, lambda stores: _drift_of(stores, collections))


def _drift_of(stores: Mapping[str, Path], collections: str = "") -> StoreReport:
    """Return the report of stores with the same embedder."""
    refit, again = "run ragembed refit", "delete the store and index again"
    if len(stores) == 1:
        [path] = stores.values()
        with Store.open(path) as store:
            report = measure_drift(store)
    else:
        with Collection.open(stores) as together:
            report = measure_drift(together)
        refit = f"run ragembed collection refit {'NAME' if ',' in collections else collections}"
        again = f"delete the stores and index again, then {refit}"
    advice = {"keep": "nothing to do", "refit": refit, "rebuild": again}[report.verdict]

    def show() -> None:
        for name, value in _drift_lines(report, advice):
            say(f"{name:<15}{value}")
        for note in report.notes:
            say(f"note: {note}", err=True)

    return StoreReport(report.to_dict(), show, _EXIT[report.verdict])


def _examined(where: Path, *, skipped: bool) -> StoreReport:
    with Store.open(where) as opened:
        status, states = opened.read(lambda: (opened.status(), list(opened.stale_files().values())))
        status["stale"] = {"changed": states.count("changed"), "deleted": states.count("deleted")}
        pending, incomplete = pending_fit(opened), opened.incomplete

    def show() -> None:
        if skipped:
            for name, reason in status["skipped"].items():
                say(f"{shown_path(file_path(name, where))}: {reason}")
            return
        for name, value in (*_contents(status), *_making(status, pending)):
            say(f"{name:<15}{value}")
        say_incomplete(incomplete)

    return StoreReport(status, show)


def _contents(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and values: what the store has, and its index."""
    yield "store", f"{shown_path(Path(status['path']))} (format {status['format']}, generation {status['generation']})"
    yield "files", f"{status['files']:,}, skipped {len(status['skipped']):,}"
    stale = status["stale"]
    if any(stale.values()):
        changed = counted(stale["changed"], "file")
        yield "stale", f"{changed} changed, {stale['deleted']:,} deleted since they were indexed; run ragembed index"
    yield "chunks", f"{status['chunks']:,}"
    repeated = status["boilerplate"]
    if repeated["lines"]:
        count = repeated["chunks_of_nothing_else"]
        only = f"; {counted(count, 'chunk')} with nothing else" if count else ""
        found = f"{counted(repeated['lines'], 'line')}, not searched in {counted(repeated['chunks'], 'chunk')}"
        yield "boilerplate", found + only
    yield "vectors", f"{status['vectors']:,} of dimension {status['dim']}, {status['unused_vectors']:,} unused"
    index = status["index"]
    kinds = sorted({segment["kind"] for segment in status["segments"]})
    wanted = IndexConfig.from_dict(index["wanted"])
    requested = "" if wanted == IndexConfig() else f"; requested: {wanted.describe()}"
    yield "index", f"{', '.join(kinds) or 'none'} in {counted(len(status['segments']), 'segment')}{requested}"
    texts = status["detected_language"]
    shown = ""
    if texts is not None and texts["language"] is not None:
        shown = f"; texts in {texts['language'].capitalize()}"
        shown += "" if texts["is_read"] else ", which the model was not made for"
    yield "language", status["language"] + shown
    if index["check"] is not None:
        yield "measured", IndexEvaluation.from_dict(index["check"]).describe()
    if index["choice"] is not None:
        choice = IndexSelection.from_dict(index["choice"])
        yield from [] if choice.effort is None else [("effort", f"{choice.effort:,}")]
        yield from (*choice.describe(), ("built", choice.built_on))
    yield "size", readable_bytes(status["bytes"])


def _making(status: Mapping[str, Any], pending: str | None) -> Iterator[tuple[str, str]]:
    """Yield names and values: the embedder, and the settings; ``pending`` says what is not fitted yet."""
    embedder = status["embedder"]
    yield "model", f"{embedder['model']}"
    if embedder["kind"] == "ragembed":
        yield from _embedding(embedder, pending)
    fusion = status["fusion"]
    saved = "" if fusion == Fusion().to_dict() else " (saved in the store)"
    numbers = ", ".join(f"{name} {fusion[name]:g}" for name in ("alpha", "feedback", "hubness"))
    yield "fusion", f"{fusion['method']}, {numbers}{saved}"
    fitted = status["relevance"]
    if fitted is not None:
        about = f"fitted on {fitted['pseudo_queries']:,} pseudo-queries of {counted(fitted['chunks'], 'chunk')}"
    elif embedder["kind"] != "ragembed":
        about = "not fitted: the vectors were not made by ragembed"
    else:
        few = f": it needs {LEAST_CHUNKS} chunks or more" if status["chunks"] < LEAST_CHUNKS else None
        about = f"not fitted{few or ' yet: run ragembed refit'}"
    yield "relevance", about
    yield "fingerprint", embedder["fingerprint"]
    if "part" in status:
        stores = counted(status["part"]["stores"], "store")
        yield "part", f"one of {stores} that ragembed index --collection updates together"
    if status["indexing"]:
        usual = IndexingOptions().to_dict()
        options = status["indexing"]["options"]
        changed = {name: value for name, value in options.items() if (value or None) != (usual[name] or None)}
        texts = (f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in changed.items())
        yield "paths", ", ".join(status["indexing"]["paths"])
        yield "options", ", ".join(texts) or "defaults"


def _embedding(embedder: Mapping[str, Any], pending: str | None) -> Iterator[tuple[str, str]]:
    """Yield how vectors are made: the settings that differ from the defaults, and what was fitted."""
    config, fitted = embedder["config"], embedder["fitted_on"]
    external = is_external(embedder["model"])
    if external:
        queries = config["template"] if config["query_template"] is None else config["query_template"]
        plain = config["template"] == queries == PLAIN
        yield "prompts", "none" if plain else f"{config['template']}; for queries {queries}"
    else:
        usual = EmbedderConfig().to_dict()
        changed = [f"{name}={config[name]}" for name in _EXTRACTION if config[name] != usual[name]]
        yield "extractor", ", ".join([config["extractor"], *changed])
        weights = config["weighting_corpus"] or counted(fitted["texts"], "chunk")
        yield "weighting", f"{config['weighting']}, fitted on {weights}"
    fit = f"fitted on {config['postprocess_corpus'] or counted(fitted['documents'], 'chunk')}"
    if not set(config["postprocess"]) - {"normalize"}:
        fit = "nothing to fit"
    elif config["query_fit"] == "separate":
        fit += f" and {fitted['pseudo_queries']:,} pseudo-queries"
    else:
        fit += ", the same for documents and queries"
    yield "postprocess", f"{', '.join(config['postprocess']) or 'none'}; {pending or fit}"
    if external:
        yield "window", f"{config['max_tokens']} tokens, estimated"
    else:
        precision = _PRECISIONS.get(config["dtype"], f"{config['dtype']} for documents, float32 for queries")
        yield "precision", f"{precision}; {config['max_tokens']} tokens"


def _drift_lines(report: DriftReport, advice: str) -> Iterator[tuple[str, str]]:
    yield "verdict", f"{report.verdict}: {'; '.join([*report.reasons, advice])}"
    changes = "" if report.added is None else f"; {report.added:,} added and {report.removed:,} removed since the fit"
    yield "vectors", f"{report.vectors:,}{changes}"
    if report.unseen is not None:
        texts = counted(report.texts, "text")
        yield "unseen tokens", f"{report.unseen:.1%} of the tokens of {texts} are new since the fit"
    if report.movers:
        movers = (f"{mover.token} {mover.fitted:.1f} → {mover.now:.1f}" for mover in report.movers)
        yield "idf movers", ", ".join(movers)
    if report.weight_shift is not None:
        yield "token weights", f"a new fit would move {report.weight_shift:.1%} of a text's weight to other tokens"
    if report.overlap is not None:
        among = f"{report.queries:,} pseudo-queries in {report.searched:,} vectors"
        chance = f"{report.chance:.3f} expected by chance"
        yield "overlap@10", f"{report.overlap:.3f} with the results after a refit ({chance}), {among}"
