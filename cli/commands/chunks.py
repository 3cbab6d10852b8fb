"""``ragembed chunks``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ragembed.cli.options import PlacePath, format_option, reading_options, store_option
from ragembed.cli.output import counted, lines_of, print_records, say, shown_path
from ragembed.cli.project import choose_store
from ragembed.cli.requests import embedder_config, indexing_options
from ragembed.documents.chunking import Chunker
from ragembed.documents.discovery import discover
from ragembed.documents.model import Chunk
from ragembed.documents.places import Place
from ragembed.documents.readers import only_document_errors, read
from ragembed.documents.readers.registry import location_of, member_of
from ragembed.embedder import Embedder
from ragembed.errors import DocumentError
from ragembed.indexes import Store
from ragembed.indexes.indexing.request import open_existing
from ragembed.printable import printable, printable_line


@click.command(name="chunks")
@click.argument("file", type=PlacePath(exists=True, dir_okay=False))
@click.option(
    "--model",
    metavar="ID|PATH",
    help="Model whose tokens are counted: Hugging Face id or folder.  [default: the store's, else "
    "sentence-transformers/all-MiniLM-L6-v2]",
)
@store_option
@reading_options
@format_option
def command(file: Place, model: str | None, store: Path | None, output: str, **given: Any) -> None:
    """Show how a file is split into chunks.

    \b
    ragembed chunks docs/manual.md --chunk-tokens 128

    Prints the lines, the number of tokens, the headings and the text of each chunk. The options default to those saved
    in the store, so you can try new values here before you index with them. The store is not changed.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    where = choose_store(store)
    with open_existing(where) as opened:
        options = indexing_options(opened, given)
        embedder = _embedder(opened, model)
    chunker = Chunker(options.chunking(embedder.text_tokens), embedder.tokenizer.offsets)
    candidate = next(discover([file], options.discovery()), None)
    if candidate is None or candidate.path != file:
        raise DocumentError(f"{file} is a folder: expected a file")
    if candidate.skipped is not None:
        raise DocumentError(f"{file}: {candidate.skipped}")
    reading = replace(options.reading(), on_warning=lambda message: say(f"note: {message}", err=True))
    try:
        with only_document_errors():
            documents = read(Path(file.name), reading, candidate.read()[0])
            chunks = list(chunker.split_all(documents))
    except (DocumentError, OSError) as error:
        raise DocumentError(f"{file}: {error}") from error
    entries = [_as_dict(number, chunk, member_of(file.name, chunk.metadata)) for number, chunk in enumerate(chunks, 1)]
    if not print_records({"path": shown_path(file), "chunks": entries}, "chunks", output):
        for entry in entries:
            _print_chunk(entry)


def _embedder(store: Store | None, model: str | None) -> Embedder:
    """Return the store's embedder, or a new one if there is no store or ``model`` is given."""
    if model is None and store is not None and (embedder := store.embedder.refittable) is not None:
        return embedder
    return Embedder(embedder_config({"model": model}))


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


def _print_chunk(entry: dict[str, Any]) -> None:
    pages = location_of("", None, None, entry["page"], entry.get("end_page")).removeprefix(", ")
    place = pages if entry["start_line"] is None else lines_of(entry["start_line"], entry["end_line"])
    if "member" in entry:
        place = f"{printable_line(entry['member'])}, {place}"
    above = " > ".join(entry["headings"]) or entry["title"] or "no heading"
    click.echo(f"--- {entry['chunk']}: {place}, {counted(entry['tokens'], 'token')}, {printable_line(above)}")
    click.echo(printable(entry["text"]))
