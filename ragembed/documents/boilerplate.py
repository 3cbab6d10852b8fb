"""Lines that many files repeat, such as licence headers, menus and footers: found by counting, and left out of texts.

Files of one kind are compared with one another, so that the file LICENSE keeps what every source file repeats of it.
A line is known by its key: a hash of how it reads without case, white space and what stands around its words, and its
length. So all that is kept of a file are its keys, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import groupby
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragembed.documents.model import Chunk
from ragembed.documents.readers.registry import BY_NAME, BY_SUFFIX, PLAIN

LineKeys = NDArray[np.uint64]

LEAST_FILES = 5
"""Files with different contents that repeat a line, at least."""
LEAST_SHARE = 0.5
"""Share of the files of one kind that repeat it, at least; paragraphs that a third of a manual's pages repeat answer
queries."""
LEAST_SHARE_OF_CODE = 0.05
"""The same for comments in source code, which hardly repeat anything but licences and notes of generators."""
LEAST_RUN = 20
"""Characters of such lines in a row, at least: what is shorter is as likely to be a heading or a word of a list."""
MOST_OF_FILE = 0.9
LONG_FILE = 5_000
"""A file of more characters, of which more than this share is repeated, does not count: it is nearly a copy."""

_SIZE_BITS = 10
_MOST_CHARACTERS = (1 << _SIZE_BITS) - 1
_ROWS = ("csv", "jsonl")
_CODE = ("source", "notebook")

_COMMENT = re.compile(
    r"\s*(?:#+(?![\w!\[])|//|/\*|\*/|\*+(?=\s|$)|--(?=[\s-]|$)|;|%|<!--|-->|!(?=\s)|dnl\s|rem\s)", re.I
)
_OPENING, _CLOSING = re.compile(r"\s*(?:/\*|<!--)"), re.compile(r"\*/|-->")
_AROUND = re.compile(r"^[\W_]+|[\W_]+$")
_COPYRIGHT = re.compile(r"copyright|©|\(c\)", re.I)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")


def kind_of(name: str) -> str | None:
    """Return what a file is compared as, by its name; None for tables, whose rows repeat values."""
    path = PurePosixPath(name)
    reader = BY_NAME.get(path.name.lower()) or BY_SUFFIX.get(path.suffix.lower()) or PLAIN
    return None if reader.name in _ROWS else reader.name


def line_keys(texts: Iterable[str], kind: str | None) -> LineKeys:
    """Return the keys of a file's lines, uint64, shape ``(n,)``, in order.

    ``texts`` are those of its chunks. Of source code, only comments have keys. What stands between lines that have one
    is a single number below 1,024, its characters; lines without a word are nothing.
    """
    if kind is None:
        return np.zeros(0, dtype=np.uint64)
    keys: list[int] = []
    for text in texts:
        for _, of_line in _read(text, kind):
            if of_line is None:
                continue
            if of_line.key <= _MOST_CHARACTERS and keys and keys[-1] <= _MOST_CHARACTERS:
                keys[-1] = min(_MOST_CHARACTERS, keys[-1] + of_line.key)
            else:
                keys.append(of_line.key)
    return np.array(keys, dtype=np.uint64)


def line_key(line: str) -> int:
    """Return the key of a line, as it is where it has one."""
    return _key(line, _AROUND.sub("", line))


class _Line(NamedTuple):
    """A line with a word: ``key`` is its size alone where it cannot be boilerplate."""

    key: int
    size: int


def _read(text: str, kind: str) -> Iterator[tuple[str, _Line | None]]:
    """Yield each line and what it is, None for one without a word that does not end a run."""
    only_comments, inside = kind in _CODE, False
    for line in text.split("\n"):
        comment = not only_comments or inside or _COMMENT.match(line) is not None
        if only_comments and comment:
            inside = (inside or _OPENING.match(line) is not None) and _CLOSING.search(line) is None
        read = _AROUND.sub("", line)
        if read and comment:
            key = _key(line, read)
            yield line, _Line(key, key & _MOST_CHARACTERS)
        elif read or (only_comments and not comment and line.strip()):
            size = min(len(read), _MOST_CHARACTERS)
            yield line, _Line(size, size)
        else:
            yield line, None


def _key(line: str, read: str) -> int:
    read = " ".join(read.split()).casefold()
    if _COPYRIGHT.search(line):
        read = _YEAR.sub("0", read)
    digest = int.from_bytes(blake2b(read.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    # A hash of nothing but zeros would read as no hash.
    return (max(digest >> _SIZE_BITS, 1) << _SIZE_BITS) | min(len(read), _MOST_CHARACTERS)


class FileLines(NamedTuple):
    """A file as it is compared: what it is compared as, the hash of its content, and the keys of its lines."""

    kind: str
    content: str
    keys: LineKeys


BoilerplateCounts = Mapping[str, Mapping[int, int]]
"""By kind of file, the key of each line that is boilerplate, and in how many files it is."""


def find(files: Iterable[FileLines]) -> BoilerplateCounts:
    """Return what is boilerplate among ``files``; files with the same content count once.

    It is the largest set of lines of which each is in at least ``LEAST_FILES`` and ``LEAST_SHARE`` (of code
    ``LEAST_SHARE_OF_CODE``) of the files of its kind, in a run of nothing but lines of the set with ``LEAST_RUN``
    characters or more. Files longer than ``LONG_FILE`` of which more than ``MOST_OF_FILE`` is in such runs do not
    count: versions of one text are no boilerplate.
    """
    by_kind: dict[str, dict[str, LineKeys]] = {}
    for file in files:
        by_kind.setdefault(file.kind, {})[file.content] = file.keys
    found = {
        kind: _find_in(list(contents.values()), LEAST_SHARE_OF_CODE if kind in _CODE else LEAST_SHARE)
        for kind, contents in by_kind.items()
    }
    return {kind: lines for kind, lines in found.items() if lines}


def _find_in(files: Sequence[LineKeys], share: float) -> dict[int, int]:
    lines = _Lines.of(files)
    counts, in_runs = lines.repeated(share)
    sizes = lines.characters_of_files(np.ones_like(in_runs))
    copies = (sizes > LONG_FILE) & (lines.characters_of_files(in_runs) > MOST_OF_FILE * sizes)
    if copies.any():
        lines = _Lines.of([keys for keys, is_copy in zip(files, copies.tolist(), strict=True) if not is_copy])
        counts, _ = lines.repeated(share)
    return {int(lines.distinct[i]): int(counts[i]) for i in np.flatnonzero(counts)}


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of several files one below the other, those together that are in too few files whatever the rest is.

    ``distinct`` are the other keys there are; of each line, ``number`` is the place of its key in them, -1 where it has
    none, ``file`` the number of its file, and ``sizes`` its characters. A line without a key is above the first file
    and ends each.
    """

    distinct: LineKeys
    number: NDArray[np.int64]
    file: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, files: Sequence[LineKeys]) -> _Lines:
        end = np.zeros(1, dtype=np.uint64)
        keys: LineKeys = np.concatenate([end, *(part for keys in files for part in (keys, end))])
        file = np.repeat(np.arange(-1, len(files)), [1, *(len(keys) + 1 for keys in files)])
        distinct = _frequent(keys)
        places = np.searchsorted(distinct, keys)
        number = np.where(np.append(distinct, end)[places] == np.maximum(keys, 1), places, -1)
        apart = (number[1:] >= 0) | (number[:-1] >= 0) | (file[1:] != file[:-1])
        first = np.concatenate([[0], np.flatnonzero(apart) + 1])
        sizes = (keys & np.uint64(_MOST_CHARACTERS)).astype(np.int64)
        return cls(distinct, number[first], file[first], np.add.reduceat(sizes, first))

    def repeated(self, share: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return for each distinct key in how many files it is boilerplate, 0 for none; and of each line whether it is.

        Begins with all lines that have a key, and takes out what is in fewer than ``share`` of the files or in too
        short a run until nothing changes.
        """
        least = max(LEAST_FILES, share * (self.file[-1] + 1))
        left = self.number >= 0
        while True:
            counts = self._files_of(left)
            counts[counts < least] = 0
            kept = left & (counts[self.number] > 0)  # the last count for -1
            kept &= self._long_enough(kept)
            if np.array_equal(kept, left):
                return counts, kept
            left = kept

    def characters_of_files(self, chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return how many characters of each file are in the lines that are chosen."""
        return np.bincount(self.file[1:], weights=(self.sizes * chosen)[1:]).astype(np.float64)

    def _files_of(self, left: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return in how many files each distinct key is among the lines that are left, and a 0 for lines without."""
        files = max(self.file[-1] + 1, 1)
        pairs = np.sort(self.number[left] * files + self.file[left])
        differs = np.concatenate([np.ones(min(len(pairs), 1), dtype=bool), pairs[1:] != pairs[:-1]])
        return np.bincount(pairs[differs] // files, minlength=len(self.distinct) + 1)

    def _long_enough(self, left: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Tell of each line whether it is in a run of lines that are left with enough characters in all."""
        run = np.cumsum(~left)  # of a line and of the one above it the same where it is left
        characters = np.bincount(run, weights=self.sizes * left)
        return characters[run] >= LEAST_RUN


def _frequent(keys: LineKeys) -> LineKeys:
    """Return the keys of lines that are there ``LEAST_FILES`` times or more, ascending."""
    ordered = np.sort(keys)
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    often = np.diff(first, append=len(ordered)) >= LEAST_FILES
    distinct = ordered[first[often]]
    return distinct[distinct > _MOST_CHARACTERS]


@dataclass(slots=True)
class Stripper:
    """Takes boilerplate out of what is searched of chunks; ``seen`` are the lines that it took, by kind and key."""

    found: BoilerplateCounts
    seen: dict[tuple[str, int], str] = field(default_factory=dict)

    def strip(self, chunk: Chunk, kind: str | None) -> Chunk:
        """Return the chunk with the text in which it is searched: without boilerplate, None for the whole text.

        It is ``""`` where nothing else is left that has a word.
        """
        searched = self._without(chunk.text, kind)
        return chunk if searched == chunk.searched else replace(chunk, searched=searched)

    def _without(self, text: str, kind: str | None) -> str | None:
        known = self.found.get(kind or "", {})
        if kind is None or not known:
            return None
        kept: list[str] = []
        taken = 0
        lines = [(line, of_line, of_line is None or of_line.key in known) for line, of_line in _read(text, kind)]
        for goes, group in groupby(lines, key=lambda line: line[2]):
            run = list(group)
            keyed = [(line, of_line) for line, of_line, _ in run if of_line is not None]
            if not goes or sum(of_line.size for _, of_line in keyed) < LEAST_RUN:
                kept += [line for line, _, _ in run]
                continue
            taken += len(keyed)
            kept += [line for line, of_line, _ in run if of_line is None and _stays(line, kind)]
            self.seen.update(((kind, of_line.key), line.strip()) for line, of_line in keyed)
        if not taken:
            return None
        left = "\n".join(kept).strip("\n")
        return left if any(character.isalnum() for character in left) else ""


def _stays(line: str, kind: str) -> bool:
    """Tell whether a line without a word stays where a run around it goes: a rule of prose, but no mark of comments."""
    return bool(line.strip()) and kind not in _CODE
