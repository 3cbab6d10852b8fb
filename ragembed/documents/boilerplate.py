"""Detect lines that many files of a kind repeat, such as licence headers, menus and footers, and remove them.

Only the keys of a file's lines are stored: a hash of the text without case, repeated white space and the punctuation
around the words, combined with its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragembed.documents.model import Chunk
from ragembed.documents.readers.registry import PLAIN, named_reader

LineKeys = NDArray[np.uint64]

LEAST_FILES = 5
"""Minimum number of files, with different contents, that must repeat a line."""
LEAST_SHARE = 0.5
"""Minimum share of the files of one kind that must repeat a line.

A lower share would remove useful text: paragraphs that a third of a manual's pages repeat can still answer queries.
"""
LEAST_SHARE_OF_CODE = 0.05
"""Minimum share for comments in source code, which rarely repeat anything except licences and generator notes."""
LEAST_RUN = 20
"""Minimum number of characters in a run of repeated lines. A shorter run may be a heading or a list item."""
MOST_OF_FILE = 0.9
"""A file longer than ``LONG_FILE`` with a larger share of repeated text is nearly a copy, and is not counted."""
LONG_FILE = 5_000
"""Number of characters above which ``MOST_OF_FILE`` applies."""

_SIZE_BITS = 10
_MOST_CHARACTERS = (1 << _SIZE_BITS) - 1
_WITHOUT_KIND = ("csv", "jsonl", "json", "bibtex", "log", "subtitles", "tar", "zip")
_CODE = ("source", "notebook", "yaml", "settings", "dockerfile", "sql")

_COMMENT = re.compile(
    r"\s*(?:#+(?![\w!\[])|//|/\*|\*/|\*+(?=\s|$)|--(?=[\s-]|$)|;|%|<!--|-->|!(?=\s)|dnl\s|rem\s)", re.I
)
_OPENING, _CLOSING = re.compile(r"\s*(?:/\*|<!--)"), re.compile(r"\*/|-->")
_AROUND = re.compile(r"^[\W_]+|[\W_]+$")
_COPYRIGHT = re.compile(r"copyright|©|\(c\)", re.I)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")


def kind_of(name: str) -> str | None:
    """Return the kind of a file, from its name; None for records, which repeat values, and for archives."""
    reader = named_reader(name.rpartition("/")[2]) or PLAIN
    return None if reader.name in _WITHOUT_KIND else reader.name


def line_keys(texts: Iterable[str], kind: str | None) -> LineKeys:
    """Return the keys of a file's lines, as uint64 of shape ``(n,)``; the sizes of code between comments have none."""
    if kind is None:
        return np.zeros(0, dtype=np.uint64)
    keys: list[int] = []
    for text in texts:
        for _, parsed in _parse_lines(text, kind):
            if parsed is None:
                continue
            if parsed.key <= _MOST_CHARACTERS and keys and keys[-1] <= _MOST_CHARACTERS:
                keys[-1] = min(_MOST_CHARACTERS, keys[-1] + parsed.key)
            else:
                keys.append(parsed.key)
    return np.array(keys, dtype=np.uint64)


def line_key(line: str) -> int:
    """Return the key of a line that can be boilerplate."""
    return _key(line, _AROUND.sub("", line))


class _Line(NamedTuple):
    """A line with at least one word. If it cannot be boilerplate, ``key`` is only its size."""

    key: int
    size: int


def _parse_lines(text: str, kind: str) -> Iterator[tuple[str, _Line | None]]:
    """Yield each line with its parsed form, or with None if it has no word and does not end a run."""
    only_comments, inside = kind in _CODE, False
    for line in text.split("\n"):
        comment = not only_comments or inside or _COMMENT.match(line) is not None
        if only_comments and comment:
            inside = (inside or _OPENING.match(line) is not None) and _CLOSING.search(line) is None
        words = _AROUND.sub("", line)
        if words and comment:
            key = _key(line, words)
            yield line, _Line(key, key & _MOST_CHARACTERS)
        elif words or (only_comments and not comment and line.strip()):
            size = min(len(words), _MOST_CHARACTERS)
            yield line, _Line(size, size)
        else:
            yield line, None


def _key(line: str, words: str) -> int:
    words = " ".join(words.split()).casefold()
    if _COPYRIGHT.search(line):
        words = _YEAR.sub("0", words)
    digest = int.from_bytes(blake2b(words.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    # A hash of zero would mean that the line has no hash.
    return (max(digest >> _SIZE_BITS, 1) << _SIZE_BITS) | min(len(words), _MOST_CHARACTERS)


class FileLines(NamedTuple):
    """The data of one file that is compared: its kind, the hash of its content, and the keys of its lines."""

    kind: str
    content: str
    keys: LineKeys


BoilerplateCounts = Mapping[str, Mapping[int, int]]
"""For each kind of file, the key of each boilerplate line and the number of files that contain it."""


def find(files: Iterable[FileLines]) -> BoilerplateCounts:
    """Return the boilerplate lines of ``files``. Files with the same content count once.

    The result is the largest set of lines that occur often enough, each time in a run of lines from the set with
    ``LEAST_RUN`` characters. Nearly equal long files are left out: versions of one text are not boilerplate.
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
    """The lines of several files as arrays with one entry per line, or per run of lines that are not frequent.

    ``distinct`` has the frequent keys, ascending, and ``number`` the place of each line's key there, or -1. An entry
    without a key follows each file, so no run crosses the border between two files.
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
        """Return in how many files each distinct key is boilerplate, and a mask of the boilerplate lines."""
        least = max(LEAST_FILES, share * (self.file[-1] + 1))
        left = self.number >= 0
        while True:
            counts = self._files_of(left)
            counts[counts < least] = 0
            kept = left & (counts[self.number] > 0)  # -1 selects the last count, which is 0
            kept &= self._long_enough(kept)
            if np.array_equal(kept, left):
                return counts, kept
            left = kept

    def characters_of_files(self, chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the number of characters that the chosen lines have in each file."""
        return np.bincount(self.file[1:], weights=(self.sizes * chosen)[1:]).astype(np.float64)

    def _files_of(self, left: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the number of files with each distinct key among the remaining lines, and a final 0 for no key."""
        files = max(self.file[-1] + 1, 1)
        pairs = np.sort(self.number[left] * files + self.file[left])
        differs = np.concatenate([np.ones(min(len(pairs), 1), dtype=bool), pairs[1:] != pairs[:-1]])
        return np.bincount(pairs[differs] // files, minlength=len(self.distinct) + 1)

    def _long_enough(self, left: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of the lines in runs of remaining lines with at least ``LEAST_RUN`` characters."""
        run = np.cumsum(~left)  # a remaining line has the same run number as the line above it
        characters = np.bincount(run, weights=self.sizes * left)
        return characters[run] >= LEAST_RUN


def _frequent(keys: LineKeys) -> LineKeys:
    """Return the keys of lines that occur ``LEAST_FILES`` times or more, ascending."""
    ordered = np.sort(keys)
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    often = np.diff(first, append=len(ordered)) >= LEAST_FILES
    distinct = ordered[first[often]]
    return distinct[distinct > _MOST_CHARACTERS]


@dataclass(slots=True)
class Stripper:
    """Removes boilerplate from the searched text of chunks. ``seen`` maps kind and key to the removed lines."""

    found: BoilerplateCounts
    seen: dict[tuple[str, int], str] = field(default_factory=dict)

    def strip(self, chunk: Chunk, kind: str | None) -> Chunk:
        """Return the chunk with ``searched`` set: None without boilerplate, ``""`` without other words."""
        searched = self._without(chunk.text, kind)
        return chunk if searched == chunk.searched else replace(chunk, searched=searched)

    def _without(self, text: str, kind: str | None) -> str | None:
        known = self.found.get(kind or "", {})
        if kind is None or not known:
            return None
        kept: list[str] = []
        removed = 0
        lines = [(line, parsed, parsed is None or parsed.key in known) for line, parsed in _parse_lines(text, kind)]
        for removable, group in groupby(lines, key=lambda line: line[2]):
            run = list(group)
            keyed = [(line, parsed) for line, parsed, _ in run if parsed is not None]
            if not removable or sum(parsed.size for _, parsed in keyed) < LEAST_RUN:
                kept += [line for line, _, _ in run]
                continue
            removed += len(keyed)
            if kind not in _CODE:  # a rule in prose is kept, a comment marker is not
                kept += [line for line, parsed, _ in run if parsed is None and line.strip()]
            self.seen.update(((kind, parsed.key), line.strip()) for line, parsed in keyed)
        if not removed:
            return None
        left = "\n".join(kept).strip("\n")
        return left if any(character.isalnum() for character in left) else ""
