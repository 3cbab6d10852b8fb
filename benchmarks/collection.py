"""Where the test collections are, and a collection as a folder of files."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from urllib.parse import quote, unquote

from ragembed.evaluation import RetrievalCollection

ROOT = Path(__file__).resolve().parent.parent
TEST_DATA = Path(os.environ.get("RAGEMBED_TEST_DATA", ROOT.parent / "shared" / "data"))


def write_files(collection: RetrievalCollection, folder: Path, limit: int | None = None) -> Path:
    """Write the documents, or the first ``limit``, as one file each into the new folder ``folder``, and return it.

    A file has the name of its document's id and the ending ``.txt``; :func:`document_id` takes it back.
    """
    folder.mkdir(parents=True)
    for key, text in islice(collection.documents.items(), limit):
        (folder / f"{quote(key, safe='')}.txt").write_text(text, encoding="utf-8", newline="")
    return folder


def document_id(file: str) -> str:
    """Return the id of the document in a file of :func:`write_files`."""
    return unquote(Path(file).name.removesuffix(".txt"))
