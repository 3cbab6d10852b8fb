"""``ragembed status``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragembed.cli.drift_report import EXIT, print_drift
from ragembed.cli.options import format_option, store_option
from ragembed.cli.output import print_json, print_jsonl, readable_bytes, say, shown_path
from ragembed.config import EmbedderConfig
from ragembed.indexes import Fusion, Store
from ragembed.indexes.ann.records import Check, Choice, Wanted
from ragembed.indexes.boilerplate_store import BoilerplateLine
from ragembed.indexes.drift import measure_drift
from ragembed.indexes.layout import choose_store, file_path
from ragembed.indexes.scan import IndexingOptions

_PRECISIONS = {"auto": "float32", "mixed": "bfloat16 for many documents, float32 for few and for questions"}


@click.command()
@store_option
@click.option("--skipped", is_flag=True, help="List the files that were skipped, with the reason for each.")
@click.option("--boilerplate", is_flag=True, help="List the lines that many files repeat, with how many do.")
@click.option("--drift", is_flag=True, help="Tell how far it has moved from what it was fitted on.")
@format_option
@click.pass_context
def command(
    context: click.Context, store: Path | None, skipped: bool, boilerplate: bool, drift: bool, output: str
) -> None:
    """Show what is in a store, with which model and settings it was made.

    With --drift, whether to fit it anew instead: exit status 0 to keep it as it is, 3 to run ragembed refit, 4 to
    delete it and index again.
    """
    if sum((drift, skipped, boilerplate)) > 1:
        raise click.UsageError("--drift, --boilerplate and --skipped are reports of their own: ask for one of them")
    where = choose_store(store)
    with Store.open(where) as opened:
        if boilerplate:
            _print_boilerplate(opened.boilerplate(), output)
            return
        if drift:
            report = measure_drift(opened)
            print_drift(report, output)
            context.exit(EXIT[report.verdict])
        status = opened.status()
    if output == "json":
        print_json(status)
    elif output == "jsonl":
        print_jsonl([status])
    elif skipped:
        for name, reason in status["skipped"].items():
            say(f"{shown_path(file_path(name, where))}: {reason}")
    else:
        for name, value in _lines(status):
            say(f"{name:<15}{value}")
        if status["unfinished"]:
            say("the last run was interrupted: run ragembed index to carry on", err=True)


def _print_boilerplate(lines: list[BoilerplateLine], output: str) -> None:
    if output == "json":
        print_json({"boilerplate": [line._asdict() for line in lines]})
    elif output == "jsonl":
        print_jsonl(line._asdict() for line in lines)
    else:
        for line in lines:
            say(f"{line.files:>7,} {line.kind:<9} {line.line}")


def _lines(status: dict[str, Any]) -> list[tuple[str, str]]:
    embedder = status["embedder"]
    lines = [
        ("store", f"{shown_path(Path(status['path']))} (format {status['format']}, generation {status['generation']})"),
        ("files", f"{status['files']:,}, skipped {len(status['skipped']):,}"),
        ("chunks", f"{status['chunks']:,}"),
        *_boilerplate(status["boilerplate"]),
        ("vectors", f"{status['vectors']:,} of dimension {status['dim']}, {status['unused_vectors']:,} unused"),
        ("index", _index(status)),
        ("language", status["language"]),
        *_choice(status["index"]),
        ("size", readable_bytes(status["bytes"])),
        ("model", f"{embedder['model']}"),
    ]
    if embedder["kind"] == "ragembed":
        config, fitted = embedder["config"], embedder["fitted_on"]
        precision = _PRECISIONS.get(config["dtype"], f"{config['dtype']} for documents, float32 for questions")
        lines += [
            ("extractor", _extractor(config)),
            ("weighting", f"{config['weighting']}, fitted on {config['weighting_corpus'] or _chunks(fitted['texts'])}"),
            ("postprocess", f"{', '.join(config['postprocess'])}; {_fit(config, fitted)}"),
            ("precision", f"{precision}; {config['max_tokens']} tokens"),
        ]
    lines.append(("fusion", _fusion(status["fusion"])))
    lines.append(("fingerprint", embedder["fingerprint"]))
    if status["indexing"]:
        changed = _changed_options(status["indexing"]["options"])
        lines.append(("paths", ", ".join(status["indexing"]["paths"])))
        lines.append(("options", ", ".join(f"{name}={value}" for name, value in changed.items()) or "defaults"))
    return lines


def _boilerplate(found: dict[str, int]) -> list[tuple[str, str]]:
    """Return what is said of lines that are left out of searches, nothing where there are none."""
    if not found["lines"]:
        return []
    lines = f"{found['lines']:,} {'line' if found['lines'] == 1 else 'lines'}"
    alone = f"; {found['chunks_of_nothing_else']:,} chunks have nothing else" if found["chunks_of_nothing_else"] else ""
    return [("boilerplate", f"{lines}, left out of {found['chunks']:,} chunks in searches{alone}")]


def _changed_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are not the defaults, lists as text."""
    kept = {name: ",".join(value) if isinstance(value, list) else value for name, value in options.items()}
    defaults = {name: "" if value == () else value for name, value in IndexingOptions().to_dict().items()}
    return {name: value for name, value in kept.items() if value != defaults[name]}


def _extractor(config: dict[str, Any]) -> str:
    """Return the extractor, with those of its settings that are not the defaults."""
    settings = EmbedderConfig().to_dict()
    named = ("layers", "template", "query_template", "pooling", "special_tokens")
    changed = [f"{name}={config[name]}" for name in named if config[name] != settings[name]]
    return ", ".join([config["extractor"], *changed])


def _fusion(fusion: dict[str, Any]) -> str:
    tuned = "" if fusion == Fusion().to_dict() else " (tuned)"
    return f"{fusion['method']}, alpha {fusion['alpha']:g}, feedback {fusion['feedback']:g}{tuned}"


def _index(status: dict[str, Any]) -> str:
    kinds = sorted({segment["kind"] for segment in status["segments"]})
    count = len(status["segments"])
    wanted = Wanted.from_dict(status["index"]["wanted"])
    asked = "" if wanted == Wanted() else f"; asked for: {wanted.describe()}"
    return f"{', '.join(kinds) or 'none'} in {count} {'segment' if count == 1 else 'segments'}{asked}"


def _choice(index: dict[str, Any]) -> list[tuple[str, str]]:
    told = [] if index["check"] is None else [("measured", Check.from_dict(index["check"]).describe())]
    if index["choice"] is None:
        return told
    choice = Choice.from_dict(index["choice"])
    effort = [] if choice.effort is None else [("effort", f"{choice.effort:,}")]
    return [*told, *effort, *choice.describe(), ("built", choice.built_on)]


def _fit(config: dict[str, Any], fitted: dict[str, int]) -> str:
    if not set(config["postprocess"]) - {"normalize"}:
        return "nothing to fit"
    documents = config["postprocess_corpus"] or _chunks(fitted["documents"])
    if config["sides"] == "two":
        return f"fitted on {documents} and {fitted['pseudo_queries']:,} pseudo-queries"
    return f"fitted on {documents}, the same for documents and questions"


def _chunks(count: int) -> str:
    return f"{count:,} chunks"
