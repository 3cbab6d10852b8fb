"""Readers of XML, JSON, settings, SQL, Org, AsciiDoc, LaTeX, manual pages, BibTeX, subtitles, logs and outputs."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import ReadOptions, read, timed
from ragembed.errors import DocumentError


def documents(name: str, text: str) -> list[ParsedDocument]:
    found = list(read(name, text.encode()))
    for document in found:
        if document.line_numbers is not None:
            assert len(document.line_numbers) == document.text.count("\n") + 1
    return found


def parsed(name: str, text: str) -> ParsedDocument:
    (document,) = documents(name, text)
    return document


def blocks(document: ParsedDocument) -> list[tuple[str, int, str, str]]:
    """Return the kind, first line, last heading and text of each block."""
    found = []
    for block in document.blocks:
        line = document.text.count("\n", 0, block.start)
        place = line + 1 if document.line_numbers is None else document.line_numbers[line]
        heading = block.headings[-1] if block.headings else ""
        found.append((block.kind, place, heading, document.text[block.start : block.end]))
    return found


def warnings_of(name: str, text: str) -> list[str]:
    warnings: list[str] = []
    list(read(name, text.encode(), ReadOptions(on_warning=warnings.append)))
    return warnings


def test_docbook_sections_lists_listings_and_tables() -> None:
    text = """<!DOCTYPE book PUBLIC "x" "http://127.0.0.1:1/x.dtd" [<!ENTITY v "1.2">]>
<db:book xmlns:db="http://docbook.org/ns/docbook"><db:info><db:title>The
 Book</db:title></db:info>
<db:chapter><db:title>Start</db:title><db:para>Version &v;&nbsp;of <db:command>ls</db:command>:
H<db:subscript>2</db:subscript>O<db:footnote>
<db:para>One</db:para> <db:para>two.</db:para></db:footnote>.</db:para><db:programlisting>a
  b</db:programlisting>
<db:itemizedlist><db:listitem><db:para>one</db:para></db:listitem><db:listitem><db:para>two</db:para></db:listitem>
</db:itemizedlist><db:table><db:row><db:entry>x</db:entry><db:entry>y</db:entry></db:row></db:table>
</db:chapter></db:book>"""
    document = parsed("a.xml", text)
    assert document.title == "The Book"
    assert blocks(document) == [
        ("heading", 2, "The Book", "The Book"),
        ("heading", 4, "Start", "Start"),
        ("text", 4, "Start", "Version 1.2 of ls: H2O (One two.)."),
        ("code", 6, "Start", "a\n  b"),
        ("text", 8, "Start", "- one\n- two"),
        ("table", 9, "Start", "x | y"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<TEI><text><p>10<hi rend="superscript">6</hi> m<note><p>A note.</p></note> high</p></text></TEI>',
         [("text", "10^6 m (A note.) high")]),
        ("<article><list><list-item><label>a)</label><p>one</p></list-item></list><code>x\n y</code></article>",
         [("text", "a) one"), ("code", "x\n y")]),
    ],
)  # fmt: skip
def test_notes_numbers_and_listings_of_tei_and_jats(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(kind, shown) for kind, _, _, shown in blocks(parsed("a.xml", text))] == expected


def test_other_xml_is_an_outline_of_its_elements() -> None:
    text = """<config v="1"><!-- the servers -->
<server name="a"><port>80</port></server>
<note>Some <b>bold</b> text</note></config>"""
    assert blocks(parsed("a.xml", text)) == [
        ("table", 1, "", 'config v="1"\nthe servers'),
        ("table", 2, "", 'server name="a"\n  port: 80'),
        ("table", 3, "", "note: Some bold text"),
    ]


def test_xhtml_and_pictures_and_broken_xml() -> None:
    assert parsed("a.xml", "<?xml version='1.0'?><html><body><h1>T</h1></body></html>").title == "T"
    assert parsed("a.svg", '<svg width="9"><path d="M 0 0"/><text>Label</text></svg>').text.strip() == "Label"
    assert parsed("a.xml", "<a>\n<b>").text == "<a>\n<b>"
    assert warnings_of("a.xml", "<a>\n<b>") == ["not well-formed XML at line 2 (no element found): read as plain text"]


def test_entities_add_little_and_read_nothing() -> None:
    nested = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(9))
    laughs = f'<!DOCTYPE a [<!ENTITY e0 "{"ha" * 50}">{nested}<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    assert parsed("a.xml", f"{laughs}<a>&e9;|&x;</a>").text.strip() == "&e9;|&x;"
    with pytest.raises(DocumentError, match="its entities grow too much"):
        parsed("a.xml", f'{laughs}<a b="&e9;"/>')
    with pytest.raises(DocumentError, match="nested more than 500 levels deep"):
        parsed("a.xml", "<a>" * 1000)


def test_json_records_are_documents_and_keys_are_blocks() -> None:
    first, second = documents("a.json", '[{"name": "A", "tags": ["x", "y"]},\n{"id": 7,\n "at": {"city": "Rome"}}]')
    assert (first.title, blocks(first)) == ("A", [("table", 1, "", "name: A\ntags: x, y")])
    assert (second.title, second.text, second.line_numbers) == (None, "id: 7\nat.city: Rome\n", [2, 3, 3])
    document = parsed("a.json", '{"v": 1.50, "e": null,\n"run": {"a": "b:\\n[c"},\n"all": [{"id": "x"}, {"k": true}]}')
    assert blocks(document) == [
        ("table", 1, "", "v: 1.50"),
        ("table", 2, "run", "run.a: b:\n[c"),
        ("table", 3, "x", "id: x"),
        ("table", 3, "all", "k: true"),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1', "Expecting ',' delimiter: line 1 column 8 (char 7)"),
        ("[" * 300 + "]" * 300, "more than 200 levels"),
        ("[" * 100_000, "more than 200 levels"),
        ("[" + "0," * 2_000_000 + "0]", "more than 2,000,000 values and escapes"),
    ],
)
def test_json_that_cannot_be_read_is_plain_text(text: str, problem: str) -> None:
    warnings: list[str] = []
    (document,) = read("a.json", text.encode(), ReadOptions(on_warning=warnings.append))
    assert document.text == text
    assert warnings == [f"not readable as JSON ({problem}): read as plain text"]


def test_yaml_keys_records_and_texts() -> None:
    text = """# about
version: 3
# the jobs
jobs:
  - name: Build it
    run: make
  - run: test
text: |
  no: key
---
kind: Service
"""
    assert blocks(parsed("a.yaml", text)) == [
        ("code", 1, "", "# about\nversion: 3"),
        ("code", 3, "jobs", "# the jobs\njobs:"),
        ("code", 5, "Build it", "  - name: Build it\n    run: make"),
        ("code", 7, "jobs", "  - run: test"),
        ("code", 8, "text", "text: |\n  no: key"),
        ("code", 10, "", "---"),
        ("code", 11, "", "kind: Service"),
    ]


def test_yaml_aliases_are_not_expanded() -> None:
    text = "a: &a [x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(9))
    assert parsed("a.yaml", text).text == text


def test_settings_have_sections_and_dockerfiles_have_stages() -> None:
    text = 'a = 1\n# tools\n[tool.x]\nt = """\n[no]\n"""\n[[bin]]\nb = 2\n'
    assert [(line, heading) for _, line, heading, _ in blocks(parsed("a.toml", text))] == [
        (1, ""),
        (2, "x"),
        (7, "bin"),
    ]
    assert parsed("a.toml", text).blocks[1].headings == ("tool", "x")
    assert parsed("a.ini", "[a.b]\nc=d\n").blocks[0].headings == ("a.b",)
    docker = "ARG V\n# build\nFROM a AS b\nRUN x \\\n  y\nFROM c\nCOPY d e\n"
    assert [(line, heading) for _, line, heading, _ in blocks(parsed("Dockerfile", docker))] == [
        (1, ""), (2, "FROM a AS b"), (6, "FROM c"),
    ]  # fmt: skip


def test_sql_statements() -> None:
    text = """-- users
CREATE TABLE IF NOT EXISTS users (
  id int;
);
/* rows;
insert */
INSERT INTO users (id) VALUES (1);
CREATE FUNCTION f() AS $$
BEGIN
  x;
END;
$$;
"""
    assert [(line, heading) for _, line, heading, _ in blocks(parsed("a.sql", text))] == [
        (1, "CREATE TABLE users"), (5, "INSERT INTO users"), (8, "CREATE FUNCTION f"),
    ]  # fmt: skip


def test_org_headings_listings_and_tables() -> None:
    text = "#+TITLE: Doc\n* TODO [#A] One :tag:\ntext\n| a |\n** Two\n#+begin_src sh\n# * no\n#+end_src\n: fixed\n"
    document = parsed("a.org", text)
    assert document.title == "Doc"
    assert [(kind, line, heading) for kind, line, heading, _ in blocks(document)] == [
        ("text", 1, ""), ("heading", 2, "One"), ("text", 3, "One"), ("table", 4, "One"), ("heading", 5, "Two"),
        ("code", 6, "Two"), ("code", 9, "Two"),
    ]  # fmt: skip


def test_asciidoc_headings_listings_and_tables() -> None:
    text = "= Doc\n\n== One\n.List\n[source]\n----\n== no\n----\n\nTwo\n---\n|===\n|a\n|===\n[NOTE]\n====\ntext\n====\n"
    document = parsed("a.adoc", text)
    assert document.title == "Doc"
    assert [(kind, line, heading) for kind, line, heading, _ in blocks(document)] == [
        ("heading", 1, "Doc"), ("heading", 3, "One"), ("code", 4, "One"), ("heading", 10, "Two"), ("table", 12, "Two"),
        ("text", 15, "Two"),
    ]  # fmt: skip


def test_latex_becomes_plain_text() -> None:
    text = r"""\documentclass{article}
\newcommand{\tool}{\textsf{Kettle}}
\title{The {\tool} of B\'e\ss}
\begin{document}
\begin{abstract}We show $x^2$.\end{abstract}
\section[s]{Intro\label{i}}
It's ``good''~--- 50\% \cite[p.~3]{a,b}. % comment
Next \emph{line}\footnote{Note.}, \verb|a\_b|, 10\textsuperscript{6}.
% comment

\begin{itemize}
\item one
\item[two] \tool{} and \href{http://x.org}{link}
\end{itemize}
\begin{equation}a=b\end{equation}
\begin{tabular}{ll}a & b\\ c & \multicolumn{1}{c}{d}\\\end{tabular}
\input{/etc/passwd}
\end{document}
after"""
    document = parsed("a.tex", text)
    assert document.title == "The Kettle of Béß"
    assert blocks(document) == [
        ("heading", 3, "The Kettle of Béß", "The Kettle of Béß"),
        ("heading", 5, "Abstract", "Abstract"),
        ("text", 5, "Abstract", "We show $x^2$."),
        ("heading", 6, "Intro", "Intro"),
        ("text", 7, "Intro", "It's “good” — 50% [a,b]. Next line (Note.), a\\_b, 10^6."),
        ("text", 12, "Intro", "- one\n- two: Kettle and http://x.org link"),
        ("code", 15, "Intro", "a=b"),
        ("table", 16, "Intro", "a | b\nc | d"),
    ]


def test_manual_page_in_the_macros_of_man() -> None:
    text = r""".\" comment
.TH FOO 1 2024
.SH NAME
foo \- do \fIthings\fR
.SH "OPTIONS AND MORE"
.TP
.BR \-a ", " \-\-all
Do all
of \(lqit\(rq.
.IP \(bu
item
.nf
  code
.fi
.SS Sub
.TS
tab(|);
l l.
a|b
T{
c
.B d
T}|T{
e
T}
.TE
.IP 2. 4
.so /etc/passwd
.BR bar (1)
"""
    document = parsed("foo.1", text)
    assert document.title == "foo(1)"
    assert blocks(document) == [
        ("heading", 2, "foo(1)", "foo(1)"),
        ("heading", 3, "NAME", "NAME"),
        ("text", 4, "NAME", "foo - do things"),
        ("heading", 5, "OPTIONS AND MORE", "OPTIONS AND MORE"),
        ("text", 7, "OPTIONS AND MORE", "-a, --all\nDo all of “it”."),
        ("text", 11, "OPTIONS AND MORE", "- item"),
        ("code", 13, "OPTIONS AND MORE", "  code"),
        ("heading", 15, "Sub", "Sub"),
        ("table", 19, "Sub", "a | b\nc d | e"),
        ("text", 29, "Sub", "2. bar(1)"),
    ]
    assert document.blocks[-1].headings == ("foo(1)", "OPTIONS AND MORE", "Sub")
    assert parsed("foo.1", ".SH NAME\nfoo\n").blocks[-1].headings == ("NAME",)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (".Op Fl a Ar file", "[-a file]"),
        (".Nm", "bar"),
        (".Em nothing .", "nothing."),
        (".Pq see Xr foo 1 .", "(see foo(1))."),
        (".Fl v , Fl -all", "-v, --all"),
        (".Fn printf \"char *f\" n", "printf(char *f, n)"),
        (".Ql x Ns Ar y", "‘xy’"),
    ],
)  # fmt: skip
def test_manual_page_in_the_macros_of_mdoc(line: str, expected: str) -> None:
    document = parsed("bar.8", f".Dd May 1\n.Dt BAR 8\n.Sh NAME\n.Nm bar\n.Nd do bars\n.Sh S\n{line}\n")
    assert document.title == "bar(8)"
    assert [text for *_, text in blocks(document)][2::2] == ["bar – do bars", expected]


def test_rotated_log_is_no_manual_page() -> None:
    assert [heading for _, _, heading, _ in blocks(parsed("syslog.1", "May  1 12:00:01 a b\n" * 3))] == ["May  1 12:00"]
    assert parsed("release-1.2", "Some text.\n").text == "Some text.\n"


def test_bibtex_entries() -> None:
    text = r"""@string{acm = "ACM"}
@comment{x}
@Book{k84,
 title = {The {\TeX}book}, author = "M{\"u}ller",
 publisher = acm # " Inc"}
@misc(x, note={Y})"""
    first, second = documents("a.bib", text)
    assert (first.title, dict(first.metadata)) == ("The TeXbook", {"entry": "k84", "type": "book"})
    assert first.text == "book k84\ntitle: The TeXbook\nauthor: Müller\npublisher: ACM Inc"
    assert first.line_numbers == [3, 4, 4, 5]
    assert second.text == "misc x\nnote: Y"
    assert parsed("a.bib", "no entry").text == "no entry"


def test_subtitles_have_a_heading_per_minute() -> None:
    text = (
        "WEBVTT\n\nSTYLE\n::cue {}\n\n1\n00:59.000 --> 01:00.500\n<v Ann>Hi &amp; <i>bye</i>\n\n"
        "01:01:01.000 --> 01:01:02.000\nlast\n"
    )
    assert blocks(parsed("a.vtt", text)) == [
        ("heading", 6, "00:00:00", "00:00:00"), ("text", 8, "00:00:00", "Ann: Hi & bye"),
        ("heading", 10, "01:01:00", "01:01:00"), ("text", 11, "01:01:00", "last"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("stamp", "minute"),
    [
        ("2024-05-01 12:03:04,5 INFO", "2024-05-01 12:03"),
        ("[2024-05-01T12:03:04Z]", "2024-05-01T12:03"),
        ('1.2.3.4 - - [01/May/2024:12:03:04 +0000] "GET /"', "01/May/2024:12:03"),
        ("May  1 12:03:04 host", "May  1 12:03"),
        ("12:03:04.5 x", "12:03"),
    ],
)
def test_log_lines_of_a_minute_are_one_block(stamp: str, minute: str) -> None:
    lines = [f"{stamp} a", "  trace", f"{stamp} b", f"{stamp.replace('12:03', '12:04')} c"]
    assert blocks(parsed("a.log", "\n".join(lines))) == [
        ("code", 1, minute, "\n".join(lines[:3])), ("code", 4, minute.replace("12:03", "12:04"), lines[3]),
    ]  # fmt: skip
    assert blocks(parsed("a.log", "one\n\ntwo"))[1] == ("text", 3, "", "two")


def test_log_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "PIECE_BYTES", 100)
    text = "".join(f"2024-05-01 12:03:04 line {number}\n" for number in range(20))
    pieces = documents("a.log", text)
    assert len(pieces) > 5
    assert "".join(piece.text for piece in pieces) == text
    assert [blocks(piece)[0][1] for piece in pieces][:3] == [1, 4, 7]
    assert {heading for piece in pieces for _, _, heading, _ in blocks(piece)} == {"2024-05-01 12:03"}


def notebook(*outputs: dict[str, Any]) -> str:
    cell = {"cell_type": "code", "source": ["x = 1\n", "x"], "outputs": outputs}
    return json.dumps({"cells": [cell], "nbformat": 4}, indent=1)


def test_notebook_outputs_are_kept_without_pictures() -> None:
    text = notebook(
        {"output_type": "stream", "text": ["\x1b[31mred\x1b[0m\n", "two\n"]},
        {"data": {"image/png": "iVBORw0", "text/plain": ["<Figure size 9x9 with 1 Axes>"]}},
        {"data": {"text/html": ["<table><tr><td>a</td>\n", "<td>b</td></tr></table>"]}},
        {"output_type": "error", "ename": "ValueError", "evalue": "bad", "traceback": ["long"]},
        {"output_type": "stream", "text": ["x" * 3_000]},
    )
    document = parsed("a.ipynb", text)
    assert [block[3] for block in blocks(document)] == ["x = 1\nx", "red\ntwo", "a | b", "ValueError: bad", "x" * 2_000]
    lines = text.split("\n")
    assert "red" in lines[blocks(document)[1][1] - 1]
    assert "ValueError" not in lines[blocks(document)[3][1] - 1]
    assert '"evalue": "bad"' in lines[blocks(document)[3][1] - 1]


HOSTILE = {
    "a.xml": "<a/>", "b.xml": "<a>&x;</a>", "a.json": '{"a":', "a.yaml": "- - a: ", "a.toml": "[", "a.sql": "/*",
    "a.org": "#+begin_src\n", "a.adoc": "[a]\n", "a.tex": "\\section{", "b.tex": "\\(", "c.tex": "\\begin{itemize}",
    "d.tex": "$", "a.1": ".TH A 1\n.de\n", "b.1": ".TH A 1\n.TS\n", "c.1": ".Dt A 1\n.Op Op ", "d.1": ".TH A\n\\[",
    "a.bib": "@a{b, x={", "b.bib": "@string{a={x}}\n@a{b, x=a#", "a.srt": "00:00:01,000 -->\n<", "a.log": "12:00:00 ",
    "a.ipynb": "[{", "a.txt": "\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_repeated_marks_end_in_text_or_one_error(name: str) -> None:
    text = HOSTILE[name] * 5_000
    found: list[ParsedDocument] = []
    with suppress(DocumentError):
        found = documents(name, text)
    assert sum(len(document.text) for document in found) <= 2 * len(text)


def test_short_lines_without_end_are_refused() -> None:
    with pytest.raises(DocumentError, match="1,000,002 lines of 1 characters on average: not a text"):
        documents("a.txt", "a\n" * 1_000_001)
