"""What is left out of texts, such as encoded data and comments, and what becomes metadata, such as front matter."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from xml.etree import ElementTree as ET

import pytest

from ragembed.documents.model import Block, ParsedDocument
from ragembed.documents.readers import ReadOptions, read
from ragembed.documents.readers.blobs import has_few_words, without_blobs
from ragembed.documents.readers.properties import core_properties, with_metadata, with_properties
from ragembed.errors import DocumentError

DATA = random.Random(5).randbytes(2_000)
BLOB = base64.b64encode(DATA).decode()
SVG = '<svg xmlns="http://www.w3.org/2000/svg">' + '<path d="M1 1"/>' * 9 + "</svg>"


def parsed(name: str, text: str) -> ParsedDocument:
    (document,) = read(name, text.encode())
    return document


def blocks(document: ParsedDocument) -> list[str]:
    return [document.text[block.start : block.end] for block in document.blocks]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"![logo](data:image/png;base64,{BLOB})", "![logo](data:image/png;base64,…)"),
        (f"[logo]: <data:image/png;base64,{BLOB}>", "[logo]: <data:image/png;base64,…>"),
        (
            f"src: url(data:font/woff2;charset=utf-8;base64,{BLOB}) a",
            "src: url(data:font/woff2;charset=utf-8;base64,…) a",
        ),
        (f"i {{ x: url('data:image/svg+xml;utf8,{SVG}') }}", "i { x: url('data:image/svg+xml;utf8,…') }"),
        (f'"data:image/svg+xml,{"%3Cpath d=%27M0 0%27%2F%3E".replace(" ", "%20") * 5}"', '"data:image/svg+xml,…"'),
        (f"key = {BLOB}\nnext", "key = …\nnext"),
        (f'{{"a": "x\\n{BLOB}\\u00e9{BLOB}"}}', '{"a": "x\\n…\\u00e9…"}'),
        (f'<path d="M1 2{"c1.5 -2 3,4 5 6z" * 40}"/>', '<path d="…"/>'),
        ("x[] = {\n" + "0x89, 0x50,\n" * 99 + "};", None),
        ('b"' + "".join(f"\\x{byte:02x}" for byte in DATA) + '"', 'b"…"'),
        (f"INSERT x'{DATA.hex()}';", "INSERT x'…';"),
        ("-----BEGIN KEY-----\n" + "\n".join(wrap(BLOB, 64)) + "\n-----END KEY-----", None),
        ("x = (\n" + "\n".join(f'    b"{part}"' for part in wrap(BLOB, 76)) + "\n)", None),
        ('["' + '\\n",\n "'.join(wrap(BLOB, 76)) + '"]', None),
        ("# " + "\n# ".join(wrap(BLOB, 72)), None),
        (" " + "\n ".join(wrap(BLOB, 72)) + "\nTEL:555", " …" + "\n " * (len(BLOB) // 72) + "\nTEL:555"),
        ("\n".join(wrap(base64.b85encode(DATA).decode().replace("-", "m"), 80)), None),
    ],
)
def test_encoded_data_is_left_out(text: str, left: str | None) -> None:
    shorter = without_blobs(text)
    assert shorter.count("\n") == text.count("\n")
    assert left in (None, shorter)
    assert "…" in shorter
    assert len("".join(shorter.split())) < 0.4 * len(text)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(30)),
        "\n".join(hashlib.sha512(bytes([n])).hexdigest() + f"  file{n}" for n in range(30)),
        "\n".join("sha512-" + base64.b64encode(hashlib.sha512(bytes([n])).digest()).decode() for n in range(30)),
        "\n".join(base64.b64encode(hashlib.sha512(bytes([n])).digest()).decode() for n in range(30)),
        "token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVPmB92K27uhbUJU1p1r",
        "/usr/local/lib/Python3/site_packages/" * 8,
        "AbstractSingletonProxyFactoryBean2" * 10,
        "ACGTTGCAAC" * 40,
        "\n".join(["ACGTTGCAacgttgcaACGTTGCAacgttgcaACGTTGCAacgttgcaACGTTGCAacgttgca"] * 20),
        "\n".join(f"https://drive.example.org/file/d/1A2b3C4d5E6f7G8h9I0j1K2l{n:010d}Zz/view" for n in range(20)),
        "a" * 500 + "!",
        "0123456789" * 50,
        "=" * 400 + "\n" + "-" * 400,
        "0x1F600, 0x89 and 0x50 are numbers",
        'x="M 1 2 L 3 4"',
        "日本語の文章には空白がありません。" * 30,
        "the word data: and data:text/plain,short",
    ],
)
def test_text_that_looks_like_encoded_data_stays(text: str) -> None:
    assert without_blobs(text) == text


@pytest.mark.parametrize(
    ("text", "few"),
    [
        (BLOB, True),
        (DATA.hex(), True),
        ("0x89, 0x50, 0x4e, 0x47, " * 50, True),
        ("M10.5 20.3L4 5c1 2 3 4z " * 50, True),
        (Path(__file__).read_text(encoding="utf-8"), False),
        ("getHTTPResponse(file_name, XMLParser)", False),
        ("2024-01-01,12.5,EUR,closed on Sunday\n", False),
        ("机器学习是人工智能的一个分支。", False),
        ("Größe 3 µm", False),
        ("", False),
    ],
)
def test_texts_with_few_words_are_recognised(text: str, few: bool) -> None:
    assert has_few_words(text) is few


def test_encoded_data_are_left_out_of_every_text_format() -> None:
    notebook = {"cells": [{"cell_type": "markdown", "source": [f"See ![p](data:image/png;base64,{BLOB})"]}]}
    files = {
        "a.md": f"See ![p](data:image/png;base64,{BLOB})",
        "a.txt": f"See {BLOB}",
        "a.rst": f"See\n\n.. image:: data:image/png;base64,{BLOB}",
        "a.css": f"See {{ src: url(data:font/woff;base64,{BLOB}) }}",
        "a.json": json.dumps({"See": BLOB}),
        "a.yaml": f"See: {BLOB}",
        "a.xml": f'<See src="data:image/png;base64,{BLOB}">{BLOB}</See>',
        "a.html": f"<p>See</p><pre>{BLOB}</pre>",
        "a.csv": f"See,b\nx,{BLOB}",
        "a.ipynb": json.dumps(notebook),
        "a.py": f'See = "{BLOB}"',
    }
    for name, text in files.items():
        document = parsed(name, text)
        assert "See" in document.text, name
        assert len(document.text) < 100, name


def test_pictures_have_only_the_text_that_they_show() -> None:
    inner = (
        f"<style>@font-face {{ src: url(data:font/woff;base64,{BLOB}) }} .a {{ fill: red }}</style>\n"
        "<metadata><rdf>image/svg+xml</rdf></metadata><script>run()</script><desc>A kettle</desc>"
        f'<image href="data:image/png;base64,{BLOB}"/>\n<text><tspan>Hot</tspan> <tspan>water</tspan></text>'
    )
    document = parsed("a.svg", f"<svg>{inner}</svg>")
    assert document.text.split() == ["A", "kettle", "Hot", "water"]
    assert document.line_numbers is not None
    assert document.line_numbers[0] == 2
    broken = parsed("a.svg", f"<svg>{inner}<path d='M 1 1'></svg>")
    assert broken.text.split() == ["A", "kettle", "Hot", "water"]


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("## Install { #install }", "## Install"),
        ("## Install {#install .x}", "## Install"),
        ("## Install {: #install }", "## Install"),
        ("## Install {#install} ##", "## Install ##"),
        ("{: .no_toc }", ""),
        ("{:toc}", ""),
        ("{ .annotate }", ""),
        ("[Get](a.md){ .md-button .md-button--primary } it", "[Get](a.md) it"),
        ('![p](a.png){ width="300" loading=lazy }', "![p](a.png)"),
        ("`x`{.py} is code", "`x` is code"),
        ("A paragraph. {: #here }", "A paragraph."),
        ("| a {#x} | b |", "| a | b |"),
        ('<a name="old"></a>Text<a id="b" />', "Text"),
        ('<span id="x"></span>', ""),
        ("(target)=", ""),
        ("[[_TOC_]]", ""),
        ("a <!-- note --> b", "a  b"),
        ("a {/* note */} b", "a  b"),
        ("See [[Page]], [[Page|text]], [[A/B#Part]] and ![[pic.png|300]]", "See Page, text, A/B > Part and pic.png"),
        ("| [[Page\\|text]] | x |", "| text | x |"),
        ("a %% note %% b", "a  b"),
        ("A paragraph ^37066d", "A paragraph"),
        ("a {::comment}note{:/comment} b", "a  b"),
        ("<style>a { b: c }</style>x", "x"),
        ("[[202401011230]]", "202401011230"),
        ("[[#Part]] ![[Note#^block]]", "Part Note"),
        # These stay.
        ("`<!-- code -->` and `[[no]]`", "`<!-- code -->` and `[[no]]`"),
        ("It returns {:ok, value} and {name}.", "It returns {:ok, value} and {name}."),
        ("Use {% include %} and ${HOME}", "Use {% include %} and ${HOME}"),
        ("[[1, 2], [3, 4]] [[1]] [[x]](http://a.b)", "[[1, 2], [3, 4]] [[1]] [[x]](http://a.b)"),
        ("if [[ -f x ]]; then", "if [[ -f x ]]; then"),
        ("x ^2 is 100%% of y", "x ^2 is 100%% of y"),
        ("a <b>bold</b> < c", "a <b>bold</b> < c"),
        ("$\\sum_{i=1}^{n} \\frac{a}{b=2} x_{.5}$", "$\\sum_{i=1}^{n} \\frac{a}{b=2} x_{.5}$"),
    ],
)
def test_markup_of_markdown_that_nobody_sees_is_left_out(line: str, seen: str) -> None:
    text = parsed("a.md", f"first\n\n{line}\n\nlast\n").text
    assert text == f"first\n\n{seen}\n\nlast\n"


def test_comments_are_left_out_of_markdown_but_not_of_code() -> None:
    text = (
        "one\n<!-- a\n\n## hidden\n--> two\n\n%%\nhidden\n%%\n\n<script>\nhidden()\n</script>\n\n"
        "- item\n    <!-- gone -->\n  <!-- gone\n  too -->\n- next\n\n"
        "!!! note\n    seen <!-- gone -->\n\nx\n\n```html\n<!-- kept --> {#kept} [[kept]]\n```\n\n    <!-- kept -->\n"
    )
    document = parsed("a.md", text)
    assert document.text.count("\n") == text.count("\n")
    assert "hidden" not in document.text
    assert "gone" not in document.text
    assert document.text.count("kept") == 4
    assert "two" in document.text
    assert parsed("a.md", "one <!-- open\n\n# Head\n").text == "one <!-- open\n\n# Head\n"


def test_front_matter_is_metadata_and_is_searched() -> None:
    front = (
        "---\ntitle: 'It''s'\nTags: todo, home/garden\naliases: [Plan, 'To do']\ncreated: 2024-05-01T10:00:00Z\n"
        "lang: no\nat: 10:30\nzip: 007\nrank: 1.5\ndone: true\nempty:\nnested: {a: [1, x]}\n$types: x\n---\n"
    )
    document = parsed(
        "a.md",
        f"{front}# Head\n\nText #inline and `#code` (#5, #fff) see [[Other#Part|there]]\n\n[x]: #x\n\n    #indented\n",
    )
    assert document.metadata == {
        "tags": ["todo", "home/garden", "inline"],
        "aliases": ["Plan", "To do"],
        "title": "It's",
        "created": "2024-05-01T10:00:00+00:00",
        "lang": "no",
        "at": "10:30",
        "zip": "007",
        "rank": 1.5,
        "done": True,
        "nested": {"a": [1, "x"]},
        "links": ["Other"],
    }
    assert document.title == "It's"
    assert blocks(document)[0] == front.strip("-\n")
    assert document.text.split("\n")[front.count("\n")] == "# Head"


@pytest.mark.parametrize(
    ("front", "metadata", "body"),
    [
        ("+++\ntags = ['a']\ndate = 2024-05-01\n+++\n", {"tags": ["a"], "date": "2024-05-01"}, True),
        ("---\ntags:\n- \"#a\"\n- b\n...\n", {"tags": ["a", "b"]}, True),
        ("---\ntags: #a\nkeyword: x; y\n---\n", {"keywords": ["x", "y"]}, True),
        ("Title: P\nDate: 2024-05-01\nTags: a\n\n", {"tags": ["a"], "title": "P", "date": "2024-05-01"}, True),
        ("---\ntitle: {{title}} x\ntags: a b\n---\n", {"tags": ["a", "b"], "title": "{{title}} x"}, True),
        ("tags:: a, b\n\n", {"tags": ["a", "b"]}, True),
        ("+++\n[taxonomies]\ntags = ['a']\n+++\n", {"tags": ["a"], "taxonomies": {"tags": ["a"]}}, True),
        ("# Page\n\nCreated: May 1\nTags: a, b\n\n", {"tags": ["a", "b"], "created": "May 1"}, False),
        ("# Page\n\nCreated: by Ann\n\n", {}, False),
        ("Note: a first\nline of text\n\n", {}, False),
        ("---\n\ntext\n\n---\n", {}, False),
        ("---\n\nA slide\n\nNote: spoken\n\n---\n", {}, False),
    ],
)  # fmt: skip
def test_notations_of_front_matter(front: str, metadata: dict[str, object], body: bool) -> None:
    document = parsed("a.md", f"{front}# Head\n")
    assert document.metadata == metadata
    assert (document.blocks[0].kind == "table") == body
    assert blocks(document)[-1] == "# Head"


def test_front_matter_that_is_not_valid_or_that_grows_is_bounded() -> None:
    warnings: list[str] = []
    list(read("a.md", b"---\ntitle: a: b\n---\ntext", ReadOptions(on_warning=warnings.append)))
    assert warnings == ["its front matter is no valid YAML, so each line is read as key: value"]
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    )
    assert len(json.dumps(parsed("a.md", f"---\n{bomb}self: &s [*s]\n---\ntext").metadata)) < 20_000


def test_fields_of_restructured_text_are_metadata() -> None:
    text = (
        ".. _top:\n.. _second: \n\n.. _far:\n   https://far.org\n\nTitle\n=====\n\n"
        ":Author: Ann Lee\n:tags: a, b\n:abstract: one\n   two\n\n"
        ".. a comment\n   with more\n\n   lines\n\n.. note:: Seen\n\n   .. gone\n\n   :kept: x\n\n"
        ".. _link: https://a.b\n\n.. code-block:: rst\n\n   .. stays\n\n"
        ".. meta::\n   :keywords: x, y\n   :description lang=en: About it\n\nEnd :ref:`top`.\n"
    )
    document = parsed("a.rst", text)
    assert document.metadata == {
        "tags": ["a", "b"],
        "keywords": ["x", "y"],
        "author": "Ann Lee",
        "abstract": "one two",
        "description": "About it",
    }
    assert document.title == "Title"
    for gone in ("comment", "more", "lines", "gone", "_top", "_second"):
        assert gone not in document.text
    for kept in (
        "Ann Lee",
        "Seen",
        ":kept: x",
        ".. _link: https://a.b",
        "https://far.org",
        "   .. stays",
        "keywords: x, y",
        ":ref:`top`",
    ):
        assert kept in document.text
    nikola = parsed("a.rst", ".. title: A post\n.. tags: a, b\n\nText\n")
    assert (nikola.title, nikola.metadata) == ("A post", {"tags": ["a", "b"], "title": "A post"})


def test_properties_of_org_are_metadata() -> None:
    text = (
        "#+TITLE: Notes\n#+DATE: <2024-02-03 Sat 10:30>\n#+FILETAGS: :work:todo:\n#+OPTIONS: toc:hidden\n"
        ':PROPERTIES:\n:ID: 7\n:ROAM_ALIASES: "To do" Plan\n:END:\n# hidden\n'
        "* TODO Head :urgent:\n:PROPERTIES:\n:Owner: Ann\n:END:\n"
        "See [[file:b.org][that]], [[https://a.b][site]] <<place>>\n"
        "#+begin_comment\nhidden\n#+end_comment\n#+begin_src sh\n# kept [[ -f x ]]\n#+end_src\n* Two\n:PROPERTIES:\n"
        ":Owner: Bob\n:END:\n"
    )
    document = parsed("a.org", text)
    assert document.metadata == {
        "aliases": ["To do", "Plan"],
        "tags": ["work", "todo", "urgent"],
        "title": "Notes",
        "date": "2024-02-03 10:30",
        "id": "7",
        "owner": ["Ann", "Bob"],
        "links": ["file:b.org"],
    }
    assert "hidden" not in document.text
    assert "See that, site" in document.text
    assert "# kept [[ -f x ]]" in document.text
    assert "place" not in document.text
    assert document.text.count("\n") == text.count("\n")


def test_attributes_of_asciidoc_are_metadata() -> None:
    head = "= Title\n:author: Ann\n:keywords: x, y\n\n// hidden\n[[place]]\n== Sub\n"
    text = f"{head}////\nhidden\n////\ntext\n\n----\n// kept\n----\n"
    document = parsed("a.adoc", text)
    assert document.metadata == {"keywords": ["x", "y"], "author": "Ann"}
    assert "hidden" not in document.text
    assert "place" not in document.text
    assert "// kept" in document.text


def test_meta_elements_of_a_page_are_metadata_and_are_searched() -> None:
    head = (
        '<title>Kettles</title><meta charset="utf-8"><meta name="viewport" content="width=1">'
        '<meta name="Keywords" content="tea, water"><meta property="article:tag" content="hot">'
        '<meta property="article:tag" content="cold"><meta name="DC.creator" content="Ann Lee">'
        '<meta property="og:description" content="How to boil.">'
        '<meta property="article:published_time" content="2024-05-01">'
        '<meta name="generator" content="Sphinx"><meta name="twitter:card" content="summary">'
    )
    document = parsed("a.html", f"<html><head>{head}</head><body><h1>Kettles</h1><p>Text</p></body></html>")
    assert document.metadata == {
        "keywords": ["tea", "water"],
        "tags": ["hot", "cold"],
        "author": "Ann Lee",
        "description": "How to boil.",
        "published_time": "2024-05-01",
    }
    assert blocks(document)[0] == "author: Ann Lee\ndescription: How to boil.\nkeywords: tea, water"
    assert document.line_numbers is not None
    assert len(document.line_numbers) == document.text.count("\n") + 1
    assert parsed(
        "a.html", "<title>T</title><p>How to boil.</p><meta name=description content='How to boil.'>"
    ).text == ("How to boil.\n")


def test_links_of_headings_to_themselves_are_left_out() -> None:
    page = (
        "<h2><a class=doc-anchor href='#a'>§</a>Locks</h2><h3>Keys <a href='#b'>¶</a></h3>"
        "<h3>Doors<a class=hash-link href='#c'>\u200b</a></h3>"
        "<p>See <a href='#d'>below</a> <a href='#'>1</a>, or § 5.</p>"
    )
    assert blocks(parsed("a.html", page)) == ["Locks", "Keys", "Doors", "See below 1, or § 5."]


@pytest.mark.parametrize(
    "text",
    [
        "<script>\nfunction greet() { return 1; }\n</script>\n",
        '{% extends "base.html" %}\n{% block scripts %}\n<script>greet();</script>\n{% endblock %}\n',
        "<script id='row' type='text/x-handlebars-template'>\n<li>{{name}}</li>\n</script>",
        "{{#each rows}}\n{{> row}}\n{{/each}}\n",
        "<template><li>greet</li></template>",
        "<?php echo greet(); ?>",
    ],
)
def test_a_template_without_text_is_source_code(text: str) -> None:
    document = parsed("a.html", text)
    assert document.text == text
    assert {block.kind for block in document.blocks} == {"code"}


def test_a_page_without_text_is_no_template() -> None:
    with pytest.raises(DocumentError, match="contains no text"):
        parsed("a.html", "<html><head><link rel=icon href=x></head><body></body></html>")
    assert parsed("a.html", "<p>Text {{name}}</p><script>x()</script>").text == "Text {{name}}\n"


@pytest.mark.parametrize("name", ["a.ts", "a.vue", "a.php", "a.lua", "a.css"])
def test_minified_code_of_any_language_is_refused(name: str) -> None:
    dense = "/* licence\n * of the\n * file */\n" + "function a(b){return b.c(1)};" * 60
    with pytest.raises(DocumentError, match="minified"):
        parsed(name, dense)
    prose = "x = '" + "A long text for the people who read it. " * 60 + "'\n"
    if name != "a.css":
        assert parsed(name, prose).text == prose


CORE = (
    '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/">'
    "<dc:title>Kettles</dc:title><dc:creator>Ann Lee</dc:creator><cp:keywords>tea; hot water</cp:keywords>"
    "<dc:description>generated by python-docx</dc:description><cp:lastModifiedBy>Bob</cp:lastModifiedBy>"
    "<dcterms:created>2024-05-01T10:00:00Z</dcterms:created></cp:coreProperties>"
)
META = (
    '<office:document-meta xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:meta="urn:oasis:names:tc:opendocument:xmlns:meta:1.0">'
    "<office:meta>"
    "<dc:title>Kettles</dc:title><meta:initial-creator>Ann Lee</meta:initial-creator><dc:creator>Bob</dc:creator>"
    "<meta:keyword>tea</meta:keyword><meta:keyword>hot water</meta:keyword>"
    "<meta:creation-date>2024-05-01T10:00:00Z</meta:creation-date></office:meta></office:document-meta>"
)


@pytest.mark.parametrize("xml", [CORE, META])
def test_properties_of_office_files(xml: str) -> None:
    properties = core_properties([ET.fromstring(xml)])
    document = ParsedDocument("Text", [Block(0, 4)], "Kettles", page_numbers=[7])
    read_with = with_properties(document, properties)
    assert read_with.metadata == {
        "keywords": ["tea", "hot water"],
        "title": "Kettles",
        "author": "Ann Lee",
        "created": "2024-05-01T10:00:00Z",
    }
    assert read_with.text == "author: Ann Lee\nkeywords: tea, hot water\n\nText"
    assert blocks(read_with) == ["author: Ann Lee\nkeywords: tea, hot water", "Text"]
    assert read_with.page_numbers == [7, 7, 7, 7]
    assert with_properties(document, {}) is document
    (row,) = with_metadata([replace(document, metadata={"author": "Cy"})], properties)
    assert (row.text, row.metadata["author"], row.metadata["title"]) == ("Text", "Cy", "Kettles")
