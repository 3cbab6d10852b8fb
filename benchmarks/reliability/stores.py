"""Real stores: the command line as a process, what a store holds, and what it answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragembed.indexes import Store, VectorEncoder
from ragembed.indexes.layout import DATABASE, EMBEDDERS, GITIGNORE, POSTINGS, SEGMENTS
from ragembed.indexes.search import Mode

STORE = ".ragembed"
INDEX = ("index", "docs", "--extractor", "re:dim=64", "--json")
"""Random embeddings need the default model's tokenizer alone: a run takes seconds, and all of its steps."""

ALL_MODES: tuple[Mode, ...] = ("dense", "lexical", "hybrid")
TOP = 10
TOLERANCE = 1e-4

Content = Mapping[str, tuple[tuple[str, str], ...]]
"""Ids and texts of the chunks of each file, in order."""
Answers = Sequence[Sequence[tuple[str, float]]]
"""Ids and scores, best first, of each question."""

_LASTING = {GITIGNORE, DATABASE, *(f"{DATABASE}-{what}" for what in ("sums", "wal", "shm")), "writer.lock"}
_COUNTED = Path(__file__).with_name("counted.py")


@dataclass(frozen=True, slots=True)
class Cli:
    """``ragembed`` with ``folder`` as its working directory, where the store is, or will be.

    What it encodes is written down in the file ``encoded``, if there is to be one; see :mod:`reliability.counted`.
    """

    folder: Path
    encoded: Path | None = None

    @property
    def store(self) -> Path:
        """The folder of the store."""
        return self.folder / STORE

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command; its output goes into pipes."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAGEMBED_", "PYTHON"))}
        return subprocess.Popen(
            [sys.executable, str(_COUNTED), *arguments],
            cwd=self.folder,
            env={**kept, "HF_HUB_OFFLINE": "1", **({"ENCODED": str(self.encoded)} if self.encoded else {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, however it ends."""
        with self.start(*arguments) as process:
            output, errors = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    def must(self, *arguments: str) -> str:
        """Run a command that has to succeed, and return what it printed."""
        done = self.run(*arguments)
        if done.returncode:
            raise RuntimeError(f"ragembed {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout

    def verify(self) -> tuple[int, list[tuple[str, str]]]:
        """Return the exit status of ``ragembed verify``, and part and file of each problem that it finds.

        In the place of a report, an error is one problem, its message being the file.
        """
        done = self.run("verify", "--json")
        if not done.stdout:
            return done.returncode, [("error", done.stderr.strip())]
        return done.returncode, [(found["part"], found["file"]) for found in json.loads(done.stdout)["problems"]]

    def texts_encoded(self) -> int:
        """Return how many texts were given to the encoder since this was asked last."""
        if self.encoded is None or not self.encoded.exists():
            return 0
        texts = sum(map(int, self.encoded.read_text().split()))
        self.encoded.unlink()
        return texts


def content(path: Path, encoder: VectorEncoder | None = None) -> Content:
    """Return what the store holds; files without chunks, and chunks without a file (under ``""``), included."""
    with Store.open(path, encoder) as store:
        found: dict[str, list[tuple[str, str]]] = {name: [] for name in store.sources()}
        for record in store.chunks():
            found.setdefault(record.source or "", []).append((record.id, record.chunk.text))
    return {name: tuple(chunks) for name, chunks in sorted(found.items())}


def answers(
    path: Path,
    asked: Sequence[str],
    modes: Sequence[Mode] = ("dense", "lexical"),
    encoder: VectorEncoder | None = None,
    k: int = TOP,
) -> Answers:
    """Ask the store each question in each mode."""
    with Store.open(path, encoder) as store:
        return [[(hit.id, hit.score) for hit in store.search(text, k, mode)] for mode in modes for text in asked]


def leftovers(store: Path) -> list[str]:
    """Return the names of what is in a store's folder though no commit names it and no process needs it."""
    with Store.open(store) as opened:
        status = opened.status()
    named = {
        SEGMENTS: {segment["folder"] for segment in status["segments"]},
        POSTINGS: {block["folder"] for block in status["postings"]},
        EMBEDDERS: {status["embedder"]["fingerprint"]},
    }
    left = {entry.name for entry in store.iterdir()} - _LASTING - named.keys()
    for folder, names in named.items():
        left |= {f"{folder}/{entry.name}" for entry in (store / folder).glob("*") if entry.name not in names}
    return sorted(left)


def same_answers(found: Answers, expected: Answers, tolerance: float = TOLERANCE) -> bool:
    """Tell whether scores agree, and ids too but for ties."""
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
