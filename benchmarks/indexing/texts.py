"""The texts of the test data, and the questions of its collections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ragembed.evaluation import read_beir
from ragembed.evaluation.datasets import read_labelled_texts, read_sentence_pairs

_COLLECTIONS = ("cran", "npl")
_WIKITEXT = ("valid.txt", "test.txt")
_SENTENCE_END = re.compile(r"(?<= \.) ")
_LEAST_WORDS = 6


def read_texts(data: Path) -> list[str]:
    """Return the different texts below ``data``: documents, labelled texts, sentences of pairs and of Wikitext-2."""
    return list(dict.fromkeys(text for text in _texts(data) if text.strip()))


def read_questions(data: Path) -> list[str]:
    """Return the different judged questions of the retrieval collections."""
    found = (read_beir(data / "retrieval" / name).questions.values() for name in _COLLECTIONS)
    return list(dict.fromkeys(question for questions in found for question in questions))


def _texts(data: Path) -> Iterator[str]:
    for name in _COLLECTIONS:
        yield from read_beir(data / "retrieval" / name).documents.values()
    for path in sorted((data / "clustering").glob("*.tsv")):
        yield from read_labelled_texts(path).texts
    for path in sorted((data / "sts").glob("*.tsv")):
        pairs = read_sentence_pairs(path)
        yield from pairs.sentences1
        yield from pairs.sentences2
    for name in _WIKITEXT:
        for line in (data / "wikitext-2" / name).read_text(encoding="utf-8").splitlines():
            sentences = _SENTENCE_END.split(line.strip())
            yield from (sentence.strip() for sentence in sentences if len(sentence.split()) >= _LEAST_WORDS)
