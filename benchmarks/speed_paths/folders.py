"""Folders of files that all sides index."""

from __future__ import annotations

import csv
import math
from itertools import islice
from pathlib import Path

import numpy as np
from collection import write_files

from ragembed.documents.readers.registry import read
from ragembed.evaluation import read_beir
from speed_paths.setting import Setting

_SUFFIXES = (".rst.txt", ".html")
_CHARACTERS = 1_200_000
"""Of Python's documentation that are taken, for the time that the peers need."""


def collection_folder(setting: Setting, name: str, limit: int | None) -> Path:
    """Write the documents of a retrieval collection, or the first ``limit``, one file each, and return the folder."""
    return write_files(read_beir(setting.data / "retrieval" / name), setting.folder / f"files-{name}", limit)


def python_docs_folder(setting: Setting, docs: Path, limit: int | None) -> Path:
    """Write files of Python's documentation as plain text, drawn at random until there is enough of it.

    The sources (``.rst.txt``) are taken as they are; where there are none, the text of the HTML as ragembed reads it.
    """
    for suffix in _SUFFIXES:
        if found := sorted(docs.rglob(f"*{suffix}")):
            break
    else:
        raise ValueError(f"{docs} has no file that ends with {' or '.join(_SUFFIXES)}: expected Python's documentation")
    folder = setting.folder / "files-python"
    folder.mkdir()
    left = _CHARACTERS
    for position in np.random.default_rng(setting.seed).permutation(len(found))[:limit].tolist():
        text = _text(found[position])
        name = str(found[position].relative_to(docs)).replace("/", "__").removesuffix(suffix)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        if (left := left - len(text)) <= 0:
            break
    return folder


def tables_folder(setting: Setting, size: int, texts: Path, rows: int, lines_each: int = 1) -> Path:
    """Write ``size`` texts as tables of so many rows, each of so many lines of ``texts``, and return their folder."""
    folder = setting.folder / f"tables-{size}"
    folder.mkdir()
    with texts.open(encoding="utf-8") as lines:
        left = (" ".join(line.rstrip("\n") for line in islice(lines, lines_each)) for _ in range(size))
        for number in range(math.ceil(size / rows)):
            with (folder / f"{number:05}.csv").open("w", encoding="utf-8", newline="") as file:
                written = csv.writer(file, lineterminator="\n")
                written.writerow(["text"])
                written.writerows([text] for text in islice(left, rows))
    return folder


def texts_of(folder: Path) -> list[str]:
    """Return the texts of the files in ``folder``."""
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]


def _text(path: Path) -> str:
    if path.name.endswith(".txt"):
        return path.read_text(encoding="utf-8")
    return "\n\n".join(document.text for document in read(path))
