"""Writing ``index.pkl`` as langchain-community does, without having its classes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError
from ragembed.files import replace_file
from ragembed.langchain.community.documents import PickledDocument
from ragembed.langchain.community.opcodes import CODES, Global, Made
from ragembed.langchain.community.values import JsonValues, NotJsonError

_DOCSTORE = Global("langchain_community.docstore.in_memory", "InMemoryDocstore")
_DOCUMENT = Global("langchain_core.documents.base", "Document")
_PROTOCOL = 4
_REPEATED = 256
"""Texts up to this length are written once each: those that come again are short."""
_FLOAT = struct.Struct(">d")
_SHOWN = 80


def write_docstore(file: Path, documents: Sequence[PickledDocument]) -> None:
    """Write an ``index.pkl`` in which ``documents`` have the positions from 0 on, whole or not at all.

    It is for a langchain-core whose documents are of pydantic 2. Raises :class:`ConfigError` for metadata that are no
    JSON values, naming the document.
    """
    saved = (
        Made(_DOCSTORE, state={"_dict": {document.id: _made(document) for document in documents}}),
        dict(enumerate(document.id for document in documents)),
    )
    replace_file(file, dumps(saved))


def _made(document: PickledDocument) -> Made:
    values = JsonValues()
    metadata = {key: _json(values, key, value, document.id) for key, value in document.metadata.items()}
    state = {
        "__dict__": {"id": document.id, "metadata": metadata, "page_content": document.text, "type": "Document"},
        "__pydantic_extra__": None,
        "__pydantic_fields_set__": {"id", "metadata", "page_content"},
        "__pydantic_private__": None,
    }
    return Made(_DOCUMENT, state=state)


def _json(values: JsonValues, key: str, value: Any, document: str) -> Any:
    try:
        return values.of(value)
    except NotJsonError as error:
        raise ConfigError(
            f"the metadata {key[:_SHOWN]!r} of document {document[:_SHOWN]!r} {error}; expected text, numbers, None, "
            "and lists and dictionaries of these"
        ) from error


def dumps(value: Any) -> bytes:
    """Return ``value`` as a pickle of protocol 4.

    It may be None, a number, a text, a list, tuple, set or dictionary of such, or a :class:`Made` of state but without
    items. Raises TypeError for others.
    """
    writer = _Writer()
    writer.put(value)
    return b"".join([_op("PROTO"), bytes([_PROTOCOL]), *writer.parts, _op("STOP")])


class _Writer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._known: dict[str | Global, int] = {}

    def put(self, value: Any) -> None:
        kind = type(value)
        if kind is str:
            self._text(value)
        elif value is None or kind is bool:
            self.parts.append(_CONSTANTS[value])
        elif kind is int:
            self.parts.append(_integer(value))
        elif kind is float:
            self.parts += (_op("BINFLOAT"), _FLOAT.pack(value))
        elif kind is list:
            self._filled("EMPTY_LIST", value, "APPENDS")
        elif kind is dict:
            self._filled("EMPTY_DICT", chain.from_iterable(value.items()), "SETITEMS")
        elif kind is set:
            self._filled("EMPTY_SET", sorted(value), "ADDITEMS")
        elif kind is tuple:
            self._marked(value, "TUPLE")
        elif kind is Made:
            self._made(value)
        else:
            raise TypeError(f"a {kind.__name__} is not written")

    def _filled(self, empty: str, items: Iterable[Any], fill: str) -> None:
        self.parts.append(_op(empty))
        self._marked(items, fill)

    def _marked(self, items: Iterable[Any], end: str) -> None:
        self.parts.append(_op("MARK"))
        for item in items:
            self.put(item)
        self.parts.append(_op(end))

    def _text(self, text: str) -> None:
        if text in self._known:
            self._recall(text)
            return
        data = text.encode("utf-8", "surrogatepass")
        self.parts += (_sized(data, "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"), data)
        if len(text) <= _REPEATED:
            self._remember(text)

    def _made(self, made: Made) -> None:
        if made.by in self._known:
            self._recall(made.by)
        else:
            self._text(made.by.module)
            self._text(made.by.name)
            self.parts.append(_op("STACK_GLOBAL"))
            self._remember(made.by)
        self.put(made.arguments)
        self.parts.append(_op("NEWOBJ"))
        self.put(made.state)
        self.parts.append(_op("BUILD"))

    def _remember(self, value: str | Global) -> None:
        self._known[value] = len(self._known)
        self.parts.append(_op("MEMOIZE"))

    def _recall(self, value: str | Global) -> None:
        index = self._known[value]
        name, width = ("BINGET", 1) if index < 256 else ("LONG_BINGET", 4)
        self.parts += (_op(name), index.to_bytes(width, "little"))


def _op(name: str) -> bytes:
    return _OPS[name]


def _integer(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return _op("BININT") + value.to_bytes(4, "little", signed=True)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return _sized(data, "LONG1", "LONG4") + data


def _sized(data: bytes, *names: str) -> bytes:
    """Return the first opcode whose length field, of 1, 4 or 8 bytes, has room for that of ``data``, and the length."""
    widths = dict(zip((1, 4, 8), names, strict=False))
    width, name = next((width, name) for width, name in widths.items() if len(data) < 256**width)
    return _op(name) + len(data).to_bytes(width, "little")


_OPS = {name: bytes([code]) for name, code in CODES.items()}
_CONSTANTS = {None: _OPS["NONE"], True: _OPS["NEWTRUE"], False: _OPS["NEWFALSE"]}
