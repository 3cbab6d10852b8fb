"""Recall within a budget of tokens: `ragembed context`, the best chunks packed plainly, and semble on source code."""

from __future__ import annotations

import json
import random
import shutil
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from urllib.parse import quote

import numpy as np
from code_search import read_sources, write_functions
from data import Setting, write_files
from processes import PEERS, SEMBLE, say, versions
from report import table
from speed import Outcome

from ragembed import Embedder
from ragembed.config.settings import DEFAULT_MODEL
from ragembed.evaluation import RetrievalCollection, paired_bootstrap, read_beir
from ragembed.indexes import ContextBlock, Hit, Store
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.search.context import renderer_of
from ragembed.models.files import find_model
from ragembed.models.token_counting import estimated_tokens

BUDGETS = (500, 1000, 2000, 4000, 8000)
SHOWN = (1000, 2000, 4000)
"""The budgets in the table; the figure has all."""
FIGURE = Path(__file__).resolve().parent / "figures" / "context.png"
_PACKED, _PLAIN, _SEMBLE = "ragembed context", "top-k", "semble"
_DEPTH = 200
_DOCUMENTS_PER_FILE = 20
_EVERY = 2
"""Every second query of a judged collection is used."""

Ranges = Sequence[tuple[str, int, int]]
"""Ranges of lines in files: name of the file, first and last line, from 1."""
Found = Mapping[str, Mapping[int, np.ndarray]]
"""For each way of packing and each budget, the recall of each query."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A folder of files with queries; each query has answers, which are ranges of lines."""

    name: str
    folder: Path
    queries: Sequence[str]
    answers: Sequence[Ranges]


def context(setting: Setting) -> Outcome:
    """Measure the share of the answers that are complete in the output, at each budget."""
    measured = {judged.name: _measure(setting, judged) for judged in _collections(setting)}
    rows = []
    for name, found in measured.items():
        for budget in SHOWN:
            packed = 100 * found[_PACKED][budget]
            cells = [f"{packed.mean():.1f}"]
            for other in (_PLAIN, _SEMBLE):
                if other not in found:
                    cells += ["–", "–"]
                    continue
                values = 100 * found[other][budget]
                gain = paired_bootstrap(packed, values)
                cells += [f"{values.mean():.1f}", f"{gain.difference:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})"]
            rows.append([name, f"{budget:,}", *cells])
    if not setting.trial:
        _draw(measured)
    header = ["", "tokens", _PACKED, _PLAIN, "gain", _SEMBLE, "gain"]
    sizes = ", ".join(f"{name} {len(found[_PACKED][BUDGETS[0]])}" for name, found in measured.items())
    about = (
        "Per cent of the answers whose text is all in the output. An answer is a judged document, or the function "
        "whose documentation begins with the query (see *Search in source code*). *Top-k* prints the best chunks in "
        "the order of their scores, each that still fits, with the same header. All outputs have the same format, and "
        "the default estimate counts their tokens. *cran in sections* has "
        f"{_DOCUMENTS_PER_FILE} documents per file, in random order, each below a heading. Queries: {sizes}. Brackets "
        "show the 95 % interval of a paired bootstrap over the queries. ragembed "
        f"{version('ragembed')}, {versions(SEMBLE.python, 'semble')}. semble's own model is a download; here it reads "
        "with static vectors of the words, fitted on the same files (preset `avg`). "
        "![recall by budget](figures/context.png)"
    )
    return Outcome([about, table(header, rows)])


def _collections(setting: Setting) -> Iterator[_Judged]:
    yield _functions(setting)
    collection = read_beir(setting.data / "retrieval" / "cran", 300 if setting.trial else None)
    yield _documents(collection, setting.folder / "cran")
    yield _sections(collection, setting.folder / "sections", setting.seed)


def _functions(setting: Setting) -> _Judged:
    folder = setting.folder / "library"
    sources = read_sources(Path(sysconfig.get_path("stdlib")), ".py", setting)
    functions = write_functions(folder, "Python", sources, setting)
    answers = [[(each.file, each.first + 1, each.stop)] for each in functions]
    return _Judged("Python's library", folder, [each.query for each in functions], answers)


def _documents(collection: RetrievalCollection, folder: Path) -> _Judged:
    write_files(collection, folder)
    names = {key: f"{quote(key, safe='')}.txt" for key in collection.documents}
    lines = {key: text.count("\n") + 1 for key, text in collection.documents.items()}
    return _judged(collection.name, folder, collection, {key: (names[key], 1, lines[key]) for key in names})


def _sections(collection: RetrievalCollection, folder: Path, seed: int) -> _Judged:
    keys = list(collection.documents)
    random.Random(seed).shuffle(keys)
    folder.mkdir()
    places = {}
    for number, start in enumerate(range(0, len(keys), _DOCUMENTS_PER_FILE)):
        lines: list[str] = []
        for key in keys[start : start + _DOCUMENTS_PER_FILE]:
            text = collection.documents[key].split("\n")
            lines += [f"# {key}", ""]
            places[key] = (f"{number}.md", len(lines) + 1, len(lines) + len(text))
            lines += [*text, ""]
        (folder / f"{number}.md").write_text("\n".join(lines), encoding="utf-8")
    return _judged(f"{collection.name} in sections", folder, collection, places)


def _judged(
    name: str, folder: Path, collection: RetrievalCollection, places: Mapping[str, tuple[str, int, int]]
) -> _Judged:
    answers = [
        [places[document] for document, gain in collection.relevance[key].items() if gain > 0 and document in places]
        for key in collection.queries
    ]
    kept = [(query, found) for query, found in zip(collection.queries.values(), answers, strict=True) if found][
        ::_EVERY
    ]
    return _Judged(name, folder, [query for query, _ in kept], [found for _, found in kept])


def _measure(setting: Setting, judged: _Judged) -> Found:
    store = setting.folder / f"{judged.folder.name}-store"
    index_files(IndexingRequest(store, (judged.folder,)))
    found: dict[str, dict[int, np.ndarray]] = {}
    texts = {
        str(file.relative_to(judged.folder)): file.read_text(encoding="utf-8") for file in judged.folder.rglob("*.*")
    }
    with Store.open(store) as opened:
        say(f"{judged.name}: {len(judged.queries)} queries, {len(opened):,} chunks")
        hits = {query: _blocks(opened.search(query, _DEPTH)) for query in judged.queries}
        ways: dict[str, Callable[[str, int], Iterable[ContextBlock]]] = {
            _PACKED: lambda query, budget: opened.context(query, budget).blocks,
            _PLAIN: lambda query, budget: _fitting(hits[query], budget),
        }
        if judged.name == "Python's library":
            peer = _of_semble(setting, judged)
            ways[_SEMBLE] = lambda query, budget: _fitting(peer[query], budget)
        for way, pack in ways.items():
            found[way] = {
                budget: np.array([
                    _recall(pack(query, budget), answers, texts)
                    for query, answers in zip(judged.queries, judged.answers, strict=True)
                ])
                for budget in BUDGETS
            }  # fmt: skip
    shutil.rmtree(store)
    return found


def _blocks(hits: Iterable[Hit]) -> list[ContextBlock]:
    return [
        ContextBlock(
            hit.source or hit.id,
            hit.chunk.text,
            start_line=hit.chunk.start_line,
            end_line=hit.chunk.end_line,
            title=hit.chunk.title,
            headings=hit.chunk.headings,
        )
        for hit in hits
    ]


def _fitting(blocks: Iterable[ContextBlock], budget: int) -> list[ContextBlock]:
    """Return the blocks that fit, each as `ragembed context` would print it."""
    renderer = renderer_of("text")
    room, kept = budget - estimated_tokens(renderer.render("", [], [])), []
    for block in blocks:
        cost = estimated_tokens(renderer.frame(block)) + estimated_tokens(block.text + "\n")
        if cost <= room:
            room -= cost
            kept.append(block)
    return kept


def _recall(blocks: Iterable[ContextBlock], answers: Ranges, texts: Mapping[str, str]) -> float:
    """Return the share of the answers whose text is all in the blocks; paths may begin above the folder.

    A long line may be divided between chunks, so characters are compared and not line numbers.
    """
    found: dict[str, np.ndarray] = {}
    for block in blocks:
        name = next((name for name in _endings(block.path) if name in texts), None)
        if name is None or block.start_line is None:
            continue
        text = texts[name]
        start = text.find(block.text, _offset(text, block.start_line))
        if start < 0:
            raise ValueError(f"{block.location} has a text that is not in the file")
        found.setdefault(name, np.zeros(len(text), dtype=bool))[start : start + len(block.text)] = True
    complete = 0
    for name, first, last in answers:
        if name in found:
            text = texts[name]
            start, stop = _offset(text, first), _offset(text, last + 1)
            wanted = [i for i in range(start, stop) if not text[i].isspace()]
            complete += bool(found[name][wanted].all())
    return complete / len(answers)


def _endings(path: str) -> Iterator[str]:
    """Yield the path, then what follows each of its slashes."""
    parts = path.split("/")
    yield from ("/".join(parts[i:]) for i in range(len(parts)))


@cache
def _offsets(text: str) -> list[int]:
    return list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))


def _offset(text: str, line: int) -> int:
    """Return the position of a line, from 1, in a text."""
    return min(_offsets(text)[line - 1], len(text))


def _of_semble(setting: Setting, judged: _Judged) -> dict[str, list[ContextBlock]]:
    """Return semble's results for each query."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(judged.folder.rglob("*.py"))]
    embedder = Embedder.from_preset("avg", weighting="uniform", postprocess=()).fit(texts)
    vectors, queries = setting.folder / "avg.npy", setting.folder / "queries.json"
    np.save(vectors, embedder.extractor.state()["avg.vectors"])
    queries.write_text(json.dumps(judged.queries), encoding="utf-8")
    request = {
        "folder": str(judged.folder),
        "queries": str(queries),
        "k": _DEPTH,
        "vectors": str(vectors),
        "tokenizer": str(find_model(DEFAULT_MODEL).folder / "tokenizer.json"),
        "model": str(setting.folder / "semble-model"),
    }
    setting.runner.run_task(SEMBLE.python, PEERS / "semble_side.py", "search", request)
    answers = json.loads(queries.with_suffix(".answers.json").read_text(encoding="utf-8"))
    return {
        query: [ContextBlock(path, text, start_line=first, end_line=last) for path, text, first, last in results]
        for query, results in zip(judged.queries, answers, strict=True)
    }


def _draw(measured: Mapping[str, Found]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.0), layout="constrained")
    for axes, (name, found) in zip(figure.subplots(1, 3), measured.items(), strict=True):
        for way, by_budget in found.items():
            axes.plot(BUDGETS, [100 * by_budget[budget].mean() for budget in BUDGETS], marker=".", label=way)
        axes.set(xscale="log", xlabel="tokens", ylabel="recall, per cent", title=name)
        axes.set_xticks(BUDGETS, [f"{budget:,}" for budget in BUDGETS])
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=8)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, format="png", dpi=110)
