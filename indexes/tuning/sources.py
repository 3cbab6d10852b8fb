"""Sources of pseudo-queries: sentences, spans, headings, titles, links, doc comments and table cells of a pool."""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Literal, TypeAlias
from urllib.parse import unquote

from ragembed.documents.model import Chunk
from ragembed.documents.readers.registry import named_reader
from ragembed.indexes.tuning.pool import Pool
from ragembed.indexes.tuning.prose import (
    is_prose,
    normal,
    plain,
    sentences,
    without_name,
    without_span,
    word_count,
    word_spans,
)
from ragembed.indexes.tuning.queries import PseudoQuery, Source, choice, key_of

Kind = Literal["prose", "code", "table"]

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("source", "yaml", "settings", "dockerfile", "sql", "log"), "code"),
    **dict.fromkeys(("csv", "jsonl", "json", "bibtex"), "table"),
}


def kind_of(file: str | None) -> Kind:
    """Return the kind of the file named ``file``; chunks without a file are prose."""
    reader = None if file is None else named_reader(PurePosixPath(file).name)
    return "prose" if reader is None else _KINDS.get(reader.name, "prose")


_LEAST_WORDS, _MOST_WORDS = 4, 40
_LEAST_NAME_WORDS = 2
_SHORTEST_SPAN, _LONGEST_SPAN, _LEAST_FOR_SPAN = 5, 12, 20

Span: TypeAlias = tuple[int, int]
Places: TypeAlias = Mapping[str, Sequence[tuple[int, Span]]]


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence that can be a query; ``opens`` is true for the first sentence of a file."""

    position: int
    text: str
    opens: bool


def sentence(pool: Pool, seed: int) -> Iterator[PseudoQuery]:
    """Yield one sentence of each chunk, but not the first of its file; the answer is the rest of the chunk."""
    everywhere, usable = _sentences(pool)
    of_chunk: dict[int, list[str]] = defaultdict(list)
    for one in usable:
        if not one.opens:
            of_chunk[one.position].append(one.text)
    for position, texts in of_chunk.items():
        yield from _without_sentence(pool, position, texts[choice(texts, seed)], everywhere)


def first_sentence(pool: Pool, seed: int) -> Iterator[PseudoQuery]:  # noqa: ARG001  the signature of all sources
    """Yield the first sentence of each file; the answer is the rest of its first chunk."""
    everywhere, usable = _sentences(pool)
    for one in usable:
        if one.opens:
            yield from _without_sentence(pool, one.position, one.text, everywhere)


def span(pool: Pool, seed: int) -> Iterator[PseudoQuery]:
    """Yield a run of words of each chunk without a usable sentence; the answer is the rest of the chunk.

    This covers texts without punctuation and texts with very long sentences.
    """
    _, usable = _sentences(pool)
    with_sentence = {one.position for one in usable}
    for position, passage in enumerate(pool.passages):
        words = word_spans(passage.chunk.text)
        if position in with_sentence or kind_of(passage.source) != "prose" or len(words) < _LEAST_FOR_SPAN:
            continue
        key = int.from_bytes(key_of(passage.chunk.text, seed, "span"), "little")
        length = _SHORTEST_SPAN + key % (_LONGEST_SPAN - _SHORTEST_SPAN + 1)
        first = (key >> 16) % (len(words) - length + 1)
        start, stop = words[first][0], words[first + length - 1][1]
        text = plain(passage.chunk.text[start:stop])
        if is_prose(text):
            yield PseudoQuery(text, (position,), {position: without_span(passage.chunk, start, stop)})


def heading(pool: Pool, seed: int) -> Iterator[PseudoQuery]:  # noqa: ARG001  the signature of all sources
    """Yield each heading that occurs once in the corpus; the answers are the chunks below it."""
    below: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    named: dict[str, set[tuple[str, tuple[str, ...]]]] = defaultdict(set)
    for file, positions in pool.files.items():
        for position in positions:
            path = _headings(pool.passages[position].chunk)
            if kind_of(pool.passages[position].source) == "code":
                continue
            for depth in range(1, len(path) + 1):
                below[file, path[:depth]].append(position)
                named[normal(path[depth - 1])].add((file, path[:depth]))
    for (file, path), positions in below.items():
        if word_count(path[-1]) >= _LEAST_NAME_WORDS and named[normal(path[-1])] == {(file, path)}:
            yield name_query(pool, path[-1], positions)


def title(pool: Pool, seed: int) -> Iterator[PseudoQuery]:  # noqa: ARG001  the signature of all sources
    """Yield each title that only one document has; the answers are the chunks of the document."""
    having: dict[str, list[int]] = defaultdict(list)
    shown: dict[str, str] = {}
    for positions in pool.files.values():
        for position in positions:
            name = pool.passages[position].chunk.title
            if name and word_count(name) >= _LEAST_NAME_WORDS:
                having[normal(name)].append(position)
                shown.setdefault(normal(name), name)
    for key, positions in having.items():
        if len({pool.places[position].file for position in positions}) == 1:
            yield name_query(pool, shown[key], positions)


def name_query(pool: Pool, name: str, answers: Sequence[int]) -> PseudoQuery:
    """Return the query ``name``; the answers are chunks that have it as a title, a heading or a line."""
    changed: dict[int, Chunk] = {}
    for position in answers:
        chunk = pool.passages[position].chunk
        without = without_name(chunk, name)
        if without != chunk:
            changed[position] = without
    return PseudoQuery(plain(name), tuple(answers), changed)


def _headings(chunk: Chunk) -> tuple[str, ...]:
    """Return the headings above a chunk that are not its title."""
    name = normal(chunk.title or "")
    return tuple(heading for heading in chunk.headings if normal(heading) != name)


def _sentences(pool: Pool) -> tuple[Places, list[_Sentence]]:
    """Return the places of all sentences, and the sentences that can be queries."""
    everywhere: dict[str, list[tuple[int, Span]]] = defaultdict(list)
    usable: list[_Sentence] = []
    for position, passage in enumerate(pool.passages):
        chunk = passage.chunk
        if kind_of(passage.source) == "code":
            continue
        names = {normal(name) for name in (chunk.title, *chunk.headings) if name}
        opens = pool.places[position].number == 0
        for start, stop in sentences(chunk.text):
            text = plain(chunk.text[start:stop])
            everywhere[normal(text)].append((position, (start, stop)))
            if normal(text) in names or not text:
                continue
            if _LEAST_WORDS <= word_count(text) <= _MOST_WORDS and is_prose(text):
                usable.append(_Sentence(position, text, opens))
            opens = False
    return everywhere, usable


def _without_sentence(pool: Pool, position: int, text: str, everywhere: Places) -> Iterator[PseudoQuery]:
    """Yield the query ``text``, unless other files contain it too.

    Other chunks of the same file that contain it, such as overlapping chunks, are also answers.
    """
    places = everywhere[normal(text)]
    if len({pool.places[at].file for at, _ in places}) > 1:
        return
    changed: dict[int, Chunk] = {}
    for at, (start, stop) in sorted(places, reverse=True):  # from the end, so that earlier spans stay valid
        changed[at] = without_span(changed.get(at, pool.passages[at].chunk), start, stop)
    yield PseudoQuery(text, (position, *(at for at in sorted(changed) if at != position)), changed)


_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")
_PAGE_NAMES = ("", ".md", "/index.md", "/README.md")
_LEAST_LINK_WORDS, _LEAST_DOC_WORDS, _LEAST_CELL_WORDS = 2, 3, 3

_PYTHON_DOC = re.compile(r"(?::[ \t]*(?:#[^\n]*)?\n\s*|\A)[rRuU]?(\"\"\"|''')(.+?)\1", re.DOTALL)
_BLOCK_DOC = re.compile(r"/\*\*(?!/)(.+?)\*/", re.DOTALL)
_LINE_DOC = re.compile(r"(?:^[ \t]*//[/!][^\n]*(?:\n|$))+", re.MULTILINE)
_DOC_MARKS = re.compile(r"^[ \t]*(?://[/!]?|\*)[ \t]?", re.MULTILINE)
_TAG = re.compile(r"^\s*[@:\\]\w")
_PYTHON = (".py", ".pyi")

_LABEL = re.compile(r"^([^:\n]{1,60}): ", re.MULTILINE)
_LABEL_SHARE = 0.5


def link(pool: Pool, seed: int) -> Iterator[PseudoQuery]:  # noqa: ARG001  the signature of all sources
    """Yield the text of each Markdown link to another file of the pool; the answers are the target of the link.

    The target is the section that the link names, or else the whole file. The text is removed from the linking chunks,
    and from the target if it is its title, a heading or a line there.
    """
    texts: dict[str, str] = {}
    targets: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    linking: dict[str, dict[int, Chunk]] = defaultdict(dict)
    for position, passage in enumerate(pool.passages):
        if passage.source is None or kind_of(passage.source) != "prose":
            continue
        for found in reversed(list(_LINK.finditer(passage.chunk.text))):
            answers = _target(pool, passage.source, found[2])
            if answers and position not in answers and word_count(plain(found[1])) >= _LEAST_LINK_WORDS:
                key = normal(found[1])
                texts.setdefault(key, plain(found[1]))
                targets[key].add(answers)
                chunk = linking[key].get(position, passage.chunk)
                linking[key][position] = without_span(chunk, found.start(), found.end())
    for key, different in targets.items():
        if len(different) == 1:
            [answers] = different
            named = {at: without_name(pool.passages[at].chunk, texts[key]) for at in answers}
            changed = {at: chunk for at, chunk in named.items() if chunk != pool.passages[at].chunk}
            yield PseudoQuery(texts[key], answers, {**linking[key], **changed})


def docstring(pool: Pool, seed: int) -> Iterator[PseudoQuery]:
    """Yield the first paragraph of a doc comment of each chunk of code; the answer is the chunk without the comment.

    Supports Python docstrings and comments that start with ``/**``, ``///`` or ``//!``.
    """
    for position, passage in enumerate(pool.passages):
        if kind_of(passage.source) != "code":
            continue
        python = (passage.source or "").lower().endswith(_PYTHON)
        found = list(_python_docs(passage.chunk.text) if python else _comment_docs(passage.chunk.text))
        usable = [doc for doc in found if word_count(doc[0]) >= _LEAST_DOC_WORDS]
        if usable:
            text, start, stop = usable[choice([text for text, _, _ in usable], seed)]
            yield PseudoQuery(text, (position,), {position: without_span(passage.chunk, start, stop)})


def column(pool: Pool, seed: int) -> Iterator[PseudoQuery]:
    """Yield one cell of each table row that no other row has; the answer is the row without the cell.

    Cells are lines of the form ``column: value``, and values in the metadata.
    """
    labels = {file: _labels([pool.passages[at].chunk for at in positions]) for file, positions in pool.files.items()}
    cells: dict[int, list[tuple[str, Chunk]]] = {}
    for position, passage in enumerate(pool.passages):
        if kind_of(passage.source) == "table":
            cells[position] = list(_cells(passage.chunk, labels[pool.places[position].file]))
    common = Counter(key for found in cells.values() for key in {normal(text) for text, _ in found})
    for position, found in cells.items():
        own = [(text, chunk) for text, chunk in found if common[normal(text)] == 1]
        if own:
            text, chunk = own[choice([text for text, _ in own], seed)]
            yield PseudoQuery(text, (position,), {} if chunk is pool.passages[position].chunk else {position: chunk})


def _target(pool: Pool, file: str, address: str) -> tuple[int, ...]:
    """Return the positions of the target of ``address`` in ``file``; empty unless it is elsewhere in the pool."""
    if _SCHEME.match(address):
        return ()
    path, _, fragment = unquote(address).partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(file), path.partition("?")[0])) if path else file
    name = next((path + ending for ending in _PAGE_NAMES if path + ending in pool.files), None)
    if name is None or (name == file and not fragment):
        return ()
    positions = pool.files[name]
    below = tuple(at for at in positions if fragment in map(_slug, pool.passages[at].chunk.headings))
    return below if below or name == file else tuple(positions)


def _slug(heading: str) -> str:
    """Return the link fragment of a heading, as GitHub generates it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _python_docs(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the first paragraph and the span of each string at the start of a definition or of the text."""
    for found in _PYTHON_DOC.finditer(text):
        start = text.index(found[1], found.start())
        yield plain(found[2].strip().split("\n\n")[0]), start, found.end()


def _comment_docs(text: str) -> Iterator[tuple[str, int, int]]:
    for pattern in (_BLOCK_DOC, _LINE_DOC):
        for found in pattern.finditer(text):
            body = _DOC_MARKS.sub("", found[1] if pattern is _BLOCK_DOC else found[0])
            lines: list[str] = []
            for line in body.strip().split("\n"):
                if not line.strip() or _TAG.match(line):
                    break
                lines.append(line)
            yield plain(" ".join(lines)), found.start(), found.end()


def _labels(chunks: Sequence[Chunk]) -> set[str]:
    """Return the column names of a file: the text before a colon that at least half of its rows share."""
    counts = Counter(label for chunk in chunks for label in set(_LABEL.findall(chunk.text)))
    return {label for label, count in counts.items() if count >= _LABEL_SHARE * len(chunks)}


def _cells(chunk: Chunk, labels: set[str]) -> Iterator[tuple[str, Chunk]]:
    """Yield the values that can be queries, each with the chunk after its removal."""
    starts = [found for found in _LABEL.finditer(chunk.text) if found[1] in labels]
    stops = [*(found.start() for found in starts[1:]), len(chunk.text)]
    for found, end in zip(starts, stops, strict=False):  # without labels, stops still has one element
        value = plain(chunk.text[found.end() : end])
        if word_count(value) >= _LEAST_CELL_WORDS and len(starts) > 1:
            kept = chunk.text[: found.start()] + chunk.text[end:]
            yield value, replace(chunk, text=kept.strip("\n"))
    for value in chunk.metadata.values():
        if isinstance(value, str) and word_count(value) >= _LEAST_CELL_WORDS:
            yield plain(value), chunk


SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "sentence": sentence,
        "first sentence": first_sentence,
        "span": span,
        "heading": heading,
        "title": title,
        "link": link,
        "docstring": docstring,
        "column": column,
    }
)
"""All sources by name, in the order of the report."""
LOG = "query log"
"""The name of the source for a user's query log."""
