"""What the vector store's methods do with their arguments."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.documents import Document

from ragembed.errors import ConfigError

Item = TypeVar("Item")


def documents_of(texts: Iterable[str], metadatas: Iterable[Mapping[str, Any]] | None) -> list[Document]:
    """Return a document for each text; raises :class:`ConfigError` when the metadata are more or fewer."""
    listed_texts = listed("texts", texts)
    if metadatas is None:
        return [Document(page_content=text) for text in listed_texts]
    rows = list(metadatas)
    if len(rows) != len(listed_texts):
        raise ConfigError(f"got {len(rows)} metadatas for {len(listed_texts)} texts: expected one for each")
    return [Document(page_content=text, metadata=dict(row)) for text, row in zip(listed_texts, rows, strict=True)]


def chosen_ids(documents: Sequence[Document], ids: Iterable[str | None] | None) -> list[str]:
    """Return an id for each document: the one given, else its own, else a new UUID."""
    own = [document.id for document in documents]
    given = own if ids is None else listed("ids", ids)
    if len(given) != len(own):
        raise ConfigError(f"got {len(given)} ids for {len(own)} documents: expected one for each")
    first = [theirs if theirs is not None else its for theirs, its in zip(given, own, strict=True)]
    return [str(uuid.uuid4()) if chunk_id is None else str(chunk_id) for chunk_id in first]


def listed(name: str, values: Iterable[Item]) -> list[Item]:
    """Return ``values`` as a list; a single str, which would be taken apart into letters, is a ConfigError."""
    if isinstance(values, str):
        raise ConfigError(f"{name} is one str: put it in a list")
    return list(values)


def refuse(method: str, kwargs: Mapping[str, Any]) -> None:
    """Raise for keyword arguments that a method takes only because LangChain's signature has them."""
    for name in kwargs:
        raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")
