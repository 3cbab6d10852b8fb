"""``ragembed status``: what a store has, its drift, and the settings in use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from ragembed.cli import WITH_PROJECT, main
from ragembed.cli.options import format_option, shared
from ragembed.cli.output import counted, print_record, say, say_incomplete, shown_path
from ragembed.cli.project import (
    NEVER_SET,
    choose_store_with_origin,
    chosen_collections,
    collections_files,
    option_defaults,
    option_values,
    parameters,
    project,
)
from ragembed.cli.searched import StoreReport, each_in_option, report_stores, say_notes
from ragembed.config.fields import from_json
from ragembed.config.settings import EmbedderConfig
from ragembed.config.settings_files import registry_file
from ragembed.config.specs import PLAIN
from ragembed.errors import RagembedError
from ragembed.extractors.build import is_external
from ragembed.indexes import Collection, Fusion, IndexConfig, IndexingOptions, Store
from ragembed.indexes.doctor.drift import DriftReport, Verdict, measure_drift
from ragembed.indexes.faiss_index.records import IndexEvaluation, IndexSelection
from ragembed.indexes.indexing.fitting import pending_fit
from ragembed.indexes.indexing.request import open_existing, stored_config, stored_request
from ragembed.indexes.lexical.analyzer import ENGLISH
from ragembed.indexes.search.relevance import LEAST_CHUNKS
from ragembed.indexes.storage.layout import file_path, is_store
from ragembed.printable import readable_bytes

_DEFAULT, _STORE = "default", "store"
_STATED_DEFAULT = re.compile(r"\[default: (.*)\]", re.DOTALL)


def print_settings(context: click.Context, store: Path | None, output: str, *, only_set: bool) -> None:
    """Print the settings and where they come from; with ``only_set``, without those that are the defaults."""
    current = project()
    files = {"project": None if current is None else str(current.path), "collections": str(registry_file())}
    rows = [row for row in _settings(context, store) if row[0]["origin"] != _DEFAULT or not only_set]
    if print_record({"files": files, "settings": [record for record, _ in rows]}, output, "settings"):
        return
    for name, file in files.items():
        say(f"{name:<12} {file or 'none'}")
    for record, otherwise in rows:
        name = f"{record['command']}.{record['name']}" if record["command"] else record["name"]
        value = record["value"]
        shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        if isinstance(value, bool):
            shown = shown.lower()
        say(f"{name:<28} {otherwise if value in (None, '', [], ()) else shown}  ({record['origin']})")


def _settings(context: click.Context, given_store: Path | None) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the store, the default collection, and each option of index and query, as without a command line.

    Each comes with what the option does without a value.
    """
    store, origin = choose_store_with_origin(given_store)
    collections = chosen_collections(given_store, None) or []
    yield {"command": None, "name": "store", "value": str(store), "origin": origin}, ""
    files = collections_files() if collections else []
    for name in collections:
        default_of = next(str(file.path) for file in files if file.default == name)
        yield {"command": None, "name": "collection", "value": name, "origin": default_of}, ""
    current = project()
    usual = stored = _values_of(None)
    try:
        stored = _values_of(store)
    except (RagembedError, OSError) as error:
        say(f"note: the settings that the store keeps cannot be read: {error}", err=True)
    for command in filter(None, (main.get_command(context, name) for name in WITH_PROJECT)):
        defaults = command.make_context(str(command.name), [], resilient_parsing=True).params
        values = {name: (value, _DEFAULT) for name, value in defaults.items() if value not in (None, ())}
        for name in stored.keys() - values.keys():
            values[name] = stored[name], _DEFAULT if stored[name] == usual.get(name) else _STORE
        for file in reversed(files if command.name == "query" else []):
            for collection in (file.collections[name] for name in collections if name in file.collections):
                settings = option_values(command, collection.query, f"{file.path}: {{}}")
                values |= {name: (value, str(file.path)) for name, value in settings.items()}
        if current is not None:
            values |= {name: (value, str(current.path)) for name, value in option_defaults(command).items()}
        for key, parameter in parameters(command).items():
            if parameter.name not in NEVER_SET:
                value, origin = values.get(str(parameter.name), (None, _DEFAULT))
                stated = _STATED_DEFAULT.search(getattr(parameter, "help", None) or "")
                record = {"command": command.name, "name": key, "value": value, "origin": origin}
                yield record, stated[1] if stated else "none"


def _values_of(path: Path | None) -> dict[str, Any]:
    """Return the settings of a store, or of a new one, by the names of their options."""
    if path is None or not is_store(path):
        settings = (EmbedderConfig(), IndexingOptions(), IndexConfig(), Fusion())
        return {name: value for part in settings for name, value in part.to_dict().items()} | {"language": ENGLISH}
    with open_existing(path) as store:
        config, request = stored_config(store), stored_request(store)
        if store is None:
            return _values_of(None)
        roots, options = ((), IndexingOptions()) if request is None else request
        return {
            **({} if config is None else config.to_dict()),
            **options.to_dict(),
            **store.wanted_index.to_dict(),
            **store.fusion.to_dict(),
            "preset": "the settings of the store",
            "language": store.language,
            "paths": [shown_path(root) for root in roots],
        }


_PRECISIONS = {"auto": "float32", "mixed": "bfloat16 for large runs, float32 for small runs and queries"}
_EXTRACTION = (
    *("layers", "revision", "trust_remote_code", "template", "query_template", "pooling", "modules", "normalize"),
    *("truncate_dim", "special_tokens"),
)
"""Settings that are shown with the extractor if they differ from the defaults."""
_EXIT: Mapping[Verdict, int] = {"keep": 0, "refit": 3, "rebuild": 4}
"""The exit status for each verdict on drift."""


@click.command(name="status")
@shared("store")
@each_in_option
@click.option("--skipped", is_flag=True, help="List the skipped files, with the reason for each.")
@click.option(
    "--drift", is_flag=True, help="Measure how much the documents have changed since the fit, and recommend what to do."
)
@click.option(
    "--settings",
    is_flag=False,
    flag_value="all",
    type=click.Choice(("all", "set")),
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
    --drift and --settings each print another report instead. With --in, --drift measures stores with the same embedder
    as one.

    --settings prints the store, the collection that is searched, and each option of ragembed index and ragembed query.
    A value comes from the first of these places that has it: the command line, the environment, ragembed.toml in this
    folder or a parent folder, the collection that is searched, the default. For an existing store, the default of an
    option of ragembed index is the value that the store keeps.

    Exit status of --drift: 0 if the fit is up to date, 3 if you should run ragembed refit, 4 if you should delete the
    store and index again, 2 for an error.
    """
    if sum((drift, skipped, settings is not None)) > 1:
        raise click.UsageError("got more than one of --drift, --settings and --skipped: give one of them")
    if settings is not None:
        if collections is not None:
            raise click.UsageError("--settings shows the settings of this folder: leave out --in")
        print_settings(context, store, output, only_set=settings == "set")
        return
    if not drift:
        report_stores(store, collections, output, lambda stores: _examined(*stores.values(), skipped=skipped))
    else:
        drift_of = partial(_drift_of, collections or "")
        report_stores(store, collections, output, drift_of, by_embedder=True)


def _drift_of(collections: str, stores: Mapping[str, Path]) -> StoreReport:
    """Return the report of stores with the same embedder."""
    refit, again = "run ragembed refit", "delete the store and index again"
    if len(stores) == 1:
        with Store.open(next(iter(stores.values()))) as store:
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
        say_notes(report.notes)

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
        yield "measured", from_json(IndexEvaluation, index["check"]).describe()
    if index["choice"] is not None:
        choice = from_json(IndexSelection, index["choice"])
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
        yield "unseen tokens", f"{report.unseen:.1%} of the tokens of the texts are new since the fit"
    if report.weight_shift is not None:
        yield "token weights", f"a new fit would move {report.weight_shift:.1%} of a text's weight to other tokens"
    if report.overlap is not None:
        chance = f"{report.chance:.3f} expected by chance"
        yield "overlap@10", f"{report.overlap:.3f} with the results after a refit ({chance})"
