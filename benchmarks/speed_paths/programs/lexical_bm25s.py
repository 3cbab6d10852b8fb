"""bm25s's side of lexical search, as its documentation shows it, with PyStemmer; ``build`` makes the index."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import bm25s
import Stemmer
from waiting import Told, Turn, main, milliseconds


def build(request: dict[str, Any]) -> None:
    """Write the index of the texts in the folder of the request, the texts with it."""
    folder = Path(request["folder"])
    texts = (folder / "texts.txt").read_text(encoding="utf-8").splitlines()
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
    retriever = bm25s.BM25()
    retriever.index(tokens, show_progress=False)
    retriever.save(str(folder / "bm25s.partial"), corpus=texts)
    (folder / "bm25s.partial").rename(folder / "bm25s")


def make(request: dict[str, Any]) -> tuple[Turn, Told]:
    """Return a turn that asks the turn's questions, and tells the milliseconds of each."""
    retriever = bm25s.BM25.load(request["store"], load_corpus=True)
    stemmer = Stemmer.Stemmer("english")

    def ask(question: str) -> list[Any]:
        tokens = bm25s.tokenize(question, stopwords="en", stemmer=stemmer, show_progress=False)
        documents, _ = retriever.retrieve(tokens, k=10, show_progress=False)
        return list(documents[0])

    def turn(number: int) -> Told:
        return {"taken": milliseconds(request["questions"][number], ask)}

    return turn, {}


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(json.loads(sys.argv[2]))
    else:
        main(make)
