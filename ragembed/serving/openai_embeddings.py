"""Embeddings in the form of OpenAI's API. A model is a store: its embedder makes the vectors.

The model ``NAME`` or ``NAME:document`` encodes documents of the store ``NAME``, and ``NAME:query`` queries. The request
can say the same with ``input_type``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragembed.errors import ConfigError
from ragembed.indexes.types import VectorEncoder
from ragembed.models.token_counting import estimated_tokens
from ragembed.serving.stores import ServedStore, UnknownNameError
from ragembed.serving.tool_schemas import (
    INTEGER,
    OBJECT,
    TEXT,
    Schema,
    array_of,
    check_characters,
    object_schema,
    shown,
    whole_object,
)
from ragembed.types import Floats

MOST_TEXTS = 2048
_SIDES = ("document", "query")
_FORMATS = ("float", "base64")
_REQUIRED = {"model": "the name of a store", "input": "a text or a list of texts"}

_INPUT: Schema = {**TEXT, "minLength": 1}
REQUEST: Schema = object_schema(
    {
        "model": {**TEXT, "description": "NAME, NAME:document or NAME:query of a store NAME"},
        "input": {"anyOf": [_INPUT, {**array_of(_INPUT), "minItems": 1, "maxItems": MOST_TEXTS}]},
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


@dataclass(frozen=True, slots=True)
class _EmbeddingRequest:
    store: ServedStore
    side: str
    texts: Sequence[str]
    as_base64: bool
    dimensions: int | None
    model: str


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
    request = _parsed(stores, body)
    vectors = _encoded(request.store.open().embedder, request)
    if request.dimensions not in (None, vectors.shape[1]):
        raise ConfigError(
            f"dimensions is {request.dimensions}: the vectors of {request.store.name} have {vectors.shape[1]}"
        )
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _as_base64(vector) if request.as_base64 else vector.tolist(),
        }
        for index, vector in enumerate(vectors)
    ]
    tokens = sum(map(estimated_tokens, request.texts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": request.model, "data": data, "usage": usage}


def _encoded(embedder: VectorEncoder, request: _EmbeddingRequest) -> Floats:
    texts = list(request.texts)
    if request.side == "query":
        return embedder.encode_queries(texts)
    return embedder.encode_documents(texts)


def _as_base64(vector: Floats) -> str:
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()


def _parsed(stores: Mapping[str, ServedStore], body: Mapping[str, Any]) -> _EmbeddingRequest:
    for name in body:
        if name not in REQUEST["properties"]:
            known = ", ".join(REQUEST["properties"])
            raise ConfigError(f"unknown argument {name[:60]!r}: expected one of {known}")
    for name in REQUEST["required"]:
        if body.get(name) is None:
            raise ConfigError(f"the argument {name!r} of embeddings is missing: expected {_REQUIRED[name]}")
    name, side = _model(stores, body["model"])
    given = body.get("input_type")
    if given is not None and given not in _SIDES:
        raise ConfigError(f"input_type is {shown(given)}: expected one of {', '.join(_SIDES)}")
    if given is not None and side not in (None, given):
        raise ConfigError(f"input_type is {given!r}, but the model is for a {side}: leave one of them out")
    encoding = body.get("encoding_format", "float")
    if encoding not in _FORMATS:
        raise ConfigError(f"encoding_format is {shown(encoding)}: expected one of {', '.join(_FORMATS)}")
    dimensions = body.get("dimensions")
    if dimensions is not None and (not isinstance(dimensions, int) or isinstance(dimensions, bool)):
        raise ConfigError(f"dimensions is {shown(dimensions)}: expected an integer")
    texts = _texts(body["input"])
    return _EmbeddingRequest(stores[name], given or side or "document", texts, encoding == "base64", dimensions, name)


def _model(stores: Mapping[str, ServedStore], model: object) -> tuple[str, str | None]:
    """Return the store and the side that a model names."""
    if not isinstance(model, str):
        raise ConfigError(f"model is {shown(model)}: expected the name of a store, such as {next(iter(stores))!r}")
    name, colon, side = model.partition(":")
    if name not in stores or (colon and side not in _SIDES):
        known = ", ".join(f"{store}, {store}:document, {store}:query" for store in stores)
        raise UnknownNameError(f"unknown model {shown(model)}: expected one of {known}")
    return name, side or None


def _texts(given: object) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if isinstance(texts, list) and texts and _are_tokens(texts):
        raise ConfigError("input holds token numbers, which belong to another tokenizer: send texts")
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ConfigError("input is not a text or a list of texts: expected texts with one character or more")
    if not 1 <= len(texts) <= MOST_TEXTS:
        raise ConfigError(f"input has {len(texts):,} texts: expected 1 to {MOST_TEXTS:,}")
    check_characters(texts, "input")
    return texts


def _are_tokens(values: Sequence[object]) -> bool:
    return all(
        isinstance(value, int) or (isinstance(value, list) and value and isinstance(value[0], int)) for value in values
    )
