"""Read word-vector files: word2vec text and binary, and GloVe text.

word2vec text starts with a line ``n d``, followed by one line per word: the word and its d numbers. word2vec binary has
the same first line, then for each word: the word, a space, d little-endian float32 and, in some programs, a line break.
GloVe text is word2vec text without the first line. Each may be gzipped. The format is detected from the content, not
from the file name.

Files are read as a stream. Memory is allocated for the data that is read, not for the sizes that a header claims.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain
from pathlib import Path

import numpy as np

from ragembed.errors import ModelError
from ragembed.types import Floats

_BLOCK = 1 << 22
_LONGEST_LINE = 1 << 22
_LONGEST_WORD = 1 << 16
_MOST_DIMENSIONS = 1 << 16
_SHOWN = 40
_GZIP, _ZIP, _BYTE_ORDER_MARK = b"\x1f\x8b", b"PK\x03\x04", b"\xef\xbb\xbf"
_HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,18})[ \t\r]*")
_NUMBER = re.compile(rb"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)
_PRINTABLE = re.compile(rb"[\t\r -~]*")


@dataclass(frozen=True, slots=True)
class _Layout:
    """The format of a file: where the words start, how long the vectors are, and whether a header gives the size."""

    path: Path
    dim: int
    start: int
    count: int | None = None
    is_binary: bool = False

    def place(self, number: int) -> str:
        """Return the name of a line, or of an entry of a binary file, for messages."""
        return f"{self.path}, entry {number}" if self.is_binary else f"{self.path}:{number}"

    @property
    def expected(self) -> str:
        """The dimension and its origin, for messages."""
        return f"{self.dim}, as in its {'header' if self.count is not None else 'first line'}"


@dataclass(frozen=True, slots=True)
class _VectorBlock:
    """Consecutive words, the numbers of their lines or entries, and their vectors, shape ``(len(words), d)``."""

    words: list[str]
    numbers: list[int]
    vectors: Floats


def word_blocks(path: Path) -> Iterator[tuple[list[str], Floats]]:
    """Yield the words of a word-vector file and their vectors, float32, shape ``(len(words), d)``, in blocks.

    The first vector of a word counts. A damaged or truncated file, a wrong header and numbers that are not finite raise
    :class:`ModelError`.
    """
    try:
        with _opened(path) as stream:
            head = stream.read(_BLOCK)
            layout = _layout(path, head)
            pieces = chain([head[layout.start :]], iter(lambda: stream.read(_BLOCK), b""))
            blocks = _binary_blocks(layout, pieces) if layout.is_binary else _text_blocks(layout, pieces)
            yield from _first_vectors(_checked(layout, blocks))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ModelError(f"{path} is a damaged or truncated gzip file ({error}): get it again") from error


def _opened(path: Path) -> gzip.GzipFile | BufferedReader:
    """Open a file, gzipped or not."""
    with path.open("rb") as stream:
        is_gzip = stream.read(len(_GZIP)) == _GZIP
    return gzip.open(path) if is_gzip else path.open("rb")


def _layout(path: Path, head: bytes) -> _Layout:
    """Detect the format from the first bytes of a file."""
    if not head.strip():
        raise ModelError(f"{path} is empty: expected a word-vector file (word2vec text or binary, or GloVe text)")
    mark = len(_BYTE_ORDER_MARK) if head.startswith(_BYTE_ORDER_MARK) else 0
    line, _, after = head[mark:].partition(b"\n")
    if header := _HEADER.fullmatch(line):
        count, dim = int(header[1]), int(header[2])
        if not 1 <= dim <= _MOST_DIMENSIONS or not count:
            raise ModelError(
                f"the first line of {path} says {count} words of {dim} dimensions: expected at least one word and 1 to "
                f"{_MOST_DIMENSIONS} dimensions; the file is damaged, or not a word-vector file"
            )
        return _Layout(path, dim, mark + len(line) + 1, count, not _begins_as_text(after, dim))
    dim = _trailing_numbers(line.split())
    if not 2 <= dim <= _MOST_DIMENSIONS or head.startswith(_ZIP):
        advice = "unpack the zip archive" if head.startswith(_ZIP) else "give a word2vec (text or binary) or GloVe file"
        raise ModelError(
            f"{path} is not a word-vector file: its first line is {_shown(line)}, expected a word and its numbers, or "
            f"the numbers of words and dimensions; {advice}"
        )
    return _Layout(path, dim, mark)


def _begins_as_text(data: bytes, dim: int) -> bool:
    """Return whether the first word of ``data`` is followed by decimal numbers, not by binary ones."""
    fields = data.partition(b"\n")[0].split(None, 1)
    values = fields[1][: max(4 * dim, 64)] if len(fields) == 2 else b""
    is_number = any(_NUMBER.fullmatch(value) for value in values.split())
    return not data.strip() or (is_number and _PRINTABLE.fullmatch(values) is not None)


def _text_blocks(layout: _Layout, pieces: Iterable[bytes]) -> Iterator[_VectorBlock]:
    """Yield the words and vectors of a text file."""
    number = 1 if layout.count is None else 2
    rest = b""
    for piece in chain(pieces, [b"\n"]):
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            raise ModelError(
                f"{layout.place(number + len(lines))} is longer than {_LONGEST_LINE} bytes, expected a word and "
                f"{layout.dim} numbers: the file is damaged, or not a word-vector file"
            )
        if block := _text_block(layout, number, lines):
            yield block
        number += len(lines)


def _text_block(layout: _Layout, first: int, lines: Iterable[bytes]) -> _VectorBlock | None:
    """Parse some lines of a text file; return None if all are blank."""
    words, numbers, rows = [], [], []
    with np.errstate(over="ignore"):  # a number that is too large becomes infinite and is refused later
        for number, line in enumerate(lines, first):
            fields = line.rsplit(None, layout.dim)
            if not fields:
                continue
            if len(fields) == layout.dim and line[:1].isspace():
                fields.insert(0, b"")
            parts = fields[0].split()
            if len(fields) <= layout.dim or (len(parts) > 1 and _NUMBER.fullmatch(parts[-1])):
                raise _bad_row(layout, number, line)
            try:
                rows.append(np.array([*map(float, fields[1:])], dtype=np.float32))
            except ValueError:
                raise _bad_row(layout, number, line) from None
            words.append(fields[0].strip().decode("utf-8", "replace"))
            numbers.append(number)
    return _VectorBlock(words, numbers, np.stack(rows)) if rows else None


def _bad_row(layout: _Layout, number: int, line: bytes) -> ModelError:
    """Return the error for a line with the wrong number of numbers."""
    fields = line.split()
    count = _trailing_numbers(fields)
    word = b" ".join(fields[: len(fields) - count])
    return ModelError(
        f"{layout.place(number)} has {count} {'number' if count == 1 else 'numbers'} after the word {_shown(word)}, "
        f"expected {layout.expected}: the file is damaged or truncated; get it again"
    )


def _trailing_numbers(fields: list[bytes]) -> int:
    """Count the numbers at the end of a line; the first field is always a word."""
    count = 0
    while count < len(fields) - 1 and _NUMBER.fullmatch(fields[-1 - count]):
        count += 1
    return count


def _binary_blocks(layout: _Layout, pieces: Iterable[bytes]) -> Iterator[_VectorBlock]:
    """Yield the words and vectors of a binary file."""
    left, width = layout.count or 0, 4 * layout.dim
    number, rest = 1, b""
    for piece in pieces:
        data, at = rest + piece, 0
        words: list[str] = []
        rows: list[bytes] = []
        while len(rows) < left and (space := data.find(b" ", at)) >= 0 and (end := space + 1 + width) <= len(data):
            words.append(_binary_word(layout, number + len(rows), data[at:space]))
            rows.append(data[space + 1 : end])
            at = end
        rest = data[at:]
        left -= len(rows)
        if rest.strip(b"\r\n") and not left:
            raise ModelError(
                f"{layout.path} has more data after the {layout.count} words that its header gives: it is damaged; "
                "get it again"
            )
        if left and b" " not in rest[:_LONGEST_WORD] and len(rest) > _LONGEST_WORD:
            raise _damaged_binary(layout, number + len(rows))
        if rows:
            vectors = np.frombuffer(b"".join(rows), "<f4").astype(np.float32, copy=False)
            yield _VectorBlock(words, [*range(number, number + len(rows))], vectors.reshape(len(rows), layout.dim))
        number += len(rows)


def _binary_word(layout: _Layout, number: int, word: bytes) -> str:
    """Decode a word; raise :class:`ModelError` if it cannot be one."""
    word = word.lstrip(b"\n")
    if b"\n" in word or len(word) > _LONGEST_WORD:
        raise _damaged_binary(layout, number)
    return word.decode("utf-8", "replace")


def _damaged_binary(layout: _Layout, number: int) -> ModelError:
    """Return the error for an entry that is not a word and its vector."""
    return ModelError(
        f"{layout.place(number)} is not a word, a space and {layout.dim} float32 numbers: the file is damaged, or not "
        "a word2vec file; get it again"
    )


def _checked(layout: _Layout, blocks: Iterable[_VectorBlock]) -> Iterator[_VectorBlock]:
    """Raise :class:`ModelError` for a number that is not finite, and if the header gives another number of words."""
    count = 0
    for block in blocks:
        finite = np.isfinite(block.vectors).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            raise ModelError(
                f"{layout.place(block.numbers[row])}: the vector of {_shown(block.words[row].encode())} contains a "
                "number that is not a finite float32; remove that word, or get the file again"
            )
        count += len(block.words)
        if layout.count is not None and count > layout.count:
            break
        yield block
    if layout.count is not None and count != layout.count:
        state = f"has {count} words, it is truncated" if count < layout.count else "has more words, it is damaged"
        raise ModelError(
            f"{layout.path} {state}: expected {layout.count}, as in its header; get it again or correct its header"
        )


def _first_vectors(blocks: Iterable[_VectorBlock]) -> Iterator[tuple[list[str], Floats]]:
    """Leave out words that occurred before."""
    seen: set[str] = set()
    for block in blocks:
        rows = {word: row for row, word in reversed([*enumerate(block.words)]) if word not in seen}
        words = [word for row, word in enumerate(block.words) if rows.get(word) == row]
        seen.update(words)
        is_whole = len(words) == len(block.words)
        yield words, block.vectors if is_whole else block.vectors[[rows[word] for word in words]]


def _shown(line: bytes) -> str:
    """Return the beginning of a line as a literal, for messages."""
    text = line[: 8 * _SHOWN].rstrip(b"\r").decode("utf-8", "replace")
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
