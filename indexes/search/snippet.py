"""How results are shown: the lines of a chunk with most words of the query, and hits as JSON values."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from ragembed.documents.normalisation import aligned, divided_words, normalise
from ragembed.documents.readers.registry import member_of, sheet_of
from ragembed.indexes.lexical.analyzer import ENGLISH, letters_of, of_language, words_or_runs
from ragembed.indexes.lexical.fulltext import indexed_terms
from ragembed.indexes.search.snapshot import FileState
from ragembed.indexes.types import ChunkRecord, Hit
from ragembed.languages import unmarked_words_among

Terms = frozenset[str]

_UNSEEN = re.compile(
    r"\]\([^)\s]*\)|<[^<>\n]*>|\b[a-z][a-z+.-]*://[^\s>)\]]+|\{[:#. ][^{}\n]*\}|^\([\w-]+\)="
    r"|^[ \t]*(?:\.\. _[^:\n]*:|\[[^\]\n]*\]:).*",
    re.MULTILINE | re.IGNORECASE,
)
"""Targets of links, addresses, anchors and tags: a word of the query in them does not say what a line is about."""
_LINK = re.compile(r"[\s>|*+-]*(?:\d+[.)])?\s*!?\[[^\]\n]*\](?:\([^)\n]*\)|\[[^\]\n]*\])[\s|]*")
"""A line that is only a link, such as an entry of a table of contents."""
_FIELDS = re.compile(r"(?:[\w-]+: .*\n)+(?=\n)")
"""Fields of a note, before its text."""
_ROW = re.compile(r"(?:[^:\n]+: [^\n]*\n)*[^:\n]+: [^\n]*")
"""A row of a table, a line for each column."""
_HEADING, _FENCE = re.compile(r"\s*#{1,6} .*"), re.compile(r"\s*(?:```|~~~).*")
"""A heading, which results show anyway, and the first or last line of a block of code."""
_LEADING = re.compile(r".*[:?：？]\s*")
"""A line that is about what follows, such as a question."""
_SENTENCE_END = re.compile(r"[.!?]\s+|[。！？]\s*")
_LABEL = re.compile(r"\w[^\n]{0,60}\w")
"""A line that is a heading without marks, if it stands alone."""
_CODE = re.compile(r"(`+)[^`\n]+\1")
"""Inline code. A cut in it would make code of the text that follows."""

MAX_LINES, MAX_LINES_OF_ROW, MAX_CHARACTERS = 4, 8, 320
_WORDS_KEPT = 1 << 15


class QueryWords:
    """Locates the words of a query in texts, by the same terms as the lexical search of a store in ``language``."""

    def __init__(self, query: str, texts: Iterable[str], language: str = ENGLISH) -> None:
        query_words = _words_of_query(normalise(query), language)
        self._words = {text: list(_words(text)) for text in texts}
        words = {*query_words, *(word for in_text in self._words.values() for _, _, word in in_text)}
        self._terms = known_terms(language).of_each(words)
        self._wanted: Terms = frozenset().union(*(self._terms[word] for word in query_words))

    def places(self, text: str) -> list[tuple[int, int]]:
        """Return ``(start, end)`` of each word of the query in ``text``, in order and without overlaps.

        A word may be written with ligatures, soft hyphens or a hyphen at the end of a line.
        """
        places: list[tuple[int, int]] = []
        for start, end in sorted(
            (start, end) for start, end, word in self._words_of(text) if self._query_terms_of(word)
        ):
            if places and start < places[-1][1]:
                first, last = places.pop()
                places.append((first, max(last, end)))
            else:
                places.append((start, end))
        return places

    def snippet(self, text: str, headings: Collection[str | None] = ()) -> tuple[str, int]:
        """Return ``MAX_LINES`` lines of ``text``, or fewer: those with most different words of the query.

        Headings and lines without words are not counted, and not returned at the ends; nor are fields before the text.
        ``headings`` are those of the text, also the ones without marks. A row of a table gives ``MAX_LINES_OF_ROW``.
        Words in the addresses of links are not counted. Words of headings count less, wherever they are, and so do
        those of lines that are only links, and of a last line that is about what follows. Of equally good lines, the
        first that begin with a word of the query are returned. Lines longer than ``MAX_CHARACTERS`` are cut at word
        boundaries around the words of the query. The number of the best line, from 0, is returned too.
        """
        lines = text.split("\n")
        fields = 0 if (match := _FIELDS.match(text)) is None else match[0].count("\n")
        said, terms = self._terms_of_lines(text, lines, fields)
        topic = Terms().union(*(self._query_terms_of(word) for line in headings if line for _, _, word in _words(line)))
        most = MAX_LINES_OF_ROW if _ROW.fullmatch(text) else MAX_LINES
        filled = [
            number
            for number, line in enumerate(lines)
            if number >= fields and line.strip() not in headings and _says(line, lines[number + 1 : number + 2])
        ] or list(range(len(lines)))

        def begins(at: int) -> bool:
            return at == 0 or filled[at - 1] < filled[at] - 1

        def leads(at: int) -> bool:
            if not 0 <= at < len(filled) - 1:
                return False
            line, is_alone = lines[filled[at]], begins(at) and begins(at + 1)
            return bool(_LEADING.fullmatch(line) or (is_alone and _LABEL.fullmatch(line)))

        def value(start: int) -> tuple[int, bool, int]:
            window = filled[start : start + most]
            telling = window[:-1] if leads(start + len(window) - 1) else window
            of_lines = Terms().union(*(terms[number] for number in window))
            seen = Terms().union(*(said[number] for number in telling))
            return len(seen) + len(seen - topic) + len(of_lines), bool(terms[window[0]]), -start

        start = max((at for at in range(len(filled)) if at <= len(filled) - most or begins(at)), key=value)
        stop = min(start + most, len(filled))
        while sum(len(lines[number]) for number in filled[start:stop]) > MAX_CHARACTERS:
            last = stop - 1 - leads(stop - 2)  # a line about what follows stays with it
            if last <= start:
                break
            if len(terms[filled[start]]) < len(Terms().union(*(terms[number] for number in filled[last:stop]))):
                start += 1
            else:
                stop = last
        while stop - start > 1 and leads(stop - 1) and not terms[filled[stop - 1]]:
            stop -= 1
        window = filled[start:stop]
        block = "\n".join(lines[window[0] : window[-1] + 1]).strip("\n")
        best = max(window, key=lambda number: (len(terms[number]), -number))
        return (block if len(block) <= MAX_CHARACTERS else self._cut(block)), best

    def _terms_of_lines(self, text: str, lines: Sequence[str], fields: int) -> tuple[list[Terms], list[Terms]]:
        """Return for each line the terms of the query that it says, and also those of links and headings above it.

        The first ``fields`` lines say nothing.
        """
        line_starts = [0, *accumulate(len(line) + 1 for line in lines[:-1])]
        unseen = [edge for match in _UNSEEN.finditer(text) for edge in match.span()]
        terms = [Terms()] * len(lines)
        for begin, end, word in self._words_of(text):  # the first lines that contain a word's end contain its start too
            if bisect_right(unseen, begin) % 2 == 0:
                terms[bisect_right(line_starts, end - 1) - 1] |= self._query_terms_of(word)
        terms[:fields] = [Terms()] * fields
        said = [Terms() if _LINK.fullmatch(line) else own for line, own in zip(lines, terms, strict=True)]
        above = Terms()
        for number, line in enumerate(lines):
            terms[number] = above = terms[number] | above
            if _says(line, lines[number + 1 : number + 2]):
                above = Terms()
        return said, terms

    def _words_of(self, text: str) -> Iterable[tuple[int, int, str]]:
        return self._words[text] if text in self._words else _words(text)

    def _query_terms_of(self, word: str) -> Terms:
        return self._terms.get(word, Terms()) & self._wanted

    def _cut(self, line: str) -> str:
        """Return the part of a long line with most different words of the query; a sentence is its best start."""
        window = MAX_CHARACTERS
        found = [(start, terms) for start, _, word in self._words_of(line) if (terms := self._query_terms_of(word))]
        sentences = {0, *(match.end() for match in _SENTENCE_END.finditer(line))}
        places = [start for start, _ in found]
        soon_before = {max(place - window // 8, 0): place for place in places}
        words = {start and (line.find(" ", start, place) + 1 or start) for start, place in soon_before.items()}

        def value(start: int) -> tuple[int, bool, int]:
            terms = Terms().union(*(terms for place, terms in found if start <= place < start + window))
            return len(terms), start in sentences, -start

        start = max(sentences | words, key=value)
        best = next((place for place in places if place >= start), start)
        end = min(start + window, len(line))
        code = [match.span() for match in _CODE.finditer(line)]
        for opening, closing in code:
            if opening < start < closing and (closing <= best or best < opening + window // 2):
                start = closing if closing <= best else opening
        end = min(start + window, end)
        if end < len(line):
            end = line.rfind(" ", start, end) if " " in line[start:end] else end
        least = max([start + window // 2, *(place for place in places if place < end)])
        end = next((opening for opening, closing in code if least < opening < end < closing), end)
        return line[start:end].strip()


def cuts(text: str, snippet: str) -> tuple[str, str]:
    """Return what people see before and after a snippet of ``text``: an ellipsis where it is cut within a line."""
    start = text.find(snippet)
    before, after = text[:start].rpartition("\n")[2], text[start + len(snippet) :].partition("\n")[0]
    return "… " if before.strip() else "", " …" if after.strip() else ""


def _says(line: str, later: Sequence[str]) -> bool:
    """Return whether a line tells something that a result does not show anyway; a comment has code in the next line."""
    if _FENCE.fullmatch(line) or not any(map(str.isalnum, _UNSEEN.sub("", line))):
        return False
    return _HEADING.fullmatch(line) is None or bool(later and later[0].strip())


class _KnownTerms:
    """The terms of words in a language. They are kept, because a server meets the same words in every query."""

    def __init__(self, language: str) -> None:
        self._analyzer = of_language(language)
        self._indexed = indexed_terms(language)
        self._known: dict[str, Terms] = {}

    def of_each(self, words: Iterable[str]) -> dict[str, Terms]:
        """Return the terms of each word. Threads may share the object."""
        words = list(words)
        terms_by_word = {word: terms for word in words if (terms := self._known.get(word)) is not None}
        new = [word for word in words if word not in terms_by_word]
        made = self._indexed.of_each([self._analyzer.of_phrase(word).terms for word in new]) if new else []
        if len(self._known) > _WORDS_KEPT:
            self._known = {}
        self._known.update(zip(new, made, strict=True))
        return {**terms_by_word, **dict(zip(new, made, strict=True))}


@cache
def known_terms(language: str) -> _KnownTerms:
    """Return the terms of words in ``language``."""
    return _KnownTerms(language)


def _words_of_query(query: str, language: str) -> set[str]:
    """Return the words of a query without stop words, unless it has no others.

    In scripts without spaces, its words are the pairs of letters, or the letter if it is single.
    """
    words, pairs = set(), set()
    for match in words_or_runs(query):
        if match["run"] is not None:
            letters = letters_of(match[0])
            pairs |= {"".join(pair) for pair in pairwise(letters)} or set(letters)
        else:
            words.add(match[0])
    return (words - unmarked_words_among(words, language)) | pairs or words


def _words(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and normalised text of each word of ``text``.

    In scripts without spaces, each letter and each pair of letters is a word.
    """
    normal, origins = aligned(text)
    for start, end, word in _normal_words(normal):
        yield origins[start][0], origins[end - 1][1], word
    for start, end, word in divided_words(text):
        yield start, end, word


def _normal_words(text: str) -> Iterator[tuple[int, int, str]]:
    for match in words_or_runs(text):
        if match["run"] is None:
            yield match.start(), match.end(), match[0]
            continue
        letters = letters_of(match[0])
        ends = list(accumulate(map(len, letters), initial=match.start()))
        for i, letter in enumerate(letters):
            yield ends[i], ends[i + 1], letter
            if i + 1 < len(letters):
                yield ends[i], ends[i + 2], letter + letters[i + 1]


def place_json(record: Hit | ChunkRecord, name_file: Callable[[str, str | None], str] | None = None) -> dict[str, Any]:
    """Return the id and the position of a chunk; ``name_file`` returns the path to show, by default the source."""
    member = member_of(record.source, record.chunk.metadata)
    sheet = sheet_of(member or record.source, record.chunk.headings)
    return {
        "id": record.id,
        "path": record.source if record.source is None or name_file is None else name_file(record.source, record.store),
        **({} if record.store is None else {"store": record.store}),
        **({} if member is None else {"member": member}),
        **({} if sheet is None else {"sheet": sheet}),
        "start_line": record.chunk.start_line,
        "end_line": record.chunk.end_line,
        "page": record.chunk.page,
    }


def hit_json(
    rank: int, hit: Hit, words: QueryWords, name_file: Callable[[str, str | None], str] | None, state: FileState | None
) -> dict[str, Any]:
    """Return a hit with its rank, from 1, its scores, its text, a snippet of it, and whether its file is stale."""
    chunk = hit.chunk
    snippet, best_line = words.snippet(chunk.text, [chunk.title, *chunk.headings])
    at = chunk.text.find(snippet)
    return {
        "rank": rank,
        **place_json(hit, name_file),
        "page": chunk.page_of(best_line),
        "title": chunk.title,
        "headings": list(chunk.headings),
        "score": hit.score,
        "dense": hit.dense,
        "lexical": hit.lexical,
        "rerank": hit.rerank,
        "relevance": hit.relevance,
        "snippet": snippet,
        "text": chunk.text,
        "metadata": dict(chunk.metadata),
        "stale": state is not None,
        "duplicates": [place_json(duplicate, name_file) for duplicate in hit.duplicates],
        "snippet_at": [at, at + len(snippet)],
    }
