"""Texts for a fit: a corpus in a file, and helpers that read a stream in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ragembed.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Corpus:
    """A UTF-8 text file with one text per line; blank lines are skipped.

    Each iteration reads the file from the start. It raises :class:`ragembed.errors.ConfigError` if the file cannot be
    read or is not UTF-8.
    """

    path: Path

    def __iter__(self) -> Iterator[str]:
        number = 0
        try:
            with self.path.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                    if text:
                        yield text
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"the corpus {self.path}, line {number}: not UTF-8 ({error.reason}); convert the file to UTF-8"
            ) from None
        except OSError as error:
            raise ConfigError(
                f"the corpus {self.path} cannot be read: {error.strerror}; give a text file with one text per line"
            ) from error


Item = TypeVar("Item")


def blocks(stream: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items of ``stream`` in lists of ``size`` items; the last list may be shorter."""
    items = iter(stream)
    while block := list(islice(items, size)):
        yield block


def grouped(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Yield consecutive items in lists whose sizes sum to at most ``most``; a larger item has a list of its own."""
    group: list[Item] = []
    total = 0
    for item in items:
        each = size(item)
        if group and total + each > most:
            yield group
            group, total = [], 0
        group.append(item)
        total += each
    if group:
        yield group
