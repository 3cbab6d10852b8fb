"""The collections of the papers, where their files are expected and published, and the numbers that the papers print.

The folder ``published`` has one file per paper, with one block per table. The first line of a block has the name of the
table and its columns, the other lines a row each. Means are without their deviations. ``collections`` has a line for
each collection. ``differences`` says what differs from the papers: each line has the paper, the tables and figures, and
the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from types import MappingProxyType

from ragembed.corpus import Corpus
from ragembed.files import make_folders, replace_file
from ragembed.papers.sentences.sentence_collections import FOLDERS

_SHORTEST = 10
"""Sentences of Wikitext with fewer characters are left out (Stankevičius & Lukoševičius 2024, section 3.5.4)."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"“])")


@dataclass(frozen=True, slots=True)
class PaperCollection:
    """A collection of a paper: its group, the ``paths`` where it may be, and the number of records in the paper.

    ``split`` says what is measured. ``folder`` is the name in :data:`FOLDERS` of the files of a folder.
    """

    name: str
    group: str
    task: str
    paths: tuple[str, ...]
    source: str
    records: int | None = None
    split: str = "all"
    folder: str = ""

    def find(self, folder: Path) -> Path | None:
        """Return the file or folder of the collection below ``folder``, or None if it is missing."""
        return next((path for name in self.paths if (path := folder / name).exists()), None)

    @property
    def expected(self) -> str:
        """The place and the files of the collection as published."""
        names = FOLDERS[self.folder][0] if self.folder else ()
        # A file with the pairs of a part of STS stands beside one with their scores.
        shown = ", ".join(name.replace(".input.", ".{input,gs}.") for name in names)
        return f"{self.paths[0]} with {shown}" if shown else self.paths[0]


def published_text(name: str) -> str:
    """Return a file of the folder ``published``."""
    return (files("ragembed.papers.reproduction") / "published" / f"{name}.tsv").read_text(encoding="utf-8")


def _collections() -> Iterator[PaperCollection]:
    for line in published_text("collections").splitlines()[1:]:
        name, group, task, records, split, folder, source, *paths = line.split("\t")
        yield PaperCollection(name, group, task, tuple(paths), source, int(records or 0) or None, split, folder)


COLLECTIONS: Mapping[str, PaperCollection] = {one.name: one for one in _collections()}
"""Every collection of the papers, by its name."""


def in_group(group: str) -> tuple[str, ...]:
    """Return the names of the collections that a paper averages over."""
    trained = ("sickr-trained", "stsb-trained")
    return tuple(name for name, one in COLLECTIONS.items() if one.group == group and name not in trained) + (
        trained if group == "classification" else ()
    )


def sentences(folder: Path, out: Path) -> Path:
    """Split the text files of ``folder`` into sentences, one per line, and return the file with them in ``out``."""
    file = out / f"{folder.name}.sentences.txt"
    if not file.exists():
        make_folders(out)
        texts = sorted(path for path in folder.iterdir() if path.suffix in (".txt", ".tokens", ".raw"))
        parts = [sentence for path in texts for line in Corpus(path) for sentence in _SENTENCE.split(line)]
        kept = (" ".join(part.split()) for part in parts)
        replace_file(file, "\n".join(part for part in kept if len(part) >= _SHORTEST).encode())
    return file


Numbers = Mapping[str, Mapping[str, float]]
"""Numbers by row and column."""
Printed = Callable[[str, str, Sequence[str]], "float | None"]
"""Returns the paper's number for a row, a column and the collections that were measured."""


@cache
def differences(paper: str, item: str) -> tuple[str, ...]:
    """Return what differs from the paper in a table or figure, and why."""
    rows = (line.split("\t") for line in published_text("differences").splitlines())
    return tuple(text for name, items, text in rows if name == paper and item in items.split(", "))


@cache
def published(paper: str, table: str) -> Numbers:
    """Return the numbers of a table, such as ``published("stankevicius2024", "table A1")["avg."]["RE"]``."""
    for name, columns, rows in blocks(paper):
        if name == table:
            return {
                row: {column: float(cell) for column, cell in zip(columns, cells, strict=False) if cell}
                for row, *cells in rows
            }
    raise KeyError(f"no table {table!r} of {paper!r}")


def printed(paper: str, table: str, columns: Mapping[str, str] = MappingProxyType({})) -> Printed:
    """Return the lookup of the numbers of a table, by row, column and the collections that were measured.

    With ``columns``, names of columns by collection, an average is that of the columns of these collections.
    """

    def number(row: str, column: str, names: Sequence[str]) -> float | None:
        numbers = published(paper, table).get(row, {})
        if column != "average" or not columns:
            return numbers.get(column)
        known = [numbers[columns[name]] for name in names if columns.get(name) in numbers]
        return fmean(known) if known and len(known) == len(names) else None

    return number


@cache
def blocks(paper: str) -> tuple[tuple[str, list[str], list[list[str]]], ...]:
    """Return the name, the columns and the rows of each table of a paper."""
    found = []
    for block in published_text(paper).strip("\n").split("\n\n"):
        (name, *columns), *rows = (line.split("\t") for line in block.split("\n"))
        found.append((name, columns, rows))
    return tuple(found)
