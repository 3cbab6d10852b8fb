"""Answers of the tools: a short text within a number of tokens, and the same as JSON values for clients that ask.

Text of documents may contain instructions of strangers. The text of an answer separates it from the rest: lines of a
hit are indented, and whole passages have fences that are longer than any in them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from textwrap import indent
from typing import Any
from urllib.parse import unquote

from ragembed.documents.readers.registry import SOURCE_SUFFIXES, location_of, member_of, sheet_of
from ragembed.errors import ConfigError, StoreError
from ragembed.indexes.search.context import NOTE, fence_of, one_line
from ragembed.indexes.search.ranking import RankingOptions
from ragembed.indexes.search.relevance import WEAK_MATCHES, is_weak, relevance_word
from ragembed.indexes.search.searchable import Searchable
from ragembed.indexes.search.snapshot import FileState
from ragembed.indexes.search.snippet import QueryWords, cuts
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, Hit
from ragembed.models.token_counting import estimated_tokens
from ragembed.progress import check
from ragembed.serving.stores import (
    ServedStore,
    ServedStores,
    answered,
    chunk_with_id,
    conditions,
    in_document_order,
    joined,
)
from ragembed.serving.tool_schemas import EVERY, MOST_TOKENS, PROMPTS, TOOLS

_CURSOR = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,18})\.([0-9a-f]{12})")
_MOST_HEADINGS, _LONGEST_HEADING = 4, 80
_MOST_LISTED = 20
_LONGEST_NOTE = 300
_ROUNDING = 4
_INDENT = "  "
_RESOURCES = 200
"""Number of files in a page of the list of resources."""
_CODE = "ext IN ({})".format(", ".join(f"'{suffix[1:]}'" for suffix in SOURCE_SUFFIXES))
_NO_RESULTS = "No results. Use other words, another mode or no filter; status shows what is indexed."


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer of a tool: a text, and the same as JSON values if the client asked for them."""

    text: str
    structured: dict[str, Any] | None = None


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
        self._tools: Mapping[str, Callable[[Any, Any, dict[str, Any]], tuple[str, dict[str, Any]]]] = {
            "search": _search,
            "context": _context,
            "get": _get,
            "similar": _similar,
            "why_not": _why_not,
        }

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Return the answer of a tool; raise :class:`ragembed.errors.RagembedError` with the remedy if it fails."""
        if name not in TOOLS:
            raise ConfigError(f"unknown tool {name[:60]!r}: expected one of {', '.join(TOOLS)}")
        checked = TOOLS[name].checked(arguments, list(self._stores))
        notes: list[str | None] = []
        if name == "status":
            text, structured = _status(self._stores.all_or(checked))
        else:
            served = self._stores.taken_from(checked)
            late = None if self._auto_index is None else served.update(self._auto_index)
            (text, structured), about_filter, collected = answered(served, checked, self._tools[name])
            cut = one_line("; ".join(about_filter))[:_LONGEST_NOTE]
            notes = [late, cut, *collected, structured.pop("note", None), served.state()]
        if note := "; ".join(filter(None, notes)):
            text, structured = f"{text}Note: {note}\n", {**structured, "note": note}
        return ToolAnswer(text, structured if checked["structured"] else None)

    def prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        """Return the text of a prompt, with what its tool answers; raise as :meth:`call` does."""
        if name not in PROMPTS:
            raise ConfigError(f"unknown prompt {name[:60]!r}: expected one of {', '.join(PROMPTS)}")
        prompt = PROMPTS[name]
        about = arguments.get(prompt.argument, "")
        more = {"store": EVERY} if len(self._stores) > 1 else {}
        more |= {"where": _CODE} if name == "find-code" else {}
        answer = self.call(prompt.tool, {"query": about, **prompt.arguments, **more})
        return f"{prompt.task}\n\n{prompt.argument.capitalize()}: {about}\n\n{answer.text}"

    def resources(self, cursor: str | None) -> tuple[list[tuple[str, str]], str | None]:
        """Return a page of the indexed files, as pairs of store and path, and the cursor of the next page."""
        if cursor is not None and not re.fullmatch(r"[0-9]{1,9}", cursor):
            raise ConfigError(f"the cursor is {cursor[:60]!r}: expected that of the previous list")
        first = int(cursor or 0)
        names: list[tuple[str, str]] = []
        for store, served in self._stores.items():
            with contextlib.suppress(StoreError):  # status says which store cannot be read
                names += [(store, path) for path in sorted(served.open().sources())]
        last = first + _RESOURCES
        return names[first:last], str(last) if last < len(names) else None

    def read_document(self, name: str, path: str) -> str:
        """Return the text of a document, cut after 10,000 tokens; raise as :meth:`call` does."""
        if name not in self._stores:
            raise ConfigError(f"unknown store {name[:60]!r}: expected one of {', '.join(self._stores)}")
        served = self._stores[name]
        passages = [_passage(record) for record in in_document_order(served.chunks(unquote(path))[1])]
        page, following = _page(passages, _Position(), MOST_TOKENS)
        return _joined(page) if following is None else f"{_joined(page)}\n[cut: read on with the tool get]"


# The tools: each returns its text and its JSON values


def _search(_served: object, store: Searchable, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    settings = {"ranking": RankingOptions(dedupe=True), **conditions(arguments)}
    hits = store.search(arguments["query"], arguments["k"], arguments["mode"], **settings)
    return _hits(store, arguments, arguments["query"], hits)


def _similar(served: ServedStore, store: Store, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if ("path" in arguments) == ("id" in arguments):
        raise ConfigError("similar needs either id, or path and line: expected one of them, from an answer")
    if "id" in arguments:
        record = chunk_with_id(store, arguments["id"])
    else:
        (source, chunks), line = served.chunks(arguments["path"]), arguments.get("line")
        record = _with_lines(chunks, source, line, line)[0]
    hits = served.similar(record.id, arguments["k"], other_files=arguments["other_files"])
    return _hits(store, arguments, record.chunk.text, hits)


def _get(served: ServedStore, store: Store, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if ("path" in arguments) == ("id" in arguments):
        raise ConfigError("get needs either path or id: expected one of them, from an answer of search or context")
    first, last = arguments.get("start_line"), arguments.get("end_line")
    if first is not None and last is not None and last < first:
        raise ConfigError(f"end_line is {last}, before start_line {first}: expected a line at or after it")
    if "id" in arguments:
        records = [chunk_with_id(store, arguments["id"])]
    else:
        source, chunks = served.chunks(arguments["path"])
        records = _with_lines(chunks, source, first, last)
    passages = [
        _between(_passage(record, state), first, last)
        for record, state in zip(records, store.file_states(records), strict=True)
    ]
    page, following = _page(
        passages, _position(arguments, store.generation), arguments["max_tokens"], structured=arguments["structured"]
    )
    structured: dict[str, Any] = {"results": page}
    parts = groupby(page, lambda passage: (passage.get("member"), passage.get("sheet")))
    text = f"{NOTE}\n\n" + "".join(f"{_whole(list(part))}\n" for _, part in parts)
    if following is not None:
        structured["cursor"] = f"{following.result}.{following.character}.{store.generation}.{_digest(arguments)}"
        text += f"More is left: call again with the same arguments and cursor={structured['cursor']}\n"
    return text, structured


def _context(_served: ServedStore, store: Store, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    most = arguments["max_tokens"]
    where = arguments.get("where")
    context = store.context(
        arguments["query"], most - _NOTED, arguments["mode"], where=where, name_file=lambda name: name
    )
    about = context.to_dict()
    for block in about["blocks"]:
        block["path"] = block["path"].removeprefix(f"{block.get('store')}: ")
    structured = {"blocks": about["blocks"], "left_out": about["left_out"]}
    if context.is_weak:
        structured["note"] = WEAK_MATCHES
    if context.left_out and not context.blocks:
        return f"Nothing fits into {most} tokens: call again with a larger max_tokens.\n", structured
    return context.text or f"{_NO_RESULTS}\n", structured


def _why_not(served: ServedStore, store: Store, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    absence = store.why_not(arguments["query"], served.name_of(arguments["path"]), arguments["k"], arguments["mode"])
    weaker = dict.fromkeys([phrase.phrase for phrase in absence.phrases] + [word.word for word in absence.words])
    words = [one_line(word)[:_LONGEST_HEADING] for word in list(weaker)[:_MOST_LISTED]]
    ranks = [_without_missing(asdict(replace(rank, chunk=None))) for rank in absence.ranks]
    lines = [f"{one_line(absence.source)}: the best chunk is {absence.chunk.id}."]
    for rank in absence.ranks:
        place = f"not among {rank.of} candidates" if rank.rank is None else f"rank {rank.rank} of {rank.of}"
        score = "none" if rank.score is None else f"{rank.score:.4g}"
        needed = "" if rank.needed is None else f"; result {arguments['k']} has {rank.needed:.4g}"
        lines.append(f"{rank.mode}: {place}, score {score}{needed}")
    lines.append(f"Words of the query that score lower in this file than in the results: {', '.join(words) or 'none'}")
    structured = {
        "path": one_line(absence.source),
        "ranks": ranks,
        "weaker_words": words,
        "best_id": absence.chunk.id,
        "note": absence.note,
    }
    return "\n".join(lines) + "\n", structured


def _status(stores: Iterable[ServedStore]) -> tuple[str, dict[str, Any]]:
    entries = [_without_missing(served.summary()) for served in stores]
    text = ""
    for entry in entries:
        shown = {name: ", ".join(value) if isinstance(value, list) else value for name, value in entry.items()}
        text += "\n" * bool(text) + "".join(f"{name}: {value}\n" for name, value in shown.items())
    return text, {"stores": entries}


# Files and chunks


def _with_lines(records: Iterable[ChunkRecord], source: str, first: int | None, last: int | None) -> list[ChunkRecord]:
    """Return the chunks of a file with these lines; raise :class:`ConfigError` if there are none."""
    ordered = in_document_order(records)
    if first is None and last is None:
        return ordered
    chosen = [
        record
        for record in ordered
        if (start := record.chunk.start_line) is not None
        and (end := record.chunk.end_line) is not None
        and (last is None or start <= last)
        and (first is None or first <= end)
    ]
    if not chosen and ordered:
        lines = [line for record in ordered for line in (record.chunk.start_line, record.chunk.end_line) if line]
        has = f"its indexed lines are {min(lines)} to {max(lines)}" if lines else "its format has no lines"
        raise ConfigError(f"{source} has no text in these lines: {has}; leave the lines out")
    return chosen


def _between(passage: dict[str, Any], first: int | None, last: int | None) -> dict[str, Any]:
    """Return a passage without the lines before ``first`` and after ``last``, if its text is the lines of its file."""
    lines, start = passage["text"].split("\n"), passage.get("start_line", 0)
    if start + len(lines) - 1 != passage.get("end_line"):
        return passage
    start, end = max(first or start, start), min(last or passage["end_line"], passage["end_line"])
    text = "\n".join(lines[start - passage["start_line"] : end - passage["start_line"] + 1])
    return {**passage, "start_line": start, "end_line": end, "text": text}


# Pages


def _hits(
    store: Searchable, arguments: Mapping[str, Any], query: str, hits: Sequence[Hit]
) -> tuple[str, dict[str, Any]]:
    """Return all hits: their places, then the lines that answer while the budget lasts, then whole passages if asked.

    The words of ``query`` select the lines.
    """
    if not hits:
        return f"{_NO_RESULTS}\n", {"results": []}
    words = QueryWords(query, [hit.chunk.text for hit in hits], store.language)
    forms, sizes = [], []
    for number, (hit, state) in enumerate(zip(hits, store.file_states(hits), strict=True), 1):
        check()
        whole, headings = _passage(hit, state), [hit.chunk.title, *hit.chunk.headings]
        snippet, _ = words.snippet(whole["text"], headings)
        lines = {**whole, "text": snippet, "truncated": True}
        head = f"{number}. {_heading(whole)}"
        if lines["text"] == whole["text"]:
            lines = whole
        texts = [
            head,
            f"{head}\n{indent(snippet.join(cuts(whole['text'], snippet)), _INDENT)}",
            f"{head}\n{_fenced(whole['text'])}",
        ]
        values = [{**whole, "text": "", "truncated": True}, lines, whole]
        forms.append(list(zip(texts, values, strict=True)))
        sizes.append([_size(text, value, arguments["structured"]) for text, value in forms[-1]])
    levels = _levels(sizes, arguments["max_tokens"] - _FRAME, 2 if arguments["detail"] == "full" else 1)
    shown = [form[level] for form, level in zip(forms, levels, strict=False)]
    left = len(hits) - len(shown)
    more = [f"{left} more results do not fit: raise max_tokens"] if left else []
    structured: dict[str, Any] = {"results": [value for _, value in shown]}
    if is_weak(hit.relevance for hit in hits):
        more.append(WEAK_MATCHES)
    if more:
        structured["note"] = "; ".join(more)
    return "\n".join([NOTE, *(text for text, _ in shown)]) + "\n", structured


def _levels(sizes: Sequence[Sequence[int]], room: int, most: int) -> list[int]:
    """Return the form of each hit, best first, so that all together fit into ``room`` tokens; the last may not."""
    count = len(sizes)
    while count and sum(size[0] for size in sizes[:count]) > room:
        count -= 1
    levels = [0] * count
    room -= sum(size[0] for size in sizes[:count])
    for level in range(1, most + 1):
        for i in range(count):
            longer = sizes[i][level] - sizes[i][levels[i]]
            if longer <= room:
                levels[i], room = level, room - longer
    return levels


def _page(
    passages: Sequence[dict[str, Any]], position: _Position, budget: int, *, structured: bool = False
) -> tuple[list[dict[str, Any]], _Position | None]:
    """Return the passages that fit into a number of tokens, at least a part of one, and where the next page begins."""

    def size(passage: Mapping[str, Any]) -> int:
        return _size(_whole([passage]), passage, structured)

    room = budget - _FRAME
    page: list[dict[str, Any]] = []
    character = position.character
    for i in range(position.result, len(passages)):
        check()
        passage = {**passages[i], "text": passages[i]["text"][character:]}
        if (needed := size(passage)) <= room:
            page.append(passage)
            room -= needed
            character = 0
            continue
        if page:
            return page, _Position(i, character)
        text = passage["text"]
        low, high = 1, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            fits = size({**passage, "text": text[:middle], "truncated": True}) <= room
            low, high = (middle, high) if fits else (low, middle - 1)
        return [{**passage, "text": text[:low], "truncated": True}], _Position(i, character + low)
    return page, None


def _size(text: str, value: Mapping[str, Any], structured: bool) -> int:
    """Return the tokens of a part of an answer, in the larger of its two forms if both are sent."""
    size = estimated_tokens(text) + 1
    as_json = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return max(size, estimated_tokens(as_json)) if structured else size


def _digest(arguments: Mapping[str, Any]) -> str:
    same = {name: value for name, value in arguments.items() if name not in ("cursor", "max_tokens", "structured")}
    return hashlib.blake2b(json.dumps(same, sort_keys=True).encode(), digest_size=6).hexdigest()


def _position(arguments: Mapping[str, Any], generation: int) -> _Position:
    """Return where the page begins that a cursor names; raise :class:`ConfigError` for one of another request."""
    if "cursor" not in arguments:
        return _Position()
    match = _CURSOR.fullmatch(arguments["cursor"])
    if match is None or match[4] != _digest(arguments):
        raise ConfigError("the cursor belongs to another request: pass the same arguments as before, or no cursor")
    if int(match[3]) != generation:
        raise ConfigError("the store changed since the cursor was made: call again without cursor")
    return _Position(int(match[1]), int(match[2]))


# Results as JSON values and as text


def _passage(record: Hit | ChunkRecord, state: FileState | None = None) -> dict[str, Any]:
    chunk = record.chunk
    member = member_of(record.source, chunk.metadata)
    sheet = sheet_of(member or record.source, chunk.headings)
    hit = record if isinstance(record, Hit) else None
    headings = chunk.headings or ((chunk.title,) if chunk.title else ())
    return _without_missing(
        {
            "id": record.id,
            "store": record.store,
            "path": None if record.source is None else one_line(record.source),
            "member": None if member is None else one_line(member),
            "sheet": None if sheet is None else one_line(sheet)[:_LONGEST_HEADING],
            "start_line": chunk.start_line,
            "end_line": chunk.end_line,
            "page": chunk.page,
            "end_page": None if chunk.end_page == chunk.page else chunk.end_page,
            "headings": [one_line(heading)[:_LONGEST_HEADING] for heading in headings[-_MOST_HEADINGS:]],
            "score": round(hit.score, _ROUNDING) if hit else None,
            "relevance": None if hit is None or hit.relevance is None else round(hit.relevance, _ROUNDING),
            "near_duplicates": len(hit.duplicates) or None if hit else None,
            "stale": state is not None or None,
            "text": chunk.text,
        }
    )


def _without_missing(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, [])}


def _heading(passage: Mapping[str, Any]) -> str:
    """Return the place of a passage with its relevance and headings; its id if no place names it."""
    path = passage.get("path", "no file")
    if "member" in passage:
        path = f"{path}: {passage['member']}"
    path = f"{passage['store']}: {path}" if "store" in passage else path
    headings, sheet = passage.get("headings", []), passage.get("sheet")
    start, end, page, end_page = map(passage.get, ("start_line", "end_line", "page", "end_page"))
    place = location_of(path, start, end, page, end_page, sheet)
    about = [
        relevance_word(passage.get("relevance")),
        None if "start_line" in passage and "path" in passage else f"id {passage['id']}",
        " > ".join(headings[1:] if headings[:1] == [sheet] else headings),
        "changed since it was indexed" if "stale" in passage else None,
        "cut" if "truncated" in passage else None,
    ]
    notes = "; ".join(filter(None, about))
    return f"{place} ({notes})" if notes else place


def _whole(passages: Sequence[Mapping[str, Any]]) -> str:
    """Return consecutive passages of a file as one text with one heading."""
    last = {name: passages[-1][name] for name in ("end_line", "truncated") if name in passages[-1]}
    return f"{_heading({**passages[0], **last})}\n{_fenced(_joined(passages))}"


def _joined(passages: Iterable[Mapping[str, Any]]) -> str:
    return joined((passage.get("start_line"), passage.get("end_line"), passage["text"]) for passage in passages)


def _fenced(text: str) -> str:
    fence = fence_of(text)
    return f"{fence}\n{text}\n{fence}"


_FRAME, _NOTED = 100, 20
"""Tokens of an answer beside its passages: the notes, and the cursor with its line; and those of a note alone."""
