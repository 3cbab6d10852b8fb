"""Reading ``index.pkl``: documents, and which of them stands where in the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragembed.errors import StoreDamagedError, StoreError
from ragembed.langchain.community.documents import PickledDocument
from ragembed.langchain.community.machine import BrokenPickleError, RefusedPickleError, load
from ragembed.langchain.community.opcodes import Made
from ragembed.langchain.community.values import (
    ALLOWED,
    DOCSTORES,
    DOCUMENTS,
    JsonValues,
    NotJsonError,
    identifier,
    mapping,
)

_FEWEST_VALUES, _VALUES_PER_BYTE = 1_000_000, 10
_SHOWN = 80


def read_docstore(file: Path) -> tuple[dict[str, PickledDocument], dict[int, str]]:
    """Return the documents by id, and the ids by position, of the ``index.pkl`` of any version of langchain-community.

    The file is read as data: nothing that it names is imported, called or changed. In metadata, dates and times become
    ISO text, durations seconds, paths and UUIDs text, NumPy's scalars and decimals numbers, sets and tuples lists, and
    NaN None; ids that are integers or UUIDs become text.

    Raises
    ------
    StoreDamagedError
        Where the file is broken off, or is not such a file.
    StoreError
        Where it names anything else than documents and such values, or metadata have no place in JSON.
    """
    data = file.read_bytes()
    try:
        saved = load(data, ALLOWED)
    except BrokenPickleError as error:
        raise StoreDamagedError(
            f"{file} {error}: expected an index.pkl that langchain-community wrote; save the store again"
        ) from error
    except RefusedPickleError as error:
        raise StoreError(
            f"{file} {error}, which saved documents and plain metadata do not need; nothing of the file was executed: "
            "if you trust where it is from, make the metadata plain values with langchain-community and save it again"
        ) from error
    docstore, ids = _halves(saved, file)
    values = JsonValues(_FEWEST_VALUES + _VALUES_PER_BYTE * len(data))
    documents: dict[str, PickledDocument] = {}
    for key, made in docstore.items():
        document = _document(_id(key, file), made, values, file)
        if document.id in documents:
            raise _unexpected(file, f"two documents whose id is {document.id[:_SHOWN]!r} as text")
        documents[document.id] = document
    return documents, {_position(key, file): _id(value, file) for key, value in ids.items()}


def _halves(saved: Any, file: Path) -> tuple[dict[Any, Any], dict[Any, Any]]:
    if type(saved) is not tuple or len(saved) != 2:
        raise _unexpected(file, f"a {type(saved).__name__}")
    docstore, ids = saved
    if type(docstore) is not Made or docstore.by not in DOCSTORES:
        raise _unexpected(file, f"a {docstore.by if type(docstore) is Made else type(docstore).__name__}")
    documents = docstore.state.get("_dict") if type(docstore.state) is dict else None
    if type(documents) is not dict or type(ids) is not dict:
        raise _unexpected(file, "no documents, or no positions")
    return documents, ids


def _document(key: str, made: Any, values: JsonValues, file: Path) -> PickledDocument:
    shown = f"{key[:_SHOWN]!r}"
    if type(made) is not Made or made.by not in DOCUMENTS:
        raise _unexpected(file, f"under the id {shown} what is no document")
    fields = made.state.get("__dict__") if type(made.state) is dict else None
    text, metadata = (fields.get("page_content"), fields.get("metadata", {})) if type(fields) is dict else (None, None)
    if type(text) is not str or mapping(metadata) is None:
        raise _unexpected(file, f"a document {shown} without text or without metadata")
    return PickledDocument(key, text, _metadata(shown, metadata, values, file))


def _metadata(document: str, metadata: Any, values: JsonValues, file: Path) -> dict[str, Any]:
    result = {}
    for key, value in (mapping(metadata) or {}).items():
        try:
            name = identifier(key)
        except NotJsonError as error:
            raise _not_json(file, f"a key of the metadata of document {document}", error) from error
        try:
            result[name] = values.of(value)
        except NotJsonError as error:
            raise _not_json(file, f"the metadata {name[:_SHOWN]!r} of document {document}", error) from error
    return result


def _id(value: Any, file: Path) -> str:
    try:
        return identifier(value)
    except NotJsonError as error:
        raise _unexpected(file, f"a document's id that {error}") from error


def _position(value: Any, file: Path) -> int:
    if type(value) is not int or value < 0:
        raise _unexpected(file, f"a position of type {type(value).__name__} or below 0")
    return value


def _not_json(file: Path, what: str, error: NotJsonError) -> StoreError:
    return StoreError(
        f"{file}: {what} {error}; expected text, numbers, dates, paths, and lists and dictionaries of these: change it "
        "with langchain-community and save the store again"
    )


def _unexpected(file: Path, found: str) -> StoreDamagedError:
    return StoreDamagedError(f"{file} holds {found}: expected an InMemoryDocstore of documents and their positions")
