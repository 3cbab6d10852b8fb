"""The tools that an agent sees: names, descriptions, JSON schemas, and the check of the arguments.

Clients list the definitions before every conversation, so this module imports nothing heavy, and the definitions are
short: all of them together have at most 1,500 tokens. Schemas have no null unions, which some clients reject; a value
that is unknown is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragembed.errors import ConfigError

Schema = dict[str, Any]

DEFAULT_TOKENS, MOST_TOKENS = 2500, 10_000
"""Tokens of an answer: by default, and at most."""
_LEAST_TOKENS = 200
_MOST_CHARACTERS = 4000
_MOST_RESULTS = 100
_SHOWN = 60

_NO_TEXT = re.compile("[\\0\ud800-\udfff]")

TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_INTEGER: Schema = {"type": "integer"}
_BOOLEAN: Schema = {"type": "boolean"}
_TEXTS: Schema = {"type": "array", "items": TEXT}

EVERY = "all"
"""The name that stands for all served stores together."""

ID: Schema = {**TEXT, "description": "Id of a chunk, from an answer"}
_LINE: Schema = {"type": "integer", "minimum": 1}
K: Schema = {"type": "integer", "minimum": 1, "maximum": _MOST_RESULTS, "default": 10}
MODE: Schema = {"type": "string", "enum": ["hybrid", "dense", "lexical"], "default": "hybrid"}
WHERE: Schema = {**TEXT, "description": "Filter, e.g. ext = 'md' AND path GLOB 'docs/**'"}
_TOKENS: Schema = {"type": "integer", "minimum": _LEAST_TOKENS, "maximum": MOST_TOKENS, "default": DEFAULT_TOKENS}
_PAGES: Schema = {"max_tokens": _TOKENS, "cursor": {**TEXT, "description": "From the previous answer"}}


def object_schema(properties: Schema, required: Sequence[str] = ()) -> Schema:
    """Return the schema of an object."""
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


_PASSAGES: Schema = {
    "results": {
        "type": "array",
        "items": object_schema(
            {
                "id": TEXT,
                "path": TEXT,
                "start_line": _INTEGER,
                "end_line": _INTEGER,
                "headings": _TEXTS,
                "score": _NUMBER,
                "relevance": _NUMBER,
                "stale": _BOOLEAN,
                "text": TEXT,
            },
            ["id", "text"],
        ),
    },
    "cursor": TEXT,
    "note": TEXT,
}


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool: its name and description, and the schemas of its arguments and its structured answer."""

    name: str
    description: str
    arguments: Schema
    required: tuple[str, ...]
    answer: Schema
    together: bool = False
    """Whether the store ``all`` stands for all stores together."""

    def input_schema(self, stores: Sequence[str]) -> Schema:
        """Return the JSON schema of the arguments; ``stores`` are the names of the stores that are served."""
        return object_schema(self._properties(stores), self._required(stores))

    def checked(self, arguments: Mapping[str, Any], stores: Sequence[str]) -> dict[str, Any]:
        """Return the arguments with defaults, without those that are null; raise :class:`ConfigError` for others."""
        properties = self._properties(stores)
        given = {name: value for name, value in arguments.items() if value is not None}
        for name in given:
            if name not in properties:
                known = ", ".join(properties) or "none"
                raise ConfigError(f"unknown argument {shown(name)} of {self.name}: expected one of {known}")
        for name in self._required(stores):
            if name not in given:
                names = [*stores, EVERY] if self.together else stores
                expected = f"one of {', '.join(names)}" if name == "store" else _expected(properties[name])
                raise ConfigError(f"the argument {name!r} of {self.name} is missing: expected {expected}")
        for name, value in given.items():
            check_characters(value, f"the argument {name!r} of {self.name}")
            if not _is_valid(value, properties[name]):
                raise ConfigError(
                    f"the argument {name!r} of {self.name} is {shown(value)}: expected {_expected(properties[name])}"
                )
        _check_store(given, [*stores, EVERY] if self.together and len(stores) > 1 else stores)
        defaults = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
        return {**defaults, **{name: _converted(value, properties[name]) for name, value in given.items()}}

    def _properties(self, stores: Sequence[str]) -> Schema:
        if len(stores) == 1:
            return self.arguments
        store = {**TEXT, "description": f"{EVERY}: all stores together"} if self.together else TEXT
        return {"store": store, **self.arguments}

    def _required(self, stores: Sequence[str]) -> list[str]:
        return [*(["store"] if len(stores) > 1 and self.name != "status" else []), *self.required]


TOOLS: Mapping[str, ToolDefinition] = {
    tool.name: tool
    for tool in (
        ToolDefinition(
            "search",
            "Find passages by meaning and words in the indexed documents. Use it first to locate something. Answers "
            "the best passages with path, lines and text. stale: the file changed since it was indexed. relevance: "
            "0 to 1, weak below 0.5.",
            {"query": TEXT, "k": K, "mode": MODE, "where": WHERE, "min_relevance": SHARE, **_PAGES},
            ("query",),
            object_schema(_PASSAGES, ["results"]),
            together=True,
        ),
        ToolDefinition(
            "context",
            "Collect what to read before answering a question: passages widened to their sections, merged, without "
            "near-duplicates, within max_tokens. Use it instead of search and many get calls.",
            {"query": TEXT, "mode": MODE, "where": WHERE, "max_tokens": _TOKENS},
            ("query",),
            object_schema(
                {
                    "blocks": {
                        "type": "array",
                        "items": object_schema(
                            {
                                "path": TEXT,
                                "start_line": _INTEGER,
                                "end_line": _INTEGER,
                                "headings": _TEXTS,
                                "stale": _BOOLEAN,
                                "text": TEXT,
                            },
                            ["path", "text"],
                        ),
                    },
                    "left_out": _TEXTS,
                    "note": TEXT,
                },
                ["blocks"],
            ),
            together=True,
        ),
        ToolDefinition(
            "get",
            "Read the indexed text of a file, of some of its lines, or of one chunk. Give path or id from an answer.",
            {"path": TEXT, "start_line": _LINE, "end_line": _LINE, "id": TEXT, **_PAGES},
            (),
            object_schema(_PASSAGES, ["results"]),
        ),
        ToolDefinition(
            "similar",
            "Find passages that are like a passage you have: related sections, copies, other implementations.",
            {"id": TEXT, "k": K, "other_files": {"type": "boolean", "default": False}, **_PAGES},
            ("id",),
            object_schema(_PASSAGES, ["results"]),
        ),
        ToolDefinition(
            "why_not",
            "Explain why a file you expected is not among the results of a query: its rank in each mode, and the "
            "words in which the results score higher. Use it to rephrase a query.",
            {"query": TEXT, "path": TEXT, "k": K, "mode": MODE},
            ("query", "path"),
            object_schema(
                {
                    "path": TEXT,
                    "ranks": {
                        "type": "array",
                        "items": object_schema(
                            {"mode": TEXT, "rank": _INTEGER, "of": _INTEGER, "score": _NUMBER, "needed": _NUMBER},
                            ["mode", "of"],
                        ),
                    },
                    "weaker_words": _TEXTS,
                    "best_id": TEXT,
                    "note": TEXT,
                },
                ["path", "ranks", "weaker_words"],
            ),
        ),
        ToolDefinition(
            "status",
            "Show what is indexed: root folder of the paths, files, chunks, files changed since. Use it if results "
            "are missing.",
            {},
            (),
            object_schema(
                {
                    "stores": {
                        "type": "array",
                        "items": object_schema(
                            {
                                "name": TEXT,
                                "root": TEXT,
                                "files": _INTEGER,
                                "chunks": _INTEGER,
                                "changed_files": _INTEGER,
                                "problem": TEXT,
                            },
                            ["name", "root"],
                        ),
                    },
                },
                ["stores"],
            ),
        ),
    )
}
"""The tools by name."""


def chosen_store(arguments: Mapping[str, Any], stores: Sequence[str]) -> str:
    """Return the store that arguments without anything else name; raise :class:`ConfigError` if they do not."""
    if unknown := arguments.keys() - {"store"}:
        raise ConfigError(f"unknown argument {shown(min(unknown))}: expected store")
    if "store" not in arguments and len(stores) > 1:
        raise ConfigError(f"the argument 'store' is missing: expected one of {', '.join(stores)}")
    _check_store(arguments, stores)
    return str(arguments.get("store", stores[0]))


def _check_store(given: Mapping[str, Any], stores: Sequence[str]) -> None:
    if given.get("store", stores[0]) not in stores:
        raise ConfigError(f"unknown store {shown(given['store'])}: expected one of {', '.join(stores)}")


def check_characters(value: object, what: str) -> None:
    """Raise :class:`ConfigError` about ``what`` if a text or JSON value has characters that no stored text can have."""
    if isinstance(value, str) and (found := _NO_TEXT.search(value)) is not None:
        name = "a NUL character" if found[0] == "\0" else "half of a surrogate pair"
        raise ConfigError(f"{what} holds {name} (U+{ord(found[0]):04X}): leave it out")
    if isinstance(value, Mapping):
        for key, each in value.items():
            check_characters(key, what)
            check_characters(each, what)
    elif isinstance(value, list):
        for each in value:
            check_characters(each, what)


def _is_valid(value: object, schema: Schema) -> bool:
    if "enum" in schema:
        return isinstance(value, str) and value in schema["enum"]
    if schema["type"] == "boolean":
        return isinstance(value, bool)
    if schema["type"] == "number":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and schema["minimum"] <= value <= schema["maximum"]
    if schema["type"] == "integer":
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
        return whole and schema["minimum"] <= value <= schema.get("maximum", 2**53)
    return isinstance(value, str) and len(value) <= _MOST_CHARACTERS and bool(value.strip())


def _converted(value: Any, schema: Schema) -> Any:
    return int(value) if schema.get("type") == "integer" else value


def _expected(schema: Schema) -> str:
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if schema["type"] == "boolean":
        return "true or false"
    if schema["type"] == "number":
        return f"a number from {schema['minimum']:g} to {schema['maximum']:g}"
    if schema["type"] == "integer":
        most = schema.get("maximum")
        return f"an integer from {schema['minimum']:,} to {most:,}" if most else "an integer, 1 or more"
    return f"text with 1 to {_MOST_CHARACTERS:,} characters"


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
