"""What the long tests share: a corpus, the command line as a process, and what a store holds and answers.

``RAGEMBED_SLOW_SCALE`` multiplies how much each test does: 1 is a run of a minute or two for a file.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from ragembed.indexes import Store
from ragembed.indexes.storage.layout import DATABASE, DERIVED, EMBEDDERS, GITIGNORE, SEGMENTS

SCALE = float(os.environ.get("RAGEMBED_SLOW_SCALE", "1"))
INDEX = ("index", "docs", "--extractor", "re:dim=64", "--json")
"""Random embeddings need only the tokenizer of the default model: a run takes seconds and does every step."""
MODES = ("dense", "lexical", "hybrid")

Corpus = Mapping[str, str]
"""The text of each file by its name."""
Content = Mapping[str, tuple[tuple[str, str], ...]]
"""Ids and texts of the chunks of each file, in order."""

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


def content(path: Path) -> Content:
    """Return what the store holds, files without chunks included."""
    with Store.open(path) as store:
        found: dict[str, list[tuple[str, str]]] = {name: [] for name in store.sources()}
        for record in store.chunks():
            found.setdefault(record.source or "", []).append((record.id, record.chunk.text))
    return {name: tuple(chunks) for name, chunks in sorted(found.items())}


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
