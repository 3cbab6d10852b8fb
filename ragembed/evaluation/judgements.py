"""Readers of relevance judgements and test collections: TREC qrels, BEIR, and JSON Lines of judged queries.

A gain is an integer; a document with a gain of 1 or more is relevant. Every reader raises
:class:`ragembed.errors.ConfigError` with the file and the line if a file is not as expected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import at_least, filled_lines, json_object, lines, listed, repeated, table_rows

_BEIR_COLUMNS = ("query-id", "corpus-id", "score")
_QUERY_KEYS = ("query", "question", "text")
_GAIN_LIMIT = 10**9
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,9}", re.ASCII)

Judgement = tuple[int, str, str, int]
"""Line number, query id, document id and gain."""


@dataclass(frozen=True, slots=True)
class JudgedQueries:
    """Queries by id with the gains of their judged documents; ``queries`` is empty if the file has only judgements.

    Queries without a relevant document are left out, because the measures are not defined for them; ``unanswered``
    counts them, and ``documents`` has their judged documents, too.
    """

    name: str
    queries: dict[str, str]
    relevance: dict[str, dict[str, int]]
    unanswered: int = 0
    documents: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, queries: Mapping[str, str], relevance: Mapping[str, dict[str, int]]) -> JudgedQueries:
        """Build from all judged queries, without those that have no relevant document."""
        answered = _answered(relevance)
        texts = {query: queries[query] for query in answered} if queries else {}
        documents = dict.fromkeys(document for gains in relevance.values() for document in gains)
        return cls(name, texts, answered, len(relevance) - len(answered), tuple(documents))


def _answered(relevance: Mapping[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Return the gains of the queries with a relevant document."""
    return {query: gains for query, gains in relevance.items() if max(gains.values(), default=0) > 0}


def read_qrels(path: Path) -> JudgedQueries:
    """Read judgements from TREC qrels, a BEIR table or JSON Lines (:func:`read_judged_queries`), which is detected."""
    if is_json_lines(path):
        return read_judged_queries(path)
    relevance: dict[str, dict[str, int]] = {}
    is_beir = len(next(lines(path), (1, ""))[1].split("\t")) == len(_BEIR_COLUMNS)
    for _, query, document, gain in beir_judgements(path) if is_beir else _judgements(path, _trec_rows(path)):
        relevance.setdefault(query, {})[document] = gain
    return _require_relevant(path, JudgedQueries.of(path.stem, {}, relevance))


def read_judged_queries(path: Path) -> JudgedQueries:
    """Read judged queries from JSON Lines.

    Each object has the query under the key ``query``, ``question`` or ``text``. ``relevant`` is a list of document ids,
    or an object with the gain of each id. ``_id`` is the id of the query, by default its line number.
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
            present = " and ".join(map(repr, named)) or "none"
            raise ConfigError(f"{place}: has {present} of {', '.join(map(repr, _QUERY_KEYS))}: expected one of them")
        queries[key] = _string(row[named[0]], f"{place}: {named[0]!r}")
        relevance[key] = _gains(row.get("relevant"), place)
    return _require_relevant(path, JudgedQueries.of(path.stem, queries, relevance))


def beir_judgements(path: Path) -> Iterator[Judgement]:
    """Yield the judgements of a BEIR table; raise if a document is judged twice for a query."""
    return _judgements(path, ((number, *fields) for number, fields in table_rows(path, _BEIR_COLUMNS)))


def _judgements(path: Path, rows: Iterable[Sequence[Any]]) -> Iterator[Judgement]:
    """Yield the judgements of rows with line number, query, document and gain; raise if a document is judged twice."""
    seen: set[tuple[str, str]] = set()
    for number, query, document, gain in rows:
        if (query, document) in seen:
            raise ConfigError(f"{path}, line {number}: document {document!r} is judged again for query {query!r}")
        seen.add((query, document))
        if not _WHOLE_NUMBER.fullmatch(gain):
            raise ConfigError(f"{path}, line {number}: the score is {gain!r}: expected an integer")
        yield number, query, document, int(gain)


def require_known(path: Path, documents: Collection[str], known: Container[str], where: object) -> None:
    """Raise :class:`ConfigError` for those of ``documents``, from ``path``, that are not in ``known``."""
    unknown = [document for document in documents if document not in known]
    if unknown:
        raise ConfigError(
            f"{path}: {len(unknown):,} of {len(documents):,} document ids are not in {where}: {listed(unknown)}; "
            "correct the ids or remove their lines"
        )


def is_json_lines(path: Path) -> bool:
    """Return whether the first non-blank line starts with a brace, as a JSON object does.

    Raises :class:`ConfigError` for a pipe, because the file is read twice.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ConfigError(f"{path} is a pipe or a device: expected a file, because it is read twice")
    return next((text.lstrip().startswith("{") for _, text in lines(path) if text.strip()), False)


def _trec_rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    for number, line in filled_lines(path):
        fields = line.split()
        if len(fields) != 4:
            raise ConfigError(
                f"{path}, line {number}: {len(fields)} fields: expected 4 of TREC qrels (query, 0, document, gain)"
            )
        yield number, fields[0], fields[2], fields[3]


def _gains(relevant: object, place: str) -> dict[str, int]:
    if isinstance(relevant, list):
        ids = [_string(document, f"{place}: an id in 'relevant'") for document in relevant]
        if again := repeated(ids):
            raise ConfigError(f"{place}: 'relevant' repeats {listed(again)}")
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


def _require_relevant(path: Path, judged: JudgedQueries) -> JudgedQueries:
    if not judged.relevance:
        raise ConfigError(
            f"{path} has no relevant document for any of its {judged.unanswered:,} queries: "
            "expected at least one judgement above 0"
        )
    return judged


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
    """Read a BEIR folder, with the queries in the order of their judgements; ``limit`` keeps the first documents."""
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
        among_read = {
            query: {name: gain for name, gain in gains.items() if name in documents}
            for query, gains in relevance.items()
        }
        relevance = _answered(among_read)
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
