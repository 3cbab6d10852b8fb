"""Which reader a dictionary has: told by its file's ending, or by what lies in its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ragembed.errors import DictionaryError
from ragembed.training.dictionaries.dictd import read_dictd
from ragembed.training.dictionaries.markdown import DEFINITIONS, TERMS, read_markdown
from ragembed.training.dictionaries.senses import Dictionary, Sense, merge
from ragembed.training.dictionaries.stardict import read_stardict
from ragembed.training.dictionaries.tables import read_jsonl, read_tsv
from ragembed.training.dictionaries.wordnet import FILES, read_wordnet

READERS: Mapping[str, Callable[[Path], Iterator[Sense]]] = {
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
    ".index": read_dictd,
    ".ifo": read_stardict,
    ".md": read_markdown,
    ".markdown": read_markdown,
}
"""What reads a file, by its ending."""


def read_dictionaries(paths: Sequence[Path]) -> Dictionary:
    """Read dictionaries of any format, and merge them; see :func:`ragembed.training.dictionaries.senses.merge`.

    A path is a file with one of the endings of :data:`READERS`, a folder with WordNet's database, or a folder below
    which there is Markdown. Raises :class:`DictionaryError` where one is neither, cannot be read, or has no entry.
    """
    if not paths:
        raise DictionaryError("no dictionary: expected at least one file or folder")
    return merge(sense for path in paths for sense in _some(path))


def _some(path: Path) -> Iterator[Sense]:
    """Yield what a path holds, at least one sense."""
    empty = True
    for sense in _senses(path):
        empty = False
        yield sense
    if empty:
        hint = (
            f": expected definition lists, or tables with a column {'|'.join(TERMS)} and one {'|'.join(DEFINITIONS)}"
            if path.suffix.lower() in (".md", ".markdown")
            else ""
        )
        raise DictionaryError(f"{path} has no entry{hint}")


def _senses(path: Path) -> Iterator[Sense]:
    if path.is_dir():
        yield from _of_folder(path)
        return
    if not path.is_file():
        raise DictionaryError(f"the dictionary {path} is not there")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DictionaryError(
            f"{path} has no ending of a dictionary: expected {', '.join(READERS)}, or WordNet's folder"
        )
    yield from reader(path)


def _of_folder(folder: Path) -> Iterator[Sense]:
    for place in (folder, folder / "dict"):
        if (place / FILES[0]).is_file():
            yield from read_wordnet(place)
            return
    files = sorted(file for ending in (".md", ".markdown") for file in folder.rglob(f"*{ending}"))
    if not files:
        raise DictionaryError(f"the folder {folder} is no dictionary: expected WordNet's {FILES[0]}, or Markdown files")
    for file in files:
        yield from read_markdown(file)
