"""Options that several commands share, as decorators."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import click

from ragembed.config.settings import DEFAULT_PRESET, PRESETS
from ragembed.config.specs import POOLINGS
from ragembed.documents.places import RemotePath, is_url
from ragembed.errors import ConfigError
from ragembed.indexes.ann.choosing import LATENCY_MS, RECALL
from ragembed.indexes.ann.specs import AUTO, NAMES
from ragembed.indexes.filters import And, Field, Filter, Glob, Or, parse
from ragembed.indexes.storage.layout import STORE_VARIABLE

Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS = ("text", "json", "jsonl")
EMBEDDING_OPTIONS = (
    *("preset", "config_file", "extractor", "model", "layers", "template", "query_template", "pooling"),
    *("special_tokens", "weighting", "postprocess", "query_fit"),
    *("avg_corpus", "weighting_corpus", "postprocess_corpus"),
)
"""Names of the options that decide how texts are embedded."""
INDEX_OPTIONS = ("index_kind", "max_memory", "max_latency_ms", "min_recall", "shards")
"""Names of the options that decide on the kind of index."""
_MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def size_in_bytes(value: str) -> int:
    """Turn ``20M`` into 20,971,520; raises a usage error for what is not a size."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)i?B?", value.strip(), re.IGNORECASE)
    size = float(match[1]) * _UNITS[match[2].upper()] if match else 0.0
    if not 1 <= size < math.inf:
        raise click.BadParameter(f"{value!r} is not a size: expected a number above 0 with K, M or G, as in 20M")
    return int(size)


class LocalPath(click.Path):
    """A path, as a :class:`Path`; an empty one, as of a shell variable that is not set, is a usage error."""

    def __init__(self, **checks: bool) -> None:
        super().__init__(path_type=Path, **checks)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a :class:`Path`."""
        if value == "":
            self.fail("the path is empty: give the name of a file or folder", param, ctx)
        return super().convert(value, param, ctx)


class PlacePath(LocalPath):
    """A path, or a URL that fsspec reads; one that holds a secret is a usage error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a :class:`Path` or a :class:`RemotePath`."""
        if not isinstance(value, str) or not is_url(value):
            return super().convert(value, param, ctx)
        try:
            return RemotePath.parse(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


EXISTING_PATH = LocalPath(exists=True)
EXISTING_FILE = LocalPath(exists=True, dir_okay=False)


class _NoLimit:
    """Says that a limit which was asked for before is lifted."""


NO_LIMIT = _NoLimit()


def limit(read: Callable[[str], float | int]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return what reads a limit: None where it is not given, :data:`NO_LIMIT` for ``none``."""

    def callback(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        return NO_LIMIT if value.strip().lower() == "none" else read(value)

    return callback


def milliseconds(value: str) -> float:
    """Turn ``5ms`` or ``0.01s`` into milliseconds; raises a usage error for what is not a time above 0."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s)", value.strip(), re.IGNORECASE)
    if match is None or not 0 < float(match[1]) < math.inf:
        raise click.BadParameter(f"{value!r} is not a time: expected a number above 0 with us, ms or s, as in 5ms")
    return float(match[1]) * _MILLISECONDS[match[2].lower()]


def share(value: str) -> float:
    """Turn ``0.98`` or ``98%`` into 0.98; raises a usage error for what is not above 0 and up to 1."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", value.strip())
    number = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < number <= 1:
        raise click.BadParameter(f"{value!r} is not a share: expected a number above 0 and up to 1, as in 0.98")
    return number


def index_options(command: Command) -> Command:
    """Add the options that decide on the kind of index; each is None where it is not given."""
    return with_options(
        command,
        click.option(
            "--index",
            "index_kind",
            metavar="KIND",
            help=f"{AUTO}, {', '.join(NAMES)}, or a factory string of FAISS.  [default: {AUTO}]",
        ),
        click.option(
            "--max-memory",
            callback=limit(size_in_bytes),
            metavar="SIZE",
            help="Most that the index may take, as in 500M, or none.",
        ),
        click.option(
            "--max-latency",
            "max_latency_ms",
            callback=limit(milliseconds),
            metavar="TIME",
            help=f"Most that a search of it may take, as in 5ms, or none.  [default: {LATENCY_MS:g}ms, if possible]",
        ),
        click.option(
            "--min-recall",
            callback=limit(share),
            metavar="SHARE",
            help=f"Least share of the 10 nearest that is found, or none.  [default: {RECALL:g}, if possible]",
        ),
        click.option(
            "--shards", type=click.IntRange(1), metavar="N", help="In how many parts the index is kept.  [default: 1]"
        ),
    )


def device_option(command: Command) -> Command:
    """Add ``--device``."""
    return click.option(
        "--device",
        metavar="DEVICE",
        help="Where documents are encoded and indexes built: auto (GPUs, if any), cpu, gpu, gpu:0,2.  [default: auto]",
    )(command)


quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print nothing but results and errors.")


def store_option(command: Command) -> Command:
    """Add ``--store``."""
    return click.option(
        "--store",
        type=LocalPath(file_okay=False),
        help=f"Folder of the store. Default: ${STORE_VARIABLE}, else .ragembed here or in a folder above.",
    )(command)


def format_option(command: Command, more: Mapping[str, str] = MappingProxyType({})) -> Command:
    """Add ``--format`` and its short form ``--json``; ``more`` formats come with what is said of them."""
    command = click.option("--json", "output", flag_value="json", help="The same as --format json.")(command)
    return click.option(
        "--format",
        "output",
        type=click.Choice((*FORMATS, *more)),
        default="text",
        show_default=True,
        help="; ".join(["text for people, json (one object) or jsonl (an object a line) for programs", *more.values()])
        + ".",
    )(command)


def discovery_options(command: Command) -> Command:
    """Add the options that decide which files are read; each is None or empty where it is not given."""
    return with_options(
        command,
        click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out matching files; may be repeated."),
        click.option("--include", multiple=True, metavar="GLOB", help="Read only matching files; may be repeated."),
        click.option("--max-size", type=size_in_bytes, metavar="SIZE", help="Skip larger files.  [default: 20M]"),
        click.option("--hidden/--no-hidden", default=None, help="Read files and folders that begin with a dot."),
    )


def reading_options(command: Command) -> Command:
    """Add the options that decide how a file is read and split; each is None or empty where it is not given."""
    return with_options(
        command,
        click.option(
            "--text-column",
            "text_columns",
            multiple=True,
            metavar="NAME",
            help="Column of csv, tsv and jsonl files that makes the text; may be repeated.",
        ),
        click.option("--title-column", metavar="NAME", help="Column that gives the title."),
        click.option("--chunk-tokens", type=click.IntRange(16), help="Longest chunk.  [default: what the model takes]"),
        click.option("--overlap", type=click.IntRange(0), help="Tokens that neighbouring chunks share.  [default: 0]"),
    )


def embedding_options(command: Command, *, several: bool = False) -> Command:
    """Add the options of :data:`EMBEDDING_OPTIONS`; with ``several`` those that are compared may be repeated."""
    more = "; may be repeated." if several else "."
    names = (
        ("--preset", "NAME", f"Settings that have a name: {', '.join(PRESETS)}{more}  [default: {DEFAULT_PRESET}]"),
        ("--extractor", "SPEC", f"transformer, avg, bert+avg:w=0.5, re:dim=768, words:drop=0, sbert-wk:window=2{more}"),
        ("--layers", "SPEC", f"Hidden layers, as in last, first+last or 0+1+6{more}"),
        ("--template", "TEXT", f"t0 to t4, or a text with [X] and [M]{more}"),
        ("--pooling", "NAME", f"{', '.join(POOLINGS)}{more}"),
        ("--weighting", "SPEC", f"uniform, idf, idf:0.5, -biases, sif or usif{more}"),
        ("--postprocess", "STEPS", f"Steps joined by commas, as in abtt:2,normalize, or none{more}"),
        ("--query-fit", "shared|separate", f"Post-processors fitted on documents alone, or for questions apart{more}"),
    )
    return with_options(
        command,
        *(click.option(name, multiple=several, metavar=metavar, help=text) for name, metavar, text in names),
        click.option("--model", metavar="ID|PATH", help="Model, or word-vector file.  [default: all-MiniLM-L6-v2]"),
        click.option("--query-template", metavar="TEXT", help="Template of questions.  [default: --template]"),
        click.option("--special-tokens/--no-special-tokens", default=None, help="Average [CLS] and [SEP] too, or not."),
        click.option("--avg-corpus", type=EXISTING_FILE, help="Texts, one a line, to fit static vectors on."),
        click.option("--weighting-corpus", type=EXISTING_FILE, help="Texts, one a line, to fit token weights on."),
        click.option("--postprocess-corpus", type=EXISTING_FILE, help="Texts, one a line, to fit post-processors on."),
        click.option("--config", "config_file", type=EXISTING_FILE, help="Settings in a TOML or JSON file."),
    )


def with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Add ``options``, which the help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def with_number(args: list[str], option: str, alone: float) -> list[str]:
    """Return the arguments with ``option`` and its number as one, ``option=alone`` where no number follows it."""
    joined: list[str] = []
    rest = iter(range(len(args)))
    for i in rest:
        if args[i] == "--":
            return [*joined, *args[i:]]
        if args[i] != option:
            joined.append(args[i])
        elif i + 1 < len(args) and _is_number(args[i + 1]):
            joined.append(f"{option}={args[next(rest)]}")
        else:
            joined.append(f"{option}={alone:g}")
    return joined


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


_WAIT = "--wait"


class WritingCommand(click.Command):
    """A command that takes ``--wait`` alone (as long as it takes) and ``--wait SECONDS``."""

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **settings)  # type: ignore[arg-type]
        self.params.append(
            click.Option(
                [_WAIT, "wait_seconds"],
                type=float,
                default=0.0,
                callback=_finite,
                metavar="[SECONDS]",
                help="Wait while another process writes to the store, for as long as it takes or for SECONDS.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give ``--wait`` its number where it has none, -1 for as long as it takes, and parse."""
        return super().parse_args(ctx, with_number(args, _WAIT, -1))


def _finite(ctx: click.Context, param: click.Parameter, value: float) -> float:  # noqa: ARG001  click's signature
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number of seconds")
    return value


def filter_options(command: Command) -> Command:
    """Add the options that select chunks."""
    return with_options(
        command,
        click.option("--where", metavar="EXPR", help="Only chunks of which EXPR is true, as in \"ext = 'md'\"."),
        click.option(
            "--path",
            "globs",
            multiple=True,
            metavar="GLOB",
            help="Only matching files, as in 'docs/**'; may be repeated.",
        ),
    )


def search_filter(where: str | None, globs: tuple[str, ...]) -> Filter | None:
    """Return the filter of ``--where`` and of any of the ``--path`` globs together, None where neither is given."""
    parts: list[Filter] = [] if where is None else [parse(where)]
    if globs:
        parts.append(Or(tuple(Glob(Field("path"), glob) for glob in globs)))
    return And(tuple(parts)) if parts else None
