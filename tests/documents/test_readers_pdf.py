"""The reader of PDF files: golden files from Debian packages, layouts made here, limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import ReadOptions, read
from ragembed.errors import DocumentError

pytest.importorskip("pypdfium2")

DATA = Path(__file__).resolve().parents[1] / "data" / "pdf"
Text = tuple[int, int, str]
"""Distances from the left and the lower side of the page, and a line of text."""


def parsed(data: bytes | Path, warnings: list[str] | None = None) -> ParsedDocument:
    options = ReadOptions(on_warning=None if warnings is None else warnings.append)
    data = data.read_bytes() if isinstance(data, Path) else data
    (document,) = read(Path("a.pdf"), options, data=data)
    assert document.line_numbers is None
    assert document.page_numbers is not None
    assert len(document.page_numbers) == document.text.count("\n") + 1
    return document


def outline(document: ParsedDocument) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(b.kind, document.text[b.start : b.end], b.headings) for b in document.blocks]


def texts(document: ParsedDocument, kind: str = "text") -> list[str]:
    return [document.text[b.start : b.end] for b in document.blocks if b.kind == kind]


def objects_to_pdf(objects: Sequence[bytes]) -> bytes:
    """Return a PDF of numbered objects, of which the first one is the catalogue."""
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    trailer = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
    return out + f"{trailer}startxref\n{len(out)}\n%%EOF\n".encode()


def stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< %b /Length %d >>\nstream\n%b\nendstream" % (entries, len(content), content)


def make_pdf(pages: Sequence[Sequence[Text]], title: str = "", sizes: dict[str, int] | None = None) -> bytes:
    """Return a PDF with the given lines in Helvetica, in this order. ``sizes`` are the font sizes of some lines."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", font]
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
    return objects_to_pdf(objects)


def test_lines_are_kept_and_paragraphs_have_pages() -> None:
    first = [(50, 700, "The first paragraph of the document goes"), (50, 688, "on and ends here."), (50, 660, "Next.")]
    document = parsed(make_pdf([first, [(50, 700, "Second page.")]]))
    assert outline(document) == [
        ("text", "The first paragraph of the document goes\non and ends here.", ()),
        ("text", "Next.", ()),
        ("text", "Second page.", ()),
    ]
    assert document.page_numbers == [1, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"%PDF-1.4 nonsense", "corrupt PDF"),
        (b"", "corrupt PDF"),
        (b"not a pdf at all", "corrupt PDF"),
        (make_pdf([[(50, 700, "x")]])[:200], "corrupt PDF|no text"),
        (make_pdf([[]]), "contains no text"),
        (objects_to_pdf([b"<< /Type /Catalog >>"]), "corrupt PDF|no text"),
    ],
)
def test_broken_pdfs_are_rejected(data: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        parsed(data)


def test_truncated_pdf_is_read_or_rejected() -> None:
    whole = make_pdf([[(50, 700, "Some words here.")], [(50, 700, "More of them.")]])
    refused = 0
    for end in range(0, len(whole), 150):
        try:
            parsed(whole[:end])
        except DocumentError:  # noqa: PERF203
            refused += 1
    assert refused > 0


def test_password_is_asked_for_and_an_owner_password_is_not() -> None:
    with pytest.raises(DocumentError, match="encrypted with a password: save a copy without the password"):
        parsed(DATA / "user-password.pdf")
    assert parsed(DATA / "owner-password.pdf").text == "Secret words.\n"
