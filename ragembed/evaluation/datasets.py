"""Readers of test collections: sentence pairs, labelled texts, BEIR folders. All files are UTF-8.

A table has a header line, fields between tabs, one record a line; quotes are text. Every reader raises
:class:`ragembed.errors.ConfigError` naming the file, the line and what was expected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import at_least
from ragembed.evaluation.judgements import JudgedQueries, beir_judgements, read_judged_queries, require_known
from ragembed.evaluation.lines import json_object, lines, table_rows

_BELOW_TITLE = "\n\n"


@dataclass(frozen=True, slots=True)
class SentencePairs:
    """Pairs of sentences and their judged similarity, three sequences of one length."""

    sentences1: tuple[str, ...]
    sentences2: tuple[str, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts and the label of each, two sequences of one length."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetrievalCollection:
    """Documents and questions by their ids, and the gains of judged documents by question.

    A document is its title, where it has one, an empty line, and its text; ``titles`` has the titles that are not
    empty. Only questions with a relevant document are kept, as each of the measures needs one; ``unanswered`` counts
    the others that are judged.
    """

    name: str
    documents: dict[str, str]
    queries: dict[str, str]
    relevance: dict[str, dict[str, int]]
    titles: dict[str, str] = field(default_factory=dict)
    unanswered: int = 0

    def parts(self, document: str) -> tuple[str | None, str]:
        """Return the title of a document, None where it has none, and its text alone."""
        title, whole = self.titles.get(document), self.documents[document]
        return title, whole if title is None else whole[len(title) :].removeprefix(_BELOW_TITLE)


def read_sentence_pairs(path: Path) -> SentencePairs:
    """Read a table with the columns ``score``, ``sentence1``, ``sentence2``; a score is a finite number."""
    scores, sentences1, sentences2 = [], [], []
    for number, (score, sentence1, sentence2) in table_rows(path, ("score", "sentence1", "sentence2")):
        scores.append(_score(path, number, score))
        sentences1.append(sentence1)
        sentences2.append(sentence2)
    return SentencePairs(tuple(sentences1), tuple(sentences2), tuple(scores))


def read_labelled_texts(path: Path) -> LabelledTexts:
    """Read a table with the columns ``label``, ``text``; a label is any text that is not empty."""
    texts, labels = [], []
    for number, (label, text) in table_rows(path, ("label", "text")):
        if not label:
            raise ConfigError(f"{path}, line {number}: the label is empty")
        labels.append(label)
        texts.append(text)
    return LabelledTexts(tuple(texts), tuple(labels))


def read_beir(folder: Path, limit: int | None = None, split: str = "test") -> RetrievalCollection:
    """Read the BEIR folder ``folder``: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``.

    Questions come in the order of their first judgement. A judged document that the corpus lacks is an error.

    Parameters
    ----------
    folder
        The folder, whose name becomes that of the collection.
    limit
        Keep the first documents only, as many as this, and the judgements of these.
    split
        Which judgements are read.
    """
    if limit is not None:
        at_least(limit, 1, "limit")
    corpus = folder / "corpus.jsonl"
    documents, titles = _documents(corpus, limit)
    judged = read_beir_queries(folder, split)
    relevance = judged.relevance
    if limit is None:
        require_known(beir_qrels(folder, split), judged.documents, documents, corpus)
    else:
        known = {query: _among(documents, gains) for query, gains in relevance.items()}
        relevance = {query: gains for query, gains in known.items() if max(gains.values(), default=0) > 0}
    if not relevance:
        raise ConfigError(f"no question of {folder} has a relevant document among the {len(documents):,} read")
    queries = {query: judged.queries[query] for query in relevance}
    unanswered = judged.unanswered + len(judged.relevance) - len(relevance)
    return RetrievalCollection(folder.name, documents, queries, relevance, titles, unanswered)


def read_beir_queries(folder: Path, split: str = "test") -> JudgedQueries:
    """Read the questions and judgements of a BEIR folder, and not its documents."""
    path = beir_qrels(folder, split)
    there = sorted(file.stem for file in path.parent.glob("*.tsv")) if not path.exists() else []
    if there:
        raise ConfigError(f"{folder} has no split {split!r}: expected one of {', '.join(there)}")
    texts = {key: row["text"] for key, row in _json_lines(folder / "queries.jsonl")}
    relevance: dict[str, dict[str, int]] = {}
    for number, query, document, gain in beir_judgements(path):
        if query not in texts:
            raise ConfigError(f"{path}, line {number}: queries.jsonl has no query {query!r}")
        relevance.setdefault(query, {})[document] = gain
    return JudgedQueries.of(folder.name, texts, relevance)


def beir_qrels(folder: Path, split: str = "test") -> Path:
    """Return where a BEIR folder has its judgements."""
    return folder / "qrels" / f"{split}.tsv"


def read_jsonl_collection(queries: Path, corpus: Path) -> RetrievalCollection:
    """Read documents as BEIR has them, and questions as :func:`ragembed.evaluation.read_judged_questions` does.

    The name of the file ``queries`` becomes that of the collection. A judged document that the corpus lacks is an
    error.
    """
    judged = read_judged_queries(queries)
    documents, titles = _documents(corpus)
    require_known(queries, judged.documents, documents, corpus)
    return RetrievalCollection(judged.name, documents, judged.queries, judged.relevance, titles, judged.unanswered)


def read_document_ids(corpus: Path) -> frozenset[str]:
    """Read the ids of the documents of a ``corpus.jsonl``."""
    return frozenset(key for key, _ in _json_lines(corpus, optional=("title",)))


def _documents(path: Path, limit: int | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the whole of each document, and the titles."""
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


def _score(path: Path, number: int, text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ConfigError(f"{path}, line {number}: the score is {text!r}: expected a number")
    return score


def _json_lines(path: Path, optional: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the ``_id`` and the whole of each object: it has the string ``text`` and may have ``optional`` ones."""
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
