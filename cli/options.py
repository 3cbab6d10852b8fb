"""Options that several commands share, as decorators."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ragembed.cli.project import choose_store, collections_files
from ragembed.config.collections import chosen_stores
from ragembed.config.settings import DEFAULT_PRESET, PRESETS
from ragembed.config.specs import AUTO as EMBEDDING_AUTO
from ragembed.config.specs import POOLINGS
from ragembed.documents.places import RemotePath, is_url
from ragembed.embedder import TRUST_VARIABLE
from ragembed.errors import ConfigError
from ragembed.indexes.ann.choosing import LATENCY_MS, RECALL
from ragembed.indexes.ann.specs import AUTO, NAMES
from ragembed.indexes.filters import And, Field, Filter, Glob, Or, parse
from ragembed.indexes.search.pipeline import MODES
from ragembed.indexes.search.relevance import WEAK
from ragembed.indexes.storage.layout import STORE_FOLDER, STORE_VARIABLE

Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS = ("text", "json", "jsonl")
_FORMATS_HELP = "Output format: text (for people), json (one object), jsonl (one object per line)"
EMBEDDING_OPTIONS = (
    *("preset", "config_file", "extractor", "model", "revision", "trust_remote_code", "layers", "template"),
    *("query_template", "document_prompt", "query_prompt", "prompt_name", "pooling", "normalize", "truncate_dim"),
    *("special_tokens", "weighting", "postprocess", "query_fit"),
    *("avg_corpus", "weighting_corpus", "postprocess_corpus"),
)
"""Options that configure the embedder."""
INDEX_OPTIONS = ("index_kind", "max_memory", "max_latency_ms", "min_recall")
"""Options that configure the vector index."""
_EXTRACTORS = "transformer, avg, bert+avg:w=0.5, re:dim=768, words:drop=0 or sbert-wk:window=2"
_LAYERS = "first, last, first+last, or numbers such as 0+1+6"
_TEMPLATES = "t0 to t4, or one with [X] for the document and [M] for a mask token"
_POOLINGS = f"{EMBEDDING_AUTO} (the model as its authors use it), {', '.join(POOLINGS)}; several joined by +"
_WEIGHTINGS = "auto, uniform, idf, idf:0.5, -biases, sif or usif"
_STEPS = "such as abtt:2,normalize; or none"
_QUERY_FITS = "the same as for documents (shared), or fitted on pseudo-queries (separate)"
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,39})=(.+)", re.DOTALL)
_MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def size_in_bytes(value: str) -> int:
    """Parse a size such as ``20M`` (20,971,520 bytes); raise a usage error for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)i?B?", value.strip(), re.IGNORECASE)
    size = float(match[1]) * _UNITS[match[2].upper()] if match else 0.0
    if not 1 <= size < math.inf:
        raise click.BadParameter(f"{value!r} is not a size: expected a number above 0 with K, M or G, such as 20M")
    return int(size)


class LocalPath(click.Path):
    """A path; an empty string, for example from an unset shell variable, is a usage error."""

    def __init__(self, **checks: bool) -> None:
        super().__init__(path_type=Path, **checks)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a :class:`Path`."""
        if value == "":
            self.fail("the path is empty: expected the name of a file or folder", param, ctx)
        return super().convert(value, param, ctx)


class PlacePath(LocalPath):
    """A path, or a URL that fsspec can read; a URL that contains a secret is a usage error."""

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
    """The type of :data:`NO_LIMIT`, which removes a limit that an earlier run set."""


NO_LIMIT = _NoLimit()


def limit(read: Callable[[str], float | int]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return a callback that parses a limit: None if it is not given, :data:`NO_LIMIT` for ``none``."""

    def callback(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        return NO_LIMIT if value.strip().lower() == "none" else read(value)

    return callback


def milliseconds(value: str) -> float:
    """Parse a time such as ``5ms`` or ``0.01s`` to milliseconds; raise a usage error for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s)", value.strip(), re.IGNORECASE)
    if match is None or not 0 < float(match[1]) < math.inf:
        raise click.BadParameter(f"{value!r} is not a time: expected a number above 0 with us, ms or s, such as 5ms")
    return float(match[1]) * _MILLISECONDS[match[2].lower()]


def share(value: str) -> float:
    """Parse ``0.98`` or ``98%`` to 0.98; raise a usage error for a value that is not above 0 and at most 1."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", value.strip())
    number = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < number <= 1:
        raise click.BadParameter(f"{value!r} is not a share: expected a number above 0 and at most 1, such as 0.98")
    return number


def index_options(command: Command) -> Command:
    """Add the options of the vector index; an option that is not given is None."""
    return with_options(
        command,
        click.option(
            "--index",
            "index_kind",
            metavar="KIND",
            help=f"Kind of vector index: {AUTO}, {', '.join(NAMES)}, or a FAISS factory string such as IVF4096,PQ48. "
            f"{AUTO} chooses by the number of vectors and the limits below.  [default: {AUTO}]",
        ),
        click.option(
            "--max-memory",
            callback=limit(size_in_bytes),
            metavar="SIZE",
            help="Largest size of the index, such as 500M; none removes an earlier limit.  [default: no limit]",
        ),
        click.option(
            "--max-latency",
            "max_latency_ms",
            callback=limit(milliseconds),
            metavar="TIME",
            help="Longest time for one search of the index, such as 5ms, for 95 % of queries in one thread; none "
            f"removes an earlier limit.  [default: {LATENCY_MS:g}ms, if possible]",
        ),
        click.option(
            "--min-recall",
            callback=limit(share),
            metavar="SHARE",
            help="Smallest share of the 10 nearest vectors that the index must find, such as 0.98 or 98%; none "
            f"removes an earlier limit.  [default: {RECALL:g}, if possible]",
        ),
    )


def device_option(command: Command) -> Command:
    """Add ``--device``."""
    return click.option(
        "--device",
        metavar="DEVICE",
        help="Device that encodes documents and builds the index: cpu, gpu (all GPUs), gpu:0,2 (these GPUs), or auto "
        "(all GPUs, else the CPU).  [default: auto]",
    )(command)


quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only results and errors, no progress or notes.")


mode_option = click.option(
    "--mode",
    type=click.Choice(MODES),
    default="hybrid",
    show_default=True,
    help="Search by meaning (dense), by words (lexical, BM25), or both combined (hybrid).",
)


refresh_option = click.option(
    "--refresh",
    is_flag=True,
    help="First update the store, as ragembed index does, so that results are those of the files as they are now.",
)

min_relevance_option = click.option(
    "--min-relevance",
    type=click.FloatRange(0.0, 1.0),
    metavar="X",
    help=f"Leave out results with a lower relevance, from 0 to 1; {WEAK:g} leaves out weak matches.  "
    "[default: keep all]",
)


def store_option(command: Command) -> Command:
    """Add ``--store``."""
    return click.option(
        "--store",
        type=LocalPath(file_okay=False),
        help=f"Folder of the store.  [default: ${STORE_VARIABLE}, else the nearest .ragembed here or in a parent "
        "folder]",
    )(command)


def format_option(command: Command, more: Mapping[str, str] = MappingProxyType({})) -> Command:
    """Add ``--format`` and ``--json``; ``more`` maps further formats to their descriptions."""
    command = click.option("--json", "output", flag_value="json", help="Same as --format json.")(command)
    return click.option(
        "--format",
        "output",
        type=click.Choice((*FORMATS, *more)),
        default="text",
        show_default=True,
        help=", ".join((_FORMATS_HELP, *more.values())) + ".",
    )(command)


def discovery_options(command: Command) -> Command:
    """Add the options that select files; an option that is not given is None or empty."""
    return with_options(
        command,
        click.option(
            "--exclude",
            multiple=True,
            metavar="GLOB",
            help="Skip matching files, such as 'tmp*'. Can be repeated.  [default: none]",
        ),
        click.option(
            "--include",
            multiple=True,
            metavar="GLOB",
            help="Read only matching files, such as 'README*'. Can be repeated.  [default: all files]",
        ),
        click.option(
            "--max-size",
            type=size_in_bytes,
            metavar="SIZE",
            help="Skip files larger than this, such as 500K or 20M.  [default: 20M]",
        ),
        click.option(
            "--hidden/--no-hidden",
            default=None,
            help="Read files and folders whose names begin with a dot, or skip them.  [default: --no-hidden]",
        ),
    )


def reading_options(command: Command) -> Command:
    """Add the options that control how files are read and split; an option that is not given is None or empty."""
    return with_options(
        command,
        click.option(
            "--text-column",
            "text_columns",
            multiple=True,
            metavar="NAME",
            help="Column of CSV, TSV or JSON Lines files that holds the text. Can be repeated.  [default: all "
            "columns; in JSON Lines the first of text, content, body, document and abstract]",
        ),
        click.option(
            "--title-column",
            metavar="NAME",
            help="Column of CSV, TSV or JSON Lines files that holds the title of a row.  [default: none]",
        ),
        click.option(
            "--chunk-tokens",
            type=click.IntRange(16),
            metavar="N",
            help="Largest number of tokens in a chunk.  [default: 512, or what the model reads if that is less]",
        ),
        click.option(
            "--overlap",
            type=click.IntRange(0),
            metavar="N",
            help="Number of tokens that neighbouring chunks share, less than half of --chunk-tokens.  [default: 0]",
        ),
    )


def _allow_remote_code(_context: click.Context, _parameter: click.Parameter, value: bool | None) -> bool | None:
    """Allow this process and its workers to run the code of a saved model, if the option is given."""
    if value:
        os.environ[TRUST_VARIABLE] = "1"
    return value


def embedding_options(command: Command, *, several: bool = False) -> Command:
    """Add the options of :data:`EMBEDDING_OPTIONS`; with ``several``, those that can be compared can be repeated."""
    more = ". Can be repeated." if several else "."
    default = f"{more}  [default: the preset's]"
    compared = f"{more}  [default: shared; for eval retrieval the preset's]"
    query_fits = f"Post-processors for queries: {_QUERY_FITS}{compared if several else default}"
    presets = f"{', '.join(PRESETS)}. The options below change single settings of it"
    texts = (
        ("--preset", "NAME", f"Named group of embedder settings: {presets}{more}  [default: {DEFAULT_PRESET}]"),
        ("--extractor", "SPEC", f"Method that turns a text into a raw vector: {_EXTRACTORS}{default}"),
        ("--layers", "SPEC", f"Hidden layers of the model to average: {_LAYERS}{default}"),
        ("--template", "TEXT", f"Text around each document: {_TEMPLATES}{default}"),
        ("--pooling", "NAME", f"Tokens whose vectors are averaged: {_POOLINGS}{default}"),
        ("--weighting", "SPEC", f"Weights of tokens in the average: {_WEIGHTINGS}{default}"),
        ("--postprocess", "STEPS", f"Post-processors, separated by commas, {_STEPS}{default}"),
        ("--query-fit", "shared|separate", query_fits),
    )
    return with_options(
        command,
        *(click.option(name, multiple=several, metavar=metavar, help=text) for name, metavar, text in texts),
        click.option(
            "--model",
            metavar="ID|PATH|URL",
            help="Hugging Face model id, folder of a model, or model behind a server, such as ollama:NAME. Also "
            "openai:NAME, http://HOST/v1#NAME, or a word-vector file for --extractor words.  "
            "[default: sentence-transformers/all-MiniLM-L6-v2]",
        ),
        click.option(
            "--revision",
            metavar="NAME",
            help="Branch, tag or commit of a model on the Hugging Face hub.  [default: the current version]",
        ),
        click.option(
            "--trust-remote-code",
            is_flag=True,
            default=None,
            callback=_allow_remote_code,
            help="Let the model run the code in its own files. Read the code first.",
        ),
        click.option("--query-template", metavar="TEXT", help="Template for queries.  [default: --template]"),
        click.option("--document-prompt", metavar="TEXT", help="Text before each document.  [default: the model's]"),
        click.option("--query-prompt", metavar="TEXT", help="Text before each query.  [default: the model's]"),
        click.option(
            "--prompt-name",
            metavar="NAME",
            help="Name of a prompt in the model's files, to use before documents and queries.",
        ),
        click.option(
            "--normalize/--no-normalize",
            default=None,
            help="Scale the model's vectors to length 1 before the post-processors.  [default: --no-normalize]",
        ),
        click.option(
            "--truncate-dim",
            type=click.IntRange(1),
            metavar="N",
            help="Keep only the first N dimensions of the model's vectors, for models trained for it.  [default: the "
            "model's]",
        ),
        click.option(
            "--special-tokens/--no-special-tokens",
            default=None,
            help="Include special tokens such as [CLS] in the average, or leave them out.  [default: include them, "
            "except from static vectors]",
        ),
        click.option(
            "--avg-corpus",
            type=EXISTING_FILE,
            help="File with one text per line to fit the static vectors of avg on.  [default: the documents]",
        ),
        click.option(
            "--weighting-corpus",
            type=EXISTING_FILE,
            help="File with one text per line to fit token weights on.  [default: the documents]",
        ),
        click.option(
            "--postprocess-corpus",
            type=EXISTING_FILE,
            help="File with one text per line to fit post-processors on.  [default: the documents]",
        ),
        click.option(
            "--config",
            "config_file",
            type=EXISTING_FILE,
            help="TOML or JSON file with embedder settings; use it instead of --preset.",
        ),
    )


def require_no(names: Collection[str], option: str) -> None:
    """Raise a usage error if one of the parameters ``names``, which ``option`` does not use, is on the command line."""
    context = click.get_current_context()
    for parameter in context.command.params:
        is_given = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if is_given and parameter.name in names:
            raise click.UsageError(f"{option} does not use {parameter.opts[0]}: leave it out")


def with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Add ``options`` in the order in which the help lists them."""
    for option in reversed(options):
        command = option(command)
    return command


def with_number(args: list[str], option: str, alone: float) -> list[str]:
    """Return ``args`` with ``option`` joined to the number after it, or to ``alone`` if no number follows."""
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
    """A command that accepts ``--wait`` (no time limit) and ``--wait SECONDS``."""

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **settings)  # type: ignore[arg-type]
        self.params.append(
            click.Option(
                [_WAIT, "wait_seconds"],
                type=float,
                default=0.0,
                callback=_finite,
                metavar="[SECONDS]",
                help="If another process writes to the store, wait until it is done, for at most SECONDS; without a "
                "number, wait without a limit.  [default: fail at once]",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; ``--wait`` without a number becomes ``--wait=-1``, no time limit."""
        return super().parse_args(ctx, with_number(args, _WAIT, -1))


def _finite(ctx: click.Context, param: click.Parameter, value: float) -> float:  # noqa: ARG001  click's signature
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number of seconds: expected a finite number")
    return value


def filter_options(command: Command) -> Command:
    """Add the options that select chunks: ``--where`` and ``--path``."""
    return with_options(
        command,
        click.option(
            "--where",
            metavar="EXPR",
            help="Select only chunks that match EXPR, such as \"ext = 'md' AND mtime >= '2026-01-01'\".",
        ),
        click.option(
            "--path",
            "globs",
            multiple=True,
            metavar="PATH|GLOB",
            help="Select only the file PATH, the files in the folder PATH, or those that match GLOB, such as "
            "'docs/guide*'. Can be repeated; a file is selected if it matches any of them.",
        ),
    )


def search_filter(where: str | None, globs: tuple[str, ...]) -> Filter | None:
    """Return a filter for ``--where`` and any of the ``--path`` globs, or None if neither is given."""
    try:
        parts: list[Filter] = [] if where is None else [parse(where)]
    except ConfigError as error:
        raise ConfigError(f"--where: {error}") from None
    if globs:
        parts.append(Or(tuple(Glob(Field("path"), _from_here(glob), or_below=True) for glob in globs)))
    return And(tuple(parts)) if parts else None


def _from_here(glob: str) -> str:
    """Return a path or glob without a slash at its end; one that begins with ``.`` or ``..`` is made absolute."""
    if glob.split("/", 1)[0] in (".", ".."):
        return os.path.abspath(glob)  # noqa: PTH100  resolve() would follow symbolic links
    return glob if is_url(glob) else glob.rstrip("/") or glob


def served_stores(stores: tuple[str, ...], collections: str | None, hint: str) -> dict[str, Path]:
    """Return the stores that a server answers from: those of collections, and those that are given one by one."""
    if collections is None:
        return named_stores(stores, hint)
    names = [name.strip() for name in collections.split(",")]
    found = {name.replace("/", "-"): path for name, path in chosen_stores(names, collections_files()).items()}
    for name, path in (named_stores(stores, hint) if stores else {}).items():
        if found.setdefault(name, path) != path:
            raise click.BadParameter(f"two stores have the name {name!r}: name one with NAME=PATH", param_hint=hint)
    return found


serve_in_option = click.option(
    "--in",
    "collections",
    metavar="NAMES",
    help="Serve the stores of these collections, separated by commas; all means every collection.",
)


def named_stores(stores: tuple[str, ...], hint: str) -> dict[str, Path]:
    """Return the stores ``[NAME=]PATH`` by name, by default that of the folder; ``hint`` names the option in errors."""
    named: dict[str, Path] = {}
    for given in stores or (str(choose_store(None)),):
        match = _NAMED.fullmatch(given)
        if not given:
            raise click.BadParameter("the path is empty: expected the name of a folder", param_hint=hint)
        path = Path(match[2] if match else given)
        name = match[1] if match else _store_name(path)
        if name in named:
            raise click.BadParameter(f"two stores have the name {name!r}: name them with NAME=PATH", param_hint=hint)
        named[name] = path
    return named


def _store_name(store: Path) -> str:
    """Return the name of a store's folder, or of the folder above it for ``.ragembed``, in characters of URLs."""
    absolute = Path(os.path.abspath(store))  # noqa: PTH100  resolve() would follow symbolic links
    folder = absolute.parent if absolute.name == STORE_FOLDER else absolute
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("-.")[:40] or "documents"
