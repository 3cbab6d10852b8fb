"""Checks of the texts in a store: their language, near-duplicates, and chunks that end inside a table or code.

Each check reads a sample that is spread evenly over the store.
"""

from __future__ import annotations

import hashlib
import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ragembed.documents.model import Block, Chunk
from ragembed.documents.places import RemotePath, shown_path
from ragembed.documents.readers import ReadOptions, only_document_errors, read
from ragembed.documents.readers.blobs import has_few_words
from ragembed.documents.readers.registry import PLAIN, location_of, named_reader
from ragembed.embedder import Embedder
from ragembed.errors import RagembedError
from ragembed.files import open_regular
from ragembed.indexes.doctor.findings import Examination, Finding, examples
from ragembed.indexes.indexing.languages import PASSAGES, language_problems, languages_of
from ragembed.indexes.search.ranking import NearDuplicates
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.layout import file_path
from ragembed.indexes.types import SourceRecord
from ragembed.printable import counted

COMPARED, NEIGHBOURS = 300, 8
"""Number of chunks that are compared with their nearest neighbours, and of these."""
FILES_READ = 100
"""Number of files that are read again to find the tables and code in them."""

TEXTS_READ, LEAST_TEXT = 20_000, 1_000
"""Number of chunks whose words are counted, and characters of a file from which it is reported."""

WORDLESS_ABOVE = 0.5
"""Share of the chunks of a file without words from which it is reported."""
DUPLICATES_ABOVE = 0.1
"""Share of chunks with a near-duplicate from which it is reported."""
CUT_ABOVE = 0.02
"""Share of chunks that end inside a table or code from which it is reported."""

_LONGEST_TOKEN = 32
"""More characters than a token has on average, in any text."""

_NOT_READ_AGAIN = ("pdf", "doc", "ppt", "csv", "jsonl")
"""Readers that are slow, or whose documents are single rows."""


def check_language(exam: Examination) -> Iterator[Finding]:
    """Compare the languages of the texts with those of the model and of the stemmer."""
    embedder = exam.own_embedder()
    detected = catalog.detected_language(exam.connection)
    languages = languages_of(exam.connection, None if detected is None else detected["language"])
    if exam.chunks > PASSAGES:
        exam.notes.append(f"languages were recognised in {PASSAGES:,} passages of {counted(exam.chunks, 'chunk')}")
    for problem in language_problems(embedder, languages, exam.store.language, exam.commands):
        yield Finding(*problem[:7], examples(problem.examples))


def files_without_words(connection: sqlite3.Connection) -> dict[str, float]:
    """Return the files most of whose chunks have hardly any words, with the share of these chunks, the worst first."""
    step = max(1, -(-catalog.count(connection, "chunks") // TEXTS_READ))
    lengths, wordless, chunks = Counter[str](), Counter[str](), Counter[str]()
    for path, text in catalog.texts_of_files(connection, step):
        lengths[path] += len(text) * step
        chunks[path] += 1
        wordless[path] += has_few_words(text)
    shares = {path: count / chunks[path] for path, count in wordless.items() if lengths[path] >= LEAST_TEXT}
    worst = sorted(shares, key=lambda path: (-shares[path] * chunks[path], path))
    return {path: shares[path] for path in worst if shares[path] > WORDLESS_ABOVE}


def check_words(exam: Examination) -> Iterator[Finding]:
    """Find files that have encoded data, numbers or coordinates instead of words."""
    names = list(files_without_words(exam.connection))
    if names:
        yield Finding(
            "no-words",
            "hint",
            f"{counted(len(names), 'file')} with hardly any words",
            "Most of their chunks are encoded data, numbers or coordinates, which no query finds. They take memory and "
            "time. If nobody searches them, exclude them with the command.",
            exam.commands.excluding(names, exam.sources),
            len(names),
            len(names) / len(exam.sources),
            examples([shown_path(file_path(name, exam.store.path)) for name in names]),
        )


def check_near_duplicates(exam: Examination) -> Iterator[Finding]:
    """Estimate the share of chunks that nearly repeat another chunk, by comparing some with their neighbours."""
    exam.any_embedder()
    connection, keys = exam.connection, exam.spread_keys(COMPARED)
    row_of = catalog.rows_of_keys(connection, keys)
    rows = np.array(list(row_of.values()), dtype=np.int64)
    hits = exam.snapshot.nearest_rows(exam.snapshot.vectors(rows), NEIGHBOURS, exam.snapshot.select(None))
    pairs = []
    for key, (near, _) in zip(row_of, hits, strict=True):
        others, _ = catalog.chunks_of_rows(connection, near.tolist())
        records = catalog.chunks_by_key(connection, [key, *others.tolist()[: 2 * NEIGHBOURS]])
        own = records.pop(key)
        duplicates = NearDuplicates()
        distinct = [record for record in records.values() if duplicates.place(record.chunk.text) is None]
        number = duplicates.place(own.chunk.text)
        if number is not None and number < len(distinct):
            pairs.append((own.source or own.id, distinct[number].source or distinct[number].id))
    if len(keys) < exam.chunks:
        exam.notes.append(
            f"near-duplicates were counted among {len(keys):,} of {counted(exam.chunks, 'chunk')}, in their "
            f"{NEIGHBOURS} nearest neighbours"
        )
    share = len(pairs) / max(len(keys), 1)
    if share > DUPLICATES_ABOVE:
        yield Finding(
            "near-duplicates",
            "hint",
            f"{share:.0%} of the chunks nearly repeat another chunk",
            "'ragembed query' combines them into one result unless you turn that off. In Python, pass "
            "RankingOptions(dedupe=True). The command shows an example.",
            exam.commands.run("query", "--dedupe", "your query"),
            round(share * exam.chunks),
            share,
            examples(sorted({f"{chunk} and {duplicate}" for chunk, duplicate in pairs})),
        )


@dataclass(slots=True)
class _Cuts:
    """The chunks of files that were read again: ``cut`` of ``chunks`` end inside a table or code.

    ``lengths`` are the tokens of each table or piece of code, and ``unread`` counts files that could not be read again.
    """

    chunks: int = 0
    cut: int = 0
    unread: int = 0
    places: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


def check_cuts(exam: Examination) -> Iterator[Finding]:
    """Read some files again to find chunks that end inside a table or a piece of code."""
    if exam.options is None:
        return
    embedder = exam.own_embedder()
    names = [name for name in sorted(exam.sources) if _is_read_again(name)]
    step = max(1, -(-len(names) // FILES_READ))
    cuts = _Cuts()
    exam.progress.start("reading", "files", len(names[::step]))
    for name in names[::step]:
        _count_cuts(exam, embedder, exam.sources[name], exam.options.reading(), cuts)
        exam.progress.advance(1)
    exam.progress.finish()
    if step > 1:
        exam.notes.append(f"{len(names[::step]):,} of {len(names):,} files were read again to find cut tables and code")
    if cuts.unread:
        exam.notes.append(f"{counted(cuts.unread, 'file')} could not be read again to find cut tables and code")
    share = cuts.cut / max(cuts.chunks, 1)
    if share <= CUT_ABOVE:
        return
    limit, room = exam.options.chunking(embedder.text_tokens).max_tokens, embedder.text_tokens
    whole = sum(length < room for length in cuts.lengths)
    command = exam.commands.run("index", "--chunk-tokens", str(room)) if room > limit and whole else "ragembed models"
    yield Finding(
        "cut-chunks",
        "hint",
        f"{share:.0%} of the chunks end inside a table or a piece of code",
        f"Rows without their header, and parts of a function, are hard to find and to understand. Chunks have at most "
        f"{limit:,} tokens, and the model reads {room:,}. "
        + (
            f"The command makes chunks long enough for {whole:,} of the {len(cuts.lengths):,} cut pieces."
            if room > limit and whole
            else "The command lists models; one with a longer window makes longer chunks possible."
        ),
        command,
        round(share * exam.chunks),
        share,
        examples(cuts.places),
    )


def _is_read_again(name: str) -> bool:
    reader = named_reader(Path(name).name) or PLAIN
    return not reader.contains_files and reader.name not in _NOT_READ_AGAIN


def _count_cuts(exam: Examination, embedder: Embedder, source: SourceRecord, options: ReadOptions, cuts: _Cuts) -> None:
    place = file_path(source.path, exam.store.path)
    if isinstance(place, RemotePath):
        return
    chunks = [record.chunk for record in catalog.iterate_chunks(exam.connection, source.path)]
    try:
        with only_document_errors():
            with open_regular(place) as file:
                data = file.read()
            if hashlib.sha256(data).hexdigest() != source.sha256:
                return  # The finding "stale" reports it.
            documents = list(read(place.name, data, options))
    except (RagembedError, OSError):
        cuts.unread += 1
        return
    cuts.chunks += len(chunks)
    remaining = iter(chunks)
    chunk = next(remaining, None)
    for document in documents:
        pieces = [block for block in document.blocks if block.kind in ("code", "table")]
        starts = [piece.start for piece in pieces]
        cut: dict[int, Block] = {}
        end = 0
        while chunk is not None and (start := document.text.find(chunk.text, max(0, end - len(chunk.text)))) >= 0:
            end = start + len(chunk.text)
            number = bisect_left(starts, end) - 1
            if number >= 0 and document.text[end : pieces[number].end].strip():
                cut[number] = pieces[number]
                cuts.cut += 1
                cuts.places.append(_place(shown_path(place), chunk))
            chunk = next(remaining, None)
        cuts.lengths += [_tokens(embedder, document.text[piece.start : piece.end]) for piece in cut.values()]


def _tokens(embedder: Embedder, text: str) -> int:
    """Return the number of tokens of a text, estimated if it is far longer than the model reads."""
    if len(text) > _LONGEST_TOKEN * embedder.text_tokens:
        return len(text) // _LONGEST_TOKEN
    return len(embedder.tokenizer.offsets([text])[0])


def _place(path: str, chunk: Chunk) -> str:
    if chunk.end_line is not None:
        return f"{path}:{chunk.end_line}"
    return location_of(path, None, None, chunk.page, chunk.end_page)
