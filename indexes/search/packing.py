"""Pack the hits of a query into a budget of tokens: whole hits, their sections, weak hits, and other neighbours.

A *piece* is either a range of lines of a file that did not change since it was indexed, or the text of a chunk as the
store keeps it. Pieces are added by priority: a hit by its rank, and a neighbour by the rank of its hit and the distance
from it. A piece that does not fit is skipped; at the end, parts of hits fill the rest of the budget.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count
from pathlib import Path

from ragembed.documents.decoding import decode
from ragembed.documents.places import shown_path
from ragembed.documents.readers.registry import location_of, member_of, sheet_of
from ragembed.errors import ConfigError
from ragembed.files import open_regular
from ragembed.indexes.lexical.analyzer import of_language
from ragembed.indexes.lexical.fulltext import indexed_terms
from ragembed.indexes.search.context import Context, ContextBlock, ContextFormat, LeftOut, Renderer, one_line
from ragembed.indexes.search.ranking import NearDuplicates
from ragembed.indexes.search.snapshot import Snapshot, root_place
from ragembed.indexes.storage.layout import file_path
from ragembed.indexes.types import ChunkRecord, Hit, source_of
from ragembed.models.token_counting import BudgetTokenizer
from ragembed.progress import check

_LEAST_CANDIDATES, _MOST_CANDIDATES, _TOKENS_PER_CANDIDATE = 20, 200, 40
"""Limits of the number of hits that are read, and the budget for which one more is read."""
_WIDENING_STEP, _OUTSIDE, _OF_LONG_FILE = 8, 1000, 5000
"""Ranks by which a neighbour comes after its hit, and by which pieces come later: neighbours outside the section of
their hit, and neighbours in a file that has half of the budget."""
_LEAST_ROOM = 5
"""Number of tokens below which nothing more is tried."""
_LEAST_CUT = 60
"""Smallest number of tokens into which a part of a chunk is cut, except that of the best hit."""
_SENTENCES = re.compile(r"[^\n]+?(?:[.!?](?=\s)\s*|[。！？]|\n+|$)|\n+")
_LEAST_WITH_HEADINGS = 120
"""Budget from which blocks have headings and titles; in a smaller one, they would leave no room for the text."""
_GAP = 12
"""Tokens between two pieces of a file up to which they become one block; another header would cost as much."""
_MOST_LISTED = 20


@dataclass(frozen=True, slots=True)
class PackingRequest:
    """What to pack: the query, the budget, the format, the tokenizer, and a function that names files."""

    query: str
    budget: int
    format: ContextFormat
    renderer: Renderer
    counter: BudgetTokenizer
    name_file: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ConfigError(f"the budget is {self.budget} tokens: expected 1 or more")

    @property
    def candidates(self) -> int:
        """Number of hits to search for."""
        return min(max(self.budget // _TOKENS_PER_CANDIDATE, _LEAST_CANDIDATES), _MOST_CANDIDATES)


def pack(snapshot: Snapshot, hits: Sequence[Hit], request: PackingRequest) -> Context:
    """Return the context for ``hits``, best first."""
    return _Packer(snapshot, hits, request).context()


@dataclass(frozen=True, slots=True, eq=False)
class _Stored:
    """A chunk with its key in the store, or None for a hit that is not in the store."""

    key: int | None
    record: ChunkRecord


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """Text of a chunk, or a part of it."""

    stored: _Stored
    text: str

    @property
    def is_whole(self) -> bool:
        return self.text == self.stored.record.chunk.text


@dataclass(frozen=True, slots=True)
class _Content:
    """The pieces of one file so far: disjoint ranges of lines, ascending, and texts of chunks by position."""

    spans: tuple[tuple[int, int], ...] = ()
    excerpts: tuple[_Excerpt, ...] = ()


@dataclass(eq=False)
class _File:
    """A file or member with hits, and the pieces chosen from it. ``lines`` is empty if they cannot be used."""

    path: str
    lines: Sequence[str]
    is_stale: bool
    rank: int
    content: _Content = _Content()
    chunks: dict[int | None, _Stored] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    relevance: dict[str, float] = field(default_factory=dict)
    line_costs: dict[int, int] = field(default_factory=dict)


@dataclass(order=True, frozen=True)
class _Waiting:
    """A hit, or a neighbour ``distance`` chunks after (or before, if negative) the hit with this ``rank``."""

    priority: float
    order: int
    rank: int = field(compare=False)
    stored: _Stored = field(compare=False)
    distance: int = field(compare=False)
    hit: _Stored = field(compare=False)


class _Packer:
    def __init__(self, snapshot: Snapshot, hits: Sequence[Hit], request: PackingRequest) -> None:
        self._snapshot = snapshot
        self._hits = hits
        self._request = request
        self._files: dict[tuple[str | None, ...], _File] = {}
        self._neighbours: dict[tuple[int, int], _Stored | None] = {}
        self._block_costs: dict[tuple[int, object], int] = {}
        self._history: list[tuple[_File, _Content]] = []
        is_stop_word = of_language(snapshot.language()).is_stop_word
        self._words = " ".join(word for word in request.query.split() if not is_stop_word(word)) or request.query
        self._near = NearDuplicates()
        self._order = count()
        self._room = request.budget - request.counter.of(request.renderer.render(request.query, [], []))
        self._room_at_first = self._room

    def context(self) -> Context:
        """Choose pieces, and return them in the order of the output."""
        left_out = self._fill()
        request = self._request
        blocks = self._ordered_blocks()
        text = request.renderer.render(request.query, blocks, [])
        while blocks and request.counter.of(text) > request.budget:  # parts can have fewer tokens than the whole
            file, content = self._history.pop()
            file.content = content
            blocks = self._ordered_blocks()
            text = request.renderer.render(request.query, blocks, [])
        listed = tuple(self._left_out(stored) for stored in left_out if not self._is_covered(stored))
        text = self._with_list(blocks, listed[:_MOST_LISTED]) if blocks else ""
        return Context(
            request.query,
            request.budget,
            request.counter.of(text) if text else 0,
            request.counter.name,
            request.format,
            tuple(blocks),
            listed,
            text,
        )

    # Choosing pieces

    def _fill(self) -> list[_Stored]:
        """Add pieces until nothing more fits; return the hits that did not fit, best first."""
        waiting: list[_Waiting] = []
        for rank, (hit, key) in enumerate(zip(self._hits, self._snapshot.keys_of(self._hits), strict=True)):
            stored = _Stored(key, ChunkRecord(hit.id, hit.chunk, hit.source, hit.store))
            file = self._file_of(stored, rank)
            file.scores[hit.id] = hit.score
            if hit.relevance is not None:
                file.relevance[hit.id] = hit.relevance
            waiting.append(_Waiting(rank, next(self._order), rank, stored, 0, stored))
        heapq.heapify(waiting)
        left_out: list[_Stored] = []
        while waiting and self._room >= _LEAST_ROOM:
            check()
            candidate = heapq.heappop(waiting)
            is_hit = candidate.distance == 0
            is_new = not self._is_covered(candidate.stored)
            file = self._file_of(candidate.stored)
            if (
                is_new
                and not is_hit
                and candidate.priority < _OF_LONG_FILE
                and 2 * self._cost(file, file.content) > self._room_at_first
            ):
                heapq.heappush(waiting, replace(candidate, priority=candidate.priority + _OF_LONG_FILE))
                continue
            chunk = candidate.stored.record.chunk
            if is_new and self._near.place(chunk.embedded_text, chunk.text) is not None:
                continue
            if not self._add(candidate.stored, cut=candidate.rank == 0 and is_hit):
                if is_hit:
                    left_out.append(candidate.stored)
                continue
            for step in (-1, 1) if is_hit else (1 if candidate.distance > 0 else -1,):
                self._push_neighbour(waiting, candidate, step)
        left_out += [unplaced.stored for unplaced in sorted(waiting) if unplaced.distance == 0]
        return [stored for stored in left_out if self._room < _LEAST_CUT or not self._add(stored, cut=True)]

    def _push_neighbour(self, waiting: list[_Waiting], candidate: _Waiting, step: int) -> None:
        neighbour = self._neighbour(candidate.stored, step)
        if neighbour is None or neighbour.record.chunk.searched == "":
            return
        distance = candidate.distance + step
        headings = candidate.hit.record.chunk.headings
        inside = bool(headings) and neighbour.record.chunk.headings[: len(headings)] == headings
        priority = (candidate.rank + 1) * abs(distance) * _WIDENING_STEP + (0 if inside else _OUTSIDE)
        entry = _Waiting(priority, next(self._order), candidate.rank, neighbour, distance, candidate.hit)
        heapq.heappush(waiting, entry)

    def _neighbour(self, stored: _Stored, step: int) -> _Stored | None:
        """Return the chunk after (or before, for -1) a chunk in the same document, or None."""
        if stored.key is None:
            return None
        place = (stored.key, step)
        if place not in self._neighbours:
            key = self._snapshot.neighbour(stored.key, step)
            neighbour = None if key is None else _Stored(key, self._snapshot.chunks_by_key([key])[key])
            if neighbour is not None and not _same_document(neighbour.record, stored.record):
                neighbour = None
            self._neighbours[place] = neighbour
        return self._neighbours[place]

    def _add(self, stored: _Stored, *, cut: bool) -> bool:
        """Add a chunk, or a part of it if ``cut`` allows that; return whether it is in the output now."""
        file = self._file_of(stored)
        file.chunks[stored.key] = stored
        if self._is_covered(stored):
            return True
        span = self._span(file, stored)
        if span is not None and self._try(file, self._with_span(file, span)):
            return True
        if span is None and self._try(file, self._with_excerpt(file, _Excerpt(stored, stored.record.chunk.text))):
            return True
        return cut and self._add_part(file, stored, span)

    def _add_part(self, file: _File, stored: _Stored, span: tuple[int, int] | None) -> bool:
        """Add the lines of a chunk, or else the sentences or words, with most words of the query."""
        if span is not None and span[0] < span[1]:
            first, last = span
            parts, costs = file.lines[first - 1 : last], self._line_costs(file, first, last)
            frame = self._frame_cost(file, stored, "\n".join(parts), span)
            _, start, stop = self._best_window(parts, costs, self._room - frame)
            if start < stop:
                return self._try(file, self._with_span(file, (first + start, first + stop - 1)))
        if any(_overlaps(stored, first, last) for first, last in file.content.spans):
            return False
        text = stored.record.chunk.text
        room = self._room - self._frame_cost(file, stored, text, None)
        ways = []
        for parts in (_SENTENCES.findall(text), re.findall(r"\S+\s*", text)):
            costs = self._request.counter.count([self._request.renderer.line(part.rstrip("\n")) for part in parts])
            ways.append((parts, costs, self._best_window(parts, costs, room)))
        for parts, costs, (_, start, stop) in sorted(ways, key=lambda way: way[2][0] == 0):
            while start < stop:
                excerpt = _Excerpt(stored, "".join(parts[start:stop]).strip())
                if excerpt.text and self._try(file, self._with_excerpt(file, excerpt)):
                    return True
                # The whole may have a few tokens more than its parts.
                _, start, stop = self._best_window(parts, costs, sum(costs[start:stop]) - 1)
        return False

    def _best_window(self, parts: Sequence[str], costs: Sequence[int], room: int) -> tuple[int, int, int]:
        """Return the consecutive parts within ``room`` that contain most words of the query, as many as fit.

        The result is the number of these words, and start and end of the parts.
        """
        wanted, *terms_of_parts = indexed_terms(self._snapshot.language()).of_each([self._words, *parts])
        ends = list(accumulate(costs, initial=0))
        best, stop = (-1, 0, 0, 0), 0
        for start in range(len(parts)):
            stop = max(stop, start)
            while stop < len(parts) and ends[stop + 1] - ends[start] <= room:
                stop += 1
            terms = frozenset[str]().union(*terms_of_parts[start:stop]) & wanted
            best = max(best, (len(terms), ends[stop] - ends[start], -start, stop))
        return (best[0], -best[2], best[3]) if best[3] else (0, 0, 0)

    def _try(self, file: _File, content: _Content | None) -> bool:
        """Replace the content of a file if the budget allows it."""
        if content is None:
            return False
        cost = self._cost(file, content) - self._cost(file, file.content)
        if cost > self._room:
            return False
        self._history.append((file, file.content))
        file.content = content
        self._room -= cost
        return True

    def _is_covered(self, stored: _Stored) -> bool:
        file = self._file_of(stored)
        if any(
            excerpt.stored.key == stored.key and excerpt.stored.record.id == stored.record.id
            for excerpt in file.content.excerpts
        ):
            return True
        span = self._span(file, stored)
        return span is not None and any(first <= span[0] and span[1] <= last for first, last in file.content.spans)

    # Files

    def _file_of(self, stored: _Stored, rank: int = 0) -> _File:
        record = stored.record
        member = member_of(record.source, record.chunk.metadata)
        key = (record.store, record.source or f"\0{record.id}", member)
        if key not in self._files:
            path, is_stale = _name_of(record), False
            lines: Sequence[str] = ()
            if record.source is not None:
                name = self._request.name_file
                place = file_path(record.source, self._snapshot.folder(record.store))
                path = shown_path(place) if name is None else name(record.source)
                path = path if name is None or record.store is None else f"{record.store}: {path}"
                path = path if member is None else f"{path}: {member}"
                if record.chunk.start_line is not None and member is None:
                    lines, is_stale = self._on_disk(record.source, record.store)
                else:
                    is_stale = self._snapshot.file_states([record]) != [None]
            self._files[key] = _File(path, lines, is_stale, rank)
        return self._files[key]

    def _on_disk(self, source: str, store: str | None) -> tuple[Sequence[str], bool]:
        """Return the lines of a file, or none if they cannot be used, and whether the file changed."""
        folder = self._snapshot.folder(store)
        place = file_path(source, folder)
        indexed, paths = self._snapshot.indexed_file(source, store)
        root = root_place(source, paths, folder)
        if not isinstance(place, Path) or root is None or indexed is None:
            return (), False
        try:
            with open_regular(place, root) as file:
                if os.fstat(file.fileno()).st_size != indexed.size:
                    return (), True
                data = file.read()
        except PermissionError:
            return (), False
        except OSError:  # it is gone, or a link is in its place
            return (), True
        if hashlib.sha256(data).hexdigest() != indexed.sha256:
            return (), True
        return decode(data).split("\n"), False

    def _span(self, file: _File, stored: _Stored) -> tuple[int, int] | None:
        """Return the lines of a chunk if its text is that of the lines, or of parts of them beside other chunks."""
        chunk, lines = stored.record.chunk, file.lines
        if chunk.start_line is None or chunk.end_line is None or chunk.end_line > len(lines):
            return None
        joined = "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
        before, inside, after = joined.partition(chunk.text.strip())
        if not inside:
            return None
        if before.strip():
            above = self._neighbour(stored, -1)
            if above is None or (above.record.chunk.end_line or 0) < chunk.start_line:
                return None
        if after.strip():
            below = self._neighbour(stored, 1)
            if below is None or below.record.chunk.start_line != chunk.end_line:
                return None
        return chunk.start_line, chunk.end_line

    # Contents and their costs

    def _with_span(self, file: _File, span: tuple[int, int]) -> _Content | None:
        """Return the content with more lines, or None if a part of one of the lines is there already."""
        if any(_overlaps(excerpt.stored, *span) for excerpt in file.content.excerpts):
            return None
        merged: list[tuple[int, int]] = []
        for first, last in sorted((*file.content.spans, span)):
            if merged and self._are_near(file, merged[-1][1], first):
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return _Content(tuple(merged), file.content.excerpts)

    def _are_near(self, file: _File, last: int, first: int) -> bool:
        return first <= last + 1 or (first - last <= _GAP and sum(self._line_costs(file, last + 1, first - 1)) <= _GAP)

    def _with_excerpt(self, file: _File, excerpt: _Excerpt) -> _Content:
        excerpts = sorted((*file.content.excerpts, excerpt), key=lambda placed: placed.stored.key or 0)
        return _Content(file.content.spans, tuple(excerpts))

    def _cost(self, file: _File, content: _Content) -> int:
        return sum(self._block_cost(file, span=span) for span in content.spans) + sum(
            self._block_cost(file, excerpts=tuple(excerpts)) for excerpts in self._runs(content.excerpts)
        )

    def _block_cost(self, file: _File, span: tuple[int, int] | None = None, excerpts: tuple[_Excerpt, ...] = ()) -> int:
        place = (id(file), span or excerpts)
        if place not in self._block_costs:
            renderer, counter = self._request.renderer, self._request.counter
            block = self._span_block(file, span) if span else self._excerpt_block(file, excerpts)
            if span:
                lines = sum(self._line_costs(file, *span))
            else:
                lines = sum(counter.count([renderer.line(line) for line in block.text.split("\n")]))
            self._block_costs[place] = counter.of(renderer.frame(block)) + lines
        return self._block_costs[place]

    def _frame_cost(self, file: _File, stored: _Stored, text: str, span: tuple[int, int] | None) -> int:
        block = self._span_block(file, span) if span else self._excerpt_block(file, (_Excerpt(stored, text),))
        return self._request.counter.of(self._request.renderer.frame(block))

    def _line_costs(self, file: _File, first: int, last: int) -> list[int]:
        missing = [number for number in range(first, last + 1) if number not in file.line_costs]
        written = [self._request.renderer.line(file.lines[number - 1]) for number in missing]
        file.line_costs.update(zip(missing, self._request.counter.count(written), strict=True))
        return [file.line_costs[number] for number in range(first, last + 1)]

    # Blocks

    def _ordered_blocks(self) -> list[ContextBlock]:
        files = [file for file in self._files.values() if file.content != _Content()]
        files.sort(key=lambda file: file.rank)
        return [block for file in files for block in self._blocks(file)]

    def _blocks(self, file: _File) -> list[ContextBlock]:
        blocks = [self._span_block(file, span) for span in file.content.spans]
        blocks += [self._excerpt_block(file, tuple(run)) for run in self._runs(file.content.excerpts)]
        return sorted(blocks, key=lambda block: block.start_line or 0)

    def _span_block(self, file: _File, span: tuple[int, int]) -> ContextBlock:
        first, last = span
        inside = [chunk for chunk in file.chunks.values() if _overlaps(chunk, first, last)]
        return self._block(file, inside, "\n".join(file.lines[first - 1 : last]), first, last, is_exact=True)

    def _excerpt_block(self, file: _File, excerpts: Sequence[_Excerpt]) -> ContextBlock:
        stored = [excerpt.stored for excerpt in excerpts]
        starts = [start for piece in stored if (start := piece.record.chunk.start_line) is not None]
        ends = [end for piece in stored if (end := piece.record.chunk.end_line) is not None]
        text = excerpts[0].text
        for excerpt in excerpts[1:]:
            text = _joined(text, excerpt.text)
        return self._block(file, stored, text, min(starts, default=None), max(ends, default=None), is_exact=False)

    def _block(
        self, file: _File, inside: Sequence[_Stored], text: str, first: int | None, last: int | None, *, is_exact: bool
    ) -> ContextBlock:
        inside = sorted(inside, key=lambda piece: piece.key or 0)
        top = inside[0].record
        chunks = [piece.record.chunk for piece in inside]
        pages = [page for chunk in chunks for page in (chunk.page, chunk.end_page) if page is not None]
        ids = tuple(piece.record.id for piece in inside)
        has_headings = self._request.budget >= _LEAST_WITH_HEADINGS
        return ContextBlock(
            path=file.path,
            text=text,
            source=source_of(top),
            store=top.store,
            start_line=first,
            end_line=last,
            page=min(pages, default=None),
            end_page=max(pages, default=None),
            headings=top.chunk.headings if has_headings else (),
            title=top.chunk.title if has_headings else None,
            ids=ids,
            is_exact=is_exact,
            is_stale=file.is_stale,
            score=max((file.scores[chunk_id] for chunk_id in ids if chunk_id in file.scores), default=0.0),
            relevance=max((file.relevance[chunk_id] for chunk_id in ids if chunk_id in file.relevance), default=None),
        )

    def _runs(self, excerpts: Sequence[_Excerpt]) -> Iterator[list[_Excerpt]]:
        """Yield excerpts in groups: whole chunks that follow each other make one block."""
        run: list[_Excerpt] = []
        for excerpt in excerpts:
            if run and not (run[-1].is_whole and excerpt.is_whole and self._follows(run[-1].stored, excerpt.stored)):
                yield run
                run = []
            run.append(excerpt)
        if run:
            yield run

    def _follows(self, above: _Stored, below: _Stored) -> bool:
        neighbour = self._neighbour(above, 1)
        return neighbour is not None and neighbour.key == below.key

    # What was left out

    def _left_out(self, stored: _Stored) -> LeftOut:
        chunk = stored.record.chunk
        file = self._file_of(stored)
        span = self._span(file, stored)
        tokens = self._request.counter.of(chunk.text) if span is None else sum(self._line_costs(file, *span))
        place = chunk.start_line, chunk.end_line, chunk.page, chunk.end_page
        sheet = sheet_of(file.path, [one_line(heading) for heading in chunk.headings])
        return LeftOut(location_of(one_line(file.path), *place, sheet), tokens)

    def _with_list(self, blocks: Sequence[ContextBlock], left_out: Sequence[LeftOut]) -> str:
        """Return the text with as many entries of what was left out as fit."""
        request = self._request
        low, high = 0, len(left_out)
        while low < high:
            middle = (low + high + 1) // 2
            if request.counter.of(request.renderer.render(request.query, blocks, left_out[:middle])) <= request.budget:
                low = middle
            else:
                high = middle - 1
        return request.renderer.render(request.query, blocks, left_out[:low])


def _name_of(record: ChunkRecord) -> str:
    """Return the name of a text that comes from no file."""
    titles = (record.chunk.title, record.chunk.metadata.get("title"))
    return source_of(record) or next((title for title in titles if isinstance(title, str) and title), record.id)


def _overlaps(stored: _Stored, first: int, last: int) -> bool:
    """Return whether a chunk has one of these lines; false for a chunk without lines."""
    start, end = stored.record.chunk.start_line, stored.record.chunk.end_line
    return bool(start and end and start <= last and first <= end)


def _same_document(first: ChunkRecord, second: ChunkRecord) -> bool:
    def identity(record: ChunkRecord) -> tuple[object, ...]:
        chunk, name = record.chunk, member_of(record.source, record.chunk.metadata) or record.source
        return record.store, record.source, chunk.title, chunk.metadata, sheet_of(name, chunk.headings)

    return identity(first) == identity(second)


def _joined(above: str, below: str) -> str:
    """Return the texts of two chunks in a row, without what the second repeats from the end of the first."""
    longest = min(len(above), len(below))
    shared = next((size for size in range(longest, 0, -1) if above.endswith(below[:size])), 0)
    return above + (below[shared:] if shared else f"\n{below}")
