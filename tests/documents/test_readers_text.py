"""Readers that keep the text of the file (Markdown, reStructuredText, source code, plain text), and the registry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import READERS, definitions, read, reader_for
from ragembed.documents.readers.structure import HeadingPath, well_formed
from ragembed.errors import DocumentError


def parsed(name: str, text: str) -> ParsedDocument:
    (document,) = read(name, text.encode())
    position = 0
    for block in document.blocks:
        assert not document.text[position : block.start].strip() or position == 0
        assert block.start < block.end
        position = block.end
    assert not document.text[position:].strip()
    return document


def outline(document: ParsedDocument) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the kind, first line and heading path of each block."""
    return [
        (block.kind, document.text[block.start : block.end].split("\n")[0], block.headings) for block in document.blocks
    ]


def kinds(document: ParsedDocument) -> list[tuple[str, str]]:
    return [(block.kind, document.text[block.start : block.end]) for block in document.blocks]


def test_markdown_headings_make_paths() -> None:
    document = parsed("a.md", "intro\n\n# A #\ntext\n## B {#b}\n\nSetext\n===\n\nC\n---\nlast\n")
    assert outline(document) == [
        ("text", "intro", ()),
        ("heading", "# A #", ("A",)),
        ("text", "text", ("A",)),
        ("heading", "## B", ("A", "B")),
        ("heading", "Setext", ("Setext",)),
        ("heading", "C", ("Setext", "C")),
        ("text", "last", ("Setext", "C")),
    ]
    assert document.title == "A"
    assert document.line_numbers is None


@pytest.mark.parametrize(
    ("front", "title"),
    [
        ("---\ntitle: 'It''s'\ntags: [a]\n---\n", "It's"),
        ('---\ntitle: "A: b"\n---\n', "A: b"),
        ('+++\ntitle = "Toml"\n+++\n', "Toml"),
        ("---\nother: x\n---\n", "H"),
    ],
)
def test_markdown_front_matter_gives_the_title_and_a_block(front: str, title: str) -> None:
    document = parsed("a.md", f"{front}# H\n\ntext\n")
    assert document.title == title
    assert outline(document)[:2] == [("table", front.split("\n")[1], ()), ("heading", "# H", ("H",))]


def test_markdown_rule_at_the_top_is_not_front_matter() -> None:
    assert parsed("a.md", "---\n\ntext\n\n---\n").blocks[0].start == 0


def test_markdown_fences_hide_headings_and_nest_by_length() -> None:
    document = parsed("a.md", "````md\n# no\n```\n# no\n```\n````\n\n~~~\n```\n~~~\n# yes\n")
    assert [kind for kind, *_ in outline(document)] == ["code", "code", "heading"]


def test_markdown_unclosed_fence_extends_to_the_end() -> None:
    assert [kind for kind, *_ in outline(parsed("a.md", "# a\n```\n# b\n\n# c\n"))] == ["heading", "code"]


def test_markdown_tables_lists_and_indented_code() -> None:
    text = "a | b\n--|--\n1 | 2\n\n- one\n\n  more\n- two\n\n      still the list\n\nnew\n\n    code\n\n    code\n"
    assert kinds(parsed("a.md", text)) == [
        ("table", "a | b\n--|--\n1 | 2"),
        ("text", "- one\n\n  more\n- two\n\n      still the list"),
        ("text", "new"),
        ("code", "    code\n\n    code"),
    ]


def test_rst_levels_follow_the_order_of_styles() -> None:
    text = "=====\n Top \n=====\n\nPart\n====\n\nSub\n---\n\ntext\n\nPart2\n=====\n\nx\n"
    document = parsed("a.rst", text)
    assert [path for kind, _, path in outline(document) if kind == "heading"] == [
        ("Top",), ("Top", "Part"), ("Top", "Part", "Sub"), ("Top", "Part2"),
    ]  # fmt: skip
    assert document.title == "Top"


def test_rst_code_and_tables() -> None:
    text = (
        "Look::\n\n    literal\n\n    Not\n    ===\n\n.. code-block:: python\n   :linenos:\n\n   x = 1\n\n"
        "+---+\n| a |\n+---+\n\n==  ==\na   b\n==  ==\n1   2\n==  ==\n\n>>> 1\n1\n\n-----\n\nend\n"
    )
    assert kinds(parsed("a.rst", text)) == [
        ("text", "Look::"),
        ("code", "    literal\n\n    Not\n    ==="),
        ("code", ".. code-block:: python\n   :linenos:\n\n   x = 1"),
        ("table", "+---+\n| a |\n+---+"),
        ("table", "==  ==\na   b\n==  ==\n1   2\n==  =="),
        ("code", ">>> 1\n1"),
        ("text", "-----"),
        ("text", "end"),
    ]


@pytest.fixture
def without_grammars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read source files as if semble-grammars were not installed."""
    monkeypatch.setattr(definitions, "LANGUAGES", {})


@pytest.mark.usefixtures("without_grammars")
def test_python_is_split_at_definitions() -> None:
    text = (
        '"""Doc."""\nimport os\n\n# about f\n@wrap\ndef f():\n    return 1\n\nX = 1\n\n'
        "class C:\n    a = 1\n\n    async def g(self):\n        pass\n\n    class D:\n        def h(self): ...\n"
    )
    document = parsed("a.py", text)
    assert outline(document) == [
        ("code", '"""Doc."""', ()),
        ("code", "# about f", ("def f",)),
        ("code", "X = 1", ()),
        ("code", "class C:", ("class C",)),
        ("code", "    async def g(self):", ("class C", "def g")),
        ("code", "    class D:", ("class C", "class D")),
        ("code", "        def h(self): ...", ("class C", "class D", "def h")),
    ]  # fmt: skip


@pytest.mark.usefixtures("without_grammars")
def test_invalid_python_is_split_by_layout() -> None:
    assert [line for _, line, _ in outline(parsed("a.py", "print 'x'\n\ndef f():\n\n    pass\n\ny\n"))] == [
        "print 'x'",
        "def f():",
        "y",
    ]


@pytest.mark.usefixtures("without_grammars")
def test_python_with_odd_escapes_gives_no_warning() -> None:
    assert parsed("a.py", "def f():\n    return '\\d'\n").blocks[0].headings == ("def f",)


@pytest.mark.usefixtures("without_grammars")
def test_other_languages_are_split_at_unindented_lines() -> None:
    document = parsed("a.c", "int a;\n\nint f()\n{\n    x();\n\n    y();\n\n}\n\nint b;\n")
    assert [line for _, line, _ in outline(document)] == ["int a;", "int f()", "int b;"]


def test_plain_text_is_split_into_paragraphs() -> None:
    assert kinds(parsed("a.txt", "\n  one\ntwo\n \nthree\n")) == [("text", "  one\ntwo"), ("text", "three")]


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("a.MD", "markdown"), ("a.rst", "rst"), ("a.htm", "html"), ("a.tsv", "csv"), ("a.ndjson", "jsonl"),
        ("a.ipynb", "notebook"), ("a.pdf", "pdf"), ("a.docx", "docx"), ("a.pptx", "pptx"), ("a.epub", "epub"),
        ("a.rs", "source"), ("Makefile", "source"), ("CMakeLists.txt", "source"), ("LICENSE", "text"),
        ("README", "text"), ("a.log", "log"), ("a.xml", "xml"), ("a.json", "json"), ("a.yml", "yaml"),
        ("a.toml", "settings"), ("Dockerfile", "dockerfile"), ("a.sql", "sql"), ("a.org", "org"),
        ("a.adoc", "asciidoc"), ("a.tex", "latex"), ("a.3pm", "man"), ("a.bib", "bibtex"), ("a.vtt", "subtitles"),
    ],
)  # fmt: skip
def test_reader_is_chosen_by_name(name: str, reader: str) -> None:
    chosen = reader_for(name, b"")
    assert chosen is not None
    assert chosen.name == reader


def test_unknown_suffix_is_plain_text_if_its_content_is_text() -> None:
    chosen = reader_for("a.weird", b"hello")
    assert chosen is not None
    assert chosen.name == "text"
    assert reader_for("a.weird", b"\x00\x01\x02" * 50) is None
    assert [document.text for document in read("a.weird", b"hello")] == ["hello"]


def test_no_suffix_belongs_to_two_readers() -> None:
    suffixes = [suffix for reader in READERS for suffix in reader.suffixes]
    assert len(suffixes) == len(set(suffixes))
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in suffixes)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.weird", b"\x00\x01" * 90, "neither text"),
        ("a.md", b"\x00\x01" * 90, "binary"),
        ("a.md", b"", "contains no text"),
        ("a.txt", b" \n\t\n", "contains no text"),
    ],
)
def test_files_without_text_are_rejected(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        list(read(name, data))


def test_heading_path_drops_repetitions() -> None:
    path = HeadingPath()
    path.enter(1, "A")
    assert path.enter(2, "A") == ("A",)
    assert path.enter(3, "B") == ("A", "B")
    assert path.enter(2, "C") == ("A", "C")


def test_well_formed_joins_pairs_and_replaces_lone_surrogates() -> None:
    assert well_formed("a\ud83d\ude00b\ud800c") == "a\U0001f600b\ufffdc"


STRUCTURED = [
    "a.xml", "a.json", "a.yaml", "a.toml", "Dockerfile", "a.sql", "a.org", "a.adoc", "a.tex", "a.1", "a.bib", "a.srt",
    "a.log",
]  # fmt: skip


@given(
    st.sampled_from(["a.md", "a.rst", "a.py", "a.html", "a.txt", *STRUCTURED]),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_any_text_is_read_or_rejected(name: str, text: str) -> None:
    try:
        documents = list(read(name, text.encode()))
    except DocumentError:
        return
    for document in documents:
        edges = [edge for block in document.blocks for edge in (block.start, block.end)]
        assert edges == sorted(edges)
        if document.line_numbers is not None:
            assert len(document.line_numbers) == document.text.count("\n") + 1


LINES = st.sampled_from(
    ["", "# H", "text", "===", "---", "```", "~~~~", "- item", "  more", "    deep", "| a |", "|--|", "a::",
     ".. code::", "+--+", "== ==", ">>> x", "def f():", "class C:", "    pass", "}", "<p>", "</p>", "<ul><li>",
     "<table><tr><td>x", "<pre>", "</pre>", "<h2>t", "</h2>", "<dl><dt>t<dd>", "</table>", "<nav>", "</nav>",
     "a: 1", "  b: |", "- c: x", "[s]", "FROM x", "create table t (", ");", "* H", "#+begin_src", "== H", "----",
     "|===", r"\section{S}", r"\begin{itemize}", r"\item x", r"\end{itemize}", r"\begin{tabular}{l}", r"a & b \\", "$x",
     r"\begin{verbatim}", ".TH A 1", ".SH S", ".TP", ".B x", ".nf", ".fi", ".TS", ".It Fl x", "@book{k,",
     "title = {T},", "<!-- x", "-->", "[[a|b]] #t", "{#a}", ".. x", ".. _a:", "  y", "# z", "////", "<<a>>", "+++",
     ":k: v", "k: v", "00:00:01,000 --> 00:00:02,000", "2024-01-01 00:00:01 x"]
)  # fmt: skip


@given(st.sampled_from(["a.md", "a.rst", "a.py", "a.c", "a.html", *STRUCTURED]), st.lists(LINES, max_size=30))
def test_blocks_cover_every_text_in_order(name: str, lines: list[str]) -> None:
    text = "\n".join(["word", *lines])
    for document in read(name, text.encode()):
        position = 0
        for block in document.blocks:
            assert position <= block.start < block.end
            assert not document.text[position : block.start].strip()
            position = block.end
        assert not document.text[position:].strip()
        if document.line_numbers is not None:
            assert list(document.line_numbers) == sorted(document.line_numbers)


@pytest.mark.parametrize("name", ["app.min.js", "style.css"])
def test_minified_code_is_rejected(name: str) -> None:
    with pytest.raises(DocumentError, match="minified: its lines are 45,000 characters long on average"):
        list(read(name, b"var a=1;b" * 5000))
    assert list(read(name, b"var a = 1;\n" * 500))
