"""The search page at ``/``: HTML made from the answers of the HTTP API. It works as a plain form, without JavaScript.

The document is a tree of elements, and the standard library writes it, so no text can become markup. ``page.js`` loads
the same addresses while you type, and replaces the parts of the page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from xml.etree.ElementTree import Element

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from ragembed.documents.readers.registry import location_of
from ragembed.errors import RagembedError
from ragembed.html_elements import Child, as_html
from ragembed.html_elements import element as _e
from ragembed.indexes.search.pipeline import MODES
from ragembed.indexes.storage.layout import file_path
from ragembed.serving.http_answers import StoreAnswers
from ragembed.serving.http_requests import status_and_message
from ragembed.serving.http_security import CONTENT_SECURITY_POLICY
from ragembed.serving.stores import ServedStore
from ragembed.serving.tool_schemas import EVERY, MOST_COMPARED

_FACETS = "folder,type,date,metadata"
_FACET_TITLES = {"folder": "Folder", "type": "Type", "date": "Month"}
_STEP, _MOST_RESULTS = 10, 100
_LONGEST_TEXT = 20_000
"""Number of characters of a chunk that are shown. Only a text without spaces is longer."""
_WORDS = 8
_MODE_NAMES = {"hybrid": "Meaning and words", "dense": "Meaning", "lexical": "Words"}
_PART_TITLES = {
    "dense": "meaning",
    "lexical": "words",
    "shared": "words shared with the best results",
}
PUBLIC_PATHS = ("/page.css", "/page.js")
"""Paths that need no token."""
_POLICY = CONTENT_SECURITY_POLICY.replace("form-action 'none'", "form-action 'self'")
_TYPES = {"page.css": "text/css", "page.js": "text/javascript"}
_STATIC = {name: files("ragembed.serving").joinpath("static", name).read_bytes() for name in _TYPES}
_VERSIONS = {name: hashlib.sha256(data).hexdigest()[:16] for name, data in _STATIC.items()}

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
        """Return the state that an address holds. Unknown stores, modes and numbers become the default."""
        given = {name: parameters.get(name, "").strip() for name in ("q", "where", "id", "like", "file")}
        store, part, mode, k = (parameters.get(name, "") for name in ("store", "part", "mode", "k"))
        number = int(k) if k.isascii() and k.isdigit() and len(k) < 4 else _STEP
        return cls(
            store=store if store in _choices(stores) else stores[0],
            part=part if part in stores and store not in stores else "",
            mode=mode if mode in MODES else MODES[0],
            filters=tuple(dict.fromkeys(each for each in parameters.getlist("f") if each.strip())),
            k=min(max(number, 1), _MOST_RESULTS),
            **given,
        )

    def address(self, stores: Sequence[str]) -> str:
        """Return the address of this state, without what is the default."""
        plain = _PageState(store=stores[0])
        names = ("q", "store", "part", "mode", "where", "k", "id", "like", "file")
        pairs = [(name, getattr(self, name)) for name in names if getattr(self, name) != getattr(plain, name)]
        pairs += [("f", each) for each in self.filters]
        return "/?" + urlencode(pairs) if pairs else "/"

    @property
    def own_store(self) -> str:
        """The store of the open passage and of the file."""
        return self.part or self.store

    @property
    def condition(self) -> str:
        """The filters as one condition."""
        every = [each for each in (self.where, *self.filters) if each]
        return every[0] if len(every) == 1 else " AND ".join(f"({each})" for each in every)

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

    def document(self, view: _PageState) -> tuple[int, bytes]:
        """Return the status and the page."""
        status = 200
        facets: list[Child] = []
        preview: list[Child] = []
        found: Sequence[Mapping[str, Any]] = ()
        try:
            if view.like:
                similar = self._answer("similar", store=view.own_store, id=view.like, k=view.k)
                for result in similar["results"] if view.part else ():
                    result["store"] = view.part
                results = self._results(view, similar, f"Passages like {_place(self._chunk(view, view.like)['chunk'])}")
            elif view.q:
                answer = self._answer("search", **view.search, facets=_FACETS)
                facets = [*self._facets(view, answer["facets"])]
                results = self._results(view, answer)
                found = answer["results"]
            else:
                results = self._welcome()
        except RagembedError as error:
            status, results = _problem(error)
        # A bookmark may open a passage that has changed: the results stay.
        for given, part in ((view.file and view.q, self._why_not), (view.id, partial(self._preview, found=found))):
            try:
                preview += part(view) if given else []
            except RagembedError as error:  # noqa: PERF203  one part that fails leaves the other
                status, alert = _problem(error)
                preview += alert
        title = f"{view.q} – ragembed" if view.q else "ragembed"
        html = _e("html", self._head(title), self._body(view, facets, results, preview), lang="en")
        return status, b"<!doctype html>" + as_html(html)

    def _answer(self, name: str, *, store: str | None = None, **arguments: Any) -> dict[str, Any]:
        if store is not None and len(self._names) > 1:  # the API has this argument only if there are several stores
            arguments["store"] = store
        return self._answers.answer(name, arguments)

    def _link(self, view: _PageState, text: Child, **attributes: str | bool | None) -> Element:
        return _e("a", text, href=view.address(self._names), **attributes)

    # The frame

    def _head(self, title: str) -> Element:
        return _e(
            "head",
            _e("meta", charset="utf-8"),
            _e("title", title),
            _e("meta", name="viewport", content="width=device-width, initial-scale=1"),
            _e("link", rel="icon", href="data:,"),
            _e("link", rel="stylesheet", href=f"/page.css?{_VERSIONS['page.css']}"),
            _e("script", src=f"/page.js?{_VERSIONS['page.js']}", defer=True),
        )

    def _body(self, view: _PageState, facets: list[Child], results: list[Child], preview: list[Child]) -> Element:
        return _e(
            "body",
            _e("header", _e("h1", _e("a", "ragembed", href="/")), self._form(view)),
            _e(
                "main",
                _e("aside", *facets, id="facets", aria_label="Filters"),
                _e("section", *results, id="results", aria_label="Results"),
                _e("section", *preview, id="preview", aria_label="Preview"),
            ),
            _e("p", role="status", id="announcement", class_="unseen"),
        )

    def _form(self, view: _PageState) -> Element:
        choices = _choices(self._names)
        stores = [_e("option", self._title(name), value=name, selected=name == view.store) for name in choices]
        return _e(
            "form",
            _e(
                "input",
                type="search",
                name="q",
                value=view.q,
                placeholder="Search the documents",
                aria_label="Query",
                autocomplete="off",
                spellcheck="false",
                maxlength="2000",
                autofocus=not view.q,
            ),
            _e("select", *stores, name="store", aria_label="Store") if len(stores) > 1 else None,
            _e(
                "select",
                *(_e("option", _MODE_NAMES[mode], value=mode, selected=mode == view.mode) for mode in MODES),
                name="mode",
                aria_label="Search by",
            ),
            _e(
                "input",
                name="where",
                value=view.where,
                placeholder="Filter, such as ext = '.md'",
                aria_label="Filter",
                autocomplete="off",
                spellcheck="false",
            ),
            _e("span", *(_hidden("f", each) for each in view.filters), id="filters"),
            _e("button", "Search"),
            action="/",
            role="search",
        )

    def _title(self, name: str) -> str:
        return name if name in self._stores else "All stores"

    def _welcome(self) -> list[Child]:
        rows = []
        for store in self._answer("status")["stores"]:
            numbers = f"{store.get('files', 0):,} files, {store.get('chunks', 0):,} passages"
            note = store.get("problem")
            rows.append(_e("li", _e("b", str(store["name"])), f": {numbers}", f" ({note})" if note else None))
        keys = [("/", "search"), ("↓ ↑", "next and previous result"), ("Enter", "open"), ("Esc", "close")]
        return [
            _e("p", "Type a query. Results appear as you type."),
            _e("ul", *rows),
            _e("p", *(part for key, what in keys for part in (_e("kbd", key), f" {what}  ")), class_="keys"),
        ]

    # Results

    def _results(self, view: _PageState, found: Mapping[str, Any], title: str | None = None) -> list[Child]:
        results = found["results"]
        count = f"{len(results)} result{'' if len(results) == 1 else 's'}" if results else "No results"
        more = len(results) == view.k < _MOST_RESULTS and not view.like
        children: list[Child] = [_e("h2", title) if title else None, _e("p", count, class_="count", id="count")]
        if view.like:
            children.append(_e("p", self._link(replace(view, like=""), "Back to the results")))
        if found.get("note"):
            children.append(_e("p", found["note"], class_="note"))
        if not results and view.condition:
            without = replace(view, where="", filters=())
            children.append(_e("p", self._link(without, "Search without filters")))
        children.append(_e("ol", *(self._result(view, result) for result in results)))
        if more:
            longer = replace(view, k=min(view.k + _STEP, _MOST_RESULTS))
            children.append(_e("p", self._link(longer, "More results", class_="more")))
        if view.q and not view.like:
            children.append(self._file_form(view))
        return children

    def _result(self, view: _PageState, result: Mapping[str, Any]) -> Element:
        duplicates = [_place(each) for each in result.get("duplicates", ())]
        above = " › ".join(result["headings"]) or result["title"]
        return _e(
            "li",
            self._link(
                replace(view, id=result["id"], part=result.get("store", ""), file=""),
                _place(result),
                class_="place",
                aria_current="true" if _is_open(result, view) else None,
            ),
            _e("span", _score(result), class_="score"),
            _e("span", "changed", class_="stale", title="The file changed since it was indexed")
            if result["stale"]
            else None,
            _e("p", above, class_="headings", dir="auto") if above else None,
            _e("pre", *_marked(result["snippet"], result["highlights"]), class_="snippet", dir="auto"),
            _e("p", f"and near-duplicates: {', '.join(duplicates[:5])}", class_="note") if duplicates else None,
        )

    def _file_form(self, view: _PageState) -> Element:
        kept = [("q", view.q), ("store", view.store), ("mode", view.mode), ("k", str(view.k)), ("where", view.where)]
        kept += [("f", each) for each in view.filters]
        together = view.store not in self._stores
        names = [_e("option", name, value=name, selected=name == view.part) for name in self._names if together]
        return _e(
            "form",
            *(_hidden(name, value) for name, value in kept if value),
            _e("select", *names, name="part", aria_label="Store of the file") if names else None,
            _e("label", "Why is a file not here? ", _e("input", name="file", value=view.file, placeholder="docs/a.md")),
            _e("button", "Explain"),
            action="/",
            class_="why-not",
        )

    # Facets

    def _facets(self, view: _PageState, facets: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Element]:
        for condition in view.filters:
            rest = tuple(each for each in view.filters if each != condition)
            without = self._link(replace(view, filters=rest, id=""), "remove", aria_label=f"Remove {condition}")
            yield _e("p", _e("code", condition), " ", without, class_="filter")
        for name, values in facets.items():
            if len(values) < 2:
                continue
            rows = [
                _e(
                    "li",
                    self._link(
                        replace(view, filters=(*view.filters, value["where"]), k=_STEP, id=""), _shown(value["value"])
                    ),
                    _e("span", str(value["count"]), class_="score"),
                )
                for value in values
                if value["where"] not in view.filters
            ]
            title = _FACET_TITLES.get(name, name)
            yield _e("details", _e("summary", title), _e("ul", *rows), open=True)
        if any(len(values) > 1 for values in facets.values()):
            yield _e("p", "Counts of the first 100 results.", class_="note")

    # Preview

    def _chunk(self, view: _PageState, chunk_id: str, neighbours: int = 0) -> dict[str, Any]:
        query = {"q": view.q} if view.q else {}
        answer = self._answer("chunk", store=view.own_store, id=chunk_id, before=neighbours, after=neighbours, **query)
        answer["chunk"] |= {"store": view.part} if view.part else {}
        return answer

    def _preview(self, view: _PageState, found: Sequence[Mapping[str, Any]]) -> list[Child]:
        passage = self._chunk(view, view.id, 2)
        chunk = passage["chunk"]
        text = chunk["text"]
        line = chunk["start_line"]
        path = chunk["path"] or chunk["id"]
        copied = f"{path}:{line}" if line else path
        cut = f"… {len(text) - _LONGEST_TEXT:,} more characters" if len(text) > _LONGEST_TEXT else None
        shown = (
            _marked(text[:_LONGEST_TEXT], [each for each in chunk["highlights"] if each[1] <= _LONGEST_TEXT])
            if (view.q)
            else [text[:_LONGEST_TEXT]]
        )
        return [
            _e("h2", _place(chunk)),
            _e(
                "p",
                _e("button", "Copy", type="button", data_copy=copied, hidden=True, title=copied),
                self._editor_link(view, chunk),
                self._link(replace(view, like=chunk["id"], id="", file="", k=_STEP), "More like this"),
                self._link(replace(view, id=""), "Close", class_="close"),
                class_="actions",
            ),
            _e("p", " › ".join(chunk["headings"]) or chunk["title"] or "", class_="headings", dir="auto"),
            *(_e("pre", each["text"][:_LONGEST_TEXT], dir="auto") for each in passage["before"]),
            _e("pre", *shown, cut, class_="hit", id="hit", dir="auto"),
            *(_e("pre", each["text"][:_LONGEST_TEXT], dir="auto") for each in passage["after"]),
            *_metadata(chunk["metadata"]),
            *(self._why(view) if any(_is_open(each, view) for each in found) else []),
        ]

    def _editor_link(self, view: _PageState, chunk: Mapping[str, Any]) -> Element | None:
        if self._editor is None or chunk["path"] is None:
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
        found = (explanation["tokens"] or {}).get("words", ())
        words = [
            (f"{each['word']} ← {each['best']}", each["value"])
            for each in found
            if each["value"] > 0 and any(map(str.isalnum, each["word"]))
        ][:_WORDS]
        return [
            _e("h2", "Why this result"),
            _bars("Parts of the score", rows) if rows else None,
            _bars("Words of the passage, by meaning", words) if words else None,
            _e("p", explanation["note"], class_="note") if explanation["note"] else None,
        ]

    def _why_not(self, view: _PageState) -> list[Child]:
        k = min(view.k, MOST_COMPARED)
        found = self._answer("why_not", store=view.own_store, q=view.q, path=view.file, mode=view.mode, k=k)
        rows = [_standing(each) for each in found["standings"]]
        lost = [
            f"{each['word']} ({each['here']:.3f} here, {each['results']:.3f} in the results)" for each in found["words"]
        ]
        return [
            _e("h2", f"Why not {found['path']}"),
            _e("ul", *(_e("li", row) for row in rows)),
            _e("p", f"The results do better in: {', '.join(lost[:_WORDS])}") if lost else None,
            _e("p", found["note"], class_="note") if found.get("note") else None,
            _e("p", self._link(replace(view, file=""), "Close", class_="close")),
        ]


def _problem(error: RagembedError) -> tuple[int, list[Child]]:
    """Return the status of an error, and the part of the page that shows it."""
    status, message = status_and_message(error, "/")
    return status, [_e("p", message, class_="problem", role="alert")]


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
        yield _e("dl", *(each for pair in pairs for each in pair))


def _bars(title: str, rows: Sequence[tuple[str, float]]) -> Element:
    """Return a table with a bar for each value. Negative bars point to the left."""
    most = max((abs(value) for _, value in rows), default=0) or 1
    return _e(
        "table",
        _e("caption", title),
        *(
            _e("tr", _e("th", name, scope="row"), _e("td", _bar(value / most)), _e("td", f"{value:+.3f}"))
            for name, value in rows
        ),
    )


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
    return location_of(path, record["start_line"], record["end_line"], record["page"], None)


def _score(result: Mapping[str, Any]) -> str:
    """Return the relevance, which is comparable between queries, or else the score."""
    score, relevance = f"{result['score']:.3f}", result.get("relevance")
    return f"score {score}" if relevance is None else f"relevance {relevance:.2f}, score {score}"


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value) or "(none)"


def _marked(text: str, places: Iterable[Sequence[int]]) -> list[Child]:
    """Return a text with the words of the query marked."""
    parts: list[Child] = []
    end = 0
    for start, stop in places:
        parts += [text[end:start], _e("mark", text[start:stop])]
        end = stop
    return [*parts, text[end:]]


def _hidden(name: str, value: str) -> Element:
    return _e("input", type="hidden", name=name, value=value)
