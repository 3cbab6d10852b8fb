"""``ragembed models``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from ragembed.cli.options import format_option
from ragembed.cli.output import print_record, say, shown_path
from ragembed.config.settings import DEFAULT_MODEL
from ragembed.evaluation.table import aligned
from ragembed.inventory import RECOMMENDED, LocalModel, describe_model, local_models
from ragembed.models.files import install_default
from ragembed.printable import readable_bytes

_HEADER = ("dim", "window", "pooling", "licence", "size", "from")
_RECOMMENDED_HEADER = ("size", "parameters", "dim", "window", "licence", "runs in")
_OPTIONS = {model.name: model.options for model in RECOMMENDED if model.options}


@click.command(name="models")
@click.argument("names", nargs=-1, metavar="[ID|PATH]...")
@format_option
def command(names: tuple[str, ...], output: str) -> None:
    """List embedding models, here and recommended.

    \b
    ragembed models
    ragembed models models/my-model

    Shows the models that are installed, or in the local cache of the Hugging Face hub, with the settings that ragembed
    would use and the reason if it cannot use a model. Then it recommends models for English, many languages and code.
    With ID or PATH, shows only these models, and more about each. --format jsonl leaves out the recommended models.

    The command reads configuration files. It does not load weights, and never uses the network.
    """
    models = [describe_model(name) for name in names] if names else local_models()
    local = {model.name for model in models}
    records = [{**asdict(model), "folder": shown_path(model.folder)} for model in models]
    value: dict[str, Any] = {
        "models": [{"name": record.pop("name"), "usable": record["problem"] is None, **record} for record in records]
    }
    if not names:
        value["recommended"] = [{**asdict(model), "on_this_machine": model.name in local} for model in RECOMMENDED]
    if print_record(value, output, "models"):
        return
    lines = _details(models) if names else [*_listing(models), "", *_recommendations(local)]
    for line in lines:
        say(line)
    if not names and DEFAULT_MODEL not in local:
        say(f"note: the default model is not on this machine; install it with: {install_default()}", err=True)


def _listing(models: Sequence[LocalModel]) -> Iterator[str]:
    """Yield a table of models; the lines below a row have its prompts, or the reason why it cannot be used."""
    if not models:
        yield "no models on this machine"
        return
    cells: list[list[str]] = [["models on this machine", *_HEADER]]
    for model in models:
        values = (model.dim, model.window, model.pooling, model.licence)
        size = "" if model.bytes is None else readable_bytes(model.bytes)
        cells.append([model.name, *("" if value is None else str(value) for value in values), size, model.place])
    header, *rows = aligned(cells)
    yield header
    for model, row in zip(models, rows, strict=True):
        yield row
        if model.query_prompt or model.document_prompt:
            yield f"    prompts: {_prompts(model)}"
        elif model.name in _OPTIONS:
            yield f"    set: {_OPTIONS[model.name]}"
        if model.problem is not None:
            yield f"    not usable: {model.problem}"


def _prompts(model: LocalModel) -> str:
    texts = {"documents": model.document_prompt, "queries": model.query_prompt}
    return ", ".join(f"{kind} {json.dumps(text, ensure_ascii=False)}" for kind, text in texts.items() if text) or "none"


def _details(models: Sequence[LocalModel]) -> Iterator[str]:
    for number, model in enumerate(models):
        if number:
            yield ""
        lines = {
            "model": model.name,
            "folder": shown_path(model.folder),
            "usable": "yes" if model.problem is None else f"no: {model.problem}",
            "runs in": None if model.needs_torch is None else "PyTorch" if model.needs_torch else "NumPy or PyTorch",
            "dimension": model.dim,
            "window": None if model.window is None else f"{model.window:,} tokens",
            "pooling": model.pooling,
            "prompts": None if model.pooling is None else _prompts(model),
            "set": None if model.query_prompt or model.document_prompt else _OPTIONS.get(model.name),
            "licence": model.licence or "not stated",
            "size": None if model.bytes is None else readable_bytes(model.bytes),
        }
        yield from (f"{name:<15}{value}" for name, value in lines.items() if value is not None)


def _recommendations(local: set[str]) -> Iterator[str]:
    """Yield a table of recommended models by purpose; below a row are the options that it needs and its source."""
    cells = []
    for model in RECOMMENDED:
        numbers = (f"{model.parameters} M", str(model.dim), f"{model.window:,}")
        runs_in = "PyTorch" if model.needs_torch else "NumPy"
        cells.append((f"  {model.name}", model.size, *numbers, model.licence, runs_in))
    header, *rows = aligned([("recommended models", *_RECOMMENDED_HEADER), *cells])
    yield header
    purpose = None
    for model, row in zip(RECOMMENDED, rows, strict=True):
        if model.purpose != purpose:
            purpose = model.purpose
            yield purpose
        yield f"{row}{'  (on this machine)' if model.name in local else ''}"
        yield f"      {model.source}"
        if model.options:
            yield f"      {model.options}"
