"""``ragembed chunks``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import click

from ragembed.cli.options import PlacePath, format_option, require_no, settings
from ragembed.cli.output import counted, print_record, say, shown_path
from ragembed.cli.project import choose_store
from ragembed.cli.requests import embedder_config, indexing_options
from ragembed.cli.searched import namer, open_searched, place_in_store, searched_options
from ragembed.documents.chunking import Chunker
from ragembed.documents.discovery import discover
from ragembed.documents.model import Chunk
from ragembed.documents.places import Place, is_url, place_of
from ragembed.documents.readers import only_document_errors, read
from ragembed.documents.readers.registry import member_of, places_in, sheet_of
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, DocumentError, StoreNotFoundError
from ragembed.indexes import ChunkRecord, Collection, IndexingOptions, Store
from ragembed.indexes.indexing.request import open_existing
from ragembed.printable import printable, printable_line

_READING = ("text_columns", "title_column", "chunk_tokens", "overlap")
_FILE = PlacePath(exists=True, dir_okay=False)
_POSITION = re.compile(
    r"(.+?)(?:(?:(?<=\.xls[xm])|(?<=\.xls)|(?<=\.o[dt]s)), (?P<sheet>(?!rows? \d).+?))?"
    r"(?:(?::|, rows? )(?P<line>\d+)(?:-(?P<end>\d+))?|, (?:page|slide)s? (?P<page>\d+)(?:-\d+)?)?",
    re.DOTALL,
)


@click.command(name="chunks")
@click.argument("what", metavar="FILE[:LINE[-LINE]]|ID")
@click.option(
    "--model",
    metavar="ID|PATH",
    help="Model whose tokens are counted: Hugging Face id or folder.  [default: the store's, else "
    "sentence-transformers/all-MiniLM-L6-v2]",
)
@searched_options
@settings(IndexingOptions, *_READING)
@format_option
def command(
    what: str, model: str | None, store: Path | None, collections: str | None, output: str, **reading: Any
) -> None:
    """Show how a file is split into chunks, or print indexed text.

    \b
    ragembed chunks docs/manual.md --chunk-tokens 128
    ragembed chunks docs/manual.md:12-40
    ragembed chunks 1f0c8d2e-5b7a-4c39-9e21-7d4f6a8b0c53

    For FILE, prints the lines, the number of tokens, the headings and the text of each chunk. The options default to
    those saved in the store, so you can try new values here before you index with them. The store is not changed.

    For FILE:LINE-LINE or ID, as results of a query have them, prints the chunks in the store, even if the file has
    changed or is gone. ragembed get is another name of this command.
    """
    position = _POSITION.fullmatch(what)
    if os.path.exists(what) or (is_url(what) and position and position["line"] is None):  # noqa: PTH110  Path.exists() raises for some names
        require_no(("collections",), "A file")
        file: Place = _FILE.convert(what, None, click.get_current_context())
        entries = _split(file, choose_store(store), model, reading)
        about: dict[str, Any] = {"path": shown_path(file), "chunks": entries}
    else:
        require_no(("model", *_READING), "Indexed text")
        try:
            with open_searched(store, collections) as opened:
                records = opened.get([what]) or _at_position(opened, what)
                name_file, states = namer(opened), {*opened.file_states(records)}
        except StoreNotFoundError as error:
            raise ConfigError(f"{what} does not exist, and {error}") from error
        path = None if records[0].source is None else name_file(records[0].source, records[0].store)
        entries = [
            {"id": record.id, **_as_dict(number, record.chunk, member_of(record.source, record.chunk.metadata))}
            for number, record in enumerate(records, 1)
        ]
        about = {"path": path, "chunks": entries}
        for state in states - {None}:
            say(f"note: {path}: {state} since it was indexed", err=True)
    for entry in () if print_record(about, output, "chunks") else entries:
        name, lines = entry.get("member", about["path"] or ""), (entry["start_line"], entry["end_line"])
        place = places_in(name, *lines, entry["page"], entry.get("end_page")) or "no lines"
        if "member" in entry:
            place = f"{printable_line(name)}, {place}"
        above = " > ".join(entry["headings"]) or entry["title"] or "no heading"
        click.echo(f"--- {entry['chunk']}: {place}, {counted(entry['tokens'], 'token')}, {printable_line(above)}")
        click.echo(printable(entry["text"]))


def _split(file: Place, store: Path, model: str | None, reading_options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the chunks of a file, read and split now."""
    with open_existing(store) as opened:
        options = indexing_options(opened, reading_options)
        stored = None if opened is None or model is not None else opened.embedder.refittable
        embedder = stored or Embedder(embedder_config({"model": model}))
    chunker = Chunker(options.chunking(embedder.text_tokens), embedder.tokenizer.offsets)
    candidate = next(discover([file], options), None)
    if candidate is None or candidate.path != file:
        raise DocumentError(f"{file} is a folder: expected a file")
    if candidate.skipped is not None:
        raise DocumentError(f"{file}: {candidate.skipped}")
    reading = replace(options.reading(), on_warning=lambda message: say(f"note: {message}", err=True))
    try:
        with only_document_errors():
            documents = read(file.name, candidate.read()[0], reading)
            chunks = list(chunker.split_all(documents))
    except (DocumentError, OSError) as error:
        raise DocumentError(f"{file}: {error}") from error
    return [_as_dict(number, chunk, member_of(file.name, chunk.metadata)) for number, chunk in enumerate(chunks, 1)]


def _at_position(opened: Store | Collection, what: str) -> list[ChunkRecord]:
    """Return the indexed chunks of a file, at some of its lines, or on one of its pages."""
    position = _POSITION.fullmatch(what)
    if position is None:
        raise ConfigError("the path is empty: expected FILE, FILE:LINE-LINE, or the id of a chunk")
    file, sheet, first, last, page = position.groups()
    archive, separator, member = file.partition(": ")  # Results name a file in an archive "a.zip: notes.txt".
    name, source = place_in_store(opened, place_of(archive if separator else file))
    searched = opened if isinstance(opened, Store) else opened.stores[str(name)]
    records = [
        replace(record, store=name)
        for record in searched.chunks(source)
        if (not separator or member_of(source, record.chunk.metadata) == member)
        and sheet in (None, sheet_of(file, record.chunk.headings))
    ]
    if not records:
        raise ConfigError(
            f"{what} does not exist, and the store has no chunk with this id and no file {source!r}: expected a path "
            "or an id as results of ragembed query have them"
        )
    chunks = [record.chunk for record in records]
    if first is not None:
        start, end = int(first), int(last or first)
        chosen = [(chunk.start_line or end + 1) <= end and (chunk.end_line or 0) >= start for chunk in chunks]
    else:
        chosen = [page is None or (chunk.page or 0) <= int(page) <= (chunk.end_page or 0) for chunk in chunks]
    if not any(chosen):
        lines = max((chunk.end_line or 0 for chunk in chunks), default=0)
        most = f"lines up to {lines}" if lines else f"pages up to {max(chunk.page or 0 for chunk in chunks)}"
        raise ConfigError(f"no indexed chunk of {file} is at {what[len(file) :].lstrip(':, ')}: it has {most}")
    return list(compress(records, chosen))


def _as_dict(number: int, chunk: Chunk, member: str | None) -> dict[str, Any]:
    return {
        "chunk": number,
        **({} if member is None else {"member": member}),
        "start_line": chunk.start_line,
        "end_line": chunk.end_line,
        "page": chunk.page,
        **({} if chunk.end_page == chunk.page else {"end_page": chunk.end_page}),
        "tokens": chunk.tokens,
        "title": chunk.title,
        "headings": list(chunk.headings),
        "text": chunk.text,
    }
