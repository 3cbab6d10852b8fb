"""Read dictionaries of any format. The suffix of a file, or the content of a folder, determines the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ragembed.errors import DictionaryError
from ragembed.papers.training.dictionaries.dictd import read_dictd
from ragembed.papers.training.dictionaries.markdown import DEFINITIONS, TERMS, read_markdown
from ragembed.papers.training.dictionaries.senses import Dictionary, Sense, merge
from ragembed.papers.training.dictionaries.stardict import read_stardict
from ragembed.papers.training.dictionaries.tables import read_jsonl, read_tsv
from ragembed.papers.training.dictionaries.wordnet import FILES, read_wordnet

READERS: Mapping[str, Callable[[Path], Iterator[Sense]]] = {
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
    ".index": read_dictd,
    ".ifo": read_stardict,
    ".md": read_markdown,
    ".markdown": read_markdown,
}
"""Readers by file suffix."""


def read_dictionaries(paths: Sequence[Path]) -> Dictionary:
    """Read dictionaries of any format and merge them, in the order of their first entries.

    Files are tables (``.tsv``, ``.jsonl``), dictd (``.index``), StarDict (``.ifo``) or Markdown glossaries (``.md``,
    ``.markdown``); a folder contains the WordNet database or Markdown files. White space is normalised; upper and lower
    case differ.
    """
    if not paths:
        raise DictionaryError("no dictionary: expected at least one file or folder")
    return merge(sense for path in paths for sense in _non_empty(path))


def _non_empty(path: Path) -> Iterator[Sense]:
    """Yield the senses of a path. Raises :class:`DictionaryError` if there are none."""
    empty = True
    for sense in _senses(path):
        empty = False
        yield sense
    if empty:
        hint = (
            f": expected definition lists, or tables with the columns {'|'.join(TERMS)} and {'|'.join(DEFINITIONS)}"
            if path.suffix.lower() in (".md", ".markdown")
            else ""
        )
        raise DictionaryError(f"{path} has no entry{hint}")


def _senses(path: Path) -> Iterator[Sense]:
    if path.is_dir():
        yield from _folder_senses(path)
        return
    if not path.is_file():
        raise DictionaryError(f"the dictionary {path} does not exist: give a file or folder")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DictionaryError(f"{path} has an unknown suffix: expected {', '.join(READERS)}, or the folder of WordNet")
    yield from reader(path)


def _folder_senses(folder: Path) -> Iterator[Sense]:
    for place in (folder, folder / "dict"):
        if (place / FILES[0]).is_file():
            yield from read_wordnet(place)
            return
    files = sorted(file for ending in (".md", ".markdown") for file in folder.rglob(f"*{ending}"))
    if not files:
        raise DictionaryError(
            f"the folder {folder} contains no dictionary: expected WordNet's {FILES[0]}, or Markdown files"
        )
    for file in files:
        yield from read_markdown(file)
