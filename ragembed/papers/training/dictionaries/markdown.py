"""Read glossaries in Markdown: definition lists, and tables with a column of terms and a column of definitions.

A definition list is a line with the term, followed by lines that start with a colon. A definition can continue on
indented lines. A table is read if its header names both columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ragembed.evaluation.lines import lines
from ragembed.papers.training.dictionaries.senses import Sense

TERMS = ("term", "entry", "word", "concept", "name", "abbreviation", "acronym", "expression")
DEFINITIONS = ("definition", "meaning", "description", "explanation")

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_DEFINITION = re.compile(r" {0,3}:[ \t]+(\S.*)$")
_DELIMITER = re.compile(r"[|:\- \t]*-[|:\- \t]*$")
_CELL_END = re.compile(r"(?<!\\)\|")
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_CODE = re.compile(r"(`+)(.+?)\1")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3}|_{1,3})(?=\S)(.+?)(?<=\S)\1(?![\w*])")
_TAG = re.compile(r"</?[A-Za-z][^>]*>")


def read_markdown(path: Path) -> Iterator[Sense]:
    """Yield the senses of the definition lists and tables of a file, in file order."""
    numbered = [line for _, line in lines(path)]
    fence: str | None = None
    number = 0
    while number < len(numbered):
        opening = _FENCE.match(numbered[number])
        if fence is not None:
            if opening and opening[1].startswith(fence) and not numbered[number].strip().strip(fence[0]):
                fence = None
        elif opening:
            fence = opening[1]
        elif _is_table(numbered, number):
            stop = _table_end(numbered, number)
            yield from _table(numbered[number:stop], number, path)
            number = stop
            continue
        elif number and (first := _term_above(numbered, number)) is not None:
            stop, definitions = _definitions(numbered, number)
            for term_at in range(first, number):
                if numbered[term_at].strip():
                    term = plain_text(numbered[term_at])
                    yield from (Sense(term, text, f"{path}, line {term_at + 1}") for text in definitions)
            number = stop
            continue
        number += 1


def plain_text(markdown: str) -> str:
    """Return the visible text of one line: without tags and without the markup of links, emphasis and code."""
    text = _LINK.sub(r"\1", markdown)
    text = _CODE.sub(r"\2", text)
    text = _EMPHASIS.sub(r"\2", text)
    return " ".join(_TAG.sub(" ", text).replace("\\|", "|").split())


def _term_above(numbered: Sequence[str], number: int) -> int | None:
    """Return the first line of the terms above the definition at ``number``, or None if there is none.

    The terms are consecutive lines directly above, or one line followed by a blank line.
    """
    if not _DEFINITION.match(numbered[number]):
        return None
    above = number - 1
    if not numbered[above].strip():
        above -= 1
        return above if above >= 0 and _is_term(numbered[above]) else None
    first = number
    while first > 0 and _is_term(numbered[first - 1]):
        first -= 1
    return first if first < number else None


def _is_term(line: str) -> bool:
    return bool(line.strip()) and line[0] not in " \t:#>|"


def _definitions(numbered: Sequence[str], first: int) -> tuple[int, list[str]]:
    """Return the end of the definitions that start at ``first``, and their texts."""
    texts: list[list[str]] = []
    number = first
    while number < len(numbered):
        line = numbered[number]
        if begun := _DEFINITION.match(line):
            texts.append([begun[1]])
        elif line.strip() and (line[0] in " \t" or numbered[number - 1].strip()):
            texts[-1].append(line)
        elif line.strip() or not _continues(numbered, number):
            break
        number += 1
    return number, [plain_text(" ".join(part.strip() for part in parts)) for parts in texts]


def _continues(numbered: Sequence[str], blank: int) -> bool:
    """Return whether another definition, or another paragraph of one, follows the blank line."""
    following = numbered[blank + 1] if blank + 1 < len(numbered) else ""
    return bool(_DEFINITION.match(following)) or (bool(following.strip()) and following[0] in " \t")


def _is_table(numbered: Sequence[str], number: int) -> bool:
    following = numbered[number + 1] if number + 1 < len(numbered) else ""
    return "|" in numbered[number] and "|" in following and bool(_DELIMITER.match(following))


def _table_end(numbered: Sequence[str], first: int) -> int:
    number = first + 2
    while number < len(numbered) and "|" in numbered[number]:
        number += 1
    return number


def _table(rows: Sequence[str], first: int, path: Path) -> Iterator[Sense]:
    header = [cell.lower() for cell in _cells(rows[0])]
    term = next((i for i, cell in enumerate(header) if cell in TERMS), None)
    definition = next((i for i, cell in enumerate(header) if cell in DEFINITIONS), None)
    if term is None or definition is None:
        return
    for number, row in enumerate(rows[2:], first + 3):
        cells = _cells(row)
        if len(cells) > max(term, definition) and any(cells):
            yield Sense(cells[term], cells[definition], f"{path}, line {number}")


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|")
    parts = _CELL_END.split(inner)
    return [plain_text(cell) for cell in (parts[:-1] if not parts[-1].strip() else parts)]
