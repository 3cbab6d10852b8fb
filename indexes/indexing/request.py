"""The request of an indexing run, and the request that a store keeps of its last run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from ragembed.config.settings import EmbedderConfig, QueryFit
from ragembed.config.specs import RandomEmbeddings, parse_postprocessor, parse_weighting
from ragembed.config.templates import Template
from ragembed.documents.places import Place
from ragembed.embedder import Embedder
from ragembed.errors import IncompatibleStoreError
from ragembed.indexes.ann.records import IndexConfig
from ragembed.indexes.indexing.scan import IndexingOptions
from ragembed.indexes.storage.layout import file_path, is_store
from ragembed.indexes.store import Store


@dataclass(frozen=True, slots=True)
class IndexingRequest:
    """What to index: without ``paths`` all that were indexed so far, without ``options`` those of the last run.

    A path may be a URL, as :func:`ragembed.documents.places.place_of` makes it of a text. ``embedder`` is what a new
    store is made with, the default preset if left out; for a store that exists it must be what that was made with.
    ``index`` is what is asked of the index, if left out what was asked before. ``language`` is that of
    :meth:`Store.create`; for a store that exists it must be the one that it was made with. ``device`` is where
    documents are encoded and indexes built, as :meth:`Store.open` takes it. ``opened`` is the store where it exists and
    the caller has it open on ``device``; else the run opens it.
    """

    store: Path
    paths: tuple[Place, ...] = ()
    options: IndexingOptions | None = None
    embedder: EmbedderConfig | None = None
    index: IndexConfig | None = None
    device: str | None = None
    language: str | None = None
    opened: Store | None = None


def open_existing(store: Path, device: str | None = None) -> AbstractContextManager[Store | None]:
    """Open the store for a ``with`` block, None if there is no store."""
    return Store.open(store, device=device) if is_store(store) else nullcontext()


def stored_request(opened: Store | None) -> tuple[tuple[Place, ...], IndexingOptions] | None:
    """Return the paths that were indexed so far and the options of the last run, None where no file was indexed."""
    if opened is None or (kept := opened.last_request()) is None:
        return None
    return tuple(file_path(name, opened.path) for name in kept["paths"]), IndexingOptions.from_dict(kept["options"])


def stored_config(opened: Store | None) -> EmbedderConfig | None:
    """Return the configuration that the store was made with, None where there is no store of ragembed's own vectors."""
    if opened is None or not isinstance(embedder := opened.embedder, Embedder):
        return None
    postprocess, query_fit = opened._wanted_chain()
    return embedder.config.replace(postprocess=postprocess, query_fit=query_fit)


def require_same(made: Embedder, asked: Embedder, chain: tuple[Sequence[str], QueryFit], store: Path) -> None:
    """Raise :class:`IncompatibleStoreError` where the settings asked for are not those that made the store."""
    postprocess, query_fit = chain
    wanted = made.config.replace(postprocess=tuple(postprocess), query_fit=query_fit)
    for name, value in asked.config.to_dict().items():
        had = wanted.to_dict()[name]
        left_open = (name, value) in (("dtype", "auto"), ("max_tokens", None)) or name == "pseudo_queries"
        left_open |= name == "seed" and not isinstance(wanted.extraction, RandomEmbeddings)
        if left_open or value == had or _meaning(wanted, name) == _meaning(asked.config, name):
            continue
        if name == "model" and _same_files(made, asked):
            continue
        raise IncompatibleStoreError(made_with(store, name, had, value))


def made_with(store: Path, name: str, had: object, value: object) -> str:
    """Return what is said where ``value`` is asked for of a store that was made with another."""
    return (
        f"the store {store} was made with the {name} {had}, not {value}: leave the setting out, or choose another "
        "store with --store"
    )


def _meaning(config: EmbedderConfig, name: str) -> object:
    """Return what a setting says, equal for all ways to write it."""
    if name == "postprocess":
        return [parse_postprocessor(step) for step in config.postprocess]
    if name == "weighting":
        return parse_weighting(config.weighting)
    if name == "extractor":
        return config.extraction
    if name in ("template", "query_template"):
        return Template.parse(config.template if config.query_template is None else getattr(config, name))
    return getattr(config, name)


def _same_files(made: Embedder, asked: Embedder) -> bool:
    return Path(asked.config.model).exists() and asked.source_sha256 == made.source_sha256
