"""The tools of MCP and the operations of the HTTP API: descriptions, JSON schemas, and the check of the arguments.

Clients list the tools before every conversation, so this module imports nothing heavy, and the tools are short: all of
them together have at most 1,200 tokens. They declare no schemas of answers: a tool that does must answer with
structured content, which clients show to the model instead of the shorter text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragembed.errors import ConfigError

# An escape: a pair of surrogates, half of one, or any other.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


def repaired(text: str) -> str:
    """Return JSON with U+FFFD for each half of a surrogate pair, which JavaScript sends but UTF-8 cannot hold."""
    return _ESCAPE.sub(lambda match: "\\ufffd" if match[1] else match[0], text)


def parsed(text: str) -> Any:
    """Return the value of JSON; raise :class:`ValueError` for other text, such as NaN."""
    return json.loads(text, parse_constant=int)  # int raises an error for the name of a constant


def as_json(value: Any) -> bytes:
    """Return a value as JSON. Numbers that JSON does not have become null, and lone surrogates are escaped."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def read_json(body: bytes) -> dict[str, Any]:
    """Return the object in a body; raise :class:`ConfigError` if there is none."""
    try:
        value = parsed(repaired(body.decode()))
    except (ValueError, RecursionError):
        raise ConfigError("the body is not JSON: expected a JSON object") from None
    if not isinstance(value, dict):
        raise ConfigError('the body is not a JSON object: expected one such as {"q": "store locks"}')
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


Schema = dict[str, Any]

DEFAULT_TOKENS, MOST_TOKENS = 2500, 10_000
"""Tokens of an answer of a tool: by default, and at most."""
MOST_OFFSET, MOST_NEIGHBOURS, MOST_FILES = 900, 20, 1000
MOST_COMPARED = 20
"""A file is compared with at most this number of results, because each of them is encoded again."""
BUDGET, MOST_BUDGET = 4000, 100_000
EVERY = "all"
"""The name that stands for all served stores together."""
_LEAST_TOKENS, _MOST_CHARACTERS, _MOST_RESULTS, _SHOWN = 200, 4000, 100, 60
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_LARGEST = 2**53
"""The largest number without a limit, and minus the smallest."""

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
OBJECT: Schema = {"type": "object"}
_BOOLEAN: Schema = {"type": "boolean"}


def object_schema(properties: Schema, required: Sequence[str] = ()) -> Schema:
    """Return the schema of an object."""
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def whole_object(properties: Schema) -> Schema:
    """Return the schema of an object that has all properties."""
    return object_schema(properties, list(properties))


def array_of(items: Schema) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items}


def _from(least: int, most: int | None = None, default: int | None = None) -> Schema:
    limits = {"minimum": least, "maximum": most, "default": default}
    return {"type": "integer", **{name: value for name, value in limits.items() if value is not None}}


_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_NO: Schema = {"type": "boolean", "default": False}
_ID: Schema = {**TEXT, "description": "Id of a chunk, from an answer"}
_LINE: Schema = _from(1)
_K: Schema = _from(1, _MOST_RESULTS, 10)
_MODE: Schema = {"type": "string", "enum": ["hybrid", "dense", "lexical"], "default": "hybrid"}
_WHERE: Schema = {**TEXT, "description": "Filter, e.g. ext = 'md' AND path GLOB 'docs/**'"}
_TOKENS: Schema = _from(_LEAST_TOKENS, MOST_TOKENS, DEFAULT_TOKENS)
_DETAIL: Schema = {"type": "string", "enum": ["lines", "full"], "default": "lines"}
_STRUCTURED: Schema = {"structured": _NO}


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool or an operation: its name and description, and the schemas of its arguments and its answer."""

    name: str
    description: str
    arguments: Schema
    required: tuple[str, ...] = ()
    answer: Schema = field(default_factory=dict)
    together: bool = False
    """Whether the store ``all`` stands for all stores together."""

    def input_schema(self, stores: Sequence[str]) -> Schema:
        """Return the short JSON schema of the arguments; ``stores`` are the names of the stores that are served."""
        if len(stores) == 1:
            return object_schema(self.arguments, self.required)
        store = {**TEXT, "description": f"{EVERY}: all stores together"} if self.together else TEXT
        required = self.required if self.name == "status" else ("store", *self.required)
        return object_schema({"store": store, **self.arguments}, required)

    def full_schema(self, stores: Sequence[str]) -> Schema:
        """Return the same schema with the names of the stores, and the limits of texts."""
        schema = self.input_schema(stores)
        properties = {name: _limited(argument) for name, argument in schema["properties"].items()}
        if "store" in properties:
            properties["store"] = {**TEXT, "enum": list(dict.fromkeys([*stores, EVERY] if self.together else stores))}
        return {**schema, "properties": properties}

    def checked(self, arguments: Mapping[str, Any], stores: Sequence[str]) -> dict[str, Any]:
        """Return the arguments with defaults, without those that are null; raise :class:`ConfigError` for others."""
        values: dict[str, Any] = checked(dict(arguments), self.full_schema(stores), self.name)
        return values


def _limited(schema: Schema) -> Schema:
    """Return the schema of an argument, with limits if it is a text."""
    is_text = schema.get("type") == "string" and "enum" not in schema
    return {**schema, "minLength": 1, "maxLength": _MOST_CHARACTERS, "pattern": r"\S"} if is_text else schema


TOOLS: Mapping[str, ToolDefinition] = {
    tool.name: tool
    for tool in (
        ToolDefinition(
            "search",
            "Find passages by meaning and words; use it first. Answers k hits: path:lines, relevance (strong, possible,"
            " weak; unknown below 20 chunks), headings, and the lines that answer. Read on with get; detail=full gives"
            " whole passages.",
            {
                "query": TEXT,
                "k": _from(1, _MOST_RESULTS, 5),
                "detail": _DETAIL,
                "mode": _MODE,
                "where": _WHERE,
                "min_relevance": _SHARE,
                "max_tokens": _TOKENS,
                **_STRUCTURED,
            },
            ("query",),
            together=True,
        ),
        ToolDefinition(
            "context",
            "Collect what to read before answering a question: passages widened to their sections, merged, without "
            "near-duplicates, within max_tokens. Use it instead of search and many get calls.",
            {"query": TEXT, "mode": _MODE, "where": _WHERE, "max_tokens": _TOKENS, **_STRUCTURED},
            ("query",),
            together=True,
        ),
        ToolDefinition(
            "get",
            "Read the indexed text of a file, of some of its lines, or of one chunk. Give path or id from an answer.",
            {
                "path": TEXT,
                "start_line": _LINE,
                "end_line": _LINE,
                "id": TEXT,
                "max_tokens": _TOKENS,
                "cursor": {**TEXT, "description": "From the previous answer"},
                **_STRUCTURED,
            },
        ),
        ToolDefinition(
            "similar",
            "Find passages like one you have: related sections, copies, other implementations. Give id, or path and "
            "line.",
            {
                "id": TEXT,
                "path": TEXT,
                "line": _LINE,
                "k": _from(1, _MOST_RESULTS, 5),
                "detail": _DETAIL,
                "other_files": _NO,
                "max_tokens": _TOKENS,
                **_STRUCTURED,
            },
        ),
        ToolDefinition(
            "why_not",
            "Explain why a file you expected is not among the results of a query: its rank in each mode, and the "
            "words in which the results score higher. Use it to rephrase a query.",
            {"query": TEXT, "path": TEXT, "k": _K, "mode": _MODE, **_STRUCTURED},
            ("query", "path"),
        ),
        ToolDefinition(
            "status",
            "Show what is indexed: root folder of the paths, files, chunks, files changed since. Use it if results "
            "are missing.",
            _STRUCTURED,
        ),
    )
}
"""The tools of MCP by name. ``structured`` asks for JSON values beside the text."""


@dataclass(frozen=True, slots=True)
class PromptDefinition:
    """A prompt with one argument: the call of a tool for its text, and what the model shall do with the answer."""

    description: str
    argument: str
    tool: str
    arguments: Mapping[str, Any]
    task: str


PROMPTS: Mapping[str, PromptDefinition] = {
    "ask": PromptDefinition(
        "Answer a question from the indexed documents, with sources",
        "question",
        "context",
        {"max_tokens": 4000},
        "Answer the question from the passages below. Cite path and lines for each statement. Say what they leave "
        "open, and read more with the tools search and get before you answer from memory.",
    ),
    "find-code": PromptDefinition(
        "Find the code that does something, with definitions and callers",
        "what",
        "search",
        {"k": 10, "detail": "full", "max_tokens": 4000},
        "Find the code for the task below. The best matches follow. Open what looks right with the tool get, follow "
        "the calls with the tools search and similar, and name each definition with path and lines.",
    ),
}
"""The prompts of MCP by name."""


# The HTTP API


def _nullable(kind: str) -> Schema:
    return {"type": [kind, "null"]}


def _described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def _answer(properties: Schema) -> Schema:
    common: Schema = {
        "schema_version": INTEGER,
        "store": TEXT,
        "generation": _described(INTEGER, "Number of changes committed to the store"),
        "note": _described(TEXT, "Why the answer may be incomplete"),
    }
    return object_schema({**common, **properties}, ["schema_version", *(["store"] if "results" in properties else [])])


_RANKING: Schema = {
    "mode": _MODE,
    "where": _WHERE,
    "dedupe": {"type": "boolean", "default": True, "description": "Combine near-duplicates"},
    "per_file": _described(_from(1, 100), "Most results of a file"),
    "min_relevance": _SHARE,
}
_PLACES: Schema = array_of(array_of(INTEGER))
_PLACE: Schema = {
    "id": TEXT,
    "store": _described(TEXT, "Store of the result, if all stores are searched together"),
    "path": _described(_nullable("string"), "Name of the file in the store"),
    "member": _described(TEXT, "File inside an archive or a mail"),
    "sheet": _described(TEXT, "Sheet of a spreadsheet"),
    "start_line": _nullable("integer"),
    "end_line": _nullable("integer"),
    "page": _nullable("integer"),
}
_CHUNK: Schema = object_schema(
    {
        **_PLACE,
        "title": _nullable("string"),
        "headings": array_of(TEXT),
        "text": TEXT,
        "tokens": INTEGER,
        "metadata": OBJECT,
        "stale": _BOOLEAN,
        "highlights": _described(_PLACES, "Start and end of words of the query in the text, in characters"),
    },
    ["id", "text"],
)
_HIT: Schema = object_schema(
    {
        "rank": INTEGER,
        **_PLACE,
        "title": _nullable("string"),
        "headings": array_of(TEXT),
        "score": NUMBER,
        "dense": _described(_nullable("number"), "Cosine"),
        "lexical": _described(_nullable("number"), "BM25"),
        "rerank": _nullable("number"),
        "relevance": _nullable("number"),
        "snippet": TEXT,
        "snippet_at": _described(array_of(INTEGER), "Start and end of the snippet in the text, in characters"),
        "highlights": _described(_PLACES, "Start and end of words of the query in the snippet, in characters"),
        "text": TEXT,
        "metadata": OBJECT,
        "duplicates": array_of(object_schema(_PLACE, ["id"])),
        "stale": _described(_BOOLEAN, "The file changed since it was indexed"),
    },
    ["id", "score", "text"],
)
_FACET: Schema = object_schema({"value": {}, "count": INTEGER, "where": TEXT}, ["count"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(ToolDefinition):
    """An operation with its path and methods. Parameters in braces are part of the path."""

    path: str
    methods: tuple[str, ...] = ("GET",)


_BOTH = ("GET", "POST")
ENDPOINTS: Mapping[str, Endpoint] = {
    endpoint.name: endpoint
    for endpoint in (
        Endpoint(
            path="/v1/search",
            methods=_BOTH,
            name="search",
            description="Find passages by meaning and words. Results have the form of 'ragembed query --json'.",
            arguments={
                "q": TEXT,
                "k": _K,
                "offset": _described(_from(0, MOST_OFFSET, 0), "Number of results to skip"),
                **_RANKING,
                "facets": _described(
                    TEXT, "What to count: folder, type, date, a key of metadata, or metadata for all keys"
                ),
            },
            required=("q",),
            answer=_answer(
                {
                    "query": TEXT,
                    "mode": TEXT,
                    "results": array_of(_HIT),
                    "facets": {"type": "object", "additionalProperties": array_of(_FACET)},
                }
            ),
            together=True,
        ),
        Endpoint(
            path="/v1/context",
            methods=_BOTH,
            name="context",
            description="Pack the best text for a query into a budget of tokens, for the prompt of a model.",
            arguments={
                "q": TEXT,
                "budget": _from(1, MOST_BUDGET, BUDGET),
                "mode": _MODE,
                "where": _WHERE,
                "min_relevance": _SHARE,
                "format": {"type": "string", "enum": ["text", "markdown", "xml"], "default": "text"},
            },
            required=("q",),
            answer=_answer(
                {
                    "query": TEXT,
                    "budget": INTEGER,
                    "tokens": INTEGER,
                    "tokenizer": TEXT,
                    "blocks": array_of(OBJECT),
                    "left_out": array_of(OBJECT),
                    "text": TEXT,
                }
            ),
            together=True,
        ),
        Endpoint(
            path="/v1/chunks/{id}",
            name="chunk",
            description="Read a chunk and its neighbours in the same file.",
            arguments={
                "id": _ID,
                "before": _described(_from(0, MOST_NEIGHBOURS, 0), "Number of chunks before it"),
                "after": _described(_from(0, MOST_NEIGHBOURS, 0), "Number of chunks after it"),
                "q": _described(TEXT, "Query whose words are highlighted"),
            },
            required=("id",),
            answer=_answer({"chunk": _CHUNK, "before": array_of(_CHUNK), "after": array_of(_CHUNK)}),
        ),
        Endpoint(
            path="/v1/documents/{id}",
            name="document",
            description="Read a document that was added over HTTP: its indexed text, title and metadata.",
            arguments={"id": TEXT},
            required=("id",),
            answer=_answer({"document": OBJECT}),
        ),
        Endpoint(
            path="/v1/similar",
            methods=_BOTH,
            name="similar",
            description="Find passages that are like a chunk.",
            arguments={"id": _ID, "k": _K, "other_files": _described(_NO, "Only from other files")},
            required=("id",),
            answer=_answer({"id": TEXT, "results": array_of(_HIT)}),
        ),
        Endpoint(
            path="/v1/explain",
            methods=_BOTH,
            name="explain",
            description="Explain the score of a result of a search with the same parameters; k is its k plus offset.",
            arguments={"q": TEXT, "id": _ID, "k": {**_K, "maximum": _K["maximum"] + MOST_OFFSET}, **_RANKING},
            required=("q", "id"),
            answer=_answer({"query": TEXT, "result": _HIT, "explanation": OBJECT}),
            together=True,
        ),
        Endpoint(
            path="/v1/why-not",
            methods=_BOTH,
            name="why_not",
            description="Explain why a file is not among the results of a query.",
            arguments={"q": TEXT, "path": TEXT, "k": {**_K, "maximum": MOST_COMPARED}, "mode": _MODE},
            required=("q", "path"),
            answer=_answer({"query": TEXT, "path": TEXT, "k": INTEGER}),
        ),
        Endpoint(
            path="/v1/files",
            methods=_BOTH,
            name="files",
            description="List the indexed files by name.",
            arguments={
                "path": _described(TEXT, "Only this file, or the files below this folder"),
                "k": _from(1, MOST_FILES, 100),
                "offset": _from(0, 10**9, 0),
            },
            answer=_answer(
                {
                    "total": INTEGER,
                    "files": array_of(
                        object_schema(
                            {"path": TEXT, "size": INTEGER, "modified": TEXT, "stale": _BOOLEAN}, ["path", "size"]
                        )
                    ),
                }
            ),
        ),
        Endpoint(
            path="/v1/status",
            name="status",
            description="Show what is indexed.",
            arguments={},
            answer=object_schema(
                {"schema_version": INTEGER, "version": TEXT, "writable": _BOOLEAN, "stores": array_of(OBJECT)},
                ["schema_version", "stores"],
            ),
        ),
    )
}
"""The endpoints of the HTTP API by the name of their operation."""


# The check of arguments


class _SchemaType(NamedTuple):
    """A type of JSON schema: its classes, its name in errors, what it is a number of, and the names of its limits."""

    classes: Any
    name: str
    unit: str = ""
    limits: tuple[str, str] = ("minimum", "maximum")


_SCHEMA_TYPES: Mapping[str, _SchemaType] = {
    "boolean": _SchemaType(bool, "true or false"),
    "number": _SchemaType((int, float), "a number"),
    "integer": _SchemaType((int, float), "an integer"),
    "string": _SchemaType(str, "text", "characters", ("minLength", "maxLength")),
    "array": _SchemaType(list, "an array", "items", ("minItems", "maxItems")),
    "object": _SchemaType(dict, "an object"),
}


def checked(value: Any, schema: Schema, what: str) -> Any:
    """Return a JSON value with the defaults of its schema, without members that are null; raise :class:`ConfigError`.

    ``what`` names the value in errors. Only the parts of JSON schema that this package uses are known.
    """
    kind = schema["type"]
    if not _is_valid(value, schema):
        raise ConfigError(f"{what} is {shown(value)}: expected {expected(schema)}")
    if kind == "array":
        return [checked(item, schema["items"], f"item {number} of {what}") for number, item in enumerate(value, 1)]
    if kind != "object" or "properties" not in schema:
        check_characters(value, what)
        return int(value) if kind == "integer" else value
    properties: Schema = schema["properties"]
    present = {name: inner for name, inner in value.items() if inner is not None}
    for name in present:
        if name not in properties:
            listed = ", ".join(properties) or "none"
            raise ConfigError(f"unknown argument {shown(name)} of {what}: expected one of {listed}")
    for name in schema.get("required", ()):
        if name not in present:
            raise ConfigError(f"the argument {name!r} of {what} is missing: expected {expected(properties[name])}")
    defaults = {name: inner["default"] for name, inner in properties.items() if "default" in inner}
    return defaults | {
        name: checked(inner, properties[name], f"the argument {name!r} of {what}") for name, inner in present.items()
    }


def check_characters(value: object, what: str) -> None:
    """Raise :class:`ConfigError` about ``what`` if a text or JSON value has characters that no stored text can have."""
    if isinstance(value, str) and (match := _NO_TEXT.search(value)) is not None:
        name = "a NUL character" if match[0] == "\0" else "half of a surrogate pair"
        raise ConfigError(f"{what} holds {name} (U+{ord(match[0]):04X}): leave it out")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            check_characters(key, what)
            check_characters(inner, what)
    elif isinstance(value, list):
        for inner in value:
            check_characters(inner, what)


def _is_valid(value: Any, schema: Schema) -> bool:
    kind = schema["type"]
    if not isinstance(value, _SCHEMA_TYPES[kind].classes) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if ("enum" in schema and value not in schema["enum"]) or (kind == "integer" and value % 1 != 0):
        return False
    least, most = _SCHEMA_TYPES[kind].limits
    size = len(value) if isinstance(value, Sized) else value
    within = schema.get(least, -_LARGEST) <= size <= schema.get(most, _LARGEST)
    return within and ("pattern" not in schema or re.search(schema["pattern"], value) is not None)


def expected(schema: Schema) -> str:
    """Return what a schema allows, as a part of a sentence."""
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    _, name, unit, limits = _SCHEMA_TYPES[schema["type"]]
    least, most = map(schema.get, limits)
    if least is None and most is None:
        return name
    if unit:
        return f"{name} with {least or 0:,} {'or more' if most is None else f'to {most:,}'} {unit}"
    return f"{name}, {least:,} or more" if most is None else f"{name} from {least:,} to {most:,}"


def shown(value: object) -> str:
    """Return the beginning of an argument as it is written in an error message."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")
    if isinstance(value, bool | int | float):
        text = repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a huge number"
        return text.lower() if isinstance(value, bool) else text
    return "an array" if isinstance(value, list) else "an object"
