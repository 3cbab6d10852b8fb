"""Search for functions by their documentation: files split at definitions, compared with files split by their layout.

The documentation of a function is removed from the file, and its first sentence becomes a query. The query succeeds if
the first chunks of the results contain the whole function.
"""

from __future__ import annotations

import ast
import random
import re
import subprocess
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import numpy as np
from data import Setting
from processes import say
from report import table
from speed import Outcome

from ragembed.documents.readers import definitions
from ragembed.evaluation import paired_bootstrap
from ragembed.indexes import Hit, Store
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest

BUDGET = 2000
"""Tokens of the results that a query may use."""
DEPTH = 100
LINES = range(3, 61)
"""Lengths of the functions that are searched for."""
COMMENT = re.compile(r"\s*(//|/\*|\*|#(?!\[))")
MARKERS = re.compile(r"^\s*(/\*+|\*+/|\*|//[/!]?|#)|\*+/\s*$")
SENTENCE = re.compile(r"(.+?[.!?])(\s|$)", re.DOTALL)
PACKAGES: Mapping[str, tuple[str, Sequence[str]]] = {
    "Go": (".go", ("golang-golang-x-net-dev", "golang-github-gorilla-mux-dev", "golang-github-spf13-cobra-dev")),
    "Rust": (".rs", ("librust-tokio-dev", "librust-clap-dev", "librust-regex-syntax-dev", "librust-regex-dev")),
    "Java": (".java", ("openjdk-17-source",)),
}
"""The suffix and the Debian packages of each language."""


@dataclass(frozen=True)
class Function:
    """A function without its documentation: the query, and its lines in the changed file."""

    query: str
    file: str
    first: int
    stop: int


@dataclass(frozen=True)
class _Found:
    """A documented function in a file: the lines of the documentation, and those of the function."""

    documentation: str
    removed: range
    lines: range


def code_search(setting: Setting) -> Outcome:
    """Measure both ways to split, for each language."""
    rows, sizes = [], []
    for language, files in _sources(setting).items():
        folder = setting.folder / language
        functions = write_functions(folder, language, files, setting)
        say(f"{language}: {len(functions)} queries")
        kept = {name: _search(setting, folder, functions, name) for name in ("layout", "definitions")}
        sizes.append(f"{language} {len(functions)}")
        for within in kept["layout"]:
            before, after = (100 * kept[name][within] for name in ("layout", "definitions"))
            found = paired_bootstrap(after, before)
            gain = f"{found.difference:+.1f} ({found.low:+.1f} to {found.high:+.1f})"
            rows.append([language, within, f"{before.mean():.1f}", f"{after.mean():.1f}", gain])
    about = (
        "Per cent of the queries whose function is complete within the first results of hybrid search. Queries: "
        f"{', '.join(sizes)}. A "
        "query is the first sentence of the documentation of a function, without the name of the function; the "
        f"documentation is removed from the file. The functions have {LINES[0]} to {LINES[-1]} lines. The embedder is "
        "the default, fitted on the files. *layout* is the reader without tree-sitter, which splits at blank "
        "lines. Brackets show the 95 % interval of a paired bootstrap over the "
        f"queries. ragembed {version('ragembed')}, semble-grammars {version('semble-grammars')}."
    )
    return Outcome([about, table(["", "within", "layout", "definitions", "difference"], rows)])


def _search(setting: Setting, folder: Path, functions: Sequence[Function], how: str) -> dict[str, np.ndarray]:
    """Return whether the function of each query is complete within the first results, by their limit."""
    store = setting.folder / f"{folder.name}-{how}"
    languages = {} if how == "layout" else definitions.LANGUAGES
    with mock.patch.object(definitions, "LANGUAGES", languages):
        index_files(IndexingRequest(store, (folder,)))
    with Store.open(store) as opened:
        say(f"{folder.name}, {how}: {len(opened):,} chunks")
        answers = opened.search_many([function.query for function in functions], DEPTH)
    pairs = list(zip(functions, answers, strict=True))
    return {
        f"{BUDGET:,} tokens": np.array([_is_complete(f, _within_budget(hits)) for f, hits in pairs], float),
        "10 chunks": np.array([_is_complete(f, hits[:10]) for f, hits in pairs], float),
    }


def _within_budget(hits: Iterable[Hit]) -> Iterator[Hit]:
    total = 0
    for hit in hits:
        total += hit.chunk.tokens
        if total > BUDGET:
            return
        yield hit


def _is_complete(function: Function, hits: Iterable[Hit]) -> bool:
    """Return whether ``hits`` contain all lines of ``function``."""
    missing = set(range(function.first, function.stop))
    for hit in hits:
        if hit.source.endswith(f"/{function.file}") and hit.chunk.start_line and hit.chunk.end_line:
            missing -= set(range(hit.chunk.start_line - 1, hit.chunk.end_line))
    return not missing


def _sources(setting: Setting) -> dict[str, list[tuple[str, str]]]:
    """Return the names and texts of the files of each language but Python, whose parser is always its own."""
    languages: dict[str, list[tuple[str, str]]] = {}
    packages = setting.cache / "code-packages"
    for language, (suffix, names) in PACKAGES.items():
        for name in names:
            if not (packages / name).is_dir():
                packages.mkdir(exist_ok=True)
                subprocess.run(["apt-get", "download", name], cwd=packages, check=True, capture_output=True)
                [archive] = packages.glob(f"{name}_*.deb")
                subprocess.run(["dpkg", "-x", archive, packages / name], check=True)
            for archive in (packages / name).rglob("src.zip"):
                if not archive.is_symlink() and not (packages / name / "java").exists():
                    with zipfile.ZipFile(archive) as opened:
                        inside = [
                            n
                            for n in opened.namelist()
                            if n.startswith(("java.base/java/util/", "java.base/java/net/"))
                        ]
                        opened.extractall(packages / name / "java", inside)
        languages[language] = [text for name in names for text in _texts(packages / name, suffix)]
    return {language: _limited(texts, setting) for language, texts in languages.items()}


def read_sources(folder: Path, suffix: str, setting: Setting) -> list[tuple[str, str]]:
    """Return the names and texts of files below a folder, in random order."""
    return _limited(_texts(folder, suffix), setting)


def _limited(texts: Sequence[tuple[str, str]], setting: Setting) -> list[tuple[str, str]]:
    """Return texts in random order, as many as the size of the benchmark allows."""
    shuffled = list(texts)
    random.Random(setting.seed).shuffle(shuffled)
    kept, total = [], 0
    for name, text in shuffled:
        total += len(text)
        if total > setting.choose(400_000, 100_000):
            break
        kept.append((name, text))
    return kept


def _texts(folder: Path, suffix: str) -> list[tuple[str, str]]:
    found = []
    for path in sorted(folder.rglob(f"*{suffix}")):
        name = path.relative_to(folder).as_posix()
        if (
            path.is_file()
            and not path.is_symlink()
            and not re.search(r"test|vendor|idlelib|packages|min\.|generated|dist/|build/", name)
        ):
            text = path.read_text(encoding="utf-8", errors="replace")
            if 1000 < len(text) < 120_000:
                found.append((name, text))
    return found


def write_functions(folder: Path, language: str, files: Sequence[tuple[str, str]], setting: Setting) -> list[Function]:
    """Write the files without the documentation of the chosen functions, and return these functions."""
    documented = [(name, found) for name, text in files for found in _documented(text, language)]
    number = min(len(documented), setting.choose(300, 20))
    chosen = random.Random(setting.seed).sample(documented, number)
    functions = []
    for name, text in files:
        of_file = [found for file, found in chosen if file == name]
        removed = sorted({line for found in of_file for line in found.removed})
        lines = text.split("\n")
        for found in of_file:
            first, stop = (
                line - sum(other < line for other in removed) for line in (found.lines.start, found.lines.stop)
            )
            functions.append(Function(found.documentation, name, first, stop))
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        gone = set(removed)
        path.write_text("\n".join(line for number, line in enumerate(lines) if number not in gone), encoding="utf-8")
    return functions


def _documented(text: str, language: str) -> Iterator[_Found]:
    candidates = _python_functions(text) if language == "Python" else _commented_functions(text, PACKAGES[language][0])
    seen: set[int] = set()
    for name, documentation, removed, lines in candidates:
        query = _query(documentation, name)
        length = len(lines) - len(range(max(removed.start, lines.start), min(removed.stop, lines.stop)))
        if query and length in LINES and not seen & {*lines, *removed}:
            seen |= {*lines, *removed}
            yield _Found(query, removed, lines)


def _query(documentation: str, name: str) -> str | None:
    """Return the first sentence without the name of the function, or None if it is too short or too long."""
    text = documentation.strip().split("\n\n")[0]
    matched = SENTENCE.match(text)
    sentence = " ".join((matched[1] if matched else text).split())
    sentence = re.sub(rf"\b{re.escape(name)}\b", "", sentence).strip()
    return sentence if 5 <= len(sentence.split()) <= 40 and "@" not in sentence else None


def _python_functions(text: str) -> Iterator[tuple[str, str, range, range]]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(node.body) > 1:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                documentation = ast.get_docstring(node) or ""
                start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
                yield node.name, documentation, range(first.lineno - 1, first.end_lineno), range(start, node.end_lineno)


def _commented_functions(text: str, suffix: str) -> Iterator[tuple[str, str, range, range]]:
    lines = text.split("\n")
    pending = list(definitions.find(text, suffix, say) or [])
    while pending:
        found = pending.pop()
        pending += found.inner
        if found.inner or "(" not in found.heading:
            continue
        start = found.first
        while start < found.stop and COMMENT.match(lines[start]):
            start += 1
        if start == found.first:
            continue
        documentation = "\n".join(MARKERS.sub("", line).strip() for line in lines[found.first : start]).strip()
        name = re.search(r"(\w+)\s*(<[^(]*)?\(", re.sub(r"^func \([^)]*\)", "", found.heading))
        yield name[1] if name else "", documentation, range(found.first, start), range(start, found.stop)
