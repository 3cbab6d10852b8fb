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
    r"""A test collection for retrieval: documents, queries and relevance judgements.

    Queries without a relevant document are left out, because the measures are not defined for them.

    Attributes
    ----------
    name : str
        Name of the collection.
    documents : dict of str to str
        Documents by id. A document with a title is the title, an empty line and the text.
    queries : dict of str to str
        Queries by id.
    relevance : dict of str to dict of str to int
        For each query id, the gains of the judged documents by their ids. A gain of 1 or more means relevant.
    titles : dict of str to str
        Non-empty titles by document id.
    unanswered : int
        Number of judged queries that were left out.

    Examples
    --------
    >>> from ragembed.evaluation import RetrievalCollection
    >>> documents = {"d1": "Tea\n\nTea is brewed with hot water."}
    >>> collection = RetrievalCollection(
    ...     "drinks", documents, {"q1": "how do I make tea?"}, {"q1": {"d1": 1}}, titles={"d1": "Tea"}
    ... )
    >>> collection.parts("d1")
    ('Tea', 'Tea is brewed with hot water.')
    """

    name: str
    documents: dict[str, str]
    queries: dict[str, str]
    relevance: dict[str, dict[str, int]]
    titles: dict[str, str] = field(default_factory=dict)
    unanswered: int = 0

    def parts(self, document: str) -> tuple[str | None, str]:
        """Return the title and the text of a document.

        Parameters
        ----------
        document : str
            Id of the document.

        Returns
        -------
        title : str or None
            The title, or None if the document has none.
        text : str
            The text without the title.

        Raises
        ------
        KeyError
            If the id is not in the collection.
        """
        title, whole = self.titles.get(document), self.documents[document]
        return title, whole if title is None else whole[len(title) :].removeprefix(_BELOW_TITLE)


def read_beir(folder: Path, limit: int | None = None, split: str = "test") -> RetrievalCollection:
    r"""Read a BEIR folder: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``.

    Parameters
    ----------
    folder : pathlib.Path
        The folder; its name becomes the name of the collection.
    limit : int, optional
        Keep only the first ``limit`` documents and their judgements; by default all.
    split : str
        Name of the file with judgements, without ``.tsv``.

    Returns
    -------
    RetrievalCollection
        The collection; its queries are in the order of their first judgement.

    Raises
    ------
    ConfigError
        If a file cannot be read or a line is not as expected, if a judged document is not in the corpus, or if no query
        has a relevant document.

    Examples
    --------
    >>> import json
    >>> from pathlib import Path
    >>> from ragembed.evaluation import read_beir
    >>> folder = Path("drinks")
    >>> (folder / "qrels").mkdir(parents=True)
    >>> document = {"_id": "d1", "title": "Tea", "text": "Tea is brewed with hot water."}
    >>> _ = (folder / "corpus.jsonl").write_text(json.dumps(document))
    >>> _ = (folder / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "how do I make tea?"}))
    >>> _ = (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    >>> read_beir(folder).relevance
    {'q1': {'d1': 1}}
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
    """Read judged queries and a separate file of documents.

    Parameters
    ----------
    queries : pathlib.Path
        Judged queries in the format of :func:`ragembed.evaluation.read_judged_queries`. The name of the file becomes
        the name of the collection.
    corpus : pathlib.Path
        Documents in the format of BEIR: JSON Lines with ``_id``, ``text`` and an optional ``title``.

    Returns
    -------
    RetrievalCollection
        The collection.

    Raises
    ------
    ConfigError
        If a file cannot be read or a line is not as expected, or if a judged document is not in the corpus.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.evaluation import read_jsonl_collection
    >>> queries, corpus = Path("judged.jsonl"), Path("corpus.jsonl")
    >>> _ = corpus.write_text('{"_id": "d1", "text": "Tea is brewed with hot water."}')
    >>> _ = queries.write_text('{"query": "how do I make tea?", "relevant": ["d1"]}')
    >>> read_jsonl_collection(queries, corpus).documents
    {'d1': 'Tea is brewed with hot water.'}
    """
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
