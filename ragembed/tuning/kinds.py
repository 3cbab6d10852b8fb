"""What kind of file a passage is from, as far as its pseudo-queries depend on it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from ragembed.documents.readers.registry import BY_SUFFIX

Kind = Literal["prose", "code", "table"]

_KINDS: dict[str, Kind] = {"source": "code", "csv": "table", "jsonl": "table"}


def kind_of(file: str | None) -> Kind:
    """Return the kind of the file called ``file``; what is from no file is prose."""
    reader = None if file is None else BY_SUFFIX.get(PurePosixPath(file).suffix.lower())
    return "prose" if reader is None else _KINDS.get(reader.name, "prose")
