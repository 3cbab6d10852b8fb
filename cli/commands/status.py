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
from ragembed.indexes.writing.boilerplate_store import BoilerplateLine
from ragembed.printable import readable_bytes

_SETTINGS = ("all", "set")
_PRECISIONS = {"auto": "float32", "mixed": "bfloat16 for large runs, float32 for small runs and queries"}


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
            _print_boilerplate(opened.boilerplate(), output)
        return
    if not drift:
        report_stores(store, collections, output, lambda where: _examined(where, skipped=skipped))
    elif collections is None:
        report_stores(store, collections, output, lambda where: _drift_of({"": where}))
    else:
        report_groups(store, collections, output, lambda stores: _drift_of(stores, collections))


def _drift_of(stores: Mapping[str, Path], collections: str = "") -> StoreReport:
    """Return the report of stores with the same embedder."""
    if len(stores) == 1:
        [path] = stores.values()
        with Store.open(path) as store:
            report = measure_drift(store)
        advice = _ADVICE[report.verdict]
    else:
        with Collection.open(stores) as together:
            report = measure_drift(together)
        refit = f"run ragembed collection refit {'NAME' if ',' in collections else collections}"
        again = f"delete the stores and index again, then {refit}"
        advice = {"keep": _ADVICE["keep"], "refit": refit, "rebuild": again}[report.verdict]
    return StoreReport(report.to_dict(), lambda: _print_drift(report, advice), EXIT[report.verdict])


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
        for name, value in _lines(status, pending):
            say(f"{name:<15}{value}")
        say_incomplete(incomplete)

    return StoreReport(status, show)


def _print_boilerplate(lines: list[BoilerplateLine], output: str) -> None:
    if not print_records({"boilerplate": [line._asdict() for line in lines]}, "boilerplate", output):
        for line in lines:
            say(f"{line.files:>7,} {line.kind:<9} {line.line}")


def _lines(status: dict[str, Any], pending: str | None = None) -> list[tuple[str, str]]:
    """Return the names and values to print; ``pending`` says which post-processors are not fitted yet."""
    embedder = status["embedder"]
    lines = [
        ("store", f"{shown_path(Path(status['path']))} (format {status['format']}, generation {status['generation']})"),
        ("files", f"{status['files']:,}, skipped {len(status['skipped']):,}"),
        *_stale(status["stale"]),
        ("chunks", f"{status['chunks']:,}"),
        *_boilerplate(status["boilerplate"]),
        ("vectors", f"{status['vectors']:,} of dimension {status['dim']}, {status['unused_vectors']:,} unused"),
        ("index", _index(status)),
        ("language", status["language"] + _texts(status["detected_language"])),
        *_choice(status["index"]),
        ("size", readable_bytes(status["bytes"])),
        ("model", f"{embedder['model']}"),
    ]
    if embedder["kind"] == "ragembed":
        config, fitted = embedder["config"], embedder["fitted_on"]
        weights = config["weighting_corpus"] or counted(fitted["texts"], "chunk")
        precision = _PRECISIONS.get(config["dtype"], f"{config['dtype']} for documents, float32 for queries")
        external = is_external(embedder["model"])
        own = [("extractor", _extractor(config)), ("weighting", f"{config['weighting']}, fitted on {weights}")]
        shown = f"{config['max_tokens']} tokens"
        lines += [
            *([("prompts", _prompts(config))] if external else own),
            ("postprocess", f"{', '.join(config['postprocess']) or 'none'}; {pending or _fit(config, fitted)}"),
            ("window", f"{shown}, estimated") if external else ("precision", f"{precision}; {shown}"),
        ]
    lines.append(("fusion", _fusion(status["fusion"])))
    lines.append(("relevance", _relevance(status)))
    lines.append(("fingerprint", embedder["fingerprint"]))
    if "part" in status:
        stores = counted(status["part"]["stores"], "store")
        lines.append(("part", f"one of {stores} that ragembed index --collection updates together"))
    if status["indexing"]:
        changed = _changed_options(status["indexing"]["options"])
        lines.append(("paths", ", ".join(status["indexing"]["paths"])))
        lines.append(("options", ", ".join(f"{name}={value}" for name, value in changed.items()) or "defaults"))
    return lines


def _stale(count: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the line about files that are not as they were indexed, or nothing if there are none."""
    if not any(count.values()):
        return []
    changed, deleted = counted(count["changed"], "file"), count["deleted"]
    return [("stale", f"{changed} changed, {deleted:,} deleted since they were indexed; run ragembed index")]


def _boilerplate(found: dict[str, int]) -> list[tuple[str, str]]:
    """Return the line about boilerplate, or nothing if the store has none."""
    if not found["lines"]:
        return []
    lines, chunks = counted(found["lines"], "line"), counted(found["chunks"], "chunk")
    count = found["chunks_of_nothing_else"]
    only = f"; {counted(count, 'chunk')} with nothing else" if count else ""
    return [("boilerplate", f"{lines}, not searched in {chunks}{only}")]


def _changed_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that differ from the defaults, with lists as text."""
    kept = {name: ",".join(value) if isinstance(value, list) else value for name, value in options.items()}
    defaults = {name: "" if value == () else value for name, value in IndexingOptions().to_dict().items()}
    return {name: value for name, value in kept.items() if value != defaults[name]}


def _extractor(config: dict[str, Any]) -> str:
    """Return the extractor and those of its settings that differ from the defaults."""
    settings = EmbedderConfig().to_dict()
    named = (
        *("layers", "revision", "trust_remote_code", "template", "query_template", "pooling", "modules", "normalize"),
        *("truncate_dim", "special_tokens"),
    )
    changed = [f"{name}={config[name]}" for name in named if config[name] != settings[name]]
    return ", ".join([config["extractor"], *changed])


def _prompts(config: dict[str, Any]) -> str:
    """Return the template of each side."""
    queries = config["template"] if config["query_template"] is None else config["query_template"]
    return "none" if config["template"] == queries == PLAIN else f"{config['template']}; for queries {queries}"


def _fusion(fusion: dict[str, Any]) -> str:
    saved = "" if fusion == Fusion().to_dict() else " (saved in the store)"
    return (
        f"{fusion['method']}, alpha {fusion['alpha']:g}, feedback {fusion['feedback']:g}, hubness {fusion['hubness']:g}"
        f"{saved}"
    )


def _relevance(status: dict[str, Any]) -> str:
    fitted = status["relevance"]
    if fitted is not None:
        return f"fitted on {fitted['pseudo_queries']:,} pseudo-queries of {counted(fitted['chunks'], 'chunk')}"
    if status["embedder"]["kind"] != "ragembed":
        return "not fitted: the vectors were not made by ragembed"
    few = status["chunks"] < LEAST_CHUNKS
    return f"not fitted: it needs {LEAST_CHUNKS} chunks or more" if few else "not fitted yet: run ragembed refit"


def _texts(texts: dict[str, Any] | None) -> str:
    """Return the language of the texts, if it was recognised, and whether the model was made for it."""
    if texts is None or texts["language"] is None:
        return ""
    found = texts["language"].capitalize()
    return f"; texts in {found}" + ("" if texts["is_read"] else ", which the model was not made for")


def _index(status: dict[str, Any]) -> str:
    kinds = sorted({segment["kind"] for segment in status["segments"]})
    wanted = IndexConfig.from_dict(status["index"]["wanted"])
    requested = "" if wanted == IndexConfig() else f"; requested: {wanted.describe()}"
    return f"{', '.join(kinds) or 'none'} in {counted(len(status['segments']), 'segment')}{requested}"


def _choice(index: dict[str, Any]) -> list[tuple[str, str]]:
    measured = [] if index["check"] is None else [("measured", IndexEvaluation.from_dict(index["check"]).describe())]
    if index["choice"] is None:
        return measured
    choice = IndexSelection.from_dict(index["choice"])
    effort = [] if choice.effort is None else [("effort", f"{choice.effort:,}")]
    return [*measured, *effort, *choice.describe(), ("built", choice.built_on)]


def _fit(config: dict[str, Any], fitted: dict[str, int]) -> str:
    if not set(config["postprocess"]) - {"normalize"}:
        return "nothing to fit"
    documents = config["postprocess_corpus"] or counted(fitted["documents"], "chunk")
    if config["query_fit"] == "separate":
        return f"fitted on {documents} and {fitted['pseudo_queries']:,} pseudo-queries"
    return f"fitted on {documents}, the same for documents and queries"


EXIT: Mapping[Verdict, int] = {"keep": 0, "refit": 3, "rebuild": 4}
"""The exit status for each verdict."""

_ADVICE: Mapping[Verdict, str] = {
    "keep": "nothing to do",
    "refit": "run ragembed refit",
    "rebuild": "delete the store and index again",
}


def _print_drift(report: DriftReport, advice: str) -> None:
    for name, value in _drift_lines(report, advice):
        say(f"{name:<15}{value}")
    for note in report.notes:
        say(f"note: {note}", err=True)


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
