"""Options of commands: those of settings, made from the fields of their dataclasses, and others that commands share."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ragembed.cli.project import choose_store, stores_in
from ragembed.config.fields import Setting, field_of, setting, settings_of
from ragembed.config.settings import DEFAULT_PRESET, PRESETS, EmbedderConfig
from ragembed.documents.places import RemotePath, absolute, is_url
from ragembed.embedder import TRUST_VARIABLE
from ragembed.errors import ConfigError
from ragembed.indexes import Budget, IndexConfig
from ragembed.indexes.filters import TEXT, And, Field, Filter, Glob, Or, Regex, parse
from ragembed.indexes.search.pipeline import MODES
from ragembed.indexes.search.relevance import WEAK
from ragembed.indexes.storage.layout import STORE_FOLDER, STORE_VARIABLE

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]

FORMATS = ("text", "json", "jsonl")
_FORMATS_HELP = "Output format: text (for people), json (one object), jsonl (one object per line)"
EMBEDDING_OPTIONS = (
    *("preset", "config_file"),
    *(name for name, about in settings_of(EmbedderConfig).items() if about.flag),
)
"""Options that configure the embedder."""
INDEX_OPTIONS = ("kind", *settings_of(Budget))
"""Options that configure the vector index."""
_COMPARED = ("preset", "extractor", "layers", "template", "pooling", "weighting", "postprocess", "query_fit")
"""Options that an evaluation can repeat, to compare their values."""
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


NO_LIMIT = object()
"""The value of a limit that removes one that an earlier run set."""


def _limit(read: Callable[[str], float | int]) -> Callable[[str], Any]:
    """Return a function that parses a limit: :data:`NO_LIMIT` for ``none``."""

    def limit(value: str) -> Any:
        return NO_LIMIT if value.strip().lower() == "none" else read(value)

    return limit


_VALUES: Mapping[str, Any] = {"FILE": EXISTING_FILE, "SIZE": size_in_bytes, "TIME": milliseconds, "SHARE": share}
"""The types of settings whose values have these names."""


def setting_option(
    kind: type, name: str, *, several: bool = False, default: str | None = None, filled: bool = False, **more: Any
) -> Decorator:
    """Return the option of a setting, the field ``name`` of a dataclass.

    Without a value, it is None or empty; with ``filled``, it has the default of the field.
    """
    field = field_of(kind, name)
    about: Setting = field.metadata["setting"]
    required = field.default is ...
    several = several or field.default == () or (required and str(field.type).startswith("tuple"))
    shown = default or about.default
    if not filled and kind not in (EmbedderConfig, IndexConfig):
        shown = shown or str(field.default)
    text = about.text.replace("`", "") + (" Can be repeated." if several else "")
    value = _limit(_VALUES[about.metavar or ""]) if kind is Budget else _type(str(field.type), about)
    if str(field.type).startswith("bool"):
        flag = {"default": field.default if filled else None, "is_flag": True, "show_default": bool(field.default)}
        more, shown = {**flag, **more}, "" if filled else shown
    elif filled and field.default not in (None, (), ...):
        more, shown = {"default": field.default, "show_default": True, **more}, ""
    attributes = {"type": value, "metavar": about.metavar, "help": f"{text}  [default: {shown}]" if shown else text}
    return click.option(
        *(about.flag or "").split(", "), name, multiple=several, required=required, **{**attributes, **more}
    )


def _type(annotation: str, about: Setting) -> Any:
    """Return how click reads a setting whose field has this annotation."""
    value = about.type or _VALUES.get(about.metavar or "")
    if value is None and annotation.startswith("int"):
        least, most = (None if limit is None else int(limit) for limit in (about.least, about.most))
        return click.IntRange(least, most)
    if value is None and annotation.startswith("float"):
        return click.FLOAT if about.least is None else click.FloatRange(about.least, about.most)
    if annotation == "tuple[float, float]":
        return float, float
    return click.Choice(about.choices) if value is None and about.choices and about.metavar is None else value


def takes(kind: type, argument: str = "options") -> Decorator:
    """Return a decorator that gives a command all options of a dataclass, as one object."""
    names = [field.name for field in dataclasses.fields(kind)]

    def decorate(command: Callable[..., Any]) -> Any:
        @wraps(command)
        def call(*arguments: Any, **values: Any) -> Any:
            own = kind(**{name: values.pop(name) for name in names})
            return command(*arguments, **{argument: own}, **values)

        return with_options(*(setting_option(kind, name, filled=True) for name in names))(call)

    return decorate


def with_options(*options: Decorator) -> Decorator:
    """Return a decorator that adds ``options`` in the order in which the help lists them."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _allow_remote_code(_context: click.Context, _parameter: click.Parameter, value: bool | None) -> bool | None:
    """Allow this process and its workers to run the code of a saved model, if the option is given."""
    if value:
        os.environ[TRUST_VARIABLE] = "1"
    return value


def embedding_options(command: Any, *, several: bool = False) -> Any:
    """Add the options of :data:`EMBEDDING_OPTIONS`; with ``several``, those that can be compared can be repeated."""
    more: dict[str, dict[str, Any]] = {"trust_remote_code": {"callback": _allow_remote_code}}
    if several:
        more |= {name: {"several": True} for name in _COMPARED}
        more["query_fit"]["default"] = "shared; for eval retrieval the preset's"
    return with_options(
        click.option(
            "--preset",
            multiple=several,
            metavar="NAME",
            help=f"Named group of embedder settings: {', '.join(PRESETS)}. The options below change single settings of "
            f"it.{' Can be repeated.' if several else ''}  [default: {DEFAULT_PRESET}]",
        ),
        *(setting_option(EmbedderConfig, name, **more.get(name, {})) for name in EMBEDDING_OPTIONS[2:]),
        click.option(
            *("--config", "config_file"),
            type=EXISTING_FILE,
            help="TOML or JSON file with embedder settings; use it instead of --preset.",
        ),
    )(command)


def settings(kind: type, *names: str) -> Decorator:
    """Return a decorator that adds the options of settings, by default all of a dataclass; they may be left open."""
    return with_options(*(setting_option(kind, name) for name in names or settings_of(kind)))


index_options = with_options(settings(IndexConfig, "kind"), settings(Budget))
"""Add the options of :data:`INDEX_OPTIONS`."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """Options that several commands have."""

    device: str | None = setting(
        None,
        "Device that encodes documents and builds the index: cpu, gpu (all GPUs), gpu:0,2 (these GPUs), or auto (all "
        "GPUs, else the CPU).",
        *("--device", "DEVICE"),
        default="auto",
    )
    quiet: bool = setting(False, "Print only results and errors, no progress or notes.", "-q, --quiet")
    mode: str = setting(
        "hybrid",
        "Search by meaning (dense), by words (lexical, BM25), or both combined (hybrid).",
        "--mode",
        choices=MODES,
    )
    refresh: bool = setting(
        False,
        "First update the store, as ragembed index does, so that results are those of the files as they are now.",
        "--refresh",
    )
    min_relevance: float | None = setting(
        None,
        f"Leave out results with a lower relevance, from 0 to 1; {WEAK:g} leaves out weak matches.",
        *("--min-relevance", "X"),
        default="keep all",
        least=0.0,
        most=1.0,
    )
    store: Path | None = setting(
        None,
        "Folder of the store.",
        "--store",
        default=f"${STORE_VARIABLE}, else the nearest .ragembed here or in a parent folder",
        type=LocalPath(file_okay=False),
    )
    html: Path | None = setting(
        None,
        "Also write the results as a page to this file. A file that ragembed did not write is not overwritten.",
        "--html",
        type=LocalPath(dir_okay=False),
    )


def shared(*names: str) -> Decorator:
    """Return a decorator that adds options which several commands have, such as ``store``."""
    return with_options(*(setting_option(_Shared, name, filled=True) for name in names))


def in_option(text: str, default: str = "") -> Decorator:
    """Return the option that names collections; ``text`` says what the command does with them."""
    about = f"{text}, separated by commas; all means every collection."
    shown = f"  [default: {default}]" if default else ""
    return click.option("--in", "collections", metavar="NAMES", help=f"{about}{shown}")


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


def require_no(names: Collection[str], option: str) -> None:
    """Raise a usage error if one of the parameters ``names``, which ``option`` does not use, is on the command line."""
    context = click.get_current_context()
    for parameter in context.command.params:
        is_given = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if is_given and parameter.name in names:
            raise click.UsageError(f"{option} does not use {parameter.opts[0]}: leave it out")


def query_text(query: tuple[str, ...]) -> str:
    """Return a query that was given as one argument or as several words."""
    text = " ".join(query)
    if not text.strip():
        raise click.BadParameter("the query is empty: expected at least one word", param_hint="QUERY")
    return text


def with_number(args: list[str], option: str, alone: float) -> list[str]:
    """Return ``args`` with ``option`` joined to the number after it, or to ``alone`` if no number follows."""
    joined: list[str] = []
    positions = iter(range(len(args)))
    for i in positions:
        if args[i] == "--":
            return [*joined, *args[i:]]
        if args[i] != option:
            joined.append(args[i])
        elif i + 1 < len(args) and _finite(args[i + 1]) is not None:
            joined.append(f"{option}={args[next(positions)]}")
        else:
            joined.append(f"{option}={alone:g}")
    return joined


def _finite(text: float | str) -> float | None:
    """Return a finite number, None for anything else."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _seconds(value: float | str) -> float:
    if (number := _finite(value)) is None:
        raise click.BadParameter(f"{value} is not a number of seconds: expected a finite number")
    return number


class WritingCommand(click.Command):
    """A command that accepts ``--wait`` (no time limit) and ``--wait SECONDS``."""

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **settings)  # type: ignore[arg-type]
        self.params.append(
            click.Option(
                ["--wait", "wait_seconds"],
                type=_seconds,
                default=0.0,
                metavar="[SECONDS]",
                help="If another process writes to the store, wait until it is done, for at most SECONDS; without a "
                "number, wait without a limit.  [default: fail at once]",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; ``--wait`` without a number becomes ``--wait=-1``, no time limit."""
        return super().parse_args(ctx, with_number(args, "--wait", -1))


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """Options that select chunks: by a condition, by the names of their files, and by their texts."""

    where: str | None = setting(
        None,
        "Select only chunks that match EXPR, such as \"ext = 'md' AND mtime >= '2026-01-01'\".",
        *("--where", "EXPR"),
    )
    globs: tuple[str, ...] = setting(
        (),
        "Select only the file PATH, the files in the folder PATH, or those that match GLOB, such as 'docs/guide*'. A "
        "file is selected if it matches any of them.",
        *("--path", "PATH|GLOB"),
    )
    match: str | None = setting(
        None,
        "Select only chunks in whose text the regular expression REGEX matches, such as '(?i)error [0-9]+'.",
        *("--match", "REGEX"),
    )

    @property
    def condition(self) -> Filter | None:
        """The filter, or None if no option is given."""
        try:
            parts: list[Filter] = [] if self.where is None else [parse(self.where)]
        except ConfigError as error:
            raise ConfigError(f"--where: {error}") from None
        if self.globs:
            parts.append(Or(tuple(Glob(Field("path"), _from_here(glob), or_below=True) for glob in self.globs)))
        if self.match is not None:
            parts.append(Regex(TEXT, self.match))
        return And(tuple(parts)) if parts else None


def _from_here(glob: str) -> str:
    """Return a path or glob without a slash at its end; one that begins with ``.`` or ``..`` is made absolute."""
    if glob.split("/", 1)[0] in (".", ".."):
        return absolute(Path(glob))
    return glob if is_url(glob) else glob.rstrip("/") or glob


def served_stores(stores: tuple[str, ...], collections: str | None, hint: str) -> dict[str, Path]:
    """Return the stores that a server answers from: those of collections, and those that are given one by one."""
    if collections is None:
        return named_stores(stores, hint)
    served = {name.replace("/", "-"): path for name, path in stores_in(collections).items()}
    for name, path in (named_stores(stores, hint) if stores else {}).items():
        if served.setdefault(name, path) != path:
            raise click.BadParameter(f"two stores have the name {name!r}: name one with NAME=PATH", param_hint=hint)
    return served


def named_stores(stores: tuple[str, ...], hint: str) -> dict[str, Path]:
    """Return the stores ``[NAME=]PATH`` by name, by default that of the folder; ``hint`` names the option in errors."""
    named: dict[str, Path] = {}
    for text in stores or (str(choose_store(None)),):
        match = _NAMED.fullmatch(text)
        if not text:
            raise click.BadParameter("the path is empty: expected the name of a folder", param_hint=hint)
        path = Path(match[2] if match else text)
        name = match[1] if match else _store_name(path)
        if name in named:
            raise click.BadParameter(f"two stores have the name {name!r}: name them with NAME=PATH", param_hint=hint)
        named[name] = path
    return named


def _store_name(store: Path) -> str:
    """Return the name of a store's folder, or of the folder above it for ``.ragembed``, in characters of URLs."""
    folder = Path(absolute(store))
    folder = folder.parent if folder.name == STORE_FOLDER else folder
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("-.")[:40] or "documents"
