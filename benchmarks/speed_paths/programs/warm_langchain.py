"""LangChain's side of warm questions: its FAISS store with HuggingFaceEmbeddings; ``build`` makes the store."""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from langchain_community.vectorstores import FAISS
from langchain_huggingface import HuggingFaceEmbeddings
from waiting import Told, Turn, main, milliseconds


def build(request: dict[str, Any]) -> None:
    """Write the store of the texts and vectors in the folder of the request."""
    folder = Path(request["folder"])
    texts = (folder / "texts.txt").read_text(encoding="utf-8").splitlines()
    embeddings = HuggingFaceEmbeddings(model_name=request["model"])
    store = FAISS.from_embeddings(zip(texts, np.load(folder / "vectors.npy"), strict=True), embeddings)
    store.save_local(str(folder / "langchain.partial"))
    (folder / "langchain.partial").rename(folder / "langchain")


def make(request: dict[str, Any]) -> tuple[Turn, Told]:
    """Return a turn that asks the turn's questions, by text and by vector, and tells the milliseconds of each."""
    turns: list[list[str]] = request["questions"]
    embeddings = HuggingFaceEmbeddings(model_name=request["model"])
    store = FAISS.load_local(request["store"], embeddings, allow_dangerous_deserialization=True)
    vectors = {question: embeddings.embed_query(question) for question in chain(*turns)}
    ways = {
        "dense": lambda question: store.similarity_search(question, k=10),
        "dense, vector given": lambda question: store.similarity_search_by_vector(vectors[question], k=10),
    }

    def turn(number: int) -> Told:
        return {way: milliseconds(turns[number], ask) for way, ask in ways.items()}

    return turn, {}


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(json.loads(sys.argv[2]))
    else:
        main(make)
