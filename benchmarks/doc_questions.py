"""Questions as users ask them, on documentation in four Debian packages: ragembed, bm25s, LangChain's FAISS, txtai."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from corpora import fetch
from data import Setting
from processes import LANGCHAIN, PEERS, SPEED, say, versions
from report import table
from speed import Outcome

from ragembed.config.settings import DEFAULT_MODEL
from ragembed.evaluation import paired_bootstrap
from ragembed.indexes import Fusion, Store
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.search.pipeline import Mode
from ragembed.models.files import find_model
from ragembed.models.token_counting import estimated_tokens

_QUESTIONS = Path(__file__).with_name("doc_questions.tsv")
"""A line for each answer: package, file, a passage of its text that is in the answer, question."""
_PAGES: Mapping[str, tuple[str, Sequence[str], int]] = {
    "python3.11-doc": ("usr/share/doc/python3.11/html", ("tutorial", "howto", "faq", "library"), 26),
    "git-doc": ("usr/share/doc/git-doc", (".",), 30),
    "postgresql-doc-15": ("usr/share/doc/postgresql-doc-15/html", (".",), 90),
    "debian-reference-en": ("usr/share/debian-reference", (".",), 15),
}
"""The folder of the pages of each package, the folders in it, and how many pages are indexed."""
_DEPTH = 10
_BUDGETS = (4000, 1000)
_HYBRID = "ragembed, hybrid (default)"
_WAYS: Mapping[str, tuple[Mode, Fusion | None]] = {
    _HYBRID: ("hybrid", None),
    "ragembed, hybrid without feedback": ("hybrid", Fusion(feedback=0.0)),
    "ragembed, hybrid with rrf": ("hybrid", Fusion("rrf")),
    "ragembed, dense": ("dense", None),
    "ragembed, lexical": ("lexical", None),
}
_MEASURES = (
    *(f"{what}: {measure}" for what in ("file", "passage") for measure in ("hit@1", "hit@5", f"MRR@{_DEPTH}")),
    *(f"in {budget:,} tokens" for budget in _BUDGETS),
    "tokens of 5 hits",
)
_FILE, _PASSAGE, _RECIPROCAL = "file: hit@5", "passage: hit@5", f"passage: MRR@{_DEPTH}"
_COMPARED = (_FILE, _PASSAGE, _RECIPROCAL)


@dataclass(slots=True)
class _Question:
    """A question about a package, with the passage that answers it in each of some files."""

    package: str
    text: str
    answers: dict[str, str] = field(default_factory=dict)

    def is_file(self, name: str) -> bool:
        """Whether the file answers the question."""
        return name in self.answers

    def is_passage(self, name: str, text: str) -> bool:
        """Whether a part of the file has the passage."""
        return name in self.answers and self.answers[name] in " ".join(text.split())


Texts = Sequence[tuple[str, str]]
"""The file and the text of each part that was found, best first."""
Measured = dict[str, list[dict[str, float]]]
"""The values of each question, by way to search."""


def doc_questions(setting: Setting) -> Outcome:
    """Index the pages of each package, and ask the questions about them in every way."""
    found: Measured = {}
    questions = _questions(setting)
    sizes = []
    for package in _PAGES:
        asked = [question for question in questions if question.package == package]
        folder = _pages(package, asked, setting)
        index_files(IndexingRequest(folder / ".ragembed", (folder,)))
        with Store.open(folder / ".ragembed") as store:
            sizes.append(f"{package} {len(store.sources())} files, {len(store):,} chunks")
            say(sizes[-1])
            _check(store, asked)
            for way, (mode, fusion) in _WAYS.items():
                found.setdefault(way, []).extend(_searched(store, asked, mode, fusion))
            for way, values in _peers(store, asked, setting).items():
                found.setdefault(way, []).extend(values)
    for question, values in zip(questions, found[_HYBRID], strict=True):
        say(f"{values[_RECIPROCAL]:.2f} {values[_FILE]:.0f} {question.package}: {question.text}")
    about = (
        f"{len(questions)} questions about the documentation in Debian packages, in the words of somebody who has a "
        "problem and does not know the heading; they were written before any search. Each has a passage of 15 to 80 "
        "characters in the files that answer it (`doc_questions.tsv`). *File* counts a hit in such a file, *passage* "
        "only a hit that has the passage. *In 4,000 tokens* means that `ragembed context` with this budget has it. "
        "Values are in per cent, MRR too. The difference is that from the default, with the 95 % interval of a paired "
        "bootstrap over the questions. "
        f"Indexed with the defaults: {'; '.join(sizes)}. These are all files with "
        "answers, and others at random. The other programs search the same chunks, each with its title and headings: "
        "bm25s with English stems and stop words, LangChain's FAISS and txtai with the same vectors of MiniLM. "
        f"ragembed {version('ragembed')}, {versions(SPEED.python, 'bm25s', 'txtai')}, "
        f"{versions(LANGCHAIN.python, 'langchain-community', 'sentence-transformers')}."
    )
    rows = [[way, *_means(values), *_compared(values, found[_HYBRID])] for way, values in found.items()]
    differences = [f"{measure}: difference" for measure in _COMPARED]
    return Outcome([about, table(["", *_MEASURES, *differences], rows)])


def _questions(setting: Setting) -> list[_Question]:
    questions: dict[tuple[str, str], _Question] = {}
    for line in _QUESTIONS.read_text(encoding="utf-8").splitlines():
        package, file, passage, text = line.split("\t")
        questions.setdefault((package, text), _Question(package, text)).answers[file] = passage
    return [
        question
        for package in _PAGES
        for question in [each for each in questions.values() if each.package == package][: setting.choose(15, 3)]
    ]


def _pages(package: str, questions: Sequence[_Question], setting: Setting) -> Path:
    """Copy the pages that answer the questions and random others to a folder."""
    folder = setting.cache / "doc_questions" / ("trial" if setting.trial else "") / package
    if folder.is_dir():
        return folder
    fetch(package, setting.cache / "packages")
    inside, parts, count = _PAGES[package]
    root = setting.cache / "packages" / package / inside
    answering = {name for question in questions for name in question.answers}
    others = {path.relative_to(root).as_posix() for part in parts for path in (root / part).glob("*.html")}
    drawn = sorted(others - answering)
    random.Random(setting.seed).shuffle(drawn)
    for name in [*answering, *drawn][: max(len(answering), setting.choose(count, 6))]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, folder / name)
    return folder


def _check(store: Store, questions: Sequence[_Question]) -> None:
    """Raise ValueError if a passage is in no chunk of its file."""
    texts = [(record.source or "", record.chunk.text) for record in store.chunks()]
    for question in questions:
        having = {name for name, text in texts if question.is_passage(name, text)}
        if missing := question.answers.keys() - having:
            raise ValueError(f"{question.text!r}: no chunk of {sorted(missing)} has the passage")


def _searched(
    store: Store, questions: Sequence[_Question], mode: Mode, fusion: Fusion | None
) -> list[dict[str, float]]:
    answers = store.search_many([question.text for question in questions], _DEPTH, mode, fusion=fusion)
    measured = []
    for question, hits in zip(questions, answers, strict=True):
        values = _values(question, [(hit.source or "", hit.chunk.text) for hit in hits])
        for budget in _BUDGETS:
            blocks = store.context(question.text, budget, mode, fusion=fusion).blocks
            values[f"in {budget:,} tokens"] = float(
                any(question.is_passage(block.source or "", block.text) for block in blocks)
            )
        measured.append(values)
    return measured


def _values(question: _Question, texts: Texts) -> dict[str, float]:
    tests: Mapping[str, Callable[[str, str], bool]] = {
        "file": lambda name, _: question.is_file(name),
        "passage": question.is_passage,
    }
    values = {}
    for what, test in tests.items():
        rank = next((rank for rank, (name, text) in enumerate(texts, 1) if test(name, text)), None)
        values |= {f"{what}: hit@{depth}": float(rank is not None and rank <= depth) for depth in (1, 5)}
        values[f"{what}: MRR@{_DEPTH}"] = 1 / rank if rank else 0.0
    return {**values, "tokens of 5 hits": float(sum(estimated_tokens(text) for _, text in texts[:5]))}


def _peers(store: Store, questions: Sequence[_Question], setting: Setting) -> dict[str, list[dict[str, float]]]:
    """Measure the other programs on the chunks of the store; what they find is kept for the same chunks."""
    records = list(store.chunks())
    asked = [question.text for question in questions]
    key = json.dumps([asked, [record.chunk.embedded_text for record in records]])
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    kept = store.path.parents[1] / f"{questions[0].package}.{digest}.json"
    if not kept.is_file():
        vectors = store.vectors([record.id for record in records])
        found = _rankings([record.chunk.embedded_text for record in records], vectors, asked, setting)
        kept.write_text(json.dumps(found), encoding="utf-8")
    return {
        way: [
            _values(question, [(records[number].source or "", records[number].chunk.text) for number in ranking])
            for question, ranking in zip(questions, rankings, strict=True)
        ]
        for way, rankings in json.loads(kept.read_text(encoding="utf-8")).items()
    }


def _rankings(
    texts: Sequence[str], vectors: np.ndarray, queries: Sequence[str], setting: Setting
) -> dict[str, list[list[int]]]:
    """Return the numbers of the texts that each other program finds for each query."""
    with tempfile.TemporaryDirectory(dir=setting.folder) as place:
        files = Path(place, "files")
        files.mkdir()
        for number, text in enumerate(texts):
            (files / f"{number:06}.txt").write_text(text, encoding="utf-8")
        np.save(Path(place, "vectors.npy"), vectors)
        request = {
            "files": str(files),
            "vectors": str(Path(place, "vectors.npy")),
            "store": str(Path(place, "faiss")),
            "model": str(find_model(DEFAULT_MODEL).folder),
            "k": _DEPTH,
            "queries": {str(number): query for number, query in enumerate(queries)},
        }
        run = setting.runner.run_task
        others = run(SPEED.python, PEERS / "speed_peers.py", "rankings", request)
        run(LANGCHAIN.python, PEERS / "langchain_faiss.py", "index_vectors", request)
        faiss = run(LANGCHAIN.python, PEERS / "langchain_faiss.py", "rankings", request)
    found = {"bm25s": others["bm25s"], "LangChain FAISS": faiss, "txtai, hybrid": others["txtai"]}
    return {
        way: [[int(Path(name).stem) for name in ranking[key]] for key in request["queries"]]
        for way, ranking in found.items()
    }


def _column(values: Sequence[Mapping[str, float]], measure: str) -> np.ndarray:
    return np.array([each[measure] for each in values])


def _means(values: Sequence[Mapping[str, float]]) -> list[str]:
    cells = []
    for measure in _MEASURES:
        if measure not in values[0]:
            cells.append("–")
        elif measure.startswith("tokens"):
            cells.append(f"{_column(values, measure).mean():,.0f}")
        else:
            cells.append(f"{100 * _column(values, measure).mean():.1f}")
    return cells


def _compared(values: Sequence[Mapping[str, float]], default: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the differences from the default; nothing for the default itself."""
    if values is default:
        return ["–"] * len(_COMPARED)
    gains = [paired_bootstrap(100 * _column(values, measure), 100 * _column(default, measure)) for measure in _COMPARED]
    return [f"{gain.difference:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})" for gain in gains]
