"""Answers of the tools: structured content and a text rendering, within a number of tokens, in pages.

Text of documents may contain instructions of strangers. The rendering separates it from the rest with fences that are
longer than any in the text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from ragembed.documents.readers.registry import location_of, member_of
from ragembed.errors import ConfigError
from ragembed.indexes.search.context import NOTE, fence_of, one_line
from ragembed.indexes.search.ranking import RankingOptions
from ragembed.indexes.search.relevance import WEAK_MATCHES, is_weak
from ragembed.indexes.search.searchable import Searchable
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, Hit
from ragembed.models.token_counting import estimated_tokens
from ragembed.serving.stores import (
    ServedStore,
    ServedStores,
    ServedTogether,
    answered,
    chunk_with_id,
    in_document_order,
)
from ragembed.serving.tool_schemas import MOST_TOKENS, TOOLS
from ragembed.stopping import check

_CURSOR = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,18})\.([0-9a-f]{12})")
_MOST_HEADINGS, _LONGEST_HEADING = 4, 80
_MOST_LISTED = 20
_LONGEST_NOTE = 300
_ROUNDING = 4
_NO_RESULTS = "No results. Use other words, another mode or no filter; status shows what is indexed."


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer of a tool: JSON values, and the same as text."""

    structured: dict[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class _Position:
    """Where a page begins: the number of a result, and a character of its text."""

    result: int = 0
    character: int = 0


class StoreTools:
    """The tools for several stores. ``auto_index`` is the time in seconds to bring a store up to date before a call."""

    def __init__(self, stores: ServedStores, auto_index: float | None = None) -> None:
        self._stores = stores
        self._auto_index = auto_index
        self._tools: Mapping[str, Callable[[ServedStore, dict[str, Any]], ToolAnswer]] = {
            "search": self._search,
            "context": self._context,
            "get": self._get,
            "similar": self._similar,
            "why_not": self._why_not,
        }

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Return the answer of a tool; raise :class:`ragembed.errors.RagembedError` with the remedy if it fails."""
        if name not in TOOLS:
            raise ConfigError(f"unknown tool {name[:60]!r}: expected one of {', '.join(TOOLS)}")
        given = TOOLS[name].checked(arguments, list(self._stores))
        if name == "status":
            return _status(self._stores.all_or(given))
        served = self._stores.taken_from(given)
        late = None if self._auto_index is None else served.update(self._auto_index)
        answer, about_filter, collected = answered(served, given, self._tools[name])
        cut = one_line("; ".join(about_filter))[:_LONGEST_NOTE]
        notes = [note for note in (late, cut, *collected, answer.structured.get("note"), served.state()) if note]
        if not notes:
            return answer
        note = "; ".join(notes)
        return ToolAnswer({**answer.structured, "note": note}, f"{answer.text}\nNote: {note}\n")

    def read_document(self, name: str, path: str) -> str:
        """Return the text of a document, cut after 10,000 tokens; raise as :meth:`call` does."""
        if name not in self._stores:
            raise ConfigError(f"unknown store {name[:60]!r}: expected one of {', '.join(self._stores)}")
        served = self._stores[name]
        source = served.source(unquote(path))
        passages = [_passage(record) for record in in_document_order(served.open().chunks(source))]
        page, rest = _page(passages, _Position(), MOST_TOKENS)
        text = "\n".join(passage["text"] for passage in page)
        return text if rest is None else f"{text}\n[cut: read on with the tool get]"

    def _search(self, served: ServedStore | ServedTogether, given: dict[str, Any]) -> ToolAnswer:
        def answer(store: Searchable) -> Sequence[Hit]:
            ranking = RankingOptions(dedupe=True)
            settings = {"where": given.get("where"), "min_relevance": given.get("min_relevance")}
            return store.search(given["query"], given["k"], given["mode"], ranking=ranking, **settings)

        return _passages(served, given, answer)

    def _similar(self, served: ServedStore, given: dict[str, Any]) -> ToolAnswer:
        def answer(_store: Store) -> Sequence[Hit]:
            return served.similar(given["id"], given["k"], other_files=given["other_files"])

        return _passages(served, given, answer)

    def _get(self, served: ServedStore, given: dict[str, Any]) -> ToolAnswer:
        if ("path" in given) == ("id" in given):
            raise ConfigError("get needs either path or id: expected one of them, from an answer of search or context")
        first, last = given.get("start_line"), given.get("end_line")
        if "id" in given:
            return _passages(served, given, lambda store: [chunk_with_id(store, given["id"])])
        if first is not None and last is not None and last < first:
            raise ConfigError(f"end_line is {last}, before start_line {first}: expected a line at or after it")
        source = served.source(given["path"])

        def answer(store: Store) -> Sequence[ChunkRecord]:
            records = in_document_order(store.chunks(source))
            found = [record for record in records if _has_lines(record, first, last)]
            if not found and records:
                end = max((record.chunk.end_line or 0 for record in records), default=0)
                has = f"its last indexed line is {end}" if end else "its format has no lines"
                raise ConfigError(f"{source} has no text in these lines: {has}; leave start_line and end_line out")
            return found

        return _passages(served, given, answer)

    def _context(self, served: ServedStore | ServedTogether, given: dict[str, Any]) -> ToolAnswer:
        wanted = budget = given["max_tokens"]
        while True:
            check()
            context = served.open().context(
                given["query"],
                budget,
                given["mode"],
                where=given.get("where"),
                name_file=lambda name: name,
            )
            blocks = [
                _without_missing(
                    {
                        "store": block.store,
                        "path": one_line(block.path.removeprefix(f"{block.store}: ")),
                        "start_line": block.start_line,
                        "end_line": block.end_line,
                        "page": block.page,
                        "headings": _headings(block.headings),
                        "stale": block.is_stale or None,
                        "text": block.text,
                    }
                )
                for block in context.blocks
            ]
            structured: dict[str, Any] = {"blocks": blocks, **({"note": WEAK_MATCHES} if context.is_weak else {})}
            size = _tokens(structured)
            if size <= wanted or not blocks:
                break
            budget = budget * wanted * 19 // (size * 20)  # JSON can need more tokens than the text
        for each in context.left_out[:_MOST_LISTED]:
            longer = {**structured, "left_out": [*structured.get("left_out", []), str(each)]}
            if _tokens(longer) > wanted:
                break
            structured = longer
        if context.left_out and not blocks:
            return ToolAnswer(structured, f"Nothing fits into {wanted} tokens: call again with a larger max_tokens.\n")
        return ToolAnswer(structured, context.text or f"{_NO_RESULTS}\n")

    def _why_not(self, served: ServedStore, given: dict[str, Any]) -> ToolAnswer:
        name = served.name_of(given["path"])
        found = served.open().why_not(given["query"], name, given["k"], given["mode"])
        ranks = [
            _without_missing(
                {
                    "mode": rank.mode,
                    "rank": rank.rank,
                    "of": rank.of,
                    "score": _rounded(rank.score),
                    "needed": _rounded(rank.needed),
                }
            )
            for rank in found.ranks
        ]
        weaker = list(dict.fromkeys([*(each.phrase for each in found.phrases), *(each.word for each in found.words)]))
        structured = _without_missing(
            {
                "path": one_line(found.source),
                "ranks": ranks,
                "weaker_words": [one_line(word)[:_LONGEST_HEADING] for word in weaker[:_MOST_LISTED]],
                "best_id": found.chunk.id,
                "note": found.note,
            }
        )
        lines = [f"{structured['path']}: the best chunk is {found.chunk.id}."]
        for rank in ranks:
            place = f"rank {rank['rank']} of {rank['of']}" if "rank" in rank else f"not among {rank['of']} candidates"
            needed = f"; result {given['k']} has {rank['needed']}" if "needed" in rank else ""
            lines.append(f"{rank['mode']}: {place}, score {rank.get('score', 'none')}{needed}")
        words = ", ".join(structured["weaker_words"]) or "none"
        lines.append(f"Words of the query that score lower in this file than in the results: {words}")
        return ToolAnswer(structured, "\n".join(lines) + "\n")


def _status(stores: Iterable[ServedStore]) -> ToolAnswer:
    entries = [_without_missing(served.summary()) for served in stores]
    lines = [
        "\n".join(f"{name}: {', '.join(value) if isinstance(value, list) else value}" for name, value in entry.items())
        for entry in entries
    ]
    return ToolAnswer({"stores": entries}, "\n\n".join(lines) + "\n")


# Files and chunks


def _has_lines(record: ChunkRecord, first: int | None, last: int | None) -> bool:
    start, end = record.chunk.start_line, record.chunk.end_line
    if first is None and last is None:
        return True
    return start is not None and end is not None and (last is None or start <= last) and (first is None or first <= end)


# Pages


def _passages(
    served: ServedStore | ServedTogether, given: Mapping[str, Any], answer: Callable[[Any], Sequence[Hit | ChunkRecord]]
) -> ToolAnswer:
    """Return one page of the chunks that ``answer`` returns."""
    store = served.open()

    def read() -> tuple[int, Sequence[Hit | ChunkRecord], list[bool]]:
        found = answer(store)
        return store.generation, found, served.stale(found)

    generation, found, stale = store.read(read)
    position = _position(given, generation)
    passages = [_passage(record) for record in found]
    for passage, is_stale in zip(passages, stale, strict=True):
        if is_stale:
            passage["stale"] = True
    page, rest = _page(passages, position, given["max_tokens"])
    structured: dict[str, Any] = {"results": page}
    if is_weak(record.relevance for record in found if isinstance(record, Hit)):
        structured["note"] = WEAK_MATCHES
    text = _rendered(page)
    if rest is not None:
        structured["cursor"] = _cursor(given, generation, rest)
        text += f"\nMore results: call again with the same arguments and cursor={structured['cursor']}\n"
    return ToolAnswer(structured, text)


def _page(
    passages: Sequence[dict[str, Any]], position: _Position, budget: int
) -> tuple[list[dict[str, Any]], _Position | None]:
    """Return the passages that fit into a number of tokens, at least a part of one, and where the next page begins."""
    room = budget - _FRAME
    page: list[dict[str, Any]] = []
    character = position.character
    for i in range(position.result, len(passages)):
        check()
        passage = {**passages[i], "text": passages[i]["text"][character:]}
        if (size := _size(passage)) <= room:
            page.append(passage)
            room -= size
            character = 0
            continue
        if page:
            return page, _Position(i, character)
        text = passage["text"]
        low, high = 1, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high)
                if _size({**passage, "text": text[:middle], "truncated": True}) <= room
                else (low, middle - 1)
            )
        return [{**passage, "text": text[:low], "truncated": True}], _Position(i, character + low)
    return page, None


def _size(passage: Mapping[str, Any]) -> int:
    """Return the tokens of a passage in the larger of its two forms."""
    return max(_tokens(passage), estimated_tokens(_rendered_passage(1, passage)))


def _tokens(value: object) -> int:
    return estimated_tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _digest(given: Mapping[str, Any]) -> str:
    same = {name: value for name, value in given.items() if name not in ("cursor", "max_tokens")}
    return hashlib.blake2b(json.dumps(same, sort_keys=True).encode(), digest_size=6).hexdigest()


def _cursor(given: Mapping[str, Any], generation: int, position: _Position) -> str:
    return f"{position.result}.{position.character}.{generation}.{_digest(given)}"


def _position(given: Mapping[str, Any], generation: int) -> _Position:
    """Return where the page begins that a cursor names; raise :class:`ConfigError` for one of another request."""
    if "cursor" not in given:
        return _Position()
    match = _CURSOR.fullmatch(given["cursor"])
    if match is None or match[4] != _digest(given):
        raise ConfigError("the cursor belongs to another request: pass the same arguments as before, or no cursor")
    if int(match[3]) != generation:
        raise ConfigError("the store changed since the cursor was made: call again without cursor")
    return _Position(int(match[1]), int(match[2]))


# Results as JSON values and as text


def _passage(record: Hit | ChunkRecord) -> dict[str, Any]:
    chunk = record.chunk
    member = member_of(record.source, chunk.metadata)
    hit = record if isinstance(record, Hit) else None
    return _without_missing(
        {
            "id": record.id,
            "store": record.store,
            "path": None if record.source is None else one_line(record.source),
            "member": None if member is None else one_line(member),
            "start_line": chunk.start_line,
            "end_line": chunk.end_line,
            "page": chunk.page,
            "end_page": None if chunk.end_page == chunk.page else chunk.end_page,
            "headings": _headings(chunk.headings or ((chunk.title,) if chunk.title else ())),
            "score": _rounded(hit.score) if hit else None,
            "relevance": _rounded(hit.relevance) if hit else None,
            "near_duplicates": len(hit.duplicates) or None if hit else None,
            "text": chunk.text,
        }
    )


def _headings(headings: Sequence[str]) -> list[str]:
    return [one_line(heading)[:_LONGEST_HEADING] for heading in headings[-_MOST_HEADINGS:]]


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, _ROUNDING)


def _without_missing(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in values.items() if value is not None and (value != [] or name == "weaker_words")
    }


def _rendered(passages: Sequence[Mapping[str, Any]]) -> str:
    if not passages:
        return f"{_NO_RESULTS}\n"
    return "\n\n".join([NOTE, *(_rendered_passage(number, each) for number, each in enumerate(passages, 1))]) + "\n"


def _rendered_passage(number: int, passage: Mapping[str, Any]) -> str:
    path = passage.get("path", "no file")
    if "member" in passage:
        path = f"{path}: {passage['member']}"
    path = f"{passage['store']}: {path}" if "store" in passage else path
    place = location_of(path, *map(passage.get, ("start_line", "end_line", "page", "end_page")))
    notes = [f"id {passage['id']}", " > ".join(passage.get("headings", []))]
    notes += [
        text for name, text in (("stale", "changed since it was indexed"), ("truncated", "cut")) if name in passage
    ]
    fence = fence_of(passage["text"])
    return f"{number}. {place} ({'; '.join(filter(None, notes))})\n{fence}\n{passage['text']}\n{fence}"


_FRAME = 100
"""Tokens of an answer beside its passages: the note, and the cursor with its line."""
