"""The two that are compared end to end: how each is started, what its runs cost, and what it finds."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collection import document_id
from environments import LANGCHAIN
from measure import Cost, Runner

from ragembed.config import DEFAULT_MODEL
from ragembed.evaluation import RetrievalCollection
from ragembed.models import find_model

RAGEMBED = Path(sys.executable).with_name("ragembed")
MODES = ("dense", "hybrid")

PEERS = Path(__file__).resolve().parent / "peers"
_DEPTH = 100

Command = list[str | Path]


@dataclass
class Contestant(ABC):
    """What both have: a name, the store it made last, and the costs so far."""

    name: str
    store: Path = field(init=False)
    index_costs: list[Cost] = field(default_factory=list)
    query_costs: list[Cost] = field(default_factory=list)

    def index(self, documents: Path, store: Path, runner: Runner) -> Cost:
        """Index the folder ``documents`` into the new store ``store``, in a process of its own."""
        self.store = store
        return runner.run(self.index_command(documents, store))[0]

    def query(self, question: str, runner: Runner) -> Cost:
        """Ask the last store one question in a process of its own; it has to find something."""
        cost, printed = runner.run(self.query_command(question))
        if not json.loads(printed)["results"]:
            raise RuntimeError(f"{self.name} found nothing for the question: {question}")
        return cost

    @abstractmethod
    def index_command(self, documents: Path, store: Path) -> Command:
        """Return the command that makes a store of a folder of text files."""

    @abstractmethod
    def query_command(self, question: str) -> Command:
        """Return the command that prints JSON with a list ``results``."""


class Ragembed(Contestant):
    """The program ``ragembed`` of the environment that runs the benchmark."""

    def __init__(self) -> None:
        super().__init__("ragembed")

    def index_command(self, documents: Path, store: Path) -> Command:
        """Return ``ragembed index``."""
        return [RAGEMBED, "index", documents, "--store", store]

    def query_command(self, question: str) -> Command:
        """Return ``ragembed query``."""
        return [RAGEMBED, "query", "--json", "--store", self.store, "--", question]

    def rankings(self, collection: RetrievalCollection) -> dict[str, dict[str, list[str]]]:
        """Return the documents found for each question by mode; the best chunk of a document counts for it.

        Loads torch and faiss into this process, so it belongs after everything that is measured.
        """
        from ragembed.indexes import Store

        with Store.open(self.store) as store:
            return {
                mode: {
                    key: _documents([str(hit.source) for hit in store.search(question, _DEPTH, mode)])
                    for key, question in collection.questions.items()
                }
                for mode in MODES
            }

    def status(self, collection: RetrievalCollection) -> dict[str, Any]:
        """Return what the store tells of itself; raises RuntimeError where it has not seen every document."""
        from ragembed.indexes import Store

        with Store.open(self.store) as store:
            status: dict[str, Any] = store.status()
        if (seen := status["files"] + len(status["skipped"])) != len(collection.documents):
            raise RuntimeError(f"ragembed has seen {seen:,} files of {len(collection.documents):,}")
        return status


class LangChain(Contestant):
    """The programs in ``peers/``, in their own environment."""

    def __init__(self) -> None:
        super().__init__("LangChain FAISS + HuggingFaceEmbeddings")
        self.model = find_model(DEFAULT_MODEL).folder

    def index_command(self, documents: Path, store: Path) -> Command:
        """Return the program that indexes."""
        return [LANGCHAIN.python, PEERS / "langchain_index.py", documents, store, self.model]

    def query_command(self, question: str) -> Command:
        """Return the program that loads the store and asks once."""
        return [LANGCHAIN.python, PEERS / "langchain_query.py", self.store, self.model, question]

    def rankings(self, collection: RetrievalCollection, runner: Runner) -> dict[str, list[str]]:
        """Return the documents found for each question, by a program that asks them all."""
        questions, found = runner.folder / "questions.json", runner.folder / "rankings.json"
        questions.write_text(json.dumps(collection.questions), encoding="utf-8")
        runner.run([LANGCHAIN.python, PEERS / "langchain_run.py", self.store, self.model, questions, found])
        return {key: _documents(files) for key, files in json.loads(found.read_text(encoding="utf-8")).items()}


def _documents(files: Sequence[str]) -> list[str]:
    """Return the documents of files, best first, each where it comes first."""
    return list(dict.fromkeys(document_id(file) for file in files))
