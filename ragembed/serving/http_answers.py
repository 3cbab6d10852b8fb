"""Answers of the HTTP API as JSON values. Each answer comes from one snapshot of a store."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeAlias

from ragembed.errors import ConfigError
from ragembed.indexes.collection import Collection
from ragembed.indexes.search.ranking import RankingOptions
from ragembed.indexes.search.relevance import WEAK_MATCHES, is_weak
from ragembed.indexes.search.snippet import QueryWords, hit_json, place_json
from ragembed.indexes.storage.layout import extension, is_below
from ragembed.indexes.store import Store
from ragembed.indexes.types import Hit
from ragembed.models.token_counting import estimated_tokens
from ragembed.progress import check
from ragembed.serving.pushed_documents import get_document
from ragembed.serving.stores import (
    ServedStore,
    ServedStores,
    UnknownNameError,
    answered,
    chunk_with_id,
    conditions,
    in_document_order,
)
from ragembed.serving.tool_schemas import (
    ENDPOINTS,
    INTEGER,
    OBJECT,
    TEXT,
    Schema,
    array_of,
    checked,
    object_schema,
    shown,
    whole_object,
)
from ragembed.version import SCHEMA_VERSION, __version__

_COUNTED = 100
"""Facets count this number of results."""
_MOST_FACETS, _MOST_VALUES, _LONGEST_VALUE = 10, 50, 100
_OF_FILES = ("folder", "type", "date")
"""Facets of files; the others are keys of metadata."""
Searched: TypeAlias = "Store | Collection"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class StoreAnswers:
    """The answers for several stores. Threads may share it."""

    def __init__(self, stores: ServedStores, *, writable: bool = False) -> None:
        self._stores = stores
        self._writable = writable
        self._answers: Mapping[str, Callable[[Any, Any, dict[str, Any]], dict[str, Any]]] = {
            "search": _search,
            "context": _context,
            "chunk": _chunk,
            "document": lambda _served, store, arguments: get_document(store, arguments["id"]),
            "similar": _similar,
            "explain": _explain,
            "why_not": _why_not,
            "files": _files,
        }

    def answer(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of an operation; raise :class:`ragembed.errors.RagembedError` if it fails."""
        given = ENDPOINTS[name].checked(arguments, list(self._stores))
        if name == "status":
            summaries = [served.summary().items() for served in self._stores.all_or(given)]
            stores = [{key: value for key, value in summary if value is not None} for summary in summaries]
            about = {"version": __version__, "writable": self._writable, "stores": stores}
            return {"schema_version": SCHEMA_VERSION, **about}
        served = self._stores.taken_from(given)
        answer, about_filter, collected = answered(served, given, self._answers[name])
        notes = [note for note in (*about_filter, *collected, answer.pop("note", None), served.state()) if note]
        common = {"schema_version": SCHEMA_VERSION, "store": served.name}
        return {**common, **answer, **({"note": "; ".join(notes)} if notes else {})}


def _search(_served: object, store: Searched, arguments: dict[str, Any]) -> dict[str, Any]:
    query, offset, ranking = arguments["q"], arguments["offset"], _ranking(arguments)
    names = list(dict.fromkeys(name.strip() for name in arguments.get("facets", "").split(",") if name.strip()))
    if len(names) > _MOST_FACETS:
        raise ConfigError(f"facets has {len(names)} names: expected at most {_MOST_FACETS}")

    def best(k: int) -> list[Hit]:
        return store.search(query, k, arguments["mode"], ranking=ranking, **conditions(arguments))

    hits = best(offset + arguments["k"])
    results = _results(store, hits[offset:], query, offset + 1)
    facets = {"facets": _facets(store, best(_COUNTED), names)} if names else {}
    note = {"note": WEAK_MATCHES} if is_weak(hit.relevance for hit in hits) else {}
    about = {"query": query, "mode": arguments["mode"], "generation": store.generation}
    return {**about, "results": results, **facets, **note}


def _similar(served: ServedStore, store: Store, arguments: dict[str, Any]) -> dict[str, Any]:
    hits = served.similar(arguments["id"], arguments["k"], other_files=arguments["other_files"])
    results = _results(store, hits, "")
    return {"id": arguments["id"], "generation": store.generation, "results": results}


def _context(_served: object, store: Searched, arguments: dict[str, Any]) -> dict[str, Any]:
    context = store.context(
        arguments["q"],
        arguments["budget"],
        arguments["mode"],
        format=arguments["format"],
        name_file=lambda name: name,
        **conditions(arguments),
    )
    about = {"generation": store.generation, **context.to_dict(), "format": context.format, "text": context.text}
    return {**about, "note": WEAK_MATCHES if context.is_weak else None}


def _chunk(_served: ServedStore, store: Store, arguments: dict[str, Any]) -> dict[str, Any]:
    record = chunk_with_id(store, arguments["id"])
    records = [record]
    if record.source is not None and (arguments["before"] or arguments["after"]):
        records = in_document_order(store.chunks(record.source))
    at = next(i for i, neighbour in enumerate(records) if neighbour.id == record.id)
    first = max(0, at - arguments["before"])
    records = records[first : at + arguments["after"] + 1]
    at -= first
    texts = [neighbour.chunk.text for neighbour in records]
    words = QueryWords(arguments["q"], texts, store.language) if "q" in arguments else None
    chunks = [
        {
            **place_json(neighbour),
            "title": neighbour.chunk.title,
            "headings": list(neighbour.chunk.headings),
            "text": neighbour.chunk.text,
            "tokens": neighbour.chunk.tokens,
            "metadata": dict(neighbour.chunk.metadata),
            "stale": state is not None,
            **({} if words is None else {"highlights": words.places(neighbour.chunk.text)}),
        }
        for neighbour, state in zip(records, store.file_states(records), strict=True)
    ]
    return {"generation": store.generation, "chunk": chunks[at], "before": chunks[:at], "after": chunks[at + 1 :]}


def _explain(_served: object, store: Searched, arguments: dict[str, Any]) -> dict[str, Any]:
    chunk_with_id(store, arguments["id"])
    settings = {"ranking": _ranking(arguments), "ids": [arguments["id"]], **conditions(arguments)}
    explanations = store.explain(arguments["q"], arguments["k"], arguments["mode"], **settings)
    if not explanations:
        raise UnknownNameError(
            f"the chunk {arguments['id'][:60]!r} is not among the best {arguments['k']} results: pass a larger k, or "
            "see why with /v1/why-not"
        )
    [result] = _results(store, [explanations[0].hit], arguments["q"])
    del result["rank"]
    about = {"query": arguments["q"], "generation": store.generation}
    return {**about, "result": result, "explanation": explanations[0].to_dict()}


def _why_not(served: ServedStore, store: Store, arguments: dict[str, Any]) -> dict[str, Any]:
    absence = store.why_not(arguments["q"], served.name_of(arguments["path"]), arguments["k"], arguments["mode"])
    about = {"query": arguments["q"], "path": absence.source, "k": arguments["k"]}
    return {"generation": store.generation, **about, **absence.to_dict()}


def _files(served: ServedStore, store: Store, arguments: dict[str, Any]) -> dict[str, Any]:
    below = served.name_of(arguments["path"]) if "path" in arguments else None
    sources = store.sources()
    names = sorted(name for name in sources if below is None or is_below(name, below))
    shown = names[arguments["offset"] : arguments["offset"] + arguments["k"]]
    stale = store.stale_files(shown)
    files = [
        {
            "path": name,
            "size": sources[name].size,
            "modified": _time(sources[name].mtime_ns).isoformat(timespec="seconds"),
            "stale": name in stale,
        }
        for name in shown
    ]
    return {"generation": store.generation, "total": len(names), "files": files}


def _ranking(arguments: Mapping[str, Any]) -> RankingOptions:
    return RankingOptions(dedupe=arguments["dedupe"], per_file=arguments.get("per_file"))


def _results(store: Searched, hits: Sequence[Hit], query: str, first_rank: int = 1) -> list[dict[str, Any]]:
    words = QueryWords(query, [hit.chunk.text for hit in hits], store.language)
    results = []
    for rank, (hit, state) in enumerate(zip(hits, store.file_states(hits), strict=True), first_rank):
        check()
        result = hit_json(rank, hit, words, None, state)
        results.append({**result, "highlights": words.places(result["snippet"])})
    return results


# Facets


def _facets(store: Searched, hits: Sequence[Hit], names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return, for each name, the values in ``hits`` with their number, most frequent first, and how to filter."""
    times: dict[tuple[str | None, str], datetime] = {}
    if "date" in names:
        stores: Mapping[Any, Store] = {None: store} if isinstance(store, Store) else store.stores
        for name, opened in stores.items():
            own = {hit.source for hit in hits if hit.store == name and hit.source is not None}
            times |= {(name, source): _time(file.mtime_ns) for source, file in opened.sources(own).items()}
    facets = {}
    keys = [name for name in names if name != "metadata"]
    if "metadata" in names:
        # The most frequent keys of metadata with values that can be counted.
        counted = Counter(
            key for hit in hits for key, value in hit.chunk.metadata.items() if not isinstance(value, dict)
        )
        keys += [key for key, _ in counted.most_common(_MOST_FACETS) if key not in _OF_FILES]
    for name in dict.fromkeys(keys):
        counts = Counter(value for hit in hits for value in _facet_values(hit, name, times))
        best = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[:_MOST_VALUES]
        of_hits = [hit.chunk.metadata[name] for hit in hits if hit.chunk.metadata.get(name) is not None]
        kinds = {isinstance(value, list) for value in of_hits}
        facets[name] = [
            {"value": value, "count": count, "where": _facet_where(name, value, kinds)} for value, count in best
        ]
    return facets


def _facet_values(hit: Hit, name: str, times: Mapping[tuple[str | None, str], datetime]) -> Iterable[Any]:
    if name in _OF_FILES:
        if hit.source is None:
            return ()
        if name == "folder":
            folder = hit.source.rpartition("/")[0]
            return (f"{folder}/" if folder.endswith(":/") else folder,)  # the root of a URL
        if name == "type":
            return (extension(hit.source),)
        place = hit.store, hit.source
        return (f"{times[place]:%Y-%m}",) if place in times else ()
    value = hit.chunk.metadata.get(name)
    values = value if isinstance(value, list) else (value,)
    return {
        item
        for item in values
        if isinstance(item, int | float) or (isinstance(item, str) and len(item) <= _LONGEST_VALUE)
    }


def _facet_where(name: str, value: Any, kinds: Container[bool] = ()) -> str:
    """Return the condition that selects the chunks with a value; ``kinds`` says whether values are lists."""
    if name == "folder":
        escaped = re.sub(r"[*?\[]", r"[\g<0>]", value)
        pattern = f"{escaped}*" if value.endswith("/") else f"{escaped}/*"
        return f"path GLOB {_quoted(pattern)}" if value else "NOT path GLOB '*/**'"
    if name == "type":
        return f"ext = {_quoted(value)}"
    if name == "date":
        year, month = map(int, value.split("-"))
        following = f"{year + month // 12:04d}-{month % 12 + 1:02d}-01"
        return f"mtime >= '{value}-01T00:00Z' AND mtime < '{following}T00:00Z'"
    field = f"metadata.{name}" if _PLAIN_NAME.fullmatch(name) else 'metadata."{}"'.format(name.replace('"', '""'))
    shown = _quoted(value) if isinstance(value, str) else str(value).lower()
    tests = [f"{field} = {shown}"] * (False in kinds) + [f"{field} CONTAINS {shown}"] * (True in kinds)
    return " OR ".join(tests)


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _time(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds // 10**9, timezone.utc)


MOST_TEXTS = 2048
_SIDES = ("document", "query")
_FORMATS = ("float", "base64")

_INPUT: Schema = {**TEXT, "minLength": 1}
_INPUTS: Schema = {**array_of(_INPUT), "minItems": 1, "maxItems": MOST_TEXTS}
REQUEST: Schema = object_schema(
    {
        "model": {**TEXT, "description": "NAME, NAME:document or NAME:query of a store NAME"},
        "input": {"anyOf": [_INPUT, _INPUTS]},
        "input_type": {**TEXT, "enum": list(_SIDES)},
        "encoding_format": {**TEXT, "enum": list(_FORMATS), "default": "float"},
        "dimensions": {**INTEGER, "description": "Must be the dimension of the store's vectors"},
        "user": {**TEXT, "description": "Ignored"},
    },
    ["model", "input"],
)
ANSWER: Schema = whole_object({"object": TEXT, "model": TEXT, "data": array_of(OBJECT), "usage": OBJECT})
MODEL: Schema = whole_object({"id": TEXT, "object": TEXT, "created": INTEGER, "owned_by": TEXT})
MODELS: Schema = whole_object({"object": TEXT, "data": array_of(MODEL)})


def models(stores: Mapping[str, ServedStore]) -> dict[str, Any]:
    """Return the list of models."""
    names = [f"{store}{suffix}" for store in stores for suffix in ("", ":document", ":query")]
    return {"object": "list", "data": [model(stores, name) for name in names]}


def model(stores: Mapping[str, ServedStore], name: str) -> dict[str, Any]:
    """Return a model; raise :class:`UnknownNameError` if there is none with this name."""
    _model(stores, name)
    return {"id": name, "object": "model", "created": 0, "owned_by": "ragembed"}


def embeddings(stores: Mapping[str, ServedStore], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the vectors of texts; raise :class:`ragembed.errors.RagembedError` for a request that is not valid."""
    inputs = body.get("input")
    if isinstance(inputs, list) and inputs and _are_tokens(inputs):
        raise ConfigError("input holds token numbers, which belong to another tokenizer: send texts")
    if isinstance(inputs, str):
        body = {**body, "input": [inputs]}
    schema = object_schema({**REQUEST["properties"], "input": _INPUTS}, REQUEST["required"])
    request = checked(dict(body), schema, "embeddings")
    name, side = _model(stores, request["model"])
    wanted = request.get("input_type", side)
    if side not in (None, wanted):
        raise ConfigError(f"input_type is {wanted!r}, but the model is for a {side}: leave one of them out")
    embedder, texts = stores[name].open().embedder, request["input"]
    vectors = embedder.encode_queries(texts) if wanted == "query" else embedder.encode_documents(texts)
    if request.get("dimensions", vectors.shape[1]) != vectors.shape[1]:
        raise ConfigError(f"dimensions is {request['dimensions']}: the vectors of {name} have {vectors.shape[1]}")
    as_numbers = request["encoding_format"] == "float"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": vector.tolist() if as_numbers else base64.b64encode(vector.astype("<f4").tobytes()).decode(),
        }
        for index, vector in enumerate(vectors)
    ]
    tokens = sum(map(estimated_tokens, texts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": name, "data": data, "usage": usage}


def _model(stores: Mapping[str, ServedStore], model: str) -> tuple[str, str | None]:
    """Return the store and the side that a model names."""
    name, colon, side = model.partition(":")
    if name not in stores or (colon and side not in _SIDES):
        expected = ", ".join(f"{store}, {store}:document, {store}:query" for store in stores)
        raise UnknownNameError(f"unknown model {shown(model)}: expected one of {expected}")
    return name, side or None


def _are_tokens(values: Sequence[object]) -> bool:
    return all(
        isinstance(value, int) or (isinstance(value, list) and value and isinstance(value[0], int)) for value in values
    )
