"""Read folders of langchain-community's FAISS store: ``index.faiss`` (vectors) and ``index.pkl`` (documents).

``index.pkl`` is a pickle; :mod:`ragembed.langchain.restricted_pickle` reads it without executing anything in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from functools import partial
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np
from langchain_core.documents import Document

from ragembed.errors import StoreDamagedError, StoreError, StoreNotFoundError
from ragembed.indexes.ann.foreign import read_vectors
from ragembed.langchain.restricted_pickle import StandIn, load
from ragembed.types import Floats

_MAX_DEPTH = 100
_VALUE_COST = 50
"""Cost of a value in addition to the length of its text, roughly in bytes."""
_MIN_BUDGET, _BUDGET_PER_BYTE = 2**24, 64
_SHOWN = 80


@dataclass(frozen=True)
class CommunityFolder:
    """The documents of a folder, in order of position, and their vectors, float32, shape ``(n, d)``, not normalised.

    ``dropped`` counts vectors without a document and documents without a vector. langchain-community leaves them behind
    if an addition fails, and then assigns wrong vectors to later additions. If ``dropped`` is not 0, use only the
    texts.
    """

    documents: list[Document]
    vectors: Floats
    dropped: int


def is_folder(folder: Path, index_name: str = "index") -> bool:
    """Return whether ``folder`` has at least one of the two files; :func:`read_folder` raises if one is missing."""
    return any((folder / f"{index_name}{suffix}").is_file() for suffix in (".faiss", ".pkl"))


def read_folder(folder: Path, index_name: str = "index") -> CommunityFolder:
    """Read a folder that ``save_local`` of langchain-community wrote, without executing anything in it.

    Raises
    ------
    StoreNotFoundError
        If a file is missing.
    StoreDamagedError
        If a file is damaged, or the two files do not belong together.
    StoreError, ConfigError
        If the documents or the kind of index cannot be converted.
    """
    vectors_file, documents_file = folder / f"{index_name}.faiss", folder / f"{index_name}.pkl"
    for file in (vectors_file, documents_file):
        if not file.is_file():
            raise StoreNotFoundError(f"no {file.name} in {folder}: {_other_names(folder)}")
    remaining, id_at = read_docstore(documents_file)
    vectors = read_vectors(vectors_file)
    beyond = [position for position in id_at if position >= len(vectors)]
    if beyond:
        raise StoreDamagedError(
            f"{documents_file} has a document at position {min(beyond)}, but {vectors_file} has {len(vectors)} "
            "vectors: the files do not belong together; save the store again"
        )
    positions, documents = [], []
    for position in sorted(id_at):
        if (document := remaining.pop(id_at[position], None)) is not None:
            positions.append(position)
            documents.append(document)
    dropped = len(vectors) - len(positions) + len(remaining)
    return CommunityFolder(documents, vectors if len(positions) == len(vectors) else vectors[positions], dropped)


def read_docstore(file: Path) -> tuple[dict[str, Document], dict[int, str]]:
    """Read an ``index.pkl`` of any version of langchain-community: documents by id, and ids by position.

    Metadata are converted to JSON values: dates and times to ISO text, durations to seconds, paths and UUIDs to text,
    NumPy scalars and decimals to numbers, tuples and sets to lists (sets sorted), and NaN to None. Ids that are
    integers or UUIDs become text.

    Raises
    ------
    StoreDamagedError
        If the file is truncated or not of this kind.
    StoreError
        If the file is too large, uses another class or function, or has metadata that cannot be converted.
    """
    saved = load(file, _NAMES)
    if type(saved) is not tuple or len(saved) != 2 or not _is_a(saved[0], _DOCSTORES):
        raise _unexpected(file, f"a {_type_name(saved)}")
    docstore, positions = saved
    found = docstore.state.get("_dict") if type(docstore.state) is dict else None
    if type(found) is not dict or type(positions) is not dict:
        raise _unexpected(file, "no documents, or no positions")
    converter = _Converter(_MIN_BUDGET + _BUDGET_PER_BYTE * file.stat().st_size)
    documents: dict[str, Document] = {}
    for key, value in found.items():
        document_id = _document_id(key, file)
        if document_id in documents:
            raise _unexpected(file, f"two documents whose id is {document_id[:_SHOWN]!r} as text")
        documents[document_id] = _document(document_id, value, converter, file)
    for position in positions:
        if type(position) is not int or position < 0:
            raise _unexpected(file, f"a position of type {type(position).__name__} or below 0")
    return documents, {position: _document_id(value, file) for position, value in positions.items()}


def _document(document_id: str, value: Any, converter: _Converter, file: Path) -> Document:
    shown = repr(document_id[:_SHOWN])
    fields = value.state.get("__dict__") if _is_a(value, _DOCUMENTS) and type(value.state) is dict else None
    if type(fields) is not dict:
        raise _unexpected(file, f"a {_type_name(value)} under the id {shown}")
    text, metadata = fields.get("page_content"), _mapping(fields.get("metadata", {}))
    if type(text) is not str or metadata is None:
        raise _unexpected(file, f"a document {shown} without text or without metadata")
    place, converted = "the text", {}
    try:
        converter.value(text)
        text.encode()
        for key, item in metadata.items():
            place = "a key of the metadata"
            name = _identifier(key)
            place = f"the metadata {name[:_SHOWN]!r}"
            converted[name] = converter.value(item)
    except UnicodeEncodeError as error:
        raise _unexpected(file, f"a document {shown} whose text is not valid Unicode") from error
    except _NotJsonError as error:
        raise StoreError(
            f"{file}: {place} of document {shown} {error}; expected text, numbers, dates, paths, or lists and "
            "dictionaries of these: change it with langchain-community and save the store again"
        ) from error
    return Document(page_content=text, id=document_id, metadata=converted)


def _document_id(value: Any, file: Path) -> str:
    try:
        return _identifier(value)
    except _NotJsonError as error:
        raise _unexpected(file, f"a document's id that {error}") from error


def _unexpected(file: Path, found: str) -> StoreDamagedError:
    return StoreDamagedError(f"{file} contains {found}: expected an InMemoryDocstore of documents and their positions")


def _other_names(folder: Path) -> str:
    names = sorted(file.stem for file in folder.glob("*.faiss") if file.with_suffix(".pkl").is_file())
    if not names:
        return "expected both files that save_local of langchain-community writes"
    return f"found {', '.join(map(repr, names))}; give one of these as index_name"


# JSON values


class _NotJsonError(ValueError):
    """A value cannot be converted to JSON; the message is a predicate such as ``is of type bytes``."""


class _Converter:
    """Convert unpickled values to JSON values, with a common limit on their total cost."""

    def __init__(self, budget: int) -> None:
        self._left = budget

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return ``value`` as a JSON value, or raise :class:`_NotJsonError`."""
        kind = type(value)
        self._left -= _VALUE_COST + (len(value) if kind is str else 0)
        if self._left < 0:
            raise _NotJsonError("has too many values: the file repeats the same values many times")
        if depth > _MAX_DEPTH:
            raise _NotJsonError(f"is nested more than {_MAX_DEPTH} deep")
        if kind in (list, tuple):
            return [self.value(item, depth + 1) for item in value]
        if _is_a(value, _SETS) and len(value.arguments) == 1 and type(value.arguments[0]) is list:
            kind, value = set, value.arguments[0]
        if kind in (set, frozenset):
            members = [self.value(item, depth + 1) for item in value]
            return sorted(members, key=repr)  # the order of a set differs between processes
        if (items := _mapping(value)) is not None:
            return {_key(key): self.value(item, depth + 1) for key, item in items.items()}
        return _scalar(value)


def _mapping(value: Any) -> dict[Any, Any] | None:
    if _is_a(value, _DICTS):
        return dict(value.items)
    return value if type(value) is dict else None


def _identifier(value: Any) -> str:
    """Convert an id to text."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return str(value)
    if _is_a(value, {"uuid.UUID"}):
        value = _scalar(value)
    if type(value) is not str:
        raise _NotJsonError(f"is of type {_type_name(value)}: expected text")
    return value


def _key(value: Any) -> str:
    try:
        return _identifier(value)
    except _NotJsonError as error:
        raise _NotJsonError(f"has a key that {error}") from error


def _scalar(value: Any) -> Any:
    if _is_a(value, _SCALARS):
        try:
            value = _SCALARS[value.name](value)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise _NotJsonError(f"is not a valid {value.name}: {str(error)[:_SHOWN]}") from error
    if type(value) is float and math.isnan(value):
        return None
    if type(value) is float and math.isinf(value):
        raise _NotJsonError(f"is {value}")
    if value is not None and type(value) not in (str, int, bool, float):
        raise _NotJsonError(f"is of type {_type_name(value)}")
    return value


def _is_a(value: Any, names: Mapping[str, Any] | frozenset[str] | set[str]) -> bool:
    return isinstance(value, StandIn) and value.name in names


def _type_name(value: Any) -> str:
    return value.name if isinstance(value, StandIn) else type(value).__name__


def _moment(kind: type[date] | type[time], made: StandIn) -> str:
    """Convert a date or time, which pickle stores as bytes, to ISO text; ``fromisoformat`` checks the range."""
    packed, *zone = made.arguments
    if type(packed) is not bytes:
        raise TypeError(f"made of a {type(packed).__name__}")
    return kind.fromisoformat(kind(packed, *map(_timezone, zone)).isoformat()).isoformat()  # type: ignore[arg-type]


def _timezone(made: Any) -> timezone | None:
    if made is None:
        return None
    if not _is_a(made, {"datetime.timezone"}):
        raise TypeError(f"{_type_name(made)} is not a time zone")
    return timezone(_timedelta(made.arguments[0]))


def _timedelta(made: Any) -> timedelta:
    if not _is_a(made, {"datetime.timedelta"}):
        raise TypeError(f"{_type_name(made)} is not a duration")
    days, seconds, microseconds = made.arguments
    return timedelta(days, seconds, microseconds)


def _numpy_scalar(made: StandIn) -> Any:
    dtype, data = made.arguments
    (code, *_), order = dtype.arguments, dtype.state[1]
    if not re.fullmatch("b1|[iu][1248]|f[248]|U[0-9]{1,9}", code) or order not in ("<", ">", "|"):
        raise ValueError(f"its type is {code!r}")
    if code == "U0":
        return ""
    (value,) = np.frombuffer(data, dtype=np.dtype(order + code)).tolist()
    return value


def _path(kind: type[PurePath], made: StandIn) -> str:
    return str(kind(*made.arguments))


_SCALARS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "datetime.date": lambda made: _moment(date, made),
        "datetime.time": lambda made: _moment(time, made),
        "datetime.datetime": lambda made: _moment(datetime, made),
        "datetime.timedelta": lambda made: _timedelta(made).total_seconds(),
        "datetime.timezone": lambda made: str(_timezone(made)),
        "decimal.Decimal": lambda made: float(*made.arguments),
        "uuid.UUID": lambda made: str(UUID(int=made.state["int"])),
        **{
            f"{module}.{prefix}{kind.__name__.removeprefix('Pure')}": partial(_path, kind)
            for module in ("pathlib", "pathlib._local")
            for prefix in ("", "Pure")
            for kind in (PurePosixPath, PureWindowsPath)
        },
        **{f"{package}.multiarray.scalar": _numpy_scalar for package in ("numpy.core", "numpy._core")},
    }
)
"""Functions that convert the objects allowed in metadata to text or numbers."""

_DICTS = frozenset({"collections.OrderedDict", "collections.defaultdict"})
_SETS = frozenset({"builtins.set", "builtins.frozenset"})
_DOCSTORES = frozenset(
    f"{package}.docstore.in_memory.InMemoryDocstore"
    for package in ("langchain", "langchain_classic", "langchain_community")
)
_DOCUMENTS = frozenset(
    f"{module}.Document"
    for module in (
        *(f"{package}.schema" for package in ("langchain", "langchain_classic", "langchain_core")),
        *(f"{package}.schema.document" for package in ("langchain", "langchain_classic", "langchain_core")),
        *(f"{package}.docstore.document" for package in ("langchain", "langchain_classic", "langchain_community")),
        "langchain_core.documents",
        "langchain_core.documents.base",
    )
)
_FACTORIES = frozenset(f"builtins.{name}" for name in ("bool", "dict", "float", "int", "list", "str"))
"""Allowed default factories of a defaultdict."""

_NAMES = frozenset({*_DOCSTORES, *_DOCUMENTS, *_DICTS, *_SETS, *_FACTORIES, *_SCALARS, "numpy.dtype"})
"""All allowed classes and functions."""
