"""Readers of relevance judgements: TREC qrels, BEIR tables, and JSON lines of questions with what is relevant to each.

A gain is a whole number; a document is relevant where it is 1 or more. Every reader raises
:class:`ragembed.errors.ConfigError` naming the file, the line and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError
from ragembed.evaluation.lines import filled_lines, json_object, lines, listed, table_rows

_BEIR_COLUMNS = ("query-id", "corpus-id", "score")
_QUERY_KEYS = ("query", "question", "text")
_GAIN_LIMIT = 10**9
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,9}", re.ASCII)

Judgement = tuple[int, str, str, int]
"""The number of a line, a question, a document, and the gain."""


@dataclass(frozen=True, slots=True)
class JudgedQueries:
    """Questions by their ids, and the gains of judged documents by question.

    Only questions with a relevant document are kept, as each of the measures needs one; ``unanswered`` counts the
    others. ``queries`` is empty where only judgements were read. ``documents`` are all that are judged, for these
    and for other questions, in the order of the file.
    """

    name: str
    queries: dict[str, str]
    relevance: dict[str, dict[str, int]]
    unanswered: int = 0
    documents: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, queries: Mapping[str, str], relevance: Mapping[str, dict[str, int]]) -> JudgedQueries:
        """Keep the questions with a relevant document; there may be none."""
        kept = {query: gains for query, gains in relevance.items() if max(gains.values(), default=0) > 0}
        texts = {query: queries[query] for query in kept} if queries else {}
        documents = dict.fromkeys(document for gains in relevance.values() for document in gains)
        return cls(name, texts, kept, len(relevance) - len(kept), tuple(documents))


def read_qrels(path: Path) -> JudgedQueries:
    """Read judgements: TREC qrels, a BEIR table, or the JSON lines of :func:`read_judged_queries`.

    TREC qrels have four columns between blanks: question, a number that counts nothing, document, gain. A BEIR table
    begins with the header ``query-id``, ``corpus-id``, ``score``. Raises :class:`ConfigError` where no document is
    relevant, too.
    """
    if is_json_lines(path):
        return read_judged_queries(path)
    relevance: dict[str, dict[str, int]] = {}
    for _, query, document, gain in (beir_judgements if _is_beir(path) else trec_judgements)(path):
        relevance.setdefault(query, {})[document] = gain
    return _answered(path, JudgedQueries.of(path.stem, {}, relevance))


def read_judged_queries(path: Path) -> JudgedQueries:
    """Read a JSON object a line: a question and the ids of what is relevant to it.

    The text is under ``query``, ``question`` or ``text``. ``relevant`` is a list of ids, or an object with the gain of
    each id. ``_id`` is the question's own id, the number of its line if left out.
    """
    queries: dict[str, str] = {}
    relevance: dict[str, dict[str, int]] = {}
    for number, line in filled_lines(path):
        place = f"{path}, line {number}"
        row = json_object(path, number, line)
        key = _string(row.get("_id", str(number)), f"{place}: '_id'")
        if key in queries:
            raise ConfigError(f"{place}: a second line has the _id {key!r}")
        named = [name for name in _QUERY_KEYS if name in row]
        if len(named) != 1:
            found = " and ".join(map(repr, named)) or "none"
            raise ConfigError(f"{place}: has {found} of {', '.join(map(repr, _QUERY_KEYS))}: expected one of them")
        queries[key] = _string(row[named[0]], f"{place}: {named[0]!r}")
        relevance[key] = _gains(row.get("relevant"), place)
    return _answered(path, JudgedQueries.of(path.stem, queries, relevance))


def beir_judgements(path: Path) -> Iterator[Judgement]:
    """Yield the judgements of a BEIR table; no document is judged twice for a question."""
    return _judgements(path, ((number, *fields) for number, fields in table_rows(path, _BEIR_COLUMNS)))


def trec_judgements(path: Path) -> Iterator[Judgement]:
    """Yield the judgements of TREC qrels; no document is judged twice for a question."""
    return _judgements(path, _trec_rows(path))


def _judgements(path: Path, rows: Iterable[Sequence[Any]]) -> Iterator[Judgement]:
    """Turn the number of a line, question, document and gain as text into judgements."""
    seen: set[tuple[str, str]] = set()
    for number, query, document, gain in rows:
        if (query, document) in seen:
            raise ConfigError(f"{path}, line {number}: document {document!r} is judged again for query {query!r}")
        seen.add((query, document))
        if not _WHOLE_NUMBER.fullmatch(gain):
            raise ConfigError(f"{path}, line {number}: the score is {gain!r}: expected an integer")
        yield number, query, document, int(gain)


def require_known(path: Path, documents: Collection[str], known: Container[str], where: object) -> None:
    """Raise :class:`ConfigError` listing those of ``documents``, which ``path`` names, that ``where`` does not have."""
    unknown = [document for document in documents if document not in known]
    if unknown:
        raise ConfigError(
            f"{path}: {len(unknown):,} of {len(documents):,} document ids are not in {where}: {listed(unknown)}; "
            "correct them, or take their lines out"
        )


def is_json_lines(path: Path) -> bool:
    """Tell whether the first line that is not blank begins as a JSON object does.

    Raises :class:`ConfigError` for a pipe, which would have lost that line when it is read again.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ConfigError(f"{path} is a pipe or a device: expected a file, as it is read twice")
    return next((text.lstrip().startswith("{") for _, text in lines(path) if text.strip()), False)


def _is_beir(path: Path) -> bool:
    """Tell whether the first line has as many fields between tabs as a BEIR table: its header, or another."""
    return len(next(lines(path), (1, ""))[1].split("\t")) == len(_BEIR_COLUMNS)


def _trec_rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    for number, line in filled_lines(path):
        fields = line.split()
        if len(fields) != 4:
            raise ConfigError(
                f"{path}, line {number}: {len(fields)} fields: expected 4 of TREC qrels (question, 0, document, gain)"
            )
        yield number, fields[0], fields[2], fields[3]


def _gains(relevant: object, place: str) -> dict[str, int]:
    if isinstance(relevant, list):
        ids = [_string(each, f"{place}: an id in 'relevant'") for each in relevant]
        if len(set(ids)) < len(ids):
            raise ConfigError(f"{place}: 'relevant' repeats {listed({each for each in ids if ids.count(each) > 1})}")
        return dict.fromkeys(ids, 1)
    if not isinstance(relevant, dict):
        raise ConfigError(f"{place}: 'relevant' is {relevant!r}: expected a list of ids, or an object with their gains")
    for name, gain in relevant.items():
        if type(gain) is not int or abs(gain) >= _GAIN_LIMIT:
            raise ConfigError(f"{place}: the gain of {name!r} is {gain!r}: expected an integer")
    return relevant


def _string(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} is {value!r}: expected a string that is not empty")
    return value


def _answered(path: Path, judged: JudgedQueries) -> JudgedQueries:
    if not judged.relevance:
        raise ConfigError(f"{path} has no relevant document for any of {judged.unanswered:,} questions")
    return judged
