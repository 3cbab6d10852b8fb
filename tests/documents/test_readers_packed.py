"""Readers of docx, pptx and epub files, and missing packages. The tests create the files."""

from __future__ import annotations

import sys
from copy import deepcopy
from io import BytesIO

import pytest

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import ReadOptions, read
from ragembed.errors import DocumentError, MissingExtraError
from tests.documents.office_files import make_zip, outline


def parsed(name: str, data: bytes, options: ReadOptions | None = None) -> ParsedDocument:
    (document,) = read(name, data, options or ReadOptions())
    assert document.line_numbers is None
    assert document.page_numbers is not None
    return document


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xlrd", None)
    with pytest.raises(MissingExtraError, match=r"\[documents\]"):
        parsed("a.xls", b"")


def test_files_of_python_docx() -> None:
    docx = pytest.importorskip("docx")
    file = docx.Document()
    file.core_properties.title = "From the properties"
    file.add_heading("Part", 1)
    file.add_paragraph("one\ntwo")
    file.add_paragraph("item", style="List Bullet")
    small = file.add_table(3, 3)
    for number, cell in enumerate(cell for row in small.rows for cell in row.cells):
        cell.text = str(number)
    small.cell(1, 0).merge(small.cell(2, 1))
    high = file.add_table(1000, 1)  # more than Python's recursion limit
    high.cell(0, 0).text = "top"
    for number, row in enumerate(high._tbl.tr_lst):
        row.tc_lst[0].vMerge = "continue" if number else "restart"
    buffer = BytesIO()
    file.save(buffer)
    document = parsed("a.docx", buffer.getvalue())
    assert outline(document) == [
        ("heading", "Part", ("Part",)),
        ("text", "one\ntwo", ("Part",)),
        ("text", "- item", ("Part",)),
        ("table", "0 | 1 | 2\n3 4 6 7 | 5\n3 4 6 7 | 8", ("Part",)),
        ("table", ("top\n" * 1000).rstrip(), ("Part",)),
    ]
    assert (document.title, document.page_numbers) == ("From the properties", ())


def test_pptx_slides_are_pages_with_notes() -> None:
    pptx = pytest.importorskip("pptx")
    file = pptx.Presentation()
    for number in (1, 2):
        slide = file.slides.add_slide(file.slide_layouts[1])
        slide.shapes.title.text = f"Slide {number}"
        slide.placeholders[1].text = f"body {number}"
    slide.notes_slide.notes_text_frame.text = "spoken"
    table = slide.shapes.add_table(1, 2, 0, 0, 100, 100).table
    table.cell(0, 0).text, table.cell(0, 1).text = "a", "b"
    named = file.slides._sldIdLst
    named.extend([deepcopy(named[0]) for _ in range(20_000)])  # a repeated slide is read once
    buffer = BytesIO()
    file.save(buffer)
    document = parsed("a.pptx", buffer.getvalue())
    assert outline(document) == [
        ("heading", "Slide 1", ("Slide 1",)),
        ("text", "body 1", ("Slide 1",)),
        ("heading", "Slide 2", ("Slide 2",)),
        ("text", "body 2", ("Slide 2",)),
        ("table", "a | b", ("Slide 2",)),
        ("text", "spoken", ("Slide 2",)),
    ]
    assert document.page_numbers == [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]
    assert document.title == "Slide 1"


CONTAINER = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
PACKAGE = """<package xmlns:dc="x"><metadata><dc:title>The Book</dc:title></metadata><manifest>
<item id="two" href="b%20c.xhtml" media-type="application/xhtml+xml"/>
<item id="one" href="a.xhtml" media-type="application/xhtml+xml"/>
<item id="css" href="s.css" media-type="text/css"/></manifest>
<spine><itemref idref="one"/><itemref idref="two"/><itemref idref="css"/></spine></package>"""
BOOK: dict[str, bytes | str] = {
    "META-INF/container.xml": CONTAINER,
    "OEBPS/book.opf": PACKAGE,
    "OEBPS/a.xhtml": "<html><head><title>x</title></head><body><h1>Chapter One</h1><p>first</p></body></html>",
    "OEBPS/b c.xhtml": "<html><head><title>Two</title></head><body><p>second</p></body></html>",
}


@pytest.mark.parametrize("repeated", [0, 20_000])
def test_epub_chapters_are_in_spine_order(repeated: int) -> None:
    package = PACKAGE.replace("<spine>", "<spine>" + '<itemref idref="one"/>' * repeated)
    document = parsed("a.epub", make_zip({**BOOK, "OEBPS/book.opf": package}))
    assert outline(document) == [
        ("heading", "Chapter One", ("Chapter One",)),
        ("text", "first", ("Chapter One",)),
        ("text", "second", ("Two",)),
    ]
    assert (document.title, document.page_numbers) == ("The Book", ())


def test_properties_of_a_book_are_metadata() -> None:
    more = "<dc:creator>Ann Lee</dc:creator><dc:creator>Bo Lund</dc:creator><dc:date>2001-02-03</dc:date>"
    document = parsed(
        "a.epub", make_zip({**BOOK, "OEBPS/book.opf": PACKAGE.replace("</metadata>", f"{more}</metadata>")})
    )
    assert document.metadata == {"title": "The Book", "author": "Ann Lee, Bo Lund", "date": "2001-02-03"}
    assert document.text.startswith("author: Ann Lee, Bo Lund\n")


def test_epub_headers_and_asides_are_text_and_menus_are_not() -> None:
    notes = (
        '<aside epub:type="footnote"><a href="#r">1</a> The mason.</aside><aside>A box.</aside><footer>An end.</footer>'
    )
    chapter = f"<body><nav>Contents</nav><header><h1>Wall</h1></header><p>{'Old walls stand. ' * 9}</p>{notes}</body>"
    document = parsed("a.epub", make_zip({**BOOK, "OEBPS/a.xhtml": chapter}))
    assert [text for _, text, _ in outline(document)] == [
        "Wall", ("Old walls stand. " * 9).strip(), "1 The mason.", "A box.", "An end.", "second",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"META-INF/container.xml": "<container/>"}, "lists no package file"),
        ({"OEBPS/book.opf": "<package/>"}, "lists no chapters"),
        ({"OEBPS/book.opf": PACKAGE.replace("a.xhtml", "gone.xhtml")}, "'OEBPS/gone.xhtml' is missing"),
        ({"META-INF/encryption.xml": '<enc:CipherReference URI="OEBPS/a.xhtml"/>'}, "copy protection"),
    ],
)
def test_broken_epubs_are_rejected(change: dict[str, bytes | str], reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        parsed("a.epub", make_zip({**BOOK, **change}))


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx", "a.odt", "a.odp", "a.ods", "a.epub"])
@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "broken zip"), (b"PK\x03\x04 cut", "broken zip"), (b"\xd0\xcf\x11\xe0rest", "encrypted, or in the Office"),
     (make_zip({"x": "y"}), "broken (Word|PowerPoint|Excel|OpenDocument|EPUB).* is missing")],
)  # fmt: skip
def test_broken_containers_are_rejected(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        parsed(name, data)


def test_epub_with_a_damaged_member_is_rejected() -> None:
    data = bytearray(make_zip(BOOK))
    data[data.index(b"a.xhtml") + 20] ^= 0xFF
    with pytest.raises(DocumentError, match="cannot be unpacked"):
        parsed("a.epub", bytes(data))


def test_a_member_before_the_beginning_of_the_file_is_damage() -> None:
    data = bytearray(make_zip(BOOK))
    place = data.rindex(b"PK\5\6") + 16  # of the central directory
    data[place : place + 4] = (int.from_bytes(data[place : place + 4], "little") + 42).to_bytes(4, "little")
    with pytest.raises(DocumentError, match="cannot be unpacked"):
        parsed("a.epub", bytes(data))
