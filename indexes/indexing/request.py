"""What an indexing run is asked to do: its options, its request, and the request of the last run that a store keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from ragembed.config.fields import documented, from_json, setting
from ragembed.config.settings import EmbedderConfig
from ragembed.config.specs import AUTO, PLAIN, RandomEmbeddings, Template, parse_postprocessor, parse_weighting
from ragembed.documents.chunking import ChunkingConfig
from ragembed.documents.discovery import DiscoveryOptions, member_rules
from ragembed.documents.places import Place
from ragembed.documents.readers import ReadOptions
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, IncompatibleStoreError
from ragembed.indexes.faiss_index.records import IndexConfig
from ragembed.indexes.storage.catalog import RunRecord
from ragembed.indexes.storage.layout import file_path, is_store, require_access
from ragembed.indexes.store import Store

DEFAULT_CHUNK = 512
"""Maximum tokens of a chunk if none is requested. A longer window would make one chunk of most files."""


@documented
@dataclass(frozen=True, slots=True)
class IndexingOptions(DiscoveryOptions):
    """Options for reading and chunking files. The store keeps them for the next run.

    Parameters
    ----------
    {settings}

    Examples
    --------
    >>> from ragembed.indexes import IndexingOptions
    >>> IndexingOptions(exclude=("drafts/",), chunk_tokens=200).overlap
    0
    """

    text_columns: tuple[str, ...] = setting(
        (),
        "Column of CSV, TSV or JSON Lines files that holds the text.",
        *("--text-column", "NAME"),
        default="all columns; in JSON Lines the first of text, content, body, document and abstract",
    )
    title_column: str | None = setting(
        None,
        "Column of CSV, TSV or JSON Lines files that holds the title of a row.",
        *("--title-column", "NAME"),
        default="none",
    )
    chunk_tokens: int | None = setting(
        None,
        "Largest number of tokens in a chunk.",
        *("--chunk-tokens", "N"),
        least=16,
        default="512, or what the model reads if that is less",
    )
    overlap: int = setting(
        0,
        "Number of tokens that neighbouring chunks share, less than half of `--chunk-tokens`.",
        *("--overlap", "N"),
        least=0,
        default="0",
    )

    def reading(self) -> ReadOptions:
        """Return the options for the readers of files: columns, and rules for members of archives and mails."""
        return ReadOptions(
            text_columns=self.text_columns,
            title_column=self.title_column,
            max_member_bytes=self.max_bytes,
            ignores_member=member_rules(self),
        )

    def chunking(self, room: int) -> ChunkingConfig:
        """Return the options for dividing texts into chunks.

        Raise :class:`ConfigError` if ``chunk_tokens`` is greater than ``room``.

        Parameters
        ----------
        room : int
            Maximum number of tokens of a text that the model takes.
        """
        if self.chunk_tokens is not None and self.chunk_tokens > room:
            raise ConfigError(
                f"chunks of {self.chunk_tokens} tokens do not fit the model, which takes {room}: choose {room} or less"
            )
        return ChunkingConfig(max_tokens=self.chunk_tokens or min(room, DEFAULT_CHUNK), overlap=self.overlap)

    def to_dict(self) -> dict[str, object]:
        """Return the options as JSON values, by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class IndexingRequest:
    """A request to index files, folders or URLs (see :func:`ragembed.documents.places.place_of`) into a store.

    By default, ``paths`` are all paths indexed so far, and ``options`` and ``index`` those of the last run.
    ``embedder`` (by default the default preset) and ``language`` are for a new store; an existing one must match.
    ``device`` is as for :meth:`ragembed.Store.open`, on which ``opened`` was opened, if it is given.

    ``allow_empty`` removes the files of a path that is missing, or in which none of them is found. By default they
    stay, because the disk of the path may not be mounted.
    """

    store: Path
    paths: tuple[Place, ...] = ()
    options: IndexingOptions | None = None
    embedder: EmbedderConfig | None = None
    index: IndexConfig | None = None
    device: str | None = None
    language: str | None = None
    allow_empty: bool = False
    opened: Store | None = None


def open_existing(store: Path, device: str | None = None) -> AbstractContextManager[Store | None]:
    """Open the store for a ``with`` block; the block gets None if there is no store.

    Raises :class:`StoreError` if you may not see whether there is one.
    """
    if is_store(store):
        return Store.open(store, device=device)
    require_access(store)
    return nullcontext()


_PROMPTS = ("document_prompt", "query_prompt", "prompt_name")
_LEFT_OPEN = (
    *(("dtype", "auto"), ("max_tokens", None), ("pooling", AUTO), ("weighting", AUTO), ("modules", None)),
    *(("truncate_dim", None), ("revision", None), ("trust_remote_code", False)),
    *((name, None) for name in _PROMPTS),
)
"""Values of settings that accept whatever the store was made with."""


def stored_request(opened: Store | None) -> tuple[tuple[Place, ...], IndexingOptions] | None:
    """Return the paths indexed so far and the options of the last run, or None if no file was indexed."""
    if opened is None:
        return None
    part = opened.part_record
    last = opened.last_request() if part is None else part.indexing
    if last is None:
        return None
    return tuple(file_path(name, opened.path) for name in last["paths"]), from_json(IndexingOptions, last["options"])


def next_request(
    before: RunRecord | None, roots: Sequence[str], gone: Sequence[str], options: IndexingOptions
) -> RunRecord:
    """Return the record of paths and options for the run after one that compared ``roots``, without those ``gone``."""
    paths = dict.fromkeys([*(before["paths"] if before else []), *roots])
    remaining = [name for name in paths if name not in gone]
    # JSON turns tuples into lists, as in the record to compare with.
    request: RunRecord = json.loads(json.dumps({"paths": remaining, "options": options.to_dict()}))
    return request


def require_whole(opened: Store | None) -> None:
    """Raise :class:`ConfigError` if the store holds only a part of the files that a run would look for."""
    if opened is not None and (part := opened.part_record) is not None:
        paths = () if part.indexing is None else part.indexing["paths"]
        of = f" of {', '.join(str(file_path(name, opened.path)) for name in paths)}" if paths else ""
        raise ConfigError(
            f"the store {opened.path} holds only a part of the files{of}, and other stores hold the rest: update them "
            "together with 'ragembed index --collection NAME'"
        )


def stored_config(opened: Store | None) -> EmbedderConfig | None:
    """Return the store's embedder configuration, or None if there is no store or ragembed did not make its vectors."""
    return None if opened is None or opened.embedder.refittable is None else opened.wanted_config()


def require_same(stored: Embedder, requested: Embedder, config: EmbedderConfig, store: Path) -> None:
    """Raise :class:`IncompatibleStoreError` if the requested settings differ from the ``config`` of the store."""
    wanted = requested.config
    if any(getattr(wanted, name) is not None for name in _PROMPTS):
        wanted = requested.resolved_config()  # the prompts as templates
    plain = wanted.template == PLAIN and wanted.query_template is None
    left_open = ("template", "query_template") if plain and wanted.pooling == AUTO else ()
    for name, value in wanted.to_dict().items():
        stored_value = config.to_dict()[name]
        irrelevant = (name, value) in _LEFT_OPEN or name in left_open or name == "pseudo_queries"
        irrelevant |= name == "seed" and not isinstance(config.extraction, RandomEmbeddings)
        if irrelevant or value == stored_value or _meaning(config, name) == _meaning(wanted, name):
            continue
        if (
            name == "model"
            and Path(requested.config.model).exists()
            and requested.source_sha256 == stored.source_sha256
        ):
            continue
        raise IncompatibleStoreError(mismatch(store, name, stored_value, value))


def open_to_fit(path: Path, settings: Embedder) -> Store:
    """Open a store that fits its embedder itself; raise :class:`IncompatibleStoreError` if it has other settings."""
    store = Store.open(path, settings if settings.source is not None else None, device=settings.device)
    try:
        if settings.source is None and (embedder := store.embedder.refittable) is not None:
            require_same(embedder, settings, store.wanted_config(), path)
    except BaseException:
        store.close()
        raise
    return store


def mismatch(store: Path, name: str, stored: object, requested: object) -> str:
    """Return the error message for a requested setting that differs from the setting of the store."""
    option = {"postprocess": "--postprocess", "query_fit": "--query-fit"}.get(name)
    change = "" if option is None else f"change it with 'ragembed refit {option} {_shown(requested)}', "
    return (
        f"the store {store} was made with the {name} {_shown(stored)}, not {_shown(requested)}: leave the setting out, "
        f"{change}or choose another store with --store"
    )


def _shown(value: object) -> str:
    """Return a setting as it is written on the command line."""
    return (",".join(map(str, value)) or "none") if isinstance(value, list | tuple) else str(value)


def _meaning(config: EmbedderConfig, name: str) -> object:
    """Return the parsed value of a setting, so that equivalent spellings are equal."""
    if name == "postprocess":
        return [parse_postprocessor(step) for step in config.postprocess]
    if name == "weighting":
        return parse_weighting(config.weighting)
    if name == "extractor":
        return config.extraction
    if name in ("template", "query_template"):
        return Template.parse(config.template if config.query_template is None else getattr(config, name))
    return getattr(config, name)
