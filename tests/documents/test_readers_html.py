"""The HTML reader: its text, structure and line numbers."""

from __future__ import annotations

import pytest

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import read
from ragembed.errors import DocumentError
from ragembed.reports.page import page


def parsed(text: str | bytes) -> ParsedDocument:
    (document,) = read("a.html", text if isinstance(text, bytes) else text.encode())
    assert document.line_numbers is not None
    assert len(document.line_numbers) == document.text.count("\n") + 1
    return document


def blocks(document: ParsedDocument) -> list[tuple[str, str]]:
    return [(block.kind, document.text[block.start : block.end]) for block in document.blocks]


PAGE = """<!doctype html>
<html><head><meta charset="utf-8">
<title>Guide &#8212; Tool 1.2 documentation</title>
<style>p { color: red }</style></head>
<body><header><a href="/">Home</a></header><nav><ul><li>Menu</li></ul></nav>
<div class="related" role="navigation"><div>inner</div>Related</div>
<main>
<h1>Guide<a class="headerlink" href="#g">\u00b6</a></h1>
<p>First  paragraph
   over <b>two</b> lines &amp; more
   text.</p>
<script>var x = "<p>no</p>";</script>
<h2>Part</h2>
<ul>
<li><p>one</p></li>
<li>two<ol><li>deep</li></ol></li>
</ul>
<pre>
def f():
    return "&lt;"

</pre>
<table><caption>Numbers</caption>
<tr><th>a</th><th><p>b</p></th></tr>
<tr>
  <td>1</td>
  <td>2<br>3</td>
</tr></table>
<aside>kept here</aside>
</main><footer>Copyright</footer></body></html>
"""


def test_page_becomes_blocks_without_menus() -> None:
    document = parsed(PAGE)
    assert blocks(document) == [
        ("heading", "Guide"),
        ("text", "First paragraph over two lines & more text."),
        ("heading", "Part"),
        ("text", "- one\n- two\n  1. deep"),
        ("code", 'def f():\n    return "<"'),
        ("table", "Numbers\na | b\n1 | 2 3"),
        ("text", "kept here"),
    ]
    assert document.title == "Guide"
    assert [block.headings for block in document.blocks][:3] == [("Guide",), ("Guide",), ("Guide", "Part")]


def test_line_numbers_match_the_source() -> None:
    document = parsed(PAGE)
    numbers = dict(zip(document.text.split("\n"), document.line_numbers or (), strict=True))
    assert [numbers[line] for line in ("Guide", "Part", "- one", "  1. deep")] == [8, 13, 15, 16]
    assert [numbers[line] for line in ("def f():", '    return "<"')] == [19, 20]
    assert [numbers[line] for line in ("Numbers", "a | b", "1 | 2 3", "kept here")] == [23, 24, 26, 29]


def test_blank_line_has_the_line_where_the_paragraph_ends() -> None:
    document = parsed(PAGE)
    assert document.line_numbers is not None
    assert (document.line_numbers[2], document.line_numbers[3]) == (9, 11)


def test_page_of_only_menus_keeps_them() -> None:
    document = parsed("<nav><p>Only a menu in this page, and nothing else</p></nav><p>x</p>")
    assert "Only a menu" in document.text


@pytest.mark.parametrize(
    "aside",
    [
        '<aside id="n1" epub:type="footnote"><p><a href="#r">1</a> <a href="x">Built by the guild.</a></p></aside>',
        "<aside><h2>Box</h2><p>Built by the guild.</p><ul><li><a href=x>More</a></li></ul></aside>",
        '<div><aside class="note">Built by the guild.</div><p>More.',
        "<table><tr><td><aside>Built by the guild.</aside><td>x</table>",
    ],
)
def test_asides_are_kept_unless_they_are_menus(aside: str) -> None:
    text = "<h1>Wall</h1><p>The sea wall is old and was raised twice after the storms that drowned the meadows.</p>"
    document = parsed(f"<body><nav>Menu</nav>{text}{aside}<p>The end.")
    assert "Built by the guild." in document.text
    assert document.blocks[-1].headings == ("Wall",)
    menu = "<aside><h3>Menu</h3><a href=a>Home and away</a> <a href=b>Imprint and <b>contact</b></a></aside>"
    assert parsed(f"{text}{aside}<p>The end.{menu}").text.endswith("The end.\n")


def test_definitions_stay_with_their_terms() -> None:
    document = parsed("<dl><dt>term</dt><dd><p>meaning</p><p>more</p></dd><dt>two</dt><dd>text</dd></dl>")
    assert blocks(document) == [("text", "term\nmeaning"), ("text", "more"), ("text", "two\ntext")]
    document = parsed(
        "<dl><dt>-p</dt>\n<dt>--prune</dt><dd><p>Remove.</p></dd><dt>-t<dt>--tags<dd>Fetch.<dt>-n<dd>No.</dl>"
    )
    assert blocks(document) == [("text", "-p\n--prune\nRemove."), ("text", "-t\n--tags\nFetch."), ("text", "-n\nNo.")]


def test_api_signatures_are_headings() -> None:
    document = parsed(
        '<h1>mod</h1><p>x</p><dl class="py class"><dt class="sig" id="mod.C">class mod.C(a)</dt><dd><p>About C.</p>'
        '<dl><dt class="sig" id="mod.C.f">f(x)</dt><dt class="sig">f(x, y)</dt><dd><p>About f.</p></dd></dl></dd></dl>'
        "<p>after</p>"
    )
    assert [(block.kind, block.headings) for block in document.blocks][2:] == [
        ("heading", ("mod", "mod.C")),
        ("text", ("mod", "mod.C")),
        ("heading", ("mod", "mod.C", "f")),
        ("text", ("mod", "mod.C", "f")),
        ("text", ("mod",)),
    ]
    assert ("heading", "f(x)\nf(x, y)") in blocks(document)


def test_labels_of_notes_stay_with_their_text() -> None:
    document = parsed('<div class="note"><p class="admonition-title">Note</p><p>Careful.</p></div><p>b</p>')
    assert blocks(document) == [("text", "Note\nCareful."), ("text", "b")]


def test_lists_and_unclosed_cells_in_tables_stay_in_their_row() -> None:
    document = parsed("<table><tr><td>a<td><ul><li>b</li><li>c</li></ul><tr><td><td>d</table>")
    assert blocks(document) == [("table", "a | b c\n | d")]


def test_code_in_a_table_of_line_numbers_is_code() -> None:
    document = parsed(
        '<table class="highlighttable"><tr><td class="linenos"><pre>1</pre></td>'
        "<td><pre>x = 1\ny</pre></td></tr></table>"
    )
    assert blocks(document) == [("code", "x = 1\ny")]


@pytest.mark.parametrize(
    ("head", "body", "title"),
    [
        ("<title>json — JSON — Python 3 documentation</title>", "<h1>json — JSON</h1>", "json — JSON"),
        ("<title>Site | Page</title>", "<h1>Page</h1>", "Page"),
        ("<title>Pages of it</title>", "<h1>Page</h1>", "Pages of it"),
        ("", "<h1>Page</h1>", "Page"),
        ("<title> </title>", "<p>x</p>", None),
    ],
)
def test_title_excludes_the_site_name(head: str, body: str, title: str | None) -> None:
    assert parsed(f"<html><head>{head}</head><body>{body}<p>text</p></body></html>").title == title


@pytest.mark.parametrize(
    ("declaration", "charset"),
    [
        ('<meta charset="iso-8859-2">', "iso-8859-2"),
        ("<meta http-equiv=Content-Type content='text/html; charset=shift_jis'>", "shift_jis"),
        ('<?xml version="1.0" encoding="koi8-r"?>', "koi8-r"),
        ("<meta charset=latin-1>", "cp1252"),
    ],
)
def test_declared_character_set_is_used(declaration: str, charset: str) -> None:
    text = {"iso-8859-2": "łódź", "shift_jis": "漢字", "koi8-r": "привет", "cp1252": "“fine”"}[charset]
    assert parsed(f"{declaration}\r\n<p>{text}</p>".encode(charset)).text.strip() == text


def test_utf8_wins_over_a_wrong_declaration() -> None:
    assert parsed("<meta charset=latin-1><p>naïve</p>".encode()).text == "naïve\n"


def test_broken_markup_is_read_or_rejected() -> None:
    assert parsed("<p>a<b>c</p></div></table><li>d<h2>e").text.split() == ["ac", "-", "d", "e"]
    with pytest.raises(DocumentError, match="contains no text"):
        parsed("<html><body><img src=x></body></html>")


def test_an_empty_item_gives_its_label_to_nothing() -> None:
    document = parsed("<ul><li><button>Light</button></li></ul><h1>Ownership</h1><p>A set of rules.</p>")
    assert document.text.strip() == "Ownership\n\nA set of rules."


def test_pages_of_ragembed_are_skipped() -> None:
    with pytest.raises(DocumentError, match="a page that ragembed wrote"):
        parsed(page("Report", "about", []))


def test_end_tag_without_a_heading_drops_nothing() -> None:
    (document,) = read("a.html", b"<p>one</h2>\ntwo\n<h2>H</h2>\n</h3>three</p>")
    assert document.text.split() == ["one", "two", "H", "three"]
