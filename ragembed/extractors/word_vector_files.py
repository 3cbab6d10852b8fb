"""Word-vector files as the programs that make them write them: word2vec text and binary, and GloVe text.

word2vec text begins with a line ``n d``, followed by one line for each word: the word and its d numbers. word2vec
binary has the same first line, then each word, a space, d little-endian float32 and, from some programs, a line break.
GloVe text is word2vec text without the first line. Each may be gzipped. What a file is follows from what it holds,
never from its name.

Files are read as a stream: what a header claims is believed only as far as the data that follows it.
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
    """Where the words of a file begin, how long their vectors are, and where that is known from."""

    path: Path
    dim: int
    start: int
    count: int | None = None
    is_binary: bool = False

    def place(self, number: int) -> str:
        """Name the line, or the entry of a binary file, of that number."""
        return f"{self.path}, entry {number}" if self.is_binary else f"{self.path}:{number}"

    @property
    def expected(self) -> str:
        """The dimension and who says so."""
        return f"{self.dim}, as {'its header says' if self.count is not None else 'in its first line'}"


@dataclass(frozen=True, slots=True)
class _VectorBlock:
    """Consecutive words, the numbers of their lines or entries, and their vectors, shape ``(len(words), d)``."""

    words: list[str]
    numbers: list[int]
    vectors: Floats


def word_blocks(path: Path) -> Iterator[tuple[list[str], Floats]]:
    """Yield the words of a word-vector file and their vectors, float32, shape ``(len(words), d)``, block by block.

    They come in the order of the file. Of a word that occurs more than once the first vector counts. Bytes that are
    not UTF-8 are replaced by U+FFFD. A word of a text file may hold spaces, unless its last part is a number.

    Raises :class:`ModelError` when the file is none of the formats, is truncated or damaged, has another number of
    words than its header states, or holds a number that is not a finite float32; :class:`OSError` when it cannot be
    read.
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
    with path.open("rb") as stream:
        is_gzip = stream.read(len(_GZIP)) == _GZIP
    return gzip.open(path) if is_gzip else path.open("rb")


def _layout(path: Path, head: bytes) -> _Layout:
    """Tell the format from the first bytes of a file."""
    if not head.strip():
        raise ModelError(f"{path} is empty: expected a word-vector file (word2vec text or binary, or GloVe text)")
    mark = len(_BYTE_ORDER_MARK) if head.startswith(_BYTE_ORDER_MARK) else 0
    line, _, after = head[mark:].partition(b"\n")
    if header := _HEADER.fullmatch(line):
        count, dim = int(header[1]), int(header[2])
        if not 1 <= dim <= _MOST_DIMENSIONS or not count:
            raise ModelError(
                f"{path} states {count} words of {dim} dimensions in its first line; expected at least one word "
                f"and 1 to {_MOST_DIMENSIONS} dimensions: it is damaged, or not a word-vector file"
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
    """Whether numbers in digits, and not in bytes, follow the first word of ``data``."""
    fields = data.partition(b"\n")[0].split(None, 1)
    values = fields[1][: max(4 * dim, 64)] if len(fields) == 2 else b""
    is_number = any(_NUMBER.fullmatch(value) for value in values.split())
    return not data.strip() or (is_number and _PRINTABLE.fullmatch(values) is not None)


def _text_blocks(layout: _Layout, pieces: Iterable[bytes]) -> Iterator[_VectorBlock]:
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
    words, numbers, rows = [], [], []
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
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
    fields = line.split()
    found = _trailing_numbers(fields)
    word = b" ".join(fields[: len(fields) - found])
    return ModelError(
        f"{layout.place(number)} has {found} {'number' if found == 1 else 'numbers'} after the word {_shown(word)}, "
        f"expected {layout.expected}: the file is damaged or truncated; get it again"
    )


def _trailing_numbers(fields: list[bytes]) -> int:
    """Count the numbers at the end of a line; its first field is a word, whatever it looks like."""
    count = 0
    while count < len(fields) - 1 and _NUMBER.fullmatch(fields[-1 - count]):
        count += 1
    return count


def _binary_blocks(layout: _Layout, pieces: Iterable[bytes]) -> Iterator[_VectorBlock]:
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
                f"{layout.path} goes on after the {layout.count} words that its header states: it is damaged; "
                "get it again"
            )
        if left and b" " not in rest[:_LONGEST_WORD] and len(rest) > _LONGEST_WORD:
            raise _damaged_binary(layout, number + len(rows))
        if rows:
            vectors = np.frombuffer(b"".join(rows), "<f4").astype(np.float32, copy=False)
            yield _VectorBlock(words, [*range(number, number + len(rows))], vectors.reshape(len(rows), layout.dim))
        number += len(rows)


def _binary_word(layout: _Layout, number: int, word: bytes) -> str:
    word = word.lstrip(b"\n")
    if b"\n" in word or len(word) > _LONGEST_WORD:
        raise _damaged_binary(layout, number)
    return word.decode("utf-8", "replace")


def _damaged_binary(layout: _Layout, number: int) -> ModelError:
    return ModelError(
        f"{layout.place(number)} is not a word, a space and {layout.dim} float32 numbers: the file is damaged, or not "
        "a word2vec file; get it again"
    )


def _checked(layout: _Layout, blocks: Iterable[_VectorBlock]) -> Iterator[_VectorBlock]:
    """Refuse numbers that are not finite, and another number of words than the header states."""
    found = 0
    for block in blocks:
        finite = np.isfinite(block.vectors).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            raise ModelError(
                f"{layout.place(block.numbers[row])}: the vector of {_shown(block.words[row].encode())} holds a number "
                "that is not a finite float32: the file is damaged; remove that word or get the file again"
            )
        found += len(block.words)
        if layout.count is not None and found > layout.count:
            break
        yield block
    if layout.count is not None and found != layout.count:
        met = f"holds {found} words, it is truncated" if found < layout.count else "holds more words, it is damaged"
        raise ModelError(
            f"{layout.path} {met}: expected {layout.count}, as its header says; get it again or correct its header"
        )


def _first_vectors(blocks: Iterable[_VectorBlock]) -> Iterator[tuple[list[str], Floats]]:
    """Leave out words that came before."""
    seen: set[str] = set()
    for block in blocks:
        rows = {word: row for row, word in reversed([*enumerate(block.words)]) if word not in seen}
        words = [word for row, word in enumerate(block.words) if rows.get(word) == row]
        seen.update(words)
        is_whole = len(words) == len(block.words)
        yield words, block.vectors if is_whole else block.vectors[[rows[word] for word in words]]


def _shown(line: bytes) -> str:
    text = line[: 8 * _SHOWN].rstrip(b"\r").decode("utf-8", "replace")
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
