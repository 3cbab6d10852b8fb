"""Split a document into the chunks that are embedded: by sections first, then by size.

Short sections are merged with their neighbours under the same parent, and :mod:`.cutting` cuts long ones. Every chunk
is a slice of the document's text, and its embedded text never has more than ``max_tokens`` tokens. A chunk ends on the
line before the text that follows it, or on that of a blank line, which readers set to where the text above ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from operator import is_
from typing import Any

from ragembed.documents.cutting import (
    TOKENISED_TOGETHER,
    Atom,
    Offsets,
    TokenMap,
    grouped,
    middle,
    overlap_start,
    pack,
    rebalance,
    trim,
)
from ragembed.documents.model import Block, Chunk, ParsedDocument, embedded_text
from ragembed.documents.normalisation import normalise, normalised_length
from ragembed.errors import ConfigError, DocumentError
from ragembed.types import Spans

VERSION = 5
"""Version of the chunks. It increases when the chunks of the same document change."""
MOST_HEADINGS, LONGEST_HEADING = 16, 1_000
"""Number of headings above a text, and characters of each, that are kept. Documents for people have fewer."""
SMALLEST_LIMIT = 16
CONTEXT_SHARE = 4
"""Title and heading path get at most a quarter of ``max_tokens``."""
TINY_SHARE = 8
"""A section whose body is less than an eighth of ``max_tokens`` joins a neighbour if they fit into one chunk."""
_SHORT_CHARACTERS, BATCH_CHARACTERS = 4_000, 200_000
"""Largest short document, and largest batch of short documents that are tokenised together, in characters."""
LARGEST_GROWTH, SMALLEST_GROWN = 4, 1_000_000
"""Maximum length of the normalised text of a file, as a multiple of its text, and a length that is always allowed."""
LARGEST_RESERVE = 16
"""Chunks of source code leave at most a sixteenth of ``max_tokens`` for the headings of classes."""
SMALL_SHARE = 4
"""A section of less than a quarter of ``max_tokens`` joins its siblings while their total is at most half of it."""


@dataclass(frozen=True)
class ChunkingConfig:
    """Limits in tokens: of a chunk's embedded text, and of what it repeats from the end of the previous chunk."""

    max_tokens: int
    overlap: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens < SMALLEST_LIMIT:
            raise ConfigError(f"max_tokens is {self.max_tokens}: expected at least {SMALLEST_LIMIT}")
        if not 0 <= self.overlap < self.max_tokens // 2:
            raise ConfigError(
                f"overlap is {self.overlap}: expected at least 0 and less than half of max_tokens, "
                f"which is {self.max_tokens}"
            )


class Chunker:
    """Splits documents into chunks, measured in tokens, whose spans ``offsets`` returns for each text."""

    def __init__(self, config: ChunkingConfig, offsets: Offsets) -> None:
        self.config = config
        self.offsets = offsets

    def split(self, document: ParsedDocument) -> list[Chunk]:
        """Split ``document`` into chunks, in text order, which cover all its blocks."""
        if not document.blocks:
            return []
        return _Split(self.config, self.offsets, _with_usual_headings(document)).chunks()

    def split_all(self, documents: Iterable[ParsedDocument]) -> Iterator[Chunk]:
        """Yield the chunks of all documents, the same as :meth:`split` returns for each, but faster for short ones.

        Texts that normalising makes more than ``LARGEST_GROWTH`` times longer are a :class:`DocumentError`: a model
        takes a kilobyte for each character.
        """
        for group in grouped(_measured(documents), lambda measured: measured[1], BATCH_CHARACTERS):
            chunker = self.knowing(text for document, _ in group for text in short_texts(document))
            for document, _ in group:
                yield from chunker.split(document)

    def knowing(self, texts: Iterable[str]) -> Chunker:
        """Return a chunker that makes the same chunks, faster: it has tokenised ``texts`` together."""
        distinct = list(dict.fromkeys(texts))
        known: dict[str, Spans] = {}
        for batch in grouped(distinct, len, TOKENISED_TOGETHER):
            known.update(zip(batch, self.offsets(batch), strict=True))
        return Chunker(self.config, partial(_cached_offsets, known, self.offsets))


def _measured(documents: Iterable[ParsedDocument]) -> Iterator[tuple[ParsedDocument, int]]:
    """Yield each document with the length of its normalised text; raise :class:`DocumentError` if the texts grow."""
    before = after = 0
    for document in documents:
        length = normalised_length(document.text)
        before += len(document.text)
        after += length
        if after > max(SMALLEST_GROWN, LARGEST_GROWTH * before):
            raise DocumentError(
                f"its text grows from {before:,} to {after:,} characters when compatibility characters are spelt out: "
                f"expected at most {LARGEST_GROWTH} times as many"
            )
        yield document, length


def _with_usual_headings(document: ParsedDocument) -> ParsedDocument:
    """Return the document with its title and headings normalised, cut, and limited to the outermost ones."""
    title = document.title and _usual(document.title)
    blocks = [
        block if headings == block.headings else replace(block, headings=headings)
        for block in document.blocks
        for headings in [tuple(map(_usual, block.headings[:MOST_HEADINGS]))]
    ]
    same = title == document.title and all(map(is_, blocks, document.blocks))
    return document if same else replace(document, title=title, blocks=blocks)


def _usual(heading: str) -> str:
    return normalise(heading[:LONGEST_HEADING])


def short_texts(document: ParsedDocument) -> Iterator[str]:
    """Yield the texts that are tokenised to split ``document``, if it is one short block that makes one chunk."""
    if len(document.blocks) != 1 or len(document.text) > _SHORT_CHARACTERS:
        return
    document = _with_usual_headings(document)
    [block] = document.blocks
    trimmed = trim(document.text, block.start, block.end)
    if trimmed is None:
        return
    yield document.text[block.start : block.end]
    yield embedded_text(normalise(document.text[trimmed[0] : trimmed[1]]), block.headings, document.title)
    for depth in range(len(block.headings) + 1):
        yield _context(document.title, block.headings[:depth])


def _cached_offsets(known: Mapping[str, Spans], offsets: Offsets, texts: list[str]) -> list[Spans]:
    """Return the token spans of ``texts``: from ``known`` if possible, otherwise from ``offsets``."""
    others = [text for text in texts if text not in known]
    more = dict(zip(others, offsets(others), strict=True)) if others else {}
    return [known[text] if text in known else more[text] for text in texts]


def _context(title: str | None, headings: tuple[str, ...]) -> str:
    """Return the title and headings in the form in which they precede a chunk's text."""
    # embedded_text drops a heading that the first line repeats. The first line of "\n" is empty and repeats none.
    return embedded_text("\n", headings, title).strip("\n")


@dataclass(frozen=True)
class _Section:
    """Consecutive blocks under one heading path. A heading block starts a new section.

    ``body_start`` is the start of the first block that is not a heading, or the end of the section if it has only
    headings.
    """

    headings: tuple[str, ...]
    blocks: list[Block]
    start: int
    body_start: int
    end: int


@dataclass
class _Unit:
    """Sections that are packed together.

    ``is_bare`` is true if they have only headings. ``context`` is the maximum number of tokens that the title, heading
    path and line break take above a chunk. ``body`` is the number of tokens below the headings.
    """

    sections: list[_Section]
    is_bare: bool
    context: int
    body: int

    def add(self, section: _Section, context: int, body: int) -> None:
        self.sections.append(section)
        self.is_bare = self.is_bare and section.body_start == section.end
        self.context = max(self.context, context)
        self.body += body


@dataclass(frozen=True)
class _Draft:
    """A planned chunk: ``text[start:end]``. The part before ``fresh`` repeats the end of the previous chunk."""

    start: int
    fresh: int
    end: int
    title: str | None
    headings: tuple[str, ...]


class _Contexts:
    """Titles and heading paths that precede the chunks' texts, shortened to their limit, with their token counts.

    ``known`` has them by prepared path, and by the parents of these paths.
    """

    def __init__(self, title: str | None, limit: int, offsets: Offsets) -> None:
        self._title = title
        self._limit = limit
        self._offsets = offsets
        self.known: dict[tuple[str, ...], tuple[str | None, tuple[str, ...], int]] = {}

    def prepare(self, paths: Iterable[tuple[str, ...]]) -> None:
        """Count the tokens of ``paths`` and of all their parent paths in one pass."""
        wanted = list(dict.fromkeys(path[:depth] for path in paths for depth in range(len(path) + 1)))
        for path, size in zip(wanted, self._sizes([(self._title, path) for path in wanted]), strict=True):
            self.known[path] = (self._title, path, size) if size <= self._limit else self._shortened(path)

    def _sizes(self, contexts: Sequence[tuple[str | None, tuple[str, ...]]]) -> list[int]:
        texts = [_context(title, headings) for title, headings in contexts]
        return [len(spans) for batch in grouped(texts, len, TOKENISED_TOGETHER) for spans in self._offsets(batch)]

    def _shortened(self, path: tuple[str, ...]) -> tuple[str | None, tuple[str, ...], int]:
        """Drop the outer headings; if that is not enough, truncate the rest; if that is not enough, drop everything."""
        title, headings = self._title, path
        size = self._limit + 1
        while len(headings) > 1 and size > self._limit:
            headings = headings[1:]
            (size,) = self._sizes([(title, headings)])
        if size > self._limit:
            share = self._limit // len({title, *headings} - {None})
            title = self._cut(title, share) if title else None
            headings = tuple(filter(None, (self._cut(heading, share) for heading in headings)))
            (size,) = self._sizes([(title, headings)])
        if size > self._limit:
            return None, (), 0
        return title, headings, size

    def _cut(self, text: str, limit: int) -> str:
        (spans,) = self._offsets([text])
        return text[: spans[limit][0]].rstrip() if len(spans) > limit else text


class _Split:
    """The state of splitting one document."""

    def __init__(self, config: ChunkingConfig, offsets: Offsets, document: ParsedDocument) -> None:
        self.limit = config.max_tokens
        self.overlap = config.overlap
        self.offsets = offsets
        self.document = document
        self.text = document.text
        self.blocks = document.blocks
        starts = [block.start for block in self.blocks]
        self.block_starts = starts
        self.tokens = TokenMap(self.text, list(pairwise([*starts, self.blocks[-1].end])), offsets)
        self.sections = _sections(self.blocks)
        self.section_starts = [section.start for section in self.sections]
        self.contexts = _Contexts(document.title, self.limit // CONTEXT_SHARE, offsets)
        self.contexts.prepare(section.headings for section in self.sections)

    def chunks(self) -> list[Chunk]:
        """Draft chunks for each unit, count the tokens of their embedded texts, and split the drafts over the limit."""
        pending = (
            self._source_drafts()
            if self.document.is_source
            else [draft for unit in self._units() for draft in self._drafts(unit)]
        )
        done: list[tuple[_Draft, int]] = []
        while pending:
            too_long: list[_Draft] = []
            embedded = (
                (draft, embedded_text(normalise(self.text[draft.start : draft.end]), draft.headings, draft.title))
                for draft in pending
            )
            for batch in grouped(embedded, lambda item: len(item[1]), TOKENISED_TOGETHER):
                spans = self.offsets([text for _, text in batch])
                for (draft, _), tokens in zip(batch, spans, strict=True):
                    smaller = self._smaller(draft, len(tokens)) if len(tokens) > self.limit else []
                    too_long += smaller
                    if not smaller:
                        done.append((draft, len(tokens)))
            pending = too_long
        done.sort(key=lambda item: item[0].fresh)
        places = _Positions(self.document)
        return [places.chunk(draft, tokens) for draft, tokens in done]

    def _source_drafts(self) -> list[_Draft]:
        """Draft chunks of source code, as large as the limit allows, because functions explain their neighbours."""
        context = max(self.contexts.known[section.headings[:-1]][2] for section in self.sections)
        budget = self.limit - 1 - min(context, self.limit // LARGEST_RESERVE)
        return self._cut(self._whole_definitions(budget), self.blocks[0].start, self.blocks[-1].end, budget)

    def _whole_definitions(self, budget: int) -> list[Block]:
        """Return the blocks of the document, and a single block for each definition that fits into ``budget``."""
        whole: list[Block] = []
        number = 0
        while number < len(self.sections):
            section = self.sections[number]
            above = self.sections[number - 1].headings if number else ()
            stop = number + 1
            for depth in range(1, len(section.headings) + 1):
                path = section.headings[:depth]
                if above[:depth] == path:
                    continue
                end = stop
                while end < len(self.sections) and self.sections[end].headings[:depth] == path:
                    end += 1
                last = self.sections[end - 1]
                if self.tokens.count(section.start, last.end) <= budget:
                    whole.append(Block(section.start, last.end, "code", path))
                    stop = end
                    break
            else:
                whole += section.blocks
            number = stop
        return whole

    def _units(self) -> list[_Unit]:
        """Group the sections that are packed together."""
        units: list[_Unit] = []
        for number, section in enumerate(self.sections):
            following = self.sections[number + 1].headings if number + 1 < len(self.sections) else ()
            context = self.contexts.known[section.headings][2] + 1
            body = self.tokens.count(section.body_start, section.end)
            if units and self._joins(units[-1], section, context, body, _is_below(following, section.headings)):
                units[-1].add(section, context, body)
            else:
                units.append(_Unit([section], section.body_start == section.end, context, body))
        return units

    def _joins(self, unit: _Unit, section: _Section, context: int, body: int, leads: bool) -> bool:
        """Return whether ``section`` is added to ``unit``. ``leads`` is true if subsections of it follow."""
        tiny = self.limit // TINY_SHARE
        if unit.is_bare or (unit.body < tiny and _is_below(section.headings, unit.sections[-1].headings)):
            return True
        parent = unit.sections[0].headings[:-1]
        total = max(unit.context, context) + self.tokens.count(unit.sections[0].start, section.end)
        if section.headings[: len(parent)] != parent or total > self.limit:
            return False
        if unit.body < tiny or (body < tiny and not leads):
            return True
        small = self.tokens.count(section.start, section.end) < self.limit // SMALL_SHARE
        return small and total <= self.limit // 2

    def _drafts(self, unit: _Unit) -> list[_Draft]:
        blocks = [block for section in unit.sections for block in section.blocks]
        return self._cut(blocks, blocks[0].start, blocks[-1].end, self.limit - unit.context)

    def _cut(self, blocks: Sequence[Block], start: int, end: int, budget: int) -> list[_Draft]:
        """Cut ``text[start:end]``, which ``blocks`` cover, into drafts of at most about ``budget`` tokens."""
        soft = max(1, budget - self.overlap)
        atoms = (Atom(max(block.start, start), min(block.end, end), block.kind) for block in blocks)
        groups = rebalance(self.tokens, pack(self.text, self.tokens, atoms, soft, budget), soft)
        drafts: list[_Draft] = []
        above: list[Atom] = []
        for group in groups:
            fresh, stop = group[0].start, group[-1].end
            begin = fresh
            if above and self.overlap:
                room = min(self.overlap, budget - self.tokens.count(fresh, stop))
                begin = overlap_start(self.text, self.tokens, above[-1], above[0].start, room)
            trimmed = trim(self.text, min(begin, fresh), stop)
            if trimmed is not None:
                path = self._path(fresh, stop)
                if self.document.is_source:
                    path = self._useful(path, fresh, stop)
                title, headings, _ = self.contexts.known[path]
                drafts.append(_Draft(trimmed[0], max(fresh, trimmed[0]), trimmed[1], title, headings))
            above = group
        return drafts

    def _path(self, start: int, end: int) -> tuple[str, ...]:
        """Return the heading path that all sections in ``text[start:end]`` share."""
        first = bisect_right(self.section_starts, start) - 1
        last = max(first + 1, bisect_left(self.section_starts, end))
        path = self.sections[first].headings
        for section in self.sections[first + 1 : last]:
            while not _is_below((*section.headings, ""), path):
                path = path[:-1]
        return path

    def _useful(self, path: tuple[str, ...], start: int, stop: int) -> tuple[str, ...]:
        """Return the headings that ``text[start:stop]`` of source code does not contain and has room for."""
        number = bisect_left(self.section_starts, start)
        begins = number < len(self.sections) and self.section_starts[number] < stop
        if begins and path and path == self.sections[number].headings:
            path = path[:-1]
        room = self.limit - 1 - self.tokens.count(start, stop)
        while path and self.contexts.known[path][2] > room:
            path = path[:-1]
        return path

    def _smaller(self, draft: _Draft, tokens: int) -> list[_Draft]:
        """Replace a draft that has too many ``tokens`` by smaller ones. Return none if it cannot be made smaller."""
        if draft.start < draft.fresh:
            trimmed = trim(self.text, draft.fresh, draft.end)
            start = trimmed[0] if trimmed else draft.fresh
            return [replace(draft, start=start, fresh=start)]
        planned = self.tokens.count(draft.start, draft.end)
        budget = planned - max(1, tokens - self.limit)
        if budget > 0:
            first = bisect_right(self.block_starts, draft.start) - 1
            last = bisect_left(self.block_starts, draft.end)
            pieces = self._cut(self.blocks[first:last], draft.start, draft.end, budget)
            if len(pieces) > 1:
                return pieces
        if draft.end - draft.start > 1:
            at = middle(self.text, draft.start, draft.end)
            halves = (trim(self.text, draft.start, at), trim(self.text, at, draft.end))
            return [replace(draft, start=a, fresh=a, end=b) for a, b in filter(None, halves)]
        if draft.title or draft.headings:
            return [replace(draft, title=None, headings=())]
        return []


class _Positions:
    """Maps offsets into a document's text to lines and pages of the file."""

    def __init__(self, document: ParsedDocument) -> None:
        self._document = document
        self._lines = document.text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines[:-1])]

    def chunk(self, draft: _Draft, tokens: int) -> Chunk:
        first, last = (bisect_right(self._starts, at) - 1 for at in (draft.start, draft.end - 1))
        start_line, end_line = self._lines_of(first, last)
        page, *later = self._pages_of(first, last)
        return Chunk(
            text=self._document.text[draft.start : draft.end],
            headings=draft.headings,
            title=draft.title,
            start_line=start_line,
            end_line=end_line,
            page=page[1],
            later_pages=tuple(later),
            tokens=tokens,
            metadata=self._document.metadata,
        )

    def _lines_of(self, first: int, last: int) -> tuple[int | None, int | None]:
        numbers = self._document.line_numbers
        if self._document.page_numbers is not None:
            return None, None
        if numbers is None:
            return first + 1, last + 1
        end = numbers[last]
        if last + 1 < len(self._lines):
            below_is_blank = not self._lines[last + 1].strip()
            end = max(end, numbers[last + 1] - (not below_is_blank))
        return numbers[first], end

    def _pages_of(self, first: int, last: int) -> list[tuple[int, Any]]:
        """Return the pages of lines, each with its first line from ``first``; None if the format has no pages."""
        pages = self._document.page_numbers or ()
        changes = [at for at in range(first + 1, min(last + 1, len(pages))) if pages[at] > pages[at - 1]]
        return [(at - first, pages[at] if pages else None) for at in (first, *changes)]


def _sections(blocks: Sequence[Block]) -> list[_Section]:
    groups: list[list[Block]] = []
    for block in blocks:
        if block.kind == "heading" or not groups or groups[-1][0].headings != block.headings:
            groups.append([])
        groups[-1].append(block)
    sections = []
    for group in groups:
        start, end = group[0].start, group[-1].end
        body_start = next((block.start for block in group if block.kind != "heading"), end)
        sections.append(_Section(group[0].headings, group, start, body_start, end))
    return sections


def _is_below(path: tuple[str, ...], above: tuple[str, ...]) -> bool:
    return len(path) > len(above) and path[: len(above)] == above
