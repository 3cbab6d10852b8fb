"""Retrieval test collections in BEIR's format."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

ROOT = Path(__file__).resolve().parent.parent
TEST_DATA = Path(os.environ.get("RAGEMBED_TEST_DATA", ROOT.parent / "shared" / "data"))


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents and questions by their ids, and the relevance of documents by question.

    Only questions with a relevant document are kept, as each of the measures needs one.
    """

    name: str
    documents: dict[str, str]
    questions: dict[str, str]
    relevance: dict[str, dict[str, int]]

    @classmethod
    def read(cls, folder: Path, limit: int | None = None) -> Collection:
        """Read the BEIR folder ``folder``; ``limit`` keeps the first documents only, and the questions they answer.

        A document is its title, where it has one, an empty line, and its text.
        """
        documents: dict[str, str] = {}
        for row in islice(_json_lines(folder / "corpus.jsonl"), limit):
            if row["_id"] in documents:
                raise ValueError(f"{folder / 'corpus.jsonl'} holds two documents with the id {row['_id']!r}")
            documents[row["_id"]] = "\n\n".join(part for part in (row.get("title"), row["text"]) if part)
        relevance: dict[str, dict[str, int]] = {}
        with (folder / "qrels" / "test.tsv").open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
                if row["corpus-id"] in documents and int(row["score"]) > 0:
                    relevance.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
        texts = {row["_id"]: row["text"] for row in _json_lines(folder / "queries.jsonl")}
        questions = {key: texts[key] for key in relevance}
        if not questions:
            raise ValueError(f"no question of {folder} has a relevant document among the {len(documents)} read")
        return cls(folder.name, documents, questions, relevance)

    def write_files(self, folder: Path, limit: int | None = None) -> Path:
        """Write the documents, or the first ``limit``, as one file each into the new folder ``folder``, and return it.

        A file has the name of its document's id and the ending ``.txt``; :func:`document_id` takes it back.
        """
        folder.mkdir(parents=True)
        for key, text in islice(self.documents.items(), limit):
            (folder / f"{quote(key, safe='')}.txt").write_text(text, encoding="utf-8", newline="")
        return folder


def document_id(file: str) -> str:
    """Return the id of the document in a file of :meth:`Collection.write_files`."""
    return unquote(Path(file).name.removesuffix(".txt"))


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
