"""What the long tests share: a corpus, the command line as a process, and what a store holds and answers.

``RAGEMBED_SLOW_SCALE`` multiplies how much each test does: 1 is a run of a minute or two for a file.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ragembed.indexes import Fusion, Store
from ragembed.indexes.storage.layout import DATABASE, DERIVED, EMBEDDERS, GITIGNORE, RAW, SEGMENTS
from ragembed.indexes.storage.layout import INDEX as INDEX_FILE

SCALE = float(os.environ.get("RAGEMBED_SLOW_SCALE", "1"))
INDEX = ("index", "docs", "--extractor", "re:dim=64", "--json")
"""Random embeddings need only the tokenizer of the default model: a run takes seconds and does every step."""
MODES = ("dense", "lexical", "hybrid")
TOLERANCE = 1e-4

Corpus = Mapping[str, str]
"""The text of each file by its name."""
Content = Mapping[str, tuple[tuple[str, str], ...]]
"""Ids and texts of the chunks of each file, in order."""
Answers = Sequence[Sequence[tuple[str, float]]]
"""Ids and scores, best first, of each query."""

_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "zo")
WORDS = tuple("".join(syllables) for syllables in product(_SYLLABLES, repeat=3))
_TABLE = "docs/rows.csv"


def scaled(count: float) -> int:
    """Return ``count`` times the scale, at least 1."""
    return max(1, round(count * SCALE))


# Texts


def words(rng: np.random.Generator, count: int) -> str:
    """Return a text of ``count`` words; few of them are frequent, many are rare."""
    ranks = np.minimum(rng.zipf(1.3, count), len(WORDS)) - 1
    return " ".join(WORDS[rank] for rank in ranks)


def queries(seed: int, count: int) -> list[str]:
    """Return queries of two frequent words and a rare one."""
    rng = np.random.default_rng(seed)
    return [f"{words(rng, 2)} {WORDS[rng.integers(len(WORDS))]}" for _ in range(count)]


def make_corpus(seed: int, files: int, rows: int) -> Corpus:
    """Return Markdown files in two folders, and one long table."""
    rng = np.random.default_rng(seed)
    texts = {f"docs/{'ab'[i % 2]}/f{i:04}.md": _page(rng) for i in range(files)}
    return {**texts, _TABLE: _table([words(rng, 12) for _ in range(rows)])}


def edited(corpus: Corpus) -> Corpus:
    """Return the corpus with files changed, removed and added; the table loses rows and gains more."""
    rng = np.random.default_rng(len(corpus))
    kept = {}
    for i, (name, text) in enumerate(corpus.items()):
        if name == _TABLE:
            rows = text.splitlines()[1:]
            kept[name] = _table([*rows[len(rows) // 4 :], *(words(rng, 12) for _ in rows)])
        elif i % 6 != 1:
            kept[name] = f"{text}\n\n{words(rng, 60)}\n" if i % 3 == 0 else text
    return {**kept, **{name.replace("docs/", "docs/new/"): _page(rng) for name in corpus if name != _TABLE}}


def write_corpus(folder: Path, corpus: Corpus, before: Corpus | None = None) -> None:
    """Write the files below ``folder``; unchanged files of ``before`` stay as they are, files that went are removed."""
    before = before or {}
    for name in before.keys() - corpus.keys():
        (folder / name).unlink()
    for name, text in corpus.items():
        if before.get(name) != text:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")


def _page(rng: np.random.Generator) -> str:
    parts = (f"## {words(rng, 2)}\n\n{words(rng, 60)}\n" for _ in range(6))
    return f"# {words(rng, 3)}\n\n" + "\n".join(parts)


def _table(rows: Sequence[str]) -> str:
    return "text\n" + "\n".join(rows) + "\n"


# Stores


@dataclass(frozen=True)
class Cli:
    """``ragembed`` as a process that works in ``folder``, where the store is or will be."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / ".ragembed"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", "from ragembed.cli import main; main(prog_name='ragembed')", *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments) as process:
            output, errors = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    def must(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, f"ragembed {' '.join(arguments)}:\n{done.stderr}"
        return done.stdout

    def problems(self) -> list[tuple[str, str]]:
        """Return part and file of each problem that ``ragembed doctor --integrity`` finds."""
        done = self.run("doctor", "--integrity", "--json")
        assert done.stdout, done.stderr
        return [(found["part"], found["file"]) for found in json.loads(done.stdout)["problems"]]


def content(path: Path) -> Content:
    """Return what the store holds, files without chunks included."""
    with Store.open(path) as store:
        found: dict[str, list[tuple[str, str]]] = {name: [] for name in store.sources()}
        for record in store.chunks():
            found.setdefault(record.source or "", []).append((record.id, record.chunk.text))
    return {name: tuple(chunks) for name, chunks in sorted(found.items())}


def answers(path: Path, asked: Sequence[str], modes: Sequence[Any] = MODES) -> Answers:
    """Ask the store each query in each mode, without the correction for hubs, which depends on the store's history."""
    fusion = Fusion(hubness=0)
    with Store.open(path) as store:
        return [
            [(hit.id, hit.score) for hit in store.search(text, 10, mode, fusion=fusion)]
            for mode in modes
            for text in asked
        ]


def same_answers(found: Answers, expected: Answers, tolerance: float = TOLERANCE) -> bool:
    """Tell whether scores agree, and ids too, except for ties."""
    return len(found) == len(expected) and all(
        _same(mine, theirs, tolerance) for mine, theirs in zip(found, expected, strict=True)
    )


def _same(found: Sequence[tuple[str, float]], expected: Sequence[tuple[str, float]], tolerance: float) -> bool:
    mine, theirs = (np.array([score for _, score in hits]) for hits in (found, expected))
    if mine.shape != theirs.shape or not np.allclose(mine, theirs, rtol=tolerance, atol=tolerance):
        return False
    scores = dict(expected)
    last = expected[-1][1] if expected else 0.0
    return all(np.isclose(scores.get(name, last), score, rtol=tolerance, atol=tolerance) for name, score in found)


def leftovers(store: Path) -> list[str]:
    """Return the names of what is in a store's folder although no commit names it and no process needs it."""
    with Store.open(store) as opened:
        status = opened.status()
    with closing(sqlite3.connect(store / DATABASE)) as database:
        derived = {file for (file,) in database.execute("SELECT file FROM derived")}
    named = {
        SEGMENTS: {segment["folder"] for segment in status["segments"]},
        DERIVED: derived,
        EMBEDDERS: {status["embedder"]["fingerprint"]},
    }
    lasting = {GITIGNORE, "writer.lock", *named}
    left = {entry.name for entry in store.iterdir() if not entry.name.startswith(DATABASE)} - lasting
    for folder, names in named.items():
        left |= {f"{folder}/{entry.name}" for entry in (store / folder).glob("*") if entry.name not in names}
    return sorted(left)


def flip(file: Path, offset: int) -> None:
    """Change one byte of a file; the second call restores it."""
    with file.open("r+b") as stream:
        stream.seek(offset)
        [byte] = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([byte ^ 1]))


# Commands that write


@dataclass(frozen=True)
class Case:
    """A command, and what a store holds before and after it.

    ``at_once``: it changes all content in one commit. ``may_be_done``: a second run finds nothing to do and exits with
    1. ``damage``: what ``verify`` finds before the command repairs it. ``modes``: searches that work meanwhile.
    """

    arguments: Sequence[str]
    before: Content
    after: Content
    at_once: bool = True
    may_be_done: bool = False
    damage: Sequence[tuple[str, str]] = ()
    modes: Sequence[str] = MODES

    def is_committed(self, found: Content) -> bool:
        """Tell whether ``found`` is a state that the command commits, or the one before it."""
        if self.at_once:
            return found in (self.before, self.after)
        names = self.before.keys() | self.after.keys() | found.keys()
        return all(found.get(name) in (self.before.get(name), self.after.get(name)) for name in names)


def _first_index(cli: Cli) -> Case:
    corpus = make_corpus(0, 60, 1500)
    write_corpus(cli.folder, corpus)
    return Case(INDEX, {}, _rebuilt(cli, corpus), at_once=False)


def index_after_edits(cli: Cli) -> Case:
    corpus = make_corpus(0, 60, 1500)
    before, after = _indexed(cli, corpus), edited(corpus)
    write_corpus(cli.folder, after, corpus)
    return Case(INDEX, before, _rebuilt(cli, after), at_once=False)


def _delete_paths(cli: Cli) -> Case:
    before = _indexed(cli)
    after = {name: chunks for name, chunks in before.items() if name.startswith("docs/b/")}
    return Case(("delete", "docs/a", "docs/rows.csv"), before, after, may_be_done=True)


def _delete_where(cli: Cli) -> Case:
    before = _indexed(cli)
    after = {name: () if name.endswith(".md") else chunks for name, chunks in before.items()}
    return Case(("delete", "--where", "ext = 'md'"), before, after, may_be_done=True)


def _refit(cli: Cli) -> Case:
    before = _indexed(cli)
    return Case(("refit", "--postprocess", "whiten"), before, before)


def _optimize(cli: Cli) -> Case:
    _indexed(cli)
    cli.must("delete", "docs/b")
    for name in ("docs/new/x.md", "docs/new/y.md"):
        write_corpus(cli.folder, {name: f"# {name}\n\na page that came later\n"})
        cli.must("index", "docs/new")
    before = content(cli.store)
    return Case(("doctor", "--repair"), before, before)


def _repair_segments(cli: Cli) -> Case:
    before = _indexed(cli)
    folders = sorted((cli.store / SEGMENTS).iterdir())
    return _repair(cli, before, (folders[0] / RAW, folders[-1] / INDEX_FILE))


def _repair_embedder(cli: Cli) -> Case:
    before = _indexed(cli)
    [state] = (cli.store / EMBEDDERS).glob("*/state.safetensors")
    return _repair(cli, before, (state, next((cli.store / SEGMENTS).iterdir()) / RAW))


def _repair(cli: Cli, before: Content, files: Sequence[Path]) -> Case:
    for file in files:
        flip(file, file.stat().st_size // 3)
    return Case(("doctor", "--repair"), before, before, damage=cli.problems(), modes=("lexical",))


CASES: Mapping[str, Callable[[Cli], Case]] = {
    "index": _first_index,
    "index after edits": index_after_edits,
    "delete PATH": _delete_paths,
    "delete --where": _delete_where,
    "refit": _refit,
    "optimize": _optimize,
    "doctor --repair, segments": _repair_segments,
    "doctor --repair, embedder": _repair_embedder,
}
"""Each prepares a folder in which its command can run."""


def _indexed(cli: Cli, corpus: Corpus | None = None) -> Content:
    write_corpus(cli.folder, corpus or make_corpus(0, 120, 3000))
    cli.must(*INDEX)
    return content(cli.store)


def _rebuilt(cli: Cli, corpus: Corpus) -> Content:
    """Return the content of a store of ``corpus`` that is built in one go elsewhere."""
    clean = Cli(cli.folder.with_name(f"{cli.folder.name}-clean"))
    clean.folder.mkdir()
    return _indexed(clean, corpus)
