"""The operations of the HTTP API: paths, parameters and answers. This module imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ragembed.serving.definitions import ID, MODE, SHARE, TEXT, WHERE, K, Schema, ToolDefinition, object_schema

MOST_OFFSET = 900
MOST_NEIGHBOURS = 20
MOST_COMPARED = 20
"""A file is compared with at most this number of results, because each of them is encoded again."""
MOST_FILES = 1000
BUDGET = 4000
MOST_BUDGET = 100_000

_BOTH, _READ = ("GET", "POST"), ("GET",)
_OFFSET: Schema = {"type": "integer", "minimum": 0, "maximum": MOST_OFFSET, "default": 0}
_NEIGHBOURS: Schema = {"type": "integer", "minimum": 0, "maximum": MOST_NEIGHBOURS, "default": 0}
_RANKING: Schema = {
    "mode": MODE,
    "where": WHERE,
    "dedupe": {"type": "boolean", "default": True, "description": "Combine near-duplicates"},
    "per_file": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Most results of a file"},
    "min_relevance": SHARE,
}
_STRINGS: Schema = {"type": "array", "items": {"type": "string"}}
_PLACES: Schema = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}


def _nullable(kind: str) -> Schema:
    return {"type": [kind, "null"]}


def _answer(properties: Schema) -> Schema:
    common: Schema = {
        "schema_version": {"type": "integer"},
        "store": {"type": "string"},
        "generation": {"type": "integer", "description": "Number of changes committed to the store"},
        "note": {"type": "string", "description": "Why the answer may be incomplete"},
    }
    return object_schema({**common, **properties}, ["schema_version", *(["store"] if "results" in properties else [])])


_PLACE: Schema = {
    "id": {"type": "string"},
    "store": {"type": "string", "description": "Store of the result, if all stores are searched together"},
    "path": {**_nullable("string"), "description": "Name of the file in the store"},
    "member": {"type": "string", "description": "File inside an archive or a mail"},
    "start_line": _nullable("integer"),
    "end_line": _nullable("integer"),
    "page": _nullable("integer"),
}
_CHUNK: Schema = object_schema(
    {
        **_PLACE,
        "title": _nullable("string"),
        "headings": _STRINGS,
        "text": {"type": "string"},
        "tokens": {"type": "integer"},
        "metadata": {"type": "object"},
        "stale": {"type": "boolean"},
        "highlights": {**_PLACES, "description": "Start and end of words of the query in the text, in characters"},
    },
    ["id", "text"],
)
_HIT: Schema = object_schema(
    {
        "rank": {"type": "integer"},
        **_PLACE,
        "title": _nullable("string"),
        "headings": _STRINGS,
        "score": {"type": "number"},
        "dense": {**_nullable("number"), "description": "Cosine"},
        "lexical": {**_nullable("number"), "description": "BM25"},
        "rerank": _nullable("number"),
        "relevance": _nullable("number"),
        "snippet": {"type": "string"},
        "highlights": {**_PLACES, "description": "Start and end of words of the query in the snippet, in characters"},
        "text": {"type": "string"},
        "metadata": {"type": "object"},
        "duplicates": {"type": "array", "items": object_schema(_PLACE, ["id"])},
        "stale": {"type": "boolean", "description": "The file changed since it was indexed"},
    },
    ["id", "score", "text"],
)
_HITS: Schema = {"type": "array", "items": _HIT}
_FACETS: Schema = {
    "type": "object",
    "additionalProperties": {
        "type": "array",
        "items": object_schema({"value": {}, "count": {"type": "integer"}, "where": {"type": "string"}}, ["count"]),
    },
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation with its path and methods. Parameters in braces are part of the path."""

    path: str
    methods: tuple[str, ...]
    operation: ToolDefinition


ENDPOINTS: Mapping[str, Endpoint] = {
    endpoint.operation.name: endpoint
    for endpoint in (
        Endpoint(
            "/v1/search",
            _BOTH,
            ToolDefinition(
                "search",
                "Find passages by meaning and words. Results have the form of 'ragembed query --json'.",
                {
                    "q": TEXT,
                    "k": K,
                    "offset": {**_OFFSET, "description": "Number of results to skip"},
                    **_RANKING,
                    "facets": {
                        **TEXT,
                        "description": "What to count: folder, type, date, a key of metadata, or metadata for all keys",
                    },
                },
                ("q",),
                _answer(
                    {
                        "query": {"type": "string"},
                        "mode": {"type": "string"},
                        "results": _HITS,
                        "facets": _FACETS,
                    }
                ),
                together=True,
            ),
        ),
        Endpoint(
            "/v1/context",
            _BOTH,
            ToolDefinition(
                "context",
                "Pack the best text for a query into a budget of tokens, for the prompt of a model.",
                {
                    "q": TEXT,
                    "budget": {"type": "integer", "minimum": 1, "maximum": MOST_BUDGET, "default": BUDGET},
                    "mode": MODE,
                    "where": WHERE,
                    "min_relevance": SHARE,
                    "format": {"type": "string", "enum": ["text", "markdown", "xml"], "default": "text"},
                },
                ("q",),
                _answer(
                    {
                        "query": {"type": "string"},
                        "budget": {"type": "integer"},
                        "tokens": {"type": "integer"},
                        "tokenizer": {"type": "string"},
                        "blocks": {"type": "array", "items": {"type": "object"}},
                        "left_out": {"type": "array", "items": {"type": "object"}},
                        "text": {"type": "string"},
                    }
                ),
                together=True,
            ),
        ),
        Endpoint(
            "/v1/chunks/{id}",
            _READ,
            ToolDefinition(
                "chunk",
                "Read a chunk and its neighbours in the same file.",
                {
                    "id": ID,
                    "before": {**_NEIGHBOURS, "description": "Number of chunks before it"},
                    "after": {**_NEIGHBOURS, "description": "Number of chunks after it"},
                    "q": {**TEXT, "description": "Query whose words are highlighted"},
                },
                ("id",),
                _answer(
                    {
                        "chunk": _CHUNK,
                        "before": {"type": "array", "items": _CHUNK},
                        "after": {"type": "array", "items": _CHUNK},
                    }
                ),
            ),
        ),
        Endpoint(
            "/v1/similar",
            _BOTH,
            ToolDefinition(
                "similar",
                "Find passages that are like a chunk.",
                {
                    "id": ID,
                    "k": K,
                    "other_files": {"type": "boolean", "default": False, "description": "Only from other files"},
                },
                ("id",),
                _answer({"id": {"type": "string"}, "results": _HITS}),
            ),
        ),
        Endpoint(
            "/v1/explain",
            _BOTH,
            ToolDefinition(
                "explain",
                "Explain the score of a result of a search with the same parameters. k is its k plus its offset.",
                {"q": TEXT, "id": ID, "k": {**K, "maximum": K["maximum"] + MOST_OFFSET}, **_RANKING},
                ("q", "id"),
                _answer({"query": {"type": "string"}, "result": _HIT, "explanation": {"type": "object"}}),
                together=True,
            ),
        ),
        Endpoint(
            "/v1/why-not",
            _BOTH,
            ToolDefinition(
                "why_not",
                "Explain why a file is not among the results of a query.",
                {"q": TEXT, "path": TEXT, "k": {**K, "maximum": MOST_COMPARED}, "mode": MODE},
                ("q", "path"),
                _answer({"query": {"type": "string"}, "path": {"type": "string"}, "k": {"type": "integer"}}),
            ),
        ),
        Endpoint(
            "/v1/files",
            _BOTH,
            ToolDefinition(
                "files",
                "List the indexed files by name.",
                {
                    "path": {**TEXT, "description": "Only this file, or the files below this folder"},
                    "k": {"type": "integer", "minimum": 1, "maximum": MOST_FILES, "default": 100},
                    "offset": {"type": "integer", "minimum": 0, "maximum": 10**9, "default": 0},
                },
                (),
                _answer(
                    {
                        "total": {"type": "integer"},
                        "files": {
                            "type": "array",
                            "items": object_schema(
                                {
                                    "path": {"type": "string"},
                                    "size": {"type": "integer"},
                                    "modified": {"type": "string"},
                                    "stale": {"type": "boolean"},
                                },
                                ["path", "size"],
                            ),
                        },
                    }
                ),
            ),
        ),
        Endpoint(
            "/v1/status",
            _READ,
            ToolDefinition(
                "status",
                "Show what is indexed.",
                {},
                (),
                object_schema(
                    {
                        "schema_version": {"type": "integer"},
                        "version": {"type": "string"},
                        "writable": {"type": "boolean"},
                        "stores": {"type": "array", "items": {"type": "object"}},
                    },
                    ["schema_version", "stores"],
                ),
            ),
        ),
    )
}
"""The endpoints by the name of their operation."""
