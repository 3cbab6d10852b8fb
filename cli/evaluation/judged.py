"""Judged questions and the documents that they are about, by what was given on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ragembed.errors import ConfigError

if TYPE_CHECKING:
    from ragembed.evaluation.datasets import RetrievalCollection
    from ragembed.evaluation.judgements import JudgedQuestions

_CORPUS = "corpus.jsonl"


@dataclass(frozen=True, slots=True)
class Judged:
    """Judged questions, read from ``origin``.

    ``collection`` has the documents that are searched, None where none were read. ``known`` are the ids of all
    documents that there are, None where that is not known.
    """

    name: str
    origin: Path
    questions: JudgedQuestions
    collection: RetrievalCollection | None = None
    known: frozenset[str] | None = None

    def notes(self) -> Iterator[str]:
        """Yield what has to be said of the judgements."""
        count = self.questions.unanswered
        if count:
            yield f"{self.name}: {count:,} judged questions have no relevant document, and are left out"


def has_documents(path: Path, corpus: Path | None) -> bool:
    """Tell whether documents come with judged questions: a folder has some, a file may have."""
    return path.is_dir() or corpus is not None or _beside(path).is_file()


def read_with_documents(path: Path, split: str, corpus: Path | None) -> Judged:
    """Read a BEIR folder; or a file of judged questions, and the documents in ``corpus`` or beside it."""
    from ragembed.evaluation.datasets import beir_qrels, read_beir, read_jsonl_collection
    from ragembed.evaluation.judgements import JudgedQuestions

    if path.is_dir():
        origin, collection = beir_qrels(path, split), read_beir(path, split=split)
    else:
        origin, collection = path, read_jsonl_collection(path, corpus or _beside(path))
    name = _name(path)
    collection = replace(collection, name=name)
    questions = JudgedQuestions(name, collection.questions, collection.relevance, collection.unanswered)
    return Judged(name, origin, questions, collection, frozenset(collection.documents))


def read_with_ids(path: Path, split: str, corpus: Path | None) -> Judged:
    """Read judgements, of TREC too, and of the documents, where there are any, the ids alone."""
    from ragembed.evaluation.datasets import read_document_ids
    from ragembed.evaluation.judgements import require_known

    judged = read_alone(path, split)
    if not has_documents(path, corpus):
        return judged
    documents = corpus or (path / _CORPUS if path.is_dir() else _beside(path))
    known = read_document_ids(documents)
    require_known(judged.origin, judged.questions.documents, known, documents)
    return replace(judged, known=known)


def read_alone(path: Path, split: str) -> Judged:
    """Read judgements, of TREC too, and no document."""
    from ragembed.evaluation.datasets import beir_qrels, read_beir_questions
    from ragembed.evaluation.judgements import read_qrels

    if not path.is_dir():
        return Judged(_name(path), path, read_qrels(path))
    questions = read_beir_questions(path, split)
    if not questions.relevance:
        raise ConfigError(f"no question of {path} has a relevant document")
    return Judged(_name(path), beir_qrels(path, split), questions)


def _name(path: Path) -> str:
    return path.absolute().name if path.is_dir() else path.stem


def _beside(path: Path) -> Path:
    return path.parent / _CORPUS
