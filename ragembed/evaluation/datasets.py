"""Readers of test collections for retrieval: BEIR folders, and judged queries with a file of documents.

All files are UTF-8. Every reader raises
:class:`ragembed.errors.ConfigError` with the file and the line if a file is not as expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import at_least
from ragembed.evaluation.judgements import JudgedQueries, beir_judgements, read_judged_queries, require_known
from ragembed.evaluation.lines import json_object, lines

_BELOW_TITLE = "\n\n"


@dataclass(frozen=True, slots=True)
class RetrievalCollection:
    """A test collection for retrieval: documents and queries by id, and for each query the gains of documents.

    A gain of 1 or more means relevant. A document with a title is the title, an empty line and the text. Queries
    without a relevant document are left out, because the measures are not defined for them; ``unanswered`` counts them.
    """

    name: str
    documents: dict[str, str]
    queries: dict[str, str]
    relevance: dict[str, dict[str, int]]
    titles: dict[str, str] = field(default_factory=dict)
    unanswered: int = 0

    def parts(self, document: str) -> tuple[str | None, str]:
        """Return the title of a document, None if it has none, and its text without the title."""
        title, whole = self.titles.get(document), self.documents[document]
        return title, whole if title is None else whole[len(title) :].removeprefix(_BELOW_TITLE)


def read_beir(folder: Path, limit: int | None = None, split: str = "test") -> RetrievalCollection:
    """Read a BEIR folder: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``.

    The queries are in the order of their first judgement. ``limit`` keeps only the first documents and their
    judgements.
    """
    if limit is not None:
        at_least(limit, 1, "limit")
    corpus = folder / "corpus.jsonl"
    if folder.is_dir() and not corpus.exists():
        raise ConfigError(
            f"{folder} has no corpus.jsonl: expected a BEIR folder with corpus.jsonl, queries.jsonl and "
            f"qrels/{split}.tsv"
        )
    documents, titles = _documents(corpus, limit)
    judged = read_beir_queries(folder, split)
    relevance = judged.relevance
    if limit is None:
        require_known(beir_qrels(folder, split), judged.documents, documents, corpus)
    else:
        known = {query: _among(documents, gains) for query, gains in relevance.items()}
        relevance = {query: gains for query, gains in known.items() if max(gains.values(), default=0) > 0}
    if not relevance:
        raise ConfigError(
            f"no query of {folder} has a relevant document among the {len(documents):,} documents read: "
            "read more documents"
        )
    queries = {query: judged.queries[query] for query in relevance}
    unanswered = judged.unanswered + len(judged.relevance) - len(relevance)
    return RetrievalCollection(folder.name, documents, queries, relevance, titles, unanswered)


def read_beir_queries(folder: Path, split: str = "test") -> JudgedQueries:
    """Read the queries and judgements of a BEIR folder without its documents."""
    path = beir_qrels(folder, split)
    splits = sorted(file.stem for file in path.parent.glob("*.tsv")) if not path.exists() else []
    if splits:
        raise ConfigError(f"{folder} has no split {split!r}: expected one of {', '.join(splits)}")
    texts = {key: row["text"] for key, row in _json_lines(folder / "queries.jsonl")}
    relevance: dict[str, dict[str, int]] = {}
    for number, query, document, gain in beir_judgements(path):
        if query not in texts:
            raise ConfigError(f"{path}, line {number}: queries.jsonl has no query {query!r}")
        relevance.setdefault(query, {})[document] = gain
    return JudgedQueries.of(folder.name, texts, relevance)


def beir_qrels(folder: Path, split: str = "test") -> Path:
    """Return the path of the judgements in a BEIR folder."""
    return folder / "qrels" / f"{split}.tsv"


def read_jsonl_collection(queries: Path, corpus: Path) -> RetrievalCollection:
    """Read judged queries, as :func:`read_judged_queries`, and a file of documents in the format of BEIR."""
    judged = read_judged_queries(queries)
    documents, titles = _documents(corpus)
    require_known(queries, judged.documents, documents, corpus)
    return RetrievalCollection(judged.name, documents, judged.queries, judged.relevance, titles, judged.unanswered)


def read_document_ids(corpus: Path) -> frozenset[str]:
    """Read the ids of the documents in a ``corpus.jsonl``."""
    return frozenset(key for key, _ in _json_lines(corpus, optional=("title",)))


def _documents(path: Path, limit: int | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the documents (title and text) and the titles, by id."""
    documents: dict[str, str] = {}
    titles: dict[str, str] = {}
    for key, row in islice(_json_lines(path, optional=("title",)), limit):
        title, text = row.get("title"), row["text"]
        if title:
            titles[key] = title
        documents[key] = _BELOW_TITLE.join(part for part in (title, text) if part)
    return documents, titles


def _among(documents: dict[str, str], gains: dict[str, int]) -> dict[str, int]:
    return {document: gain for document, gain in gains.items() if document in documents}


def _json_lines(path: Path, optional: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the ``_id`` and the object of each line; check that ``text`` and the ``optional`` values are strings."""
    seen = set()
    for number, line in lines(path):
        row = json_object(path, number, line)
        for name in ("_id", "text", *optional):
            value = row.get(name)
            if not (isinstance(value, str) or (name in optional and value is None)):
                raise ConfigError(f"{path}, line {number}: {name!r} is {value!r}: expected a string")
        if row["_id"] in seen:
            raise ConfigError(f"{path}, line {number}: a second line has the _id {row['_id']!r}")
        seen.add(row["_id"])
        yield row["_id"], row
