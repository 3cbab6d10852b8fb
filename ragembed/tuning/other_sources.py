"""Pseudo-queries from what is not running text: links, documentation in code, rows of tables."""

from __future__ import annotations

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import unquote

from ragembed.documents.model import Chunk
from ragembed.tuning.kinds import kind_of
from ragembed.tuning.passages import Pool
from ragembed.tuning.prose import normal, plain, without_name, without_span, word_count
from ragembed.tuning.queries import PseudoQuery, choice

_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")
_PAGE_NAMES = ("", ".md", "/index.md", "/README.md")
_LEAST_LINK_WORDS, _LEAST_DOC_WORDS, _LEAST_CELL_WORDS = 2, 3, 3

_PYTHON_DOC = re.compile(r"(?::[ \t]*(?:#[^\n]*)?\n\s*|\A)[rRuU]?(\"\"\"|''')(.+?)\1", re.DOTALL)
_BLOCK_DOC = re.compile(r"/\*\*(?!/)(.+?)\*/", re.DOTALL)
_LINE_DOC = re.compile(r"(?:^[ \t]*//[/!][^\n]*(?:\n|$))+", re.MULTILINE)
_DOC_MARKS = re.compile(r"^[ \t]*(?://[/!]?|\*)[ \t]?", re.MULTILINE)
_TAG = re.compile(r"^\s*[@:\\]\w")
_PYTHON = (".py", ".pyi")

_LABEL = re.compile(r"^([^:\n]{1,60}): ", re.MULTILINE)
_LABEL_SHARE = 0.5


def link(pool: Pool, seed: int) -> Iterator[PseudoQuery]:  # noqa: ARG001  as of all sources
    """Ask for the text of each Markdown link to another file of the pool; the answers are what it leads to.

    That is the section that the link names, else the whole file. The text is taken out of where the link stands, and
    out of its target where it is the name of that.
    """
    texts: dict[str, str] = {}
    targets: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    linking: dict[str, dict[int, Chunk]] = defaultdict(dict)
    for position, passage in enumerate(pool.passages):
        if passage.file is None or kind_of(passage.file) != "prose":
            continue
        for found in reversed(list(_LINK.finditer(passage.chunk.text))):
            answers = _target(pool, passage.file, found[2])
            if answers and position not in answers and word_count(plain(found[1])) >= _LEAST_LINK_WORDS:
                key = normal(found[1])
                texts.setdefault(key, plain(found[1]))
                targets[key].add(answers)
                chunk = linking[key].get(position, passage.chunk)
                linking[key][position] = without_span(chunk, found.start(), found.end())
    for key, different in targets.items():
        if len(different) == 1:
            [answers] = different
            named = {at: without_name(pool.passages[at].chunk, texts[key]) for at in answers}
            changed = {at: chunk for at, chunk in named.items() if chunk != pool.passages[at].chunk}
            yield PseudoQuery(texts[key], answers, {**linking[key], **changed})


def docstring(pool: Pool, seed: int) -> Iterator[PseudoQuery]:
    """Ask for the first paragraph of a doc comment of each chunk of code; the answer is the chunk without the comment.

    Known are the strings of Python, and comments that begin with ``/**``, ``///`` or ``//!``.
    """
    for position, passage in enumerate(pool.passages):
        if kind_of(passage.file) != "code":
            continue
        python = (passage.file or "").lower().endswith(_PYTHON)
        found = list(_python_docs(passage.chunk.text) if python else _comment_docs(passage.chunk.text))
        usable = [doc for doc in found if word_count(doc[0]) >= _LEAST_DOC_WORDS]
        if usable:
            text, start, stop = usable[choice([text for text, _, _ in usable], seed)]
            yield PseudoQuery(text, (position,), {position: without_span(passage.chunk, start, stop)})


def column(pool: Pool, seed: int) -> Iterator[PseudoQuery]:
    """Ask for one cell of each row of a table that no other row has; the answer is the row without it.

    Cells are lines of ``column: value``, and values that are kept beside the text.
    """
    labels = {file: _labels([pool.passages[at].chunk for at in positions]) for file, positions in pool.files.items()}
    cells: dict[int, list[tuple[str, Chunk]]] = {}
    for position, passage in enumerate(pool.passages):
        if kind_of(passage.file) == "table":
            cells[position] = list(_cells(passage.chunk, labels[pool.places[position].file]))
    common = Counter(key for found in cells.values() for key in {normal(text) for text, _ in found})
    for position, found in cells.items():
        own = [(text, chunk) for text, chunk in found if common[normal(text)] == 1]
        if own:
            text, chunk = own[choice([text for text, _ in own], seed)]
            yield PseudoQuery(text, (position,), {} if chunk is pool.passages[position].chunk else {position: chunk})


def _target(pool: Pool, file: str, address: str) -> tuple[int, ...]:
    """Return the positions of what ``address`` in ``file`` leads to; none where that is no other file of the pool."""
    if _SCHEME.match(address):
        return ()
    path, _, fragment = unquote(address).partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(file), path.partition("?")[0])) if path else file
    name = next((path + ending for ending in _PAGE_NAMES if path + ending in pool.files), None)
    if name is None or (name == file and not fragment):
        return ()
    positions = pool.files[name]
    below = tuple(at for at in positions if fragment in map(_slug, pool.passages[at].chunk.headings))
    return below if below or name == file else tuple(positions)


def _slug(heading: str) -> str:
    """Return the fragment by which a heading is linked, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _python_docs(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the first paragraph of each string that stands first in a definition or the text, and its span."""
    for found in _PYTHON_DOC.finditer(text):
        start = text.index(found[1], found.start())
        yield plain(found[2].strip().split("\n\n")[0]), start, found.end()


def _comment_docs(text: str) -> Iterator[tuple[str, int, int]]:
    for pattern in (_BLOCK_DOC, _LINE_DOC):
        for found in pattern.finditer(text):
            body = _DOC_MARKS.sub("", found[1] if pattern is _BLOCK_DOC else found[0])
            lines: list[str] = []
            for line in body.strip().split("\n"):
                if not line.strip() or _TAG.match(line):
                    break
                lines.append(line)
            yield plain(" ".join(lines)), found.start(), found.end()


def _labels(chunks: Sequence[Chunk]) -> set[str]:
    """Return the columns of a file: what stands before a colon in at least half of its rows."""
    counts = Counter(label for chunk in chunks for label in set(_LABEL.findall(chunk.text)))
    return {label for label, count in counts.items() if count >= _LABEL_SHARE * len(chunks)}


def _cells(chunk: Chunk, labels: set[str]) -> Iterator[tuple[str, Chunk]]:
    """Yield the values that can be queries, each with the chunk without it."""
    starts = [found for found in _LABEL.finditer(chunk.text) if found[1] in labels]
    stops = [*(found.start() for found in starts[1:]), len(chunk.text)]
    for found, end in zip(starts, stops, strict=False):  # no label has a stop all the same
        value = plain(chunk.text[found.end() : end])
        if word_count(value) >= _LEAST_CELL_WORDS and len(starts) > 1:
            kept = chunk.text[: found.start()] + chunk.text[end:]
            yield value, replace(chunk, text=kept.strip("\n"))
    for beside in chunk.metadata.values():
        if isinstance(beside, str) and word_count(beside) >= _LEAST_CELL_WORDS:
            yield plain(beside), chunk
