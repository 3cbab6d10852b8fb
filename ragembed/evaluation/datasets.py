"""Readers of test collections: sentence pairs, labelled texts, BEIR folders. All files are UTF-8.

A table has a header line, fields between tabs, one record a line; quotes are text. Every reader raises
:class:`ragembed.errors.ConfigError` naming the file, the line and what was expected.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import at_least


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

    Only questions with a relevant document are kept, as each of the measures needs one.
    """

    name: str
    documents: dict[str, str]
    questions: dict[str, str]
    relevance: dict[str, dict[str, int]]


def read_sentence_pairs(path: Path) -> SentencePairs:
    """Read a table with the columns ``score``, ``sentence1``, ``sentence2``; a score is a finite number."""
    scores, sentences1, sentences2 = [], [], []
    for number, (score, sentence1, sentence2) in _table(path, ("score", "sentence1", "sentence2")):
        scores.append(_score(path, number, score))
        sentences1.append(sentence1)
        sentences2.append(sentence2)
    return SentencePairs(tuple(sentences1), tuple(sentences2), tuple(scores))


def read_labelled_texts(path: Path) -> LabelledTexts:
    """Read a table with the columns ``label``, ``text``; a label is any text that is not empty."""
    texts, labels = [], []
    for number, (label, text) in _table(path, ("label", "text")):
        if not label:
            raise ConfigError(f"{path}, line {number}: the label is empty")
        labels.append(label)
        texts.append(text)
    return LabelledTexts(tuple(texts), tuple(labels))


def read_beir(folder: Path, limit: int | None = None, split: str = "test") -> RetrievalCollection:
    """Read the BEIR folder ``folder``: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``.

    A document is its title, where it has one, an empty line, and its text. Questions come in the order of their first
    judgement. A judged document that the corpus lacks stays judged, as with trec_eval: nobody can find it.

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
    corpus = _json_lines(folder / "corpus.jsonl", optional=("title",))
    documents = {
        key: "\n\n".join(part for part in (row.get("title"), row["text"]) if part) for key, row in islice(corpus, limit)
    }
    texts = {key: row["text"] for key, row in _json_lines(folder / "queries.jsonl")}
    relevance = _judgements(folder / "qrels" / f"{split}.tsv", texts)
    if limit is not None:
        relevance = {
            question: {document: gain for document, gain in judged.items() if document in documents}
            for question, judged in relevance.items()
        }
    relevance = {question: judged for question, judged in relevance.items() if max(judged.values(), default=0) > 0}
    if not any(document in documents for judged in relevance.values() for document in judged):
        raise ConfigError(f"no question of {folder} has a relevant document among the {len(documents):,} read")
    return RetrievalCollection(folder.name, documents, {key: texts[key] for key in relevance}, relevance)


def _judgements(path: Path, questions: dict[str, str]) -> dict[str, dict[str, int]]:
    """Read the gains of documents by question, in the order of the file."""
    relevance: dict[str, dict[str, int]] = {}
    for number, (question, document, gain) in _table(path, ("query-id", "corpus-id", "score")):
        if question not in questions:
            raise ConfigError(f"{path}, line {number}: queries.jsonl has no question {question!r}")
        judged = relevance.setdefault(question, {})
        if document in judged:
            raise ConfigError(f"{path}, line {number}: document {document!r} is judged again for question {question!r}")
        try:
            judged[document] = int(gain)
        except ValueError:
            raise ConfigError(f"{path}, line {number}: the score is {gain!r}: expected an integer") from None
    return relevance


def _score(path: Path, number: int, text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ConfigError(f"{path}, line {number}: the score is {text!r}: expected a number")
    return score


def _table(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line below a header that names ``columns``; there is at least one."""
    lines = _lines(path)
    number, header = next(lines, (1, ""))
    if tuple(header.split("\t")) != columns:
        raise ConfigError(f"{path}, line 1: the header is {header[:200]!r}: expected {' '.join(columns)}, between tabs")
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) != len(columns):
            raise ConfigError(
                f"{path}, line {number}: {len(fields)} fields: expected {len(columns)} ({', '.join(columns)}), "
                "between tabs"
            )
        yield number, fields
    if number == 1:
        raise ConfigError(f"{path} has a header alone: expected at least one line below it")


def _json_lines(path: Path, optional: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the ``_id`` and the whole of each object: it has the string ``text`` and may have ``optional`` ones."""
    seen = set()
    for number, line in _lines(path):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: not valid JSON: {error}") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{path}, line {number}: {type(row).__name__}: expected a JSON object")
        for name in ("_id", "text", *optional):
            value = row.get(name)
            if not (isinstance(value, str) or (name in optional and value is None)):
                raise ConfigError(f"{path}, line {number}: {name!r} is {value!r}: expected a string")
        if row["_id"] in seen:
            raise ConfigError(f"{path}, line {number}: a second line has the _id {row['_id']!r}")
        seen.add(row["_id"])
        yield row["_id"], row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line without its end: a line feed, or carriage return and line feed."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, text
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}, line {number}: not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
