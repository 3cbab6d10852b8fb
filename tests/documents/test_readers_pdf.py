"""The reader of PDF files: golden files from Debian packages, layouts made here, limits."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import ReadOptions, pdf, read
from ragembed.documents.readers.pdf_layout import PdfCell, PdfLine
from ragembed.documents.readers.pdf_running import without_running_lines
from ragembed.errors import DocumentError
from ragembed.version import install_command
from tests.documents.office_files import outline

DATA = Path(__file__).resolve().parents[1] / "data" / "pdf"
Text = tuple[int, int, str]
"""Distances from the left and the lower side of the page, and a line of text."""


def parsed(data: bytes | Path, warnings: list[str] | None = None) -> ParsedDocument:
    options = ReadOptions(on_warning=None if warnings is None else warnings.append)
    data = data.read_bytes() if isinstance(data, Path) else data
    (document,) = read("a.pdf", data, options)
    assert document.line_numbers is None
    assert document.page_numbers is not None
    assert len(document.page_numbers) == document.text.count("\n") + 1
    return document


def texts(document: ParsedDocument, kind: str = "text") -> list[str]:
    return [document.text[b.start : b.end] for b in document.blocks if b.kind == kind]


CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"


def objects_to_pdf(objects: Sequence[bytes], properties: str = "") -> bytes:
    """Return a PDF of numbered objects. The first one is the catalogue; the properties become the last one."""
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate([*objects, f"<< {properties} >>".encode()], 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    last, size = len(offsets), len(offsets) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R /Info {last} 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + f"xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode()


def stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< %b /Length %d >>\nstream\n%b\nendstream" % (entries, len(content), content)


def make_pdf(pages: Sequence[Sequence[Text]], sizes: dict[str, int] | None = None, properties: str = "") -> bytes:
    """Return a PDF with the given lines in Helvetica, in this order. ``sizes`` are the font sizes of some lines."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    objects = [CATALOG, b"", font]
    kids = []
    for lines in pages:
        shown = [f"BT /F1 {(sizes or {}).get(text, 10)} Tf {x} {y} Td ({text}) Tj ET" for x, y, text in lines]
        objects.append(stream("\n".join(shown).encode("latin-1")))
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects)} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>".encode()
    return objects_to_pdf(objects, properties)


def page_in_font(content: str, font: str, *objects: bytes) -> bytes:
    """Return a PDF with one page in the font F. The numbers of further objects start at 6."""
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>"
    )
    pages = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    font = f"<< /Type /Font /Subtype /Type1 {font} >>"
    return objects_to_pdf([CATALOG, pages, page, stream(content.encode("latin-1")), font.encode(), *objects])


def as_golden(document: ParsedDocument) -> str:
    """Return title and blocks in the form of the golden files."""
    assert document.page_numbers is not None
    parts = [f"# {document.title}\n"]
    for block in document.blocks:
        page = document.page_numbers[document.text.count("\n", 0, block.start)]
        path = " > ".join((str(page), block.kind, *block.headings))
        parts.append(f"## {path}\n{document.text[block.start : block.end]}\n")
    return "\n".join(parts)


@pytest.mark.parametrize("name", ["manual", "tables", "arabic"])
def test_golden_files(name: str) -> None:
    """Headings of the outline, tables, code, dot leaders, right-to-left text; the sources are in README.md there."""
    warnings: list[str] = []
    assert as_golden(parsed(DATA / f"{name}.pdf", warnings)) == (DATA / f"{name}.txt").read_text(encoding="utf-8")
    assert warnings == []


def test_lines_are_kept_and_paragraphs_have_pages() -> None:
    first = [(50, 700, "The first paragraph of the document goes"), (50, 688, "on and ends here."), (50, 660, "Next.")]
    document = parsed(make_pdf([first, [(50, 700, "Second page.")]]))
    assert outline(document) == [
        ("text", "The first paragraph of the document goes\non and ends here.", ()),
        ("text", "Next.", ()),
        ("text", "Second page.", ()),
    ]
    assert document.page_numbers == [1, 1, 1, 1, 1, 2, 2]


def test_a_paragraph_continues_on_the_next_page() -> None:
    document = parsed(make_pdf([[(50, 100, "A sentence that is split")], [(50, 700, "between two pages.")]]))
    assert texts(document) == ["A sentence that is split\nbetween two pages."]
    assert document.page_numbers == [1, 2, 2]


LEFT = [(50, 700 - 12 * row, f"left column line {row} of the text") for row in range(8)]
RIGHT = [(320, 700 - 12 * row, f"right column line {row} of the text") for row in range(8)]


@pytest.mark.parametrize(
    "lines",
    [
        LEFT + RIGHT,
        [line for pair in zip(LEFT, RIGHT, strict=True) for line in pair],
        RIGHT[::-1] + LEFT[::-1],
    ],
    ids=["in order", "alternating", "upwards"],
)
def test_two_columns_are_read_one_after_the_other(lines: list[Text]) -> None:
    heading = (50, 740, "Heading over both columns of the page, in a line of its own")
    document = parsed(make_pdf([[heading, *lines] if lines[0] in LEFT else [*lines, heading]]))
    found = [line for text in texts(document) for line in text.split("\n")]
    assert found == [heading[2], *(text for *_, text in LEFT), *(text for *_, text in RIGHT)]


@pytest.mark.parametrize(
    ("matrix", "place"), [("0 1 -1 0", "{y} {x}"), ("0 -1 1 0", "-{y} -{x}"), ("-1 0 0 -1", "-{x} {y}")]
)
def test_turned_pages_are_read_like_others(matrix: str, place: str) -> None:
    rows = [
        (0, 0, "First line of the page"),
        (0, 12, "goes on here."),
        (0, 60, "Name"),
        (99, 60, "Size"),
        (0, 72, "a"),
        (99, 72, "7"),
    ]
    shown = [f"BT /F 10 Tf {matrix} {place.format(x=x, y=y)} Tm ({text}) Tj ET" for x, y, text in rows]
    content = stream(("1 0 0 1 300 300 cm " + " ".join(shown)).encode())
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 600] /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>"
    )
    document = parsed(objects_to_pdf([CATALOG, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>", page, content, font]))
    assert outline(document) == [
        ("text", "First line of the page\ngoes on here.", ()),
        ("table", "Name | Size\na | 7", ()),
    ]


@pytest.mark.parametrize("sign", ["𝑉", "𠮷", "🚀", "𞤀", "é"])
@pytest.mark.parametrize("text", ["The {} is here.", "{}", "{}{} {}", "End {}"])
def test_characters_outside_the_first_plane_are_read(sign: str, text: str) -> None:
    codes = sign.encode("utf-16-be").hex()
    characters = f"2 beginbfrange <20> <60> <0020> <61> <7a> <0061> endbfrange 1 beginbfchar <7B> <{codes}> endbfchar"
    mapping = f"begincmap 1 begincodespacerange <00> <FF> endcodespacerange {characters} endcmap"
    data = page_in_font(
        f"BT /F 11 Tf 72 720 Td ({text.format(*'{{{')}) Tj ET",
        "/BaseFont /Helvetica /ToUnicode 6 0 R",
        stream(mapping.encode()),
    )
    assert parsed(data).text == text.format(*[sign] * 3) + "\n"


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("(10) Tj /F 7 Tf 4 Ts (6) Tj /F 11 Tf 0 Ts ( m) Tj /F 7 Tf 4 Ts (-3) Tj", "10^6 m^-3"),
        ("(1250.00) Tj /F 7 Tf 4 Ts (1) Tj /F 11 Tf 0 Ts ( CO) Tj /F 7 Tf -2 Ts (2) Tj", "1250.00^1 CO2"),
        ("(L) Tj /F 8 Tf 3 Ts (A) Tj /F 11 Tf 0 Ts (TEX and S) Tj /F 8 Tf (MALL) Tj", "LATEX and SMALL"),
    ],
)
def test_raised_and_lowered_characters_do_not_change_a_number(shown: str, text: str) -> None:
    assert parsed(page_in_font(f"BT /F 11 Tf 72 720 Td {shown} ET", "/BaseFont /Helvetica")).text == f"{text}\n"


def test_letters_written_to_the_left_are_read_in_their_order() -> None:
    """PDFium turns round the letters of a file that has them in the order in which they are read."""
    mapping = "begincmap 1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfrange <61> <7a> <05D0> endbfrange"
    letters = "".join(f"1 0 0 1 {300 - 6.1 * at} 700 Tm ({letter}) Tj " for at, letter in enumerate("adbe"))
    data = page_in_font(
        f"BT /F 11 Tf {letters} ET",
        "/BaseFont /Helvetica /ToUnicode 6 0 R",
        stream(f"{mapping} endcmap".encode()),
    )
    assert parsed(data).text == "".join(chr(0x5D0 + ord(letter) - 97) for letter in "adbe") + "\n"


GLYPHS = "/Encoding << /Type /Encoding /Differences [3 /g3 11 /g11 /g12 97 {}] >>".format(
    " ".join(f"/{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")
)


@pytest.mark.parametrize(
    ("base", "shown", "text"),
    [
        ("ABCDEF+Frutiger", "(the\\003tide\\003mill)", "the tide mill"),
        ("ABCDEF+Frutiger", "[(the) -600 (mill) 40 (s)]", "the mills"),
        ("ABCDEF+Frutiger", "(mill\\013\\014)", "mill"),
        ("CMR10", "(mi\\013)", "miff"),
        ("XYZABC+SFRM1095", "(\\014ne)", "fine"),
    ],
)
def test_glyphs_without_characters_are_spaces_or_nothing(base: str, shown: str, text: str) -> None:
    content = f"BT /F 11 Tf 72 720 Td {shown} {'TJ' if shown[0] == '[' else 'Tj'} ET"
    assert parsed(page_in_font(content, f"/BaseFont /{base} {GLYPHS}")).text == f"{text}\n"


PLAIN = "the sluice gate on the north side was repaired in april and the keeper reported that the chain no longer slips"
UNMAPPED = "/BaseFont /ABCDEF+Arial /FirstChar 0 /LastChar 255 /Widths 6 0 R /Encoding << /Differences [{}] >>".format(
    "0 " + " ".join(f"/g{code}" for code in range(256))
)


def in_codes(text: str, shift: int) -> bytes:
    """Return a page in a font that does not say which characters its glyphs are."""
    codes = "".join(f"{(ord(letter) + shift) % 256:02x}" for letter in text)
    widths = f"[{' '.join(['500'] * 256)}]"
    return page_in_font(f"BT /F 11 Tf 20 720 Td <{codes}> Tj ET", UNMAPPED, widths.encode())


@pytest.mark.parametrize("text", [PLAIN, PLAIN.upper(), "вода поднимается".encode("cp1251").decode("latin-1") * 4])
@pytest.mark.parametrize("shift", [-29, -64, 3])
def test_codes_of_glyphs_are_reported(text: str, shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(
        DocumentError, match="its fonts do not say which letters they show; to read them, install the program Tess"
    ):
        parsed(in_codes(text, shift))


@pytest.mark.parametrize("mapped", ["", "Tide table"])
def test_a_page_of_glyphs_without_codes_of_characters_is_reported(mapped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    data = page_in_font(
        f"BT /F 11 Tf 72 720 Td ({mapped}) Tj <{'03040b0c' * 30}2e> Tj ET", "/BaseFont /ABCDEF+Frutiger"
    )
    if mapped:
        warnings: list[str] = []
        assert parsed(data, warnings).text.startswith(mapped)
        assert warnings[0].startswith("pages whose fonts do not say which letters they show: 1; to read them")
    else:
        with pytest.raises(DocumentError, match="contains no text, because its fonts do not say"):
            parsed(data)


@pytest.mark.parametrize(
    "text", [PLAIN, "Le gardien a dit que l'eau monte et il a ferme la porte.", "Gate 7", "4711 0815 9000"]
)
def test_guessed_characters_that_make_words_are_kept(text: str) -> None:
    assert parsed(in_codes(text, 0)).text == f"{text}\n"


COLUMNS = (
    """The mills stood along the    Owners kept careful logs
    estuary and used the tide    of every tide and of the
    to turn their wheels twice   flour sold, which are kept
    a day, at high water.        in the archive of the town.""",
    """Die M\xfchle stand am          Der M\xfcller f\xfchrte ein
    Bach und mahlte das          Buch \xfcber jede Fuhre
    Korn der Bauern aus          und \xfcber den Lohn der
    den drei D\xf6rfern bis         Knechte, das heute im
    zum Jahr des Brandes.        Museum liegt.""",
    """The mill stood at the brook and ground    The miller kept a book about all loads
    the corn of the farmers from the three    and about the wages of his men which is
    villages.                                 kept.""",
    """The old canal       Boats were drawn     Today it is used
    was dug by hand     by horses along      by walkers and
    in nine years       the towpath until    anglers, and the
    and carried coal    the railway took     locks have been
    to the city.        the trade.           restored.""",
)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(
    "note", ["1 Archive box 12.", "A line over the columns of the page that is rather long indeed."]
)
@pytest.mark.parametrize("prose", [True, False])
def test_columns_of_short_lines_are_read_one_after_the_other_and_tables_in_rows(
    columns: str, note: str, prose: bool
) -> None:
    rows = [re.split("  +", row.strip()) for row in columns.split("\n")]
    if not prose:
        rows = [[cell.capitalize() for cell in row] for row in rows]
    cells = [
        (72 + 516 // len(row) * at, 700 - 14 * y, cell) for y, row in enumerate(rows) for at, cell in enumerate(row)
    ]
    lines = [line for line in parsed(make_pdf([[*cells, (72, 560, note)]])).text.split("\n") if line]
    texts = [cell for column in zip(*rows, strict=True) for cell in column] if prose else [*map(" | ".join, rows)]
    assert lines == [*texts, note]


def with_annotations(*annotations: str) -> bytes:
    """Return a PDF with a page, a form and annotations."""
    lines = [(50, 700, "Name:"), (50, 680, "Paid:"), (50, 400, "End of the form.")]
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    shown = stream("\n".join(f"BT /F1 10 Tf {x} {y} Td ({text}) Tj ET" for x, y, text in lines).encode())
    kids = " ".join(f"{number} 0 R" for number in range(6, 6 + len(annotations)))
    page = (
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Annots [{kids}] "
        "/Resources << /Font << /F1 5 0 R >> >> >>"
    )
    catalog = f"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [{kids}] >> >>"
    pages = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    dictionaries = [f"<< /Type /Annot {entries} >>".encode() for entries in annotations]
    return objects_to_pdf([catalog.encode(), pages, page.encode(), shown, font, *dictionaries])


def test_values_of_form_fields_and_comments_are_read() -> None:
    field = "/Subtype /Widget /FT /Tx /T (a) /Rect [100 695 300 712]"
    states = "/V /Yes /AS /Yes /AP << /N << /Yes 5 0 R /Off 5 0 R >> >>"
    box = f"/Subtype /Widget /FT /Btn /T (b) /Rect [100 676 112 690] {states}"
    note = "/Subtype /Text /T (Ann) /Contents (Ask the\nharbour.) /Rect [500 400 520 420]"
    free = "/Subtype /FreeText /Contents (Written by hand) /Rect [60 600 300 620]"
    document = parsed(with_annotations(f"{field} /V (Bo Berg)", box, note, free))
    assert document.text.split("\n\n") == [
        "Name: | Bo Berg\nPaid: | [x]", "Written by hand", "End of the form.", "Comment by Ann: Ask the harbour.\n",
    ]  # fmt: skip
    secret = parsed(with_annotations(f"{field} /V (secret) /Ff 8192", f"{field} /V (hidden) /F 2", f"{field} /V (___)"))
    assert texts(secret) == ["Name:\nPaid:", "End of the form."]
    several = parsed(with_annotations("/Subtype /Widget /FT /Tx /T (a) /Rect [100 600 300 640] /V (One\nTwo)"))
    assert texts(several) == ["Name:\nPaid:", "One\nTwo", "End of the form."]


def test_properties_are_metadata_except_what_programs_write() -> None:
    of_person = "/Title (Kettles) /Author (Ann Lee) /Keywords (tea, hot) /CreationDate (D:20240501101500+02'00')"
    of_program = "/Title (untitled) /Author (anonymous) /Subject (unspecified) /CreationDate (D:20240501)"
    page = [(50, 700, "Water must boil for black tea.")]
    written = parsed(make_pdf([page], properties=of_person))
    assert (written.title, written.metadata) == (
        "Kettles",
        {
            "title": "Kettles",
            "author": "Ann Lee",
            "keywords": ["tea", "hot"],
            "created": "2024-05-01T10:15:00+02:00",
        },
    )
    assert parsed(make_pdf([page], properties=of_program)).metadata == {"created": "2024-05-01"}


def test_rows_of_a_table_have_cells_and_wrapped_cells_are_joined() -> None:
    rows = [("Name", "Size", "Use"), ("alpha", "1", "first of the letters"), ("beta", "22", "second")]
    lines = [(x, 700 - 12 * y, text) for y, row in enumerate(rows) for x, text in zip((50, 200, 300), row, strict=True)]
    lines += [(300, 664, "one of the let-"), (300, 652, "ters, wrapped"), (50, 620, "A paragraph below the table.")]
    assert outline(parsed(make_pdf([lines]))) == [
        (
            "table",
            "Name | Size | Use\nalpha | 1 | first of the letters\nbeta | 22 | second one of the letters, wrapped",
            (),
        ),
        ("text", "A paragraph below the table.", ()),
    ]


def test_headings_by_font_size() -> None:
    lines = ["Report", "An Author", "Intro-", "duction", "Some words of text.", "Method", "More words of the text."]
    sizes = {"Report": 20, "An Author": 16, "Intro-": 14, "duction": 14, "Method": 14}
    page = [(50, 700 - 18 * row, text) for row, text in enumerate(lines)]
    document = parsed(make_pdf([page], sizes=sizes))
    assert outline(document) == [
        ("heading", "Report", ("Report",)),
        ("text", "An Author", ("Report",)),
        ("heading", "Intro-\nduction", ("Report", "Introduction")),
        ("text", "Some words of text.", ("Report", "Introduction")),
        ("heading", "Method", ("Report", "Method")),
        ("text", "More words of the text.", ("Report", "Method")),
    ]
    assert document.title == "Report"


def running(*columns: Sequence[str]) -> list[str]:
    """Return the lines of pages that are left. Each column has a line of all pages, from the top to the bottom."""
    heights = (40, 52, 400, 700)
    pages = [
        [PdfLine([PdfCell(text, 50, y - 10, 300, y, 10)], 1) for text, y in zip(page, heights, strict=True) if text]
        for page in zip(*columns, strict=True)
    ]
    return [line.text for page in without_running_lines(pages, 10) for line in page]


SIX = range(1, 7)
TEXTS = [f"Words of page {'abcdef'[number - 1]}." for number in SIX]


@pytest.mark.parametrize(
    "label",
    [
        "{0}", "- {0} -", "[{0}]", "Page {0}", "PAGE {0} OF 6", "Seite {0} von 6", "p. {0}", "Página {0} de 6", "{0}/6",
        "{0} / 6", "Strona {0} z 6", "Sivu {0} (6)", "{0}. oldal", "Страница {0} из 6", "第{0}页", "第 {0} 页 共 6 页",
        "{0} ページ", "{0} 페이지", "صفحة {0} من 6", "Trang {0}/6", "4-{0}", "A-{0}", "1{0}",
    ],
)  # fmt: skip
def test_page_numbers_are_dropped(label: str) -> None:
    labels = [label.format(number) for number in SIX]
    name, other = ["The Report"] * 6, ["Second line of the header"] * 6
    assert running(name, other, TEXTS, labels) == [name[0], other[0], *TEXTS]
    assert running(labels, other, TEXTS, ["2024 Example Press"] * 6)[1:3] == [TEXTS[0], "2024 Example Press"]
    assert running([f"The Report | {text}" for text in labels], other, TEXTS, TEXTS)[1] == other[0]


def test_roman_numbers_and_restarting_page_numbers_are_dropped() -> None:
    roman = ["i", "ii", "iii", "iv", "v", "vi"]
    assert running(TEXTS, TEXTS, TEXTS, roman) == [text for text in TEXTS for _ in range(3)]
    assert running(TEXTS, TEXTS, TEXTS, [f"Page {1 + n % 2} of 2" for n in SIX]) == running(TEXTS, TEXTS, TEXTS, roman)


@pytest.mark.parametrize(
    "line",
    [
        "Invoice 2024-40{0}", "Invoice {0}", "Faktura nr 10{0}", "Total due {0}25.00 EUR", "Employee | 100{0}",
        "INV-{0}", "Date: 0{0}.03.2024", "{0} May 2024", "Folio: 77{0}", "Rechnung Nr. {0}", "Customer no. | {0}",
        "請求書番号 12{0}", "Amount: {0} 000,00 Kč", "Tax year 202{0}", "Sheet {0}b", "€ {0}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", range(4))
def test_lines_whose_numbers_differ_are_kept(line: str, at: int) -> None:
    columns = [TEXTS, TEXTS[::-1], TEXTS, TEXTS[::-1]]
    columns[at] = [line.format(number) for number in SIX]
    assert running(*columns) == [text for page in zip(*columns, strict=True) for text in page]


def test_the_first_of_the_lines_that_most_pages_repeat_is_kept() -> None:
    names = ["Anna", "Bert", "Anna", "Bert", "Cleo", "Cleo"]
    left = running(["ACME Ltd."] * 6, names, TEXTS, ["Confidential"] * 5 + ["End"])
    others = [text for pair in zip(names[1:], TEXTS[1:], strict=True) for text in pair]
    assert left == ["ACME Ltd.", names[0], TEXTS[0], "Confidential", *others, "End"]


def test_two_pages_are_too_few_for_running_lines_and_pages_keep_their_only_lines() -> None:
    same = ["Warning", "Keep off", "", "Acme"]
    assert running(*([text] * 2 for text in same)) == ["Warning", "Keep off", "Acme"] * 2
    assert running(*([text] * 6 for text in same)) == ["Warning", "Keep off", "Acme"] * 6


def test_titles_of_parts_beside_page_numbers_are_kept_once() -> None:
    heads = [f"Part {'A' if number < 6 else 'B'} | {number}" for number in range(1, 11)]
    left = running(heads, [""] * 10, [f"Words {letter}." for letter in "abcdefghij"], [""] * 10)
    assert [text for text in left if text.startswith("Part")] == ["Part A | 1", "Part B | 6"]


def test_documents_of_page_numbers_only_are_kept() -> None:
    assert texts(parsed(make_pdf([[(50, 700, str(number))] for number in SIX]))) == [*map(str, SIX)]


def test_running_lines_of_a_file_are_dropped() -> None:
    pages = [
        [
            (50, 760, "The Report"),
            (300, 760, f"{number}"),
            (50, 700, f"Invoice {number}."),
            (300, 40, f"Page {number} of 5"),
        ]
        for number in range(1, 6)
    ]
    assert texts(parsed(make_pdf(pages))) == ["The Report 1", *(f"Invoice {number}." for number in range(1, 6))]


def test_dot_leaders_are_dropped_and_the_numbers_of_a_table_of_contents_kept() -> None:
    pages = [
        [
            (50, 700, f"{page} Introduction . . . . . . . . . . {page + 9}"),
            (50, 688, f"{page}.1 Method ......... {page + 9}"),
        ]
        for page in range(1, 5)
    ]
    assert texts(parsed(make_pdf(pages))) == [
        f"{page} Introduction {page + 9}\n{page}.1 Method {page + 9}" for page in range(1, 5)
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"%PDF-1.4 nonsense", "corrupt PDF"),
        (b"", "corrupt PDF"),
        (b"not a pdf at all", "corrupt PDF"),
        (make_pdf([[(50, 700, "x")]])[:200], "corrupt PDF|no text"),
        (make_pdf([[]]), "contains no text"),
        (objects_to_pdf([b"<< /Type /Catalog >>"]), "corrupt PDF|no text"),
        (
            objects_to_pdf([CATALOG, b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 100000 >>"]),
            "100,000 pages: the limit is",
        ),
    ],
)
def test_broken_pdfs_are_rejected(data: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        parsed(data)


def test_truncated_pdf_is_read_or_rejected() -> None:
    whole = make_pdf([[(50, 700, "Some words here.")], [(50, 700, "More of them.")]])
    refused = 0
    for end in range(0, len(whole), 250):
        try:
            parsed(whole[:end])
        except DocumentError:  # noqa: PERF203
            refused += 1
    assert refused > 0


def test_password_is_needed_and_an_owner_password_is_not() -> None:
    with pytest.raises(DocumentError, match="encrypted with a password: save a copy without the password"):
        parsed(DATA / "user-password.pdf")
    assert parsed(DATA / "owner-password.pdf").text == "Secret words.\n"


def nested_forms(depth: int) -> bytes:
    """Return a PDF whose only text is drawn 10 to the power of ``depth`` times."""
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /XObject << /X 5 0 R >> >> >>"
    )
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X %d 0 R >> >>"
    forms = [stream(b"/X Do " * 10, form % (6 + level)) for level in range(depth)]
    return objects_to_pdf(
        [
            CATALOG,
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            page,
            stream(b"/X Do "),
            *forms,
            stream(b"0 0 1 1 re f", form % 5),
        ]
    )


def test_time_of_extraction_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "SECONDS", 0.3)
    monkeypatch.setattr(pdf, "MEMORY", 8_000_000_000)
    with pytest.raises(DocumentError, match=r"takes too long to read"):
        parsed(nested_forms(12))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_memory_of_extraction_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "SECONDS", 60)
    monkeypatch.setattr(pdf, "MEMORY", 120_000_000)
    with pytest.raises(DocumentError, match=r"needs more than 120 MB of memory"):
        parsed(nested_forms(12))


def test_amount_of_text_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "LONGEST_OUTPUT", 1000)
    with pytest.raises(DocumentError, match="contains too much text"):
        parsed(make_pdf([[(50, 700 - 12 * row, "Words") for row in range(40)]]))


def scan_and_text() -> bytes:
    """Return a PDF with a page of text and two pages that are images."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    image = stream(
        b"\0", b"/Type /XObject /Subtype /Image /Width 1 /Height 1 /BitsPerComponent 8 /ColorSpace /DeviceGray"
    )
    resources = b"<< /Font << /F 6 0 R >> /XObject << /I 7 0 R >> >>"
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents %d 0 R /Resources " + resources + b" >>"
    pages = b"<< /Type /Pages /Kids [3 0 R 8 0 R 9 0 R] /Count 3 >>"
    text, drawn = stream(b"BT /F 9 Tf 9 9 Td (Words) Tj ET"), stream(b"9 0 0 9 0 0 cm /I Do")
    return objects_to_pdf([CATALOG, pages, page % 4, text, drawn, font, image, page % 5, page % 5])


def test_scanned_pages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    warnings: list[str] = []
    assert parsed(scan_and_text(), warnings).text == "Words\n"
    remedy = f"to read them, install the program Tesseract, and run {install_command('documents')}"
    assert warnings == [f"scanned pages without text: 2–3; {remedy}"]
    with pytest.raises(DocumentError, match=re.escape(f"its pages are scans; {remedy}")):
        parsed(DATA / "scan.pdf")


def test_scanned_pages_are_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tesseract itself is replaced by its table of words, so that the test does not need the program."""
    pytesseract = pytest.importorskip("pytesseract")
    sizes: list[tuple[int, int]] = []
    words = [
        ("3.5", 1, 1, 100), ("devscripts", 1, 1, 170), ("The", 1, 2, 100), ("  ", 1, 2, 150), ("debsign", 1, 2, 160),
        ("command", 2, 1, 100),
    ]  # fmt: skip

    def image_to_data(image: object, **options: object) -> dict[str, list[object]]:
        assert options["lang"] == "deu+eng"
        sizes.append(image.size)
        return {
            "text": [word for word, *_ in words],
            "block_num": [block for _, block, _, _ in words],
            "par_num": [1] * len(words),
            "line_num": [line for _, _, line, _ in words],
            "left": [left for *_, left in words],
            "top": [100 * block + 40 * line for _, block, line, _ in words],
            "width": [50] * len(words),
            "height": [30] * len(words),
        }

    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/tesseract")
    monkeypatch.setattr(pytesseract, "get_languages", lambda: ["deu", "eng", "osd"])
    monkeypatch.setattr(pytesseract, "image_to_data", image_to_data)
    assert texts(parsed(DATA / "scan.pdf")) == ["3.5 devscripts\nThe debsign", "command"]
    assert sizes == [(2550, 1701)]


def test_failing_ocr_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytesseract = pytest.importorskip("pytesseract")

    def fail(*_: object, **__: object) -> None:
        raise pytesseract.TesseractError(1, "no language data")

    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/tesseract")
    monkeypatch.setattr(pytesseract, "get_languages", list)
    monkeypatch.setattr(pytesseract, "image_to_data", fail)
    with pytest.raises(DocumentError, match=r"its pages are scans; OCR failed: .*no language data"):
        parsed(DATA / "scan.pdf")
