"""The search page at ``/``: HTML made from the answers of the HTTP API. It works as a plain form, without JavaScript.

The document is a tree of elements, and the standard library writes it, so no text can become markup. ``page.js`` loads
the same addresses while you type, and replaces the parts of the page.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from xml.etree.ElementTree import Element, fromstring

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from ragembed.documents.readers.registry import location_of
from ragembed.errors import RagembedError
from ragembed.html_elements import Child, as_html, table
from ragembed.html_elements import element as _e
from ragembed.indexes.search.pipeline import MODES
from ragembed.indexes.search.relevance import relevance_word
from ragembed.indexes.storage.layout import file_path
from ragembed.printable import printable
from ragembed.serving.http_answers import StoreAnswers
from ragembed.serving.http_requests import status_and_message
from ragembed.serving.http_security import CONTENT_SECURITY_POLICY
from ragembed.serving.passage_html import rendered
from ragembed.serving.stores import ServedStore
from ragembed.serving.tool_schemas import EVERY, MOST_COMPARED

_FACETS = "folder,type,date,metadata"
_FACET_TITLES = {"folder": "Folder", "type": "Type", "date": "Month", "tags": "Tag", "tag": "Tag"}
_UNIQUE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:|.{41}")
"""The beginning of a moment, or of a text that is longer than a name."""
_STEP, _MOST_RESULTS = 10, 100
_LONGEST_TEXT = 8_000
"""Number of characters of a chunk that are shown. Only a text without spaces is longer."""
_WORDS, _VALUES = 8, 6
_SAMPLE, _EXAMPLES = 300, 3
_MODE_NAMES = {"hybrid": "Meaning and words", "dense": "Meaning", "lexical": "Words"}
_PART_TITLES = {"dense": "meaning", "lexical": "words", "shared": "words shared with the best results"}
_QUESTION = re.compile(r"(how|what|why|when|which|where|who|can|does|is)\b.*|.*\?", re.IGNORECASE)
_TOPIC = re.compile(r"[A-Z][\w'’-]*( [\w'’,-]+){0,7}\??")
"""A heading that can be a query: one to eight words."""
PUBLIC_PATHS = ("/page.css", "/page.js", "/icon.svg")
"""Paths that need no token."""
_POLICY = CONTENT_SECURITY_POLICY.replace("form-action 'none'", "form-action 'self'")
_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_STATIC = {name: files("ragembed.serving").joinpath("static", name).read_bytes() for name in _TYPES}
_SKELETON = files("ragembed.serving").joinpath("static", "page.html").read_text(encoding="utf-8")
for _name, _data in _STATIC.items():
    _SKELETON = _SKELETON.replace(f"/{_name}", f"/{_name}?{hashlib.sha256(_data).hexdigest()[:16]}")

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
PageEndpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _PageState:
    """The state of the page, which its address holds: a query, filters, and what is open beside the results."""

    q: str = ""
    store: str = ""
    part: str = ""
    """The store of the open passage and of the file, if all stores are searched together."""
    mode: str = MODES[0]
    where: str = ""
    filters: tuple[str, ...] = ()
    k: int = _STEP
    id: str = ""
    like: str = ""
    file: str = ""

    @classmethod
    def of(cls, parameters: QueryParams, stores: Sequence[str]) -> _PageState:
        """Return the state that an address holds. Unknown stores, modes and numbers become the default.

        A first search is that of all stores, as those of the examples are.
        """
        texts = {name: parameters.get(name, "").strip() for name in ("q", "where", "id", "like", "file")}
        store, part, mode, k = (parameters.get(name, "") for name in ("store", "part", "mode", "k"))
        choices = _choices(stores)
        number = int(k) if k.isascii() and k.isdigit() and len(k) < 4 else _STEP
        return cls(
            store=store if store in choices else choices[0 if any(texts.values()) else -1],
            part=part if part in stores and store not in stores else "",
            mode=mode if mode in MODES else MODES[0],
            filters=tuple(dict.fromkeys(condition for condition in parameters.getlist("f") if condition.strip())),
            k=min(max(number, 1), _MOST_RESULTS),
            **texts,
        )

    def address(self, stores: Sequence[str]) -> str:
        """Return the address of this state, without what is the default."""
        plain = _PageState(store=stores[0])
        names = ("q", "store", "part", "mode", "where", "k", "id", "like", "file")
        pairs = [(name, getattr(self, name)) for name in names if getattr(self, name) != getattr(plain, name)]
        pairs += [("f", condition) for condition in self.filters]
        return "/?" + urlencode(pairs) if pairs else "/"

    @property
    def own_store(self) -> str:
        """The store of the open passage and of the file."""
        return self.part or self.store

    @property
    def condition(self) -> str:
        """The filters as one condition."""
        every = [condition for condition in (self.where, *self.filters) if condition]
        return every[0] if len(every) == 1 else " AND ".join(f"({condition})" for condition in every)

    @property
    def search(self) -> dict[str, Any]:
        """The arguments of the search."""
        where = {"where": self.condition} if self.condition else {}
        return {"store": self.store, "q": self.q, "mode": self.mode, "k": self.k, **where}


def _choices(stores: Sequence[str]) -> list[str]:
    """Return the names that the page can search: the stores, and that of all of them together if there are several."""
    return list(dict.fromkeys([*stores, EVERY])) if len(stores) > 1 else list(stores)


def endpoints(
    answers: StoreAnswers, run: Run, stores: Mapping[str, ServedStore], editor: str | None
) -> dict[str, PageEndpoint]:
    """Return the endpoints of the page and its two files by their paths.

    ``run`` calls a function in a thread. ``editor`` is the address that opens a line of a file, with ``{path}`` and
    ``{line}``, or None if readers are on other machines.
    """
    page = _SearchPage(answers, stores, editor)

    async def index(request: Request) -> Response:
        view = _PageState.of(request.query_params, list(stores))
        request.scope["ragembed.arguments"] = {"q": view.q}
        status, document = await run(lambda: page.document(view))
        return Response(document, status, {"Content-Security-Policy": _POLICY}, "text/html")

    def static(name: str) -> PageEndpoint:
        async def send(_request: Request) -> Response:
            return Response(_STATIC[name], headers={"Cache-Control": "max-age=86400"}, media_type=_TYPES[name])

        return send

    return {"/": index, **{f"/{name}": static(name) for name in _STATIC}}


class _SearchPage:
    """Makes the document for a state of the page."""

    def __init__(self, answers: StoreAnswers, stores: Mapping[str, ServedStore], editor: str | None) -> None:
        self._answers = answers
        self._stores = stores
        self._names = list(stores)
        self._editor = editor
        self._examples: dict[str, tuple[int, list[str]]] = {}

    def document(self, view: _PageState) -> tuple[int, bytes]:
        """Return the status and the page."""
        status = 200
        facets: list[Child] = []
        preview: list[Child] = []
        hits: Sequence[Mapping[str, Any]] = ()
        try:
            if view.like:
                similar = self._answer("similar", store=view.own_store, id=view.like, k=view.k)
                for result in similar["results"] if view.part else ():
                    result["store"] = view.part
                results = self._results(view, similar, f"Passages like {_place(self._chunk(view, view.like)['chunk'])}")
            elif view.q:
                answer = self._answer("search", **view.search, facets=_FACETS)
                hits = answer["results"]
                facets = [*self._facets(view, answer["facets"], len(hits))]
                results = self._results(view, answer)
            else:
                results = self._welcome()
        except RagembedError as error:
            status, results = _problem(error)
        # Without an open passage, a wide window shows the first one.
        shown = view
        if hits and not view.id and not view.file:
            shown = replace(view, id=hits[0]["id"], part=hits[0].get("store", ""))
        # A bookmark may open a passage that has changed: the results stay.
        parts = [partial(self._why_not, view)] if view.file and view.q else []
        parts += [partial(self._preview, shown, hits, is_open=shown is view)] if shown.id else []
        for part in parts:
            try:
                preview += part()
            except RagembedError as error:  # noqa: PERF203  one part that fails leaves the other
                status, alert = _problem(error)
                preview += alert
        return status, b"<!doctype html>" + as_html(self._filled(view, facets, results, preview, shown))

    def _answer(self, name: str, *, store: str | None = None, **arguments: Any) -> dict[str, Any]:
        if store is not None and len(self._names) > 1:  # the API has this argument only if there are several stores
            arguments["store"] = store
        return self._answers.answer(name, arguments)

    def _link(self, view: _PageState, text: Child, **attributes: str | bool | None) -> Element:
        return _e("a", text, href=view.address(self._names), **attributes)

    def _filled(
        self, view: _PageState, facets: list[Child], results: list[Child], preview: list[Child], shown: _PageState
    ) -> Element:
        """Return the page with a state and its parts."""
        page = fromstring(_SKELETON)  # noqa: S314  a file of this package
        parts = {node.get("id") or node.get("name") or node.tag: node for node in page.iter()}
        parts["title"].text = printable(f"{view.q} – ragembed" if view.q else "ragembed")
        parts["q"].set("value", printable(view.q))
        parts["where"].set("value", printable(view.where))
        if not view.q:
            parts["q"].set("autofocus", "")
        if not (view.q or view.like):
            parts["main"].set("class", "start")
        for mode in MODES:
            parts["mode"].append(_e("option", _MODE_NAMES[mode], value=mode, selected=mode == view.mode))
        for name in _choices(self._names):
            title = name if name in self._stores else "All stores"
            parts["store"].append(_e("option", title, value=name, selected=name == view.store))
        if len(self._names) < 2:
            parts["search"].remove(parts["store"])
        wrapped = [_e("div", *preview, class_=None if shown is view else "first")] if preview else []
        hidden = [_hidden("f", condition) for condition in view.filters]
        for name, children in (("facets", facets), ("results", results), ("preview", wrapped), ("filters", hidden)):
            parts[name].extend(child for child in children if isinstance(child, Element))
        return page

    def _welcome(self) -> list[Child]:
        rows = []
        for store in self._answer("status")["stores"]:
            numbers = f"{store.get('files', 0):,} files, {store.get('chunks', 0):,} passages"
            note = store.get("problem")
            rows.append(_e("li", _e("b", str(store["name"])), f": {numbers}", f" ({note})" if note else None))
        plain = _PageState(store=_choices(self._names)[-1])
        examples = [_e("li", self._link(replace(plain, q=query), query)) for query in self._example_queries()]
        return [
            _e("h2", "Ask in your own words"),
            _e("p", "A question finds passages by their meaning, and by the words in it."),
            *([_e("p", "For example:", class_="note"), _e("ul", *examples, class_="examples")] if examples else []),
            _e("ul", *rows, class_="note"),
        ]

    def _example_queries(self) -> list[str]:
        """Return headings of the documents that are questions or topics, from different files and stores."""
        lists = []
        for name, served in self._stores.items():
            if (size := served.size()) is None:
                continue
            if self._examples.get(name, (None,))[0] != size[0]:
                self._examples[name] = (size[0], _topics(served, size[1]))
            lists.append(self._examples[name][1])
        mixed = (topic for topics in zip_longest(*lists) for topic in topics if topic)
        return list(dict.fromkeys(mixed))[:_EXAMPLES]

    # Results

    def _results(self, view: _PageState, answer: Mapping[str, Any], title: str | None = None) -> list[Child]:
        results = answer["results"]
        count = f"{len(results)} result{'' if len(results) == 1 else 's'}" if results else "No results"
        more = len(results) == view.k < _MOST_RESULTS and not view.like
        children: list[Child] = [_e("h2", title) if title else None, _e("p", count, class_="note", id="count")]
        if view.like:
            children.append(_e("p", self._link(replace(view, like=""), "Back to the results")))
        if answer.get("note"):
            children.append(_e("p", answer["note"], class_="note-box"))
        if not results and view.condition:
            without = replace(view, where="", filters=())
            children.append(_e("p", self._link(without, "Search without filters")))
        elif not results:
            children.append(_e("p", "Use other words, or search by meaning and words."))
        children.append(_e("ol", *(self._result(view, result, number) for number, result in enumerate(results))))
        if more:
            longer = replace(view, k=min(view.k + _STEP, _MOST_RESULTS))
            children.append(_e("p", self._link(longer, "More results", class_="more")))
        if view.q and not view.like:
            children.append(self._file_form(view))
        return children

    def _result(self, view: _PageState, result: Mapping[str, Any], number: int) -> Element:
        duplicates = [_place(duplicate) for duplicate in result.get("duplicates", ())]
        title, above = _title_of(result)
        is_current = _is_open(result, view) or (number == 0 and not view.id and not view.file and not view.like)
        return _e(
            "li",
            self._link(
                replace(view, id=result["id"], part=result.get("store", ""), file=""),
                title,
                class_="title",
                dir="auto",
                aria_current="true" if is_current else None,
            ),
            _source(result),
            _e("p", " › ".join(above), class_="headings", dir="auto") if above else None,
            _e("div", *rendered(result["snippet"], result["path"], result["highlights"]), class_="snippet", dir="auto"),
            _e("p", f"and near-duplicates: {', '.join(duplicates[:5])}", class_="note") if duplicates else None,
        )

    def _file_form(self, view: _PageState) -> Element:
        fields = [("q", view.q), ("store", view.store), ("mode", view.mode), ("k", str(view.k)), ("where", view.where)]
        fields += [("f", condition) for condition in view.filters]
        together = view.store not in self._stores
        names = [_e("option", name, value=name, selected=name == view.part) for name in self._names if together]
        return _e(
            "form",
            *(_hidden(name, value) for name, value in fields if value),
            _e("select", *names, name="part", aria_label="Store of the file") if names else None,
            _e("label", "Why is a file not here? ", _e("input", name="file", value=view.file, placeholder="docs/a.md")),
            _e("button", "Explain"),
            action="/",
            class_="why-not",
        )

    # Facets

    def _facets(
        self, view: _PageState, facets: Mapping[str, Sequence[Mapping[str, Any]]], results: int
    ) -> Iterator[Element]:
        """Yield the chosen filters, and the values of each property that divides the results."""
        titles = {name: _FACET_TITLES.get(name, name.replace("_", " ").capitalize()) for name in facets}
        chosen_values = {
            value["where"]: f"{titles[name]}: {_shown(value['value'])}"
            for name, values in facets.items()
            for value in values
        }
        for condition in view.filters:
            others = tuple(other for other in view.filters if other != condition)
            without = self._link(replace(view, filters=others, id=""), "Remove", aria_label=f"Remove {condition}")
            named = chosen_values.get(condition)
            yield _e(
                "p",
                _e("span", named, title=condition) if named else _e("code", condition),
                " ",
                without,
                class_="filter",
            )
        lists = []
        for name, values in facets.items():
            open_values = [value for value in values if value["where"] not in view.filters]
            if len(open_values) < 2 or (name not in _FACET_TITLES and not _is_choice(open_values)):
                continue
            common = _common_folder([str(value["value"]) for value in open_values]) if name == "folder" else ""
            rows = []
            for value in open_values:
                chosen = replace(view, filters=(*view.filters, value["where"]), k=_STEP, id="")
                shown = _shown(value["value"])
                link = self._link(chosen, shown.removeprefix(common) or "(here)", title=shown)
                rows.append(_e("li", link, _e("span", str(value["count"]), class_="note")))
            more = _e("details", _e("summary", f"{len(rows) - _VALUES} more"), _e("ul", *rows[_VALUES:]))
            lists.append(_e("div", _e("h2", titles[name]), _e("ul", *rows[:_VALUES]), more if rows[_VALUES:] else None))
        if lists and results:
            yield _e("input", type="checkbox", id="unfold", class_="unseen", aria_label="Show filters")
            yield _e("label", "Filters", for_="unfold")
            yield _e("div", *lists, _e("p", "Numbers are of the best 100 results.", class_="note"), class_="lists")

    # Preview

    def _chunk(self, view: _PageState, chunk_id: str, neighbours: int = 0) -> dict[str, Any]:
        query = {"q": view.q} if view.q else {}
        answer = self._answer("chunk", store=view.own_store, id=chunk_id, before=neighbours, after=neighbours, **query)
        answer["chunk"] |= {"store": view.part} if view.part else {}
        return answer

    def _preview(self, view: _PageState, hits: Sequence[Mapping[str, Any]], *, is_open: bool) -> list[Child]:
        passage = self._chunk(view, view.id, 2)
        chunk = passage["chunk"]
        title, above = _title_of(chunk)
        line = chunk["start_line"]
        copied = f"{chunk['path'] or chunk['id']}:{line}" if line else chunk["path"] or chunk["id"]
        is_found = any(_is_open(hit, view) for hit in hits)
        return [
            _e("h2", title, dir="auto"),
            _source(chunk),
            _e("p", " › ".join(above), class_="headings", dir="auto") if above else None,
            _e(
                "p",
                _e("button", "Copy", type="button", data_copy=copied, hidden=True, title=copied),
                self._editor_link(view, chunk),
                self._link(replace(view, like=chunk["id"], id="", file="", k=_STEP), "More like this"),
                None if is_open or not is_found else self._link(view, "Why this result"),
                self._link(replace(view, id=""), "Close", class_="close") if is_open else None,
                class_="actions",
            ),
            _e("details", _e("summary", "Text before"), *(_text(neighbour) for neighbour in passage["before"]))
            if passage["before"]
            else None,
            _text(chunk, class_="part hit", id="hit"),
            *(self._why(view) if is_open and is_found else []),
            *(_text(neighbour) for neighbour in passage["after"]),
            *_metadata(chunk["metadata"]),
        ]

    def _editor_link(self, view: _PageState, chunk: Mapping[str, Any]) -> Element | None:
        if self._editor is None or chunk["path"] is None or "member" in chunk:
            return None
        place = file_path(chunk["path"], self._stores[view.own_store].path)
        if not isinstance(place, Path):
            return None
        path = quote("/" + place.as_posix().lstrip("/"), safe="/:")
        address = self._editor.replace("{path}", path).replace("{line}", str(chunk["start_line"] or 1))
        return _e("a", "Open in the editor", href=address)

    def _why(self, view: _PageState) -> list[Child]:
        """Explain the score of the open result."""
        answer = self._answer("explain", **view.search, id=view.id)
        if not _is_open(answer["result"], view):
            return []  # Two stores have a passage with this id, and the other one is a better result.
        explanation = answer["explanation"]
        rows = list(_parts(explanation))
        per_word = (explanation["tokens"] or {}).get("words", ())
        words = [
            (f"{word['word']} ← {word['best']}", word["value"])
            for word in per_word
            if word["value"] > 0 and any(map(str.isalnum, word["word"]))
        ][:_WORDS]
        return [
            _e("h2", "Why this result"),
            _bars("Parts of the score", rows) if rows else None,
            _bars("Words of the passage, by meaning", words) if words else None,
            _e("p", explanation["note"], class_="note") if explanation["note"] else None,
        ]

    def _why_not(self, view: _PageState) -> list[Child]:
        k = min(view.k, MOST_COMPARED)
        absence = self._answer("why_not", store=view.own_store, q=view.q, path=view.file, mode=view.mode, k=k)
        rows = [_standing(standing) for standing in absence["standings"]]
        lost = [
            f"{word['word']} ({word['here']:.3f} here, {word['results']:.3f} in the results)"
            for word in absence["words"]
        ]
        return [
            _e("h2", f"Why not {absence['path']}"),
            _e("ul", *(_e("li", row) for row in rows)),
            _e("p", f"The results do better in: {', '.join(lost[:_WORDS])}") if lost else None,
            _e("p", absence["note"], class_="note") if absence.get("note") else None,
            _e("p", self._link(replace(view, file=""), "Close", class_="close")),
        ]


def _problem(error: RagembedError) -> tuple[int, list[Child]]:
    """Return the status of an error, and the part of the page that shows it."""
    status, message = status_and_message(error, "/")
    return status, [_e("p", message, class_="problem", role="alert")]


def _text(chunk: Mapping[str, Any], **attributes: str) -> Element:
    """Return the text of a passage, cut if it is very long."""
    text, places = chunk["text"], [place for place in chunk.get("highlights", ()) if place[1] <= _LONGEST_TEXT]
    more = len(text) - _LONGEST_TEXT
    cut = _e("p", f"… {more:,} more characters", class_="note") if more > 0 else None
    attributes = {"class_": "part", **attributes}
    return _e("div", *rendered(text[:_LONGEST_TEXT], chunk["path"], places), cut, dir="auto", **attributes)


def _title_of(record: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
    """Return the title of a passage and the headings above it.

    The title is its heading below the one above, because many are called "Description", or the name of its file.
    """
    headings = [heading.replace("`", "") for heading in record["headings"]]
    if record["title"] and record["title"] not in headings:
        headings.insert(0, record["title"])
    if headings:
        return " › ".join(headings[-2:]), headings[:-2]
    return (record.get("member") or record["path"] or record["id"]).rstrip("/").rpartition("/")[2], ()


def _source(record: Mapping[str, Any]) -> Element:
    """Return the place of a passage with its relevance as a word, numbers as a hint, and whether the file changed."""
    badges: list[Child] = []
    if word := relevance_word(record.get("relevance")):
        hint = f"relevance {record['relevance']:.2f}, score {record['score']:.3f}"
        badges.append(_e("span", f"{word} match", class_=f"badge {word}", title=hint))
    if record["stale"]:
        badges.append(_e("span", "changed", class_="badge stale", title="The file changed since it was indexed"))
    return _e("p", _e("span", _place(record), class_="place"), *badges, class_="source")


def _topics(served: ServedStore, size: int) -> list[str]:
    """Return headings of a store, each of another file: questions first, then those of several words."""
    store, step = served.open(), max(1, size // _EXAMPLES)
    records = [record for start in range(0, size, step) for record in store.chunks(limit=_SAMPLE, offset=start)]
    topics: dict[str, str | None] = {}
    for record in records:
        for heading in record.chunk.headings[-1:]:
            if _TOPIC.fullmatch(heading) and record.source not in topics.values():
                topics.setdefault(heading, record.source)
    return sorted(topics, key=lambda topic: (_QUESTION.fullmatch(topic) is None, topic.isupper(), " " not in topic))[
        :_EXAMPLES
    ]


def _common_folder(folders: Sequence[str]) -> str:
    """Return the folders that all paths are below, with a slash at the end, or nothing."""
    parts = zip(*(folder.split("/") for folder in folders), strict=False)
    return "".join(f"{part[0]}/" for part in takewhile(lambda part: len(set(part)) == 1, parts))


def _is_open(result: Mapping[str, Any], view: _PageState) -> bool:
    return bool(result["id"] == view.id and result.get("store", "") == view.part)


def _standing(standing: Mapping[str, Any]) -> str:
    mode = _MODE_NAMES[standing["mode"]]
    if standing["rank"] is None:
        return f"{mode}: not among the {standing['of']:,} ranked passages"
    needed = "" if standing["needed"] is None else f", needed {standing['needed']:.3f}"
    return f"{mode}: rank {standing['rank']:,} of {standing['of']:,}, score {standing['score']:.3f}{needed}"


def _parts(explanation: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the parts of a score with their values."""
    for name, title in _PART_TITLES.items():
        if explanation[name] is not None:
            yield title, explanation[name]["value"]
    if explanation["dense"] is None:
        yield from sorted(explanation["phrases"].items(), key=lambda item: -item[1])[:_WORDS]


def _metadata(metadata: Mapping[str, Any]) -> Iterator[Element]:
    if metadata:
        pairs = ((_e("dt", str(name)), _e("dd", _shown(value))) for name, value in metadata.items())
        yield _e("dl", *(part for pair in pairs for part in pair))


def _bars(title: str, rows: Sequence[tuple[str, float]]) -> Element:
    """Return a table with a bar for each value. Negative bars point to the left."""
    most = max((abs(value) for _, value in rows), default=0) or 1
    return table((), [(name, _bar(value / most), f"{value:+.3f}") for name, value in rows], title)


def _bar(share: float) -> Element:
    """Return a picture of a value between -1 and 1. The number beside it is its text alternative."""
    width = f"{50 * abs(share):.1f}"
    start = "50" if share >= 0 else f"{50 + 50 * share:.1f}"
    colour = "more" if share >= 0 else "less"
    bar = _e("rect", x=start, y="1", width=width, height="8", class_=colour)
    return _e("svg", bar, viewBox="0 0 100 10", width="100", height="10", aria_hidden="true")


def _place(record: Mapping[str, Any]) -> str:
    """Return the path of a passage with its lines or page, and its store if several were searched."""
    path = record["path"] or record["id"]
    path = f"{record['store']}: {path}" if record.get("store") else path
    path = f"{path}: {record['member']}" if record.get("member") else path
    return location_of(path, record["start_line"], record["end_line"], record["page"], None, record.get("sheet"))


def _is_choice(values: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether values of a property recur, and are neither moments nor sentences."""
    return any(value["count"] > 1 for value in values) and not any(
        _UNIQUE.match(_shown(value["value"])) for value in values
    )


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value) or "(none)"


def _hidden(name: str, value: str) -> Element:
    return _e("input", type="hidden", name=name, value=value)
