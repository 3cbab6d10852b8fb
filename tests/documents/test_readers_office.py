"""Readers of Office and OpenDocument files: golden files of real programs, and files with one property each."""

from __future__ import annotations

import lzma
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import ReadOptions, converted, package, read, rtf, spreadsheet
from ragembed.documents.readers import structure as outlines
from ragembed.errors import ConfigError, DocumentError
from tests.documents.office_files import make_docx, make_xlsx, make_zip, outline, paragraph, relations, row_of

DATA = Path(__file__).parents[1] / "data" / "office"


def documents(name: str, options: ReadOptions | None = None) -> list[ParsedDocument]:
    return list(read(name, (DATA / name).read_bytes(), options or ReadOptions()))


def texts(found: Sequence[ParsedDocument]) -> list[str]:
    return [document.text.rstrip("\n") for document in found]


TITLE = "Kettle handbook"
HANDBOOK = [
    ("heading", TITLE, (TITLE,)),
    ("heading", "Safety", (TITLE, "Safety")),
    ("text", "Keep the kettle away from the edge of the table.", (TITLE, "Safety")),
    ("text", "Note: Hot water scalds within one second.", (TITLE, "Safety")),
    ("heading", "Children", (TITLE, "Safety", "Children")),
    ("text", "Children use the kettle only with an adult.", (TITLE, "Safety", "Children")),
    ("text", "Comment by Ann Lee: Ask the lawyers about the age limit.", (TITLE, "Safety", "Children")),
    ("text", "- Fill it up to the mark.", (TITLE, "Safety", "Children")),
    ("text", "- Close the lid: “click”.", (TITLE, "Safety", "Children")),
    ("heading", "Descaling", (TITLE, "Descaling")),
    ("text", "Descale as often as the table says.", (TITLE, "Descaling")),
    ("table", "Water | Interval\nsoft | 6 months\nhard | 3 weeks", (TITLE, "Descaling")),
    ("text", "The last paragraph.", (TITLE, "Descaling")),
    ("text", "Tip: use vinegar.", (TITLE, "Descaling")),
]


@pytest.mark.parametrize("suffix", ["docx", "odt", "rtf", "doc"])
def test_text_document_has_headings_notes_comments_and_boxes_without_deletions(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if suffix == "doc":
        pytest.importorskip("doc2docx")
        monkeypatch.setenv("PATH", str(tmp_path))
    (document,) = documents(f"handbook.{suffix}")
    assert outline(document) == HANDBOOK
    assert (document.title, document.line_numbers, document.page_numbers) == (TITLE, None, ())


@pytest.mark.parametrize("suffix", ["pptx", "odp"])
def test_slides_are_pages_with_tables_groups_notes_and_comments(suffix: str) -> None:
    (document,) = documents(f"sales.{suffix}")
    assert outline(document) == [
        ("heading", "Kettle sales", ("Kettle sales",)),
        ("text", "More than last year\nWhistling models lead", ("Kettle sales",)),
        ("text", "Greet the guests first.", ("Kettle sales",)),
        ("heading", "Figures", ("Figures",)),
        ("table", "Quarter | Sold\nQ1 | 120", ("Figures",)),
        ("text", "Grouped remark", ("Figures",)),
        ("text", "Explain the first quarter.", ("Figures",)),
        ("text", "Comment by Ann Lee: Check the numbers.", ("Figures",)),
    ]
    assert document.page_numbers == [1] * 7 + [2] * 11


@pytest.mark.parametrize("suffix", ["xlsx", "xls", "ods"])
def test_sheet_with_a_header_gives_one_document_per_row(suffix: str) -> None:
    if suffix == "xls":
        pytest.importorskip("xlrd")
    found = documents(f"stock.{suffix}", ReadOptions(title_column="Model"))
    assert texts(found) == [
        "Stock of kettles, spring",
        "Price: 49.5\nPieces: 4\nValue: 198\nSince: 2024-02-29",
        "Price: 20\nPieces: 10\nValue: 200\nSince: 2025-12-01\nComment on Price: Price rises in May.",
        "Count the stock each Friday.\nAnn counts; Bo checks.",
    ]
    assert [document.title for document in found] == [None, "Gooseneck", "Whistling", None]
    assert [document.blocks[0].headings for document in found] == [("Stock",)] * 3 + [("Remarks",)]
    assert [(document.line_numbers or [0])[0] for document in found] == [1, 4, 6, 1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "word-comments.docx",
            "Some text worthy of note.\n\nComment by Steve Canny: Text with hyperlink https://google.c",
        ),
        (
            "powerpoint-table.pptx",
            "Test text\n\nGroup test text\n\nBox 1\n\nBox 2\n\nCol head 1 | Col head 2\nCell text 1 | ",
        ),
        ("excel-tables.xlsx", "Item: 4\nUnits: 70"),
        ("merged.xls", "Region: North\nTrips 2023: 21\nTrips 2024: 22"),
        ("excel-types.xls", "String | 1 | 1.1 | TRUE | FALSE | 2010-10-10 | 2010-10-10 10:10:10 | 10:10:10"),
    ],
)
def test_files_of_microsoft_office_are_read(name: str, expected: str) -> None:
    if name.endswith("xls"):
        pytest.importorskip("xlrd")
    assert any(expected in document.text for document in documents(name))


def test_presentations_from_before_2007_need_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ppt2pptx")
    monkeypatch.setenv("PATH", str(tmp_path))
    (document,) = parsed("a.ppt", lzma.decompress((DATA / "slides.ppt.xz").read_bytes()))
    assert document.text.endswith(
        "Comment by ppt2pptx: visual fixture comment\n\nsecond slide\n\nvisual fixture speaker note\n"
    )


def noise(length: int, random: Random = Random(3)) -> str:  # noqa: B008
    """Return characters that cannot be compressed much."""
    return random.randbytes(length // 2).hex()


def parsed(name: str, data: bytes, options: ReadOptions | None = None) -> list[ParsedDocument]:
    return list(read(name, data, options or ReadOptions()))


def word_text(body: str, **parts: str) -> str:
    (document,) = parsed("a.docx", make_docx(body, **parts))
    return document.text.rstrip("\n")


def test_hidden_text_is_left_out_and_the_font_symbol_is_read() -> None:
    hidden = '<w:style w:type="{}" w:styleId="{}"><w:rPr><w:vanish/></w:rPr></w:style>'
    styles = f"<w:styles>{hidden.format('character', 'h')}{hidden.format('paragraph', 'p')}</w:styles>"
    runs = (
        ("", "seen "), ("<w:vanish/>", "gone"), ('<w:vanish w:val="0"/>', "too "), ('<w:rStyle w:val="h"/>', "gone"),
        ('<w:rFonts w:ascii="Symbol"/>', "a\uf062"),
    )  # fmt: skip
    text = "".join(f"<w:r><w:rPr>{style}</w:rPr><w:t>{text}</w:t></w:r>" for style, text in runs)
    signs = '<w:r><w:sym w:font="Symbol" w:char="F044"/><w:sym w:font="Wingdings" w:char="F044"/></w:r>'
    gone = '<w:p><w:pPr><w:pStyle w:val="p"/></w:pPr><w:r><w:t>gone</w:t></w:r></w:p>'
    assert word_text(f"<w:p>{text}{signs}</w:p>{gone}", styles=styles) == "seen too αβΔ"
    rtf = rb"{\rtf1{\fonttbl{\f0 Arial;}{\f3\fcharset2 Symbol;}}\f0 a {\f3 a\'62\u61511?} a\par}"
    assert parsed("a.rtf", rtf)[0].text == "a αβΓ a\n"


BOX = f"<w:txbxContent>{paragraph('box')}</w:txbxContent>"
NOTE = '<w:footnotes><w:footnote w:id="2">' + paragraph("a note") + "</w:footnote></w:footnotes>"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<w:p><w:ins><w:t>new</w:t></w:ins><w:del><w:delText>old</w:delText></w:del></w:p>", "new"),
        ("<w:p><w:moveFrom><w:r><w:t>a</w:t></w:r></w:moveFrom><w:r><w:t>b</w:t></w:r></w:p>", "b"),
        (f"<w:sdt><w:sdtPr><w:alias/></w:sdtPr><w:sdtContent>{paragraph('control')}</w:sdtContent></w:sdt>", "control"),
        ("<w:p><w:r><w:instrText>PAGE</w:instrText><w:t>3</w:t><w:tab/><w:t>x</w:t><w:br/><w:t>y</w:t></w:r></w:p>",
         "3\tx\ny"),
        (f"<w:p><AlternateContent><Choice>{BOX}</Choice><Fallback>{BOX}</Fallback></AlternateContent><w:t>x</w:t></w:p>",
         "x\n\nbox"),
        ('<w:p><w:r><w:t>x</w:t><w:footnoteReference w:id="2"/></w:r></w:p>', "x\n\nNote: a note"),
        ("<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t><w:footnoteReference w:id='2'/></w:r></w:p></w:tc><w:tc>"
         f"{paragraph('b')}</w:tc></w:tr><w:tr><w:trPr><w:del/></w:trPr><w:tc>{paragraph('gone')}</w:tc></w:tr></w:tbl>"
         + paragraph("below"), "a | b\n\nNote: a note\n\nbelow"),
        # A table with damaged numbers is read as far as possible.
        ("<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val='x'/></w:tcPr><w:t>a</w:t></w:tc><w:tc/></w:tr></w:tbl>", "a"),
    ],
)  # fmt: skip
def test_word_text(body: str, expected: str) -> None:
    assert word_text(body, footnotes=NOTE) == expected


def test_word_styles_are_inherited_and_contents_are_left_out() -> None:
    styles = """<w:styles><w:style w:styleId="H"><w:name w:val="heading 2"/></w:style>
        <w:style w:styleId="Own"><w:name w:val="Own"/><w:basedOn w:val="H"/></w:style>
        <w:style w:styleId="T"><w:name w:val="Title"/></w:style>
        <w:style w:styleId="Date"><w:name w:val="Date"/><w:basedOn w:val="T"/></w:style>
        <w:style w:styleId="Loop"><w:name w:val="Loop"/><w:basedOn w:val="Loop"/></w:style>
        <w:style w:styleId="C"><w:name w:val="toc 1"/></w:style></w:styles>"""
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/>{more}</w:pPr><w:r><w:t>{style}</w:t></w:r></w:p>'
        for style, more in [
            ("T", ""),
            ("Date", ""),
            ("Own", ""),
            ("Loop", ""),
            ("C", ""),
            ("Text", '<w:outlineLvl w:val="2"/>'),
        ]
    )
    (document,) = parsed("a.docx", make_docx(body, styles=styles))
    assert outline(document) == [
        ("heading", "T", ("T",)),
        ("text", "Date", ("T",)),
        ("heading", "Own", ("T", "Own")),
        ("text", "Loop", ("T", "Own")),
        ("heading", "Text", ("T", "Own", "Text")),
    ]


def test_page_headers_are_at_the_end_once() -> None:
    header = f"<w:hdr>{paragraph('QM-12')}</w:hdr>"
    assert word_text(paragraph("text"), header1=header, header2=header, footer1=header) == "text\n\nQM-12"


def test_broken_secondary_parts_are_warnings() -> None:
    warnings: list[str] = []
    data = make_docx(paragraph("text"), comments="<broken", styles="<styles/>")
    assert texts(parsed("a.docx", data, ReadOptions(on_warning=warnings.append))) == ["text"]
    slides = {
        f"ppt/s{n}.xml": f"<spTree><sp><txBody><p><t>{n}</t></p></txBody></sp>{'</spTree>' * (n != 2)}"
        for n in (1, 2, 3)
    }
    listed = "".join(f'<sldId xmlns:r="r" r:id="slide{n}"/>' for n in (1, 2, 3))
    main = {"ppt/presentation.xml": f"<p>{listed}</p>"}
    targets = {"ppt/_rels/presentation.xml.rels": relations(slide1="s1.xml", slide2="s2.xml", slide3="s3.xml")}
    (show,) = parsed("a.pptx", make_zip({**main, **targets, **slides}), ReadOptions(on_warning=warnings.append))
    assert (show.text, show.page_numbers) == ("1\n\n3\n", [1, 1, 3, 3])
    data = make_xlsx(row_of("a", "b") + row_of("c", "d"), "<row>")
    assert texts(parsed("a.xlsx", data, ReadOptions(on_warning=warnings.append))) == ["a: c\nb: d"]
    reasons = ("'word/comments.xml' is malformed", "1 slides cannot be read (slide 2", "1 of 2 sheets cannot be read")
    assert [reason in warning for reason, warning in zip(reasons, warnings, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("Prices",), (), ("tea", "pot"), ("a", "=2")], ["Prices", "tea: a\npot: 2"]),
        ([("Region", "=2023", "=2024"), ("North", "=5", "=6")], ["Region: North\n2023: 5\n2024: 6"]),
        ([("North", "=5"), ("South", "=6")], ["North | 5\nSouth | 6"]),
        ([("one",), ("two",)], ["one\ntwo"]),
        ([("a", "a", ""), ("=1", "=2", "=3")], ["a: 1\na 2: 2\ncolumn 3: 3"]),
        ([("a", "b"), ("=1",), ("a", "b"), ("=2",)], ["a: 1", "a: 2"]),
    ],
)
def test_header_of_a_sheet(rows: list[tuple[str, ...]], expected: list[str]) -> None:
    assert texts(parsed("a.xlsx", make_xlsx("".join(row_of(*row) for row in rows)))) == expected


def test_columns_are_chosen_as_in_tables() -> None:
    data = make_xlsx(
        row_of("=1", "x", "note") + row_of("id", "name", "text") + row_of("=7", "Ann", "hello"),
        row_of("other", "sheet") + row_of("a", "b"),
    )
    options = ReadOptions(text_columns=("text",), title_column="name")
    first, second = parsed("a.xlsx", data, options)
    assert first.text.rstrip() == "1 | x | note"
    assert (second.text, second.title, second.metadata) == ("hello", "Ann", {"id": "7"})
    assert second.line_numbers == [3]
    with pytest.raises(ConfigError, match="unknown column 'missing': expected one of other, sheet"):
        parsed("a.xlsx", data, ReadOptions(text_columns=("missing",)))


def test_cells_of_excel_have_their_types() -> None:
    codes = {164: "[Red]yyyy\\-mm;@", 165: "0 &quot;m&quot;"}
    formats = "".join(f'<numFmt numFmtId="{number}" formatCode="{code}"/>' for number, code in codes.items())
    used = "".join(f'<xf numFmtId="{number}"/>' for number in (0, 14, 22, 46, *codes))
    styles = f"<numFmts>{formats}</numFmts><cellXfs>{used}</cellXfs>"
    cells = [
        '<c t="s"><v>0</v></c>', '<c t="s"><v>9</v></c>', '<c t="b"><v>1</v></c>', '<c t="e"><v>#N/A</v></c>',
        '<c t="inlineStr"><is><t>in</t></is></c>', "<c><f>1/3</f><v>0.33333333333333331</v></c>",
        '<c s="1"><v>60</v></c>', '<c s="2"><v>45351.573</v></c>', '<c s="3"><v>1.5</v></c>', '<c s="4"><v>1</v></c>',
        '<c s="5"><v>3</v></c>', '<c s="1"><v>-4</v></c>', '<c s="1"><v>1e300</v></c>', '<c r="AA1"><v>1E3</v></c>',
    ]  # fmt: skip
    strings = "<si><r><t>ri</t></r><r><t>ch</t></r><rPh><t>no</t></rPh></si>"
    data = make_xlsx(f"<row>{''.join(cells)}</row>", strings=strings, styles=styles)
    (document,) = parsed("a.xlsx", data)
    values = "rich | TRUE | #N/A | in | 0.333333333333333 | 1900-02-28 | 2024-02-29 13:45:07 | 36:00:00 | 1900-01-01"
    assert document.text == f"{values} | 3 | -4 | 1e+300 | 1000\n"
    (document,) = parsed("a.xlsx", make_xlsx('<row><c s="1"><v>0</v></c></row>', styles=styles, date1904="1"))
    assert document.text == "1904-01-01\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (r"a\par b\line c", "a\n\nb\nc"),
        (r"{\fonttbl{\f1\fcharset204 X;}}{\f1 \'cf\'f0\'e8}\u8364?\'e4", "При€ä"),
        (r"\uc2\u26085\'93\'fa\uc1 \u-3 ?x\u55357?\u56832?", "日\ufffdx😀"),
        (r"{\fonttbl{\f0\fcharset128 X;}}\f0\'83A", "ア"),
        (r"a{\*\unknown b}{\v hidden}{\deleted gone}{\pict 00ff}\bin3 {{{b", "ab"),
        (r"\intbl a\cell b\cell\row\pard c", "a | b\n\nc"),
        (r"x{\footnote\pard note}\par{\*\atnauthor Ann}{\*\annotation why}y\par",
         "x\n\nNote: note\n\ny\n\nComment by Ann: why"),
        (r"{\field{\*\fldinst HYPERLINK x}{\fldrslt link}}\{\}\~\_\\", "link{}\N{NO-BREAK SPACE}-\\"),
        (r"{\stylesheet{\s1 heading 1;}{\s2 toc 1;}}\s1 H\par\pard\s2 left out\par\pard{\listtext *}item",
         "H\n\n- item"),
        (r"{\shp{\*\shpinst{\sp{\sn x}}{\shptxt box}}}text{\header head}", "text\n\nbox\n\nhead"),
    ],
)  # fmt: skip
def test_rtf_text(body: str, expected: str) -> None:
    (document,) = parsed("a.rtf", rf"{{\rtf1\ansi\ansicpg1252 {body}}}".encode("latin-1"))
    assert document.text.rstrip("\n") == expected


ENTITIES = '<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><a>&b;</a>'
SHARED = '<c t="s"><v>0</v></c>'
END = "</w:p>"
FIRST = f"<w:tr><w:tc><w:tcPr><w:vMerge w:val='restart'/></w:tcPr><w:t>{'x' * 999}</w:t></w:tc></w:tr>"
MERGED = "<w:tr><w:tc><w:tcPr><w:vMerge/></w:tcPr></w:tc></w:tr>"
REPEATED = """<body><spreadsheet><table><table-row><table-cell number-columns-repeated='999999999'><p>many</p>
</table-cell></table-row></table></spreadsheet></body>"""
LIMITS: dict[Any, dict[str, int]] = {
    package: {"RATIO_FROM": 10_000, "MOST_NODES_HELD": 2_000, "LARGEST_TOKEN": 200_000, "MOST_ELEMENTS": 20_000},
    outlines: {"LONGEST_TEXT": 10_000},
    spreadsheet: {"MOST_ROWS": 100, "LONGEST_ROW": 1_000},
    rtf: {"MOST_TOKENS": 3_000},
}
BOMBS: dict[str, tuple[str, bytes, str]] = {
    "entities": ("a.docx", make_zip({"word/document.xml": ENTITIES}), "declares a document type"),
    "levels": ("a.odt", make_zip({"content.xml": "<a>" * 300}), "nested too deeply"),
    "text": ("a.docx", make_docx(noise(400_000)), "a tag or text in .* is longer than"),
    "names": ("a.docx", make_docx("".join(f"<a{n}/>" for n in range(10_001))), "10,000 different XML names"),
    "zeros": ("a.docx", make_docx("<w:p>" + " " * 400_000 + "</w:p>"), "unpacks to more than 250 times"),
    "elements": ("a.docx", make_docx("".join(f"<w:p/>{noise(9)}" for _ in range(25_000))), "more than 20,000 XML"),
    "paragraph": ("a.docx", make_docx("<w:p>" + "".join(f"<w:r/>{noise(9)}" for _ in range(9_000)) + END), "a piece"),
    "merged cells": ("a.docx", make_docx(f"<w:tbl>{FIRST}{MERGED * 20}</w:tbl>"), "longer than 10,000 characters"),
    "shared strings": ("a.xlsx", make_xlsx(f"<row>{SHARED * 20}</row>", strings=f"<si><t>{'x' * 99}</t></si>"),
                       "row 1 has more than 1,000 characters"),
    "rows": ("a.xlsx", make_xlsx(row_of("=1") * 101), "more than 100 rows"),
    "repeated cells": ("a.ods", make_zip({"content.xml": REPEATED}),
                       "row 1 has more than 1,000 characters"),
    "groups": ("a.rtf", b"{\\rtf1" + b"{" * 2_000, "nested too deeply"),
    "tokens": ("a.rtf", b"{\\rtf1" + b"{}" * 2_000, "more than 3,000 RTF tokens"),
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_hostile_files_end_in_an_error(bomb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limits in LIMITS.items():
        for limit, value in limits.items():
            monkeypatch.setattr(module, limit, value)
    name, data, reason = BOMBS[bomb]
    with pytest.raises(DocumentError, match=reason):
        parsed(name, data)


def test_size_that_the_zip_declares_is_not_trusted() -> None:
    """The central directory declares ten bytes; the part has more, and the unpacked bytes end there."""
    data = bytearray(make_docx(paragraph("x" * 100_000)))
    name = b"word/document.xml"
    for header, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.index(header)
        data[at + offset : at + offset + 4] = (10).to_bytes(4, "little")
    assert name in data
    with pytest.raises(DocumentError, match="cannot be unpacked"):
        parsed("a.docx", bytes(data))


def test_total_size_of_the_parts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "LARGEST_PACKAGE", 60_000)
    slides = {f"ppt/s{n}.xml": f"<spTree>{n}{'x' * 30_000}</spTree>" for n in (1, 2, 3)}
    listed = "".join(f'<sldId xmlns:r="r" r:id="slide{n}"/>' for n in (1, 2, 3))
    targets = relations(slide1="s1.xml", slide2="s2.xml", slide3="s3.xml")
    main = {"ppt/presentation.xml": f"<p>{listed}</p>", "ppt/_rels/presentation.xml.rels": targets}
    with pytest.raises(DocumentError, match="unpacks to more than 60,000 bytes"):
        parsed("a.pptx", make_zip({**main, **slides}))


@pytest.mark.parametrize("name", sorted(file.name for file in DATA.glob("*.*") if file.suffix not in (".md", ".doc")))
def test_damaged_files_are_read_or_rejected(name: str) -> None:
    if name.endswith("xls"):
        pytest.importorskip("xlrd")
    whole = (DATA / name).read_bytes()
    random, refused = Random(7), 0
    for number in range(40):
        damaged = bytearray(whole[: len(whole) - number * len(whole) // 80] if number % 2 else whole)
        for _ in range(1 + number // 4):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        try:
            parsed(name, bytes(damaged))
        except DocumentError:
            refused += 1
    assert refused  # the damage is large enough to matter


def test_loop_of_sectors_in_an_old_container_ends() -> None:
    pytest.importorskip("xlrd")
    data = bytearray((DATA / "stock.xls").read_bytes())
    table = 512 * (1 + int.from_bytes(data[60:64], "little"))
    data[table : table + 256] = bytes(256)  # each small sector is followed by the first one
    with pytest.raises(DocumentError, match="corrupt Excel file"):
        parsed("a.xls", bytes(data))


CONVERTER = """#!{python}
import pathlib, sys, time
if "{action}" == "sleep":
    time.sleep(60)
if "{action}" == "fail":
    sys.exit(3)
folder = pathlib.Path(sys.argv[sys.argv.index("--outdir") + 1])
assert folder.joinpath("document.doc").read_bytes() == pathlib.Path(sys.argv[-1]).read_bytes()
if "{action}" == "convert":
    folder.joinpath("document.docx").write_bytes(pathlib.Path("{converted}").read_bytes())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs scripts that can be executed")
@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("convert", ""),
        ("fail", "soffice fails with status 3"),
        ("nothing", "soffice cannot convert it"),
        ("sleep", "soffice needs more than 1 seconds"),
        ("absent", "no converter for doc files: install the extra documents, LibreOffice, antiword or catdoc, or save"),
    ],
)
def test_doc_is_converted(action: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "soffice"
    if action != "absent":
        text = CONVERTER.format(python=sys.executable, action=action, converted=DATA / "handbook.docx")
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(converted, "LONGEST_SECONDS", 1 if action == "sleep" else 30)
    monkeypatch.setattr(converted, "is_installed", lambda _: False)
    if reason:
        with pytest.raises(DocumentError, match=reason):
            documents("handbook.doc")
    else:
        assert [outline(document) for document in documents("handbook.doc")] == [HANDBOOK]


def test_doc_with_another_content_needs_no_converter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for source in ("handbook.rtf", "handbook.docx"):
        (document,) = parsed("a.doc", (DATA / source).read_bytes())
        assert outline(document) == HANDBOOK
    with pytest.raises(DocumentError, match="corrupt doc file"):
        parsed("a.doc", b"no document")
    page = b"<html><title>Gate</title><h1>Gate</h1></html>"
    archive = (
        b"Subject: x\r\nContent-Type: multipart/related;\r\n boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n"
    )
    for data in (page, archive + page):
        assert texts(parsed("a.doc", data)) == ["Gate"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("\ufeff<html><table><tr><th>Boat<th>Port<tr><td>Fru<td>Moss</table></html>", "Boat | Port\nFru | Moss"),
        ("<?xml version='1.0'?><Workbook><Data>Fru</Data></Workbook>", "Data: Fru"),
        ("Boat\tPort\nFru\tMoss\n", "Boat: Fru\nPort: Moss"),
    ],
)
def test_exports_named_xls_are_read_as_what_they_are(data: str, expected: str) -> None:
    assert texts(parsed("a.xls", data.encode())) == [expected]


def test_wide_sheet_with_short_rows_takes_linear_time() -> None:
    columns, rows = 16_384, 10_000  # Their product would take minutes.
    header = row_of(*["a"] * columns)
    found = parsed("a.xlsx", make_xlsx(header + row_of("x") * rows))
    assert [document.text for document in found] == ["a: x"] * rows
