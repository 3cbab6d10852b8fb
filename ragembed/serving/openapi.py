"""The description of the HTTP API: OpenAPI 3.1, and a page for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from ragembed.html_elements import as_html, element, table
from ragembed.serving import http_answers, pushed_documents
from ragembed.serving.tool_schemas import ENDPOINTS, TEXT, Endpoint, Schema, expected, object_schema
from ragembed.version import __version__

_JSON = "application/json"
_NULL: Schema = {"type": "null"}
_ERROR: Schema = object_schema(
    {"error": object_schema({"message": TEXT, "type": TEXT, "param": _NULL, "code": _NULL}, ["message", "type"])},
    ["error"],
)
_PROBLEMS = {
    "400": "An argument is wrong; the message says how",
    "401": "The bearer token is missing or wrong",
    "403": "The request comes from a page of another origin",
    "404": "The store has no such chunk, file or document",
    "413": "The body is too large",
    "415": "The body is not JSON",
    "421": "The Host header does not name this server",
    "429": "Too many requests are waiting",
    "503": "A store cannot be read, or another process writes to it",
    "504": "The answer took too long",
}
STYLE = """body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 56rem; padding: 0 1rem }
table { border-collapse: collapse } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top }
:root { color-scheme: light dark }
"""
STYLE_PATH = "/docs/style.css"


def description(stores: Sequence[str], *, writable: bool, has_tokens: bool) -> dict[str, Any]:
    """Return the OpenAPI description of a server."""
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS.values():
        paths[endpoint.path] = {method.lower(): _operation(endpoint, method, stores) for method in endpoint.methods}
    paths["/v1/embeddings"] = {
        "post": _described(
            "embeddings",
            "Encode texts with the embedder of a store, in the form of OpenAI's API.",
            http_answers.ANSWER,
            body=http_answers.REQUEST,
        )
    }
    paths["/v1/models"] = {
        "get": _described("models", "List the models of /v1/embeddings.", http_answers.MODELS, problems=())
    }
    name = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    paths["/v1/models/{id}"] = {
        "get": _described(
            "model", "A model of /v1/embeddings.", http_answers.MODEL, parameters=[name], problems=("401", "404")
        )
    }
    if writable:
        for path, methods in _writing_paths(stores).items():
            paths[path] = {**paths.get(path, {}), **methods}
    security: dict[str, Any] = {
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "ragembed", "version": __version__, "description": f"Stores: {', '.join(stores)}"},
        "paths": paths,
        **(security if has_tokens else {}),
    }


def as_page(api: Mapping[str, Any]) -> bytes:
    """Return an HTML page that lists the operations. It has no scripts."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("title", "ragembed API"),
        element("link", rel="stylesheet", href=STYLE_PATH),
    )
    body = element(
        "body",
        element("h1", f"ragembed {api['info']['version']}"),
        element("p", api["info"]["description"]),
        element("p", "OpenAPI: ", element("a", "/openapi.json", href="/openapi.json")),
        element("p", "Others: /mcp, /metrics, /healthz, /readyz"),
        *(part for path, methods in api["paths"].items() for part in _section(path, methods)),
    )
    return b"<!doctype html>" + as_html(element("html", head, body, lang="en"))


def _section(path: str, methods: Mapping[str, Any]) -> Iterator[Element]:
    yield element("h2", f"{', '.join(map(str.upper, methods))} {path}")
    yield element("p", next(iter(methods.values()))["summary"])
    if rows := [row for operation in methods.values() for row in _rows(operation)]:
        yield table(("name", "value", ""), dict.fromkeys(rows))


def _rows(operation: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    body = operation.get("requestBody", {}).get("content", {}).get(_JSON, {}).get("schema", {})
    arguments = [(each["name"], each["schema"], each.get("required")) for each in operation.get("parameters", ())]
    arguments += [
        (name, schema, name in body.get("required", ())) for name, schema in body.get("properties", {}).items()
    ]
    for name, schema, required in arguments:
        shown = expected(schema) if "type" in schema else "text or an array of texts"
        default = f", default {schema['default']}" if "default" in schema else ""
        yield f"{name} (required)" if required else name, f"{shown}{default}", schema.get("description", "")


def _operation(endpoint: Endpoint, method: str, stores: Sequence[str]) -> dict[str, Any]:
    schema = endpoint.full_schema(stores)
    arguments = schema["properties"]
    required = schema.get("required", ())
    if method == "POST":
        body: Schema = {"type": "object", "properties": arguments, "additionalProperties": False}
        if required:
            body["required"] = list(required)
        return _described(f"{endpoint.name}_post", endpoint.description, endpoint.answer, body=body)
    parameters = [
        {
            "name": name,
            "in": "path" if f"{{{name}}}" in endpoint.path else "query",
            "required": name in required,
            "schema": argument,
        }
        for name, argument in arguments.items()
    ]
    return _described(endpoint.name, endpoint.description, endpoint.answer, parameters=parameters)


def _described(
    name: str,
    summary: str,
    answer: Schema,
    *,
    parameters: Sequence[Mapping[str, Any]] = (),
    body: Schema | None = None,
    problems: Sequence[str] = tuple(_PROBLEMS),
) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": "The answer", "content": {_JSON: {"schema": answer}}}}
    for status in problems:
        responses[status] = {"description": _PROBLEMS[status], "content": {_JSON: {"schema": _ERROR}}}
    request = {} if body is None else {"requestBody": {"required": True, "content": {_JSON: {"schema": body}}}}
    listed = {"parameters": list(parameters)} if parameters else {}
    return {"operationId": name, "summary": summary, **listed, **request, "responses": responses}


def _writing_paths(stores: Sequence[str]) -> dict[str, Any]:
    store = {"name": "store", "in": "query", "required": True, "schema": {"type": "string", "enum": list(stores)}}
    common = [store] if len(stores) > 1 else []
    named = [{"name": "id", "in": "path", "required": True, "schema": pushed_documents.ID}, *common]
    answer = pushed_documents.ANSWER
    put = "Add a document, or replace it."
    batch = "Add, replace and delete documents in one transaction."
    return {
        "/v1/documents/{id}": {
            "put": _described("put_document", put, answer, parameters=named, body=pushed_documents.DOCUMENT),
            "delete": _described("delete_document", "Delete a document.", answer, parameters=named),
        },
        "/v1/documents": {
            "post": _described("write_documents", batch, answer, parameters=common, body=pushed_documents.BATCH)
        },
    }
