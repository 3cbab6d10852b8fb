"""Build collections by kind of text, from what is installed: functions, questions about them, documentation, prose.

Run it with a folder: ``python benchmarks/kinds.py build/collections``. It writes one folder in the format of BEIR for
each collection. Functions and their documentation come from Python and packages of the environment, sections from the
documentation of Rust (rustup) and from the package ``python3.11-doc`` that ``corpora.py`` downloads.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from corpora import Document, cut, write
from lxml import html as lxml_html
from processes import say

_QUESTIONS = Path(__file__).with_name("python_questions.tsv")
_PACKAGES = ("nltk", "sympy", "sklearn", "torch")
_FUNCTIONS, _DOCUMENTS, _QUERIES = 1200, 800, 200
_CODE_CHARACTERS, _CHARACTERS = 2000, 1200
_LINES = range(3, 61)
_LEFT_OUT = re.compile(r"(^|/)(test|tests|idlelib|site-packages|turtledemo|lib2to3|_vendor)(/|_|$)|test_")
_SENTENCE = re.compile(r"(.+?[.!?])(\s|$)", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_SECTIONS = ("tutorial", "howto", "library", "using", "extending")
_BOOKS = ("book", "cargo", "reference", "edition-guide", "embedded-book", "nomicon")
Pages = Mapping[str, tuple[str, str]]
"""Title and text of each section, by name."""


@dataclass(frozen=True, slots=True)
class _Function:
    """A function: its own name, its documentation, and its source without and with it."""

    name: str
    documentation: str
    body: str
    whole: str


def functions(folder: Path) -> Iterator[tuple[str, _Function]]:
    """Yield the functions below a folder by module and name."""
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if _LEFT_OUT.search(name):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        module = name.removesuffix(".py").replace("/", ".")
        yield from ((f"{module}.{key}", found) for key, found in _in_node(tree, "", text.splitlines()))


def _in_node(node: ast.AST, prefix: str, lines: list[str]) -> Iterator[tuple[str, _Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            start = min([child.lineno, *(each.lineno for each in child.decorator_list)]) - 1
            documentation = ast.get_docstring(child) or ""
            first = child.body[0]
            removed = range(first.lineno - 1, first.end_lineno or 0) if documentation else range(0)
            whole = lines[start : child.end_lineno]
            body = [line for number, line in enumerate(whole, start) if number not in removed]
            if len(body) in _LINES and len(child.body) > bool(documentation):
                yield prefix + child.name, _Function(child.name, documentation, "\n".join(body), "\n".join(whole))
        elif isinstance(child, ast.ClassDef):
            yield from _in_node(child, f"{prefix}{child.name}.", lines)
        elif isinstance(child, ast.If | ast.Try):
            yield from _in_node(child, prefix, lines)


def _query(function: _Function) -> str | None:
    """Return the first sentence of the documentation without the name of the function, or None if it does not suit."""
    text = function.documentation.strip().split("\n\n")[0]
    matched = _SENTENCE.match(text)
    sentence = " ".join((matched[1] if matched else text).split())
    sentence = re.sub(rf"\b{re.escape(function.name)}\b|`+", "", sentence).strip()
    return sentence if 5 <= len(sentence.split()) <= 40 and "@" not in sentence else None


def write_documented(folder: Path, source: Path) -> None:
    """Write a collection of functions without their documentation; its first sentences are the queries."""
    found = dict(functions(source))
    keys = sorted(found)
    random.Random(0).shuffle(keys)
    queries: dict[str, str] = {}
    for key in keys:
        query = _query(found[key])
        if query and query not in queries.values() and len(queries) < _QUERIES:
            queries[key] = query
    kept = [*queries, *[key for key in keys if key not in queries][: _DOCUMENTS - len(queries)]]
    _write(folder, {key: Document(cut(found[key].body, _CODE_CHARACTERS)) for key in sorted(kept)}, queries)


def write_questions(folder: Path, *, documented: bool) -> None:
    """Write a collection of functions of Python's library, and questions about some of them."""
    found = {
        key.replace(".__init__.", ".").removeprefix("__init__."): each.whole if documented else each.body
        for key, each in functions(Path(sysconfig.get_path("stdlib")))
    }
    rows = (line.split("\t") for line in _QUESTIONS.read_text(encoding="utf-8").splitlines())
    queries = {key: question for key, question in rows if key in found}
    rest = sorted(found.keys() - queries.keys())
    random.Random(1).shuffle(rest)
    kept = sorted([*queries, *rest[: _FUNCTIONS - len(queries)]])
    _write(folder, {key: Document(cut(found[key], _CODE_CHARACTERS)) for key in kept}, queries)


def rust_pages() -> Pages:
    """Return the sections of the books that rustup installs."""
    books = next(Path.home().glob(".rustup/toolchains/stable*")) / "share/doc/rust/html"
    pages: dict[str, tuple[str, str]] = {}
    for file in sorted(path for book in _BOOKS for path in (books / book).rglob("*.html")):
        main = lxml_html.fromstring(file.read_bytes()).xpath("//main")
        title, words = "", list[str]()
        for element in main[0] if main and file.name not in ("print.html", "toc.html", "404.html") else ():
            text = " ".join(element.text_content().split()) if isinstance(element.tag, str) else ""
            if element.tag in ("h1", "h2", "h3", "h4"):
                title, words = text, []
            else:
                words.append(text)
                pages[f"{file.parent.name}/{file.name}#{title}"] = title, " ".join(words)
    return pages


def python_pages(packages: Path) -> Pages:
    """Return the sections of Python's documentation."""
    from corpora import titled_sections

    folder = packages / "python3.11-doc/usr/share/doc/python3.11/html"
    return {
        f"{section}/{file.stem}#{ids[0]}": (title, text)
        for section in _SECTIONS
        for file in sorted((folder / section).glob("*.html"))
        for title, text, ids in titled_sections(file)
        if ids
    }


def wiki_pages(data: Path) -> Pages:
    """Return the paragraphs of Wikitext-2."""
    texts = [line for name in ("valid", "test") for line in (data / f"{name}.txt").read_text("utf-8").splitlines()]
    plain = [
        re.sub(r" @(.)@ ", r"\1", text.strip()).replace("<unk>", "") for text in texts if not text.startswith(" =")
    ]
    return {str(number): ("", text.replace(" ,", ",").replace(" .", ".")) for number, text in enumerate(plain)}


def write_sections(folder: Path, pages: Pages, *, by_title: bool) -> None:
    """Write a collection of sections; the queries are titles, or else sentences that are taken out of the text."""
    draw = random.Random(2)
    keys = sorted(key for key, (_, text) in pages.items() if len(text) > 400)
    draw.shuffle(keys)
    documents: dict[str, Document] = {}
    queries: dict[str, str] = {}
    for key in keys[:_DOCUMENTS]:
        title, text = pages[key]
        sentences = _SENTENCE_END.split(text)
        usable = [at for at, each in enumerate(sentences[:8]) if 7 <= len(each.split()) <= 25]
        if by_title:
            is_hidden = len(title.split()) >= 3 and title.lower() not in text.lower() and title not in queries.values()
            if is_hidden and len(queries) < _QUERIES:
                queries[key] = title
            title = ""
        elif len(queries) < _QUERIES and len(sentences) > 3 and usable:
            queries[key] = sentences.pop(draw.choice(usable))
        documents[key] = Document(cut(" ".join(sentences), _CHARACTERS), title)
    _write(folder, documents, queries)


def _write(folder: Path, documents: Mapping[str, Document], queries: Mapping[str, str]) -> None:
    write(folder, documents, {f"q{number}": (text, [key]) for number, (key, text) in enumerate(queries.items())})
    say(f"{folder.name}: {len(documents):,} documents, {len(queries)} queries")


def main() -> None:
    """Build the collections in the folder that is named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/collections"))
    parser.add_argument("--packages", type=Path, default=Path("build/packages"), help="packages of corpora.py")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/wikitext-2"), help="folder of Wikitext-2")
    given = parser.parse_args()
    library, installed = Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))
    for name, source in {"stdlib": library, **{name: installed / name for name in _PACKAGES}}.items():
        write_documented(given.folder / f"code-{name}", source)
    write_questions(given.folder / "code-questions", documented=False)
    write_questions(given.folder / "code-questions-doc", documented=True)
    for name, pages in {"rust": rust_pages(), "python": python_pages(given.packages)}.items():
        write_sections(given.folder / f"docs-{name}", pages, by_title=False)
        write_sections(given.folder / f"titles-{name}", pages, by_title=True)
    write_sections(given.folder / "wikitext", wiki_pages(given.data), by_title=False)


if __name__ == "__main__":
    main()
